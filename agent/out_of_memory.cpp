#include "agent/out_of_memory.h"

#include "agent/cgroups.h"
#include "agent/kernel_file.h"
#include "proto/limits.h"

#include <fmt/format.h>

#include <sys/klog.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <utility>
#include <vector>

namespace ddprun {

namespace {

/// Calls `each` with the lines of a text until it returns true; whether it did.
template <class Each>
bool any_line(std::string_view text, Each each) {
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        if (each(text.substr(0, end))) {
            return true;
        }
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return false;
}

/// The time in "<6>[  123.456789] words" or "[  123.456789] words".
std::optional<double> time_of(std::string_view line) {
    const std::size_t open = line.find('[');
    const std::size_t close = line.find(']');
    if (open == std::string_view::npos || close == std::string_view::npos || close < open) {
        return std::nullopt;
    }
    std::string_view text = line.substr(open + 1, close - open - 1);
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    double seconds = 0;
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), seconds, std::chars_format::fixed);
    const bool is_time = error == std::errc{} && end == text.data() + text.size();
    return is_time ? std::optional<double>{seconds} : std::nullopt;
}

std::string end_of_kernel_log() {
    constexpr int kReadAll = 3;
    std::vector<char> buffer(limits::kKernelLogBytesMax);
    const int size = ::klogctl(kReadAll, buffer.data(), static_cast<int>(buffer.size()));
    return size > 0 ? std::string(buffer.data(), static_cast<std::size_t>(size)) : std::string{};
}

}  // namespace

std::optional<std::uint64_t> count_of_oom_kills(std::string_view text) {
    constexpr std::string_view kName = "oom_kill ";
    std::optional<std::uint64_t> count;
    any_line(text, [&](std::string_view line) {
        if (!line.starts_with(kName)) {
            return false;
        }
        line.remove_prefix(kName.size());
        std::uint64_t number = 0;
        const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number);
        if (error == std::errc{}) {
            count = number;
        }
        return true;
    });
    return count;
}

bool log_names_victim(std::string_view log, pid_t pid, double since) {
    // "Out of memory: Killed process 47 (python3) ...", "Memory cgroup out of memory: Killed ...".
    const std::string victim = fmt::format("ut of memory: Killed process {} (", pid);
    const std::string older = fmt::format("ut of memory: Kill process {} (", pid);
    // Both clocks are the kernel's, read at slightly different moments.
    constexpr double kTolerance = 0.01;
    return any_line(log, [&](std::string_view line) {
        const bool names = line.find(victim) != std::string_view::npos ||
                           line.find(older) != std::string_view::npos;
        const auto time = names ? time_of(line) : std::nullopt;
        return time && *time >= since - kTolerance;
    });
}

OutOfMemoryWatch::OutOfMemoryWatch(std::string root, std::function<std::string()> read_log)
    : root_(std::move(root)),
      read_log_(std::move(read_log)) {}

OutOfMemoryWatch OutOfMemoryWatch::of_machine() {
    return OutOfMemoryWatch({}, end_of_kernel_log);
}

void OutOfMemoryWatch::begin() {
    accounted_ = kills();
}

bool OutOfMemoryWatch::was_killed(pid_t pid, double since) {
    const std::uint64_t now = kills();
    if (now > accounted_) {
        ++accounted_;
        return true;
    }
    return log_names_victim(read_log_(), pid, since);
}

/// Version 2 counts for the groups below, too; version 1 for the group alone.
std::uint64_t OutOfMemoryWatch::kills() const {
    std::uint64_t sum = 0;
    const OwnCgroups groups{root_};
    if (const auto group = groups.find("")) {
        sum += count_of_oom_kills(read_kernel_file(group->folder() + "/memory.events")).value_or(0);
    }
    if (const auto group = groups.find("memory")) {
        sum += count_of_oom_kills(read_kernel_file(group->folder() + "/memory.oom_control"))
                   .value_or(0);
    }
    return sum;
}

double seconds_since_boot() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    constexpr double kNanosecondsPerSecond = 1e9;
    return static_cast<double>(now.tv_sec) +
           static_cast<double>(now.tv_nsec) / kNanosecondsPerSecond;
}

}  // namespace ddprun
