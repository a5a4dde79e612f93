// How the trainer's own steps fail: with the line for the user and the program's exit status
// (proto/exit_codes.h).
#pragma once

#include "proto/error.h"
#include "proto/exit_codes.h"
#include "trainer/input_status.h"

#include <tl/expected.hpp>

#include <string>
#include <utility>

namespace ddprun::trainer {

struct Failure {
    int status = exit_code::kInternal;
    std::string line;  ///< empty: another rank says it
};

template <class T>
using Outcome = tl::expected<T, Failure>;

[[nodiscard]] inline tl::unexpected<Failure> stop_with(int status, std::string line) {
    return tl::unexpected<Failure>(Failure{status, std::move(line)});
}

/// An error of something that was read.
[[nodiscard]] inline tl::unexpected<Failure> input_failed(const Error& error) {
    return stop_with(status_of_input(error), error.context);
}

/// An error of something that was written.
[[nodiscard]] inline tl::unexpected<Failure> output_failed(const Error& error) {
    return stop_with(exit_code::kCannotCreate, error.context);
}

}  // namespace ddprun::trainer
