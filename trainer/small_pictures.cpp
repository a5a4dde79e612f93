#include "trainer/small_pictures.h"

#include "proto/assert.h"
#include "trainer/picture_plan.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace ddprun::trainer {

namespace {

class SmallPictures final : public Dataset {
public:
    SmallPictures(std::unique_ptr<SmallSource> source, const SmallOptions& options)
        : source_(std::move(source)),
          options_(options),
          shape_(options.native),
          table_(options.normalisation) {
        if (options.image_size) {
            shape_ = ImageShape{*options.image_size, *options.image_size};
        }
        if (shape_ != options.native) {
            resize_.emplace(
                BilinearResize::Sizes{options.native.height, options.native.width},
                BilinearResize::Sizes{shape_.height, shape_.width}
            );
        }
    }

    [[nodiscard]] std::int64_t size() const override { return source_->size(); }

    [[nodiscard]] std::int64_t num_classes() const override { return options_.num_classes; }

    [[nodiscard]] ImageShape shape() const override { return shape_; }

    [[nodiscard]] Normalisation normalisation() const override { return options_.normalisation; }

    [[nodiscard]] Result<std::int64_t> read(const Sample& sample, std::span<float> out)
        const override {
        DDPRUN_ASSERT(sample.index >= 0 && sample.index < size());
        DDPRUN_ASSERT(out.size() == shape_.floats());
        const std::span<const std::uint8_t> pixels = source_->pixels(sample.index);
        const std::size_t plane = options_.native.pixels();
        const std::size_t out_plane = shape_.pixels();
        ShiftPlan plan;
        if (options_.augment) {
            SampleRandom random(options_.seed, sample.epoch, sample.index);
            plan = shift_plan(random);
        }
        std::vector<float> native(resize_ ? plane : 0);
        for (std::size_t c = 0; c < kChannels; ++c) {
            const std::span<float> channel = out.subspan(c * out_plane, out_plane);
            const bool same_as_first = pixels.size() == plane && c > 0 && equal_tables(c);
            if (same_as_first) {
                std::copy_n(out.begin(), out_plane, channel.begin());
                continue;
            }
            const auto bytes = pixels.subspan(pixels.size() == plane ? 0 : c * plane, plane);
            // Weights of a window sum to one, so it is the same before and after normalising.
            write_channel(bytes, plan, table_.channel(c), resize_ ? std::span(native) : channel);
            if (resize_) {
                resize_->apply(native, channel);
            }
        }
        return source_->label(sample.index);
    }

private:
    [[nodiscard]] bool equal_tables(std::size_t c) const {
        const Normalisation& n = options_.normalisation;
        return n.mean[c] == n.mean[0] && n.deviation[c] == n.deviation[0];
    }

    /// Moves the picture by the plan, black where nothing of it is, and mirrors what comes out.
    void write_channel(
        std::span<const std::uint8_t> bytes,
        const ShiftPlan& plan,
        const std::array<float, 256>& values,
        std::span<float> out
    ) const {
        const int width = options_.native.width;
        const int height = options_.native.height;
        float* to = out.data();
        for (int y = 0; y < height; ++y) {
            const int from_y = y - plan.top;
            const bool row_is_there = from_y >= 0 && from_y < height;
            const std::uint8_t* const row =
                bytes.data() + static_cast<std::ptrdiff_t>(row_is_there ? from_y : 0) * width;
            for (int x = 0; x < width; ++x) {
                const int from_x = (plan.flip ? width - 1 - x : x) - plan.left;
                const bool is_there = row_is_there && from_x >= 0 && from_x < width;
                *to++ = values[is_there ? row[from_x] : 0];
            }
        }
    }

    std::unique_ptr<SmallSource> source_;
    SmallOptions options_;
    ImageShape shape_;
    NormaliseTable table_;
    std::optional<BilinearResize> resize_;
};

}  // namespace

std::unique_ptr<Dataset> make_small_pictures(
    std::unique_ptr<SmallSource> source, const SmallOptions& options
) {
    return std::make_unique<SmallPictures>(std::move(source), options);
}

}  // namespace ddprun::trainer
