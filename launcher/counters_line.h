// What a store counts, for people and programs.
#pragma once

#include "rendezvous/kv_state.h"
#include "rendezvous/store_server.h"

#include <string>

namespace ddprun::launcher {

/// "counters {...}": a JSON object of whole numbers, one for each counter, under its name.
[[nodiscard]] std::string counters_line(const StoreCounters& server, const KvCounters& state);

}  // namespace ddprun::launcher
