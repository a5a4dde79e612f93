// Client of a TCPStore-compatible server (ours, or PyTorch's from 2.5 on): blocking calls with
// deadlines over plain sockets, no Asio, so that a worker in any C++ program can use it.
//
// Threads: every call may be made from any thread. A call has a connection to itself while it runs
// (taken from a small pool, opened where none is idle), so a wait() that blocks in one thread
// delays no other. Order: when a call that writes has returned, the server has applied it; what any
// thread calls afterwards sees it. Reconnection: a call that finds its idle connection dead opens
// another before it sends anything. A request that may have been applied is never sent again: the
// call fails with Errc::connection_lost instead. Names are looked up in a thread of their own, so
// that a resolver that doesn't answer outlasts no deadline. Keys are sent with `key_prefix` before
// them; the default is PyTorch's own, so both see the same keys.
#pragma once

#include "proto/result.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ddprun {

struct StoreClientOptions {
    std::string host;  ///< numeric, or a name (looked up at each connect)
    std::uint16_t port = 0;
    std::string key_prefix = "/";
    std::chrono::milliseconds timeout{300'000};         ///< of a call that isn't given its own
    std::chrono::milliseconds connect_timeout{60'000};  ///< retries with backoff until then
};

class StoreClient {
public:
    using Timeout = std::optional<std::chrono::milliseconds>;
    using Keys = std::vector<std::string>;
    using KeyValues = std::vector<std::pair<std::string, std::string>>;

    /// Connects, retrying until options.connect_timeout: the server may still be starting.
    [[nodiscard]] static Result<std::unique_ptr<StoreClient>> connect(StoreClientOptions options);

    StoreClient(const StoreClient&) = delete;
    StoreClient& operator=(const StoreClient&) = delete;
    ~StoreClient();

    Result<void> set(std::string_view key, std::string_view value);

    /// Waits until the key exists; Errc::timed_out when it doesn't in time.
    Result<std::string> get(std::string_view key, Timeout timeout = {});

    /// Adds to a decimal counter (absent: 0) and returns the sum.
    Result<std::int64_t> add(std::string_view key, std::int64_t delta);

    /// Whether all keys exist, now.
    Result<bool> check(const Keys& keys);

    /// Waits until all keys exist. Timeout zero: fails at once where one is missing.
    Result<void> wait(const Keys& keys, Timeout timeout = {});

    /// Stores `desired` where the value is `expected` (or the key absent and `expected` empty);
    /// returns the value that stands then, or `expected` where the key is absent.
    Result<std::string> compare_set(
        std::string_view key, std::string_view expected, std::string_view desired
    );

    /// Waits for all keys, then returns their values in order.
    Result<std::vector<std::string>> multi_get(const Keys& keys, Timeout timeout = {});
    Result<void> multi_set(const KeyValues& pairs);
    Result<void> append(std::string_view key, std::string_view value);

    /// Whether there was such a key.
    Result<bool> remove(std::string_view key);

    /// Of the whole server, keys of other prefixes too.
    Result<std::int64_t> num_keys();

    /// Those that begin with key_prefix, without it.
    Result<Keys> list_keys();

    Result<void> queue_push(std::string_view key, std::string_view value);

    /// Waits until the queue has a value and takes the oldest.
    Result<std::string> queue_pop(std::string_view key, Timeout timeout = {});

    /// Takes the oldest value, if there is one now.
    Result<std::optional<std::string>> try_queue_pop(std::string_view key);
    Result<std::int64_t> queue_len(std::string_view key);

    /// Waits until `world_size` calls with this key have been made. After a time-out this call
    /// still counts, and a completed barrier stays open: use each key once.
    Result<void> barrier(std::string_view key, std::int64_t world_size, Timeout timeout = {});

    /// One round trip.
    Result<void> ping();

    [[nodiscard]] const StoreClientOptions& options() const;

private:
    class Implementation;

    explicit StoreClient(std::unique_ptr<Implementation> implementation);

    std::unique_ptr<Implementation> implementation_;
};

}  // namespace ddprun
