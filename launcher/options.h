// The command line of ddprun: arguments and environment become a validated Command, or one sentence
// that says what is wrong. Nothing is started or looked up here but the environment that is passed
// in.
#pragma once

#include "agent/numa.h"
#include "agent/stream_kind.h"
#include "launcher/option_parser.h"
#include "launcher/rendezvous_conf.h"
#include "proto/agent_messages.h"
#include "proto/log.h"
#include "proto/result.h"
#include "rendezvous/endpoint.h"
#include "rendezvous/listen_socket.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace ddprun::launcher {

/// How many workers: a number, or what to count on this machine.
enum class WorkerSource : std::uint8_t { number, automatic, cpu, gpu };

/// How --print_plan shows what would run.
enum class PlanFormat : std::uint8_t { text, json };

/// What of the workers' output goes where.
struct LogOptions {
    std::string folder;  ///< below which each run has its own; empty: files are temporary
    StreamChoice redirects;
    StreamChoice tee;
    std::set<LocalRank> local_ranks;  ///< that the console shows; empty: all
    std::set<Rank> ranks;             ///< the same by global rank
    std::vector<std::string> stdout_filters;
    std::vector<std::string> stderr_filters;
    std::string prefix_template;
    std::uint64_t size_max = 0;  ///< 0: no rotation
};

/// How workers are looked after, but for the rules of restarts, which are the job's.
struct Supervision {
    bool signal_groups = false;     ///< signals go to a worker's whole process group
    std::set<int> forward_signals;  ///< besides USR1 and USR2
    std::set<int> passed_fds;       ///< that workers get besides 0, 1 and 2
    std::string report_file;        ///< empty: none
};

struct LaunchCommand {
    WorkerSource worker_source = WorkerSource::number;
    LocalWorldSize nproc_per_node{1};       ///< where worker_source is `number`
    std::vector<std::int32_t> chosen_gpus;  ///< where worker_source is `gpu`; empty: all
    bool standalone = false;
    Endpoint endpoint;  ///< unused where standalone
    JobId job;          ///< empty where standalone: a random one is drawn
    JobSpec spec;
    std::chrono::milliseconds lost_timeout{60'000};
    std::optional<bool> is_host;
    std::optional<GroupRank> node_rank;
    std::string local_addr;               ///< empty: the one by which the rendezvous is reached
    std::string interface;                ///< whose address is this node's; empty: none chosen
    std::optional<PortRange> port_range;  ///< of the ports that we choose
    bool is_static = false;       ///< MASTER_PORT is the endpoint's port, on the node that hosts
    bool leaves_on_term = false;  ///< TERM ends this agent alone
    int membership_signal = 0;    ///< 0: none
    std::chrono::milliseconds membership_grace{10'000};
    std::string role = "default";
    std::chrono::milliseconds shutdown_timeout{30'000};
    std::optional<std::int32_t> omp_num_threads;
    std::optional<NumaMode> numa_binding;
    std::string numa_binding_text;  ///< as given, for messages
    std::string sysfs_root = "/sys";
    bool virtual_local_rank = false;
    bool expand_args = false;
    std::optional<LocalRank> stdin_rank;
    std::string signals_to_handle = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";
    Supervision supervision;
    LogOptions logs;
    bool torchrun_exit_code = false;
    LogLevel log_level = LogLevel::info;
    std::optional<PlanFormat> print_plan;  ///< nothing is started then
    bool is_module = false;
    bool no_python = false;
    std::vector<std::string> program;  ///< as given, with its arguments; not empty
    std::vector<std::string> notes;    ///< sentences for the log: what was accepted without effect
    /// What gave each option that was given its value: "--NAME", or the name of a variable.
    std::map<std::string, std::string, std::less<>> origins;

    /// For messages about the value of an option; "--NAME" where it wasn't given.
    [[nodiscard]] std::string origin(std::string_view option) const;
};

struct HelpCommand {};

struct VersionCommand {};

struct CompletionCommand {
    std::string shell;  ///< bash, zsh, fish or tcsh
};

struct ManCommand {};

using Command =
    std::variant<LaunchCommand, HelpCommand, VersionCommand, CompletionCommand, ManCommand>;

/// `arguments` without argv[0]. Errors: Errc::invalid_argument; the context names the option, or
/// the variable, and its value.
[[nodiscard]] Result<Command> parse_command(
    std::span<const std::string> arguments, const Environment& environment
);

}  // namespace ddprun::launcher
