#include "launcher/spdlog_log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <string>

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

class SpdlogLog final : public Log {
public:
    SpdlogLog(std::string_view name, LogLevel level)
        : logger_(std::string{name}, std::make_shared<spdlog::sinks::stderr_sink_st>()) {
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

}  // namespace

std::unique_ptr<Log> make_stderr_log(std::string_view name, LogLevel level) {
    return std::make_unique<SpdlogLog>(name, level);
}

}  // namespace ddprun::launcher
