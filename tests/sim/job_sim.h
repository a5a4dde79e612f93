// A whole job on a seed: nodes, a network with faults for a while, then quiet. run() gives the
// first invariant that didn't hold, or nothing; `story()` tells what happened.
#pragma once

#include "tests/sim/sim_agent.h"
#include "tests/sim/sim_host.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ddprun::sim {

struct JobPlan {
    std::int32_t min_nodes = 2;
    std::int32_t max_nodes = 2;
    std::int32_t max_restarts = 3;
    std::int32_t nodes = 2;         ///< that are started
    std::int64_t faults_until = 0;  ///< milliseconds; 0: none
    WorkerHabits habits;
    bool explicit_ranks = false;
    bool signals = false;               ///< an agent may get TERM
    bool only_rendezvous_dies = false;  ///< again and again, and nothing else happens
    bool rendezvous_dies = false;       ///< and comes back knowing nothing
    std::int64_t restart_delay = 0;     ///< milliseconds, as min_uptime
    std::int64_t min_uptime = 0;
};

/// The plan of a seed, different in every respect.
[[nodiscard]] JobPlan plan_of_seed(std::uint64_t seed);

class JobSim {
public:
    JobSim(std::uint64_t seed, const JobPlan& plan);

    [[nodiscard]] std::string run();

    [[nodiscard]] const std::vector<std::string>& story() const { return world_.story; }

    [[nodiscard]] const std::vector<std::shared_ptr<SimAgent>>& agents() const { return agents_; }

    [[nodiscard]] const SimHost& host() const { return host_; }

private:
    struct Machine {
        std::string name;
        Network network;
    };

    void start_agent(std::size_t machine);
    void next_fault();
    void block_network(const SimAgent& agent);
    [[nodiscard]] std::size_t machine_of(const SimAgent& agent) const;
    void kill_rendezvous();
    void crash(const std::shared_ptr<SimAgent>& agent);
    void check_end();
    [[nodiscard]] std::shared_ptr<SimAgent> some_agent();

    World world_;
    JobPlan plan_;
    WorkerHabits habits_;
    SimHost host_;
    std::vector<std::unique_ptr<Machine>> machines_;
    std::vector<std::shared_ptr<SimAgent>> agents_;  ///< all lives
    std::uint64_t lives_ = 0;
    std::int64_t faults_ = 0;
};

}  // namespace ddprun::sim
