#include "tests/sim/job_sim.h"

#include "proto/exit_codes.h"

#include <signal.h>

#include <algorithm>
#include <set>

namespace ddprun::sim {

namespace {

constexpr std::int64_t kJoinTimeout = 30'000;
constexpr std::int64_t kEventsMax = 200'000;    ///< of a job; a usual one has some thousands
constexpr std::int64_t kDaemonGoneMax = 8'000;  ///< less than an agent waits for it
constexpr std::int64_t kQuietTime = 400'000;    ///< after the faults; every job has ended by then

}  // namespace

JobPlan plan_of_seed(std::uint64_t seed) {
    Random random(seed ^ 0x9e3779b97f4a7c15U);
    JobPlan plan;
    plan.max_nodes = static_cast<std::int32_t>(random.between(1, 6));
    plan.min_nodes = static_cast<std::int32_t>(
        random.one_in(2) ? plan.max_nodes : random.between(1, plan.max_nodes)
    );
    plan.nodes = plan.max_nodes + static_cast<std::int32_t>(random.between(-1, 2));
    plan.nodes = std::max(plan.nodes, plan.min_nodes);
    plan.max_restarts = static_cast<std::int32_t>(random.between(0, 4));
    plan.faults_until = random.one_in(5) ? 0 : random.between(1'000, 30'000);
    plan.habits.failures_percent = random.one_in(3) ? 0 : random.between(0, 30);
    plan.habits.exec_failures_percent = random.one_in(10) ? 10 : 0;
    plan.habits.store_failures_percent = random.one_in(10) ? 20 : 0;
    plan.habits.stubborn_percent = random.one_in(4) ? 30 : 0;
    plan.habits.time_max = random.between(100, 8'000);
    plan.explicit_ranks = random.one_in(5);
    plan.signals = random.one_in(4);
    plan.restart_delay = random.one_in(3) ? random.between(1, 3'000) : 0;
    plan.min_uptime = random.one_in(3) ? random.between(1, 5'000) : 0;
    plan.rendezvous_dies = random.one_in(3);
    return plan;
}

JobSim::JobSim(std::uint64_t seed, const JobPlan& plan)
    : world_(seed),
      plan_(plan),
      habits_(plan.habits),
      host_(world_, JobId{"job"}) {
    host_.workers_alive = [this](const NodeId& node, Incarnation incarnation) {
        std::int64_t alive = 0;
        for (const auto& agent : agents_) {
            const Join& join = agent->join();
            if (join.node == node && join.incarnation == incarnation) {
                alive += agent->workers_alive();
            }
        }
        return alive;
    };
    host_.follow = seed % 4 == 0;
    host_.duplicate_reports = world_.random.one_in(4);
    for (std::int32_t i = 0; i < plan_.nodes; ++i) {
        auto machine = std::make_unique<Machine>();
        machine->name = fmt::format("node{}", i);
        machine->network.delay_max = world_.random.one_in(3) ? world_.random.between(1, 200) : 3;
        machines_.push_back(std::move(machine));
        world_.after(world_.random.between(0, 3'000), [this, index = machines_.size() - 1] {
            start_agent(index);
        });
    }
    if (plan_.faults_until > 0) {
        world_.after(world_.random.between(0, 3'000), [this] { next_fault(); });
        world_.after(plan_.faults_until, [this] {
            world_.tell("the faults are over");
            habits_.failures_percent = 0;
            habits_.store_failures_percent = 0;
        });
    }
}

void JobSim::start_agent(std::size_t machine) {
    Join join;
    join.job = JobId{"job"};
    join.node = NodeId{machines_[machine]->name};
    join.incarnation = Incarnation{++lives_};
    join.info.host = machines_[machine]->name;
    join.info.local_world_size =
        LocalWorldSize{static_cast<std::int32_t>(world_.random.between(1, 3))};
    join.spec.min_nodes = NodeCount{plan_.min_nodes};
    join.spec.max_nodes = NodeCount{plan_.max_nodes};
    join.spec.max_restarts = RestartCount{plan_.max_restarts};
    join.spec.restart_delay = std::chrono::milliseconds(plan_.restart_delay);
    join.spec.min_uptime = std::chrono::milliseconds(plan_.min_uptime);
    join.spec.join_timeout = std::chrono::milliseconds(kJoinTimeout);
    join.spec.heartbeat_interval = std::chrono::milliseconds(500);
    const auto rank = static_cast<std::int32_t>(machine);
    // Those beyond MAX ask for a rank that may be taken.
    if (plan_.explicit_ranks && (rank < plan_.max_nodes || world_.random.one_in(2))) {
        join.requested_rank = GroupRank{rank % plan_.max_nodes};
    }
    const auto agent = std::make_shared<SimAgent>(
        world_, host_, machines_[machine]->network, habits_, std::move(join)
    );
    agents_.push_back(agent);
    agent->start();
}

std::shared_ptr<SimAgent> JobSim::some_agent() {
    std::vector<std::shared_ptr<SimAgent>> alive;
    for (const auto& agent : agents_) {
        if (!agent->over()) {
            alive.push_back(agent);
        }
    }
    if (alive.empty()) {
        return nullptr;
    }
    const auto last = static_cast<std::int64_t>(alive.size()) - 1;
    return alive[static_cast<std::size_t>(world_.random.between(0, last))];
}

void JobSim::next_fault() {
    if (world_.now().value() >= plan_.faults_until) {
        return;
    }
    if (plan_.only_rendezvous_dies) {
        // In between it is back for long enough that all agents have come back.
        constexpr std::int64_t kBack = 2'000;
        kill_rendezvous();
        world_.after(world_.random.between(kDaemonGoneMax + kBack, 15'000), [this] {
            next_fault();
        });
        return;
    }
    if (const auto agent = some_agent()) {
        ++faults_;
        switch (world_.random.between(0, plan_.rendezvous_dies ? 8 : 7)) {
            case 0:
            case 1: agent->cut_connection(); break;
            case 2:
            case 3: block_network(*agent); break;
            case 4: crash(agent); break;
            case 5:  // a second agent of the same node
                if (world_.random.one_in(4)) {
                    start_agent(machine_of(*agent));
                }
                break;
            case 6:
                if (plan_.signals) {
                    agent->signal(SIGTERM);
                }
                break;
            case 7: host_.sleep(world_.random.between(10, 6'000)); break;
            default: kill_rendezvous();
        }
    }
    world_.after(world_.random.between(10, 4'000), [this] { next_fault(); });
}

std::size_t JobSim::machine_of(const SimAgent& agent) const {
    std::size_t index = 0;
    while (machines_[index]->name != agent.name()) {
        ++index;
    }
    return index;
}

void JobSim::block_network(const SimAgent& agent) {
    const std::int64_t time = world_.random.between(50, 15'000);
    machines_[machine_of(agent)]->network.blocked_until = world_.now().value() + time;
    world_.tell("{}: its network is down for {} ms", agent.name(), time);
}

void JobSim::kill_rendezvous() {
    if (!host_.up()) {
        return;
    }
    host_.crash();
    world_.after(world_.random.between(1, kDaemonGoneMax), [this] { host_.come_back(); });
}

void JobSim::crash(const std::shared_ptr<SimAgent>& agent) {
    agent->crash(world_.random.one_in(3));
    // The connections of its workers break: some of their peers fail, often before the rendezvous
    // knows of the crash.
    for (const auto& other : agents_) {
        if (!other->over() && world_.random.one_in(2)) {
            world_.after(world_.random.between(0, 10), [other] {
                if (!other->over()) {
                    other->fail_some_worker();
                }
            });
        }
    }
    if (world_.random.percent(80)) {
        world_.after(world_.random.between(0, 5'000), [this, machine = machine_of(*agent)] {
            start_agent(machine);
        });
    }
}

std::string JobSim::run() {
    const std::int64_t end = plan_.faults_until + kQuietTime;
    std::int64_t events = 0;
    while (world_.run_one(end)) {
        world_.require(++events < kEventsMax, "more than {} events: no rest", kEventsMax);
    }
    if (world_.broken.empty()) {
        check_end();
    }
    return world_.broken;
}

void JobSim::check_end() {
    std::int64_t failures = 0;
    std::set<int> statuses;
    for (const auto& agent : agents_) {
        failures += agent->failures;
        world_.require(agent->over(), "{} waits for ever", agent->name());
        world_.require(agent->workers_alive() == 0, "{} left workers", agent->name());
        if (agent->end()) {
            statuses.insert(agent->end()->exit_status);
        }
    }
    world_.require(
        statuses.size() <= 1 || host_.forgot_end, "the job ended with {} statuses", statuses.size()
    );
    const MembershipState& state = host_.core().state();
    world_.require(
        state.phase == Phase::ended || (state.nodes.empty() && !state.spec), "the job hasn't ended"
    );
    world_.require(state.nodes.empty(), "{} nodes haven't left", state.nodes.size());
    world_.require(
        state.restarts.restarts.value() <= failures,
        "{} restarts after {} failures",
        state.restarts.restarts,
        failures
    );
    if (faults_ == 0 && failures == 0 && plan_.nodes <= plan_.max_nodes) {
        world_.require(
            state.end.exit_status == exit_code::kSuccess,
            "status {} without a fault",
            state.end.exit_status
        );
        world_.require(
            host_.rounds_begun == 1 || plan_.min_nodes < plan_.max_nodes,
            "{} rounds without a fault",
            host_.rounds_begun
        );
    }
}

}  // namespace ddprun::sim
