#include "trainer/resample.h"

#include "tests/unit/trainer/make_pictures.h"
#include "trainer/sample_random.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace ddprun::trainer {
namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes run(
    const ResampleKernels& kernels,
    const Bytes& pixels,
    Size from,
    const Windows& x,
    const Windows& y
) {
    Bytes padded = pixels;
    padded.resize(pixels.size() + kReadBeyond);
    Bytes out;
    ResampleScratch scratch;
    const auto row_bytes = static_cast<std::size_t>(x.outputs()) * kPixelBytes;
    resample_with(
        kernels,
        {padded.data(), whole(from)},
        x,
        y,
        scratch,
        [&out, row_bytes](int, const std::uint8_t* row) {
            out.insert(out.end(), row, row + row_bytes);
        }
    );
    return out;
}

Bytes resize(const Bytes& pixels, Size from, Size to) {
    return run(
        best_kernels(),
        pixels,
        from,
        make_windows(whole_axis(from.width, to.width)),
        make_windows(whole_axis(from.height, to.height))
    );
}

/// Sizes that shrink, grow, and do both.
std::vector<std::pair<Size, Size>> some_sizes() {
    std::vector<std::pair<Size, Size>> sizes{
        {{1, 1}, {1, 1}}, {{1, 1}, {7, 3}}, {{2, 3}, {1, 1}}, {{100, 3}, {3, 100}}};
    SampleRandom random(5, 0, 0);
    for (int i = 0; i < 20; ++i) {
        sizes.push_back(
            {{1 + random.below(90), 1 + random.below(90)},
             {1 + random.below(60), 1 + random.below(60)}}
        );
    }
    return sizes;
}

/// An axis as a crop makes them: any scale, any part of the outputs.
Axis some_axis(SampleRandom& random) {
    Axis axis = whole_axis(1 + random.below(90), 1 + random.below(90));
    axis.begin = random.below(2) == 0 ? 0.0 : 0.5;
    axis.length -= axis.begin;
    axis.first = random.below(axis.outputs_total);
    axis.count = 1 + random.below(axis.outputs_total - axis.first);
    return axis;
}

/// What the rows' windows read of the narrowed rows must lie in here.
const Bytes* allotted = nullptr;
int reads_beyond = 0;

/// Looks where the plain kernel would read and write, and lets it.
void watched_blend(
    const std::uint8_t* rows,
    std::size_t stride,
    const std::int32_t* weights,
    int taps,
    std::size_t bytes,
    std::uint8_t* out
) {
    const std::size_t begin = static_cast<std::size_t>(rows - allotted->data());
    const std::size_t end = begin + static_cast<std::size_t>(taps - 1) * stride + bytes;
    if (end + kKernelSlack > allotted->size()) {
        ++reads_beyond;
        return;
    }
    portable_kernels().blend(rows, stride, weights, taps, bytes, out);
}

TEST_SUITE_BEGIN("trainer/resample");

TEST_CASE("wide instructions give the bytes of plain ones") {
    for (const auto& [from, to] : some_sizes()) {
        const Bytes pixels = make_pixels(from.width, from.height);
        const Windows x = make_windows(whole_axis(from.width, to.width));
        const Windows y = make_windows(whole_axis(from.height, to.height));

        CHECK(
            run(portable_kernels(), pixels, from, x, y) == run(best_kernels(), pixels, from, x, y)
        );
    }
}

TEST_CASE("a size that stays leaves every byte as it is") {
    const Bytes pixels = make_pixels(37, 21);

    CHECK(resize(pixels, {37, 21}, {37, 21}) == pixels);
}

TEST_CASE("a flat picture stays flat to the last level") {
    for (const auto& [from, to] : some_sizes()) {
        for (const int level : {0, 1, 128, 254, 255}) {
            const auto value = static_cast<std::uint8_t>(level);
            const Bytes flat(from.pixels() * kPixelBytes, value);

            CHECK(resize(flat, from, to) == Bytes(to.pixels() * kPixelBytes, value));
        }
    }
}

TEST_CASE("a part of the result is what the whole has there") {
    const Size from{83, 61};
    const Size to{40, 50};
    const Bytes pixels = make_pixels(from.width, from.height);
    const Bytes all = resize(pixels, from, to);
    Axis x = whole_axis(from.width, to.width);
    Axis y = whole_axis(from.height, to.height);
    x.first = 7;
    x.count = 20;
    y.first = 30;
    y.count = 20;

    const Bytes part = run(best_kernels(), pixels, from, make_windows(x), make_windows(y));

    for (std::size_t row = 0; row < 20; ++row) {
        const auto expected = all.begin() + static_cast<std::ptrdiff_t>(((row + 30) * 40 + 7) * 3);
        const auto got = part.begin() + static_cast<std::ptrdiff_t>(row * 60);
        CHECK(std::equal(got, got + 60, expected));
    }
}

TEST_CASE("windows name the input that they need, and no more than a pixel around it") {
    Axis axis = whole_axis(500, 100);
    axis.first = 40;
    axis.count = 10;
    const Windows windows = make_windows(axis);

    CHECK(windows.low >= 195);
    CHECK(windows.low <= 200);
    CHECK(windows.high >= 250);
    CHECK(windows.high <= 255);
}

TEST_CASE("no window begins before what is needed or ends more than two pixels behind it") {
    SampleRandom random(11, 0, 0);
    int furthest = 0;
    for (int i = 0; i < 20000; ++i) {
        const Windows windows = make_windows(some_axis(random));
        CHECK(windows.low == *std::min_element(windows.first.begin(), windows.first.end()));
        const int last = *std::max_element(windows.first.begin(), windows.first.end());
        furthest = std::max(furthest, last + windows.taps - windows.high);
    }

    CHECK(furthest == kBeyondWindows);
}

TEST_CASE("whatever part is wanted, no row is read that isn't allotted") {
    SampleRandom random(12, 0, 0);
    const ResampleKernels watched{portable_kernels().narrow, watched_blend};
    reads_beyond = 0;
    for (int i = 0; i < 2000; ++i) {
        const Windows rows = make_windows(some_axis(random));
        const Windows columns = make_windows(whole_axis(3, 2));
        const Size size{3, rows.high};
        const Bytes pixels(size.pixels() * kPixelBytes + kReadBeyond, 7);
        // Fresh each time: a buffer that was larger once would hide what is missing.
        ResampleScratch scratch;
        allotted = &scratch.narrowed;
        const auto ignore = [](int, const std::uint8_t*) {};

        resample_with(watched, {pixels.data(), whole(size)}, columns, rows, scratch, ignore);
    }

    CHECK(reads_beyond == 0);
}

TEST_CASE("weights of every window add up to one but for their rounding") {
    for (const auto& [from, to] : some_sizes()) {
        const Windows windows = make_windows(whole_axis(from.width, to.width));
        for (int i = 0; i < windows.outputs(); ++i) {
            std::int64_t sum = 0;
            for (int k = 0; k < windows.taps; ++k) {
                sum += windows.weights[static_cast<std::size_t>(i * windows.taps + k)];
            }
            CHECK(std::abs(sum - (1 << kWeightBits)) <= windows.taps);
        }
    }
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::trainer
