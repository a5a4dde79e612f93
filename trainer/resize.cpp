#include "trainer/resize.h"

#include "proto/assert.h"

#include <algorithm>
#include <cmath>

namespace ddprun::trainer {

BilinearResize::BilinearResize(Sizes from, Sizes to)
    : from_(from),
      to_(to),
      columns_(make_windows(from.width, to.width)),
      rows_(make_windows(from.height, to.height)) {}

std::vector<BilinearResize::Window> BilinearResize::make_windows(int from, int to) {
    DDPRUN_ASSERT(from >= 1 && to >= 1);
    const double scale = static_cast<double>(from) / to;
    const double support = std::max(scale, 1.0);
    std::vector<Window> windows;
    for (int i = 0; i < to; ++i) {
        const double centre = scale * (i + 0.5);
        const int first = std::max(static_cast<int>(centre - support + 0.5), 0);
        const int last = std::min(static_cast<int>(centre + support + 0.5), from);
        Window window{static_cast<std::size_t>(first), {}};
        double sum = 0.0;
        std::vector<double> weights;
        for (int j = first; j < last; ++j) {
            const double distance = std::abs((j + 0.5 - centre) / support);
            weights.push_back(std::max(1.0 - distance, 0.0));
            sum += weights.back();
        }
        for (const double weight : weights) {
            window.weights.push_back(static_cast<float>(weight / sum));
        }
        windows.push_back(std::move(window));
    }
    return windows;
}

void BilinearResize::apply(std::span<const float> in, std::span<float> out) const {
    const auto in_width = static_cast<std::size_t>(from_.width);
    const auto in_height = static_cast<std::size_t>(from_.height);
    const auto out_width = static_cast<std::size_t>(to_.width);
    DDPRUN_ASSERT(in.size() == in_width * in_height);
    DDPRUN_ASSERT(out.size() == out_width * static_cast<std::size_t>(to_.height));
    std::vector<float> narrowed(in_height * out_width);
    for (std::size_t y = 0; y < in_height; ++y) {
        for (std::size_t x = 0; x < out_width; ++x) {
            const Window& window = columns_[x];
            float sum = 0.0F;
            for (std::size_t k = 0; k < window.weights.size(); ++k) {
                sum += window.weights[k] * in[y * in_width + window.first + k];
            }
            narrowed[y * out_width + x] = sum;
        }
    }
    std::fill(out.begin(), out.end(), 0.0F);
    for (std::size_t y = 0; y < rows_.size(); ++y) {
        const Window& window = rows_[y];
        for (std::size_t k = 0; k < window.weights.size(); ++k) {
            const float weight = window.weights[k];
            const float* const from = narrowed.data() + (window.first + k) * out_width;
            float* const to = out.data() + y * out_width;
            for (std::size_t x = 0; x < out_width; ++x) {
                to[x] += weight * from[x];
            }
        }
    }
}

}  // namespace ddprun::trainer
