// Completion scripts of ddprun for shells, made from the option table. Each completes ddprun's own
// options and their values up to the program, and leaves what follows to the program's own
// completion (bash, zsh) or to file names.
#pragma once

#include <string>
#include <string_view>

namespace ddprun::launcher {

/// `shell` is bash, zsh, fish or tcsh.
[[nodiscard]] std::string completion_script(std::string_view shell);

}  // namespace ddprun::launcher
