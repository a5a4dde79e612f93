#include "launcher/options.h"

#include "launcher/arguments.h"
#include "proto/limits.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <memory>

namespace ddprun::launcher {

namespace {

using enum Errc;

constexpr Port kDefaultMasterPort{29500};
constexpr std::int32_t kRestartsMax = 1'000'000;
constexpr int kHelpNameColumns = 34;
constexpr std::size_t kHelpColumns = 100;

/// A value and where it came from, for messages: "--nnodes" or "PET_NNODES".
struct Sourced {
    std::string value;
    std::string origin;
};

using RawOptions = std::map<std::string, std::vector<Sourced>, std::less<>>;

/// Lines of at most `columns` characters, broken at blanks.
std::string wrapped(std::string_view text, std::size_t columns) {
    std::string result;
    std::size_t column = 0;
    while (!text.empty()) {
        const std::size_t blank = std::min(text.find(' '), text.size());
        if (column > 0 && column + 1 + blank > columns) {
            result += '\n';
            column = 0;
        } else if (column > 0) {
            result += ' ';
            ++column;
        }
        result += text.substr(0, blank);
        column += blank;
        text.remove_prefix(std::min(blank + 1, text.size()));
    }
    return result;
}

class HelpFormatter final : public CLI::Formatter {
public:
    HelpFormatter() { column_width(kHelpNameColumns); }

    std::string make_usage(const CLI::App*, std::string) const override {
        return "Usage: ddprun [OPTIONS] PROGRAM [ARGUMENTS...]\n";
    }

    std::string make_option_opts(const CLI::Option* option) const override {
        const OptionDefinition* definition = find_option(option->get_lnames().front());
        return definition->metavar.empty() ? "" : fmt::format(" {}", definition->metavar);
    }
};

/// The option table as a CLI11 parser, which binds names to values and prints the help.
std::unique_ptr<CLI::App> make_parser() {
    auto app = std::make_unique<CLI::App>(
        "Starts the workers of a distributed training job on this node and looks after them.\n"
        "Options may be spelled with hyphens and abbreviated; the variable in brackets gives a\n"
        "default. What follows PROGRAM reaches it byte for byte.",
        "ddprun"
    );
    app->set_help_flag();
    app->formatter(std::make_shared<HelpFormatter>());
    for (const OptionDefinition& definition : option_table()) {
        std::string names = fmt::format("--{}", definition.name);
        if (definition.short_name != '\0') {
            names = fmt::format("-{},{}", definition.short_name, names);
        }
        std::string help{definition.help};
        if (!definition.variable.empty()) {
            help += fmt::format(" [{}]", definition.variable);
        }
        const std::string description = wrapped(help, kHelpColumns - kHelpNameColumns);
        CLI::Option* option = app->add_option(names, description);
        option->type_size(1)->take_all()->group(std::string{title_of(definition.group)});
    }
    return app;
}

/// What was given, and below it what the environment gives.
RawOptions collect(const SplitArguments& split, const Environment& environment) {
    std::vector<std::string> tokens;
    std::map<std::string, std::string, std::less<>> origins;
    const auto add = [&](std::string_view name, std::string_view value, std::string_view origin) {
        tokens.push_back(fmt::format("--{}", name));
        tokens.back() += value.empty() ? "" : fmt::format("={}", value);
        if (value.empty()) {
            tokens.emplace_back();
        }
        origins.insert_or_assign(std::string{name}, std::string{origin});
    };
    for (const GivenOption& option : split.options) {
        add(option.definition->name, option.value, fmt::format("--{}", option.definition->name));
    }
    for (const OptionDefinition& definition : option_table()) {
        const auto found = environment.find(std::string{definition.variable});
        if (!origins.contains(definition.name) && found != environment.end()) {
            add(definition.name, found->second, found->first);
        }
    }
    const auto parser = make_parser();
    std::ranges::reverse(tokens);  // CLI11 takes them from the end
    parser->parse(std::move(tokens));
    RawOptions raw;
    for (const CLI::Option* option : parser->get_options()) {
        for (const std::string& value : option->results()) {
            const std::string& name = option->get_lnames().front();
            raw[name].push_back({value, origins.at(name)});
        }
    }
    return raw;
}

tl::unexpected<Error> wrong(const Sourced& option, std::string_view why) {
    return fail(invalid_argument, fmt::format("{}={}: {}", option.origin, option.value, why));
}

/// Reads the options one after another; the first error stays.
class Reader {
public:
    explicit Reader(const RawOptions& raw) : raw_(raw) {}

    [[nodiscard]] const Sourced* find(std::string_view name) const {
        const auto found = raw_.find(name);
        return found == raw_.end() ? nullptr : &found->second.back();
    }

    [[nodiscard]] std::string text(std::string_view name, std::string_view fallback = {}) const {
        const Sourced* option = find(name);
        return std::string{option == nullptr ? fallback : std::string_view{option->value}};
    }

    std::optional<std::int64_t> number(
        std::string_view name, std::int64_t smallest, std::int64_t largest
    ) {
        return parsed<std::int64_t>(name, [&](std::string_view value) {
            return parse_number(value, smallest, largest);
        });
    }

    std::optional<std::chrono::milliseconds> seconds(std::string_view name) {
        return parsed<std::chrono::milliseconds>(name, parse_seconds);
    }

    bool flag(std::string_view name) {
        constexpr auto kLargest = std::numeric_limits<std::int32_t>::max();
        return number(name, -kLargest, kLargest).value_or(0) != 0;
    }

    /// The value, if it is one of `choices`.
    std::optional<std::string> choice(std::string_view name, std::vector<std::string> choices) {
        return parsed<std::string>(name, [&](std::string_view value) -> Result<std::string> {
            if (std::ranges::find(choices, value) == choices.end()) {
                return fail(invalid_argument, fmt::format("expected {}", fmt::join(choices, ", ")));
            }
            return std::string{value};
        });
    }

    void set_error(Error error) {
        if (!error_) {
            error_ = std::move(error);
        }
    }

    [[nodiscard]] const std::optional<Error>& error() const { return error_; }

private:
    template <class T, class Parse>
    std::optional<T> parsed(std::string_view name, Parse parse) {
        const Sourced* option = find(name);
        if (option == nullptr) {
            return std::nullopt;
        }
        auto value = parse(std::string_view{option->value});
        if (!value) {
            set_error(wrong(*option, value.error().context).value());
            return std::nullopt;
        }
        return std::move(*value);
    }

    const RawOptions& raw_;
    std::optional<Error> error_;
};

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
        reader.set_error(
            wrong(
                *option,
                fmt::format("expected N or MIN:MAX with 1 <= MIN <= MAX <= {}", limits::kNodesMax)
            )
                .value()
        );
        return;
    }
    command.spec.min_nodes = NodeCount{static_cast<std::int32_t>(*smallest)};
    command.spec.max_nodes = NodeCount{static_cast<std::int32_t>(*largest)};
}

void read_workers(Reader& reader, LaunchCommand& command) {
    const Sourced* option = reader.find("nproc_per_node");
    if (option != nullptr) {
        if (option->value == "auto") {
            command.worker_source = WorkerSource::automatic;
        } else if (option->value == "cpu") {
            command.worker_source = WorkerSource::cpu;
        } else if (option->value == "gpu") {
            command.worker_source = WorkerSource::gpu;
        } else if (const auto count = parse_number(option->value, 1, limits::kLocalWorldSizeMax)) {
            command.nproc_per_node = LocalWorldSize{static_cast<std::int32_t>(*count)};
        } else {
            reader.set_error(wrong(
                                 *option,
                                 fmt::format(
                                     "expected a number from 1 to {}, auto, cpu or gpu",
                                     limits::kLocalWorldSizeMax
                                 )
            )
                                 .value());
        }
    }
    command.role = reader.text("role", "default");
    if (command.role.empty() || command.role.size() > limits::kNameBytesMax) {
        reader.set_error(
            {invalid_argument,
             fmt::format("--role: expected 1 to {} characters", limits::kNameBytesMax)}
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
    command.is_module = reader.flag("module");
    command.no_python = reader.flag("no_python");
    if (command.is_module && command.no_python) {
        reader.set_error(
            {invalid_argument, "--module and --no_python exclude each other: a module needs Python"}
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
                 "--standalone is a job of one node: leave out --nnodes, or name "
                 "an endpoint by --rdzv_endpoint instead"}
            );
        }
        return;
    }
    command.job = JobId{reader.text("rdzv_id", "none")};
    if (command.job.value().empty() || command.job.value().size() > limits::kNameBytesMax) {
        reader.set_error(
            {invalid_argument,
             fmt::format("--rdzv_id: expected 1 to {} characters", limits::kNameBytesMax)}
        );
    }
    std::string text = given;
    Port default_port = kDefaultRendezvousPort;
    std::string origin = reader.find("rdzv_endpoint") == nullptr
                             ? "--master_addr"
                             : reader.find("rdzv_endpoint")->origin;
    if (given.empty()) {
        text = is_static ? reader.text("master_addr", "127.0.0.1") : "localhost";
        default_port =
            is_static
                ? Port{static_cast<std::uint16_t>(master_port.value_or(kDefaultMasterPort.value()))}
                : kDefaultRendezvousPort;
    }
    const auto endpoint = parse_endpoint(text, PortZero::refused);
    if (!endpoint) {
        reader.set_error(wrong({text, origin}, endpoint.error().context).value());
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
        )
                             .value());
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
                 "--node_rank={}: the job has {} nodes, ranks from 0 to {}",
                 *command.node_rank,
                 command.spec.max_nodes,
                 command.spec.max_nodes.value() - 1
             )}
        );
    }
}

LogLevel read_log_level(Reader& reader) {
    std::string level = reader.text("log_level", "info");
    std::ranges::transform(level, level.begin(), [](unsigned char letter) {
        return static_cast<char>(std::tolower(letter));
    });
    if (level == "debug") {
        return LogLevel::debug;
    }
    if (level == "info") {
        return LogLevel::info;
    }
    if (level == "warning" || level == "warn") {
        return LogLevel::warning;
    }
    if (level == "error" || level == "critical" || level == "fatal") {
        return LogLevel::error;
    }
    reader.set_error(
        wrong(*reader.find("log_level"), "expected debug, info, warning or error").value()
    );
    return LogLevel::info;
}

}  // namespace

Result<Command> parse_command(
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
    Reader reader{raw};
    LaunchCommand command;
    read_nodes(reader, command);
    read_workers(reader, command);
    read_conf(reader, raw, command);
    read_rendezvous(reader, command);
    command.torchrun_exit_code =
        reader.choice("exit_code", {"ddprun", "torchrun"}).value_or("ddprun") == "torchrun";
    command.log_level = read_log_level(reader);
    command.program = split->program;
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

std::string help_text() {
    return make_parser()->help();
}

}  // namespace ddprun::launcher
