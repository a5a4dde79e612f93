#include "launcher/rendezvous_conf.h"

#include "proto/limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

namespace ddprun::launcher {

namespace {

using enum Errc;

constexpr double kMillisecondsPerSecond = 1000.0;

constexpr auto kWithoutEffect = std::to_array<std::string_view>(
    {"close_timeout",
     "heartbeat_timeout",
     "read_timeout",
     "protocol",
     "ssl_cert",
     "ssl_cert_key",
     "ca_cert",
     "cert",
     "key",
     "cacert",
     "etcd_prefix"}
);

Result<void> set_seconds(
    std::optional<std::chrono::milliseconds>& field, std::string_view key, std::string_view value
) {
    const auto seconds = parse_seconds(value);
    if (!seconds) {
        return fail(
            invalid_argument,
            fmt::format("rdzv_conf {}={}: {}", key, value, seconds.error().context)
        );
    }
    if (seconds->count() == 0) {
        return fail(
            invalid_argument,
            fmt::format("rdzv_conf {}={}: must be more than 0 seconds", key, value)
        );
    }
    field = *seconds;
    return {};
}

Result<std::int32_t> count_of(std::string_view key, std::string_view value, std::int32_t smallest) {
    const auto number = parse_number(value, smallest, limits::kNodesMax);
    if (!number) {
        return fail(
            invalid_argument, fmt::format("rdzv_conf {}={}: {}", key, value, number.error().context)
        );
    }
    return static_cast<std::int32_t>(*number);
}

Result<void> set_store_type(RendezvousConf& conf, std::string_view value) {
    if (value != "tcp") {
        return fail(
            invalid_argument,
            fmt::format("rdzv_conf store_type={}: only tcp exists here, leave the key out", value)
        );
    }
    conf.notes.emplace_back("rdzv_conf store_type has no effect here: the store is always TCP");
    return {};
}

Result<void> set_is_host(RendezvousConf& conf, std::string_view value) {
    const auto is_host = parse_bool(value);
    if (!is_host) {
        return fail(
            invalid_argument,
            fmt::format("rdzv_conf is_host={}: {}", value, is_host.error().context)
        );
    }
    conf.is_host = *is_host;
    return {};
}

Result<void> set_pair(RendezvousConf& conf, std::string_view key, std::string_view value) {
    if (key == "join_timeout" || key == "timeout") {
        return set_seconds(conf.join_timeout, key, value);
    }
    if (key == "last_call_timeout") {
        return set_seconds(conf.last_call_timeout, key, value);
    }
    if (key == "heartbeat_interval" || key == "keep_alive_interval") {
        return set_seconds(conf.heartbeat_interval, key, value);
    }
    if (key == "lost_timeout") {
        return set_seconds(conf.lost_timeout, key, value);
    }
    if (key == "is_host") {
        return set_is_host(conf, value);
    }
    if (key == "store_type") {
        return set_store_type(conf, value);
    }
    const bool is_misses = key == "heartbeat_misses" || key == "keep_alive_max_attempt";
    if (is_misses || key == "membership_rounds_max" || key == "rank") {
        const auto count = count_of(key, value, key == "rank" ? 0 : 1);
        if (!count) {
            return fail(count.error());
        }
        if (is_misses) {
            conf.heartbeat_misses = *count;
        } else if (key == "rank") {
            conf.node_rank = GroupRank{*count};
        } else {
            conf.membership_rounds_max = *count;
        }
        return {};
    }
    if (std::ranges::find(kWithoutEffect, key) != kWithoutEffect.end()) {
        conf.notes.push_back(fmt::format("rdzv_conf {} has no effect in ddprun", key));
        return {};
    }
    return fail(
        invalid_argument,
        fmt::format(
            "rdzv_conf {}: unknown key (known: join_timeout, last_call_timeout, "
            "heartbeat_interval, "
            "heartbeat_misses, lost_timeout, membership_rounds_max, is_host)",
            key
        )
    );
}

}  // namespace

std::string_view trimmed(std::string_view text) {
    constexpr std::string_view kBlanks = " \t";
    const std::size_t first = text.find_first_not_of(kBlanks);
    if (first == std::string_view::npos) {
        return {};
    }
    return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

Result<std::int64_t> parse_number(
    std::string_view text, std::int64_t smallest, std::int64_t largest
) {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool is_number = error == std::errc{} && end == text.data() + text.size();
    if (!is_number || number < smallest || number > largest) {
        return fail(
            invalid_argument, fmt::format("expected a number from {} to {}", smallest, largest)
        );
    }
    return number;
}

Result<std::chrono::milliseconds> parse_seconds(std::string_view text) {
    double seconds = 0;
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), seconds, std::chars_format::fixed);
    const bool is_number = error == std::errc{} && end == text.data() + text.size();
    if (!is_number || !std::isfinite(seconds) || seconds < 0 || seconds > limits::kSecondsMax) {
        return fail(
            invalid_argument, fmt::format("expected seconds from 0 to {}", limits::kSecondsMax)
        );
    }
    return std::chrono::milliseconds{std::llround(seconds * kMillisecondsPerSecond)};
}

Result<bool> parse_bool(std::string_view text) {
    std::string lower{text};
    std::ranges::transform(lower, lower.begin(), [](unsigned char letter) {
        return static_cast<char>(std::tolower(letter));
    });
    constexpr auto kTrue = std::to_array<std::string_view>({"1", "true", "t", "yes", "y"});
    constexpr auto kFalse = std::to_array<std::string_view>({"0", "false", "f", "no", "n"});
    if (std::ranges::find(kTrue, lower) != kTrue.end()) {
        return true;
    }
    if (std::ranges::find(kFalse, lower) != kFalse.end()) {
        return false;
    }
    return fail(invalid_argument, "expected true or false");
}

Result<void> add_rendezvous_conf(RendezvousConf& conf, std::string_view text) {
    std::string_view rest = trimmed(text);
    while (!rest.empty()) {
        const std::size_t comma = rest.find(',');
        const std::string_view pair = rest.substr(0, comma);
        rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
        const std::size_t equals = pair.find('=');
        const std::string_view key = trimmed(pair.substr(0, equals));
        const std::string_view value = equals == std::string_view::npos
                                           ? std::string_view{}
                                           : trimmed(pair.substr(equals + 1));
        if (key.empty() || value.empty()) {
            return fail(
                invalid_argument,
                fmt::format("rdzv_conf \"{}\": expected KEY=VALUE, separated by commas", pair)
            );
        }
        auto set = set_pair(conf, key, value);
        if (!set) {
            return set;
        }
    }
    return {};
}

}  // namespace ddprun::launcher
