#include "agent/log_files.h"

#include "proto/assert.h"
#include "proto/limits.h"
#include "rendezvous/unique_fd.h"

#include <boost/asio/post.hpp>
#include <fmt/format.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <utility>

namespace ddprun {

namespace {

/// A little output waits this long for more, so that lines are written together.
constexpr std::chrono::milliseconds kGatherTime{10};
constexpr std::size_t kGatheredEnough = 64 * limits::kKiB;
constexpr std::chrono::milliseconds kHelperEndMax{200};  ///< for a write that goes on at our end

std::string cause(int error_number) {
    return std::generic_category().message(error_number);
}

}  // namespace

struct LogFiles::File {
    std::string path;

    // Guarded by Shared::mutex.
    std::string queue;
    bool ready = false;  ///< in Shared::ready, or in the helper's hands
    bool closing = false;

    int users = 0;  ///< the loop's own: open() less close()

    // The helper's own.
    UniqueFd fd;
    std::uint64_t size = 0;
    bool failed_before = false;
};

struct LogFiles::Shared {
    std::mutex mutex;
    std::condition_variable wake;
    std::deque<Handle> ready;
    std::size_t queued_bytes = 0;  ///< in queues and in the helper's hands
    std::uint64_t progress = 0;    ///< grows with each thing that the helper has done
    std::uint64_t lost_bytes = 0;
    std::string failure;              ///< the first one, until the loop has told it
    bool idle = false;                ///< the helper waits for something to do
    bool writing = false;             ///< the helper is in a call that the disk may hold up
    std::condition_variable settled;  ///< writing has become false
    bool urgent = false;              ///< nothing is gathered any more
    bool stopping = false;
    LogFiles* owner = nullptr;  ///< null when it has gone
    bool told = false;          ///< a look() of the owner is on its way
};

/// What runs on the helper thread.
struct LogFiles::Helper {
    std::shared_ptr<Shared> shared;
    std::uint64_t size_max;

    void run() const {
        std::unique_lock lock(shared->mutex);
        while (wait_for_work(lock)) {
            const Handle file = shared->ready.front();
            shared->ready.pop_front();
            const std::string bytes = std::exchange(file->queue, {});
            const bool closing = file->closing;
            shared->writing = true;
            lock.unlock();
            const std::string failure = write(*file, bytes);
            if (closing) {
                file->fd.reset();
            }
            lock.lock();
            shared->writing = false;
            shared->settled.notify_all();
            shared->queued_bytes -= bytes.size();
            ++shared->progress;
            file->ready = !file->queue.empty() || (file->closing && !closing);
            if (file->ready) {
                shared->ready.push_back(file);
            }
            if (!failure.empty()) {
                shared->failure = failure;
            }
            tell_owner();
        }
    }

    bool wait_for_work(std::unique_lock<std::mutex>& lock) const {
        shared->idle = true;
        shared->wake.wait(lock, [&] { return shared->stopping || !shared->ready.empty(); });
        shared->idle = false;
        shared->wake.wait_for(lock, kGatherTime, [&] {
            return shared->stopping || shared->urgent || shared->queued_bytes >= kGatheredEnough;
        });
        return !shared->stopping;
    }

    /// Wakes the loop, which looks what has changed; one wake-up at a time.
    void tell_owner() const {
        if (shared->owner != nullptr && !shared->told) {
            shared->told = true;
            LogFiles* const owner = shared->owner;
            boost::asio::post(owner->io_context_, [owner, kept = shared] {
                {
                    const std::lock_guard guard(kept->mutex);
                    kept->told = false;
                    if (kept->owner == nullptr) {
                        return;
                    }
                }
                owner->look();
            });
        }
    }

    /// Writes all of it; where that fails, the rest of `bytes` is lost. The first failure of a file
    /// comes back as a sentence. Without bytes the file is there all the same.
    std::string write(File& file, std::string_view bytes) const {
        while (!bytes.empty() || !file.fd.valid()) {
            if (!file.fd.valid()) {
                file.fd.reset(
                    ::open(file.path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)
                );

                struct stat status {};

                if (!file.fd.valid() || ::fstat(file.fd.get(), &status) != 0) {
                    return lost(file, "open", errno, bytes.size());
                }
                file.size = static_cast<std::uint64_t>(status.st_size);
                continue;
            }
            const std::string_view piece = fitting(file, bytes);
            if (piece.empty()) {
                rotate(file);
                continue;
            }
            const ssize_t size = ::write(file.fd.get(), piece.data(), piece.size());
            if (size < 0 && errno != EINTR) {
                return lost(file, "write", errno, bytes.size());
            }
            if (size > 0) {
                file.size += static_cast<std::uint64_t>(size);
                bytes.remove_prefix(static_cast<std::size_t>(size));
            }
        }
        return {};
    }

    /// What goes into the file as it is: whole lines as far as they fit, a piece of a line that is
    /// longer than a file may be; nothing where the next line needs a new file.
    std::string_view fitting(const File& file, std::string_view bytes) const {
        if (size_max == 0 || file.size + bytes.size() <= size_max) {
            return bytes;
        }
        const std::uint64_t room = size_max - std::min(size_max, file.size);
        const std::string_view part = bytes.substr(0, static_cast<std::size_t>(room));
        const std::size_t end = part.rfind('\n');
        if (end != std::string_view::npos) {
            return part.substr(0, end + 1);
        }
        return file.size == 0 ? part : std::string_view{};
    }

    static void rotate(File& file) {
        file.fd.reset();
        for (int number = limits::kRotatedLogsMax; number > 0; --number) {
            const std::string from =
                number == 1 ? file.path : fmt::format("{}.{}", file.path, number - 1);
            // One that isn't there, or can't be renamed, leaves the file to be appended to.
            static_cast<void>(
                ::rename(from.c_str(), fmt::format("{}.{}", file.path, number).c_str())
            );
        }
        file.fd.reset(
            ::open(file.path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666)
        );
        file.size = 0;
    }

    std::string lost(File& file, std::string_view step, int error_number, std::size_t bytes) const {
        const std::lock_guard guard(shared->mutex);
        shared->lost_bytes += bytes;
        if (std::exchange(file.failed_before, true)) {
            return {};
        }
        return fmt::format("{} {}: {}", step, file.path, cause(error_number));
    }
};

LogFiles::LogFiles(
    boost::asio::io_context& io_context,
    LogFilesOptions options,
    std::function<void()> on_room,
    Log& log
)
    : io_context_(io_context),
      options_(options),
      on_room_(std::move(on_room)),
      log_(log),
      shared_(std::make_shared<Shared>()),
      stall_timer_(io_context),
      finish_timer_(io_context) {
    shared_->owner = this;
}

LogFiles::~LogFiles() {
    bool hangs = false;
    {
        std::unique_lock lock(shared_->mutex);
        shared_->owner = nullptr;
        shared_->stopping = true;
        hangs = !shared_->settled.wait_for(lock, kHelperEndMax, [&] { return !shared_->writing; });
    }
    shared_->wake.notify_all();
    if (thread_ == nullptr) {
        return;
    }
    if (hangs) {
        // It may stand in a write that never returns, and it owns what it uses: the end of the
        // process is its end.
        thread_->detach();
        return;
    }
    thread_->join();
}

void LogFiles::start_helper() {
    if (thread_ != nullptr) {
        return;
    }
    // Signals are for the loop's thread; XFSZ, too, which is an error of the write then.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::make_unique<std::thread>([helper = Helper{shared_, options_.size_max}] {
        helper.run();
    });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

LogFiles::Handle LogFiles::open(const std::string& path) {
    start_helper();
    Handle& file = open_[path];
    if (!file) {
        file = std::make_shared<File>();
        file->path = path;
    }
    ++file->users;
    return file;
}

void LogFiles::append(const Handle& file, std::string_view bytes) {
    if (bytes.empty()) {
        return;
    }
    const std::lock_guard guard(shared_->mutex);
    if (stalled_) {
        shared_->lost_bytes += bytes.size();
        return;
    }
    file->queue += bytes;
    shared_->queued_bytes += bytes.size();
    if (!std::exchange(file->ready, true)) {
        shared_->ready.push_back(file);
    }
    if (shared_->idle || shared_->queued_bytes >= kGatheredEnough) {
        shared_->wake.notify_one();
    }
}

bool LogFiles::full(const Handle& file) {
    if (stalled_) {
        return false;
    }
    const std::lock_guard guard(shared_->mutex);
    const bool is_full = file->queue.size() > limits::kLogQueueBytesMax ||
                         shared_->queued_bytes > limits::kLogBytesQueuedMax;
    if (is_full) {
        waited_for_ = true;
        watch_for_stall();
    }
    return is_full;
}

void LogFiles::close(const Handle& file) {
    if (--file->users > 0) {
        return;
    }
    open_.erase(file->path);
    const std::lock_guard guard(shared_->mutex);
    file->closing = true;
    if (!std::exchange(file->ready, true)) {
        shared_->ready.push_back(file);
        shared_->wake.notify_one();
    }
}

// ---- what the helper's progress, or the lack of it, means

void LogFiles::watch_for_stall() {
    if (std::exchange(stall_watched_, true)) {
        return;
    }
    stall_timer_.expires_after(options_.stall_max);
    stall_timer_.async_wait([this,
                             progress = shared_->progress](const boost::system::error_code& error) {
        stall_watched_ = false;
        if (!error) {
            stall_timer_due(progress);
        }
    });
}

void LogFiles::stall_timer_due(std::uint64_t progress_before) {
    {
        const std::lock_guard guard(shared_->mutex);
        stalled_ = shared_->progress == progress_before && shared_->queued_bytes > 0;
        if (!stalled_ && waited_for_) {
            watch_for_stall();
        }
    }
    if (!stalled_) {
        return;
    }
    if (!std::exchange(stall_told_, true)) {
        log_.warning(
            "the disk of the workers' log files has taken nothing for {} ms; the job goes on, and "
            "what is written meanwhile is not in the files",
            options_.stall_max.count()
        );
    }
    waited_for_ = false;
    on_room_();
}

/// After each step of the helper.
void LogFiles::look() {
    std::string failure;
    bool has_room = false;
    bool all_written = false;
    {
        const std::lock_guard guard(shared_->mutex);
        failure = std::exchange(shared_->failure, {});
        has_room = shared_->queued_bytes <= limits::kLogBytesQueuedMax / 2;
        all_written = shared_->ready.empty() && shared_->queued_bytes == 0;
    }
    stalled_ = false;
    if (!failure.empty()) {
        log_.warning("{}; the job goes on, its log files are not complete", failure);
    }
    if (has_room && std::exchange(waited_for_, false)) {
        on_room_();
    }
    if (all_written && done_) {
        finished();
    }
}

void LogFiles::finish(std::function<void()> done) {
    DDPRUN_ASSERT(!done_);
    done_ = std::move(done);
    stall_timer_.cancel();
    bool all_written = false;
    {
        const std::lock_guard guard(shared_->mutex);
        shared_->urgent = true;
        all_written = shared_->ready.empty() && shared_->queued_bytes == 0;
    }
    shared_->wake.notify_one();
    if (all_written) {
        boost::asio::post(io_context_, [this] { finished(); });
        return;
    }
    finish_timer_.expires_after(limits::kLogFlushAtEnd);
    finish_timer_.async_wait([this](const boost::system::error_code& error) {
        if (!error) {
            finished();
        }
    });
}

void LogFiles::finished() {
    if (!done_) {
        return;
    }
    finish_timer_.cancel();
    std::uint64_t lost = 0;
    {
        const std::lock_guard guard(shared_->mutex);
        lost = shared_->lost_bytes + shared_->queued_bytes;
        shared_->lost_bytes = 0;
    }
    if (lost > 0) {
        log_.warning("{} bytes of the workers' output are missing in their log files", lost);
    }
    std::exchange(done_, nullptr)();
}

}  // namespace ddprun
