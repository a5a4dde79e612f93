#include "trainer/worker_place.h"

#include <doctest/doctest.h>

#include <map>
#include <string>

namespace ddprun::trainer {
namespace {

using Variables = std::map<std::string, std::string, std::less<>>;

Result<WorkerPlace> read(const Variables& variables) {
    return read_worker_place([&](std::string_view name) -> std::optional<std::string> {
        const auto found = variables.find(name);
        return found == variables.end() ? std::nullopt : std::optional(found->second);
    });
}

Variables torchrun_environment() {
    return {
        {"RANK", "3"},
        {"WORLD_SIZE", "4"},
        {"LOCAL_RANK", "1"},
        {"LOCAL_WORLD_SIZE", "2"},
        {"MASTER_ADDR", "10.0.0.1"},
        {"MASTER_PORT", "29500"},
        {"TORCHELASTIC_RESTART_COUNT", "2"},
        {"TORCHELASTIC_USE_AGENT_STORE", "True"},
    };
}

TEST_CASE("a launcher's only worker knows the store, too, where one is named") {
    const auto place = read(
        {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29400"}}
    );
    REQUIRE(place.has_value());
    CHECK(place->alone());
    CHECK(place->master_addr == "10.0.0.1");
    CHECK(place->master_port == 29400);
    CHECK(read({{"RANK", "0"}, {"WORLD_SIZE", "1"}})->master_addr.empty());
}

TEST_CASE("without an environment a worker is alone") {
    const auto place = read({});
    REQUIRE(place);
    CHECK(place->alone());
    CHECK(place->rank == 0);
    CHECK(place->round == 0);
}

TEST_CASE("torchrun's environment is read whole, and its restart count stands for the round") {
    const auto place = read(torchrun_environment());
    REQUIRE(place);
    CHECK(place->rank == 3);
    CHECK(place->world_size == 4);
    CHECK(place->local_rank == 1);
    CHECK(place->local_world_size == 2);
    CHECK(place->master_addr == "10.0.0.1");
    CHECK(place->master_port == 29500);
    CHECK(place->agent_hosts_store);
    CHECK(place->round == 2);
}

TEST_CASE("ddprun's round and terminal width are taken where they are given") {
    auto variables = torchrun_environment();
    variables["DDPRUN_ROUND"] = "17";
    variables["DDPRUN_TTY"] = "120";
    const auto place = read(variables);
    REQUIRE(place);
    CHECK(place->round == 17);
    CHECK(place->restart_count == 2);
    CHECK(place->terminal_columns == 120);
}

TEST_CASE("rank 0 hosts the store where no agent says that it does") {
    auto variables = torchrun_environment();
    variables["TORCHELASTIC_USE_AGENT_STORE"] = "False";
    const auto place = read(variables);
    REQUIRE(place);
    CHECK_FALSE(place->agent_hosts_store);
}

TEST_CASE("a value that makes no sense is named with its variable") {
    const std::map<std::string, std::string> bad = {
        {"RANK", "4"},
        {"WORLD_SIZE", "0"},
        {"LOCAL_WORLD_SIZE", "5"},
        {"MASTER_PORT", "70000"},
        {"TORCHELASTIC_RESTART_COUNT", "-1"},
        {"LOCAL_RANK", "one"},
    };
    for (const auto& [each, value] : bad) {
        const std::string name{each};  // clang 14 captures no structured binding
        CAPTURE(name);
        auto variables = torchrun_environment();
        variables[name] = value;
        const auto place = read(variables);
        REQUIRE_FALSE(place);
        CHECK(place.error().code == Errc::invalid_argument);
        CHECK(place.error().context.find(name) != std::string::npos);
    }
}

TEST_CASE("a job of several workers needs rank, size, address and port") {
    for (const auto* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
        CAPTURE(name);
        auto variables = torchrun_environment();
        variables.erase(name);
        const auto place = read(variables);
        REQUIRE_FALSE(place);
        CHECK(place.error().context.find(name) != std::string::npos);
    }
}

}  // namespace
}  // namespace ddprun::trainer
