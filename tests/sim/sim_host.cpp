#include "tests/sim/sim_host.h"

#include "rendezvous/membership_codec.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <variant>

namespace ddprun::sim {

void SimHost::accept(const std::shared_ptr<Connection>& connection) {
    const auto guest = std::make_shared<Guest>();
    const std::weak_ptr<Connection> weak = connection;
    connections_.push_back(weak);
    const std::int64_t life = crashes;
    connection->at_host = [this, weak, guest, life](const AgentMessage& message) {
        const auto handle = [this, from = weak.lock(), guest, message, life] {
            if (life == crashes) {
                on_message(from, guest, message);
            }
        };
        if (!defer(handle)) {
            handle();
        }
    };
    connection->host_sees_end = [this, weak, guest, life] {
        const auto handle = [this, from = weak.lock(), guest, life] {
            if (life == crashes) {
                on_end(from, *guest);
            }
        };
        if (!defer(handle)) {
            handle();
        }
    };
}

void SimHost::crash() {
    world_.tell("the rendezvous dies");
    up_ = false;
    ++crashes;
    asleep_until_ = 0;
    forgot_end = forgot_end || core_.state().phase == Phase::ended;
    for (const auto& each : std::exchange(connections_, {})) {
        if (const auto connection = each.lock()) {
            connection->close_from_host();
        }
    }
    bound_.clear();
    core_ = Membership(job_);
    follower_ = Membership(job_);
    liveness_ = Liveness{};
    armed_for_.reset();
    // What agents tell the next one is all that it goes by.
    last_begun_.reset();
    former_restarts_ = std::max(former_restarts_, last_restart_count_);
    last_prepared_ = Round{-1};
    told_.clear();
    stop_job_seen_ = false;
}

void SimHost::sleep(std::int64_t milliseconds) {
    world_.tell("the rendezvous sleeps for {} ms", milliseconds);
    // Never shorter than before: what came first would be overtaken.
    asleep_until_ = std::max(asleep_until_, world_.now().value() + milliseconds);
}

/// True where it has to wait; what is deferred keeps its order.
bool SimHost::defer(std::function<void()> what) {
    const std::int64_t wait = asleep_until_ - world_.now().value();
    if (wait <= 0) {
        return false;
    }
    world_.after(wait, std::move(what));
    return true;
}

void SimHost::come_back() {
    world_.tell("the rendezvous is back");
    up_ = true;
}

void SimHost::on_message(
    const std::shared_ptr<Connection>& connection,
    const std::shared_ptr<Guest>& guest,
    const AgentMessage& message
) {
    if (const auto* join = std::get_if<Join>(&message)) {
        on_join(connection, guest, *join);
        return;
    }
    if (!guest->key) {
        return;
    }
    liveness_.heard(*guest->key, guest->incarnation, world_.now());
    const auto living = core_.state().nodes.find(guest->key->node);
    stop_job_seen_ = stop_job_seen_ || (std::holds_alternative<StopJob>(message) &&
                                        living != core_.state().nodes.end() &&
                                        living->second.incarnation == guest->incarnation);
    std::visit(
        [&](const auto& report) {
            using Report = std::decay_t<decltype(report)>;
            if constexpr (!std::is_same_v<Report, Join> && !std::is_same_v<Report, Heartbeat>) {
                feed({guest->key->node, guest->incarnation, report});
                if (duplicate_reports) {
                    feed({guest->key->node, guest->incarnation, report});
                }
            }
        },
        message
    );
    if (std::holds_alternative<Bye>(message)) {
        liveness_.forget(*guest->key, guest->incarnation);
        bound_.erase(guest->key->node);
    }
    arm();
}

void SimHost::on_join(
    const std::shared_ptr<Connection>& connection,
    const std::shared_ptr<Guest>& guest,
    const Join& join
) {
    const Actions actions = step({join.node, join.incarnation, join});
    const auto refused = std::find_if(actions.begin(), actions.end(), [&](const Action& action) {
        const auto* refuse = std::get_if<Refuse>(&action);
        return refuse != nullptr && refuse->incarnation == join.incarnation;
    });
    if (refused != actions.end()) {
        connection->to_agent(std::get<Refuse>(*refused).refused);
        connection->close_from_host();
        perform(actions);
        return;
    }
    guest->key = LiveKey{join.job, join.node};
    guest->incarnation = join.incarnation;
    const Bound former = std::exchange(bound_[join.node], Bound{join.incarnation, connection});
    if (former.connection != nullptr) {
        former.connection->close_from_host();
    }
    const JobSpec& spec = *core_.state().spec;
    liveness_.watch(
        *guest->key,
        join.incarnation,
        {spec.heartbeat_interval, spec.heartbeat_misses},
        world_.now()
    );
    perform(actions);
    arm();
}

void SimHost::on_end(const std::shared_ptr<Connection>& connection, const Guest& guest) {
    if (!guest.key) {
        return;
    }
    const auto bound = bound_.find(guest.key->node);
    if (bound == bound_.end() || bound->second.connection != connection) {
        return;
    }
    bound_.erase(bound);
    liveness_.connection_closed(*guest.key, guest.incarnation, world_.now());
    arm();
}

void SimHost::feed(const MembershipEvent& event) {
    perform(step(event));
}

Actions SimHost::step(const MembershipEvent& event) {
    Actions actions = core_.step(event, world_.now());
    if (!follow) {
        return actions;
    }
    std::string bytes;
    encode(MembershipStep{world_.now(), event}, bytes);
    const auto read = decode_membership_step(bytes);
    world_.require(read.has_value(), "an event that can't be read back");
    if (!read) {
        return actions;
    }
    const Actions followed = follower_.step(read->event, read->now);
    world_.require(
        followed == actions && follower_.state() == core_.state(),
        "the log of events gives another state"
    );
    constexpr std::int64_t kOftenEnough = 50;
    if (world_.now().value() % kOftenEnough == 0) {
        std::string stored;
        encode(core_.state(), stored);
        auto state = decode_membership_state(stored);
        world_.require(state.has_value(), "a state that can't be read back");
        if (state) {
            follower_ = Membership(std::move(*state));
        }
    }
    return actions;
}

void SimHost::perform(const Actions& actions) {
    for (const Action& action : actions) {
        if (const auto* happened = std::get_if<Happened>(&action)) {
            world_.tell("host: round {} {}", happened->round, happened->text);
        } else if (const auto* refuse = std::get_if<Refuse>(&action)) {
            const auto bound = bound_.find(refuse->node);
            if (bound != bound_.end() && bound->second.incarnation == refuse->incarnation) {
                bound->second.connection->to_agent(refuse->refused);
                bound->second.connection->close_from_host();
                bound_.erase(bound);
            }
        } else if (const auto* send = std::get_if<Send>(&action)) {
            check(*send);
            const auto bound = bound_.find(send->node);
            if (bound != bound_.end() && bound->second.incarnation == send->incarnation) {
                bound->second.connection->to_agent(send->message);
            }
        }
    }
}

void SimHost::check(const Send& send) {
    if (const auto* prepare = std::get_if<PrepareRound>(&send.message)) {
        world_.require(
            prepare->round >= last_prepared_,
            "round {} is prepared after round {}",
            prepare->round,
            last_prepared_
        );
        world_.require(
            !stop_job_seen_, "round {} is prepared after a stop of the job", prepare->round
        );
        last_prepared_ = prepare->round;
    } else if (const auto* begin = std::get_if<BeginRound>(&send.message)) {
        check_plan(*begin, send.node);
    } else if (const auto* end = std::get_if<EndJob>(&send.message)) {
        check_end(*end);
    }
}

void SimHost::check_end(const EndJob& end) {
    std::set<std::tuple<std::string, Rank, std::int32_t>> failed;
    for (const WorkerFailure& failure : end.failures) {
        world_.require(
            failed.emplace(failure.host, failure.rank, failure.pid).second,
            "the report has the failure of rank {} on {} twice",
            failure.rank,
            failure.host
        );
    }
    if (end.exit_status == 0) {
        for (const Seat& seat : core_.state().seats) {
            world_.require(
                seat.state == SeatState::succeeded &&
                    workers_alive(seat.node, seat.incarnation) == 0,
                "success though workers of {} run",
                seat.node
            );
        }
    }
}

void SimHost::check_plan(const BeginRound& begin, const NodeId& node) {
    const RoundPlan& plan = begin.plan;
    world_.require(
        plan.round == last_prepared_,
        "round {} begins while round {} is the sealed one",
        plan.round,
        last_prepared_
    );
    if (!last_begun_ || last_begun_->round != plan.round) {
        check_first_begin(plan);
        last_begun_ = plan;
        last_restart_count_ = plan.restart_count;
        told_.clear();
    }
    world_.require(plan == *last_begun_, "two plans of round {}", plan.round);
    world_.require(
        begin.place.group_rank.value() >= 0 && begin.place.group_rank.value() < plan.nodes.value(),
        "group rank {} in a round of {} nodes",
        begin.place.group_rank,
        plan.nodes
    );
    const auto told = told_.try_emplace(begin.place.group_rank, node).first;
    world_.require(
        told->second == node,
        "group rank {} of round {} is {}'s and {}'s",
        begin.place.group_rank,
        plan.round,
        told->second,
        node
    );
}

void SimHost::check_first_begin(const RoundPlan& plan) {
    ++rounds_begun;
    const std::int32_t charged = plan.restart_count.value() - last_restart_count_.value();
    // A restarted rendezvous may hear only after a round which restarts there were before it.
    const bool is_free = charged == 0 || plan.restart_count <= former_restarts_;
    world_.require(
        !last_begun_ || (plan.reason == RoundReason::worker_failure ? charged >= 1 : is_free),
        "round {} began because '{}' and charged the budget {} times",
        plan.round,
        plan.reason_text,
        charged
    );
    world_.require(
        plan.restart_count <= plan.max_restarts, "the budget is exceeded in {}", plan.round
    );
    const auto& spec = *core_.state().spec;
    const std::int32_t nodes = plan.nodes.value();
    world_.require(
        nodes >= spec.min_nodes.value() && nodes <= spec.max_nodes.value(),
        "round {} has {} nodes",
        plan.round,
        nodes
    );
    for (const Seat& seat : core_.state().seats) {
        world_.require(
            workers_alive(seat.node, seat.incarnation) == 0,
            "round {} begins while workers of an older one run on {}",
            plan.round,
            seat.node
        );
    }
}

void SimHost::arm() {
    std::optional<Stamp> earliest = liveness_.deadline();
    const std::optional<Stamp> deadline = core_.deadline();
    if (deadline && (!earliest || *deadline < *earliest)) {
        earliest = deadline;
    }
    if (!earliest || (armed_for_ && *armed_for_ <= *earliest)) {
        return;
    }
    armed_for_ = earliest;
    world_.after(
        std::max<std::int64_t>(earliest->value() - world_.now().value(), 0),
        [this, stamp = *earliest] {
            if (armed_for_ == stamp) {
                on_timer();
            }
        }
    );
}

void SimHost::on_timer() {
    if (defer([this] { on_timer(); })) {
        return;
    }
    armed_for_.reset();
    if (!up_) {
        return;
    }
    for (const Liveness::Lost& lost : liveness_.expire(world_.now())) {
        const auto bound = bound_.find(lost.key.node);
        if (bound != bound_.end() && bound->second.incarnation == lost.incarnation) {
            bound->second.connection->close_from_host();
            bound_.erase(bound);
        }
        feed({lost.key.node, lost.incarnation, lost.lost});
    }
    if (core_.deadline() && *core_.deadline() <= world_.now()) {
        feed({NodeId{}, Incarnation{}, DeadlineExpired{}});
    }
    arm();
}

}  // namespace ddprun::sim
