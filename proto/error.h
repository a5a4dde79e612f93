// The errors that are expected to happen: a code for programs, a context for people. The context is
// built once, at the boundary where the failure is seen, and says what was attempted, on what, what
// happened and, where known, what to try.
#pragma once

#include <string>
#include <string_view>
#include <system_error>

namespace ddprun {

enum class Errc {
    invalid_argument,    ///< a value from the user or a caller that can't be used
    malformed,           ///< bytes that don't follow their format
    limit_exceeded,      ///< a bound of proto/limits.h would be broken
    not_found,           ///< a file, name, program or key that isn't there
    permission_denied,   ///< the system refuses
    io_error,            ///< a system call failed for another reason
    connection_refused,  ///< nobody listens there
    connection_lost,     ///< the peer closed, or the network did
    timed_out,           ///< a deadline passed
    version_mismatch,    ///< the peer speaks another version
    refused,             ///< the peer understood and declined
    closed,              ///< used after its end
    unsupported,         ///< not in this build or on this machine
    internal,            ///< a bug of ours
};

/// The name of a code, for example "timed_out".
[[nodiscard]] std::string_view to_string(Errc code);

struct Error {
    Errc code = Errc::internal;
    std::string context;
};

/// "CONTEXT: ERRNO TEXT", with the code that fits `error_number` (an errno value).
[[nodiscard]] Error from_errno(int error_number, std::string_view context);

/// "CONTEXT: TEXT" from a system or Asio error code.
[[nodiscard]] Error from_error_code(const std::error_code& error_code, std::string_view context);

}  // namespace ddprun
