// Bilinear resampling of 8-bit RGB as PIL's Image.resize(BILINEAR) does it, which torchvision's
// transforms stand on: antialiased (the window grows with the reduction), first along the rows,
// then along the columns, each with 22-bit fixed-point weights and a rounding to 8 bits. The bytes
// are PIL's. Only what `outputs` asks for is computed. Pure.
#pragma once

#include "trainer/picture.h"
#include "trainer/resample_kernels.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace ddprun::trainer {

/// One direction of a resampling: [begin, begin + length) of the input becomes `outputs_total`
/// pixels, of which [first, first + count) are wanted. Input pixels outside [low, high) don't
/// exist.
struct Axis {
    double begin = 0.0;
    double length = 1.0;
    int low = 0;
    int high = 1;
    int outputs_total = 1;
    int first = 0;
    int count = 1;
};

/// Of a whole side: `from` pixels become `to`, all wanted.
[[nodiscard]] Axis whole_axis(int from, int to);

/// Input pixels behind Windows::high that windows may name with a weight of 0: where a part of the
/// outputs is wanted, the last window may be one pixel narrower than the widest, and that one more
/// to be even.
inline constexpr int kBeyondWindows = 2;

/// For each output the input pixels that it is made of, and their weights.
struct Windows {
    std::vector<int> first;             ///< input pixel of the first weight, per output
    std::vector<std::int32_t> weights;  ///< `taps` for each output, in units of 2^-22, some 0
    int taps = 0;                       ///< even
    int low = 0;                        ///< input pixels with a weight in all: [low, high)
    int high = 0;

    [[nodiscard]] int outputs() const { return static_cast<int>(first.size()); }
};

[[nodiscard]] Windows make_windows(const Axis& axis);

/// Scratch memory of a thread, kept from picture to picture.
struct ResampleScratch {
    std::vector<std::uint8_t> narrowed;
    std::vector<std::uint8_t> row;
};

/// Takes output row `y` (from 0), 3 bytes a pixel.
using RowSink = std::function<void(int y, const std::uint8_t* row)>;

/// `source` must hold the pixels [columns.low, columns.high) x [rows.low, rows.high).
void resample(
    const PixelView& source,
    const Windows& columns,
    const Windows& rows,
    ResampleScratch& scratch,
    const RowSink& sink
);

/// The same with the kernels named, for tests that compare them.
void resample_with(
    const ResampleKernels& kernels,
    const PixelView& source,
    const Windows& columns,
    const Windows& rows,
    ResampleScratch& scratch,
    const RowSink& sink
);

}  // namespace ddprun::trainer
