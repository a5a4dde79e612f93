// The key-value store as a pure state machine: requests of clients in, replies and released waiters
// out. Semantics of PyTorch's TCPStore server (opcodes 0-18), with one readiness predicate for
// CHECK, WAIT and queues, requests applied whole or not at all, and a bound on everything. No
// sockets, no clock. Keys that a foreign torchrun left go some time after its last connection
// (ForeignRuns). Values are immutable and shared, never copied to those who read them.
//
// Call apply() with each whole request in the order of arrival; call client_gone() once when a
// client's connection is over. What a client has written stays when it goes. Call expire() when
// next_expiry() has come.
#pragma once

#include "proto/limits.h"
#include "proto/store_messages.h"
#include "rendezvous/client_id.h"
#include "rendezvous/foreign_runs.h"
#include "rendezvous/key_table.h"
#include "rendezvous/reply_buffer.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ddprun {

struct KvLimits {
    std::size_t keys_max;
    std::size_t bytes_max;                          ///< of all keys and values together
    std::size_t queue_length_max;                   ///< of one queue
    std::size_t listed_bytes_max;                   ///< of the reply to LIST_KEYS
    std::size_t registrations_max;                  ///< of all waiting clients together
    std::chrono::milliseconds foreign_run_timeout;  ///< of keys that a foreign torchrun left

    KvLimits();
};

struct KvCounters {
    std::size_t keys = 0;
    std::size_t queues = 0;
    std::size_t bytes = 0;
    std::size_t waiting_clients = 0;
    std::size_t registrations = 0;
    std::size_t foreign_runs = 0;    ///< of torchruns that keep keys here
    std::uint64_t expired_keys = 0;  ///< that such a run left and that went with time
    std::uint64_t requests = 0;
    std::uint64_t refused = 0;  ///< requests beyond a limit or that make no sense
};

/// What a request led to.
struct KvEffects {
    ReplyBuffer& reply;  ///< to the client that asked, after what it already has to get
    std::vector<ClientId>
        released{};              ///< clients whose wait is over, in order: each gets kStopWaiting
    std::string_view offence{};  ///< not empty: nothing was applied, close the client
};

class KvState {
public:
    explicit KvState(KvLimits limits = {})
        : limits_(limits),
          foreign_runs_(limits.foreign_run_timeout, limits::kForeignUsesMax) {}

    /// Appends to `effects`. A refused request leaves the state as it was.
    void apply(ClientId client, const StoreRequest& request, KvEffects& effects);

    /// Forgets that the client waits, and that it uses keys of a foreign run. `now` never falls.
    void client_gone(ClientId client, ForeignRuns::TimePoint now);

    /// Lets go of what was kept for clients that don't need it any more; costs next to nothing.
    void tidy() {
        if (listing_.holders() == 1) {
            listing_ = {};
        }
    }

    /// Removes keys of foreign runs that are due, limits::kKeysRemovedPerTurnMax at most; nobody is
    /// told.
    void expire(ForeignRuns::TimePoint now);

    [[nodiscard]] std::optional<ForeignRuns::TimePoint> next_expiry() const {
        return foreign_runs_.next();
    }

    [[nodiscard]] bool is_waiting(ClientId client) const { return waits_.contains(client); }

    [[nodiscard]] const KvCounters& counters() const { return counters_; }

private:
    struct Hash {
        using is_transparent = void;

        std::size_t operator()(std::string_view text) const {
            return std::hash<std::string_view>{}(text);
        }
    };

    template <class T>
    using TextMap = std::unordered_map<std::string, T, Hash, std::equal_to<>>;

    struct Registration;

    /// The registrations for one key, oldest first.
    struct WaiterList {
        Registration* first = nullptr;
        Registration* last = nullptr;
    };

    using WaiterMap = TextMap<WaiterList>;

    /// One missing key of one client's wait, a link of the key's list while the key is missing.
    struct Registration {
        ClientId client;
        WaiterMap::iterator list;
        Registration* previous = nullptr;
        Registration* next = nullptr;
        bool is_linked = false;
    };

    /// One client's pending WAIT or BARRIER: it is over when `missing` is 0. The vector never grows
    /// after the registrations are linked.
    struct Wait {
        std::size_t missing = 0;
        std::vector<Registration> registrations;
    };

    void handle(ClientId client, const ValidateRequest& request, KvEffects& effects);
    void handle(ClientId client, const SetRequest& request, KvEffects& effects);
    void handle(ClientId client, const CompareSetRequest& request, KvEffects& effects);
    void handle(ClientId client, const GetRequest& request, KvEffects& effects);
    void handle(ClientId client, const AddRequest& request, KvEffects& effects);
    void handle(ClientId client, const CheckRequest& request, KvEffects& effects);
    void handle(ClientId client, const WaitRequest& request, KvEffects& effects);
    void handle(ClientId client, const NumKeysRequest& request, KvEffects& effects);
    void handle(ClientId client, const DeleteKeyRequest& request, KvEffects& effects);
    void handle(ClientId client, const AppendRequest& request, KvEffects& effects);
    void handle(ClientId client, const MultiGetRequest& request, KvEffects& effects);
    void handle(ClientId client, const MultiSetRequest& request, KvEffects& effects);
    void handle(ClientId client, const CancelWaitRequest& request, KvEffects& effects);
    void handle(ClientId client, const PingRequest& request, KvEffects& effects);
    void handle(ClientId client, const QueuePushRequest& request, KvEffects& effects);
    void handle(ClientId client, const QueuePopRequest& request, KvEffects& effects);
    void handle(ClientId client, const QueueLengthRequest& request, KvEffects& effects);
    void handle(ClientId client, const ListKeysRequest& request, KvEffects& effects);
    void handle(ClientId client, const BarrierRequest& request, KvEffects& effects);

    [[nodiscard]] bool is_ready(std::string_view key) const;
    void reply_value(std::string_view key, KvEffects& effects) const;
    [[nodiscard]] bool fits(
        std::string_view key, const StoreValue* present, std::size_t value_bytes
    ) const;
    [[nodiscard]] bool fits_all(const MultiSetRequest& request) const;
    void store(StoreValue* present, StoreValue value);
    bool remove(std::string_view key);
    void remove_queue(std::string_view key);
    void note_gone(std::string_view key);
    void note_uses(ClientId client, const StoreRequest& request);
    void end_wait(ClientId client);
    void register_wait(ClientId client, const std::vector<std::string_view>& keys);
    [[nodiscard]] Registration* first_waiter(std::string_view key) const;
    void wake_all(std::string_view key, KvEffects& effects);
    void wake_one(std::string_view key, KvEffects& effects);
    bool arrive(Registration& registration, KvEffects& effects);
    void link(Registration& registration, std::string_view key);
    void unlink(Registration& registration);
    void refuse(std::string_view reason, KvEffects& effects);

    KvLimits limits_;
    KvCounters counters_;
    KeyTable keys_;
    StoreValue listing_;  ///< the last reply to LIST_KEYS, while a client has still to get it
    TextMap<std::deque<StoreValue>> queues_;
    ForeignRuns foreign_runs_;
    WaiterMap waiters_;
    std::unordered_map<ClientId, Wait> waits_;
};

}  // namespace ddprun
