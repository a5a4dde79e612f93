#include "agent/output_pump.h"

#include "agent/agent_settings.h"
#include "agent/output_streams.h"
#include "proto/limits.h"

#include <boost/asio/post.hpp>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace ddprun {

namespace {

using boost::asio::posix::stream_descriptor;
using Clock = std::chrono::steady_clock;

bool are_same_file(int a, int b) {
    struct stat first {};

    struct stat second {};

    return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

/// The local time, as a line's prefix shows it: 2026-12-02T10:17:33.860
std::string time_text() {
    timespec now{};
    tm parts{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    ::localtime_r(&now.tv_sec, &parts);
    char seconds[32];
    const std::size_t size = ::strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &parts);
    constexpr long kNanosecondsPerMillisecond = 1'000'000;
    return fmt::format(
        "{}.{:03}", std::string_view(seconds, size), now.tv_nsec / kNanosecondsPerMillisecond
    );
}

}  // namespace

OutputPump::OutputPump(
    boost::asio::io_context& io_context, const OutputSettings& settings, Log& log
)
    : io_context_(io_context),
      log_(log),
      same_console_(are_same_file(settings.stdout_fd, settings.stderr_fd)),
      sinks_{
          {io_context, settings.stdout_fd, [this] { resume(); }},
          {io_context, settings.stderr_fd, [this] { resume(); }}},
      files_(
          io_context, LogFilesOptions{.size_max = settings.log_size_max}, [this] { resume(); }, log
      ),
      chunk_(std::make_unique_for_overwrite<char[]>(limits::kOutputChunkBytes)),
      partial_timer_(io_context),
      rest_timer_(io_context),
      retire_timer_(io_context),
      drain_timer_(io_context) {}

OutputPump::~OutputPump() = default;

OutputSink& OutputPump::sink(StreamKind kind) {
    return sinks_[static_cast<std::size_t>(kind)];
}

ConsoleLine& OutputPump::console(StreamKind kind) {
    return lines_[same_console_ ? 0 : static_cast<std::size_t>(kind)];
}

Result<OutputPump::WorkerEnds> OutputPump::add(
    WorkerId id, const WorkerStreams& streams, WorkerEnds read_from
) {
    auto worker = std::make_unique<Worker>();
    WorkerEnds ends;
    for (const StreamKind kind : {StreamKind::out, StreamKind::err}) {
        auto& stream = worker->streams[static_cast<std::size_t>(kind)];
        stream = std::make_unique<Stream>(io_context_, kind, streams, console(kind));
        const bool is_out = kind == StreamKind::out;
        Result<UniqueFd> write_end =
            open_stream(*stream, std::move(is_out ? read_from.out : read_from.err));
        if (!write_end) {
            return fail(std::move(write_end.error()));
        }
        (is_out ? ends.out : ends.err) = std::move(*write_end);
    }
    for (auto& stream : worker->streams) {
        const StreamTargets& targets = streams.of(stream->kind);
        stream->file = targets.file.empty() ? nullptr : files_.open(targets.file);
        stream->filtered =
            targets.filtered_file.empty() ? nullptr : files_.open(targets.filtered_file);
        arm(*stream);
    }
    workers_.emplace(id, std::move(worker));
    return ends;
}

Result<UniqueFd> OutputPump::open_stream(Stream& stream, UniqueFd read_from) {
    if (read_from.valid()) {
        ::fcntl(read_from.get(), F_SETFL, O_RDWR | O_NONBLOCK);
        stream.pipe.assign(read_from.release());
        stream.small_bytes = limits::kSmallTerminalBytes;
        return UniqueFd{};
    }
    int fds[2] = {-1, -1};
    if (::pipe2(fds, O_CLOEXEC) != 0) {
        return fail(from_errno(errno, "make a pipe for a worker's output"));
    }
    UniqueFd write_end(fds[1]);
    ::fcntl(fds[0], F_SETFL, O_NONBLOCK);
    stream.pipe.assign(fds[0]);
    return write_end;
}

/// Somebody that this stream's bytes go to can't take more now.
bool OutputPump::held_up(Stream& stream) {
    return (stream.shown && sink(stream.kind).full()) ||
           (stream.file && files_.full(stream.file)) ||
           (stream.filtered && files_.full(stream.filtered));
}

void OutputPump::arm(Stream& stream) {
    if (held_up(stream)) {
        stream.paused = true;
        return;
    }
    stream.pipe.async_wait(
        stream_descriptor::wait_read,
        [this, &stream](const boost::system::error_code& error) {
            if (!error) {
                readable(stream);
            }
        }
    );
}

void OutputPump::readable(Stream& stream) {
    const TimePoint now = Clock::now();
    const bool in_quick_succession = now - last_read_ < limits::kOutputRest;
    last_read_ = now;
    const std::size_t size = read_once(stream);
    if (!stream.pipe.is_open()) {
        finish_if_drained();
    } else if (in_quick_succession && size < stream.small_bytes) {
        rest(stream);
    } else {
        arm(stream);
    }
}

/// One read; the number of bytes, 0 when there was nothing or the stream has ended.
std::size_t OutputPump::read_once(Stream& stream) {
    const int fd = stream.pipe.native_handle();
    const ssize_t size = ::read(fd, chunk_.get(), limits::kOutputChunkBytes);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) {
        return 0;
    }
    // A pseudo-terminal has no end of file but an error, when its last user has gone.
    if (size <= 0) {
        close(stream);
        return 0;
    }
    const auto bytes = static_cast<std::size_t>(size);
    // It was full: its writer had to wait. What the kernel refuses leaves it as it is.
    if (bytes >= limits::kPipeBytes && !std::exchange(stream.enlarged, true)) {
        static_cast<void>(::fcntl(fd, F_SETPIPE_SZ, static_cast<int>(limits::kBusyPipeBytes)));
    }
    take(stream, {chunk_.get(), bytes});
    return bytes;
}

void OutputPump::rest(Stream& stream) {
    stream.resting = true;
    if (std::exchange(rest_armed_, true)) {
        return;
    }
    rest_timer_.expires_after(limits::kOutputRest);
    rest_timer_.async_wait([this](const boost::system::error_code& error) {
        rest_armed_ = false;
        if (!error) {
            look_at_resting();
        }
    });
}

void OutputPump::look_at_resting() {
    last_read_ = Clock::now();
    gathering_ = true;
    for (auto& [id, worker] : workers_) {
        for (auto& stream : worker->streams) {
            if (!std::exchange(stream->resting, false) || !stream->pipe.is_open()) {
                continue;
            }
            const bool is_held_up = held_up(*stream);
            const std::size_t size = is_held_up ? 0 : read_once(*stream);
            if (size > 0 && size < stream->small_bytes) {
                rest(*stream);
            } else if (stream->pipe.is_open()) {
                arm(*stream);
            }
        }
    }
    gathering_ = false;
    sinks_[0].flush();
    sinks_[1].flush();
    finish_if_drained();
}

void OutputPump::take(Stream& stream, std::string_view bytes) {
    if (stream.kind == StreamKind::err) {
        stream.tail +=
            bytes.substr(bytes.size() - std::min(bytes.size(), limits::kStderrTailBytesMax));
        if (stream.tail.size() > 2 * limits::kStderrTailBytesMax) {
            stream.tail.erase(0, stream.tail.size() - limits::kStderrTailBytesMax);
        }
    }
    if (stream.file) {
        files_.append(stream.file, bytes);
    }
    if (stream.filtered) {
        filtered_.clear();
        stream.filter.feed(bytes, filtered_);
        files_.append(stream.filtered, filtered_);
    }
    if (stream.shown) {
        show(stream, bytes);
    }
}

void OutputPump::show(Stream& stream, std::string_view bytes) {
    OutputSink& target = sink(stream.kind);
    if (stream.splitter.shows_time()) {
        console(stream.kind).time = time_text();
    }
    if (stream.splitter.passes_bytes()) {
        stream.splitter.note_passed(bytes);
        target.pass(bytes);
    } else {
        stream.splitter.feed(bytes, Clock::now(), target.buffer());
        if (!gathering_) {
            target.flush();
        }
        if (const std::optional<TimePoint> due = stream.splitter.due(); due) {
            arm_partials(*due);
        }
    }
    if (target.broken() && !gone_told_) {
        gone_told_ = true;
        const bool has_gone = target.reason() == std::errc::broken_pipe ||
                              target.reason() == std::errc::connection_reset;
        log_.warning(
            "{}; the job goes on without it",
            has_gone ? std::string{"whoever read our output has gone"}
                     : fmt::format("write our output: {}", target.reason().message())
        );
    }
}

void OutputPump::close(Stream& stream) {
    if (!stream.pipe.is_open()) {
        return;
    }
    boost::system::error_code ignored;
    stream.pipe.close(ignored);
    if (stream.shown) {
        stream.splitter.finish(sink(stream.kind).buffer());
        sink(stream.kind).flush();
    }
    if (stream.file) {
        files_.close(stream.file);
    }
    if (stream.filtered) {
        filtered_.clear();
        stream.filter.finish(filtered_);
        files_.append(stream.filtered, filtered_);
        files_.close(stream.filtered);
    }
}

void OutputPump::resume() {
    for (auto& [id, worker] : workers_) {
        for (auto& stream : worker->streams) {
            if (stream->paused && stream->pipe.is_open() && !held_up(*stream)) {
                stream->paused = false;
                arm(*stream);
            }
        }
    }
    finish_if_drained();
}

// ---- partial lines
// -------------------------------------------------------------------------------

/// The timer runs while any line is unfinished; it looks at all when it is due.
void OutputPump::arm_partials(TimePoint due) {
    if (std::exchange(partial_armed_, true)) {
        return;
    }
    partial_timer_.expires_at(due);
    partial_timer_.async_wait([this](const boost::system::error_code& error) {
        partial_armed_ = false;
        if (!error) {
            show_partials();
        }
    });
}

void OutputPump::show_partials() {
    const TimePoint now = Clock::now();
    std::optional<TimePoint> next;
    for (auto& [id, worker] : workers_) {
        for (auto& stream : worker->streams) {
            const std::optional<TimePoint> due = stream->splitter.due();
            if (!due || !stream->shown) {
                continue;
            }
            if (*due <= now) {
                stream->splitter.show_partial(sink(stream->kind).buffer());
            } else if (!next || *due < *next) {
                next = due;
            }
        }
    }
    sinks_[0].flush();
    sinks_[1].flush();
    if (next) {
        arm_partials(*next);
    }
}

void OutputPump::end_line() {
    ConsoleLine& line = console(StreamKind::err);
    if (line.owner != nullptr) {
        line.owner = nullptr;
        sink(StreamKind::err).buffer() += '\n';
        sink(StreamKind::err).flush();
    }
}

void OutputPump::write_own(std::string_view text) {
    if (!text.empty()) {
        end_line();
        sink(StreamKind::err).buffer() += text;
        sink(StreamKind::err).flush();
    }
}

}  // namespace ddprun
