// ddprund: the rendezvous daemon, for clusters that keep the rendezvous off the training nodes.
// Serves agents of any number of jobs, TCPStore clients, or the store alone.
#pragma once

#include "proto/log.h"
#include "proto/result.h"
#include "rendezvous/endpoint.h"

#include <string>
#include <vector>

namespace ddprun::launcher {

struct DaemonCommand {
    Endpoint listen;          ///< port 0: a free one
    bool store_only = false;  ///< no agents
    LogLevel log_level = LogLevel::info;
    std::string log_file;  ///< empty: stderr
    bool show_help = false;
    bool show_version = false;
};

/// `arguments` without argv[0]. Errors: Errc::invalid_argument; the context is the sentence for the
/// user.
[[nodiscard]] Result<DaemonCommand> parse_daemon_command(const std::vector<std::string>& arguments);

[[nodiscard]] std::string daemon_help_text();

/// Serves until TERM or INT, which end it with status 0 once connected clients have their answers.
/// The first line on stdout is "listening on ADDRESS:PORT". HUP reopens the log file. Sockets that
/// a service manager hands down (LISTEN_FDS) are served instead of --listen.
[[nodiscard]] int run_daemon(const DaemonCommand& command);

}  // namespace ddprun::launcher
