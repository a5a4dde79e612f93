// Everything an agent is told by whoever puts the program together (the launcher): who it is, what
// it runs, how it stops, where output goes. Values only; the defaults are those of `ddprun`.
#pragma once

#include "agent/numa.h"
#include "agent/process_state.h"
#include "agent/stream_kind.h"
#include "proto/agent_messages.h"
#include "proto/result.h"
#include "proto/types.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace ddprun {

/// A worker store that listens; it is closed when the last owner of `owner` lets go.
struct BoundStore {
    Port port;
    std::shared_ptr<void> owner;
};

/// What the console shows and where the run's files lie.
struct OutputSettings {
    int stdout_fd = 1;
    int stderr_fd = 2;
    /// Prefix of a console line; empty means torchrun's "[ROLE LOCAL_RANK]:" (without the space)
    /// where the node has more than one worker, and raw bytes where it has one.
    /// Macros: ${role_name} ${local_rank} ${rank} ${hostname} ${round} ${time}.
    std::string prefix_template;
    /// The run's own folder (LOG_DIR/RUN_ID_RANDOM), made where missing; empty: a temporary folder
    /// that is removed at the end with all that is in it.
    std::string run_folder;
    bool has_folder = true;  ///< false: no folder, no log files, no error files
    StreamChoice redirects;  ///< what goes to files in the run's folder instead of the console
    StreamChoice tee;        ///< what goes to both
    std::vector<std::string> stdout_filters;  ///< lines of tee'd streams that contain one of these
    std::vector<std::string> stderr_filters;  ///< go to ATTEMPT/filtered_stdout.log, too
    std::uint64_t log_size_max = 0;           ///< of a log file before it is rotated; 0: none
    /// Which local ranks, and which global ones, the console shows; empty means all.
    std::set<LocalRank> shown_ranks;
    std::set<Rank> shown_global_ranks;
};

struct AgentSettings {
    JobId job;
    NodeId node;
    Incarnation incarnation;
    /// An empty `info.address` is filled with the address by which the rendezvous is reached.
    NodeInfo info;
    JobSpec spec;
    std::optional<GroupRank> requested_rank;  ///< --node_rank

    std::string program;            ///< path of what is executed
    std::vector<std::string> argv;  ///< argv[0] included, byte for byte
    /// Index in argv from which torchrun's macros are replaced (--expand_args); empty: nowhere.
    std::optional<std::size_t> expand_from;
    std::string role = "default";
    std::vector<std::string> environment;  ///< NAME=VALUE, what the workers inherit
    std::string working_folder;            ///< of the workers; empty: the agent's

    std::chrono::milliseconds shutdown_timeout{30'000};  ///< from TERM to KILL
    bool leaves_on_term = false;  ///< TERM ends this agent alone, the other nodes go on
    int membership_signal = 0;  ///< to the workers before a stop because nodes come or go; 0: none
    std::chrono::milliseconds membership_grace{10'000};  ///< from it to the stop
    std::set<int> forward_signals;  ///< besides USR1 and USR2: passed on, the job goes on
    std::string report_file;        ///< where the job's JSON report goes; empty: nowhere
    std::set<int> passed_fds;       ///< descriptors of ours, above 2, that workers get as they are
    bool signal_groups = false;     ///< stop and forwarded signals go to the worker's whole group
    bool virtual_local_rank = false;
    std::optional<std::int32_t> omp_num_threads;  ///< --omp_num_threads
    /// By local rank: CPUs and memory that a worker is bound to; empty: nobody is.
    std::vector<WorkerBinding> bindings;
    std::string signals_to_handle = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";
    std::optional<LocalRank> stdin_rank;  ///< who gets our standard input; a lone worker by default
    std::optional<std::int32_t> tty_columns;  ///< width of our terminal, for DDPRUN_TTY

    /// What this process was given at its start; captured by the Supervisor where empty. Capture it
    /// first thing in main where main changes signals or limits.
    std::optional<ProcessState> at_start;

    /// Readable when the process whose agent this is has ended (agent/guardian.h): everything is
    /// killed then. -1: nobody to watch.
    int front_fd = -1;

    OutputSettings output;

    /// Binds a fresh worker store for the round at `address`, by which the other nodes reach this
    /// one.
    std::function<Result<BoundStore>(Round round, const std::string& address)> bind_store;
};

}  // namespace ddprun
