// --log_json: one JSON object a line, flushed line by line. A line a step:
//   {"step":1,"epoch":0,"loss":2.3,"lr":0.1,"images_per_second":123.4,"data_share":0.01,"round":0}
// and a line an evaluation:
//   {"epoch":0,"top1":87.5,"top5":99.1,"count":10000,"round":0}
// with "ema_top1" and "ema_top5" before the round where a moving average is evaluated, too.
// A number that isn't finite is null. A restarted job appends: steps after the checkpoint that it
// resumed from appear again, with the new life's round; of several lines for a step the one with
// the highest round counts. A last line that an earlier life left unfinished is cut off.
#pragma once

#include "proto/result.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ddprun::trainer {

struct StepRecord {
    std::int64_t step = 0;   ///< from 1, over all restarts
    std::int64_t epoch = 0;  ///< from 0
    double loss = 0.0;       ///< mean over ranks
    double lr = 0.0;
    double images_per_second = 0.0;  ///< of the whole job
    std::int64_t round = 0;
    double data_share = 0.0;  ///< of 1, of the step's time, spent waiting for data
};

struct EvaluationRecord {
    std::int64_t epoch = 0;
    double top1 = 0.0;       ///< per cent
    double top5 = 0.0;       ///< per cent
    std::int64_t count = 0;  ///< pictures evaluated, over all ranks
    std::int64_t round = 0;
    std::optional<double> ema_top1 = std::nullopt;  ///< of the moving average
    std::optional<double> ema_top5 = std::nullopt;
};

/// Without a newline.
[[nodiscard]] std::string to_json(const StepRecord& record);
[[nodiscard]] std::string to_json(const EvaluationRecord& record);

/// The open file; rank 0 only. Errors mean that the output can't be written (status 73).
class StepLog {
public:
    /// Appends to `path`; the folder must exist.
    [[nodiscard]] static Result<StepLog> open(const std::string& path);

    StepLog(StepLog&& other) noexcept;
    StepLog& operator=(StepLog&& other) noexcept;
    StepLog(const StepLog&) = delete;
    StepLog& operator=(const StepLog&) = delete;
    ~StepLog();

    [[nodiscard]] Result<void> write(const StepRecord& record);
    [[nodiscard]] Result<void> write(const EvaluationRecord& record);

private:
    StepLog(int fd, std::string path);
    [[nodiscard]] Result<void> write_line(std::string line);

    int fd_;
    std::string path_;
};

}  // namespace ddprun::trainer
