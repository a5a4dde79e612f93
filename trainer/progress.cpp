#include "trainer/progress.h"

#include <fmt/format.h>

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace ddprun::trainer {

namespace {

constexpr std::chrono::milliseconds kRedrawInterval{100};
constexpr int kBarWidthMax = 40;
constexpr int kBarWidthMin = 5;
/// Back to the first column, and erase to the end of the line.
constexpr std::string_view kEraseLine = "\r\x1b[K";

std::string clock_text(std::chrono::seconds time) {
    const std::int64_t total = std::max<std::int64_t>(time.count(), 0);
    const std::int64_t hours = total / 3600;
    const std::int64_t minutes = total / 60 % 60;
    if (hours > 0) {
        return fmt::format("{}:{:02}:{:02}", hours, minutes, total % 60);
    }
    return fmt::format("{}:{:02}", minutes, total % 60);
}

double share_done(const ProgressPoint& point) {
    if (point.steps <= 0) {
        return 1.0;
    }
    return std::clamp(static_cast<double>(point.step) / static_cast<double>(point.steps), 0.0, 1.0);
}

}  // namespace

std::string progress_line(const ProgressPoint& point) {
    constexpr double kPerCent = 100.0;
    std::string line = fmt::format(
        "epoch {}/{}  step {}/{}  loss {:.4f}  {:.1f} images/s  lr {:.6g}",
        point.epoch + 1,
        point.epochs,
        point.step,
        point.steps,
        point.loss,
        point.images_per_second,
        point.lr
    );
    if (point.top1 && point.top5) {
        line += fmt::format("  top1 {:.2f}  top5 {:.2f}", *point.top1, *point.top5);
    }
    if (point.data_share) {
        line += fmt::format("  data {:.0f} %", kPerCent * *point.data_share);
    }
    if (point.communication_share) {
        line += fmt::format("  comm {:.0f} %", kPerCent * *point.communication_share);
        if (point.overlap_share) {
            line += fmt::format(" ({:.0f} % hidden)", kPerCent * *point.overlap_share);
        }
    }
    if (point.memory_mb) {
        line += fmt::format("  {:.0f} MB", *point.memory_mb);
    }
    line += point.more;
    if (point.left) {
        line += "  eta " + clock_text(*point.left);
    }
    return line;
}

std::string progress_bar(const ProgressPoint& point, std::chrono::seconds eta, int columns) {
    const double share = share_done(point);
    const std::string head = fmt::format("{:3}%", static_cast<int>(share * 100.0));
    const std::array<std::string, 4> parts{
        fmt::format(" {}/{}", point.step, point.steps),
        fmt::format("  loss {:.3f}", point.loss),
        "  eta " + clock_text(eta),
        fmt::format("  {:.0f} images/s", point.images_per_second),
    };
    std::string tail;
    const auto room = [&] { return columns - static_cast<int>(head.size() + tail.size()); };
    for (const std::string& part : parts) {
        if (room() < static_cast<int>(part.size())) {
            break;
        }
        tail += part;
    }
    // " [" and "]" around the bar; without room for a short one it is left out.
    constexpr int kFrame = 3;
    const int width = std::min(room() - kFrame, kBarWidthMax);
    std::string bar;
    if (width >= kBarWidthMin) {
        const auto full = static_cast<std::size_t>(share * width);
        const auto empty = static_cast<std::size_t>(width) - full;
        bar = " [" + std::string(full, '#') + std::string(empty, '-') + "]";
    }
    return (head + bar + tail).substr(0, static_cast<std::size_t>(std::max(columns, 0)));
}

std::chrono::seconds estimate_left(
    std::chrono::nanoseconds elapsed, std::int64_t steps_done, std::int64_t steps_left
) {
    if (steps_done <= 0 || steps_left <= 0) {
        return std::chrono::seconds(0);
    }
    const double seconds = std::chrono::duration<double>(elapsed).count();
    const double left = seconds / static_cast<double>(steps_done) * static_cast<double>(steps_left);
    constexpr double kYearsMax = 1e10;
    return std::chrono::seconds(static_cast<std::int64_t>(std::min(left, kYearsMax) + 0.5));
}

std::optional<int> terminal_columns(int fd) {
    if (::isatty(fd) != 1) {
        return std::nullopt;
    }
    constexpr int kUsualColumns = 80;
    winsize size{};
    if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
        return kUsualColumns;
    }
    return size.ws_col;
}

ProgressPrinter::ProgressPrinter(std::FILE* out, const ProgressOptions& options)
    : out_(out),
      options_(options) {}

ProgressPrinter::~ProgressPrinter() {
    finish();
}

void ProgressPrinter::step(const ProgressPoint& point, Clock::time_point now) {
    if (!first_time_) {
        first_time_ = now;
        first_step_ = point.step;
    }
    const auto eta =
        estimate_left(now - *first_time_, point.step - first_step_, point.steps - point.step);
    if (point.step % options_.log_interval == 0 || point.step == point.steps) {
        ProgressPoint told = point;
        if (now > *first_time_ && point.step < point.steps) {
            told.left = eta;
        }
        line(progress_line(told));
    }
    if (!options_.columns || point.step == point.steps ||
        (bar_shown_ && drawn_ && now - *drawn_ < kRedrawInterval)) {
        return;
    }
    // The last column stays free: some terminals wrap as soon as it is filled.
    const std::string bar = progress_bar(point, eta, *options_.columns - 1);
    const std::string drawn = std::string(kEraseLine) + bar;
    std::fwrite(drawn.data(), 1, drawn.size(), out_);
    std::fflush(out_);
    bar_shown_ = true;
    drawn_ = now;
}

void ProgressPrinter::line(const std::string& text) {
    erase_bar();
    std::fwrite(text.data(), 1, text.size(), out_);
    std::fputc('\n', out_);
    std::fflush(out_);
}

void ProgressPrinter::finish() {
    erase_bar();
}

void ProgressPrinter::erase_bar() {
    if (bar_shown_) {
        std::fwrite(kEraseLine.data(), 1, kEraseLine.size(), out_);
        std::fflush(out_);
        bar_shown_ = false;
    }
}

}  // namespace ddprun::trainer
