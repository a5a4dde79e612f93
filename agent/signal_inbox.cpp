#include "agent/signal_inbox.h"

#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <utility>

namespace ddprun {

SignalInbox::SignalInbox(boost::asio::io_context& io_context, const std::set<int>& signals)
    : descriptor_(io_context) {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : signals) {
        sigaddset(&set, signal);
    }
    // What our parent had blocked and we don't read would never arrive: only ours stay blocked.
    ::pthread_sigmask(SIG_SETMASK, &set, &before_);
    const int fd = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd >= 0) {
        descriptor_.assign(fd);
    }
}

SignalInbox::~SignalInbox() {
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void SignalInbox::start(std::function<void(int)> handler) {
    handler_ = std::move(handler);
    wait();
}

void SignalInbox::stop() {
    handler_ = nullptr;
    boost::system::error_code ignored;
    descriptor_.cancel(ignored);
}

void SignalInbox::wait() {
    descriptor_.async_wait(
        boost::asio::posix::stream_descriptor::wait_read,
        [this](const boost::system::error_code& error) {
            if (error) {
                return;
            }
            read_all();
            if (handler_) {
                wait();
            }
        }
    );
}

void SignalInbox::read_all() {
    std::array<signalfd_siginfo, 8> infos{};
    ssize_t size = 0;
    while ((size = ::read(descriptor_.native_handle(), infos.data(), sizeof infos)) > 0) {
        const auto count = static_cast<std::size_t>(size) / sizeof(signalfd_siginfo);
        for (std::size_t i = 0; i < count && handler_; ++i) {
            // A copy: the handler may call stop().
            const std::function<void(int)> handler = handler_;
            handler(static_cast<int>(infos.at(i).ssi_signo));
        }
    }
}

}  // namespace ddprun
