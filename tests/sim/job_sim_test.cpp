// Whole jobs on seeds. DDPRUN_SIM_SEEDS=N runs N seeds instead of the few hundred of every day,
// DDPRUN_SIM_SEED=S only that one, with its story.
#include "tests/sim/job_sim.h"

#include <doctest/doctest.h>

#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace ddprun::sim {
namespace {

constexpr std::uint64_t kSeedsOfEveryDay = 400;

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
    const char* text = std::getenv(variable);
    return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

void print(const JobSim& sim) {
    for (const std::string& line : sim.story()) {
        std::printf("%s\n", line.c_str());
    }
}

TEST_SUITE_BEGIN("sim/job");

TEST_CASE("every seed keeps the invariants and ends") {
    const std::uint64_t only = number_from("DDPRUN_SIM_SEED", 0);
    const std::uint64_t first = only != 0 ? only : 1;
    const std::uint64_t last = only != 0 ? only : number_from("DDPRUN_SIM_SEEDS", kSeedsOfEveryDay);
    for (std::uint64_t seed = first; seed <= last; ++seed) {
        JobSim sim(seed, plan_of_seed(seed));

        const std::string broken = sim.run();

        if (!broken.empty() || only != 0) {
            print(sim);
        }
        REQUIRE_MESSAGE(broken.empty(), "seed ", seed, ": ", broken);
    }
}

TEST_CASE("a rendezvous that dies again and again restarts no worker and loses no success") {
    for (std::uint64_t seed = 1; seed <= kSeedsOfEveryDay; ++seed) {
        JobPlan plan;
        plan.min_nodes = plan.max_nodes = plan.nodes = 3;
        plan.faults_until = 60'000;
        plan.habits.time_max = 50'000;
        plan.only_rendezvous_dies = true;
        JobSim sim(seed, plan);

        const std::string broken = sim.run();

        INFO("seed ", seed);
        if (!broken.empty()) {
            print(sim);
        }
        REQUIRE(broken == "");
        for (const auto& agent : sim.agents()) {
            REQUIRE(agent->exit_status() == 0);
            REQUIRE(agent->rounds == 1);
        }
    }
}

TEST_CASE("a failure is not lost with the rendezvous that knew it") {
    for (std::uint64_t seed = 1; seed <= kSeedsOfEveryDay; ++seed) {
        JobPlan plan;
        plan.min_nodes = plan.max_nodes = plan.nodes = 3;
        plan.max_restarts = 0;
        plan.faults_until = 60'000;
        plan.habits.time_max = 50'000;
        plan.habits.failures_percent = 100;
        plan.only_rendezvous_dies = true;
        JobSim sim(seed, plan);

        const std::string broken = sim.run();

        INFO("seed ", seed);
        if (!broken.empty()) {
            print(sim);
        }
        REQUIRE(broken == "");
        for (const auto& agent : sim.agents()) {
            const auto status = agent->exit_status();
            REQUIRE((status == 3 || status == 128 + SIGSEGV));
            REQUIRE(status == sim.agents().front()->exit_status());
        }
    }
}

TEST_CASE("a seed replays exactly") {
    const std::uint64_t seed = 7;
    JobSim first(seed, plan_of_seed(seed));
    JobSim second(seed, plan_of_seed(seed));

    static_cast<void>(first.run());
    static_cast<void>(second.run());

    CHECK(first.story() == second.story());
}

TEST_CASE("without faults a job of fixed size has one round and status 0") {
    JobPlan plan;
    plan.min_nodes = 4;
    plan.max_nodes = 4;
    plan.nodes = 4;
    JobSim sim(1, plan);

    REQUIRE(sim.run() == "");

    CHECK(sim.host().rounds_begun == 1);
    for (const auto& agent : sim.agents()) {
        CHECK(agent->exit_status() == 0);
    }
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::sim
