// A KvState with its clients' replies kept as text, for tests: send() is one request of one client,
// read() what that client has got since.
#pragma once

#include "rendezvous/kv_state.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace ddprun {

class KvHarness {
public:
    explicit KvHarness(KvLimits limits = {}) : state_(limits) {}

    /// The reason when the request was refused, else empty. Releases go to the clients released.
    std::string_view send(std::uint64_t client, const StoreRequest& request) {
        ReplyBuffer reply;
        KvEffects effects{reply};
        state_.apply(ClientId{client}, request, effects);
        replies_[client] += reply.text();
        for (const ClientId released : effects.released) {
            replies_[released.value()] += static_cast<char>(kStopWaiting);
        }
        return effects.offence;
    }

    /// Sends, and returns what the client has got, all of it.
    std::string ask(std::uint64_t client, const StoreRequest& request) {
        send(client, request);
        return read(client);
    }

    std::string read(std::uint64_t client) {
        std::string text;
        text.swap(replies_[client]);
        return text;
    }

    KvState& state() { return state_; }

    [[nodiscard]] const KvCounters& counters() const { return state_.counters(); }

private:
    KvState state_;
    std::map<std::uint64_t, std::string> replies_;
};

}  // namespace ddprun
