#include "trainer/fashion_mnist.h"

#include "trainer/idx_file.h"
#include "trainer/small_pictures.h"

#include <fmt/format.h>

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>
#include <vector>

namespace ddprun::trainer {

namespace {

constexpr std::int64_t kClasses = 10;

class IdxPictures final : public SmallSource {
public:
    IdxPictures(IdxFile images, IdxFile labels)
        : images_(std::move(images)),
          labels_(std::move(labels)) {}

    [[nodiscard]] std::int64_t size() const override {
        return static_cast<std::int64_t>(labels_.bytes.size());
    }

    [[nodiscard]] std::int64_t label(std::int64_t index) const override {
        return labels_.bytes[static_cast<std::size_t>(index)];
    }

    [[nodiscard]] std::span<const std::uint8_t> pixels(std::int64_t index) const override {
        const std::size_t bytes = std::size_t{images_.sizes[1]} * images_.sizes[2];
        return std::span(images_.bytes).subspan(static_cast<std::size_t>(index) * bytes, bytes);
    }

    [[nodiscard]] ImageShape shape() const {
        return {static_cast<int>(images_.sizes[1]), static_cast<int>(images_.sizes[2])};
    }

private:
    IdxFile images_;
    IdxFile labels_;
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
    const std::string& dir, const DatasetOptions& options
) {
    if (const auto folder = check_folder(dir); !folder) {
        return fail(folder.error());
    }
    const std::string prefix = dir + (options.split == Split::train ? "/train" : "/t10k");
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
    auto source = std::make_unique<IdxPictures>(std::move(*images), std::move(*labels));
    SmallOptions small;
    small.native = source->shape();
    small.num_classes = kClasses;
    small.image_size = options.image_size;
    small.normalisation = options.normalisation_or(kFashionMnistNormalisation);
    small.augment = options.augment;
    small.seed = options.seed;
    return make_small_pictures(std::move(source), small);
}

}  // namespace ddprun::trainer
