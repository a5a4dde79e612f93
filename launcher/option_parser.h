// From given options and the environment to one list of raw values for each option, by way of
// CLI11, which prints --help, too. The only file of ddprun with CLI11 in it.
#pragma once

#include "launcher/arguments.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::launcher {

using Environment = std::map<std::string, std::string>;

/// A value and where it came from, for messages: "--nnodes" or "PET_NNODES".
struct Sourced {
    std::string value;
    std::string origin;
};

/// By long name; every given value of a repeated option, in order.
using RawOptions = std::map<std::string, std::vector<Sourced>, std::less<>>;

/// What was given, and below it what the environment gives.
[[nodiscard]] RawOptions collect(const SplitArguments& split, const Environment& environment);

/// Text of --help: grouped, at most 100 columns.
[[nodiscard]] std::string help_text();

}  // namespace ddprun::launcher
