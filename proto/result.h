// Result<T>: a value, or an Error that says why there is none. Ignoring one is a warning, and so an
// error in CI.
#pragma once

#include "proto/error.h"

#include <tl/expected.hpp>

#include <string>
#include <utility>

namespace ddprun {

template <class T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
public:
    using tl::expected<T, Error>::expected;
};

/// `return fail(Errc::not_found, "open x: ...")` in a function that returns any Result.
[[nodiscard]] inline tl::unexpected<Error> fail(Errc code, std::string context) {
    return tl::unexpected<Error>(Error{code, std::move(context)});
}

[[nodiscard]] inline tl::unexpected<Error> fail(Error error) {
    return tl::unexpected<Error>(std::move(error));
}

}  // namespace ddprun
