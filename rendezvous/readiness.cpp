#include "rendezvous/readiness.h"

#include <cerrno>
#include <utility>

namespace ddprun {

namespace {

namespace asio = boost::asio;
using boost::system::error_code;

epoll_event event_of(Readiness::Watcher& watcher, Ready wanted) {
    epoll_event event{};
    event.events = (wanted.to_read ? EPOLLIN : 0U) | (wanted.to_write ? EPOLLOUT : 0U);
    event.data.ptr = &watcher;
    return event;
}

Ready ready_of(const epoll_event& event) {
    constexpr unsigned kEnd = EPOLLHUP | EPOLLERR;
    return {(event.events & (EPOLLIN | kEnd)) != 0, (event.events & (EPOLLOUT | kEnd)) != 0};
}

}  // namespace

Result<std::shared_ptr<Readiness>> Readiness::open(asio::io_context& io_context) {
    UniqueFd epoll{::epoll_create1(EPOLL_CLOEXEC)};
    if (!epoll.valid()) {
        return fail(from_errno(errno, "epoll_create1"));
    }
    return std::shared_ptr<Readiness>{new Readiness{io_context, std::move(epoll)}};
}

Readiness::Readiness(asio::io_context& io_context, UniqueFd epoll)
    : epoll_(io_context, epoll.release()) {}

bool Readiness::add(int fd, Watcher& watcher, Ready wanted) {
    epoll_event event = event_of(watcher, wanted);
    if (::epoll_ctl(epoll_.native_handle(), EPOLL_CTL_ADD, fd, &event) != 0) {
        return false;
    }
    if (!is_awaited_) {
        wait();
    }
    return true;
}

void Readiness::change(int fd, Watcher& watcher, Ready wanted) {
    epoll_event event = event_of(watcher, wanted);
    static_cast<void>(::epoll_ctl(epoll_.native_handle(), EPOLL_CTL_MOD, fd, &event));
}

void Readiness::remove(int fd, Watcher& watcher) {
    // Closing wouldn't do while a child that hasn't executed its program yet has a copy.
    static_cast<void>(::epoll_ctl(epoll_.native_handle(), EPOLL_CTL_DEL, fd, nullptr));
    for (std::size_t i = next_; i < count_; ++i) {
        if (events_[i].data.ptr == &watcher) {
            events_[i].data.ptr = nullptr;
        }
    }
}

void Readiness::close() {
    count_ = 0;
    error_code ignored;  // closing frees the descriptor whatever it says
    epoll_.close(ignored);
}

void Readiness::wait() {
    is_awaited_ = true;
    epoll_.async_wait(
        asio::posix::stream_descriptor::wait_read,
        [weak = weak_from_this()](const error_code& error) {
            const auto self = weak.lock();  // lives on while it tells
            if (!error && self != nullptr) {
                self->tell();
            }
        }
    );
}

void Readiness::tell() {
    for (std::size_t told = 0; epoll_.is_open() && told < kEventsPerTurnMax;) {
        const int count = ::epoll_wait(
            epoll_.native_handle(), events_.data(), static_cast<int>(kEventsAtOnce), 0
        );
        count_ = count > 0 ? static_cast<std::size_t>(count) : 0;
        const bool is_busy = count_ >= kEventsOfBusyTurn;
        told += count_;
        for (next_ = 0; next_ < count_;) {
            const epoll_event event = events_[next_++];
            if (event.data.ptr != nullptr) {
                static_cast<Watcher*>(event.data.ptr)->on_ready(ready_of(event));
            }
        }
        count_ = 0;
        if (!is_busy) {
            break;
        }
    }
    if (epoll_.is_open()) {
        wait();
    }
}

}  // namespace ddprun
