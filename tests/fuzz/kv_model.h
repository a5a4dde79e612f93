// The store's semantics once more, written for plainness and nothing else: what KvState is checked
// against. Every list is searched from its front, nothing is shared, each limit is computed anew.
#pragma once

#include "rendezvous/kv_state.h"

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ddprun {

class KvModel {
public:
    explicit KvModel(KvLimits limits) : limits_(limits) {}

    struct Outcome {
        bool is_refused = false;
        std::string reply;
        std::vector<std::uint64_t> released;
    };

    Outcome apply(std::uint64_t client, const StoreRequest& request);
    void client_gone(std::uint64_t client);

    [[nodiscard]] std::size_t keys() const { return keys_.size(); }

    [[nodiscard]] std::size_t bytes() const { return bytes_of(keys_, queues_); }

    [[nodiscard]] std::size_t registrations() const { return registrations_.size(); }

    [[nodiscard]] std::size_t waiting_clients() const;

private:
    using Keys = std::map<std::string, std::string>;
    using Queues = std::map<std::string, std::deque<std::string>>;

    static std::size_t bytes_of(const Keys& keys, const Queues& queues);
    [[nodiscard]] bool is_ready(const std::string& key) const;
    [[nodiscard]] bool is_waiting(std::uint64_t client) const;
    bool change(Keys keys, Queues queues, Outcome& outcome);
    bool add(const std::string& key, std::int64_t delta, std::int64_t& sum, Outcome& outcome);
    void wait(std::uint64_t client, const std::vector<std::string>& keys, Outcome& outcome);
    void wake(const std::string& key, bool one_only, Outcome& outcome);

    void on(std::uint64_t client, const ValidateRequest& request, Outcome& outcome);
    void on(std::uint64_t client, const SetRequest& request, Outcome& outcome);
    void on(std::uint64_t client, const CompareSetRequest& request, Outcome& outcome);
    void on(std::uint64_t client, const GetRequest& request, Outcome& outcome);
    void on(std::uint64_t client, const AddRequest& request, Outcome& outcome);
    void on(std::uint64_t client, const CheckRequest& request, Outcome& outcome);
    void on(std::uint64_t client, const WaitRequest& request, Outcome& outcome);
    void on(std::uint64_t client, const NumKeysRequest& request, Outcome& outcome);
    void on(std::uint64_t client, const DeleteKeyRequest& request, Outcome& outcome);
    void on(std::uint64_t client, const AppendRequest& request, Outcome& outcome);
    void on(std::uint64_t client, const MultiGetRequest& request, Outcome& outcome);
    void on(std::uint64_t client, const MultiSetRequest& request, Outcome& outcome);
    void on(std::uint64_t client, const CancelWaitRequest& request, Outcome& outcome);
    void on(std::uint64_t client, const PingRequest& request, Outcome& outcome);
    void on(std::uint64_t client, const QueuePushRequest& request, Outcome& outcome);
    void on(std::uint64_t client, const QueuePopRequest& request, Outcome& outcome);
    void on(std::uint64_t client, const QueueLengthRequest& request, Outcome& outcome);
    void on(std::uint64_t client, const ListKeysRequest& request, Outcome& outcome);
    void on(std::uint64_t client, const BarrierRequest& request, Outcome& outcome);

    KvLimits limits_;
    Keys keys_;
    Queues queues_;
    std::vector<std::pair<std::uint64_t, std::string>>
        registrations_;  ///< client, key; oldest first
};

}  // namespace ddprun
