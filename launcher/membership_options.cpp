#include "launcher/membership_options.h"

#include <fmt/format.h>

#include <signal.h>
#include <string.h>

#include <limits>
#include <string>

namespace ddprun::launcher {

namespace {

using enum Errc;

bool can_be_told(int signal) {
    return signal != SIGKILL && signal != SIGSTOP;
}

}  // namespace

Result<int> parse_signal(std::string_view text) {
    constexpr std::string_view kPrefix = "SIG";
    if (const auto number = parse_number(text, 1, SIGRTMAX); number) {
        const int signal = static_cast<int>(*number);
        return can_be_told(signal) ? Result<int>{signal}
                                   : fail(invalid_argument, "no program can handle this signal");
    }
    std::string_view name = text;
    if (name.starts_with(kPrefix)) {
        name.remove_prefix(kPrefix.size());
    }
    for (int signal = 1; signal < SIGRTMIN; ++signal) {
        const char* known = ::sigabbrev_np(signal);
        if (known != nullptr && name == known) {
            return can_be_told(signal)
                       ? Result<int>{signal}
                       : fail(invalid_argument, "no program can handle this signal");
        }
    }
    return fail(invalid_argument, "expected a signal, as SIGUSR1");
}

Result<PortRange> parse_port_range(std::string_view text) {
    constexpr std::int64_t kPortMax = std::numeric_limits<std::uint16_t>::max();
    const std::size_t hyphen = text.find('-');
    const auto first = parse_number(text.substr(0, hyphen), 1, kPortMax);
    const auto last = hyphen == std::string_view::npos
                          ? first
                          : parse_number(text.substr(hyphen + 1), 1, kPortMax);
    if (!first || !last || *first > *last) {
        return fail(
            invalid_argument, fmt::format("expected LO-HI with 1 <= LO <= HI <= {}", kPortMax)
        );
    }
    return PortRange{
        Port{static_cast<std::uint16_t>(*first)}, Port{static_cast<std::uint16_t>(*last)}};
}

void read_membership(Reader& reader, LaunchCommand& command) {
    const bool is_elastic = command.spec.min_nodes != command.spec.max_nodes;
    const auto on_term = reader.choice("on_term", {"stop", "leave"});
    command.leaves_on_term = on_term.value_or(is_elastic ? "leave" : "stop") == "leave";
    if (const auto signal = reader.parsed<int>("membership_signal", parse_signal)) {
        command.membership_signal = *signal;
    }
    if (const auto grace = reader.seconds("membership_grace")) {
        command.membership_grace = *grace;
        if (command.membership_signal == 0) {
            command.notes.push_back(fmt::format(
                "{} has no effect without --membership_signal", reader.origin("membership_grace")
            ));
        }
    }
    command.interface = reader.text("iface");
    if (!command.interface.empty() && !command.local_addr.empty()) {
        reader.set_error(
            {invalid_argument,
             fmt::format(
                 "{} and {} both name this node's address: leave one out",
                 reader.origin("iface"),
                 reader.origin("local_addr")
             )}
        );
    }
    command.port_range = reader.parsed<PortRange>("port_range", parse_port_range);
}

}  // namespace ddprun::launcher
