#include "trainer/synthetic.h"

#include "proto/assert.h"
#include "trainer/sample_random.h"

#include <cstddef>

namespace ddprun::trainer {

namespace {

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

    [[nodiscard]] Result<std::int64_t> read(const Sample& sample, std::span<float> out)
        const override {
        DDPRUN_ASSERT(sample.index >= 0 && sample.index < size());
        DDPRUN_ASSERT(out.size() == options_.shape.floats());
        std::uint64_t state =
            mix_bits(options_.seed ^ mix_bits(static_cast<std::uint64_t>(sample.index)));
        const auto classes = static_cast<std::uint64_t>(options_.num_classes);
        const std::uint64_t label = state % classes;
        const float strength = 1.0F + static_cast<float>(label) / static_cast<float>(classes);
        for (std::size_t i = 0; i < out.size(); ++i) {
            // Four values of 16 bits from each step.
            if (i % 4 == 0) {
                state = mix_bits(state);
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
