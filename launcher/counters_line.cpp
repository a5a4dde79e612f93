#include "launcher/counters_line.h"

#include <fmt/format.h>

#include <cstdint>
#include <string_view>
#include <utility>

namespace ddprun::launcher {

std::string counters_line(const StoreCounters& server, const KvCounters& state) {
    const std::pair<std::string_view, std::uint64_t> counters[] = {
        {"connections", server.connections},
        {"unvalidated", server.unvalidated},
        {"partial_bytes", server.partial_bytes},
        {"unsent_bytes", server.unsent_bytes},
        {"accepted", server.accepted},
        {"closed_handshake", server.closed_handshake},
        {"closed_offence", server.closed_offence},
        {"closed_stalled", server.closed_stalled},
        {"refused_full", server.refused_full},
        {"handed_over", server.handed_over},
        {"turn_requests_most", server.turn_requests_most},
        {"turn_bytes_longest", server.turn_bytes_longest},
        {"turn_replies_longest", server.turn_replies_longest},
        {"keys", state.keys},
        {"queues", state.queues},
        {"bytes", state.bytes},
        {"waiting_clients", state.waiting_clients},
        {"registrations", state.registrations},
        {"foreign_runs", state.foreign_runs},
        {"expired_keys", state.expired_keys},
        {"requests", state.requests},
        {"refused", state.refused},
    };
    std::string line = "counters {";
    for (const auto& [name, value] : counters) {
        line += fmt::format("{}\"{}\":{}", line.back() == '{' ? "" : ",", name, value);
    }
    return line + '}';
}

}  // namespace ddprun::launcher
