// Bilinear resize of one channel, as torch.nn.functional.interpolate(mode="bilinear",
// align_corners=False, antialias=True) and Pillow do it: a triangle filter, as wide as the scale
// when shrinking. The weights are computed once; apply() is safe from several threads.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace ddprun::trainer {

class BilinearResize {
public:
    struct Sizes {
        int height = 0;
        int width = 0;
    };

    BilinearResize(Sizes from, Sizes to);

    /// `in` is [from.height, from.width], `out` [to.height, to.width].
    void apply(std::span<const float> in, std::span<float> out) const;

private:
    /// How one output element is summed up from neighbouring input elements.
    struct Window {
        std::size_t first = 0;
        std::vector<float> weights;
    };

    [[nodiscard]] static std::vector<Window> make_windows(int from, int to);

    Sizes from_;
    Sizes to_;
    std::vector<Window> columns_;
    std::vector<Window> rows_;
};

}  // namespace ddprun::trainer
