#include "rendezvous/membership_codec.h"

#include "proto/agent_fields.h"

#include <fmt/format.h>

#include <type_traits>
#include <utility>
#include <vector>

namespace ddprun {

namespace {

constexpr auto kNumber = [](auto& io, auto& value) { io.number(value); };
constexpr auto kText = [](auto& io, auto& text, std::size_t) {
    io.text(text, limits::kTextBytesMax);
};
constexpr auto kWhole = [](auto& io, auto& failure, std::size_t) { fields(io, failure); };

/// For what messages hold as fields, and what only the stored form has.
template <class Io>
void fields(Io& io, typename Io::template Ref<NodeLost> lost) {
    io.choice(lost.cause, NodeLost::Cause::silent);
    io.number(lost.since);
}

template <class Io>
void fields(Io& /*io*/, typename Io::template Ref<DeadlineExpired> /*expired*/) {}

template <class Io>
void fields(Io& io, typename Io::template Ref<LivingNode> node) {
    io.number(node.incarnation);
    fields(io, node.info);
    io.optional(node.requested_rank, kNumber);
    io.optional(node.last_rank, kNumber);
    io.optional(node.seat, kNumber);
    io.number(node.arrival);
    io.number(node.last_sequence);
    io.optional(node.unclean_round, kNumber);
    io.number(node.told_spare);
    io.number(node.leaving);
}

template <class Io>
void fields(Io& io, typename Io::template Ref<Seat> seat) {
    io.text(seat.node, limits::kNameBytesMax);
    io.number(seat.incarnation);
    io.choice(seat.state, SeatState::lost);
    fields(io, seat.place);
}

template <class Io>
void fields(Io& io, typename Io::template Ref<StopCause> cause) {
    io.choice(cause.kind, StopKind::rendezvous_lost);
    io.text(cause.text, limits::kTextBytesMax);
    io.number(cause.signal);
}

using NamedNode = std::pair<NodeId, LivingNode>;

constexpr auto kNode = [](auto& io, auto& node, std::size_t) {
    io.text(node.first, limits::kNameBytesMax);
    fields(io, node.second);
};

void nodes(FieldWriter& io, const std::map<NodeId, LivingNode>& nodes) {
    const std::vector<NamedNode> list(nodes.begin(), nodes.end());
    io.list(list, static_cast<std::size_t>(limits::kNodesMax), kNode);
}

void nodes(FieldReader& io, std::map<NodeId, LivingNode>& nodes) {
    std::vector<NamedNode> list;
    io.list(list, static_cast<std::size_t>(limits::kNodesMax), kNode);
    nodes.insert(list.begin(), list.end());
}

template <class Io>
void fields_of_round(Io& io, typename Io::template Ref<MembershipState> state) {
    io.number(state.next_round);
    io.number(state.rounds_sealed);
    io.choice(state.next_reason, RoundReason::node_joined);
    io.text(state.next_reason_text, limits::kTextBytesMax);
    io.number(state.restarts.restarts);
    io.number(state.restarts.short_in_a_row);
    io.number(state.short_membership_rounds);
    fields(io, state.plan);
    io.list(
        state.seats,
        static_cast<std::size_t>(limits::kNodesMax),
        [](Io& each_io, auto& seat, std::size_t) { fields(each_io, seat); }
    );
    io.number(state.active_seats);
    io.number(state.succeeded_seats);
    io.number(state.round_began);
    io.number(state.adopted);
    fields(io, state.cause);
    io.optional(state.stop_request, [](Io& each_io, auto& cause) { fields(each_io, cause); });
    io.list(state.failures, static_cast<std::size_t>(limits::kFailuresPerReportMax), kWhole);
    io.optional(state.first_failure_at, kNumber);
    stopped_list(io, state.stopped);
    io.optional(state.restart_at, kNumber);
}

template <class Io>
void fields(Io& io, typename Io::template Ref<MembershipState> state) {
    io.text(state.job, limits::kNameBytesMax);
    io.text(state.host, limits::kNameBytesMax);
    io.optional(state.spec, [](Io& each_io, auto& spec) { fields(each_io, spec); });
    io.choice(state.phase, Phase::delaying);
    nodes(io, state.nodes);
    io.number(state.arrivals);
    io.number(state.unfit_nodes);
    fields_of_round(io, state);
    io.optional(state.join_deadline, kNumber);
    io.optional(state.last_call_deadline, kNumber);
    io.optional(state.store_deadline, kNumber);
    io.optional(state.waiting_due, kNumber);
    io.optional(state.rebuild_deadline, kNumber);
    io.number(state.end.exit_status);
    io.text(state.end.reason, limits::kTextBytesMax);
    io.list(state.end.failures, static_cast<std::size_t>(limits::kFailuresPerReportMax), kWhole);
    io.number(state.end.restart_count);
    stopped_list(io, state.end.stopped);
    io.list(state.replaced, limits::kReplacedMax, [](Io& each_io, auto& life, std::size_t) {
        each_io.number(life);
    });
    io.list(state.refusals, limits::kRefusalsKeptMax, kText);
}

using Body = decltype(MembershipEvent::body);

template <std::size_t... indices>
bool read_body(FieldReader& io, std::size_t index, Body& body, std::index_sequence<indices...>) {
    const auto read = [&]<std::size_t which>(std::integral_constant<std::size_t, which>) {
        std::variant_alternative_t<which, Body> value;
        fields(io, value);
        body = std::move(value);
        return true;
    };
    return ((index == indices && read(std::integral_constant<std::size_t, indices>{})) || ...);
}

Result<std::string_view> without_version(std::string_view bytes) {
    if (bytes.empty()) {
        return fail(Errc::malformed, "an empty record of the membership");
    }
    const auto version = static_cast<std::uint8_t>(bytes.front());
    if (version != kMembershipCodecVersion) {
        return fail(
            Errc::version_mismatch,
            fmt::format(
                "a record of the membership in version {}, this is version {}",
                version,
                kMembershipCodecVersion
            )
        );
    }
    return bytes.substr(1);
}

}  // namespace

void encode(const MembershipState& state, std::string& out) {
    out.push_back(static_cast<char>(kMembershipCodecVersion));
    FieldWriter io(out);
    fields(io, state);
}

void encode(const MembershipStep& step, std::string& out) {
    out.push_back(static_cast<char>(kMembershipCodecVersion));
    FieldWriter io(out);
    io.number(step.now);
    io.text(step.event.node, limits::kNameBytesMax);
    io.number(step.event.incarnation);
    io.number(static_cast<std::uint16_t>(step.event.body.index()));
    std::visit([&io](const auto& body) { fields(io, body); }, step.event.body);
}

Result<MembershipState> decode_membership_state(std::string_view bytes) {
    const auto rest = without_version(bytes);
    if (!rest) {
        return fail(rest.error());
    }
    MembershipState state;
    FieldReader io(*rest);
    fields(io, state);
    if (!io.finished()) {
        return fail(Errc::malformed, "a damaged state of the membership");
    }
    return state;
}

Result<MembershipStep> decode_membership_step(std::string_view bytes) {
    const auto rest = without_version(bytes);
    if (!rest) {
        return fail(rest.error());
    }
    MembershipStep step;
    FieldReader io(*rest);
    io.number(step.now);
    io.text(step.event.node, limits::kNameBytesMax);
    io.number(step.event.incarnation);
    std::uint16_t index = 0;
    io.number(index);
    const bool known = read_body(
        io, index, step.event.body, std::make_index_sequence<std::variant_size_v<Body>>{}
    );
    if (!known || !io.finished()) {
        return fail(Errc::malformed, "a damaged event of the membership");
    }
    return step;
}

}  // namespace ddprun
