#include "trainer/render.h"

#include "proto/assert.h"
#include "proto/limits.h"

#include <algorithm>

namespace ddprun::trainer {

namespace {

/// The largest of 8, 4 and 2 that leaves the crop at least as large as what it becomes.
int denominator_for(const PicturePlan& plan) {
    for (const int denominator : {8, 4, 2}) {
        if (plan.crop.width >= denominator * plan.resized.width &&
            plan.crop.height >= denominator * plan.resized.height) {
            return denominator;
        }
    }
    return 1;
}

/// One axis of a plan on the picture at 1/`denominator`, of which `size` pixels are there.
Axis axis_of(int crop_begin, int crop_length, int denominator, int size) {
    Axis axis;
    axis.low = crop_begin / denominator;
    axis.high = std::min((crop_begin + crop_length + denominator - 1) / denominator, size);
    axis.begin = static_cast<double>(crop_begin) / denominator;
    axis.length = static_cast<double>(crop_length) / denominator;
    return axis;
}

Windows windows_of(Axis axis, int resized, int kept_begin, int kept_length) {
    // Relative to the crop, as PIL resizes what torchvision has cut out: the same rounding errors.
    const int origin = axis.low;
    axis.begin -= origin;
    axis.high -= origin;
    axis.low = 0;
    axis.outputs_total = resized;
    axis.first = kept_begin;
    axis.count = kept_length;
    Windows windows = make_windows(axis);
    for (int& first : windows.first) {
        first += origin;
    }
    windows.low += origin;
    windows.high += origin;
    return windows;
}

}  // namespace

void normalise_row(
    std::span<const std::uint8_t> row,
    const NormaliseTable& table,
    bool flip,
    std::size_t plane,
    float* out
) {
    const std::size_t width = row.size() / kPixelBytes;
    const std::uint8_t* in = row.data();
    const float* const red = table.channel(0).data();
    const float* const green = table.channel(1).data();
    const float* const blue = table.channel(2).data();
    const std::ptrdiff_t step = flip ? -1 : 1;
    float* to = flip ? out + width - 1 : out;
    for (std::size_t x = 0; x < width; ++x, in += kPixelBytes, to += step) {
        to[0] = red[in[0]];
        to[plane] = green[in[1]];
        to[2 * plane] = blue[in[2]];
    }
}

Renderer::Sampling Renderer::sampling_of(const PicturePlan& plan, int denominator, Size size) {
    const Axis columns = axis_of(plan.crop.left, plan.crop.width, denominator, size.width);
    const Axis rows = axis_of(plan.crop.top, plan.crop.height, denominator, size.height);
    return {
        .columns = windows_of(columns, plan.resized.width, plan.kept.left, plan.kept.width),
        .rows = windows_of(rows, plan.resized.height, plan.kept.top, plan.kept.height),
        .denominator = denominator,
    };
}

Result<Renderer::Sampling> Renderer::decode(
    PictureDecoder& decoder, const PicturePlan& plan, bool scaling
) {
    const int denominator = scaling && decoder.can_scale() ? denominator_for(plan) : 1;
    Sampling sampling = sampling_of(plan, denominator, decoder.scaled_size(denominator));
    const Box needed{
        sampling.columns.low,
        sampling.rows.low,
        sampling.columns.high - sampling.columns.low,
        sampling.rows.high - sampling.rows.low};
    if (auto decoded = decoder.decode(needed, denominator, pixels_); !decoded) {
        return fail(decoded.error());
    }
    return sampling;
}

void Renderer::write(
    const PixelView& source,
    const Sampling& sampling,
    const PicturePlan& plan,
    const NormaliseTable& table,
    std::span<float> out
) {
    const auto width = static_cast<std::size_t>(plan.kept.width);
    const std::size_t plane = plan.kept.size().pixels();
    DDPRUN_ASSERT(out.size() == kPixelBytes * plane);
    const auto sink = [&](int y, const std::uint8_t* row) {
        float* const to = out.data() + static_cast<std::size_t>(y) * width;
        normalise_row({row, width * kPixelBytes}, table, plan.flip, plane, to);
    };
    resample(source, sampling.columns, sampling.rows, scratch_, sink);
}

Result<void> Renderer::render(
    PictureDecoder& decoder,
    const PicturePlan& plan,
    bool scaling,
    const NormaliseTable& table,
    std::span<float> out
) {
    const auto sampling = decode(decoder, plan, scaling);
    if (!sampling) {
        return fail(sampling.error());
    }
    write(pixels_.view(), *sampling, plan, table, out);
    return {};
}

Result<void> Renderer::render(
    PictureDecoder& decoder, const PicturePlan& plan, std::span<std::uint8_t> out
) {
    DDPRUN_ASSERT(!plan.flip && out.size() == plan.kept.size().pixels() * kPixelBytes);
    const auto sampling = decode(decoder, plan, /*scaling=*/false);
    if (!sampling) {
        return fail(sampling.error());
    }
    const std::size_t row_bytes = static_cast<std::size_t>(plan.kept.width) * kPixelBytes;
    const auto sink = [&](int y, const std::uint8_t* row) {
        std::copy_n(row, row_bytes, out.data() + static_cast<std::size_t>(y) * row_bytes);
    };
    resample(pixels_.view(), sampling->columns, sampling->rows, scratch_, sink);
    return {};
}

void Renderer::render(
    const PixelView& source,
    const PicturePlan& plan,
    const NormaliseTable& table,
    std::span<float> out
) {
    const Size size{source.area.right(), source.area.bottom()};
    write(source, sampling_of(plan, 1, size), plan, table, out);
}

void Renderer::trim() {
    if (pixels_.capacity() > limits::kScratchBytesKept) {
        pixels_ = Pixels{};
    }
    if (scratch_.narrowed.capacity() > limits::kScratchBytesKept) {
        scratch_ = ResampleScratch{};
    }
}

}  // namespace ddprun::trainer
