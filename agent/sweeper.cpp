#include "agent/sweeper.h"

#include "agent/child_process.h"
#include "agent/guardian.h"
#include "agent/kernel_wait.h"
#include "proto/limits.h"

#include <boost/asio/post.hpp>

#include <unistd.h>

#include <utility>

namespace ddprun {

namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

Sweeper::Sweeper(
    boost::asio::io_context& io_context,
    std::string mark,
    std::function<std::set<pid_t>()> owned,
    Log& log
)
    : io_context_(io_context),
      mark_(std::move(mark)),
      owned_(std::move(owned)),
      log_(log),
      foreign_(children_of_this_process()),
      sweep_timer_(io_context),
      reap_timer_(io_context) {}

std::set<pid_t> Sweeper::spared() const {
    std::set<pid_t> spared = owned_();
    spared.insert(foreign_.begin(), foreign_.end());
    return spared;
}

/// Among strangers (an init process adopts whatever is orphaned) only what carries our mark.
std::string Sweeper::mark_among_strangers() const {
    return ::getpid() == 1 || !foreign_.empty() ? mark_ : std::string{};
}

void Sweeper::sweep(std::function<void()> swept) {
    swept_ = std::move(swept);
    sweep_until_ = Clock::now() + limits::kSweepTimeMax;
    boost::asio::post(io_context_, [this] { sweep_once(); });
}

/// Kills orphans until there are none: each that dies may hand its own children over to us.
void Sweeper::sweep_once() {
    if (!sweep_until_) {
        return;
    }
    const std::set<pid_t> alive = kill_orphans(spared(), mark_among_strangers());
    const bool too_long = Clock::now() >= *sweep_until_;
    if (alive.empty() || too_long) {
        for (const pid_t pid : alive) {
            log_.warning("left after SIGKILL: {}", describe_kernel_wait("/proc", pid));
        }
        sweep_until_.reset();
        sweep_timer_.cancel();
        std::exchange(swept_, nullptr)();
        return;
    }
    // CHLD brings us back; the timer is for one that is merged with another.
    sweep_timer_.expires_after(limits::kSweepInterval);
    sweep_timer_.async_wait([this](const boost::system::error_code& error) {
        if (!error) {
            sweep_once();
        }
    });
}

void Sweeper::child_signalled() {
    if (sweep_until_) {
        sweep_once();
        return;
    }
    if (std::exchange(reap_armed_, true)) {
        return;
    }
    // Workers are awaited by their pidfds; orphans can wait until several are reaped at once.
    reap_timer_.expires_after(limits::kReapDelay);
    reap_timer_.async_wait([this](const boost::system::error_code& error) {
        reap_armed_ = false;
        if (!error) {
            reap_orphans(owned_());
        }
    });
}

void Sweeper::stop() {
    sweep_until_.reset();
    sweep_timer_.cancel();
    reap_timer_.cancel();
}

void Sweeper::sweep_now() {
    sweep_children(spared(), mark_among_strangers());
}

}  // namespace ddprun
