// Named recipes of training ResNet-50 on ImageNet: settings by the names of the options, which the
// command line and --config override. What a published recipe does that has no option here is in
// docs/trainer.md. Pure.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace ddprun::trainer {

struct RecipeSetting {
    std::string_view option;  ///< without hyphens
    std::string_view value;
};

/// The settings of a recipe; none for an unknown name.
[[nodiscard]] std::optional<std::span<const RecipeSetting>> recipe_settings(std::string_view name);

/// The names that there are.
[[nodiscard]] std::vector<std::string_view> recipe_names();

}  // namespace ddprun::trainer
