// The file of --config: a line "name = value" for each option, names as on the command line without
// their dashes, hyphens or underscores; # begins a comment. CLI11 reads the values.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <istream>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ddprun::trainer {

class ConfigFile final : public CLI::ConfigBase {
public:
    /// `is_option`: whether a name, with underscores, is one of an option that a file may set.
    explicit ConfigFile(std::function<bool(const std::string&)> is_option)
        : is_option_(std::move(is_option)) {}

    /// Throws CLI::ConfigError, which names the line, for a line that is none of the above.
    [[nodiscard]] std::vector<CLI::ConfigItem> from_config(std::istream& input) const override;

    /// The last line that sets the option, from 1.
    [[nodiscard]] std::optional<int> line_of(const std::string& name) const;

private:
    std::function<bool(const std::string&)> is_option_;
    mutable std::map<std::string, int> lines_;  ///< from_config() is const to CLI11
};

}  // namespace ddprun::trainer
