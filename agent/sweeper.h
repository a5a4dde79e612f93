// What workers leave behind: processes whose parents have ended become children of this one (a
// subreaper). The sweeper reaps those that end, and kills all of them when a round is over. Its
// owner hands it every CHLD.
#pragma once

#include "proto/log.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <string>

namespace ddprun {

class Sweeper {
public:
    /// `owned` names the children that somebody else reaps. Children that this process has at this
    /// moment aren't ours and stay alive. `mark` (NAME=VALUE) is what the workers carry.
    Sweeper(
        boost::asio::io_context& io_context,
        std::string mark,
        std::function<std::set<pid_t>()> owned,
        Log& log
    );
    Sweeper(const Sweeper&) = delete;
    Sweeper& operator=(const Sweeper&) = delete;

    /// Kills what is left, not before the next turn of the loop; `swept` is called when nothing is,
    /// or after kSweepTimeMax, when what lives on has been named in the log.
    void sweep(std::function<void()> swept);

    void child_signalled();

    /// No timer is armed and no handler is called afterwards.
    void stop();

    /// The same as sweep() without the loop, for a process that ends at once.
    void sweep_now();

private:
    void sweep_once();
    [[nodiscard]] std::set<pid_t> spared() const;
    [[nodiscard]] std::string mark_among_strangers() const;

    boost::asio::io_context& io_context_;
    const std::string mark_;
    std::function<std::set<pid_t>()> owned_;
    Log& log_;
    std::set<pid_t> foreign_;  ///< our children before we were this program
    boost::asio::steady_timer sweep_timer_;
    std::optional<std::chrono::steady_clock::time_point> sweep_until_;
    std::function<void()> swept_;
    boost::asio::steady_timer reap_timer_;
    bool reap_armed_ = false;
};

}  // namespace ddprun
