// By which of this machine's addresses the other ranks should reach it: the one from which
// MASTER_ADDR is reached. No LibTorch in it.
#pragma once

#include "proto/result.h"

#include <cstdint>
#include <string>

namespace ddprun::trainer {

/// A numeric local address. Loopback when the host is this machine under a loopback name or
/// address, unless `several_nodes` and it was a name: then other nodes see another address behind
/// that name, and the first interface that is up and not loopback is taken. Resolves names, and may
/// block.
[[nodiscard]] Result<std::string> local_address_towards(
    const std::string& host, std::uint16_t port, bool several_nodes
);

}  // namespace ddprun::trainer
