#include "launcher/plan.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <string>
#include <variant>
#include <vector>

namespace ddprun::launcher {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

LaunchCommand command_of(const Words& arguments) {
    const auto command = parse_command(arguments, {});
    REQUIRE_MESSAGE(command.has_value(), (command ? "" : command.error().context));
    return std::get<LaunchCommand>(*command);
}

AgentSettings settings_of(const LaunchCommand& command, int workers) {
    AgentSettings settings;
    settings.job = command.job;
    settings.spec = command.spec;
    settings.program = "/bin/x";
    settings.argv = command.program;
    settings.info.local_world_size = LocalWorldSize{workers};
    settings.environment = {"HOME=/root", "RANK=7", "OMP_NUM_THREADS=3"};
    settings.virtual_local_rank = command.virtual_local_rank;
    return settings;
}

PlanFacts facts() {
    return {
        .working_folder = "/work",
        .allowed_cpus = {0, 1, 2, 3},
        .gpus = {},
        .own_environment = {"HOME=/root", "RANK=7", "OMP_NUM_THREADS=3"},
    };
}

json json_of(const LaunchCommand& command, const AgentSettings& settings, const PlanFacts& given) {
    return json::parse(plan_json(plan_of(command, settings, given)));
}

TEST_SUITE_BEGIN("launcher/plan");

TEST_CASE("a job of this node alone shows every rank, and leaves open what is drawn at the start") {
    const LaunchCommand command = command_of({"--nproc_per_node=2", "x", "a b"});
    const json plan = json_of(command, settings_of(command, 2), facts());

    CHECK(plan["program"] == "/bin/x");
    CHECK(plan["job_id"].is_null());
    CHECK(plan["rendezvous"].is_null());
    CHECK(plan["not_inherited"] == Words{"RANK"});
    REQUIRE(plan["workers"].size() == 2);
    const json& worker = plan["workers"][1];
    CHECK(worker["argv"] == Words{"x", "a b"});
    CHECK(worker["environment"]["RANK"] == "1");
    CHECK(worker["environment"]["WORLD_SIZE"] == "2");
    CHECK(worker["environment"]["MASTER_ADDR"] == "127.0.0.1");
    CHECK(worker["environment"]["MASTER_PORT"].is_null());
    CHECK(worker["environment"]["TORCHELASTIC_RUN_ID"].is_null());
    CHECK_FALSE(worker["environment"].contains("HOME"));
    CHECK_FALSE(worker["environment"].contains("OMP_NUM_THREADS"));
    CHECK(worker["cpus"] == std::vector<int>{0, 1, 2, 3});
}

TEST_CASE("among several nodes ranks are known only when the job runs") {
    const LaunchCommand command =
        command_of({"--nnodes=2:4", "--rdzv_endpoint=node0:1", "--rdzv_id=job7", "x"});
    const json plan = json_of(command, settings_of(command, 1), facts());

    CHECK(plan["job_id"] == "job7");
    CHECK(plan["rendezvous"] == "node0:1");
    CHECK(plan["min_nodes"] == 2);
    CHECK(plan["max_nodes"] == 4);
    const json& environment = plan["workers"][0]["environment"];
    for (const char* name :
         {"RANK", "GROUP_RANK", "WORLD_SIZE", "GROUP_WORLD_SIZE", "MASTER_ADDR"}) {
        CAPTURE(name);
        CHECK(environment[name].is_null());
    }
    CHECK(environment["LOCAL_RANK"] == "0");
    CHECK(environment["TORCHELASTIC_RUN_ID"] == "job7");
}

TEST_CASE("bindings and devices are those of each worker") {
    const LaunchCommand command = command_of({"--nproc_per_node=2", "x"});
    AgentSettings settings = settings_of(command, 2);
    settings.bindings = {{{0, 1}, {0}, 2}, {{2, 3}, {1}, 2}};
    PlanFacts given = facts();
    given.gpus = {{"4", Gpu{"GPU-a", "0000:3b:00.0"}}, {"5", std::nullopt}};
    const json plan = json_of(command, settings, given);
    settings.virtual_local_rank = true;
    const json virtual_plan = json_of(command, settings, given);

    CHECK(plan["workers"][1]["cpus"] == std::vector<int>{2, 3});
    CHECK(plan["workers"][1]["memory_nodes"] == std::vector<int>{1});
    CHECK(plan["workers"][0]["devices"] == Words{"4", "5"});
    CHECK(plan["workers"][0]["own_device"]["pci_address"] == "0000:3b:00.0");
    CHECK(plan["workers"][1]["own_device"]["name"] == "5");
    CHECK(plan["workers"][1]["own_device"]["uuid"].is_null());
    CHECK(virtual_plan["workers"][1]["devices"] == Words{"5"});
    CHECK(virtual_plan["workers"][1]["environment"]["CUDA_VISIBLE_DEVICES"] == "1");
}

TEST_CASE("bytes that are no UTF-8 don't break the JSON") {
    const LaunchCommand command = command_of({"x", "\xff\n"});
    const json plan = json_of(command, settings_of(command, 1), facts());

    CHECK(plan["workers"][0]["argv"][1] == "\xef\xbf\xbd\n");
}

TEST_CASE("the text has a command that can be pasted to a shell") {
    const LaunchCommand command = command_of({"--nproc_per_node=2", "x", "it's", "", "$HOME"});
    const std::string text = plan_text(plan_of(command, settings_of(command, 2), facts()));

    CHECK(text.find("  command      x 'it'\\''s' '' '$HOME'\n") != std::string::npos);
    CHECK(text.find("local rank 1\n") != std::string::npos);
    CHECK(text.find("  CPUs         0-3\n") != std::string::npos);
    CHECK(text.find("MASTER_PORT (known when the job runs)\n") != std::string::npos);
    CHECK(text.find("not inherited  RANK\n") != std::string::npos);
}

TEST_CASE("words are quoted only where a shell would change them") {
    CHECK(shell_quoted("/bin/a-b_c.py") == "/bin/a-b_c.py");
    CHECK(shell_quoted("") == "''");
    CHECK(shell_quoted("a b") == "'a b'");
    CHECK(shell_quoted("~x") == "'~x'");
    CHECK(shell_quoted("a\nb'\\\xff\x01") == "$'a\\nb\\'\\\\\\377\\001'");
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::launcher
