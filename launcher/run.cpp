#include "launcher/run.h"

#include "agent/agent_setup.h"
#include "agent/guardian.h"
#include "agent/supervisor.h"
#include "agent/topology.h"
#include "agent/worker_environment.h"
#include "launcher/binding.h"
#include "launcher/gpus.h"
#include "launcher/machine.h"
#include "launcher/plan.h"
#include "launcher/program.h"
#include "launcher/spdlog_log.h"
#include "launcher/worker_count.h"
#include "proto/exit_codes.h"
#include "proto/worker_env.h"
#include "rendezvous/endpoint.h"
#include "rendezvous/host.h"
#include "rendezvous/store_server.h"
#include "rendezvous/tcp_link.h"

#include <boost/asio/io_context.hpp>
#include <fmt/format.h>

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

namespace ddprun::launcher {

namespace {

namespace asio = boost::asio;

constexpr const char* kLoopback = "127.0.0.1";

int give_up(const Error& error, int status) {
    fmt::print(stderr, "ddprun: {}\n", error.context);
    return status;
}

/// The rendezvous as this node takes part in it: embedded here, or somewhere else.
struct Rendezvous {
    std::unique_ptr<RendezvousHost> host;  ///< null where another node or a daemon hosts
    std::unique_ptr<StoreServer> server;   ///< of the host; null for a job of this node alone
    std::unique_ptr<RendezvousLink> link;
};

void embed(
    Rendezvous& rendezvous,
    asio::io_context& io_context,
    const JobId& job,
    Log& log,
    std::string address
) {
    rendezvous.host = std::make_unique<RendezvousHost>(
        io_context, RendezvousHostOptions{.job = job, .local_address = std::move(address)}, log
    );
    rendezvous.link = rendezvous.host->local_link();
}

/// The address of this node that others reach: one that the endpoint names, loopback only where
/// there is no other.
std::string published_address(
    const std::vector<std::string>& resolved, const std::vector<std::string>& own, bool everywhere
) {
    std::string best;
    for (const std::string& address : resolved) {
        const bool is_own = is_loopback(address) || std::ranges::find(own, address) != own.end();
        if (is_own && (best.empty() || is_loopback(best))) {
            best = address;
        }
    }
    if (everywhere && (best.empty() || is_loopback(best))) {
        const auto other = std::ranges::find_if_not(own, is_loopback);
        best = other == own.end() ? best : *other;
    }
    return best.empty() ? kLoopback : best;
}

std::unique_ptr<RendezvousLink> link_to(
    const LaunchCommand& command, asio::io_context& io_context, Log& log
) {
    return make_tcp_link(
        io_context,
        TcpLinkOptions{
            .host = command.endpoint.host,
            .port = command.endpoint.port,
            .connect_timeout = command.spec.join_timeout,
            .lost_timeout = command.lost_timeout,
        },
        log
    );
}

/// Hosts the rendezvous where the endpoint is this node's and nobody does so yet, else links to it.
Result<Rendezvous> meet(const LaunchCommand& command, asio::io_context& io_context, Log& log) {
    Rendezvous rendezvous;
    // A name that can't be resolved yet isn't ours; the link goes on trying.
    const std::vector<std::string> resolved =
        resolve_host(command.endpoint.host).value_or(std::vector<std::string>{});
    const std::vector<std::string> own = own_addresses();
    const HostDecision decision = decide_host(HostFacts{
        .endpoint = command.endpoint,
        .resolved = resolved,
        .own = own,
        .is_host = command.is_host,
        .one_node = command.spec.max_nodes == NodeCount{1},
    });
    if (decision.hosts) {
        StoreServerOptions options;
        options.addresses = decision.listen;
        options.port = command.endpoint.port;
        // The server has to listen before it is certain that this node hosts.
        const auto holder = std::make_shared<RendezvousHost*>(nullptr);
        options.on_agent = [holder](asio::ip::tcp::socket socket, std::string first_bytes) {
            (*holder)->accept(std::move(socket), std::move(first_bytes));
        };
        auto server = StoreServer::listen(io_context, std::move(options), log);
        const bool is_in_use = !server && server.error().code == Errc::refused;
        if (!server && (!is_in_use || command.is_host == true)) {
            return fail(server.error());
        }
        if (server) {
            embed(
                rendezvous,
                io_context,
                command.job,
                log,
                published_address(resolved, own, decision.listen.empty())
            );
            *holder = rendezvous.host.get();
            rendezvous.server = std::move(*server);
            log.info("hosting the rendezvous at {}: {}", to_string(command.endpoint), decision.why);
            return rendezvous;
        }
    }
    rendezvous.link = link_to(command, io_context, log);
    return rendezvous;
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
    std::string name{job.value()};
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
    settings.info.address = command.local_addr;
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
    settings.omp_num_threads = command.omp_num_threads;
    settings.virtual_local_rank = command.virtual_local_rank;
    settings.signals_to_handle = command.signals_to_handle;
    settings.stdin_rank = command.stdin_rank;
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

/// Runs the agent and, where it is embedded, the rendezvous until every node has left.
int run_agent(
    asio::io_context& io_context, AgentSettings settings, Rendezvous rendezvous, Log& log
) {
    settings.bind_store = [&io_context,
                           &log](Round, const std::string& address) -> Result<BoundStore> {
        StoreServerOptions options;
        options.addresses = {address.empty() ? kLoopback : address};
        auto server = StoreServer::listen(io_context, std::move(options), log);
        if (!server) {
            return fail(server.error());
        }
        const Port port = (*server)->port();
        return BoundStore{port, std::shared_ptr<StoreServer>{std::move(*server)}};
    };
    int status = exit_code::kInternal;
    Supervisor supervisor{io_context, std::move(settings), std::move(rendezvous.link), log};
    supervisor.run([&](int exit_status) {
        status = exit_status;
        if (rendezvous.host == nullptr) {
            io_context.stop();
            return;
        }
        rendezvous.host->stop([&io_context] { io_context.stop(); });
    });
    io_context.run();
    return status;
}

int run_as_agent(const LaunchCommand& command, AgentSettings settings, Log& log) {
    asio::io_context io_context{1};
    Rendezvous rendezvous;
    if (command.standalone) {
        embed(rendezvous, io_context, settings.job, log, kLoopback);
    } else {
        auto met = meet(command, io_context, log);
        if (!met) {
            return status_of(command, give_up(met.error(), exit_code::kUnavailable));
        }
        rendezvous = std::move(*met);
    }
    return status_of(
        command, run_agent(io_context, std::move(settings), std::move(rendezvous), log)
    );
}

/// torchrun warns here; a line says what the workers get and why.
void tell_threads(const AgentSettings& settings, Log& log) {
    const AgentCoreSettings core = core_settings(settings, {});
    const LocalWorldSize workers = settings.info.local_world_size;
    const bool is_open = !settings.omp_num_threads &&
                         !find_variable(core.environment.inherited, worker_env::kOmpNumThreads);
    if (is_open && workers > LocalWorldSize{1}) {
        log.info(
            "OMP_NUM_THREADS={} for each worker: {} CPUs may be used by {} workers",
            default_threads(core.environment, workers, LocalRank{0}),
            core.environment.allowed_cpus,
            workers
        );
    }
}

void print_plan(
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
    fmt::print("{}", *command.print_plan == PlanFormat::json ? plan_json(plan) : plan_text(plan));
}

}  // namespace

int run(const LaunchCommand& command, const Environment& given_environment) {
    ensure_standard_descriptors();  // before anything of ours gets one of their numbers
    const ProcessState at_start = capture_process_state();
    const std::unique_ptr<Log> log = make_stderr_log("ddprun", command.log_level);
    for (const std::string& note : command.notes) {
        log->info("{}", note);
    }
    auto program = find_program(command, given_environment);
    if (!program) {
        const bool is_missing = program.error().code == Errc::not_found;
        return status_of(
            command,
            give_up(program.error(), is_missing ? exit_code::kNotFound : exit_code::kNotExecutable)
        );
    }
    const auto workers = count_workers(command, given_environment, [] { return machine_gpus(); });
    if (!workers) {
        return give_up(workers.error(), exit_code::kUsage);
    }
    Environment environment = given_environment;
    if (workers->visible_devices) {
        environment["CUDA_VISIBLE_DEVICES"] = *workers->visible_devices;
    }
    const auto life = random_bits();
    if (!life) {
        return status_of(command, give_up(life.error(), exit_code::kInternal));
    }
    AgentSettings settings =
        settings_of(command, environment, {host_name(), *life}, std::move(*program));
    settings.info.local_world_size = workers->count;
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
        print_plan(command, settings, std::move(devices->gpus), given_environment);
        return exit_code::kSuccess;
    }
    tell_threads(settings, *log);

    auto guarded = split_off_agent(GuardSettings{
        .signals = watched_signals(at_start, settings.forward_signals),
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
