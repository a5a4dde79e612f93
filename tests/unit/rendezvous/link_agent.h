// A scripted agent over a RendezvousLink, for tests of the host and the links: it joins when the
// link is up, records what comes, and answers as an agent whose workers do as the test says.
#pragma once

#include "rendezvous/link.h"

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ddprun::test {

/// Runs handlers until `condition` holds; false after ten seconds.
inline bool run_until(boost::asio::io_context& io_context, const std::function<bool()>& condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!condition() && std::chrono::steady_clock::now() < deadline) {
        io_context.restart();
        io_context.run_one_for(std::chrono::milliseconds(100));
    }
    return condition();
}

inline Join join_of(const std::string& name, std::int32_t nodes) {
    Join join;
    join.job = JobId{"job"};
    join.node = NodeId{name};
    join.incarnation = Incarnation{std::hash<std::string>{}(name)};
    join.info.host = name;
    join.info.address = "127.0.0.1";
    join.spec.min_nodes = NodeCount{nodes};
    join.spec.max_nodes = NodeCount{nodes};
    join.spec.heartbeat_interval = std::chrono::milliseconds(100);
    return join;
}

class LinkAgent {
public:
    LinkAgent(std::unique_ptr<RendezvousLink> link, Join join)
        : join_(std::move(join)),
          link_(std::move(link)) {
        RendezvousLink::Handlers handlers;
        handlers.on_connected = [this](const std::string& address) {
            ++connections;
            local_address = address;
            if (joins_by_itself) {
                link_->send(join_);
            }
        };
        handlers.on_message = [this](const ServerMessage& message) { on_message(message); };
        handlers.on_disconnected = [this](const Error& error) { disconnected = error; };
        handlers.on_lost = [this](const Error& error) { lost = error; };
        link_->start(std::move(handlers));
    }

    template <class Message>
    [[nodiscard]] std::optional<Message> last() const {
        for (auto each = messages.rbegin(); each != messages.rend(); ++each) {
            if (const auto* found = std::get_if<Message>(&*each)) {
                return *found;
            }
        }
        return std::nullopt;
    }

    /// The last BeginRound is of this round.
    [[nodiscard]] bool runs(std::int64_t round) const {
        const auto begun = last<BeginRound>();
        return begun && begun->plan.round == Round{round};
    }

    [[nodiscard]] bool ended() const { return last<EndJob>().has_value(); }

    SequenceNumber next() { return SequenceNumber{++sequence_}; }

    void succeed() { link_->send(WorkersSucceeded{next(), round()}); }

    void fail_worker(std::int32_t code) {
        WorkerFailure failure;
        failure.host = join_.info.host;
        failure.pid = 4711;
        failure.code = code;
        link_->send(WorkerFailed{next(), round(), failure});
        link_->send(RoundStopped{next(), round(), {}});
    }

    void leave(std::function<void()> done = {}) {
        link_->send(Bye{next()});
        link_->close(std::move(done));
    }

    [[nodiscard]] RendezvousLink& link() { return *link_; }

    void drop_link() { link_.reset(); }

    std::vector<ServerMessage> messages;
    int connections = 0;
    std::string local_address;
    std::optional<Error> disconnected;
    std::optional<Error> lost;
    bool joins_by_itself = true;

private:
    [[nodiscard]] Round round() const { return last<BeginRound>().value().plan.round; }

    void on_message(const ServerMessage& message) {
        messages.push_back(message);
        if (const auto* prepare = std::get_if<PrepareRound>(&message)) {
            link_->send(StoreReady{next(), prepare->round, Port{29501}});
        } else if (const auto* stop = std::get_if<StopRound>(&message)) {
            link_->send(RoundStopped{next(), stop->round, {}});
        }
    }

    Join join_;
    std::unique_ptr<RendezvousLink> link_;
    std::uint64_t sequence_ = 0;
};

}  // namespace ddprun::test
