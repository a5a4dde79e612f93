#include "trainer/fashion_mnist.h"

#include "proto/assert.h"
#include "trainer/idx_file.h"
#include "trainer/resize.h"

#include <fmt/format.h>

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <utility>
#include <vector>

namespace ddprun::trainer {

namespace {

constexpr std::int64_t kClasses = 10;
constexpr float kMean = 0.2860F;
constexpr float kDeviation = 0.3530F;

class FashionMnist final : public Dataset {
public:
    FashionMnist(IdxFile images, IdxFile labels, std::optional<int> image_size)
        : images_(std::move(images)),
          labels_(std::move(labels)) {
        const int rows = static_cast<int>(images_.sizes[1]);
        const int columns = static_cast<int>(images_.sizes[2]);
        shape_ = ImageShape{image_size.value_or(rows), image_size.value_or(columns)};
        if (shape_ != ImageShape{rows, columns}) {
            resize_.emplace(
                BilinearResize::Sizes{rows, columns},
                BilinearResize::Sizes{shape_.height, shape_.width}
            );
        }
        for (std::size_t value = 0; value < normalised_.size(); ++value) {
            // In the order and type of torchvision's ToTensor and Normalize.
            normalised_[value] = (static_cast<float>(value) / 255.0F - kMean) / kDeviation;
        }
    }

    [[nodiscard]] std::int64_t size() const override {
        return static_cast<std::int64_t>(labels_.bytes.size());
    }

    [[nodiscard]] std::int64_t num_classes() const override { return kClasses; }

    [[nodiscard]] ImageShape shape() const override { return shape_; }

    [[nodiscard]] Result<std::int64_t> read(std::int64_t index, std::span<float> out)
        const override {
        DDPRUN_ASSERT(index >= 0 && index < size() && out.size() == shape_.floats());
        const std::size_t pixels = std::size_t{images_.sizes[1]} * images_.sizes[2];
        const auto at = static_cast<std::size_t>(index);
        const std::span<const std::uint8_t> grey(images_.bytes.data() + at * pixels, pixels);
        const std::span<float> channel = out.first(out.size() / kChannels);
        const auto normalise = [this](std::uint8_t value) { return normalised_[value]; };
        if (resize_) {
            // Weights of a window sum to one, so it is the same before and after normalising.
            std::vector<float> original(pixels);
            std::transform(grey.begin(), grey.end(), original.begin(), normalise);
            resize_->apply(original, channel);
        } else {
            std::transform(grey.begin(), grey.end(), channel.begin(), normalise);
        }
        for (std::size_t c = 1; c < kChannels; ++c) {
            std::copy(
                channel.begin(),
                channel.end(),
                out.begin() + static_cast<std::ptrdiff_t>(c * channel.size())
            );
        }
        return std::int64_t{labels_.bytes[at]};
    }

private:
    IdxFile images_;
    IdxFile labels_;
    ImageShape shape_;
    std::optional<BilinearResize> resize_;
    std::array<float, 256> normalised_{};
};

Result<void> check_folder(const std::string& dir) {
    struct stat info {};

    if (::stat(dir.c_str(), &info) != 0) {
        Error error = from_errno(errno, "open data folder " + dir);
        error.context += "; Debian's package dataset-fashion-mnist has the data";
        return fail(std::move(error));
    }
    if (!S_ISDIR(info.st_mode)) {
        return fail(Errc::not_found, fmt::format("open data folder {}: not a folder", dir));
    }
    return {};
}

}  // namespace

Result<std::unique_ptr<Dataset>> open_fashion_mnist(
    const std::string& dir, Split split, std::optional<int> image_size
) {
    if (const auto folder = check_folder(dir); !folder) {
        return fail(folder.error());
    }
    const std::string prefix = dir + (split == Split::train ? "/train" : "/t10k");
    const std::string images_path = prefix + "-images-idx3-ubyte.gz";
    const std::string labels_path = prefix + "-labels-idx1-ubyte.gz";
    auto images = read_idx_gz(images_path, 3);
    if (!images) {
        return fail(images.error());
    }
    auto labels = read_idx_gz(labels_path, 1);
    if (!labels) {
        return fail(labels.error());
    }
    if (images->sizes[0] != labels->sizes[0]) {
        return fail(
            Errc::malformed,
            fmt::format(
                "read {}: {} labels for the {} pictures of {}",
                labels_path,
                labels->sizes[0],
                images->sizes[0],
                images_path
            )
        );
    }
    const auto wrong = std::find_if(labels->bytes.begin(), labels->bytes.end(), [](auto label) {
        return label >= kClasses;
    });
    if (wrong != labels->bytes.end()) {
        return fail(
            Errc::malformed,
            fmt::format(
                "read {}: label {} of picture {}, but there are {} classes",
                labels_path,
                *wrong,
                wrong - labels->bytes.begin(),
                kClasses
            )
        );
    }
    return std::make_unique<FashionMnist>(std::move(*images), std::move(*labels), image_size);
}

}  // namespace ddprun::trainer
