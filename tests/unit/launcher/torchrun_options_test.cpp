// Every option of torchrun in every spelling, by one table: what torchrun reads, ddprun reads
// alike.
#include "launcher/arguments.h"
#include "launcher/option_parser.h"
#include "launcher/options.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

namespace ddprun::launcher {
namespace {

using Words = std::vector<std::string>;

struct Case {
    const char* name;
    char short_name;
    const char* variable;  ///< null: none
    const char* good;      ///< null: a flag
    const char* bad;       ///< null: no value is wrong
};

constexpr Case kCases[] = {
    {"nnodes", '\0', "PET_NNODES", "2:4", "4:2"},
    {"nproc_per_node", '\0', "PET_NPROC_PER_NODE", "8", "many"},
    {"rdzv_backend", '\0', "PET_RDZV_BACKEND", "c10d", "etcd"},
    {"rdzv_endpoint", '\0', "PET_RDZV_ENDPOINT", "node0:29400", "node0:99999"},
    {"rdzv_id", '\0', "PET_RDZV_ID", "job7", ""},
    {"rdzv_conf", '\0', "PET_RDZV_CONF", "join_timeout=5,is_host=true", "join_timeout"},
    {"standalone", '\0', "PET_STANDALONE", nullptr, nullptr},
    {"max_restarts", '\0', "PET_MAX_RESTARTS", "3", "-1"},
    {"monitor_interval", '\0', "PET_MONITOR_INTERVAL", "0.5", "soon"},
    {"start_method", '\0', "PET_START_METHOD", "forkserver", "clone"},
    {"event_log_handler", '\0', "PET_EVENT_LOG_HANDLER", "console", nullptr},
    {"role", '\0', "PET_ROLE", "trainer", ""},
    {"module", 'm', "PET_MODULE", nullptr, nullptr},
    {"no_python", '\0', "PET_NO_PYTHON", nullptr, nullptr},
    {"log_dir", '\0', "PET_LOG_DIR", "/logs", nullptr},
    {"redirects", 'r', "PET_REDIRECTS", "0:1,1:3", "4"},
    {"tee", 't', "PET_TEE", "3", "0:1,"},
    {"log_line_prefix_template", '\0', "PET_LOG_LINE_PREFIX_TEMPLATE", "${rank}: ", nullptr},
    {"local_ranks_filter", '\0', "PET_LOCAL_RANKS_FILTER", "0,3", "0,x"},
    {"duplicate_stdout_filters", '\0', "PET_DUPLICATE_STDOUT_FILTERS", "loss,a,,b", nullptr},
    {"duplicate_stderr_filters", '\0', "PET_DUPLICATE_STDERR_FILTERS", "Error", nullptr},
    {"node_rank", '\0', "PET_NODE_RANK", "1", "one"},
    {"master_addr", '\0', "PET_MASTER_ADDR", "[::1]", "a:b:c"},
    {"master_port", '\0', "PET_MASTER_PORT", "29501", "65536"},
    {"local_addr", '\0', "PET_LOCAL_ADDR", "10.0.0.1", nullptr},
    {"numa_binding", '\0', nullptr, "core-complex", "cores"},
    {"signals_to_handle", '\0', "PET_SIGNALS_TO_HANDLE", "SIGTERM,SIGUSR1", nullptr},
    {"shutdown_timeout", '\0', "PET_SHUTDOWN_TIMEOUT", "0", "-1"},
    {"virtual_local_rank", '\0', "PET_VIRTUAL_LOCAL_RANK", nullptr, nullptr},
    {"print_completion", '\0', nullptr, "tcsh", "ksh"},
};

std::string hyphened(std::string name) {
    std::ranges::replace(name, '_', '-');
    return name;
}

Sourced value_of(const Words& arguments, const Environment& environment, const char* name) {
    auto split = split_arguments(arguments);
    REQUIRE_MESSAGE(split.has_value(), (split ? "" : split.error().context));
    CHECK(split->program == Words{"x", "--nnodes=9"});
    const RawOptions raw = collect(*split, environment);
    REQUIRE(raw.contains(name));
    return raw.find(name)->second.back();
}

Result<Command> parsed(const Case& option, Words arguments, const Environment& environment = {}) {
    if (std::string{option.name}.starts_with("master")) {
        arguments.insert(arguments.begin(), "--nnodes=2");  // where it has a meaning
    }
    arguments.emplace_back("x");
    return parse_command(arguments, environment);
}

TEST_SUITE_BEGIN("launcher/torchrun options");

TEST_CASE("each option is read in each spelling and from its variable") {
    for (const Case& option : kCases) {
        CAPTURE(option.name);
        const std::string value = option.good == nullptr ? "1" : option.good;
        for (const std::string& name : {std::string{option.name}, hyphened(option.name)}) {
            const std::string spelled = "--" + name;
            if (option.good == nullptr) {
                CHECK(value_of({spelled, "x", "--nnodes=9"}, {}, option.name).value == "1");
                continue;
            }
            CHECK(value_of({spelled, value, "x", "--nnodes=9"}, {}, option.name).value == value);
            CHECK(
                value_of({spelled + "=" + value, "x", "--nnodes=9"}, {}, option.name).value == value
            );
        }
        if (option.variable != nullptr) {
            const Environment environment{{option.variable, value}};
            const Sourced read = value_of({"x", "--nnodes=9"}, environment, option.name);
            CHECK(read.value == value);
            CHECK(read.origin == option.variable);
        }
    }
}

TEST_CASE("short options are read with their value attached and apart") {
    for (const Case& option : kCases) {
        if (option.short_name == '\0') {
            continue;
        }
        CAPTURE(option.name);
        const std::string spelled{'-', option.short_name};
        if (option.good == nullptr) {
            CHECK(value_of({spelled, "x", "--nnodes=9"}, {}, option.name).value == "1");
            continue;
        }
        const std::string value = option.good;
        CHECK(value_of({spelled, value, "x", "--nnodes=9"}, {}, option.name).value == value);
        CHECK(value_of({spelled + value, "x", "--nnodes=9"}, {}, option.name).value == value);
    }
}

TEST_CASE("each option's good value is taken, and the command line wins over the variable") {
    for (const Case& option : kCases) {
        CAPTURE(option.name);
        const std::string spelled = option.good == nullptr
                                        ? fmt::format("--{}", option.name)
                                        : fmt::format("--{}={}", option.name, option.good);
        Environment environment;
        if (option.variable != nullptr && option.bad != nullptr) {
            environment.emplace(option.variable, option.bad);
        }
        Words arguments{spelled};
        if (std::string{option.name} == "node_rank") {
            arguments.insert(arguments.begin(), {"--nnodes=2", "--master_port=1"});
        }
        const auto command = parsed(option, arguments, environment);
        CHECK_MESSAGE(command.has_value(), (command ? "" : command.error().context));
    }
}

TEST_CASE("each option's bad value is one line that begins with the option or its variable") {
    for (const Case& option : kCases) {
        if (option.bad == nullptr) {
            continue;
        }
        CAPTURE(option.name);
        Words arguments{fmt::format("--{}={}", option.name, option.bad)};
        const bool is_of_several = std::string{option.name}.starts_with("rdzv_");
        if (is_of_several) {
            arguments.insert(arguments.begin(), "--nnodes=2");
        }
        const auto given = parsed(option, arguments);
        REQUIRE_FALSE(given.has_value());
        CHECK(given.error().code == Errc::invalid_argument);
        CHECK(given.error().context.starts_with(fmt::format("--{}", option.name)));
        CHECK(given.error().context.find('\n') == std::string::npos);
        if (option.variable == nullptr) {
            continue;
        }
        const auto inherited = parsed(
            option, is_of_several ? Words{"--nnodes=2"} : Words{}, {{option.variable, option.bad}}
        );
        REQUIRE_FALSE(inherited.has_value());
        CHECK(inherited.error().context.starts_with(option.variable));
    }
}

TEST_CASE("flags read their variable as a number, 0 is off") {
    for (const Case& option : kCases) {
        if (option.good != nullptr) {
            continue;
        }
        CAPTURE(option.name);
        for (const char* text : {"0", "1", "2", "-1", " 1 "}) {
            CAPTURE(text);
            CHECK(parsed(option, {}, {{option.variable, text}}).has_value());
        }
        for (const char* text : {"true", "yes", "", "1.5"}) {
            CAPTURE(text);
            const auto command = parsed(option, {}, {{option.variable, text}});
            REQUIRE_FALSE(command.has_value());
            CHECK(command.error().context.starts_with(option.variable));
        }
        CHECK_FALSE(split_arguments(Words{fmt::format("--{}=1", option.name), "x"}).has_value());
    }
}

TEST_CASE("values reach their option byte for byte, whatever a parser might see in them") {
    for (const char* value :
         {"[a,b]",
          "[]",
          "{}",
          "a b",
          "'q'",
          "\"q\"",
          "=",
          "=x",
          "--",
          "a=b=c",
          "%%",
          "a\nb",
          "\xff\xfe",
          "#c",
          "$$",
          "true"}) {
        CAPTURE(value);
        const Sourced attached = value_of(
            {fmt::format("--log_line_prefix_template={}", value), "x", "--nnodes=9"},
            {},
            "log_line_prefix_template"
        );
        CHECK(attached.value == value);
        const Sourced inherited = value_of(
            {"x", "--nnodes=9"},
            {{"PET_LOG_LINE_PREFIX_TEMPLATE", value}},
            "log_line_prefix_template"
        );
        CHECK(inherited.value == value);
    }
}

TEST_CASE("an abbreviation that torchrun takes is taken, whatever options we add") {
    const std::vector<std::pair<const char*, const char*>> abbreviations{
        {"--redirect=3", "redirects"},
        {"--nproc=2", "nproc_per_node"},
        {"--nproc-per=2", "nproc_per_node"},
        {"--max=2", "max_restarts"},
        {"--v", "virtual_local_rank"},
        {"--e=null", "event_log_handler"},
        {"--sh=3", "shutdown_timeout"},
        {"--stan", "standalone"},
        {"--nnode=1", "nnodes"},
        {"--log_l=x", "log_line_prefix_template"},
        {"--mon=1", "monitor_interval"},
        {"--rdzv-e=a:1", "rdzv_endpoint"},
    };
    for (const auto& [given, meant] : abbreviations) {
        const std::string name = meant;
        CAPTURE(name);
        const auto split = split_arguments(Words{given, "x"});
        REQUIRE_MESSAGE(split.has_value(), (split ? "" : split.error().context));
        CHECK(split->options.front().definition->name == name);
    }
}

TEST_CASE("of a repeated option the last counts, but rendezvous settings merge") {
    const auto command = parse_command(
        Words{
            "--nnodes=2",
            "--rdzv_endpoint=a:1",
            "--rdzv_conf=join_timeout=5,is_host=1",
            "--role=a",
            "--rdzv-conf=last_call_timeout=7,join_timeout=6",
            "--role=b",
            "x"},
        {{"PET_RDZV_CONF", "heartbeat_misses=9"}, {"PET_ROLE", "c"}}
    );

    REQUIRE(command.has_value());
    const auto& launch = std::get<LaunchCommand>(*command);
    CHECK(launch.role == "b");
    CHECK(launch.is_host == true);
    CHECK(launch.spec.join_timeout == std::chrono::seconds{6});
    CHECK(launch.spec.last_call_timeout == std::chrono::seconds{7});
    CHECK(launch.spec.heartbeat_misses == JobSpec{}.heartbeat_misses);
}

TEST_CASE("what needs Python in the launcher is refused with what to use instead") {
    for (const char* option : {"--run_path", "--run-path", "--logs_specs=x", "--logs-specs=x"}) {
        CAPTURE(option);
        const auto command = parse_command(Words{option, "x.py"}, {});
        REQUIRE_FALSE(command.has_value());
        CHECK(command.error().context.find("not supported") != std::string::npos);
    }
    CHECK_FALSE(parse_command(Words{"x.py"}, {{"PET_RUN_PATH", "1"}}).has_value());
    CHECK(parse_command(Words{"x.py"}, {{"PET_RUN_PATH", "0"}}).has_value());
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::launcher
