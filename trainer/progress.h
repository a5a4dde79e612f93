// What rank 0 shows while it trains: a line every --log_interval steps, and on a terminal a bar
// below it that is redrawn in place. The texts are pure functions; ProgressPrinter writes them.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

namespace ddprun::trainer {

struct ProgressPoint {
    std::int64_t epoch = 0;  ///< from 0
    std::int64_t epochs = 0;
    std::int64_t step = 0;   ///< from 1
    std::int64_t steps = 0;  ///< the job's total
    double loss = 0.0;
    double images_per_second = 0.0;
    double lr = 0.0;
    // What isn't known is left out of the line. Shares are of 1.
    std::optional<double> top1{};  ///< per cent, of the step's pictures
    std::optional<double> top5{};
    std::optional<double> data_share{};           ///< of the time, spent waiting for data
    std::optional<double> communication_share{};  ///< of a step's time
    std::optional<double> overlap_share{};        ///< of the communication, hidden behind backward
    std::optional<double> memory_mb{};
    std::optional<std::chrono::seconds> left{};  ///< until the end
    std::string more{};                          ///< appended, for example of the GPUs
};

/// "epoch 1/5  step 120/4690  loss 0.4321  318.2 images/s  lr 0.1", epochs and steps from 1, then
/// "  top1 12.50  top5 50.00  data 3 %  comm 12 % (80 % hidden)  412 MB  eta 0:32" as far as known.
[[nodiscard]] std::string progress_line(const ProgressPoint& point);

/// " 42% [########------] 120/285  loss 0.432  318 images/s  eta 0:32", never longer than
/// `columns`; parts are left out where there is no room.
[[nodiscard]] std::string progress_bar(
    const ProgressPoint& point, std::chrono::seconds eta, int columns
);

/// Time left at the pace of the last steps: `elapsed` was spent on `steps_done` of them.
[[nodiscard]] std::chrono::seconds estimate_left(
    std::chrono::nanoseconds elapsed, std::int64_t steps_done, std::int64_t steps_left
);

struct ProgressOptions {
    std::int64_t log_interval = 10;
    std::optional<int> columns;  ///< of the terminal; unset: no bar
};

/// Columns of the terminal at `fd`; none where it isn't one.
[[nodiscard]] std::optional<int> terminal_columns(int fd);

class ProgressPrinter {
public:
    using Clock = std::chrono::steady_clock;

    /// Writes to `out`, which must outlive the printer. A failing write is not an error: the reader
    /// of the output may have gone.
    ProgressPrinter(std::FILE* out, const ProgressOptions& options);
    ProgressPrinter(const ProgressPrinter&) = delete;
    ProgressPrinter& operator=(const ProgressPrinter&) = delete;
    ~ProgressPrinter();

    /// After each step: a line at every `log_interval`-th step and the last one, else the bar, at
    /// most ten times a second.
    void step(const ProgressPoint& point, Clock::time_point now);

    /// Any other line of rank 0, without its newline; the bar makes way for it.
    void line(const std::string& text);

    /// Removes the bar.
    void finish();

private:
    void erase_bar();

    std::FILE* out_;
    ProgressOptions options_;
    bool bar_shown_ = false;
    std::int64_t first_step_ = 0;
    std::optional<Clock::time_point> first_time_;
    std::optional<Clock::time_point> drawn_;
};

}  // namespace ddprun::trainer
