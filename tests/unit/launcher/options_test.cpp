#include "launcher/options.h"

#include "launcher/option_table.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace ddprun::launcher {
namespace {

using std::chrono::milliseconds;
using Words = std::vector<std::string>;

LaunchCommand command_of(const Words& arguments, const Environment& environment = {}) {
    auto command = parse_command(arguments, environment);
    REQUIRE_MESSAGE(command.has_value(), (command ? "" : command.error().context));
    REQUIRE(std::holds_alternative<LaunchCommand>(*command));
    return std::get<LaunchCommand>(*command);
}

std::string error_of(const Words& arguments, const Environment& environment = {}) {
    const auto command = parse_command(arguments, environment);
    REQUIRE_FALSE(command.has_value());
    CHECK(command.error().code == Errc::invalid_argument);
    CHECK(command.error().context.find('\n') == std::string::npos);
    return command.error().context;
}

TEST_SUITE_BEGIN("launcher/options");

TEST_CASE("a plain command is a standalone job of one worker") {
    const LaunchCommand command = command_of({"trainer", "--lr", "0.1"});

    CHECK(command.standalone);
    CHECK(command.nproc_per_node == LocalWorldSize{1});
    CHECK(command.spec.max_restarts == RestartCount{0});
    CHECK(command.program == Words{"trainer", "--lr", "0.1"});
}

TEST_CASE("the main job's command line gives its nodes, workers and endpoint") {
    const LaunchCommand command =
        command_of({"--nproc_per_node=4", "--nnodes=2", "--rdzv_endpoint=node0:29400", "trainer"});

    CHECK_FALSE(command.standalone);
    CHECK(command.spec.min_nodes == NodeCount{2});
    CHECK(command.spec.max_nodes == NodeCount{2});
    CHECK(command.endpoint.host == "node0");
    CHECK(command.endpoint.port == Port{29400});
    CHECK(command.job == JobId{"none"});
}

TEST_CASE("an endpoint without a port has 29400") {
    CHECK(command_of({"--nnodes=2", "--rdzv_endpoint=node0", "x"}).endpoint.port == Port{29400});
}

TEST_CASE("master_addr and master_port are the endpoint where none is given") {
    const LaunchCommand command =
        command_of({"--nnodes=2", "--node_rank=1", "--master_addr=node0", "--master_port=1234", "x"}
        );

    CHECK(command.endpoint.host == "node0");
    CHECK(command.endpoint.port == Port{1234});
    CHECK(command.node_rank == GroupRank{1});
}

TEST_CASE("several nodes without an endpoint meet where torchrun's static ones do") {
    const LaunchCommand command = command_of({"--nnodes=2", "x"});

    CHECK(command.endpoint.host == "127.0.0.1");
    CHECK(command.endpoint.port == Port{29500});
}

TEST_CASE("one node with a fixed master port is no standalone job") {
    CHECK_FALSE(command_of({"--master_port=1234", "x"}).standalone);
}

TEST_CASE("standalone wins over an endpoint") {
    CHECK(command_of({"--standalone", "--rdzv_endpoint=node0:1", "x"}).standalone);
}

TEST_CASE("standalone with several nodes is refused") {
    CHECK(error_of({"--standalone", "--nnodes=2", "x"})
              .starts_with("--standalone is a job of one node"));
}

TEST_CASE("a range of nodes has a smallest and a largest number") {
    const LaunchCommand command =
        command_of({"--nnodes=1:4", "--rdzv_backend=c10d", "--rdzv_endpoint=a", "x"});

    CHECK(command.spec.min_nodes == NodeCount{1});
    CHECK(command.spec.max_nodes == NodeCount{4});
}

TEST_CASE("numbers of nodes that can't be are refused") {
    for (const char* value :
         {"0", "-1", "x", "", "2:1", "1:2:3", "1:", ":2", "0:2", "99999999999"}) {
        CAPTURE(value);
        CHECK(error_of({std::string{"--nnodes="} + value, "x"})
                  .starts_with(std::string{"--nnodes="} + value + ": expected N or MIN:MAX"));
    }
}

TEST_CASE("workers are a number or a word") {
    CHECK(command_of({"--nproc_per_node=8", "x"}).nproc_per_node == LocalWorldSize{8});
    CHECK(command_of({"--nproc_per_node=auto", "x"}).worker_source == WorkerSource::automatic);
    CHECK(command_of({"--nproc_per_node=cpu", "x"}).worker_source == WorkerSource::cpu);
    CHECK(command_of({"--nproc_per_node=gpu", "x"}).worker_source == WorkerSource::gpu);
    CHECK(
        command_of({"--nproc_per_node=gpu:2,4,0", "x"}).chosen_gpus ==
        std::vector<std::int32_t>{2, 4, 0}
    );
}

TEST_CASE("numbers of workers that can't be are refused") {
    for (const char* value :
         {"0", "-1", "4x", "1.5", "gpus", "", "4097", "gpu:", "gpu:1,1", "gpu:a", "gpu:1,"}) {
        CAPTURE(value);
        CHECK(
            error_of({std::string{"--nproc_per_node="} + value, "x"}) ==
            std::string{"--nproc_per_node="} + value +
                ": expected a number from 1 to 4096, auto, cpu, gpu, or GPUs by number as gpu:2,4,7"
        );
    }
}

TEST_CASE("every option with a variable takes its default from there, below the command line") {
    const Environment environment{
        {"PET_NNODES", "3"}, {"PET_MAX_RESTARTS", "5"}, {"PET_ROLE", "r"}};

    const LaunchCommand command = command_of({"--max_restarts=7", "x"}, environment);

    CHECK(command.spec.max_nodes == NodeCount{3});
    CHECK(command.spec.max_restarts == RestartCount{7});
    CHECK(command.role == "r");
}

TEST_CASE("a wrong value of a variable is refused naming the variable") {
    CHECK(
        error_of({"x"}, {{"PET_MAX_RESTARTS", "abc"}}) ==
        "PET_MAX_RESTARTS=abc: expected a number from 0 to 1000000"
    );
    CHECK(error_of(
              {"x"}, {{"PET_STANDALONE", "yes"}}
    ).starts_with("PET_STANDALONE=yes: expected a number"));
    CHECK(error_of(
              {"x"}, {{"PET_RDZV_CONF", "a=b"}}
    ).starts_with("PET_RDZV_CONF: rdzv_conf a: unknown key"));
}

TEST_CASE("whatever is wrong with a variable's value, the sentence begins with its name") {
    const std::pair<const char*, const char*> wrong_values[] = {
        {"PET_NNODES", "a"},
        {"PET_NPROC_PER_NODE", "0"},
        {"PET_MAX_RESTARTS", "-1"},
        {"PET_ROLE", ""},
        {"PET_RDZV_BACKEND", "etcd"},
        {"PET_NODE_RANK", "x"},
        {"PET_MASTER_PORT", "70000"},
        {"PET_SHUTDOWN_TIMEOUT", "soon"},
        {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "soon"},
        {"PET_START_METHOD", "thread"},
        {"PET_MONITOR_INTERVAL", "x"},
        {"PET_VIRTUAL_LOCAL_RANK", "x"},
        {"PET_MODULE", "yes"},
        {"PET_REDIRECTS", "4"},
        {"PET_TEE", "0:9"},
        {"PET_LOCAL_RANKS_FILTER", "a"},
        {"PET_RUN_PATH", "1"},
    };
    for (const auto& [variable, value] : wrong_values) {
        CAPTURE(variable);
        CHECK(error_of({"x"}, {{variable, value}}).starts_with(variable));
    }
    CHECK(error_of({"--nnodes=2", "x"}, {{"PET_RDZV_ID", ""}}).starts_with("PET_RDZV_ID"));
    CHECK(error_of({"--nnodes=2", "x"}, {{"PET_STANDALONE", "1"}}).starts_with("PET_STANDALONE"));
    CHECK(error_of({"-m", "x"}, {{"PET_NO_PYTHON", "1"}}).starts_with("--module and PET_NO_PYTHON")
    );
    CHECK(error_of({"--nnodes=2", "x"}, {{"PET_NODE_RANK", "2"}}).starts_with("PET_NODE_RANK=2"));
}

TEST_CASE("a message is one line whatever the value holds") {
    CHECK(error_of({"--nnodes=a\nb\t\x01", "x"}).starts_with("--nnodes=a\\nb\\t\\x01: expected"));
    CHECK(error_of({"--no\nsuch", "x"}).starts_with("unknown option --no\\nsuch"));
}

TEST_CASE("torchrun's older variable for the shutdown timeout counts below PET_") {
    const Environment older{{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "4"}};
    Environment both = older;
    both["PET_SHUTDOWN_TIMEOUT"] = "5";

    CHECK(command_of({"x"}, older).shutdown_timeout == milliseconds{4'000});
    CHECK(command_of({"x"}, both).shutdown_timeout == milliseconds{5'000});
}

TEST_CASE("a flag's variable counts as set unless it is 0") {
    CHECK(command_of({"x"}, {{"PET_NO_PYTHON", "1"}}).no_python);
    CHECK_FALSE(command_of({"x"}, {{"PET_NO_PYTHON", "0"}}).no_python);
}

TEST_CASE("repeated rdzv_conf options merge") {
    const LaunchCommand command = command_of(
        {"--nnodes=2",
         "--rdzv_conf=join_timeout=5",
         "--rdzv_conf=is_host=true,heartbeat_misses=2",
         "x"}
    );

    CHECK(command.spec.join_timeout == milliseconds{5'000});
    CHECK(command.spec.heartbeat_misses == 2);
    CHECK(command.is_host == true);
}

TEST_CASE("of other repeated options the last wins") {
    CHECK(
        command_of({"--nproc_per_node=2", "--nproc_per_node=3", "x"}).nproc_per_node ==
        LocalWorldSize{3}
    );
}

TEST_CASE("a node rank outside of the job is refused") {
    CHECK(error_of({"--nnodes=2", "--node_rank=2", "x"})
              .starts_with("--node_rank=2: the job has 2 nodes"));
}

TEST_CASE("etcd is refused with what to do instead") {
    CHECK(error_of({"--rdzv_backend=etcd-v2", "x"})
              .starts_with("--rdzv_backend=etcd-v2: etcd is not supported"));
    CHECK(error_of({"--rdzv_backend=foo", "x"}) == "--rdzv_backend=foo: expected static, c10d");
}

TEST_CASE("options without effect are accepted and noted") {
    const LaunchCommand command = command_of(
        {"--start_method=fork", "--monitor_interval=0.5", "--rdzv_conf=read_timeout=3", "x"}
    );

    CHECK(command.notes.size() == 3);
}

TEST_CASE("a shutdown timeout may have a fraction, and be 0") {
    CHECK(command_of({"--shutdown_timeout=0.5", "x"}).shutdown_timeout == milliseconds{500});
    CHECK(command_of({"--shutdown-timeout", "0", "x"}).shutdown_timeout == milliseconds{0});
    CHECK(error_of({"--shutdown_timeout=-1", "x"})
              .starts_with("--shutdown_timeout=-1: expected seconds"));
}

TEST_CASE("a command without a program is refused") {
    CHECK(error_of({}).starts_with("no program given"));
    CHECK(error_of({"--nproc_per_node=2"}).starts_with("no program given"));
    CHECK(error_of({"--", ""}).starts_with("no program given"));
}

TEST_CASE("a module and no_python exclude each other") {
    CHECK(error_of({"-m", "--no_python", "x"})
              .starts_with("--module and --no_python exclude each other"));
}

TEST_CASE("a malformed endpoint is refused naming its option") {
    CHECK(error_of({"--nnodes=2", "--rdzv_endpoint=a:b:c", "x"})
              .starts_with("--rdzv_endpoint=a:b:c: "));
    CHECK(error_of({"--nnodes=2", "--rdzv_endpoint=a:99999", "x"})
              .starts_with("--rdzv_endpoint=a:99999: "));
    CHECK(error_of({"--nnodes=2", "--master_addr=::1", "x"}).starts_with("--master_addr=::1: "));
}

TEST_CASE("help and version win over everything else") {
    CHECK(std::holds_alternative<HelpCommand>(*parse_command(Words{"--help"}, {})));
    CHECK(std::holds_alternative<HelpCommand>(*parse_command(Words{"-h", "--nnodes=x"}, {})));
    CHECK(std::holds_alternative<VersionCommand>(*parse_command(Words{"--version", "y"}, {})));
}

TEST_CASE("the help names every option and fits 100 columns") {
    const std::string help = help_text();

    for (const OptionDefinition& definition : option_table()) {
        CAPTURE(definition.name);
        const bool is_shown = help.find("--" + std::string{definition.name}) != std::string::npos;
        CHECK(is_shown != definition.hidden);
    }
    std::istringstream lines{help};
    for (std::string line; std::getline(lines, line);) {
        CAPTURE(line);
        CHECK(line.size() <= 100);
    }
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::launcher
