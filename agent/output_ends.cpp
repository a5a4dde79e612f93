// How the output of a worker, and of a job, ends: what is still waited for, and for how long.
#include "agent/output_streams.h"
#include "proto/limits.h"

#include <boost/asio/post.hpp>

#include <sys/ioctl.h>

#include <algorithm>
#include <utility>

namespace ddprun {

namespace {

using Clock = std::chrono::steady_clock;

/// What a pipe that is about to be closed still holds.
std::size_t unread_bytes(boost::asio::posix::stream_descriptor& pipe) {
    int size = 0;
    const bool known = pipe.is_open() && ::ioctl(pipe.native_handle(), FIONREAD, &size) == 0;
    return known && size > 0 ? static_cast<std::size_t>(size) : 0;
}

}  // namespace

std::string OutputPump::take_tail(WorkerId id) {
    const auto found = workers_.find(id);
    if (found == workers_.end()) {
        return {};
    }
    for (auto& stream : found->second->streams) {
        // What an ended worker left in its pipe; a grandchild that writes on must not hold us.
        constexpr int kReadsMax = 4;
        for (int reads = 0; reads < kReadsMax && stream->pipe.is_open(); ++reads) {
            if (read_once(*stream) == 0) {
                break;
            }
        }
    }
    const std::string& tail = found->second->streams[1]->tail;
    return tail.substr(tail.size() - std::min(tail.size(), limits::kStderrTailBytesMax));
}

void OutputPump::worker_ended(WorkerId id) {
    const auto found = workers_.find(id);
    if (found == workers_.end()) {
        return;
    }
    for (auto& stream : found->second->streams) {
        if (std::exchange(stream->resting, false) && stream->pipe.is_open()) {
            arm(*stream);  // its end is due
        }
    }
    found->second->read_until = Clock::now() + limits::kDrainAfterEnd;
    retire_expired();
}

/// Forgets ended workers whose pipes are closed, and closes those that a grandchild holds for too
/// long.
void OutputPump::retire_expired() {
    const TimePoint now = Clock::now();
    std::optional<TimePoint> next;
    for (auto it = workers_.begin(); it != workers_.end();) {
        Worker& worker = *it->second;
        const bool expired = worker.read_until && now >= *worker.read_until;
        if (expired && worker.paused()) {
            // It is our reader that its pipes wait for; at the end of the job drain() counts.
            worker.read_until = now + limits::kDrainAfterEnd;
        } else if (expired) {
            close(*worker.streams[0]);
            close(*worker.streams[1]);
        }
        if (worker.read_until && !worker.open()) {
            // Not now: a handler of this stream may be below us on the stack.
            boost::asio::post(io_context_, [kept = std::shared_ptr<Worker>(std::move(it->second))] {
            });
            it = workers_.erase(it);
            continue;
        }
        if (worker.read_until && (!next || *worker.read_until < *next)) {
            next = worker.read_until;
        }
        ++it;
    }
    if (next) {
        retire_timer_.expires_at(*next);
        retire_timer_.async_wait([this](const boost::system::error_code& error) {
            if (!error) {
                retire_expired();
                finish_if_drained();
            }
        });
    }
}

void OutputPump::drain(std::function<void()> done) {
    drained_ = std::move(done);
    last_progress_ = std::chrono::steady_clock::now();
    set_drain_timer(limits::kDrainAfterEnd);
    boost::asio::post(io_context_, [this] { finish_if_drained(); });
}

void OutputPump::set_drain_timer(std::chrono::milliseconds after) {
    drain_timer_.expires_after(after);
    drain_timer_.async_wait([this](const boost::system::error_code& error) {
        if (!error) {
            give_up();
        }
    });
}

bool OutputPump::reader_is_slow() const {
    return !sinks_[0].empty() || !sinks_[1].empty() ||
           std::any_of(workers_.begin(), workers_.end(), [](const auto& entry) {
               return entry.second->paused();
           });
}

void OutputPump::hurry() {
    hurried_ = true;
    if (drained_) {
        pipes_given_up_ = true;
        set_drain_timer(limits::kSlowReaderAtEnd);
    }
}

bool OutputPump::reader_stands_still() {
    const auto now = std::chrono::steady_clock::now();
    const std::uint64_t taken = sinks_[0].taken() + sinks_[1].taken();
    if (std::exchange(taken_, taken) != taken) {
        last_progress_ = now;
    }
    return expects_progress_ && now - last_progress_ >= limits::kSlowReaderAtEnd;
}

/// First the pipes (unless our own reader is what they wait for), then, where there is hurry, a
/// reader that is too slow.
void OutputPump::give_up() {
    if (reader_is_slow() && !hurried_) {
        if (!reader_stands_still()) {
            set_drain_timer(limits::kDrainAfterEnd);
            return;
        }
        pipes_given_up_ = true;
    }
    if (reader_is_slow() && !pipes_given_up_) {
        pipes_given_up_ = true;
        set_drain_timer(limits::kSlowReaderAtEnd - limits::kDrainAfterEnd);
        return;
    }
    std::size_t dropped = 0;
    for (auto& [id, worker] : workers_) {
        for (auto& stream : worker->streams) {
            dropped += stream->paused ? unread_bytes(stream->pipe) : 0;
            close(*stream);
        }
    }
    dropped += sinks_[0].drop() + sinks_[1].drop();
    if (dropped > 0) {
        log_.warning("the reader of our output is too slow: {} bytes of it were dropped", dropped);
    }
    finish_if_drained();
}

void OutputPump::finish_if_drained() {
    if (!drained_) {
        return;
    }
    const bool pipes_closed = std::none_of(workers_.begin(), workers_.end(), [](const auto& e) {
        return e.second->open();
    });
    if (pipes_closed && sinks_[0].empty() && sinks_[1].empty()) {
        drain_timer_.cancel();
        partial_timer_.cancel();
        retire_timer_.cancel();
        if (!std::exchange(files_finishing_, true)) {
            files_.finish([this] {
                files_finishing_ = false;
                boost::asio::post(io_context_, std::exchange(drained_, nullptr));
            });
        }
    }
}

}  // namespace ddprun
