// Who listens on a TCP port of this machine, from /proc: for the message of a port that is taken.
#pragma once

#include "proto/types.h"

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

namespace ddprun::launcher {

/// Inodes of the sockets that listen on `port`, from the text of /proc/net/tcp or tcp6. Pure.
[[nodiscard]] std::set<std::uint64_t> listening_inodes(std::string_view table, Port port);

/// "port 29400 is held by pid 4711 (python3)", or that it is a process which this user can't see.
[[nodiscard]] std::string holder_of_port(Port port);

}  // namespace ddprun::launcher
