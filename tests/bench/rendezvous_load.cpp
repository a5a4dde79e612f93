// A rendezvous and many agents' links to it over real sockets, in one process: from the first
// connect until every agent knows its round, then until every agent knows that the job has ended.
// One line of JSON.
//   rendezvous_load AGENTS
#include "proto/agent_codec.h"
#include "proto/log.h"
#include "rendezvous/host.h"
#include "rendezvous/store_server.h"
#include "rendezvous/tcp_link.h"

#include <boost/asio/io_context.hpp>
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <variant>
#include <vector>

using namespace ddprun;
namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;

namespace {

/// Counts what it sends and gets; reports success as soon as its round begins.
class Agent {
public:
    struct Totals {
        int begun = 0;
        int ended = 0;
        std::size_t bytes = 0;
        std::size_t messages = 0;
    };

    Agent(asio::io_context& io_context, Port port, int number, int count, Totals& totals, Log& log)
        : number_(number),
          count_(count),
          totals_(totals) {
        TcpLinkOptions options;
        options.host = "127.0.0.1";
        options.port = port;
        link_ = make_tcp_link(io_context, std::move(options), log);
        RendezvousLink::Handlers handlers;
        handlers.on_connected = [this](const std::string& address) { join(address); };
        handlers.on_message = [this](const ServerMessage& message) { take(message); };
        handlers.on_disconnected = [](const Error&) {};
        handlers.on_lost = [](const Error& error) {
            fmt::print(stderr, "{}\n", error.context);
            std::exit(1);
        };
        link_->start(std::move(handlers));
    }

private:
    void join(const std::string& address) {
        Join join;
        join.job = JobId{"load"};
        join.node = NodeId{fmt::format("node{}", number_)};
        join.incarnation = Incarnation{static_cast<std::uint64_t>(number_) + 1};
        join.info.host = fmt::format("node{}", number_);
        join.info.address = address;
        join.info.local_world_size = LocalWorldSize{8};
        join.spec.min_nodes = join.spec.max_nodes = NodeCount{count_};
        send(join);
    }

    void send(const AgentMessage& message) {
        count(message);
        link_->send(message);
    }

    template <class Message>
    void count(const Message& message) {
        std::string bytes;
        encode(message, bytes);
        totals_.bytes += bytes.size();
        ++totals_.messages;
    }

    void take(const ServerMessage& message) {
        count(message);
        if (const auto* prepare = std::get_if<PrepareRound>(&message)) {
            send(StoreReady{SequenceNumber{++sequence_}, prepare->round, Port{1}});
        } else if (const auto* begin = std::get_if<BeginRound>(&message)) {
            ++totals_.begun;
            send(WorkersSucceeded{SequenceNumber{++sequence_}, begin->plan.round});
        } else if (std::holds_alternative<EndJob>(message)) {
            ++totals_.ended;
        }
    }

    int number_;
    int count_;
    Totals& totals_;
    std::uint64_t sequence_ = 0;
    std::unique_ptr<RendezvousLink> link_;
};

double milliseconds_since(Clock::time_point begin) {
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

}  // namespace

int main(int argc, char** argv) {
    const int count = argc == 2 ? std::atoi(argv[1]) : 0;
    if (count < 1) {
        fmt::print(stderr, "usage: rendezvous_load AGENTS\n");
        return 2;
    }
    NullLog log;
    asio::io_context io_context{1};
    RendezvousHost host{io_context, RendezvousHostOptions{}, log};
    StoreServerOptions options;
    options.addresses = {"127.0.0.1"};
    options.on_agent = [&host](asio::ip::tcp::socket socket, std::string first_bytes) {
        host.accept(std::move(socket), std::move(first_bytes));
    };
    auto server = StoreServer::listen(io_context, std::move(options), log);
    if (!server) {
        fmt::print(stderr, "{}\n", server.error().context);
        return 1;
    }
    Agent::Totals totals;
    std::vector<std::unique_ptr<Agent>> agents;
    const Clock::time_point begin = Clock::now();
    for (int number = 0; number < count; ++number) {
        agents.push_back(
            std::make_unique<Agent>(io_context, (*server)->port(), number, count, totals, log)
        );
    }
    while (totals.begun < count) {
        io_context.run_one();
    }
    const double known_ms = milliseconds_since(begin);
    const std::size_t bytes = totals.bytes;
    const std::size_t messages = totals.messages;
    while (totals.ended < count) {
        io_context.run_one();
    }
    fmt::print(
        "{{\"agents\": {}, \"round_known_ms\": {:.1f}, \"bytes_per_agent\": {:.0f}, "
        "\"messages_per_agent\": {:.2f}, \"end_known_ms\": {:.1f}}}\n",
        count,
        known_ms,
        static_cast<double>(bytes) / count,
        static_cast<double>(messages) / count,
        milliseconds_since(begin)
    );
    std::fflush(stdout);
    std::_Exit(0);  // thousands of sockets need no goodbye
}
