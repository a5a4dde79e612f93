// The readiness of many sockets through one descriptor of the loop: an epoll of our own, which Asio
// awaits. Asio keeps a few hundred bytes for every descriptor that it has ever seen, and asks the
// kernel once more after each message whether there is another one; here a socket costs nothing
// beside its kernel object, and level-triggered events make the further question needless.
//
// Everything happens on the io_context's one thread. A watcher may add and remove any watcher,
// itself too, and destroy the Readiness, while it is told of an event: who was removed hears no
// more. After a bounded number of events others on the loop have their turn.
#pragma once

#include "proto/result.h"
#include "rendezvous/unique_fd.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <sys/epoll.h>

#include <array>
#include <cstddef>
#include <memory>

namespace ddprun {

/// What a socket can be asked for, or is ready for.
struct Ready {
    bool to_read = false;
    bool to_write = false;

    friend bool operator==(const Ready&, const Ready&) = default;
};

class Readiness : public std::enable_shared_from_this<Readiness> {
public:
    class Watcher {
    public:
        /// An end or an error of the connection counts as both: the next call says which it is.
        virtual void on_ready(Ready ready) = 0;

    protected:
        ~Watcher() = default;
    };

    /// Errors: no descriptor is left.
    [[nodiscard]] static Result<std::shared_ptr<Readiness>> open(boost::asio::io_context& io_context
    );

    Readiness(const Readiness&) = delete;
    Readiness& operator=(const Readiness&) = delete;
    ~Readiness() = default;

    /// False: the kernel has no room for another one. The watcher is told of `wanted` as long as it
    /// is the case, until it is removed, which comes before the descriptor is closed.
    [[nodiscard]] bool add(int fd, Watcher& watcher, Ready wanted);
    void change(int fd, Watcher& watcher, Ready wanted);
    void remove(int fd, Watcher& watcher);

    /// Tells nobody anything any more, and keeps the loop no longer from running out of work.
    void close();

    /// Most events in one turn of the loop.
    static constexpr std::size_t kEventsPerTurnMax = 256;

private:
    Readiness(boost::asio::io_context& io_context, UniqueFd epoll);
    void wait();
    void tell();

    static constexpr std::size_t kEventsAtOnce = 64;
    /// After so many others have probably come meanwhile.
    static constexpr std::size_t kEventsOfBusyTurn = 16;

    boost::asio::posix::stream_descriptor epoll_;
    std::array<epoll_event, kEventsAtOnce> events_{};  ///< without a watcher: it was removed
    std::size_t next_ = 0;                             ///< of events_, to be told
    std::size_t count_ = 0;
    bool is_awaited_ = false;  ///< from the first socket on
};

}  // namespace ddprun
