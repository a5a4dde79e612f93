#include "proto/standard_output.h"

#include "proto/error.h"
#include "proto/exit_codes.h"

#include <fmt/format.h>

#include <signal.h>

#include <cerrno>
#include <cstdio>

namespace ddprun {

int print_asked_for(std::string_view program, std::string_view text) {
    const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
    if (written && std::fflush(stdout) == 0) {
        return exit_code::kSuccess;
    }
    if (errno == EPIPE) {
        return exit_code::from_signal(SIGPIPE);
    }
    const Error error = from_errno(errno, "write to standard output");
    fmt::print(
        stderr, "{}: {}; is the disk full, or standard output closed?\n", program, error.context
    );
    return exit_code::kCannotCreate;
}

}  // namespace ddprun
