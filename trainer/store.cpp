#include "trainer/store.h"

#include <c10/util/Exception.h>
#include <c10/util/Logging.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <cstdlib>
#include <string_view>
#include <utility>

namespace ddprun::trainer {
namespace {

using Bytes = ClientStore::Bytes;

std::string_view text_of(const Bytes& bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Bytes bytes_of(const std::string& text) {
    return {text.begin(), text.end()};
}

[[noreturn]] void throw_error(const Error& error) {
    C10_THROW_ERROR(DistStoreError, error.context);
}

/// The value of a result, or its error thrown.
template <class T>
T take(Result<T> result) {
    if (!result) {
        throw_error(result.error());
    }
    return std::move(*result);
}

void take(const Result<void>& result) {
    if (!result) {
        throw_error(result.error());
    }
}

/// c10d: zero means for ever, which no call of ours is.
StoreClient::Timeout bounded(std::chrono::milliseconds timeout) {
    return timeout == c10d::Store::kNoTimeout ? StoreClient::Timeout(std::chrono::hours(24 * 365))
                                              : StoreClient::Timeout(timeout);
}

}  // namespace

ClientStore::ClientStore(std::shared_ptr<StoreClient> client, Milliseconds timeout)
    : Store(timeout),
      client_(std::move(client)) {}

c10::intrusive_ptr<c10d::Store> ClientStore::clone() {
    return c10::make_intrusive<ClientStore>(client_, timeout_);
}

void ClientStore::set(const std::string& key, const Bytes& value) {
    take(client_->set(key, text_of(value)));
}

Bytes ClientStore::compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) {
    return bytes_of(take(client_->compare_set(key, text_of(expected), text_of(desired))));
}

Bytes ClientStore::get(const std::string& key) {
    return bytes_of(take(client_->get(key, bounded(timeout_))));
}

std::int64_t ClientStore::add(const std::string& key, std::int64_t value) {
    return take(client_->add(key, value));
}

bool ClientStore::deleteKey(const std::string& key) {
    return take(client_->remove(key));
}

bool ClientStore::check(const Keys& keys) {
    return take(client_->check(keys));
}

std::int64_t ClientStore::getNumKeys() {
    return take(client_->num_keys());
}

void ClientStore::wait(const Keys& keys) {
    wait(keys, timeout_);
}

void ClientStore::wait(const Keys& keys, const Milliseconds& timeout) {
    take(client_->wait(keys, bounded(timeout)));
}

void ClientStore::append(const std::string& key, const Bytes& value) {
    take(client_->append(key, text_of(value)));
}

std::vector<Bytes> ClientStore::multiGet(const Keys& keys) {
    std::vector<Bytes> values;
    for (const auto& value : take(client_->multi_get(keys, bounded(timeout_)))) {
        values.push_back(bytes_of(value));
    }
    return values;
}

void ClientStore::multiSet(const Keys& keys, const std::vector<Bytes>& values) {
    TORCH_CHECK_WITH(
        DistStoreError, keys.size() == values.size(), "multiSet: as many values as keys, please"
    );
    StoreClient::KeyValues pairs;
    for (std::size_t i = 0; i < keys.size(); ++i) {
        pairs.emplace_back(keys[i], text_of(values[i]));
    }
    take(client_->multi_set(pairs));
}

void ClientStore::queuePush(const std::string& key, const Bytes& value) {
    take(client_->queue_push(key, text_of(value)));
}

Bytes ClientStore::queuePop(const std::string& key, bool block) {
    if (block) {
        return bytes_of(take(client_->queue_pop(key, bounded(timeout_))));
    }
    auto value = take(client_->try_queue_pop(key));
    TORCH_CHECK_WITH(DistStoreError, value.has_value(), "queue ", key, ": empty");
    return bytes_of(*value);
}

std::int64_t ClientStore::queueLen(const std::string& key) {
    return take(client_->queue_len(key));
}

std::vector<std::string> ClientStore::listKeys() {
    return take(client_->list_keys());
}

namespace {

/// LibTorch logs pages of its call stack where nobody answers; what it throws says the same in a
/// line, and is told once. Who sets its variable wants the pages.
class QuietLibTorch {
public:
    QuietLibTorch() : before_(FLAGS_caffe2_log_level) {
        if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) {
            FLAGS_caffe2_log_level = kFatalOnly;
        }
    }

    QuietLibTorch(const QuietLibTorch&) = delete;
    QuietLibTorch& operator=(const QuietLibTorch&) = delete;

    ~QuietLibTorch() { FLAGS_caffe2_log_level = before_; }

private:
    static constexpr int kFatalOnly = 3;

    int before_;
};

}  // namespace

Result<c10::intrusive_ptr<c10d::Store>> connect_store(
    const WorkerPlace& place, std::chrono::milliseconds timeout
) {
    c10::intrusive_ptr<c10d::Store> store;
    if (place.agent_hosts_store) {
        StoreClientOptions options;
        options.host = place.master_addr;
        options.port = place.master_port;
        options.timeout = timeout;
        options.connect_timeout = timeout;
        auto client = StoreClient::connect(std::move(options));
        if (!client) {
            return fail(client.error());
        }
        store = c10::make_intrusive<ClientStore>(
            std::shared_ptr<StoreClient>(std::move(*client)), timeout
        );
    } else {
        c10d::TCPStoreOptions options;
        options.port = place.master_port;
        options.isServer = place.rank == 0;
        options.waitWorkers = false;
        options.masterListenFd = place.listen_fd;
        options.timeout = timeout;
        const QuietLibTorch quiet;
        store = c10::make_intrusive<c10d::TCPStore>(place.master_addr, options);
    }
    return c10::intrusive_ptr<c10d::Store>(c10::make_intrusive<c10d::PrefixStore>(
        fmt::format("/worker/attempt_{}", place.restart_count), std::move(store)
    ));
}

}  // namespace ddprun::trainer
