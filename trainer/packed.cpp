#include "trainer/packed.h"

#include "proto/assert.h"
#include "trainer/image_folder.h"
#include "trainer/mapped_file.h"
#include "trainer/packed_format.h"
#include "trainer/render.h"

#include <fmt/format.h>

#include <atomic>
#include <utility>
#include <vector>

namespace ddprun::trainer {

namespace {

class Packed final : public Dataset {
public:
    Packed(std::string path, MappedFile file, PackedView view, const DatasetOptions& options)
        : path_(std::move(path)),
          file_(std::move(file)),
          view_(std::move(view)),
          options_(options),
          side_(options.image_size.value_or(kDefaultImageSize)),
          normalisation_(options.normalisation_or(kImageNetNormalisation)),
          table_(normalisation_),
          checked_(static_cast<std::size_t>(view_.size())) {}

    [[nodiscard]] std::int64_t size() const override { return view_.size(); }

    [[nodiscard]] std::int64_t num_classes() const override {
        return static_cast<std::int64_t>(view_.classes().size());
    }

    [[nodiscard]] ImageShape shape() const override { return {side_, side_}; }

    [[nodiscard]] Normalisation normalisation() const override { return normalisation_; }

    [[nodiscard]] Result<std::int64_t> read(const Sample& sample, std::span<float> out)
        const override {
        DDPRUN_ASSERT(sample.index >= 0 && sample.index < size());
        const PackedEntry entry = view_.entry(sample.index);
        const std::span<const std::uint8_t> pixels = view_.pixels(entry);
        if (!is_whole(sample.index, entry, pixels)) {
            return fail(
                Errc::malformed,
                fmt::format(
                    "read {}: picture {} doesn't match its checksum; pack the pictures again",
                    path_,
                    sample.index
                )
            );
        }
        PicturePlan plan;
        if (options_.augment) {
            SampleRandom random(options_.seed, sample.epoch, sample.index);
            plan = random_crop_plan(entry.size, side_, random);
        } else {
            plan = centre_plan(entry.size, side_);
        }
        thread_local Renderer renderer;
        // Index and footer stand behind the last picture, so that wide loads end in the file.
        renderer.render({pixels.data(), whole(entry.size)}, plan, table_, out);
        return std::int64_t{entry.label};
    }

private:
    /// A checksum takes as long as resampling: one look is enough. Two threads may look at once.
    [[nodiscard]] bool is_whole(
        std::int64_t index, const PackedEntry& entry, std::span<const std::uint8_t> pixels
    ) const {
        std::atomic<bool>& checked = checked_[static_cast<std::size_t>(index)];
        if (!checked.load(std::memory_order_relaxed)) {
            if (checksum_of(pixels) != entry.checksum) {
                return false;
            }
            checked.store(true, std::memory_order_relaxed);
        }
        return true;
    }

    std::string path_;
    MappedFile file_;
    PackedView view_;
    DatasetOptions options_;
    int side_;
    Normalisation normalisation_;
    NormaliseTable table_;
    mutable std::vector<std::atomic<bool>> checked_;
};

}  // namespace

std::string packed_path(const std::string& dir, Split split) {
    return split_folder(dir, split) + ".pack";
}

Result<std::unique_ptr<Dataset>> open_packed(
    const std::string& dir, const DatasetOptions& options
) {
    std::string path = packed_path(dir, options.split);
    auto file = MappedFile::open(path);
    if (!file) {
        Error error = file.error();
        error.context += "; `trainer pack` makes train.pack and val.pack";
        return fail(std::move(error));
    }
    auto view = PackedView::parse(file->bytes());
    if (!view) {
        return fail(of_picture(path, view.error()));
    }
    file->expect_random_reads();
    return std::make_unique<Packed>(std::move(path), std::move(*file), std::move(*view), options);
}

}  // namespace ddprun::trainer
