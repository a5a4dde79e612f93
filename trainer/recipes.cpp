#include "trainer/recipes.h"

#include <array>
#include <utility>

namespace ddprun::trainer {
namespace {

/// torchvision's references, first weights of ResNet-50 (76.13 %): 8 ranks of 32.
constexpr std::array kTorchvision1 = {
    RecipeSetting{"augment", "standard"},
    RecipeSetting{"epochs", "90"},
    RecipeSetting{"batch_size", "32"},
    RecipeSetting{"lr", "0.1"},
    RecipeSetting{"momentum", "0.9"},
    RecipeSetting{"weight_decay", "0.0001"},
    RecipeSetting{"lr_scheduler", "step"},
    RecipeSetting{"lr_step_size", "30"},
    RecipeSetting{"lr_gamma", "0.1"},
};

/// torchvision's references, second weights (80.86 %): 8 ranks of 128.
constexpr std::array kTorchvision2 = {
    RecipeSetting{"augment", "standard"},
    RecipeSetting{"epochs", "600"},
    RecipeSetting{"batch_size", "128"},
    RecipeSetting{"lr", "0.5"},
    RecipeSetting{"momentum", "0.9"},
    RecipeSetting{"weight_decay", "2e-05"},
    RecipeSetting{"norm_weight_decay", "0"},
    RecipeSetting{"lr_scheduler", "cosine"},
    RecipeSetting{"lr_warmup_epochs", "5"},
    RecipeSetting{"lr_warmup_method", "linear"},
    RecipeSetting{"lr_warmup_decay", "0.01"},
    RecipeSetting{"label_smoothing", "0.1"},
    RecipeSetting{"mixup_alpha", "0.2"},
    RecipeSetting{"cutmix_alpha", "1"},
    RecipeSetting{"model_ema", "true"},
};

/// NVIDIA's DeepLearningExamples, 90 epochs (77.1 %): 8 ranks of 256.
constexpr std::array kNvidia90 = {
    RecipeSetting{"augment", "standard"},
    RecipeSetting{"epochs", "90"},
    RecipeSetting{"batch_size", "256"},
    RecipeSetting{"lr", "1.024"},
    RecipeSetting{"lr_batch", "1024"},
    RecipeSetting{"momentum", "0.875"},
    RecipeSetting{"weight_decay", "3.0517578125e-05"},
    RecipeSetting{"norm_weight_decay", "0"},
    RecipeSetting{"lr_scheduler", "cosine"},
    RecipeSetting{"lr_warmup_epochs", "8"},
    RecipeSetting{"lr_warmup_method", "linear"},
    RecipeSetting{"lr_warmup_decay", "0"},
    RecipeSetting{"label_smoothing", "0.1"},
    RecipeSetting{"zero_init_residual", "true"},
};

/// FFCV's 16 epochs (73.8 %): 8 ranks of 512; its ramp is a polynomial of power 1.
constexpr std::array kFfcv16 = {
    RecipeSetting{"augment", "standard"},
    RecipeSetting{"epochs", "16"},
    RecipeSetting{"batch_size", "512"},
    RecipeSetting{"lr", "1.7"},
    RecipeSetting{"momentum", "0.9"},
    RecipeSetting{"weight_decay", "0.0001"},
    RecipeSetting{"norm_weight_decay", "0"},
    RecipeSetting{"lr_scheduler", "polynomial"},
    RecipeSetting{"lr_power", "1"},
    RecipeSetting{"lr_warmup_epochs", "2"},
    RecipeSetting{"lr_warmup_method", "linear"},
    RecipeSetting{"lr_warmup_decay", "0.0001"},
    RecipeSetting{"label_smoothing", "0.1"},
};

using Entry = std::pair<std::string_view, std::span<const RecipeSetting>>;

constexpr std::array<Entry, 4> kRecipes = {
    Entry{"torchvision-v1", kTorchvision1},
    Entry{"torchvision-v2", kTorchvision2},
    Entry{"nvidia-90", kNvidia90},
    Entry{"ffcv-16", kFfcv16},
};

}  // namespace

std::optional<std::span<const RecipeSetting>> recipe_settings(std::string_view name) {
    for (const auto& [known, settings] : kRecipes) {
        if (known == name) {
            return settings;
        }
    }
    return std::nullopt;
}

std::vector<std::string_view> recipe_names() {
    std::vector<std::string_view> names;
    for (const auto& [name, settings] : kRecipes) {
        names.push_back(name);
    }
    return names;
}

}  // namespace ddprun::trainer
