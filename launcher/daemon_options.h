// The command line of ddprund.
#pragma once

#include "proto/limits.h"
#include "proto/log.h"
#include "proto/result.h"
#include "rendezvous/endpoint.h"
#include "rendezvous/store_deadlines.h"

#include <chrono>
#include <string>
#include <vector>

namespace ddprun::launcher {

struct DaemonCommand {
    Endpoint listen;          ///< port 0: a free one
    bool store_only = false;  ///< no agents
    StoreDeadlines deadlines;
    std::chrono::milliseconds foreign_keys_timeout = limits::kForeignRunTimeout;
    LogLevel log_level = LogLevel::info;
    std::string log_file;  ///< empty: stderr
    bool show_help = false;
    bool show_version = false;
};

/// `arguments` without argv[0]. Errors: Errc::invalid_argument; the context is the sentence for the
/// user.
[[nodiscard]] Result<DaemonCommand> parse_daemon_command(const std::vector<std::string>& arguments);

[[nodiscard]] std::string daemon_help_text();

}  // namespace ddprun::launcher
