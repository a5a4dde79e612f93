// Where the shells write their log lines. An interface, so that only the launcher knows the logging
// library and tests can capture. Cores don't log: they return reasons, which a shell formats.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace ddprun {

enum class LogLevel { debug, info, warning, error };

class Log {
public:
    Log() = default;
    Log(const Log&) = delete;
    Log& operator=(const Log&) = delete;
    virtual ~Log() = default;

    /// One line, without its newline. Must not block and must not throw.
    virtual void write(LogLevel level, std::string_view line) = 0;

    [[nodiscard]] virtual bool enabled(LogLevel level) const = 0;

    template <class... Args>
    void debug(fmt::format_string<Args...> format, Args&&... args) {
        write_formatted(LogLevel::debug, format, std::forward<Args>(args)...);
    }

    template <class... Args>
    void info(fmt::format_string<Args...> format, Args&&... args) {
        write_formatted(LogLevel::info, format, std::forward<Args>(args)...);
    }

    template <class... Args>
    void warning(fmt::format_string<Args...> format, Args&&... args) {
        write_formatted(LogLevel::warning, format, std::forward<Args>(args)...);
    }

    template <class... Args>
    void error(fmt::format_string<Args...> format, Args&&... args) {
        write_formatted(LogLevel::error, format, std::forward<Args>(args)...);
    }

private:
    template <class... Args>
    void write_formatted(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
        if (enabled(level)) {
            write(level, fmt::format(format, std::forward<Args>(args)...));
        }
    }
};

/// Discards everything; for tests and tools.
class NullLog final : public Log {
public:
    void write(LogLevel, std::string_view) override {}

    [[nodiscard]] bool enabled(LogLevel) const override { return false; }
};

}  // namespace ddprun
