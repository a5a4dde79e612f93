// The key-value store over which a job's workers find each other, as LibTorch's c10d::Store: on our
// own client where an agent hosts the store, else LibTorch's TCPStore, of which rank 0 is the
// server.
#pragma once

#include "proto/result.h"
#include "rendezvous/client.h"
#include "trainer/worker_place.h"

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ddprun::trainer {

/// c10d::Store on ddprun::StoreClient. Safe from several threads. A failure is thrown as
/// c10::DistStoreError with the client's text. Copies made by clone() share the connections and
/// have a time-out of their own.
class ClientStore final : public c10d::Store {
public:
    using Bytes = std::vector<std::uint8_t>;
    using Keys = std::vector<std::string>;
    using Milliseconds = std::chrono::milliseconds;

    ClientStore(std::shared_ptr<StoreClient> client, Milliseconds timeout);

    c10::intrusive_ptr<c10d::Store> clone() override;
    void set(const std::string& key, const Bytes& value) override;
    Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) override;
    Bytes get(const std::string& key) override;
    std::int64_t add(const std::string& key, std::int64_t value) override;
    bool deleteKey(const std::string& key) override;
    bool check(const Keys& keys) override;
    std::int64_t getNumKeys() override;
    void wait(const Keys& keys) override;
    void wait(const Keys& keys, const Milliseconds& timeout) override;
    void append(const std::string& key, const Bytes& value) override;
    std::vector<Bytes> multiGet(const Keys& keys) override;
    void multiSet(const Keys& keys, const std::vector<Bytes>& values) override;

    bool hasExtendedApi() const override { return true; }

    void queuePush(const std::string& key, const Bytes& value) override;
    Bytes queuePop(const std::string& key, bool block) override;
    std::int64_t queueLen(const std::string& key) override;
    /// Virtual in newer LibTorch only.
    virtual std::vector<std::string> listKeys();

    using c10d::Store::compareSet;
    using c10d::Store::set;

private:
    std::shared_ptr<StoreClient> client_;
};

/// The job's store at MASTER_ADDR:MASTER_PORT, under the prefix of this start of the workers, so
/// that no key of an earlier start is seen. Blocks for at most `timeout`, which also becomes the
/// time-out of its operations. LibTorch's own store throws where it can't connect.
[[nodiscard]] Result<c10::intrusive_ptr<c10d::Store>> connect_store(
    const WorkerPlace& place, std::chrono::milliseconds timeout
);

}  // namespace ddprun::trainer
