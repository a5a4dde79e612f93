// The rendezvous of a simulation: the real membership and liveness cores, with simulated
// connections where RendezvousHost has sockets. Checks what may be checked of everything that the
// core says.
#pragma once

#include "rendezvous/liveness.h"
#include "rendezvous/membership.h"
#include "tests/sim/connection.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

namespace ddprun::sim {

class SimHost {
public:
    SimHost(World& world, JobId job) : world_(world), job_(std::move(job)), core_(job_) {}

    void accept(const std::shared_ptr<Connection>& connection);

    /// kill -9 of the rendezvous, which knows nothing when it comes back. What it had sent still
    /// arrives, what it hadn't read is lost.
    void crash();
    void come_back();

    /// SIGSTOP, a suspended machine, a loop that was held up: nothing is handled, then all at once.
    void sleep(std::int64_t milliseconds);

    [[nodiscard]] bool up() const { return up_; }

    [[nodiscard]] const Membership& core() const { return core_; }

    /// A second core lives from the bytes of the first one's log of events, and now and then from
    /// those of its state.
    bool follow = false;

    /// Feeds each report a second time, as an agent does that resends.
    bool duplicate_reports = false;

    std::int64_t rounds_begun = 0;
    std::int64_t crashes = 0;
    bool forgot_end = false;  ///< it died when the job was over: who comes later finds another job

    /// Stores of the rounds in which a worker has died: its peers wait for it and don't end by
    /// themselves. Not by number: a rendezvous that nobody comes back to begins with 0 again.
    std::set<Port> broken_rounds;

    [[nodiscard]] Port fresh_port() { return Port{++last_port_}; }

    /// Living workers of that life of a node.
    std::function<std::int64_t(const NodeId&, Incarnation)> workers_alive;

private:
    struct Bound {
        Incarnation incarnation{};
        std::shared_ptr<Connection> connection;
    };

    struct Guest {
        std::optional<LiveKey> key;
        Incarnation incarnation{};
    };

    void on_message(
        const std::shared_ptr<Connection>& connection,
        const std::shared_ptr<Guest>& guest,
        const AgentMessage& message
    );
    void on_join(
        const std::shared_ptr<Connection>& connection,
        const std::shared_ptr<Guest>& guest,
        const Join& join
    );
    void on_end(const std::shared_ptr<Connection>& connection, const Guest& guest);
    void feed(const MembershipEvent& event);
    [[nodiscard]] Actions step(const MembershipEvent& event);
    void perform(const Actions& actions);
    void check(const Send& send);
    void check_plan(const BeginRound& begin, const NodeId& node);
    void check_first_begin(const RoundPlan& plan);
    void check_end(const EndJob& end);
    void arm();
    void on_timer();
    [[nodiscard]] bool defer(std::function<void()> what);

    World& world_;
    std::uint16_t last_port_ = 0;
    JobId job_;
    bool up_ = true;
    std::int64_t asleep_until_ = 0;
    std::vector<std::weak_ptr<Connection>> connections_;
    Membership core_;
    Membership follower_{JobId{"job"}};
    Liveness liveness_;
    std::map<NodeId, Bound> bound_;
    std::optional<Stamp> armed_for_;

    Round last_prepared_{-1};
    std::optional<RoundPlan> last_begun_;
    std::map<GroupRank, NodeId> told_;  ///< who was told which rank of the last begun round
    RestartCount last_restart_count_{};
    RestartCount former_restarts_{};  ///< the most that a rendezvous before this one told anybody
    bool stop_job_seen_ = false;
};

}  // namespace ddprun::sim
