// A rendezvous for a job of one node, small enough to be read at once: what the agent's tests talk
// to instead of the real one. Behaves as RendezvousLink demands (no handler from inside send()).
#pragma once

#include "rendezvous/link.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include <utility>
#include <vector>

namespace ddprun::test {

class OneNodeRendezvous final : public RendezvousLink {
public:
    OneNodeRendezvous(boost::asio::io_context& io_context, RestartCount max_restarts)
        : io_context_(io_context),
          max_restarts_(max_restarts) {}

    void start(Handlers handlers) override {
        handlers_ = std::move(handlers);
        boost::asio::post(io_context_, [this] { handlers_.on_connected("127.0.0.1"); });
    }

    void send(const AgentMessage& message) override {
        std::visit([this](const auto& m) { take(m); }, message);
    }

    void close(std::function<void()> done) override {
        closed_ = true;
        boost::asio::post(io_context_, std::move(done));
    }

private:
    void answer(ServerMessage message) {
        boost::asio::post(io_context_, [this, message = std::move(message)] {
            if (!closed_) {
                handlers_.on_message(message);
            }
        });
    }

    void take(const Join& join) {
        info_ = join.info;
        answer(Welcome{std::chrono::milliseconds(1'000)});
        answer(PrepareRound{round_});
    }

    void take(const Heartbeat&) {}

    void take(const Leave&) {}

    void take(const StoreReady& ready) {
        answer(Ack{ready.sequence});
        RoundPlan plan;
        plan.round = round_;
        plan.reason = round_ == Round{0} ? RoundReason::first_start : RoundReason::worker_failure;
        plan.reason_text = "a worker failed";
        plan.restart_count = RestartCount{static_cast<std::int32_t>(round_.value())};
        plan.max_restarts = max_restarts_;
        plan.master_address = "127.0.0.1";
        plan.master_port = ready.port;
        const std::vector<NodePlace> places = places_of({&info_});
        plan.world_size = world_size_of(places);
        answer(BeginRound{plan, places.front()});
    }

    void take(const WorkerFailed& failed) {
        answer(Ack{failed.sequence});
        failures_ = {failed.failure};
    }

    void take(const WorkersSucceeded& succeeded) {
        answer(Ack{succeeded.sequence});
        ended_ = true;
        answer(EndJob{});
    }

    void take(const RoundStopped& stopped) {
        answer(Ack{stopped.sequence});
        failures_.insert(
            failures_.end(), stopped.later_failures.begin(), stopped.later_failures.end()
        );
        const bool may_restart = round_.value() < max_restarts_.value() && signal_ == 0 &&
                                 !failures_.empty() && failures_[0].kind != FailureKind::exec;
        if (ended_) {
            return;
        }
        if (may_restart) {
            round_ = Round{round_.value() + 1};
            answer(PrepareRound{round_});
            return;
        }
        ended_ = true;
        EndJob end;
        end.exit_status = signal_ != 0 ? 128 + signal_ : exit_status_of(failures_.at(0));
        end.reason = signal_ != 0 ? "stopped by a signal" : "a worker failed";
        end.failures = signal_ != 0 ? std::vector<WorkerFailure>{} : failures_;
        end.restart_count = RestartCount{static_cast<std::int32_t>(round_.value())};
        answer(end);
    }

    void take(const StopJob& stop) {
        answer(Ack{stop.sequence});
        signal_ = stop.signal;
        StopRound message;
        message.round = round_;
        message.reason = "stopped by a signal";
        message.signal = stop.signal;
        message.last = true;
        answer(message);
    }

    void take(const Bye&) {}

    boost::asio::io_context& io_context_;
    RestartCount max_restarts_;
    Handlers handlers_;
    NodeInfo info_;
    Round round_{0};
    std::vector<WorkerFailure> failures_;
    int signal_ = 0;
    bool ended_ = false;
    bool closed_ = false;
};

}  // namespace ddprun::test
