// What a job of N nodes costs its rendezvous, for N = 10 ... 100,000: the membership core with the
// messages of N agents, no sockets. A job joins, runs a round, restarts once and succeeds. One line
// a size: messages and bytes a node, memory a node, time.
#include "proto/agent_codec.h"
#include "rendezvous/membership.h"

#include <fmt/format.h>

#include <malloc.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

using namespace ddprun;

namespace {

class Job {
public:
    explicit Job(std::int32_t nodes)
        : core_(JobId{"job"}),
          sequences_(static_cast<std::size_t>(nodes)) {
        spec_.min_nodes = spec_.max_nodes = NodeCount{nodes};
        spec_.max_restarts = RestartCount{1};
    }

    void run() {
        const auto nodes = static_cast<std::size_t>(spec_.max_nodes.value());
        for (std::size_t i = 0; i < nodes; ++i) {
            Join join;
            join.job = JobId{"job"};
            join.node = NodeId{name(i)};
            join.info.host = name(i);
            join.info.address = "10.0.0.1";
            join.info.local_world_size = LocalWorldSize{8};
            join.spec = spec_;
            event(i, join);
        }
        event(0, StoreReady{next(0), Round{0}, Port{1}});
        event(nodes / 2, WorkerFailed{next(nodes / 2), Round{0}, WorkerFailure{}});
        for (std::size_t i = 0; i < nodes; ++i) {
            event(i, RoundStopped{next(i), Round{0}, {}});
        }
        event(0, StoreReady{next(0), Round{1}, Port{1}});
        for (std::size_t i = 0; i < nodes; ++i) {
            event(i, WorkersSucceeded{next(i), Round{1}});
        }
    }

    std::size_t messages = 0;
    std::size_t bytes = 0;
    bool ended = false;

private:
    /// Names in the order of their numbers, so that group rank i is node i.
    static std::string name(std::size_t i) { return fmt::format("node{:06}", i); }

    SequenceNumber next(std::size_t i) { return SequenceNumber{++sequences_[i]}; }

    template <class Body>
    void event(std::size_t i, Body body) {
        std::string text;
        encode(AgentMessage{body}, text);
        ++messages;
        bytes += text.size();
        const MembershipEvent event{NodeId{name(i)}, Incarnation{i + 1}, std::move(body)};
        for (const Action& action : core_.step(event, Stamp{++now_})) {
            if (const auto* send = std::get_if<Send>(&action)) {
                text.clear();
                encode(send->message, text);
                ++messages;
                bytes += text.size();
            }
            ended = ended || std::holds_alternative<JobEnded>(action);
        }
    }

    Membership core_;
    JobSpec spec_;
    std::vector<std::uint64_t> sequences_;
    std::int64_t now_ = 0;
};

}  // namespace

int main() {
    fmt::print(
        "{:>8} {:>14} {:>11} {:>12} {:>10} {:>12}\n",
        "nodes",
        "messages/node",
        "bytes/node",
        "memory/node",
        "time ms",
        "us/message"
    );
    for (std::int32_t nodes = 10; nodes <= 100'000; nodes *= 10) {
        const std::size_t before = ::mallinfo2().uordblks;
        const auto begin = std::chrono::steady_clock::now();
        Job job(nodes);
        job.run();
        const double time =
            std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
                .count();
        const std::size_t memory = ::mallinfo2().uordblks - before;
        const auto count = static_cast<double>(nodes);
        fmt::print(
            "{:>8} {:>14.2f} {:>11.0f} {:>12.0f} {:>10.1f} {:>12.2f}{}\n",
            nodes,
            static_cast<double>(job.messages) / count,
            static_cast<double>(job.bytes) / count,
            static_cast<double>(memory) / count,
            time,
            time * 1e3 / static_cast<double>(job.messages),
            job.ended ? "" : "  THE JOB DID NOT END"
        );
        if (!job.ended) {
            return 1;
        }
    }
    return 0;
}
