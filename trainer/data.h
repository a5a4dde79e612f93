// Data sets: labelled pictures by index, each read straight into its place in a batch. A data set
// is immutable once open, so several loader threads read from it at once. No LibTorch in it.
#pragma once

#include "proto/result.h"
#include "trainer/normalise.h"
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

    [[nodiscard]] std::size_t pixels() const {
        return static_cast<std::size_t>(height) * static_cast<std::size_t>(width);
    }

    /// Floats of one picture.
    [[nodiscard]] std::size_t floats() const { return kChannels * pixels(); }

    friend bool operator==(const ImageShape&, const ImageShape&) = default;
};

/// Which picture, and in which epoch (from 0): random augmentation is a function of both and the
/// seed.
struct Sample {
    std::int64_t index = 0;
    std::int64_t epoch = 0;
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

    [[nodiscard]] virtual Normalisation normalisation() const { return {}; }

    /// Writes a picture as [3, height, width], normalised, to `out` (shape().floats() long) and
    /// gives its label, 0 ... num_classes() - 1. Safe from several threads. An error is that of
    /// this picture alone and names it; `out` may then hold anything.
    [[nodiscard]] virtual Result<std::int64_t> read(const Sample& sample, std::span<float> out)
        const = 0;
};

enum class Split { train, test };

/// What the kinds of data sets are opened with.
struct DatasetOptions {
    Split split = Split::train;
    std::optional<int> image_size;
    std::optional<Normalisation> normalisation;  ///< unset: the data set's usual one
    bool augment = false;                        ///< never for the test split
    bool jpeg_scaling = true;                    ///< where pictures are augmented
    std::uint64_t seed = 0;

    [[nodiscard]] Normalisation normalisation_or(const Normalisation& usual) const {
        return normalisation.value_or(usual);
    }
};

/// Mean and deviation that are customary for a kind of data.
[[nodiscard]] Normalisation usual_normalisation(DataKind kind);

[[nodiscard]] DatasetOptions dataset_options(const Options& options, Split split);

/// Opens the split that `options` name. Errors: not_found or permission_denied (a folder or file),
/// malformed (its content), invalid_argument (fewer --num_classes than the data has).
[[nodiscard]] Result<std::unique_ptr<Dataset>> open_dataset(const Options& options, Split split);

}  // namespace ddprun::trainer
