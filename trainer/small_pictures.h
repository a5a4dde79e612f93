// What data sets of small pictures of one size (Fashion-MNIST, CIFAR-10) share: bytes by channel,
// all at hand, augmented by shifting and mirroring, normalised, resized where another size is asked
// for.
#pragma once

#include "trainer/data.h"
#include "trainer/normalise.h"
#include "trainer/resize.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

namespace ddprun::trainer {

/// Where the bytes are. Immutable, used by several threads.
class SmallSource {
public:
    SmallSource() = default;
    SmallSource(const SmallSource&) = delete;
    SmallSource& operator=(const SmallSource&) = delete;
    virtual ~SmallSource() = default;

    [[nodiscard]] virtual std::int64_t size() const = 0;
    [[nodiscard]] virtual std::int64_t label(std::int64_t index) const = 0;

    /// One channel (grey) or three, each row by row.
    [[nodiscard]] virtual std::span<const std::uint8_t> pixels(std::int64_t index) const = 0;
};

struct SmallOptions {
    ImageShape native;  ///< of the source
    std::int64_t num_classes = 1;
    std::optional<int> image_size;
    Normalisation normalisation;
    bool augment = false;
    std::uint64_t seed = 0;
};

[[nodiscard]] std::unique_ptr<Dataset> make_small_pictures(
    std::unique_ptr<SmallSource> source, const SmallOptions& options
);

}  // namespace ddprun::trainer
