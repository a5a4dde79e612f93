#include "agent/job_report.h"

#include "agent/failure_report.h"
#include "proto/error.h"
#include "rendezvous/unique_fd.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

namespace ddprun {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kReportVersion = 1;
constexpr int kIndent = 2;
constexpr double kMillisecondsPerSecond = 1000.0;
constexpr mode_t kReportMode = 0644;

std::string_view name_of(RoundReason reason) {
    switch (reason) {
        case RoundReason::first_start: return "first_start";
        case RoundReason::worker_failure: return "worker_failure";
        case RoundReason::node_lost: return "node_lost";
        case RoundReason::node_joined: return "node_joined";
    }
    return "";
}

std::string_view name_of(FailureKind kind) {
    switch (kind) {
        case FailureKind::exited: return "exit";
        case FailureKind::signaled: return "signal";
        case FailureKind::out_of_memory: return "oom";
        case FailureKind::exec: return "exec";
        case FailureKind::agent: return "agent";
    }
    return "";
}

Json json_of(const WorkerFailure& failure) {
    const bool by_signal =
        failure.kind == FailureKind::signaled || failure.kind == FailureKind::out_of_memory;
    const bool has_code = failure.kind == FailureKind::exited || failure.kind == FailureKind::exec;
    Json json;
    json["host"] = failure.host;
    json["group_rank"] = failure.group_rank.value();
    json["rank"] = failure.rank.value();
    json["local_rank"] = failure.local_rank.value();
    json["pid"] = failure.pid;
    json["time"] = format_iso_time(failure.wall_time_ms);
    json["uptime_s"] = static_cast<double>(failure.uptime_ms) / kMillisecondsPerSecond;
    json["kind"] = name_of(failure.kind);
    json["code"] = has_code ? Json(failure.code) : Json(nullptr);
    json["signal"] = by_signal ? Json(failure.code) : Json(nullptr);
    json["core_dumped"] = failure.core_dumped;
    json["message"] = failure.message;
    json["traceback"] = failure.traceback;
    json["stderr"] = failure.stderr_tail;
    return json;
}

Error about(const std::string& path, int error_number) {
    return from_errno(error_number, fmt::format("write the report {}", path));
}

/// A file beside `path` with a name of its own; removed unless it is kept.
class FileBeside {
public:
    explicit FileBeside(const std::string& path) : name_(path + ".XXXXXX") {
        fd_.reset(::mkostemp(name_.data(), O_CLOEXEC));
        error_ = fd_.valid() ? 0 : errno;
    }

    FileBeside(const FileBeside&) = delete;
    FileBeside& operator=(const FileBeside&) = delete;

    ~FileBeside() {
        if (fd_.valid()) {
            ::unlink(name_.c_str());
        }
    }

    [[nodiscard]] int error() const { return error_; }

    /// 0 or errno.
    [[nodiscard]] int write(std::string_view text) const {
        while (!text.empty()) {
            const ssize_t written = ::write(fd_.get(), text.data(), text.size());
            if (written < 0 && errno != EINTR) {
                return errno;
            }
            text.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(written, 0)));
        }
        return ::fchmod(fd_.get(), kReportMode & ~mask_of_process()) == 0 && ::fsync(fd_.get()) == 0
                   ? 0
                   : errno;
    }

    /// 0 or errno.
    [[nodiscard]] int become(const std::string& path) {
        if (::rename(name_.c_str(), path.c_str()) != 0) {
            return errno;
        }
        fd_.reset();
        return 0;
    }

private:
    static mode_t mask_of_process() {
        const mode_t mask = ::umask(0);
        ::umask(mask);
        return mask;
    }

    std::string name_;
    UniqueFd fd_;
    int error_ = 0;
};

/// Renaming onto a device, or a link to one, would take its place.
Result<void> check_kind(const std::string& path) {
    struct stat status {};

    if (::lstat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
        return fail(
            Errc::invalid_argument,
            fmt::format("write the report {}: it is there and is no regular file", path)
        );
    }
    return {};
}

}  // namespace

std::string format_report(const JobReport& report) {
    Json json;
    json["version"] = kReportVersion;
    json["job_id"] = report.job.value();
    json["exit_status"] = report.outcome.exit_status;
    json["reason"] = report.outcome.reason;
    json["started"] = format_iso_time(report.started_ms);
    json["ended"] = format_iso_time(report.ended_ms);
    json["restarts"] = report.outcome.restart_count.value();
    json["rounds"] = Json::array();
    for (const ReportedRound& round : report.rounds) {
        json["rounds"].push_back(
            {{"number", round.round.value()},
             {"reason", name_of(round.reason)},
             {"reason_text", round.reason_text},
             {"started", format_iso_time(round.started_ms)}}
        );
    }
    const auto& failures = report.outcome.failures;
    json["first_failure"] = failures.empty() ? Json(nullptr) : json_of(failures.front());
    json["failures"] = Json::array();
    for (const WorkerFailure& failure : failures) {
        json["failures"].push_back(json_of(failure));
    }
    json["stopped"] = Json::array();
    json["killed"] = Json::array();
    for (const StoppedWorker& worker : report.outcome.stopped) {
        json["stopped"].push_back(worker.rank.value());
        if (worker.killed) {
            json["killed"].push_back(worker.rank.value());
        }
    }
    return json.dump(kIndent, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<void> write_report_file(const std::string& path, const std::string& text) {
    if (const Result<void> kind = check_kind(path); !kind) {
        return kind;
    }
    FileBeside file(path);
    int error_number = file.error();
    if (error_number == 0) {
        error_number = file.write(text);
    }
    if (error_number == 0) {
        error_number = file.become(path);
    }
    if (error_number != 0) {
        return fail(about(path, error_number));
    }
    return {};
}

Result<void> check_report_file(const std::string& path) {
    if (const Result<void> kind = check_kind(path); !kind) {
        return kind;
    }
    const FileBeside file(path);
    if (file.error() != 0) {
        return fail(about(path, file.error()));
    }
    return {};
}

}  // namespace ddprun
