#include "launcher/run.h"

#include "agent/agent_setup.h"
#include "agent/guardian.h"
#include "agent/job_report.h"
#include "agent/signal_inbox.h"
#include "agent/supervisor.h"
#include "agent/topology.h"
#include "agent/worker_cgroup.h"
#include "agent/worker_environment.h"
#include "launcher/binding.h"
#include "launcher/gpus.h"
#include "launcher/launch_checks.h"
#include "launcher/machine.h"
#include "launcher/meeting.h"
#include "launcher/plan.h"
#include "launcher/program.h"
#include "launcher/spdlog_log.h"
#include "launcher/worker_count.h"
#include "proto/exit_codes.h"
#include "proto/standard_output.h"
#include "proto/worker_env.h"
#include "rendezvous/host.h"
#include "rendezvous/store_server.h"

#include <boost/asio/io_context.hpp>
#include <fmt/format.h>

#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace ddprun::launcher {

namespace {

namespace asio = boost::asio;

constexpr const char* kLoopback = "127.0.0.1";

int give_up(const Error& error, int status) {
    fmt::print(stderr, "ddprun: {}\n", error.context);
    return status;
}

std::optional<std::int32_t> terminal_columns() {
    winsize size{};
    const bool is_terminal =
        ::isatty(STDOUT_FILENO) == 1 && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
    return is_terminal && size.ws_col > 0 ? std::optional<std::int32_t>{size.ws_col} : std::nullopt;
}

/// The program as found; for a job of several nodes one that isn't found is left to the agents,
/// whose report ends the job everywhere.
Result<Program> find_program(const LaunchCommand& command, const Environment& environment) {
    const auto folder = own_folder();
    if (!folder) {
        return fail(folder.error());
    }
    auto program = resolve_program(command, environment, *folder);
    if (!program && !command.standalone && command.spec.max_nodes != NodeCount{1}) {
        return Program{command.program.front(), command.program};
    }
    return program;
}

struct Identity {
    std::string host;
    std::uint64_t life = 0;
};

/// A folder of this run alone, also where several nodes have the same folder for logs.
std::string run_folder(const std::string& folder, const JobId& job, std::uint64_t life) {
    constexpr std::size_t kNameBytesMax = 200;  // of an id: most file systems allow 255 with ours
    std::string name{job.value().substr(0, kNameBytesMax)};
    std::ranges::replace(name, '/', '_');
    // Absolute, for workers that change their folder.
    std::error_code ignored;
    const std::filesystem::path base = std::filesystem::absolute(folder, ignored);
    return fmt::format("{}/{}_{:016x}", base.lexically_normal().string(), name, life);
}

OutputSettings output_of(const LogOptions& logs, const JobId& job, std::uint64_t life) {
    OutputSettings output;
    output.has_folder = logs.folder != "/dev/null";
    if (output.has_folder && !logs.folder.empty()) {
        output.run_folder = run_folder(logs.folder, job, life);
    }
    output.prefix_template = logs.prefix_template;
    output.redirects = logs.redirects;
    output.tee = logs.tee;
    output.stdout_filters = logs.stdout_filters;
    output.stderr_filters = logs.stderr_filters;
    output.log_size_max = logs.size_max;
    output.shown_ranks = logs.local_ranks;
    output.shown_global_ranks = logs.ranks;
    return output;
}

AgentSettings settings_of(
    const LaunchCommand& command,
    const Environment& environment,
    const Identity& identity,
    Program program
) {
    AgentSettings settings;
    settings.job = command.standalone ? JobId{fmt::format("{:016x}", identity.life)} : command.job;
    const std::string place =
        command.node_rank ? fmt::format("r{}", *command.node_rank) : fmt::format("p{}", ::getpid());
    settings.node = NodeId{fmt::format("{}/{}", identity.host, place)};
    settings.incarnation = Incarnation{identity.life};
    settings.info.host = identity.host;
    settings.info.pid = static_cast<std::int32_t>(::getpid());
    settings.info.role = command.role;
    settings.spec = command.spec;
    settings.requested_rank = command.standalone ? std::nullopt : command.node_rank;
    settings.program = std::move(program.path);
    settings.argv = std::move(program.argv);
    settings.role = command.role;
    for (const auto& [name, value] : environment) {
        settings.environment.push_back(fmt::format("{}={}", name, value));
    }
    settings.shutdown_timeout = command.shutdown_timeout;
    settings.leaves_on_term = command.leaves_on_term && !command.standalone;
    settings.membership_signal = command.membership_signal;
    settings.membership_grace = command.membership_grace;
    settings.omp_num_threads = command.omp_num_threads;
    settings.virtual_local_rank = command.virtual_local_rank;
    settings.signals_to_handle = command.signals_to_handle;
    settings.stdin_rank = command.stdin_rank;
    settings.signal_groups = command.supervision.signal_groups;
    settings.forward_signals = command.supervision.forward_signals;
    settings.passed_fds = command.supervision.passed_fds;
    settings.report_file = command.supervision.report_file;
    if (command.expand_args) {
        settings.expand_from = settings.argv.size() - (command.program.size() - 1);
    }
    settings.output = output_of(command.logs, settings.job, identity.life);
    settings.tty_columns = terminal_columns();
    return settings;
}

int status_of(const LaunchCommand& command, int status) {
    return command.torchrun_exit_code && status != exit_code::kSuccess ? exit_code::kTorchrunFailure
                                                                       : status;
}

/// The report of a job that ended before it began.
void report_no_program(const LaunchCommand& command, const Error& error, int status) {
    if (command.supervision.report_file.empty()) {
        return;
    }
    JobReport report;
    report.job = command.job;
    report.started_ms = report.ended_ms = wall_time_ms();
    report.outcome.exit_status = status;
    report.outcome.reason = error.context;
    WorkerFailure failure;
    failure.host = host_name();
    failure.kind = FailureKind::exec;
    failure.code = status;
    failure.wall_time_ms = report.ended_ms;
    failure.message = error.context;
    report.outcome.failures.push_back(std::move(failure));
    const std::string& path = command.supervision.report_file;
    if (const Result<void> written = write_report_file(path, format_report(report)); !written) {
        fmt::print(stderr, "ddprun: {}\n", written.error().context);
    }
}

/// A worker store for a round: one of its own, or with the back end `static` the endpoint's, whose
/// port users were told.
Result<BoundStore> bind_store(
    const LaunchCommand& command,
    asio::io_context& io_context,
    const Meeting& meeting,
    const std::string& address,
    Log& log
) {
    if (command.is_static && meeting.server() != nullptr) {
        std::vector<std::string> addresses;
        if (const MembershipState* job = meeting.host()->job(command.job)) {
            for (const Seat& seat : job->seats) {
                addresses.push_back(job->nodes.at(seat.node).info.address);
            }
        }
        meeting.server()->begin_round(std::move(addresses));
        return BoundStore{meeting.server()->port(), nullptr};
    }
    StoreServerOptions options;
    options.addresses = {address.empty() ? kLoopback : address};
    options.port_range = command.port_range;
    auto server = StoreServer::listen(io_context, std::move(options), log);
    if (!server) {
        return fail(server.error());
    }
    const Port port = (*server)->port();
    return BoundStore{port, std::shared_ptr<StoreServer>{std::move(*server)}};
}

/// Runs the agent and, where this process hosts the rendezvous, that until every node has left.
int run_agent(
    const LaunchCommand& command,
    asio::io_context& io_context,
    AgentSettings settings,
    const Meeting& meeting,
    std::unique_ptr<RendezvousLink> link,
    Log& log
) {
    settings.bind_store = [&](Round, const std::string& address) {
        return bind_store(command, io_context, meeting, address, log);
    };
    int status = exit_code::kInternal;
    std::optional<SignalInbox> stop_serving;
    Supervisor supervisor{io_context, std::move(settings), std::move(link), log};
    supervisor.run([&](int exit_status) {
        status = exit_status;
        if (meeting.host() == nullptr) {
            io_context.stop();
            return;
        }
        const auto others = meeting.host()->nodes();
        if (others > 0) {
            log.info("serving the rendezvous for {} other nodes until they end", others);
        }
        stop_serving.emplace(io_context, std::set<int>{SIGTERM, SIGINT});
        stop_serving->start([&](int signal) {
            log.warning("got signal {}, the rendezvous ends", signal);
            io_context.stop();
        });
        meeting.host()->stop([&io_context] { io_context.stop(); });
    });
    io_context.run();
    return status;
}

int run_as_agent(const LaunchCommand& command, AgentSettings settings, Log& log) {
    asio::io_context io_context{1};
    Meeting meeting{
        io_context,
        MeetingOptions{
            .endpoint = command.endpoint,
            .job = settings.job,
            .host_name = settings.info.host,
            .is_host = command.is_host,
            .one_node = command.spec.max_nodes == NodeCount{1},
            .host_is_first = command.is_static,
            .join_timeout = command.spec.join_timeout,
            .lost_timeout = command.lost_timeout,
            .heartbeat_misses = command.spec.heartbeat_misses,
        },
        log};
    std::unique_ptr<RendezvousLink> link = command.standalone ? meeting.alone() : meeting.link();
    return status_of(
        command, run_agent(command, io_context, std::move(settings), meeting, std::move(link), log)
    );
}

/// torchrun warns here; a line says what the workers get and why.
void tell_threads(const AgentSettings& settings, Log& log) {
    const AgentCoreSettings core = core_settings(settings, {}, {});
    const LocalWorldSize workers = settings.info.local_world_size;
    const bool is_open = !settings.omp_num_threads &&
                         !find_variable(core.environment.inherited, worker_env::kOmpNumThreads);
    if (is_open) {
        log.info(
            "OMP_NUM_THREADS={} for each worker: {} CPUs may be used by {} worker{}",
            default_threads(core.environment, workers, LocalRank{0}),
            core.environment.allowed_cpus,
            workers,
            workers == LocalWorldSize{1} ? "" : "s"
        );
    }
}

int print_plan(
    const LaunchCommand& command,
    const AgentSettings& settings,
    std::vector<UsableGpu> gpus,
    const Environment& own_environment
) {
    std::error_code ignored;  // a folder that has been removed has no name
    PlanFacts facts;
    facts.working_folder = std::filesystem::current_path(ignored).string();
    facts.allowed_cpus = affinity_of_this_process();
    facts.gpus = std::move(gpus);
    for (const auto& [name, value] : own_environment) {
        facts.own_environment.insert(fmt::format("{}={}", name, value));
    }
    const LaunchPlan plan = plan_of(command, settings, facts);
    const bool is_json = *command.print_plan == PlanFormat::json;
    return print_asked_for("ddprun", is_json ? plan_json(plan) : plan_text(plan));
}

}  // namespace

int run(const LaunchCommand& command, const Environment& given_environment) {
    ensure_standard_descriptors();  // before anything of ours gets one of their numbers
    const ProcessState at_start = capture_process_state();
    ::signal(SIGPIPE, SIG_IGN);  // a log that nobody reads ends no job
    const std::unique_ptr<Log> log = make_stderr_log("ddprun", command.log_level);
    for (const std::string& note : command.notes) {
        log->info("{}", note);
    }
    if (const Result<void> usable = check_files(command); !usable) {
        return give_up(usable.error(), exit_code::kUsage);
    }
    auto program = find_program(command, given_environment);
    if (!program) {
        const bool is_missing = program.error().code == Errc::not_found;
        const int status = is_missing ? exit_code::kNotFound : exit_code::kNotExecutable;
        report_no_program(command, program.error(), status);
        return status_of(command, give_up(program.error(), status));
    }
    const auto workers = count_workers(command, given_environment, [] { return machine_gpus(); });
    if (!workers) {
        return give_up(workers.error(), exit_code::kUsage);
    }
    Environment environment = given_environment;
    if (workers->visible_devices) {
        environment["CUDA_VISIBLE_DEVICES"] = *workers->visible_devices;
    }
    if (const Result<void> usable = check_workers(command, environment, workers->count); !usable) {
        return give_up(usable.error(), exit_code::kUsage);
    }
    const auto life = random_bits();
    if (!life) {
        return status_of(command, give_up(life.error(), exit_code::kInternal));
    }
    AgentSettings settings =
        settings_of(command, environment, {host_name(), *life}, std::move(*program));
    settings.info.local_world_size = workers->count;
    const auto address = asked_address(command);
    if (!address) {
        return give_up(address.error(), exit_code::kUsage);
    }
    settings.info.address = *address;
    settings.at_start = at_start;
    auto devices = find_devices(command, environment, workers->count);
    if (!devices) {
        return give_up(devices.error(), exit_code::kUsage);
    }
    for (const std::string& note : devices->notes) {
        log->info("{}", note);
    }
    settings.bindings = std::move(devices->bindings);
    if (command.print_plan) {
        return print_plan(command, settings, std::move(devices->gpus), given_environment);
    }
    tell_threads(settings, *log);

    auto guarded = split_off_agent(GuardSettings{
        .signals = watched_signals(at_start, settings.forward_signals),
        .cgroup = worker_cgroup_name(settings.incarnation),
        .mark = worker_mark_entry(settings.incarnation),
    });
    if (!guarded) {
        return status_of(command, give_up(guarded.error(), exit_code::kInternal));
    }
    if (guarded->exit_status) {
        return status_of(command, *guarded->exit_status);
    }
    settings.front_fd = guarded->front.release();
    return run_as_agent(command, std::move(settings), *log);
}

}  // namespace ddprun::launcher
