#include "rendezvous/deadline_queues.h"

#include <algorithm>
#include <utility>

namespace ddprun {

DeadlineQueues::DeadlineQueues(
    boost::asio::io_context& io_context,
    std::array<Clock::duration, kKinds> lengths,
    Handlers handlers
)
    : timer_(io_context),
      lengths_(lengths),
      handlers_(std::move(handlers)) {}

void DeadlineQueues::set(Member& member, Kind kind) {
    clear(member, kind);
    Member::Slot& slot = member.slot(kind);
    Queue& queue = queues_[static_cast<std::size_t>(kind)];
    slot.at = Clock::now() + lengths_[static_cast<std::size_t>(kind)];
    slot.place = queue.insert(queue.end(), &member);
    slot.is_set = true;
    if (!armed_for_ || slot.at < *armed_for_) {
        arm();
    }
}

void DeadlineQueues::clear(Member& member, Kind kind) {
    Member::Slot& slot = member.slot(kind);
    if (slot.is_set) {
        queues_[static_cast<std::size_t>(kind)].erase(slot.place);
        slot.is_set = false;
    }
}

void DeadlineQueues::clear_all(Member& member) {
    for (const Kind kind : {Kind::handshake, Kind::progress, Kind::request}) {
        clear(member, kind);
    }
}

void DeadlineQueues::wake_by(std::optional<Clock::time_point> at) {
    others_at_ = at;
    if (at && (!armed_for_ || *at < *armed_for_)) {
        arm();
    }
}

void DeadlineQueues::close() {
    is_closed_ = true;
    timer_.cancel();
}

/// For the earliest; a timer that is too early costs a look.
void DeadlineQueues::arm() {
    armed_for_ = others_at_;
    for (const Kind kind : {Kind::handshake, Kind::progress, Kind::request}) {
        const Queue& queue = queues_[static_cast<std::size_t>(kind)];
        if (!queue.empty()) {
            const Clock::time_point at = queue.front()->slot(kind).at;
            armed_for_ = armed_for_ ? std::min(*armed_for_, at) : at;
        }
    }
    if (!armed_for_ || is_closed_) {
        return;
    }
    timer_.expires_at(*armed_for_);
    timer_.async_wait([weak = weak_from_this()](const boost::system::error_code& error) {
        const auto self = weak.lock();
        if (!error && self != nullptr) {
            self->on_timer();
        }
    });
}

void DeadlineQueues::on_timer() {
    const Clock::time_point now = Clock::now();
    for (const Kind kind : {Kind::handshake, Kind::progress, Kind::request}) {
        Queue& queue = queues_[static_cast<std::size_t>(kind)];
        while (!queue.empty() && queue.front()->slot(kind).at <= now) {
            handlers_.late(*queue.front(), kind);
        }
    }
    others_at_ = handlers_.others(now);
    arm();
}

}  // namespace ddprun
