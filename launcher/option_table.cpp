#include "launcher/option_table.h"

#include <algorithm>
#include <array>

namespace ddprun::launcher {

namespace {

using enum OptionGroup;

constexpr auto kOptions = std::to_array<OptionDefinition>({
    // clang-format off
    {"nnodes", '\0', "N|MIN:MAX", "PET_NNODES", job,
     "Number of nodes, or its range (default 1)"},
    {"nproc_per_node", '\0', "N|auto|cpu|gpu", "PET_NPROC_PER_NODE", job,
     "Workers on this node (default 1); gpu: one per GPU, gpu:2,4,7: one for each of these; auto: "
     "one per GPU, without GPUs one per CPU"},
    {"max_restarts", '\0', "N", "PET_MAX_RESTARTS", job,
     "How often the job may start again because a worker failed (default 0)"},
    {"role", '\0', "NAME", "PET_ROLE", job,
     "Role of this node's workers, shown in the prefix of their lines (default \"default\")"},
    {"standalone", '\0', "", "PET_STANDALONE", job,
     "A job of this node alone, on loopback, on a free port; other rendezvous options are ignored"},

    {"rdzv_backend", '\0', "static|c10d", "PET_RDZV_BACKEND", rendezvous,
     "Both mean ddprun's own rendezvous; static takes its endpoint from --master_addr and --master_port, "
     "and the workers' store is there, too"},
    {"rdzv_endpoint", '\0', "HOST[:PORT]", "PET_RDZV_ENDPOINT", rendezvous,
     "Where the nodes meet; the node that owns this address hosts (default port 29400)"},
    {"rdzv_id", '\0', "ID", "PET_RDZV_ID", rendezvous,
     "Name of the job (default \"none\")"},
    {"rdzv_conf", '\0', "K=V,...", "PET_RDZV_CONF", rendezvous,
     "Rendezvous settings: join_timeout, last_call_timeout, heartbeat_interval, heartbeat_misses, "
     "lost_timeout, membership_rounds_max, is_host; may be repeated"},
    {"node_rank", '\0', "N", "PET_NODE_RANK", rendezvous,
     "Group rank of this node (default: by host name and arrival)"},
    {"master_addr", '\0', "HOST", "PET_MASTER_ADDR", rendezvous,
     "Host of the endpoint where --rdzv_endpoint is not given (default 127.0.0.1)"},
    {"master_port", '\0', "PORT", "PET_MASTER_PORT", rendezvous,
     "Port of the endpoint where --rdzv_endpoint is not given (default 29500)"},
    {"local_addr", '\0', "ADDR", "PET_LOCAL_ADDR", rendezvous,
     "Address of this node for the others (default: the one by which it reaches the rendezvous)"},

    {"iface", '\0', "NAME", "", rendezvous,
     "The same by the name of its interface, as ib0"},
    {"port_range", '\0', "LO-HI", "", rendezvous,
     "Ports that ddprun may choose from where it needs one (default: any free one)"},
    {"on_term", '\0', "stop|leave", "", rendezvous,
     "What SIGTERM to this ddprun does: stop the whole job, or leave it alone and let the others go on "
     "(default: leave where --nnodes is a range, else stop)"},
    {"membership_signal", '\0', "SIGNAL", "", rendezvous,
     "Signal to the workers before they are stopped because a node joins or leaves, so that they can save"},
    {"membership_grace", '\0', "SECONDS", "", rendezvous,
     "Time from that signal to the stop; whoever ends within it has not failed (default 10)"},

    {"module", 'm', "", "PET_MODULE", workers,
     "PROGRAM is a Python module: python3 -u -m PROGRAM"},
    {"no_python", '\0', "", "PET_NO_PYTHON", workers,
     "Execute PROGRAM itself even if its name ends in .py"},
    {"shutdown_timeout", '\0', "SECONDS", "PET_SHUTDOWN_TIMEOUT", workers,
     "Time that workers have between the signal to stop and SIGKILL (default 30)"},
    {"omp_num_threads", '\0', "N", "", workers,
     "OMP_NUM_THREADS of the workers (default: allowed CPUs / workers of this node)"},
    {"numa_binding", '\0', "node|socket|exclusive|core-complex", "", workers,
     "Bind each worker to CPUs and memory near its GPU: those of its NUMA node, of its socket, cores of "
     "its own there, or the CPUs of one cache"},
    {"start_method", '\0', "spawn|fork|forkserver", "PET_START_METHOD", workers,
     "Accepted for torchrun's sake, without effect: workers are executed, never forked"},
    {"monitor_interval", '\0', "SECONDS", "PET_MONITOR_INTERVAL", workers,
     "Accepted for torchrun's sake, without effect: nothing is polled"},

    {"event_log_handler", '\0', "NAME", "PET_EVENT_LOG_HANDLER", workers,
     "Accepted for torchrun's sake, without effect"},
    {"virtual_local_rank", '\0', "", "PET_VIRTUAL_LOCAL_RANK", workers,
     "Each worker has LOCAL_RANK=0 and sees one GPU, its own"},
    {"stdin", '\0', "LOCAL_RANK", "", workers,
     "The worker that gets ddprun's standard input (default: a lone worker does)"},
    {"expand_args", '\0', "", "", workers,
     "Replace ${local_rank} and $$ in the program's arguments, as torchrun does"},
    {"signals_to_handle", '\0', "NAMES", "PET_SIGNALS_TO_HANDLE", workers,
     "Told to the workers in TORCHELASTIC_SIGNALS_TO_HANDLE; SIGTERM, SIGINT, SIGHUP and SIGQUIT stop the job in any case"},

    {"no_restart_codes", '\0', "LIST", "", workers,
     "Statuses of a worker after which the job isn't started again, as 3,128-130 (128 + n: signal n)"},
    {"restart_delay", '\0', "SECONDS", "", workers,
     "Time before a restart, doubled with each further failure in a row, up to 5 minutes (default 0)"},
    {"min_uptime", '\0', "SECONDS", "", workers,
     "Failures sooner than this after a start allow only 3 restarts in a row (default 0: off)"},
    {"signal_scope", '\0', "worker|group", "", workers,
     "Who gets a signal: the worker's process, or its whole process group (default worker)"},
    {"forward_signals", '\0', "NAMES", "", workers,
     "Signals besides USR1 and USR2 that go to the workers while the job goes on, as WINCH,RTMIN+1"},
    {"pass_fds", '\0', "LIST", "", workers,
     "Open descriptors that the workers get besides 0, 1 and 2, as 3,5"},
    {"report", '\0', "FILE", "", workers,
     "Write how the job went to FILE, as JSON (docs/report.md)"},

    {"log_dir", '\0', "DIR", "PET_LOG_DIR", logs,
     "Each run gets a folder below it, with the workers' error files and logs; DIR/latest points to "
     "the last one"},
    {"redirects", 'r', "STREAMS", "PET_REDIRECTS", logs,
     "What goes to files instead of the console: 1 stdout, 2 stderr, 3 both; for all, or by local rank "
     "as 0:1,1:3"},
    {"tee", 't', "STREAMS", "PET_TEE", logs,
     "What goes to files and to the console"},
    {"log_max_size", '\0', "SIZE", "", logs,
     "Size at which a log file is renamed to NAME.1 and begun anew, as 100M (default: never)"},
    {"local_ranks_filter", '\0', "RANKS", "PET_LOCAL_RANKS_FILTER", logs,
     "Local ranks that the console shows, as 0,3 (default all); files keep all"},
    {"show_ranks", '\0', "RANKS", "", logs,
     "The same by global rank"},
    {"log_line_prefix_template", '\0', "TEXT", "PET_LOG_LINE_PREFIX_TEMPLATE", logs,
     "Prefix of a line; ${role_name} ${local_rank} ${rank} ${hostname} ${round} ${time} are replaced "
     "(default [ROLE LOCAL_RANK]: without the space)"},
    {"duplicate_stdout_filters", '\0', "TEXTS", "PET_DUPLICATE_STDOUT_FILTERS", logs,
     "Lines of tee'd stdout that contain one of these texts go to filtered_stdout.log, too"},
    {"duplicate_stderr_filters", '\0', "TEXTS", "PET_DUPLICATE_STDERR_FILTERS", logs,
     "The same for stderr and filtered_stderr.log"},
    {"log_level", '\0', "debug|info|warning|error", "LOGLEVEL", logs,
     "What ddprun itself logs to stderr (default info)"},

    {"exit_code", '\0', "ddprun|torchrun", "", other,
     "Exit status of a failed job: that of the first failed worker, or always 1 (default ddprun)"},
    {"print_plan", '\0', "text|json", "", other,
     "Print what would run, each worker's command, environment, CPUs and devices, and start nothing",
     false, "text"},
    {"print_completion", '\0', "bash|zsh|fish|tcsh", "", other,
     "Print a completion script for this shell and exit"},
    {"print_man", '\0', "", "", other, "Print the manual page (roff) and exit"},
    {"help", 'h', "", "", other, "Print this help and exit"},
    {"version", '\0', "", "", other, "Print the version and exit"},

    {"run_path", '\0', "", "PET_RUN_PATH", other, "Refused: there is no Python here", true},
    {"logs_specs", '\0', "NAME", "", other, "Refused: it names a Python plug-in", true},
    {"sysfs_root", '\0', "DIR", "", other, "For tests: where sysfs is (/sys)", true},
    // clang-format on
});

}  // namespace

std::span<const OptionDefinition> option_table() {
    return kOptions;
}

std::string_view title_of(OptionGroup group) {
    switch (group) {
        case job: return "Job";
        case rendezvous: return "Rendezvous";
        case workers: return "Workers";
        case logs: return "Logs";
        case other: return "Other";
    }
    return "Other";
}

std::vector<std::string> words_of(const OptionDefinition& definition) {
    std::vector<std::string> words;
    std::string_view rest = definition.metavar;
    while (!rest.empty()) {
        const std::size_t bar = std::min(rest.find('|'), rest.size());
        const std::string_view word = rest.substr(0, bar);
        const bool is_literal = std::ranges::all_of(word, [](char letter) {
            const bool is_digit = letter >= '0' && letter <= '9';
            return (letter >= 'a' && letter <= 'z') || is_digit || letter == '-';
        });
        if (is_literal) {
            words.emplace_back(word);
        }
        rest.remove_prefix(std::min(bar + 1, rest.size()));
    }
    return words;
}

const OptionDefinition* find_option(std::string_view name) {
    const auto found = std::ranges::find(kOptions, name, &OptionDefinition::name);
    return found == kOptions.end() ? nullptr : &*found;
}

}  // namespace ddprun::launcher
