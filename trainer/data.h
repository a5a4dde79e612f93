// Data sets: labelled pictures by index, each read straight into its place in a batch. A data set
// is immutable once open, so several loader threads read from it at once. No LibTorch in it.
#pragma once

#include "proto/result.h"
#include "trainer/options.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace ddprun::trainer {

/// Pictures have three channels.
inline constexpr std::size_t kChannels = 3;

struct ImageShape {
    int height = 0;
    int width = 0;

    /// Floats of one picture.
    [[nodiscard]] std::size_t floats() const {
        return kChannels * static_cast<std::size_t>(height) * static_cast<std::size_t>(width);
    }

    friend bool operator==(const ImageShape&, const ImageShape&) = default;
};

class Dataset {
public:
    Dataset() = default;
    Dataset(const Dataset&) = delete;
    Dataset& operator=(const Dataset&) = delete;
    virtual ~Dataset() = default;

    [[nodiscard]] virtual std::int64_t size() const = 0;

    [[nodiscard]] virtual std::int64_t num_classes() const = 0;

    [[nodiscard]] virtual ImageShape shape() const = 0;

    /// Writes picture `index` as [3, height, width], normalised, to `out` (shape().floats() long)
    /// and gives its label, 0 ... num_classes() - 1. Safe from several threads.
    [[nodiscard]] virtual Result<std::int64_t> read(std::int64_t index, std::span<float> out)
        const = 0;
};

enum class Split { train, test };

/// Opens the split that `options` name. Errors: not_found or permission_denied (a folder or file),
/// malformed (its content), invalid_argument (fewer --num_classes than the data has).
[[nodiscard]] Result<std::unique_ptr<Dataset>> open_dataset(const Options& options, Split split);

}  // namespace ddprun::trainer
