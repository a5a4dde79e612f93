#include "trainer/step_log.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <utility>

namespace ddprun::trainer {

namespace {

std::string json_number(double number) {
    return std::isfinite(number) ? fmt::format("{}", number) : "null";
}

/// Where the last whole line of the file ends.
Result<off_t> end_of_lines(int fd, const std::string& path) {
    struct stat info {};

    if (::fstat(fd, &info) != 0) {
        return fail(from_errno(errno, "read --log_json file " + path));
    }
    if (!S_ISREG(info.st_mode)) {
        return off_t{0};
    }
    std::array<char, 4096> block{};
    off_t end = info.st_size;
    while (end > 0) {
        const off_t begin = end > static_cast<off_t>(block.size())
                                ? end - static_cast<off_t>(block.size())
                                : off_t{0};
        const ssize_t count =
            ::pread(fd, block.data(), static_cast<std::size_t>(end - begin), begin);
        if (count <= 0) {
            return fail(from_errno(count < 0 ? errno : EIO, "read --log_json file " + path));
        }
        const std::string_view text(block.data(), static_cast<std::size_t>(count));
        if (const std::size_t newline = text.rfind('\n'); newline != std::string_view::npos) {
            return begin + static_cast<off_t>(newline) + 1;
        }
        end = begin;
    }
    return off_t{0};
}

/// Cuts off what follows the last newline of a regular file.
Result<void> cut_unfinished_line(int fd, const std::string& path) {
    struct stat info {};

    if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        return {};
    }
    const auto end = end_of_lines(fd, path);
    if (!end) {
        return fail(end.error());
    }
    if (*end != info.st_size && ::ftruncate(fd, *end) != 0) {
        return fail(from_errno(errno, "cut the unfinished last line of " + path));
    }
    return {};
}

}  // namespace

std::string to_json(const StepRecord& record) {
    return fmt::format(
        R"({{"step":{},"epoch":{},"loss":{},"lr":{},"images_per_second":{},"data_share":{},"round":{}}})",
        record.step,
        record.epoch,
        json_number(record.loss),
        json_number(record.lr),
        json_number(record.images_per_second),
        json_number(record.data_share),
        record.round
    );
}

std::string to_json(const EvaluationRecord& record) {
    std::string average;
    if (record.ema_top1 && record.ema_top5) {
        average = fmt::format(
            R"("ema_top1":{},"ema_top5":{},)",
            json_number(*record.ema_top1),
            json_number(*record.ema_top5)
        );
    }
    return fmt::format(
        R"({{"epoch":{},"top1":{},"top5":{},"count":{},{}"round":{}}})",
        record.epoch,
        json_number(record.top1),
        json_number(record.top5),
        record.count,
        average,
        record.round
    );
}

Result<StepLog> StepLog::open(const std::string& path) {
    constexpr mode_t kMode = 0666;
    int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, kMode);
    if (fd < 0 && errno != EISDIR && errno != ENOENT) {
        // A pipe or a terminal, or a file that may only be written.
        fd = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
    }
    if (fd < 0) {
        return fail(from_errno(errno, "open --log_json file " + path));
    }
    StepLog log(fd, path);
    if (const auto cut = cut_unfinished_line(fd, path); !cut) {
        return fail(cut.error());
    }
    return log;
}

StepLog::StepLog(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

StepLog::StepLog(StepLog&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      path_(std::move(other.path_)) {}

StepLog& StepLog::operator=(StepLog&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(path_, other.path_);
    return *this;
}

StepLog::~StepLog() {
    if (fd_ >= 0) {
        ::close(fd_);
    }
}

Result<void> StepLog::write(const StepRecord& record) {
    return write_line(to_json(record));
}

Result<void> StepLog::write(const EvaluationRecord& record) {
    return write_line(to_json(record));
}

Result<void> StepLog::write_line(std::string line) {
    line += '\n';
    std::string_view rest = line;
    while (!rest.empty()) {
        const ssize_t count = ::write(fd_, rest.data(), rest.size());
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count < 0) {
            return fail(from_errno(errno, "write --log_json file " + path_));
        }
        rest.remove_prefix(static_cast<std::size_t>(count));
    }
    return {};
}

}  // namespace ddprun::trainer
