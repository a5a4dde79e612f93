// The options by which a job bears nodes that come and go, and by which it chooses addresses and
// ports.
#pragma once

#include "launcher/option_reader.h"
#include "launcher/options.h"
#include "rendezvous/listen_socket.h"

#include <string_view>

namespace ddprun::launcher {

/// "SIGUSR1", "USR1" or "10". Errors: Errc::invalid_argument.
[[nodiscard]] Result<int> parse_signal(std::string_view text);

/// "LO-HI". Errors: Errc::invalid_argument.
[[nodiscard]] Result<PortRange> parse_port_range(std::string_view text);

/// Reads them into `command`, whose numbers of nodes are known.
void read_membership(Reader& reader, LaunchCommand& command);

}  // namespace ddprun::launcher
