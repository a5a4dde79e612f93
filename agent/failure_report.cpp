#include "agent/failure_report.h"

#include "agent/exit_status.h"
#include "proto/limits.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <signal.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <string_view>
#include <vector>

namespace ddprun {

namespace {

constexpr std::size_t kMessageLinesMax = 3;
constexpr std::size_t kTracebackLinesMax = 7;
constexpr std::size_t kStderrLinesMax = 8;
constexpr std::size_t kLaterLinesMax = 4;
constexpr std::size_t kLineCharactersMax = 200;
constexpr std::size_t kRangesMax = 12;  ///< of ranks in one line

std::vector<std::string_view> lines_of(std::string_view text) {
    std::vector<std::string_view> lines;
    while (!text.empty()) {
        const std::size_t end = text.find('\n');
        const std::string_view line = text.substr(0, end);
        if (line.find_first_not_of(" \t\r") != std::string_view::npos) {
            lines.push_back(line);
        }
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    }
    return lines;
}

/// One line without control characters, cut to a length that a terminal shows.
std::string clean(std::string_view line) {
    std::string result;
    for (const char c : line.substr(0, kLineCharactersMax)) {
        const bool is_control = static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
        if (c == '\t') {
            result += "    ";
        } else if (!is_control) {
            result += c;
        }
    }
    return line.size() > kLineCharactersMax ? result + "..." : result;
}

void append_first(
    std::string& out, std::string_view title, std::string_view text, std::size_t lines_max
) {
    std::vector<std::string_view> lines = lines_of(text);
    lines.resize(std::min(lines.size(), lines_max));
    for (const std::string_view line : lines) {
        out += fmt::format("  {:<10}{}\n", title, clean(line));
        title = "";
    }
}

void append_last(
    std::string& out, std::string_view title, std::string_view text, std::size_t lines_max
) {
    const std::vector<std::string_view> lines = lines_of(text);
    if (lines.empty()) {
        return;
    }
    out += fmt::format("  {}:\n", title);
    const std::size_t skipped = lines.size() - std::min(lines.size(), lines_max);
    for (std::size_t i = skipped; i < lines.size(); ++i) {
        out += fmt::format("    {}\n", clean(lines[i]));
    }
}

std::string place_of(const WorkerFailure& failure) {
    if (failure.kind == FailureKind::agent && failure.pid == 0) {
        return fmt::format("node {} (group rank {})", failure.host, failure.group_rank);
    }
    return fmt::format(
        "rank {} (local rank {} on {}, pid {})",
        failure.rank,
        failure.local_rank,
        failure.host,
        failure.pid
    );
}

std::string uptime_text(const WorkerFailure& failure) {
    return failure.pid == 0 || failure.kind == FailureKind::exec
               ? std::string{}
               : fmt::format(
                     ", {:.3f} s after its start", static_cast<double>(failure.uptime_ms) / 1000.0
                 );
}

void append_later(std::string& out, const std::vector<WorkerFailure>& failures) {
    const std::size_t later = failures.size() - 1;
    if (later == 0) {
        return;
    }
    out += "  failed later:\n";
    const std::size_t shown = later <= kLaterLinesMax ? later : kLaterLinesMax - 1;
    for (std::size_t i = 1; i <= shown; ++i) {
        out += fmt::format(
            "    {} ms later: {}: {}\n",
            // Clocks of two nodes may differ by more than the time between two failures.
            std::max<std::int64_t>(failures[i].wall_time_ms - failures[0].wall_time_ms, 0),
            clean(place_of(failures[i])),
            clean(cause_of(failures[i]))
        );
    }
    if (shown < later) {
        out += fmt::format("    and {} more\n", later - shown);
    }
}

/// Ranks in ascending order as "0, 2-7, 9", the first kRangesMax ranges of them.
std::string ranges_of(const std::vector<Rank>& ranks) {
    std::string text;
    std::size_t ranges = 0;
    for (std::size_t i = 0; i < ranks.size(); ++ranges) {
        std::size_t last = i;
        while (last + 1 < ranks.size() && ranks[last + 1].value() == ranks[last].value() + 1) {
            ++last;
        }
        text += i == 0 ? "" : ", ";
        if (ranges == kRangesMax) {
            return text + fmt::format("and {} more", ranks.size() - i);
        }
        text +=
            last == i ? fmt::format("{}", ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[last]);
        i = last + 1;
    }
    return text;
}

/// One line for those that we stopped, and which of them didn't end by themselves.
void append_stopped(std::string& out, const std::vector<StoppedWorker>& stopped) {
    std::vector<Rank> all;
    std::vector<Rank> killed;
    for (const StoppedWorker& worker : stopped) {
        all.push_back(worker.rank);
        if (worker.killed) {
            killed.push_back(worker.rank);
        }
    }
    if (all.empty()) {
        return;
    }
    out += fmt::format(
        "  {:<10}rank{} {}{}\n",
        "stopped",
        all.size() == 1 ? "" : "s",
        ranges_of(all),
        killed.empty() ? std::string{} : fmt::format("; had to be killed: {}", ranges_of(killed))
    );
}

bool dumps_core(int signal) {
    constexpr std::array kSignals{
        SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGXCPU, SIGXFSZ, SIGSYS};
    return std::find(kSignals.begin(), kSignals.end(), signal) != kSignals.end();
}

/// What the reason says beyond the first failure itself, which the report tells in full.
std::string_view further_reason(const EndJob& end) {
    std::string_view reason = end.reason;
    const std::string known = describe_failure(end.failures.front());
    if (reason.starts_with(known)) {
        reason.remove_prefix(known.size());
        reason.remove_prefix(std::min(reason.find_first_not_of(" ("), reason.size()));
        reason.remove_suffix(reason.ends_with(")") ? 1 : 0);
    }
    return reason;
}

}  // namespace

std::string cause_of(const WorkerFailure& failure) {
    switch (failure.kind) {
        case FailureKind::exited: return to_string(ExitStatus::exited(failure.code));
        case FailureKind::signaled:
            return to_string(ExitStatus::signaled(failure.code, failure.core_dumped)) +
                   (dumps_core(failure.code) && !failure.core_dumped ? ", no core dump" : "");
        case FailureKind::out_of_memory:
            return fmt::format(
                "out of memory, killed by the kernel with {}", describe_signal(failure.code)
            );
        case FailureKind::exec:
            return fmt::format("the program can't be executed (status {})", failure.code);
        case FailureKind::agent:
            return failure.pid == 0 ? "the node could not do its part" : failure.message;
    }
    return "unknown";
}

std::string format_wall_time(std::int64_t unix_ms) {
    const auto seconds = static_cast<std::time_t>(unix_ms / 1000);
    return fmt::format("{:%Y-%m-%d %H:%M:%S}.{:03}Z", fmt::gmtime(seconds), unix_ms % 1000);
}

std::string format_iso_time(std::int64_t unix_ms) {
    const auto seconds = static_cast<std::time_t>(unix_ms / 1000);
    return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(seconds), unix_ms % 1000);
}

/// The bounds of the parts add up to at most kReportLinesMax lines:
/// 1 + 1 (reason) + 1 + 3 (message) + 1 + 7 (traceback) + 1 + 3 (stderr) or 1 + 8 (stderr) + 1 + 4
/// (later) + 1 (stopped).
std::string format_failure_report(const JobId& job, const EndJob& end) {
    const std::string restarts = end.restart_count.value() == 0
                                     ? std::string{}
                                     : fmt::format(
                                           " after {} restart{}",
                                           end.restart_count,
                                           end.restart_count.value() == 1 ? "" : "s"
                                       );
    std::string out = fmt::format("job {} failed with status {}{}", job, end.exit_status, restarts);
    if (end.failures.empty()) {
        out += fmt::format(": {}\n", end.reason.empty() ? "no reason given" : end.reason);
        append_stopped(out, end.stopped);
        return out;
    }
    const WorkerFailure& first = end.failures.front();
    if (first.kind == FailureKind::exec && !first.message.empty()) {
        // What is wrong with the program is the same for all ranks.
        return out + fmt::format(": {} (on {})\n", clean(first.message), clean(first.host));
    }
    out += fmt::format(". First failure: {}\n", clean(place_of(first)));
    append_first(out, "reason", further_reason(end), 1);
    out += fmt::format(
        "  {:<10}{}, at {}{}\n",
        "cause",
        cause_of(first),
        format_wall_time(first.wall_time_ms),
        uptime_text(first)
    );
    append_first(out, "message", first.message, kMessageLinesMax);
    append_last(out, "last frames", first.traceback, kTracebackLinesMax);
    const std::size_t stderr_lines = first.traceback.empty() ? kStderrLinesMax : 3;
    append_last(out, "last lines of stderr", first.stderr_tail, stderr_lines);
    append_later(out, end.failures);
    append_stopped(out, end.stopped);
    return out;
}

}  // namespace ddprun
