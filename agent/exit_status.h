// How a process stands: it runs, it exited with a code, or a signal ended it. A value that never
// merges "exit 9" with "killed by signal 9".
#pragma once

#include <cstdint>
#include <string>

namespace ddprun {

class ExitStatus {
public:
    enum class Kind : std::uint8_t { running, exited, signaled };

    constexpr ExitStatus() = default;

    [[nodiscard]] static constexpr ExitStatus exited(int code) {
        return ExitStatus{Kind::exited, code, false};
    }

    [[nodiscard]] static constexpr ExitStatus signaled(int signal, bool core_dumped) {
        return ExitStatus{Kind::signaled, signal, core_dumped};
    }

    [[nodiscard]] constexpr Kind kind() const { return kind_; }

    /// The exit code or the signal's number; 0 while it runs.
    [[nodiscard]] constexpr int value() const { return value_; }

    [[nodiscard]] constexpr bool core_dumped() const { return core_dumped_; }

    [[nodiscard]] constexpr bool succeeded() const { return kind_ == Kind::exited && value_ == 0; }

    friend bool operator==(const ExitStatus&, const ExitStatus&) = default;

private:
    constexpr ExitStatus(Kind kind, int value, bool core_dumped)
        : kind_(kind),
          value_(value),
          core_dumped_(core_dumped) {}

    Kind kind_ = Kind::running;
    int value_ = 0;
    bool core_dumped_ = false;
};

/// "SIGKILL"; "SIGRTMIN+2"; "signal 200" where it has no name.
[[nodiscard]] std::string signal_name(int signal);

/// "running", "exit code 3", "signal 11 (SIGSEGV), core dumped".
[[nodiscard]] std::string to_string(const ExitStatus& status);

}  // namespace ddprun
