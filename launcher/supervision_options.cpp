#include "launcher/supervision_options.h"

#include "launcher/rendezvous_conf.h"
#include "proto/exit_codes.h"
#include "proto/limits.h"

#include <fmt/format.h>

#include <signal.h>
#include <string.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>

namespace ddprun::launcher {

namespace {

using enum Errc;

constexpr std::string_view kRealTime = "RTMIN";

/// What stops a job, can't be caught, belongs to job control, or tells of a fault.
constexpr auto kNotForwarded = std::to_array<int>(
    {SIGHUP,
     SIGINT,
     SIGQUIT,
     SIGTERM,
     SIGKILL,
     SIGSTOP,
     SIGTSTP,
     SIGTTIN,
     SIGTTOU,
     SIGCONT,
     SIGCHLD,
     SIGPIPE,
     SIGILL,
     SIGTRAP,
     SIGABRT,
     SIGBUS,
     SIGFPE,
     SIGSEGV,
     SIGSYS}
);

/// Calls `each(item)` for the texts between commas, without blanks around them, until one fails.
template <class Each>
Result<void> for_each_item(std::string_view text, Each each) {
    while (true) {
        const std::size_t comma = text.find(',');
        const std::string_view item = trimmed(text.substr(0, comma));
        if (Result<void> done = each(item); !done) {
            return done;
        }
        if (comma == std::string_view::npos) {
            return {};
        }
        text.remove_prefix(comma + 1);
    }
}

std::optional<int> number_of_signal(std::string_view name) {
    if (const auto number = parse_number(name, 1, SIGRTMAX)) {
        return static_cast<int>(*number);
    }
    if (name.starts_with("SIG")) {
        name.remove_prefix(3);
    }
    if (name == kRealTime) {
        return SIGRTMIN;
    }
    if (name.starts_with(kRealTime) && name.size() > kRealTime.size() &&
        name[kRealTime.size()] == '+') {
        const auto offset = parse_number(name.substr(kRealTime.size() + 1), 0, SIGRTMAX - SIGRTMIN);
        return offset ? std::optional<int>{SIGRTMIN + static_cast<int>(*offset)} : std::nullopt;
    }
    for (int signal = 1; signal < SIGRTMIN; ++signal) {
        const char* known = ::sigabbrev_np(signal);
        if (known != nullptr && name == known) {
            return signal;
        }
    }
    return std::nullopt;
}

/// The C library keeps the numbers between the last named signal and SIGRTMIN for itself.
bool may_be_forwarded(int signal) {
    const bool is_named = ::sigabbrev_np(signal) != nullptr;
    return (is_named || signal >= SIGRTMIN) &&
           std::ranges::find(kNotForwarded, signal) == kNotForwarded.end();
}

}  // namespace

Result<std::vector<std::int32_t>> parse_statuses(std::string_view text) {
    std::set<std::int32_t> codes;
    const auto read = for_each_item(text, [&](std::string_view item) -> Result<void> {
        const std::size_t dash = item.find('-');
        const auto first = parse_number(item.substr(0, dash), 1, exit_code::kMax);
        const auto last = dash == std::string_view::npos
                              ? first
                              : parse_number(item.substr(dash + 1), 1, exit_code::kMax);
        if (!first || !last || *first > *last) {
            return fail(
                invalid_argument,
                fmt::format("expected statuses from 1 to {}, as 3,128-130", exit_code::kMax)
            );
        }
        for (std::int64_t code = *first; code <= *last; ++code) {
            codes.insert(static_cast<std::int32_t>(code));
        }
        return {};
    });
    if (!read) {
        return fail(read.error());
    }
    return std::vector<std::int32_t>{codes.begin(), codes.end()};
}

Result<std::set<int>> parse_signals(std::string_view text) {
    std::set<int> signals;
    const auto read = for_each_item(text, [&](std::string_view item) -> Result<void> {
        const std::optional<int> signal = number_of_signal(item);
        if (!signal) {
            return fail(
                invalid_argument, fmt::format("'{}' is no signal; expected as USR1,WINCH", item)
            );
        }
        if (!may_be_forwarded(*signal)) {
            return fail(
                invalid_argument,
                fmt::format(
                    "{} can't be forwarded: it stops a job, can't be caught, or means a fault", item
                )
            );
        }
        signals.insert(*signal);
        return {};
    });
    if (!read) {
        return fail(read.error());
    }
    return signals;
}

Result<std::set<int>> parse_descriptors(std::string_view text) {
    constexpr int kFirst = 3;
    std::set<int> descriptors;
    const auto read = for_each_item(text, [&](std::string_view item) -> Result<void> {
        const auto number = parse_number(item, kFirst, std::numeric_limits<int>::max());
        if (!number) {
            return fail(
                invalid_argument,
                fmt::format(
                    "expected descriptors from {} on, as 3,5; 0, 1 and 2 are the worker's own",
                    kFirst
                )
            );
        }
        descriptors.insert(static_cast<int>(*number));
        return {};
    });
    if (!read) {
        return fail(read.error());
    }
    if (descriptors.size() > limits::kPassedDescriptorsMax) {
        return fail(
            invalid_argument, fmt::format("at most {} of them", limits::kPassedDescriptorsMax)
        );
    }
    return descriptors;
}

void read_supervision(Reader& reader, LaunchCommand& command) {
    if (auto codes = reader.parsed<std::vector<std::int32_t>>("no_restart_codes", parse_statuses)) {
        command.spec.no_restart_codes = std::move(*codes);
    }
    command.spec.restart_delay =
        reader.seconds("restart_delay").value_or(command.spec.restart_delay);
    command.spec.min_uptime = reader.seconds("min_uptime").value_or(command.spec.min_uptime);
    Supervision& supervision = command.supervision;
    supervision.signal_groups =
        reader.choice("signal_scope", {"worker", "group"}).value_or("worker") == "group";
    if (auto signals = reader.parsed<std::set<int>>("forward_signals", parse_signals)) {
        supervision.forward_signals = std::move(*signals);
    }
    if (auto descriptors = reader.parsed<std::set<int>>("pass_fds", parse_descriptors)) {
        supervision.passed_fds = std::move(*descriptors);
    }
    supervision.report_file = reader.text("report");
    if (const Sourced* report = reader.find("report"); report != nullptr && report->value.empty()) {
        reader.set_error(wrong(*report, "expected the path of a file"));
    }
}

}  // namespace ddprun::launcher
