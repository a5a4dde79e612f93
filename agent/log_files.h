// The workers' log files: opened, written, rotated and closed by the one helper thread of the
// agent, so that a disk that is full or stands still never holds up the loop. Beside the loop's
// thread, which alone calls this class, the helper touches nothing but the queues in here.
//
// A queue that is full tells its owner to wait (full(), then on_room). A disk that takes nothing
// for `stall_max` is no longer waited for: what comes is dropped until it moves again. What a disk
// refuses is dropped too; the file begins again with what follows. Each of these is said once, and
// the number of lost bytes at the end.
#pragma once

#include "proto/log.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

namespace ddprun {

struct LogFilesOptions {
    /// A file that would grow beyond it is renamed to NAME.1 (an older .1 to .2 and so on, up to
    /// limits::kRotatedLogsMax) and begun anew, at the end of a line where that is possible; 0:
    /// never.
    std::uint64_t size_max = 0;
    std::chrono::milliseconds stall_max{5'000};
};

class LogFiles {
public:
    struct File;
    using Handle = std::shared_ptr<File>;

    /// `on_room` is called from the loop when a full queue has room again.
    LogFiles(
        boost::asio::io_context& io_context,
        LogFilesOptions options,
        std::function<void()> on_room,
        Log& log
    );
    LogFiles(const LogFiles&) = delete;
    LogFiles& operator=(const LogFiles&) = delete;
    /// Drops what is not written; see finish().
    ~LogFiles();

    /// The file of this path, which is appended to where it exists; several may have it open. Its
    /// folder must exist when the helper comes to it.
    [[nodiscard]] Handle open(const std::string& path);

    void append(const Handle& file, std::string_view bytes);

    /// Nothing more should be appended before on_room; a stall ends that, too.
    [[nodiscard]] bool full(const Handle& file);

    /// Once for each open(): no more will come from there. With the last one it is closed, when all
    /// is written.
    void close(const Handle& file);

    /// Calls `done` when everything is written, at the latest after limits::kLogFlushAtEnd; says
    /// what was lost. Not again before `done` was called.
    void finish(std::function<void()> done);

private:
    struct Shared;
    struct Helper;

    void start_helper();
    void watch_for_stall();
    void stall_timer_due(std::uint64_t progress_before);
    void look();
    void finished();

    boost::asio::io_context& io_context_;
    LogFilesOptions options_;
    std::function<void()> on_room_;
    Log& log_;
    std::shared_ptr<Shared> shared_;  ///< with the helper, which may outlive us where a disk hangs
    std::unique_ptr<std::thread> thread_;  ///< from the first open() on
    std::map<std::string, Handle> open_;
    boost::asio::steady_timer stall_timer_;
    bool stall_watched_ = false;
    bool stalled_ = false;
    bool stall_told_ = false;
    bool waited_for_ = false;  ///< somebody saw full()
    boost::asio::steady_timer finish_timer_;
    std::function<void()> done_;
};

}  // namespace ddprun
