// The manner of every command line of the trainer, on CLI11: names take underscores or hyphens, the
// last of a repeated option counts, what is wrong is one line.
#pragma once

#include "proto/result.h"
#include "trainer/option_values.h"

#include <optional>
#include <span>
#include <string>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace ddprun::trainer {

/// `names` as CLI11 takes them ("--a,--b"); complaints are about the first.
CLI::Option& add_value(
    CLI::App& app,
    const std::string& names,
    const std::string& placeholder,
    const std::string& help,
    const Setter& set
);

/// The text is what --help or --version asks for. Errors: Errc::invalid_argument; of a file of
/// options (--config) that can't be read Errc::not_found.
[[nodiscard]] Result<std::optional<InformationText>> parse_arguments(
    CLI::App& app, std::span<const std::string> arguments
);

}  // namespace ddprun::trainer
