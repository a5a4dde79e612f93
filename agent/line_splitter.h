// Which bytes of many workers go to one console, as a pure core: whole lines with a prefix, a
// partial line (a prompt, a progress bar) after a silence or at the end, and never two workers'
// text on one line. Bytes are never changed; with an empty prefix in raw mode they pass as they
// are. A prefix may show the time of its line: ${time} stands for what ConsoleLine::time says.
#pragma once

#include "agent/worker_group.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

/// Whose unfinished line stands at the end of a console; shared by all splitters that write to it.
struct ConsoleLine {
    const void* owner = nullptr;  ///< null: the console is at the start of a line
    std::string time;  ///< what ${time} in a prefix shows; whoever feeds keeps it current
};

class LineSplitter {
public:
    enum class Mode : std::uint8_t { lines, raw };

    /// `console` must outlive it.
    LineSplitter(Mode mode, std::string_view prefix, ConsoleLine& console);
    LineSplitter(const LineSplitter&) = delete;
    LineSplitter& operator=(const LineSplitter&) = delete;
    ~LineSplitter() = default;

    /// Takes what a worker wrote and appends what is to be shown of it to `out`.
    void feed(std::string_view bytes, TimePoint now, std::string& out);

    /// Raw mode: what a worker wrote is shown as it is, so that it need not be copied; whoever
    /// shows it tells note_passed() instead of calling feed().
    [[nodiscard]] bool passes_bytes() const { return mode_ == Mode::raw; }

    void note_passed(std::string_view bytes);

    /// Its prefix shows the time.
    [[nodiscard]] bool shows_time() const { return pieces_.size() > 1; }

    /// When show_partial() is due: after a silence, and for a line that redraws itself (with \r) as
    /// long after its first byte, since a progress bar may never be silent.
    [[nodiscard]] std::optional<TimePoint> due() const;

    /// Appends the unfinished line as it stands; the rest of it follows without a prefix unless
    /// another worker wrote meanwhile.
    void show_partial(std::string& out);

    /// The stream has ended: shows the unfinished line and ends it.
    void finish(std::string& out);

private:
    void append(std::string_view text, std::string& out);
    void keep(std::string_view rest);

    Mode mode_;
    std::vector<std::string> pieces_;  ///< of the prefix; the time stands between them
    ConsoleLine& console_;
    std::string partial_;
    TimePoint first_bytes_{};  ///< of `partial_`
    TimePoint last_bytes_{};
    bool redraws_ = false;  ///< there is a \r in `partial_`
};

}  // namespace ddprun
