// Who waits for which key: the second half of KvState. A client's registrations are links of their
// keys' lists, so that coming, going and being released each cost their own number only.
#include "proto/assert.h"
#include "rendezvous/kv_state.h"

namespace ddprun {

namespace {

/// Buckets that an empty table of waiters keeps.
constexpr std::size_t kKeptBucketsMax = 1'024;

}  // namespace

void KvState::client_gone(ClientId client, ForeignRuns::TimePoint now) {
    end_wait(client);
    foreign_runs_.gone(client, now);
    counters_.foreign_runs = foreign_runs_.size();
}

void KvState::end_wait(ClientId client) {
    const auto wait = waits_.find(client);
    if (wait == waits_.end()) {
        return;
    }
    for (Registration& registration : wait->second.registrations) {
        if (registration.is_linked) {
            unlink(registration);
        }
    }
    waits_.erase(wait);
    counters_.waiting_clients = waits_.size();
}

void KvState::register_wait(ClientId client, const std::vector<std::string_view>& keys) {
    Wait& wait = waits_[client];
    wait.missing = keys.size();
    wait.registrations.resize(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
        wait.registrations[i].client = client;
        link(wait.registrations[i], keys[i]);
    }
    counters_.waiting_clients = waits_.size();
}

void KvState::link(Registration& registration, std::string_view key) {
    auto list = waiters_.find(key);
    if (list == waiters_.end()) {
        list = waiters_.emplace(key, WaiterList{}).first;
    }
    registration.list = list;
    registration.previous = list->second.last;
    (registration.previous == nullptr ? list->second.first : registration.previous->next) =
        &registration;
    list->second.last = &registration;
    registration.is_linked = true;
    ++counters_.registrations;
}

void KvState::unlink(Registration& registration) {
    WaiterList& list = registration.list->second;
    (registration.previous == nullptr ? list.first : registration.previous->next) =
        registration.next;
    (registration.next == nullptr ? list.last : registration.next->previous) =
        registration.previous;
    registration.is_linked = false;
    --counters_.registrations;
    if (list.first == nullptr) {
        waiters_.erase(registration.list);
    }
    if (waiters_.empty() && waiters_.bucket_count() > kKeptBucketsMax) {
        waiters_ =
            WaiterMap{};  // else its table stays as large as the largest wait has ever made it
    }
}

/// The registration's key is there; true when that was the last one its client waited for.
bool KvState::arrive(Registration& registration, KvEffects& effects) {
    const ClientId client = registration.client;
    unlink(registration);
    const auto wait = waits_.find(client);
    DDPRUN_ASSERT(wait != waits_.end() && wait->second.missing > 0);
    if (--wait->second.missing > 0) {
        return false;
    }
    waits_.erase(wait);
    counters_.waiting_clients = waits_.size();
    effects.released.push_back(client);
    return true;
}

KvState::Registration* KvState::first_waiter(std::string_view key) const {
    if (waiters_.empty()) {
        return nullptr;  // the rule: spares a look-up
    }
    const auto list = waiters_.find(key);
    return list == waiters_.end() ? nullptr : list->second.first;
}

void KvState::wake_all(std::string_view key, KvEffects& effects) {
    Registration* next = first_waiter(key);
    while (next != nullptr) {
        Registration& registration = *next;
        next = registration.next;
        arrive(registration, effects);
    }
}

/// One pushed value serves one consumer: the first whose wait is over by it.
void KvState::wake_one(std::string_view key, KvEffects& effects) {
    Registration* next = first_waiter(key);
    while (next != nullptr) {
        Registration& registration = *next;
        next = registration.next;
        if (arrive(registration, effects)) {
            return;
        }
    }
}

}  // namespace ddprun
