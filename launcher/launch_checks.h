// What a command line asks for and this machine or process may not have: looked at before anything
// is started, so that it is one line and status 2 instead of a failure of the job. The errors begin
// with the option.
#pragma once

#include "launcher/options.h"
#include "proto/result.h"
#include "proto/types.h"

#include <string>

namespace ddprun::launcher {

/// Descriptors of --pass_fds are open, the file of --report can be written, and --log_dir is or can
/// be made a folder that takes files (it is made). Errors: invalid_argument.
[[nodiscard]] Result<void> check_files(const LaunchCommand& command);

/// --stdin names one of this node's workers, and with --virtual_local_rank CUDA_VISIBLE_DEVICES has
/// one device for each. Errors: invalid_argument.
[[nodiscard]] Result<void> check_workers(
    const LaunchCommand& command, const Environment& environment, LocalWorldSize workers
);

/// The numeric address of this node that --iface or --local_addr (a name, too) asks for; empty
/// where neither is given. May ask the resolver, and block. Errors: not_found, invalid_argument.
[[nodiscard]] Result<std::string> asked_address(const LaunchCommand& command);

}  // namespace ddprun::launcher
