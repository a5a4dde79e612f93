// What a program prints because it was asked to (help, a plan, a version): a full disk or a closed
// pipe behind stdout must not look like success.
#pragma once

#include <string_view>

namespace ddprun {

/// Writes `text` to stdout, flushed. The exit status: 0; kCannotCreate after one line on stderr
/// that begins with the name of the program; where the reader has seen enough, as after SIGPIPE.
[[nodiscard]] int print_asked_for(std::string_view program, std::string_view text);

}  // namespace ddprun
