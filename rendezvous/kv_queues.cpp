// The queues of KvState, which are no keys: first in, first out, each push for one consumer.
#include "rendezvous/kv_state.h"

namespace ddprun {

void KvState::handle(ClientId, const QueuePushRequest& request, KvEffects& effects) {
    const auto found = queues_.find(request.key);
    const std::size_t length = found == queues_.end() ? 0 : found->second.size();
    if (length >= limits_.queue_length_max ||
        counters_.bytes + request.key.size() + request.value.size() > limits_.bytes_max) {
        refuse("the queue is full", effects);
        return;
    }
    if (found == queues_.end()) {
        foreign_runs_.stored(request.key);
    }
    auto& queue = found == queues_.end() ? queues_[std::string{request.key}] : found->second;
    queue.push_back(StoreValue{request.value});
    counters_.bytes += request.key.size() + request.value.size();
    counters_.queues = queues_.size();
    wake_one(request.key, effects);
}

void KvState::handle(ClientId, const QueuePopRequest& request, KvEffects& effects) {
    const auto found = queues_.find(request.key);
    if (found == queues_.end()) {
        effects.reply.number(0);
        return;
    }
    std::deque<StoreValue>& queue = found->second;
    effects.reply.number(static_cast<std::int64_t>(queue.size()));
    effects.reply.value(queue.front());
    counters_.bytes -= found->first.size() + queue.front().size();
    queue.pop_front();
    if (queue.empty()) {
        remove_queue(request.key);
    }
}

void KvState::handle(ClientId, const QueueLengthRequest& request, KvEffects& effects) {
    const auto found = queues_.find(request.key);
    const std::size_t length = found == queues_.end() ? 0 : found->second.size();
    effects.reply.number(static_cast<std::int64_t>(length));
}

/// With what is in it, where there is one.
void KvState::remove_queue(std::string_view key) {
    const auto found = queues_.find(key);
    if (found == queues_.end()) {
        return;
    }
    for (const StoreValue& value : found->second) {
        counters_.bytes -= key.size() + value.size();
    }
    queues_.erase(found);
    counters_.queues = queues_.size();
    note_gone(key);
}

}  // namespace ddprun
