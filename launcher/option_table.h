// Every option of ddprun, once: its names, its default from the environment, its group and its
// help. The parser, --help and whatever else lists options (docs, completions) read this table.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::launcher {

enum class OptionGroup { job, rendezvous, workers, logs, other };

struct OptionDefinition {
    std::string_view
        name;  ///< long name with underscores; the spelling with hyphens is accepted alike
    char short_name = '\0';     ///< one letter, or none
    std::string_view metavar;   ///< name of the value in --help; empty for a flag
    std::string_view variable;  ///< environment variable that gives the default; empty: none
    OptionGroup group = OptionGroup::other;
    std::string_view help;
    bool hidden = false;  ///< read, but not shown: what is refused, or is for the build alone
    /// The value of the option given alone; then another one must be attached by =. Empty: a value
    /// is needed (or, for a flag, not taken).
    std::string_view alone = {};
};

[[nodiscard]] std::span<const OptionDefinition> option_table();

[[nodiscard]] std::string_view title_of(OptionGroup group);

/// The words among an option's possible values, from its metavar: "auto", "cpu" and "gpu" of
/// "N|auto|cpu|gpu".
[[nodiscard]] std::vector<std::string> words_of(const OptionDefinition& definition);

/// The definition with this long name, or null.
[[nodiscard]] const OptionDefinition* find_option(std::string_view name);

}  // namespace ddprun::launcher
