// The report of a job for programs (--report=FILE): one JSON object, described field by field in
// docs/report.md. The text is a pure function of what is known at the end; the file appears whole
// or not at all.
#pragma once

#include "proto/agent_messages.h"
#include "proto/result.h"
#include "proto/round_plan.h"
#include "proto/types.h"

#include <cstdint>
#include <string>
#include <vector>

namespace ddprun {

/// A round that this node took part in.
struct ReportedRound {
    Round round{};
    RoundReason reason = RoundReason::first_start;
    std::string reason_text;
    std::int64_t started_ms = 0;  ///< Unix time
};

struct JobReport {
    JobId job;
    EndJob outcome;
    std::int64_t started_ms = 0;  ///< Unix time of this agent's start
    std::int64_t ended_ms = 0;
    std::vector<ReportedRound> rounds;
};

/// Indented JSON with a newline at its end. Bytes that are no UTF-8 become U+FFFD.
[[nodiscard]] std::string format_report(const JobReport& report);

/// Replaces `path`: written beside it, then renamed. Errors name the path.
[[nodiscard]] Result<void> write_report_file(const std::string& path, const std::string& text);

/// Whether write_report_file() would succeed now, found out without leaving anything. Errors:
/// invalid_argument, for a path that is no regular file or whose folder takes no file.
[[nodiscard]] Result<void> check_report_file(const std::string& path);

}  // namespace ddprun
