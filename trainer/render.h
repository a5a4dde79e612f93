// Carries a PicturePlan out: decodes no more of the picture than the plan needs, resamples it, and
// writes normalised floats or plain bytes. Several threads, each with a Renderer of its own.
#pragma once

#include "proto/result.h"
#include "trainer/normalise.h"
#include "trainer/picture_decoder.h"
#include "trainer/picture_plan.h"
#include "trainer/resample.h"

#include <cstdint>
#include <span>

namespace ddprun::trainer {

class Renderer {
public:
    /// Decodes and renders [3, height, width] of plan.kept. With `scaling` a JPEG of which the plan
    /// makes a picture of at most half the size is decoded at 1/2, 1/4 or 1/8, which costs
    /// accuracy. Errors: those of PictureDecoder::decode.
    [[nodiscard]] Result<void> render(
        PictureDecoder& decoder,
        const PicturePlan& plan,
        bool scaling,
        const NormaliseTable& table,
        std::span<float> out
    );

    /// The same to bytes, three a pixel, row by row; never scaled.
    [[nodiscard]] Result<void> render(
        PictureDecoder& decoder, const PicturePlan& plan, std::span<std::uint8_t> out
    );

    /// Of pixels that are there already: `source` holds all of plan.crop.
    void render(
        const PixelView& source,
        const PicturePlan& plan,
        const NormaliseTable& table,
        std::span<float> out
    );

    /// Gives back memory that an unusually large picture took.
    void trim();

private:
    struct Sampling {
        Windows columns;
        Windows rows;
        int denominator = 1;
    };

    [[nodiscard]] static Sampling sampling_of(const PicturePlan& plan, int denominator, Size size);
    [[nodiscard]] Result<Sampling> decode(
        PictureDecoder& decoder, const PicturePlan& plan, bool scaling
    );
    void write(
        const PixelView& source,
        const Sampling& sampling,
        const PicturePlan& plan,
        const NormaliseTable& table,
        std::span<float> out
    );

    Pixels pixels_;
    ResampleScratch scratch_;
};

/// One row of pixels as three rows of floats, `plane` floats apart, mirrored if asked for.
void normalise_row(
    std::span<const std::uint8_t> row,
    const NormaliseTable& table,
    bool flip,
    std::size_t plane,
    float* out
);

}  // namespace ddprun::trainer
