#include "proto/error.h"

#include <fmt/format.h>

#include <cerrno>

namespace ddprun {

namespace {

Errc code_of_errno(int error_number) {
    switch (error_number) {
        case ENOENT:
        case ENOTDIR: return Errc::not_found;
        case EACCES:
        case EPERM: return Errc::permission_denied;
        case ECONNREFUSED: return Errc::connection_refused;
        case ECONNRESET:
        case ECONNABORTED:
        case EPIPE: return Errc::connection_lost;
        case ETIMEDOUT: return Errc::timed_out;
        case EINVAL: return Errc::invalid_argument;
        default: return Errc::io_error;
    }
}

}  // namespace

std::string_view to_string(Errc code) {
    switch (code) {
        case Errc::invalid_argument: return "invalid_argument";
        case Errc::malformed: return "malformed";
        case Errc::limit_exceeded: return "limit_exceeded";
        case Errc::not_found: return "not_found";
        case Errc::permission_denied: return "permission_denied";
        case Errc::io_error: return "io_error";
        case Errc::connection_refused: return "connection_refused";
        case Errc::connection_lost: return "connection_lost";
        case Errc::timed_out: return "timed_out";
        case Errc::version_mismatch: return "version_mismatch";
        case Errc::refused: return "refused";
        case Errc::closed: return "closed";
        case Errc::unsupported: return "unsupported";
        case Errc::internal: return "internal";
    }
    return "unknown";
}

Error from_errno(int error_number, std::string_view context) {
    return from_error_code(std::error_code(error_number, std::generic_category()), context);
}

Error from_error_code(const std::error_code& error_code, std::string_view context) {
    const bool is_errno = error_code.category() == std::generic_category() ||
                          error_code.category() == std::system_category();
    const Errc code = is_errno ? code_of_errno(error_code.value()) : Errc::io_error;
    return Error{code, fmt::format("{}: {}", context, error_code.message())};
}

}  // namespace ddprun
