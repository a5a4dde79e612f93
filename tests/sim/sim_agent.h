// One life of a node's agent in a simulation: the real AgentCore, with simulated workers where the
// Supervisor has processes and a simulated connection where the link has a socket.
#pragma once

#include "agent/agent_core.h"
#include "tests/sim/connection.h"
#include "tests/sim/sim_host.h"

#include <map>
#include <memory>
#include <optional>

namespace ddprun::sim {

/// How workers behave; the same for all nodes, may change while the simulation runs.
struct WorkerHabits {
    std::int64_t failures_percent = 0;  ///< that end by themselves with a status other than 0
    std::int64_t exec_failures_percent = 0;
    std::int64_t store_failures_percent = 0;
    std::int64_t stubborn_percent = 0;  ///< that don't heed a signal and have to be killed
    std::int64_t time_max = 3'000;
};

class SimAgent : public std::enable_shared_from_this<SimAgent> {
public:
    SimAgent(World& world, SimHost& host, Network& network, const WorkerHabits& habits, Join join);

    void start();

    /// kill -9 of the agent, or the end of its machine; its workers die with it.
    void crash(bool machine_too);

    void signal(int number);

    void cut_connection();

    /// Its peers' deaths break the connections of its workers.
    void fail_some_worker();

    [[nodiscard]] bool over() const { return crashed_ || core_.finished(); }

    [[nodiscard]] bool crashed() const { return crashed_; }

    [[nodiscard]] const std::optional<int>& exit_status() const { return exit_status_; }

    [[nodiscard]] const std::optional<EndJob>& end() const { return end_; }

    [[nodiscard]] std::int64_t workers_alive() const;

    [[nodiscard]] const std::string& name() const { return join_.info.host; }

    [[nodiscard]] const Join& join() const { return join_; }

    std::int64_t rounds = 0;    ///< whose workers it started
    std::int64_t failures = 0;  ///< of workers, that weren't asked to end

private:
    struct Worker {
        Round round;
        Port store;
        bool alive = true;
        bool stubborn = false;
    };

    void connect();
    void on_link_down();
    void step(const AgentEvent& event);
    void perform(const AgentAction& action);
    void start_workers();
    void end_worker(WorkerId id, ExitStatus status, bool by_itself);
    void after(std::int64_t milliseconds, std::function<void()> what);
    void arm();
    [[nodiscard]] TimePoint now() const;

    World& world_;
    SimHost& host_;
    Network& network_;
    const WorkerHabits& habits_;
    Join join_;
    AgentCore core_;
    std::shared_ptr<Connection> connection_;
    std::map<WorkerId, Worker> workers_;
    Port store_;                     ///< of the round that begins
    std::vector<WorkerId> spawned_;  ///< since the last WorkersStarted
    std::optional<TimePoint> armed_for_;
    std::int64_t link_deadline_ = 0;
    bool final_word_ = false;
    bool crashed_ = false;
    std::optional<int> exit_status_;
    std::optional<EndJob> end_;
};

}  // namespace ddprun::sim
