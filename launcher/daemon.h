// ddprund: the rendezvous daemon, for clusters that keep the rendezvous off the training nodes.
// Serves agents of any number of jobs, TCPStore clients, or the store alone.
#pragma once

#include "launcher/daemon_options.h"

namespace ddprun::launcher {

/// Serves until TERM or INT, which end it with status 0 once connected clients have their answers.
/// The first line on stdout is "listening on ADDRESS:PORT". HUP reopens the log file, USR1 writes
/// what the store counts as one log line. Sockets that
/// a service manager hands down (LISTEN_FDS) are served instead of --listen.
[[nodiscard]] int run_daemon(const DaemonCommand& command);

}  // namespace ddprun::launcher
