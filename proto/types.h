// Strong types for the numbers and names that two programs exchange: a rank is not a world size,
// and the compiler knows it. Construction is explicit, there is no arithmetic; the only conversions
// are the named functions at the end.
#pragma once

#include <fmt/format.h>

#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace ddprun {

/// A value of type `Value` that means `Tag` and nothing else. `.value()` gives the plain value.
template <class Tag, class Value>
class Strong {
public:
    constexpr Strong() = default;

    constexpr explicit Strong(Value value) : value_(std::move(value)) {}

    [[nodiscard]] constexpr const Value& value() const { return value_; }

    friend constexpr auto operator<=>(const Strong&, const Strong&) = default;

private:
    Value value_{};
};

/// Global rank of a worker in its round, 0 ... world size - 1.
using Rank = Strong<struct RankTag, std::int32_t>;
/// Rank of a worker among the workers of its node, 0 ... local world size - 1.
using LocalRank = Strong<struct LocalRankTag, std::int32_t>;
/// Rank of a node (agent) in its round, 0 ... node count - 1.
using GroupRank = Strong<struct GroupRankTag, std::int32_t>;
/// Number of workers of a round, at least 1.
using WorldSize = Strong<struct WorldSizeTag, std::int32_t>;
/// Number of workers of one node, at least 1.
using LocalWorldSize = Strong<struct LocalWorldSizeTag, std::int32_t>;
/// Number of nodes, at least 1.
using NodeCount = Strong<struct NodeCountTag, std::int32_t>;
/// Number of a round: the same on every node of the job, from 0, only ever grows.
using Round = Strong<struct RoundTag, std::int64_t>;
/// TCP port; 0 asks the kernel for a free one.
using Port = Strong<struct PortTag, std::uint16_t>;
/// One life of a node's agent: a random number drawn when the agent starts.
using Incarnation = Strong<struct IncarnationTag, std::uint64_t>;
/// Number of a report from an agent, from 1, only ever grows within an incarnation.
using SequenceNumber = Strong<struct SequenceNumberTag, std::uint64_t>;
/// How many rounds of the job began because a worker had failed.
using RestartCount = Strong<struct RestartCountTag, std::int32_t>;
/// Name of a job (torchrun: run id, --rdzv_id).
using JobId = Strong<struct JobIdTag, std::string>;
/// Name of a node within its job: host name and a discriminator of the agents on that host.
using NodeId = Strong<struct NodeIdTag, std::string>;

/// Milliseconds on the clock of whoever writes the event: never falling, no relation to wall-clock
/// time.
using Stamp = Strong<struct StampTag, std::int64_t>;

}  // namespace ddprun

template <class Tag, class Value>
struct std::hash<ddprun::Strong<Tag, Value>> {
    std::size_t operator()(const ddprun::Strong<Tag, Value>& strong) const {
        return std::hash<Value>{}(strong.value());
    }
};

template <class Tag, class Value>
struct fmt::formatter<ddprun::Strong<Tag, Value>> : fmt::formatter<Value> {
    template <class Context>
    auto format(const ddprun::Strong<Tag, Value>& strong, Context& context) const {
        return fmt::formatter<Value>::format(strong.value(), context);
    }
};
