// How long a store waits for a client.
#pragma once

#include "proto/limits.h"

#include <chrono>

namespace ddprun {

struct StoreDeadlines {
    std::chrono::milliseconds handshake = limits::kHandshakeTimeout;  ///< for the first request
    std::chrono::milliseconds progress = limits::kProgressTimeout;    ///< without a byte in or out
    std::chrono::milliseconds request = limits::kRequestTimeout;      ///< for one whole request
    std::chrono::milliseconds stop =
        limits::kStoreStopTimeout;  ///< to write what is due at the end
};

}  // namespace ddprun
