// A job's membership core with the hands of its agents, for tests: events in a few words, and what
// was sent to whom.
#pragma once

#include "rendezvous/membership.h"

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ddprun::test {

struct JobShape {
    std::int32_t min_nodes = 1;
    std::int32_t max_nodes = 1;
    std::int32_t max_restarts = 0;
};

class TestJob {
public:
    explicit TestJob(JobShape shape) : core_(JobId{"job"}) {
        spec.min_nodes = NodeCount{shape.min_nodes};
        spec.max_nodes = NodeCount{shape.max_nodes};
        spec.max_restarts = RestartCount{shape.max_restarts};
    }

    // ---- events; `node` is both name and host of the node

    void join(
        const std::string& node,
        std::optional<std::int32_t> rank = std::nullopt,
        std::optional<std::int64_t> current_round = std::nullopt
    ) {
        Join join;
        join.job = JobId{"job"};
        join.node = NodeId{node};
        join.incarnation = incarnation(node);
        join.info.host = node;
        join.info.address = fmt::format("10.0.0.{}", node);
        join.spec = spec;
        if (rank) {
            join.requested_rank = GroupRank{*rank};
        }
        if (current_round) {
            join.current_round = Round{*current_round};
        }
        event(node, join);
    }

    /// As an agent of a round that a rendezvous before this one began.
    void rejoin(
        const std::string& node,
        std::int64_t round,
        std::int32_t rank,
        std::int32_t nodes,
        std::int32_t restarts = 0
    ) {
        Join join;
        join.job = JobId{"job"};
        join.node = NodeId{node};
        join.incarnation = incarnation(node);
        join.info.host = node;
        join.info.address = fmt::format("10.0.0.{}", node);
        join.spec = spec;
        join.current_round = Round{round};
        join.job_began = true;
        join.newest_round = Round{round};
        join.claim = RoundClaim{
            Round{round},
            GroupRank{rank},
            NodeCount{nodes},
            RestartCount{restarts},
            "10.0.0.1",
            Port{29501}};
        event(node, join);
    }

    void leave(const std::string& node) { event(node, Leave{next(node), 15}); }

    void new_life(const std::string& node) {
        ++lives_[node];
        sequences_[node] = 0;
    }

    void lose(const std::string& node, NodeLost::Cause cause = NodeLost::Cause::closed) {
        event(node, NodeLost{cause, now});
    }

    void lose_since(const std::string& node, Stamp since) {
        event(node, NodeLost{NodeLost::Cause::closed, since});
    }

    void store_ready(const std::string& node, std::int64_t round) {
        event(node, StoreReady{next(node), Round{round}, Port{29501}});
    }

    void worker_fails(
        const std::string& node,
        std::int64_t round,
        std::int32_t code = 1,
        FailureKind kind = FailureKind::exited
    ) {
        event(node, WorkerFailed{next(node), Round{round}, failure(node, code, kind)});
    }

    void succeeds(const std::string& node, std::int64_t round) {
        event(node, WorkersSucceeded{next(node), Round{round}});
    }

    void stopped(const std::string& node, std::int64_t round) {
        event(node, RoundStopped{next(node), Round{round}, {}});
    }

    void stop_job(const std::string& node, std::int32_t signal) {
        event(node, StopJob{next(node), signal});
    }

    void bye(const std::string& node) { event(node, Bye{next(node)}); }

    void after(std::int64_t milliseconds) {
        now = Stamp{now.value() + milliseconds};
        perform(core_.step({NodeId{}, Incarnation{}, DeadlineExpired{}}, now));
    }

    template <class Body>
    void event(const std::string& node, Body body) {
        perform(core_.step({NodeId{node}, incarnation(node), std::move(body)}, now));
    }

    /// All of `nodes` join and the round begins.
    void run_round_of(const std::vector<std::string>& nodes) {
        for (const std::string& node : nodes) {
            join(node);
        }
        begin();
    }

    /// Group rank 0 of the prepared round answers.
    void begin() {
        const MembershipState& state = core_.state();
        store_ready(state.seats.front().node.value(), state.plan.round.value());
    }

    static WorkerFailure failure(const std::string& node, std::int32_t code, FailureKind kind) {
        WorkerFailure failure;
        failure.host = node;
        failure.rank = Rank{1};
        failure.pid = 4711;
        failure.kind = kind;
        failure.code = code;
        return failure;
    }

    // ---- what happened

    template <class Message>
    [[nodiscard]] std::vector<Message> sent(const std::string& node) const {
        std::vector<Message> found;
        for (const auto& [to, message] : messages) {
            if (const auto* each = std::get_if<Message>(&message); each && to == node) {
                found.push_back(*each);
            }
        }
        return found;
    }

    template <class Message>
    [[nodiscard]] std::optional<Message> last(const std::string& node) const {
        const std::vector<Message> all = sent<Message>(node);
        return all.empty() ? std::nullopt : std::optional<Message>(all.back());
    }

    /// The rank in the last round that the node was told to begin.
    [[nodiscard]] std::optional<std::int32_t> rank(const std::string& node) const {
        const auto begun = last<BeginRound>(node);
        return begun ? std::optional<std::int32_t>(begun->place.group_rank.value()) : std::nullopt;
    }

    [[nodiscard]] std::optional<std::int64_t> round(const std::string& node) const {
        const auto begun = last<BeginRound>(node);
        return begun ? std::optional<std::int64_t>(begun->plan.round.value()) : std::nullopt;
    }

    [[nodiscard]] std::optional<Refused> refused(const std::string& node) const {
        const auto found = refusals.find(node);
        return found == refusals.end() ? std::nullopt : std::optional<Refused>(found->second);
    }

    [[nodiscard]] Phase phase() const { return core_.state().phase; }

    [[nodiscard]] const Membership& core() const { return core_; }

    [[nodiscard]] Incarnation incarnation(const std::string& node) const {
        const auto life = lives_.find(node);
        const std::uint64_t lives = life == lives_.end() ? 0 : life->second;
        return Incarnation{std::hash<std::string>{}(node)*1'000 + lives};
    }

    void forget_messages() { messages.clear(); }

    JobSpec spec;
    Stamp now{1'000};
    std::vector<std::pair<std::string, ServerMessage>> messages;
    std::map<std::string, Refused> refusals;
    std::optional<std::int32_t> exit_status;

private:
    SequenceNumber next(const std::string& node) { return SequenceNumber{++sequences_[node]}; }

    void perform(const Actions& actions) {
        for (const Action& action : actions) {
            if (const auto* send = std::get_if<Send>(&action)) {
                messages.emplace_back(send->node.value(), send->message);
            } else if (const auto* refuse = std::get_if<Refuse>(&action)) {
                refusals[refuse->node.value()] = refuse->refused;
            } else if (const auto* ended = std::get_if<JobEnded>(&action)) {
                exit_status = ended->exit_status;
            }
        }
    }

    Membership core_;
    std::map<std::string, std::uint64_t> lives_;
    std::map<std::string, std::uint64_t> sequences_;
};

}  // namespace ddprun::test
