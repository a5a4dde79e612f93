// Where this worker stands in its job: the environment that ddprun or torchrun gave it
// (proto/worker_env.h), read once and checked. No LibTorch in it.
#pragma once

#include "proto/result.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace ddprun::trainer {

struct WorkerPlace {
    std::int32_t rank = 0;
    std::int32_t world_size = 1;
    std::int32_t local_rank = 0;
    std::int32_t local_world_size = 1;
    std::int32_t restart_count = 0;
    std::int64_t round = 0;  ///< ddprun's; under torchrun the restart count
    std::string master_addr;
    std::uint16_t master_port = 0;
    bool agent_hosts_store = false;  ///< else rank 0 does
    std::optional<int> listen_fd;    ///< a socket that listens already, for rank 0's store
    std::optional<int> terminal_columns;

    [[nodiscard]] bool alone() const { return world_size == 1; }
};

using GetEnvironment = std::function<std::optional<std::string>(std::string_view name)>;

/// The environment of this process.
[[nodiscard]] std::optional<std::string> process_environment(std::string_view name);

/// Without RANK and WORLD_SIZE: a worker that is alone. With one of them, all of what env:// needs
/// must be there and make sense.
[[nodiscard]] Result<WorkerPlace> read_worker_place(const GetEnvironment& get);

}  // namespace ddprun::trainer
