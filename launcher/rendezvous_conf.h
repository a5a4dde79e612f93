// The value of --rdzv_conf: key=value pairs, repeated options merged. Pure. Unknown keys are
// errors; torchrun's keys are taken as aliases, or noted as without effect here.
#pragma once

#include "proto/agent_messages.h"
#include "proto/result.h"

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::launcher {

struct RendezvousConf {
    std::optional<std::chrono::milliseconds> join_timeout;
    std::optional<std::chrono::milliseconds> last_call_timeout;
    std::optional<std::chrono::milliseconds> heartbeat_interval;
    std::optional<std::int32_t> heartbeat_misses;
    std::optional<std::chrono::milliseconds> lost_timeout;
    std::optional<std::int32_t> membership_rounds_max;
    std::optional<bool> is_host;
    std::optional<GroupRank> node_rank;  ///< torchrun's `rank`
    std::vector<std::string> notes;      ///< one sentence for each key that has no effect here
};

/// Adds the pairs of `text` to `conf`; a later pair wins. Errors: Errc::invalid_argument naming key
/// and value.
[[nodiscard]] Result<void> add_rendezvous_conf(RendezvousConf& conf, std::string_view text);

/// Seconds, with a fraction if wanted: "600", "0.5". At most kSecondsMax. Errors:
/// Errc::invalid_argument.
[[nodiscard]] Result<std::chrono::milliseconds> parse_seconds(std::string_view text);

/// A decimal number from `smallest` to `largest`. Errors: Errc::invalid_argument, saying the range.
[[nodiscard]] Result<std::int64_t> parse_number(
    std::string_view text, std::int64_t smallest, std::int64_t largest
);

/// 1, true, t, yes, y and their opposites in any case, as torchrun reads them.
[[nodiscard]] Result<bool> parse_bool(std::string_view text);

/// Without spaces and tabs at both ends.
[[nodiscard]] std::string_view trimmed(std::string_view text);

}  // namespace ddprun::launcher
