#include "launcher/spdlog_log.h"

#include "launcher/line_writer.h"

#include <spdlog/details/null_mutex.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>

#include <unistd.h>

#include <string>
#include <utility>

namespace ddprun::launcher {

namespace {

spdlog::level::level_enum level_of(LogLevel level) {
    switch (level) {
        case LogLevel::debug: return spdlog::level::debug;
        case LogLevel::info: return spdlog::level::info;
        case LogLevel::warning: return spdlog::level::warn;
        case LogLevel::error: return spdlog::level::err;
    }
    return spdlog::level::info;
}

/// Its own, since spdlog's waits for whoever reads stderr.
class StderrSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
protected:
    void sink_it_(const spdlog::details::log_msg& message) override {
        spdlog::memory_buf_t line;
        formatter_->format(message, line);
        writer_.write({line.data(), line.size()});
    }

    void flush_() override {}

private:
    LineWriter writer_{STDERR_FILENO};
};

class SpdlogLog final : public Log {
public:
    SpdlogLog(std::string_view name, LogLevel level)
        : logger_(std::string{name}, std::make_shared<StderrSink>()) {
        logger_.set_level(level_of(level));
        logger_.set_pattern("[%n %H:%M:%S.%e %L] %v");
        logger_.flush_on(spdlog::level::trace);
    }

    void write(LogLevel level, std::string_view line) override {
        logger_.log(level_of(level), spdlog::string_view_t{line.data(), line.size()});
    }

    [[nodiscard]] bool enabled(LogLevel level) const override {
        return logger_.should_log(level_of(level));
    }

private:
    spdlog::logger logger_;
};

using FileSink = spdlog::sinks::basic_file_sink_st;

Result<std::shared_ptr<FileSink>> open_sink(const std::string& path) {
    try {
        return std::make_shared<FileSink>(path);
    } catch (const spdlog::spdlog_ex& error) {
        return fail(Errc::io_error, std::string{error.what()});
    }
}

class SpdlogFileLog final : public FileLog {
public:
    SpdlogFileLog(
        std::string_view name, LogLevel level, std::string path, std::shared_ptr<FileSink> sink
    )
        : path_(std::move(path)),
          logger_(std::string{name}, std::move(sink)) {
        logger_.set_level(level_of(level));
        logger_.set_pattern(kPattern);
        logger_.flush_on(spdlog::level::trace);
    }

    void write(LogLevel level, std::string_view line) override {
        logger_.log(level_of(level), spdlog::string_view_t{line.data(), line.size()});
    }

    [[nodiscard]] bool enabled(LogLevel level) const override {
        return logger_.should_log(level_of(level));
    }

    [[nodiscard]] Result<void> reopen() override {
        auto sink = open_sink(path_);
        if (!sink) {
            return fail(sink.error());
        }
        logger_.sinks().front() = std::move(*sink);
        logger_.set_pattern(kPattern);
        return {};
    }

private:
    static constexpr const char* kPattern = "%Y-%m-%d [%n %H:%M:%S.%e %L] %v";

    std::string path_;
    spdlog::logger logger_;
};

}  // namespace

Result<std::unique_ptr<FileLog>> make_file_log(
    std::string_view name, LogLevel level, const std::string& path
) {
    auto sink = open_sink(path);
    if (!sink) {
        return fail(sink.error());
    }
    return std::make_unique<SpdlogFileLog>(name, level, path, std::move(*sink));
}

std::unique_ptr<Log> make_stderr_log(std::string_view name, LogLevel level) {
    return std::make_unique<SpdlogLog>(name, level);
}

}  // namespace ddprun::launcher
