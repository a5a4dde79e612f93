// The deadlines of many connections on one timer: a queue per kind of deadline, in which all have
// the same length, so that setting and clearing one costs the same whatever the crowd. One thread,
// that of the io_context. Made by make_shared; no handler is called once its owner has let go.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>

namespace ddprun {

class DeadlineQueues : public std::enable_shared_from_this<DeadlineQueues> {
public:
    using Clock = std::chrono::steady_clock;

    enum class Kind : std::uint8_t { handshake, progress, request };
    static constexpr std::size_t kKinds = 3;

    class Member;
    using Queue = std::list<Member*>;

    /// What has deadlines. It clears all of them before it goes.
    class Member {
    public:
        [[nodiscard]] bool has_deadline(Kind kind) const { return slot(kind).is_set; }

    protected:
        Member() = default;
        ~Member() = default;

    private:
        friend class DeadlineQueues;

        struct Slot {
            bool is_set = false;
            Clock::time_point at;
            Queue::iterator place;
        };

        [[nodiscard]] const Slot& slot(Kind kind) const {
            return slots_[static_cast<std::size_t>(kind)];
        }

        [[nodiscard]] Slot& slot(Kind kind) { return slots_[static_cast<std::size_t>(kind)]; }

        std::array<Slot, kKinds> slots_;
    };

    struct Handlers {
        /// A deadline has passed: the handler sets it anew or clears it.
        std::function<void(Member&, Kind)> late;
        /// Whatever else is due at `now`; says when to be called next.
        std::function<std::optional<Clock::time_point>(Clock::time_point now)> others;
    };

    DeadlineQueues(
        boost::asio::io_context& io_context,
        std::array<Clock::duration, kKinds> lengths,
        Handlers handlers
    );

    /// (Re)starts the deadline of this kind.
    void set(Member& member, Kind kind);
    void clear(Member& member, Kind kind);
    void clear_all(Member& member);

    /// Handlers.others is to be called at `at` the latest.
    void wake_by(std::optional<Clock::time_point> at);

    /// From now on nothing of it keeps the loop from running out of work.
    void close();

private:
    void arm();
    void on_timer();

    boost::asio::steady_timer timer_;
    std::array<Clock::duration, kKinds> lengths_;
    Handlers handlers_;
    std::array<Queue, kKinds> queues_;
    std::optional<Clock::time_point> others_at_;
    std::optional<Clock::time_point> armed_for_;
    bool is_closed_ = false;
};

}  // namespace ddprun
