#include "launcher/options.h"

#include "launcher/arguments.h"
#include "launcher/binding.h"
#include "launcher/log_options.h"
#include "launcher/membership_options.h"
#include "launcher/option_parser.h"
#include "launcher/option_reader.h"
#include "launcher/supervision_options.h"
#include "launcher/worker_count.h"
#include "proto/limits.h"

#include <fmt/format.h>

#include <limits>

namespace ddprun::launcher {

namespace {

using enum Errc;

constexpr Port kDefaultMasterPort{29500};
constexpr std::int32_t kRestartsMax = 1'000'000;

void read_nodes(Reader& reader, LaunchCommand& command) {
    const Sourced* option = reader.find("nnodes");
    if (option == nullptr) {
        return;
    }
    const std::string_view text = option->value;
    const std::size_t colon = text.find(':');
    const auto smallest = parse_number(text.substr(0, colon), 1, limits::kNodesMax);
    const auto largest = colon == std::string_view::npos
                             ? smallest
                             : parse_number(text.substr(colon + 1), 1, limits::kNodesMax);
    if (!smallest || !largest || *smallest > *largest) {
        reader.set_error(wrong(
            *option,
            fmt::format("expected N or MIN:MAX with 1 <= MIN <= MAX <= {}", limits::kNodesMax)
        ));
        return;
    }
    command.spec.min_nodes = NodeCount{static_cast<std::int32_t>(*smallest)};
    command.spec.max_nodes = NodeCount{static_cast<std::int32_t>(*largest)};
}

void read_workers(Reader& reader, LaunchCommand& command) {
    read_worker_count(reader, command);
    command.role = reader.text("role", "default");
    if (command.role.empty() || command.role.size() > limits::kNameBytesMax) {
        reader.set_error(
            {invalid_argument,
             fmt::format(
                 "{}: expected 1 to {} characters", reader.origin("role"), limits::kNameBytesMax
             )}
        );
    }
    if (const auto timeout = reader.seconds("shutdown_timeout")) {
        command.shutdown_timeout = *timeout;
    }
    if (const auto threads = reader.number("omp_num_threads", 1, limits::kLocalWorldSizeMax)) {
        command.omp_num_threads = static_cast<std::int32_t>(*threads);
    }
    if (reader.choice("start_method", {"spawn", "fork", "forkserver"})) {
        command.notes.emplace_back("--start_method has no effect: workers are executed");
    }
    if (reader.seconds("monitor_interval")) {
        command.notes.emplace_back("--monitor_interval has no effect: nothing is polled");
    }
    if (reader.text("event_log_handler", "null") != "null") {
        command.notes.emplace_back("--event_log_handler has no effect: there are no such events");
    }
    read_numa_binding(reader, command);
    command.virtual_local_rank = reader.flag("virtual_local_rank");
    command.expand_args = reader.flag("expand_args");
    if (const auto rank = reader.number("stdin", 0, limits::kLocalWorldSizeMax - 1)) {
        command.stdin_rank = LocalRank{static_cast<std::int32_t>(*rank)};
    }
    command.is_module = reader.flag("module");
    command.no_python = reader.flag("no_python");
    if (command.is_module && command.no_python) {
        reader.set_error(
            {invalid_argument,
             fmt::format(
                 "{} and {} exclude each other: a module needs Python",
                 reader.origin("module"),
                 reader.origin("no_python")
             )}
        );
    }
}

void read_conf(Reader& reader, const RawOptions& raw, LaunchCommand& command) {
    RendezvousConf conf;
    const auto given = raw.find("rdzv_conf");
    if (given != raw.end()) {
        for (const Sourced& option : given->second) {
            const auto added = add_rendezvous_conf(conf, option.value);
            if (!added) {
                reader.set_error(
                    {invalid_argument, fmt::format("{}: {}", option.origin, added.error().context)}
                );
            }
        }
    }
    JobSpec& spec = command.spec;
    spec.join_timeout = conf.join_timeout.value_or(spec.join_timeout);
    spec.last_call_timeout = conf.last_call_timeout.value_or(spec.last_call_timeout);
    spec.heartbeat_interval = conf.heartbeat_interval.value_or(spec.heartbeat_interval);
    spec.heartbeat_misses = conf.heartbeat_misses.value_or(spec.heartbeat_misses);
    spec.membership_rounds_max = conf.membership_rounds_max.value_or(spec.membership_rounds_max);
    command.lost_timeout = conf.lost_timeout.value_or(command.lost_timeout);
    command.is_host = conf.is_host;
    command.node_rank = conf.node_rank;
    command.notes.insert(command.notes.end(), conf.notes.begin(), conf.notes.end());
}

void read_endpoint(Reader& reader, LaunchCommand& command) {
    const std::string given = reader.text("rdzv_endpoint");
    const bool is_static = reader.text("rdzv_backend", "static") == "static";
    const auto master_port =
        reader.number("master_port", 1, std::numeric_limits<std::uint16_t>::max());
    // torchrun's rule: a plain one-node job needs no fixed port.
    const bool is_plain = is_static && given.empty() && reader.find("master_port") == nullptr &&
                          command.spec.max_nodes == NodeCount{1};
    if (reader.flag("standalone") || is_plain) {
        command.standalone = true;
        if (command.spec.max_nodes != NodeCount{1}) {
            reader.set_error(
                {invalid_argument,
                 fmt::format(
                     "{} is a job of one node: leave out --nnodes, or name an endpoint by "
                     "--rdzv_endpoint instead",
                     reader.origin("standalone")
                 )}
            );
        }
        return;
    }
    command.job = JobId{reader.text("rdzv_id", "none")};
    if (command.job.value().empty() || command.job.value().size() > limits::kNameBytesMax) {
        reader.set_error(
            {invalid_argument,
             fmt::format(
                 "{}: expected 1 to {} characters", reader.origin("rdzv_id"), limits::kNameBytesMax
             )}
        );
    }
    for (const char* option : {"master_addr", "master_port"}) {
        if (reader.find(option) != nullptr && (!given.empty() || !is_static)) {
            command.notes.push_back(fmt::format(
                "{} has no effect: the endpoint is {}",
                reader.origin(option),
                given.empty() ? "that of the back end c10d, localhost" : given
            ));
        }
    }
    std::string text = given;
    Port default_port = kDefaultRendezvousPort;
    const std::string origin = reader.origin(given.empty() ? "master_addr" : "rdzv_endpoint");
    // A plain torchrun command with an endpoint means its store alone, which every back end has.
    command.is_static = is_static && (given.empty() || reader.find("rdzv_backend") != nullptr);
    if (given.empty()) {
        text = is_static ? reader.text("master_addr", "127.0.0.1") : "localhost";
        default_port =
            is_static
                ? Port{static_cast<std::uint16_t>(master_port.value_or(kDefaultMasterPort.value()))}
                : kDefaultRendezvousPort;
    }
    // A job of one node hosts its rendezvous itself, at whatever port is free.
    const bool is_alone = command.spec.max_nodes == NodeCount{1};
    const auto endpoint = parse_endpoint(text, is_alone ? PortZero::allowed : PortZero::refused);
    if (!endpoint) {
        reader.set_error(wrong({text, origin}, endpoint.error().context));
        return;
    }
    command.endpoint = *endpoint;
    if (given.empty()) {
        command.endpoint.port = default_port;
    }
}

void read_rendezvous(Reader& reader, LaunchCommand& command) {
    const Sourced* backend = reader.find("rdzv_backend");
    if (backend != nullptr && (backend->value == "etcd" || backend->value == "etcd-v2")) {
        reader.set_error(wrong(
            *backend,
            "etcd is not supported: leave the option out, ddprun brings its own "
            "rendezvous"
        ));
        return;
    }
    reader.choice("rdzv_backend", {"static", "c10d"});
    if (const auto restarts = reader.number("max_restarts", 0, kRestartsMax)) {
        command.spec.max_restarts = RestartCount{static_cast<std::int32_t>(*restarts)};
    }
    if (const auto rank = reader.number("node_rank", 0, limits::kNodesMax - 1)) {
        command.node_rank = GroupRank{static_cast<std::int32_t>(*rank)};
    }
    command.local_addr = reader.text("local_addr");
    read_endpoint(reader, command);
    if (!command.standalone && command.node_rank &&
        command.node_rank->value() >= command.spec.max_nodes.value()) {
        reader.set_error(
            {invalid_argument,
             fmt::format(
                 "{}={}: the job has {} nodes, ranks from 0 to {}",
                 reader.origin("node_rank"),
                 *command.node_rank,
                 command.spec.max_nodes,
                 command.spec.max_nodes.value() - 1
             )}
        );
    }
}

/// What makes no sense without Python is refused with what to use instead.
void refuse_foreign(Reader& reader) {
    if (reader.flag("run_path")) {
        reader.set_error(
            {invalid_argument,
             reader.find("run_path")->origin +
                 ": not supported, there is no Python in ddprun to run a script in; leave it out, "
                 "a program whose name ends in .py is given to python3"}
        );
    }
    if (const Sourced* specs = reader.find("logs_specs")) {
        reader.set_error(wrong(
            *specs,
            "not supported, it names a Python plug-in; use --log_dir, --redirects, --tee and the "
            "filters"
        ));
    }
}

Result<Command> parse_whole(
    std::span<const std::string> arguments, const Environment& environment
) {
    const auto split = split_arguments(arguments);
    if (!split) {
        return fail(split.error());
    }
    const RawOptions raw = collect(*split, environment);
    if (raw.contains("help")) {
        return Command{HelpCommand{}};
    }
    if (raw.contains("version")) {
        return Command{VersionCommand{}};
    }
    if (raw.contains("print_man")) {
        return Command{ManCommand{}};
    }
    Reader reader{raw};
    if (raw.contains("print_completion")) {
        auto shell = reader.choice("print_completion", words_of(*find_option("print_completion")));
        return shell ? Result<Command>{Command{CompletionCommand{std::move(*shell)}}}
                     : fail(*reader.error());
    }
    LaunchCommand command;
    read_nodes(reader, command);
    read_workers(reader, command);
    read_conf(reader, raw, command);
    read_rendezvous(reader, command);
    read_membership(reader, command);
    command.torchrun_exit_code =
        reader.choice("exit_code", {"ddprun", "torchrun"}).value_or("ddprun") == "torchrun";
    command.log_level = read_log_level(reader, command);
    if (const auto format = reader.choice("print_plan", {"text", "json"})) {
        command.print_plan = *format == "json" ? PlanFormat::json : PlanFormat::text;
    }
    refuse_foreign(reader);
    read_logs(reader, command);
    read_signals(reader, command);
    read_supervision(reader, command);
    command.program = split->program;
    for (const auto& [name, given] : raw) {
        command.origins.emplace(name, given.back().origin);
    }
    if (reader.error()) {
        return fail(*reader.error());
    }
    if (command.program.empty() || command.program.front().empty()) {
        return fail(
            invalid_argument,
            "no program given: ddprun [OPTIONS] PROGRAM [ARGUMENTS...] (see ddprun --help)"
        );
    }
    return Command{std::move(command)};
}

}  // namespace

std::string LaunchCommand::origin(std::string_view option) const {
    const auto found = origins.find(option);
    return found == origins.end() ? fmt::format("--{}", option) : found->second;
}

Result<Command> parse_command(
    std::span<const std::string> arguments, const Environment& environment
) {
    auto command = parse_whole(arguments, environment);
    if (!command) {
        return fail(command.error().code, on_one_line(command.error().context));
    }
    return command;
}

}  // namespace ddprun::launcher
