// The fields of every struct of the agent protocol in the order of the wire (docs/wire.md), for
// proto/field_io.h. Included by codecs only.
#pragma once

#include "proto/agent_messages.h"
#include "proto/field_io.h"
#include "proto/limits.h"

namespace ddprun {

// ---- parts of messages

template <class Io>
void fields(Io& io, typename Io::template Ref<NodeInfo> info) {
    io.text(info.host, limits::kNameBytesMax);
    io.text(info.address, limits::kNameBytesMax);
    io.number(info.pid);
    io.number(info.local_world_size);
    io.text(info.role, limits::kNameBytesMax);
}

template <class Io>
void fields(Io& io, typename Io::template Ref<JobSpec> spec) {
    io.number(spec.min_nodes);
    io.number(spec.max_nodes);
    io.number(spec.max_restarts);
    io.number(spec.join_timeout);
    io.number(spec.last_call_timeout);
    io.number(spec.heartbeat_interval);
    io.number(spec.heartbeat_misses);
    io.number(spec.membership_rounds_max);
    io.list(
        spec.no_restart_codes,
        limits::kNoRestartCodesMax,
        [](Io& each_io, auto& code, std::size_t) { each_io.number(code); }
    );
    io.number(spec.restart_delay);
    io.number(spec.min_uptime);
}

template <class Io>
void fields(
    Io& io,
    typename Io::template Ref<WorkerFailure> failure,
    std::size_t text_bytes_max = limits::kTextBytesMax
) {
    io.text(failure.host, limits::kNameBytesMax);
    io.number(failure.group_rank);
    io.number(failure.rank);
    io.number(failure.local_rank);
    io.number(failure.pid);
    io.choice(failure.kind, FailureKind::agent);
    io.number(failure.code);
    io.number(failure.core_dumped);
    io.number(failure.wall_time_ms);
    io.number(failure.uptime_ms);
    io.text(failure.message, text_bytes_max);
    io.text(failure.traceback, text_bytes_max);
    io.text(failure.stderr_tail, text_bytes_max);
}

template <class Io>
void failure_list(Io& io, typename Io::template Ref<std::vector<WorkerFailure>> failures) {
    io.list(
        failures,
        static_cast<std::size_t>(limits::kFailuresPerReportMax),
        [](Io& each_io, auto& failure, std::size_t index) {
            fields(
                each_io, failure, index == 0 ? limits::kTextBytesMax : limits::kListedTextBytesMax
            );
        }
    );
}

template <class Io>
void stopped_list(Io& io, typename Io::template Ref<std::vector<StoppedWorker>> stopped) {
    io.list(stopped, limits::kStoppedWorkersMax, [](Io& each_io, auto& worker, std::size_t) {
        each_io.number(worker.rank);
        each_io.number(worker.killed);
    });
}

template <class Io>
void fields(Io& io, typename Io::template Ref<RoundPlan> plan) {
    io.number(plan.round);
    io.choice(plan.reason, RoundReason::node_joined);
    io.text(plan.reason_text, limits::kTextBytesMax);
    io.number(plan.restart_count);
    io.number(plan.max_restarts);
    io.text(plan.master_address, limits::kNameBytesMax);
    io.number(plan.master_port);
    io.number(plan.nodes);
    io.number(plan.world_size);
}

template <class Io>
void fields(Io& io, typename Io::template Ref<NodePlace> place) {
    io.number(place.group_rank);
    io.number(place.local_world_size);
    io.number(place.first_rank);
    io.number(place.first_role_rank);
    io.number(place.role_world_size);
}

template <class Io>
void fields(Io& io, typename Io::template Ref<RoundClaim> claim) {
    io.number(claim.round);
    io.number(claim.group_rank);
    io.number(claim.nodes);
    io.number(claim.restart_count);
    io.text(claim.master_address, limits::kNameBytesMax);
    io.number(claim.master_port);
}

// ---- agent -> rendezvous

template <class Io>
void fields(Io& io, typename Io::template Ref<Join> join) {
    io.text(join.job, limits::kNameBytesMax);
    io.text(join.node, limits::kNameBytesMax);
    io.number(join.incarnation);
    fields(io, join.info);
    fields(io, join.spec);
    const auto number = [](Io& each_io, auto& value) { each_io.number(value); };
    io.optional(join.requested_rank, number);
    io.optional(join.current_round, number);
    io.number(join.job_began);
    io.optional(join.newest_round, number);
    io.optional(join.claim, [](Io& each_io, auto& claim) { fields(each_io, claim); });
}

template <class Io>
void fields(Io& /*io*/, typename Io::template Ref<Heartbeat> /*message*/) {}

template <class Io>
void fields(Io& io, typename Io::template Ref<StoreReady> message) {
    io.number(message.sequence);
    io.number(message.round);
    io.number(message.port);
}

template <class Io>
void fields(Io& io, typename Io::template Ref<WorkerFailed> message) {
    io.number(message.sequence);
    io.number(message.round);
    fields(io, message.failure);
}

template <class Io>
void fields(Io& io, typename Io::template Ref<WorkersSucceeded> message) {
    io.number(message.sequence);
    io.number(message.round);
}

template <class Io>
void fields(Io& io, typename Io::template Ref<RoundStopped> message) {
    io.number(message.sequence);
    io.number(message.round);
    failure_list(io, message.later_failures);
    stopped_list(io, message.stopped);
}

template <class Io>
void fields(Io& io, typename Io::template Ref<StopJob> message) {
    io.number(message.sequence);
    io.number(message.signal);
}

template <class Io>
void fields(Io& io, typename Io::template Ref<Bye> message) {
    io.number(message.sequence);
}

template <class Io>
void fields(Io& io, typename Io::template Ref<Leave> message) {
    io.number(message.sequence);
    io.number(message.signal);
}

// ---- rendezvous -> agent

template <class Io>
void fields(Io& io, typename Io::template Ref<Welcome> message) {
    io.number(message.heartbeat_interval);
    io.number(message.send_again);
    io.text(message.host, limits::kNameBytesMax);
}

/// Never changes, so that a peer of any version can read why it was declined.
template <class Io>
void fields(Io& io, typename Io::template Ref<Refused> message) {
    io.choice_or(message.reason, RefusalReason::replaced, RefusalReason::malformed);
    io.text(message.text, limits::kTextBytesMax);
}

template <class Io>
void fields(Io& io, typename Io::template Ref<Waiting> message) {
    io.list(
        message.joined,
        static_cast<std::size_t>(limits::kWaitingNamesMax),
        [](Io& each_io, auto& name, std::size_t) { each_io.text(name, limits::kNameBytesMax); }
    );
    io.number(message.missing);
    io.number(message.present);
    io.number(message.spare);
    io.number(message.restart_in);
    io.list(message.refused, limits::kRefusalsKeptMax, [](Io& each_io, auto& text, std::size_t) {
        each_io.text(text, limits::kListedTextBytesMax);
    });
}

template <class Io>
void fields(Io& io, typename Io::template Ref<PrepareRound> message) {
    io.number(message.round);
}

template <class Io>
void fields(Io& io, typename Io::template Ref<BeginRound> message) {
    fields(io, message.plan);
    fields(io, message.place);
}

template <class Io>
void fields(Io& io, typename Io::template Ref<StopRound> message) {
    io.number(message.round);
    io.text(message.reason, limits::kTextBytesMax);
    io.optional(message.failure, [](Io& each_io, auto& failure) { fields(each_io, failure); });
    io.number(message.signal);
    io.number(message.last);
    io.choice(message.kind, StopKind::rendezvous_lost);
}

template <class Io>
void fields(Io& io, typename Io::template Ref<Ack> message) {
    io.number(message.sequence);
}

template <class Io>
void fields(Io& io, typename Io::template Ref<EndJob> message) {
    io.number(message.exit_status);
    io.text(message.reason, limits::kTextBytesMax);
    failure_list(io, message.failures);
    io.number(message.restart_count);
    stopped_list(io, message.stopped);
}

}  // namespace ddprun
