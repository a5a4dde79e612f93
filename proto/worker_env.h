// Names of the environment variables by which agent and worker meet. The agent writes them, the
// trainer (and any program that knows torchrun) reads them. torchrun's names first; ours begin with
// DDPRUN_.
#pragma once

#include <string_view>

namespace ddprun::worker_env {

inline constexpr std::string_view kRank = "RANK";
inline constexpr std::string_view kLocalRank = "LOCAL_RANK";
inline constexpr std::string_view kGroupRank = "GROUP_RANK";
inline constexpr std::string_view kRoleRank = "ROLE_RANK";
inline constexpr std::string_view kRoleName = "ROLE_NAME";
inline constexpr std::string_view kRoleWorldSize = "ROLE_WORLD_SIZE";
inline constexpr std::string_view kWorldSize = "WORLD_SIZE";
inline constexpr std::string_view kLocalWorldSize = "LOCAL_WORLD_SIZE";
inline constexpr std::string_view kGroupWorldSize = "GROUP_WORLD_SIZE";
inline constexpr std::string_view kMasterAddr = "MASTER_ADDR";
inline constexpr std::string_view kMasterPort = "MASTER_PORT";
inline constexpr std::string_view kRestartCount = "TORCHELASTIC_RESTART_COUNT";
inline constexpr std::string_view kMaxRestarts = "TORCHELASTIC_MAX_RESTARTS";
inline constexpr std::string_view kRunId = "TORCHELASTIC_RUN_ID";
inline constexpr std::string_view kUseAgentStore =
    "TORCHELASTIC_USE_AGENT_STORE";  ///< always "True"
inline constexpr std::string_view kErrorFile = "TORCHELASTIC_ERROR_FILE";
inline constexpr std::string_view kSignalsToHandle = "TORCHELASTIC_SIGNALS_TO_HANDLE";
inline constexpr std::string_view kNcclAsyncErrorHandling = "TORCH_NCCL_ASYNC_ERROR_HANDLING";
inline constexpr std::string_view kOmpNumThreads = "OMP_NUM_THREADS";
inline constexpr std::string_view kCudaVisibleDevices = "CUDA_VISIBLE_DEVICES";

inline constexpr std::string_view kRound = "DDPRUN_ROUND";  ///< number of the round, decimal
inline constexpr std::string_view kWorkerMark =
    "DDPRUN_WORKER";  ///< id of the agent's life; marks what it started
inline constexpr std::string_view kTty =
    "DDPRUN_TTY";  ///< columns of the launcher's terminal; unset without

inline constexpr std::string_view kMemoryDir =
    "DDPRUN_MEMORY_DIR";  ///< folder in shared memory that outlives a worker, and not the job

inline constexpr std::string_view kListenFd =
    "DDPRUN_LISTEN_FD";  ///< of trainer --spawn: the inherited socket of rank 0's store

}  // namespace ddprun::worker_env
