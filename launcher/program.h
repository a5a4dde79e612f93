// From the program that the user named to what is executed: PATH, then the folder of ddprun itself,
// python3 -u for .py files and modules. The file system is asked, nothing is started.
#pragma once

#include "launcher/options.h"
#include "proto/result.h"

#include <filesystem>
#include <string>
#include <vector>

namespace ddprun::launcher {

struct Program {
    std::string path;  ///< what is executed: absolute, or relative to the working folder
    std::vector<std::string> argv;  ///< with argv[0]
};

/// `own_folder` is where ddprun itself lies. Errors: Errc::not_found (status 127),
/// Errc::permission_denied (status 126); the context names the program and where it was looked for.
[[nodiscard]] Result<Program> resolve_program(
    const LaunchCommand& command,
    const Environment& environment,
    const std::filesystem::path& own_folder
);

}  // namespace ddprun::launcher
