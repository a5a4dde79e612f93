// Lines to a descriptor whose reader may stand still, be slow or have gone, without waiting for it
// longer than a moment: what can't be written now is kept, up to a bound, and written before the
// next line; what is beyond the bound is counted, and said once there is room. The descriptor is
// shared with other processes, so it is not made non-blocking: poll() says whether a piece that
// fits into a pipe's guaranteed room can be written. A file on a stalled disk can still block.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

namespace ddprun::launcher {

inline constexpr std::size_t kLineQueueBytesMax = 256UL * 1024;
/// For a reader that is merely slow. Once it was too slow nobody waits until it has read something.
inline constexpr std::chrono::milliseconds kLinePatience{20};
/// At the end, for what is left.
inline constexpr std::chrono::milliseconds kLastLinesPatience{200};

class LineWriter {
public:
    /// `fd` stays the caller's.
    explicit LineWriter(int fd);
    LineWriter(const LineWriter&) = delete;
    LineWriter& operator=(const LineWriter&) = delete;

    /// Waits at most kLastLinesPatience for what is left.
    ~LineWriter();

    /// `line` with its newline. Never fails: SIGPIPE must be ignored or blocked.
    void write(std::string_view line);

    /// Lines that are lost so far.
    [[nodiscard]] std::size_t lost() const { return lost_; }

private:
    bool flush(std::chrono::milliseconds patience);
    [[nodiscard]] bool has_room(std::chrono::milliseconds patience) const;
    long write_some(std::string_view bytes) const;

    int fd_;
    bool is_socket_;
    std::string queue_;
    std::size_t lost_ = 0;
    std::size_t lost_told_ = 0;
    bool is_stuck_ = false;
};

}  // namespace ddprun::launcher
