// Splits a command line into ddprun's own options and the program with its arguments. Pure. Reading
// ends at the program: what follows it is not looked at and reaches it byte for byte. Names may be
// spelled with underscores or hyphens and abbreviated as long as that is unambiguous among
// torchrun's options or among all, as argparse allows; only ddprun's own options are.
#pragma once

#include "launcher/option_table.h"
#include "proto/result.h"

#include <span>
#include <string>
#include <vector>

namespace ddprun::launcher {

struct GivenOption {
    const OptionDefinition* definition = nullptr;
    std::string value;  ///< "1" for a flag

    friend bool operator==(const GivenOption&, const GivenOption&) = default;
};

struct SplitArguments {
    std::vector<GivenOption>
        options;  ///< in the order in which they were given, repeated ones repeatedly
    std::vector<std::string>
        program;  ///< the program and its arguments; empty where none was given
};

/// `arguments` without argv[0]. Errors: Errc::invalid_argument for an unknown or ambiguous option,
/// a missing or an unwanted value; the context is the whole sentence for the user.
[[nodiscard]] Result<SplitArguments> split_arguments(std::span<const std::string> arguments);

}  // namespace ddprun::launcher
