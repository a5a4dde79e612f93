// A store's name for one connection.
#pragma once

#include "proto/types.h"

#include <cstdint>

namespace ddprun {

/// A connection, numbered by its server; never used twice.
using ClientId = Strong<struct ClientIdTag, std::uint64_t>;

}  // namespace ddprun
