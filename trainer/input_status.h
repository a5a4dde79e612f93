// The exit status that an error of something read by the trainer (data, weights, checkpoint) stands
// for. What can't be written is always exit_code::kCannotCreate.
#pragma once

#include "proto/error.h"
#include "proto/exit_codes.h"

namespace ddprun::trainer {

[[nodiscard]] inline int status_of_input(const Error& error) {
    switch (error.code) {
        case Errc::invalid_argument: return exit_code::kUsage;
        case Errc::malformed:
        case Errc::limit_exceeded:
        case Errc::version_mismatch:
        case Errc::unsupported: return exit_code::kData;
        case Errc::not_found:
        case Errc::permission_denied:
        case Errc::io_error:
        case Errc::connection_refused:
        case Errc::connection_lost:
        case Errc::timed_out:
        case Errc::refused:
        case Errc::closed: return exit_code::kNoInput;
        case Errc::internal: return exit_code::kInternal;
    }
    return exit_code::kInternal;
}

}  // namespace ddprun::trainer
