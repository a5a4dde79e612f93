// From bytes to what the model is fed with: ToTensor (divide by 255) and Normalize (subtract the
// mean, divide by the deviation) of torchvision, in their order and precision, as a table of 256
// values for each channel.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ddprun::trainer {

/// Of the channels red, green and blue.
struct Normalisation {
    std::array<float, 3> mean{};
    std::array<float, 3> deviation{1.0F, 1.0F, 1.0F};

    friend bool operator==(const Normalisation&, const Normalisation&) = default;
};

inline constexpr Normalisation kImageNetNormalisation{
    {0.485F, 0.456F, 0.406F}, {0.229F, 0.224F, 0.225F}};
inline constexpr Normalisation kCifar10Normalisation{
    {0.4914F, 0.4822F, 0.4465F}, {0.2470F, 0.2435F, 0.2616F}};
inline constexpr Normalisation kFashionMnistNormalisation{
    {0.2860F, 0.2860F, 0.2860F}, {0.3530F, 0.3530F, 0.3530F}};

class NormaliseTable {
public:
    explicit NormaliseTable(const Normalisation& normalisation) {
        for (std::size_t c = 0; c < values_.size(); ++c) {
            for (std::size_t v = 0; v < values_[c].size(); ++v) {
                values_[c][v] = (static_cast<float>(v) / 255.0F - normalisation.mean[c]) /
                                normalisation.deviation[c];
            }
        }
    }

    /// The 256 values of a channel.
    [[nodiscard]] const std::array<float, 256>& channel(std::size_t c) const { return values_[c]; }

private:
    std::array<std::array<float, 256>, 3> values_{};
};

}  // namespace ddprun::trainer
