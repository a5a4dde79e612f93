#include "trainer/synthetic.h"

#include "proto/assert.h"

#include <cstddef>

namespace ddprun::trainer {

namespace {

/// The SplitMix64 generator: a good mix of any 64 bits in a few operations.
std::uint64_t mix(std::uint64_t value) {
    value += 0x9e3779b97f4a7c15U;
    value = (value ^ value >> 30U) * 0xbf58476d1ce4e5b9U;
    value = (value ^ value >> 27U) * 0x94d049bb133111ebU;
    return value ^ value >> 31U;
}

/// 16 bits as a number from -1 to 1.
float centred(std::uint64_t bits) {
    constexpr float kHalfRange = 32'768.0F;
    return static_cast<float>(bits & 0xffffU) / kHalfRange - 1.0F;
}

class Synthetic final : public Dataset {
public:
    explicit Synthetic(const SyntheticOptions& options) : options_(options) {}

    [[nodiscard]] std::int64_t size() const override { return options_.size; }

    [[nodiscard]] std::int64_t num_classes() const override { return options_.num_classes; }

    [[nodiscard]] ImageShape shape() const override { return options_.shape; }

    [[nodiscard]] Result<std::int64_t> read(std::int64_t index, std::span<float> out)
        const override {
        DDPRUN_ASSERT(index >= 0 && index < size() && out.size() == options_.shape.floats());
        std::uint64_t state = mix(options_.seed ^ mix(static_cast<std::uint64_t>(index)));
        const auto classes = static_cast<std::uint64_t>(options_.num_classes);
        const std::uint64_t label = state % classes;
        const float strength = 1.0F + static_cast<float>(label) / static_cast<float>(classes);
        for (std::size_t i = 0; i < out.size(); ++i) {
            // Four values of 16 bits from each step.
            if (i % 4 == 0) {
                state = mix(state);
            }
            out[i] = strength * centred(state >> 16U * (i % 4));
        }
        return static_cast<std::int64_t>(label);
    }

private:
    SyntheticOptions options_;
};

}  // namespace

std::unique_ptr<Dataset> make_synthetic(const SyntheticOptions& options) {
    DDPRUN_ASSERT(options.size >= 1 && options.num_classes >= 1 && options.shape.floats() > 0);
    return std::make_unique<Synthetic>(options);
}

}  // namespace ddprun::trainer
