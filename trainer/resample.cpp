#include "trainer/resample.h"

#include "proto/assert.h"

#include <algorithm>
#include <cmath>

namespace ddprun::trainer {

namespace {

// What `narrow` reads behind the last column is within what every PixelView has there.
static_assert(kBeyondWindows * kPixelBytes + 2 <= kReadBeyond);

/// Input pixels [begin, end) of one output.
struct Span {
    int begin = 0;
    int end = 0;
};

}  // namespace

Axis whole_axis(int from, int to) {
    return {
        .begin = 0.0,
        .length = static_cast<double>(from),
        .low = 0,
        .high = from,
        .outputs_total = to,
        .first = 0,
        .count = to,
    };
}

Windows make_windows(const Axis& axis) {
    DDPRUN_ASSERT(axis.length > 0.0 && axis.low < axis.high && axis.count >= 1);
    DDPRUN_ASSERT(axis.first >= 0 && axis.first + axis.count <= axis.outputs_total);
    const double scale = axis.length / axis.outputs_total;
    const double support = std::max(scale, 1.0);
    const double per_pixel = 1.0 / support;
    const auto centre_of = [&axis, scale](int i) { return axis.begin + (i + 0.5) * scale; };
    std::vector<Span> spans;
    spans.reserve(static_cast<std::size_t>(axis.count));
    int widest = 0;
    for (int i = axis.first; i < axis.first + axis.count; ++i) {
        // Rounded towards zero, which matters below it.
        const double centre = centre_of(i);
        const int begin = std::max(static_cast<int>(centre - support + 0.5), axis.low);
        const int end = std::min(static_cast<int>(centre + support + 0.5), axis.high);
        DDPRUN_ASSERT(begin < end);
        spans.push_back({begin, end});
        widest = std::max(widest, end - begin);
    }
    Windows windows;
    windows.taps = widest + widest % 2;
    windows.low = axis.high;
    windows.high = axis.low;
    windows.weights.assign(spans.size() * static_cast<std::size_t>(windows.taps), 0);
    std::int32_t* out = windows.weights.data();
    std::vector<double> shares(static_cast<std::size_t>(widest));
    for (std::size_t i = 0; i < spans.size(); ++i, out += windows.taps) {
        const auto [begin, end] = spans[i];
        const double centre = centre_of(axis.first + static_cast<int>(i));
        double sum = 0.0;
        for (int j = begin; j < end; ++j) {
            const double share = std::max(1.0 - std::abs((j - centre + 0.5) * per_pixel), 0.0);
            shares[static_cast<std::size_t>(j - begin)] = share;
            sum += share;
        }
        // At the end of the input the weights of 0 stand first, so that nothing is read behind it.
        const int first = std::max(std::min(begin, axis.high - windows.taps), axis.low);
        for (int j = begin; j < end; ++j) {
            const double weight = shares[static_cast<std::size_t>(j - begin)] / sum;
            out[j - first] = static_cast<std::int32_t>(0.5 + weight * (1 << kWeightBits));
        }
        windows.first.push_back(first);
        windows.low = std::min(windows.low, first);
        windows.high = std::max(windows.high, end);
    }
    return windows;
}

void resample_with(
    const ResampleKernels& kernels,
    const PixelView& source,
    const Windows& columns,
    const Windows& rows,
    ResampleScratch& scratch,
    const RowSink& sink
) {
    DDPRUN_ASSERT(source.area.left <= columns.low && columns.high <= source.area.right());
    DDPRUN_ASSERT(source.area.top <= rows.low && rows.high <= source.area.bottom());
    const std::size_t row_bytes = static_cast<std::size_t>(columns.outputs()) * kPixelBytes;
    const std::size_t height = static_cast<std::size_t>(rows.high - rows.low);
    scratch.narrowed.resize((height + kBeyondWindows) * row_bytes + kKernelSlack);
    scratch.row.resize(row_bytes + kKernelSlack);
    for (int y = rows.low; y < rows.high; ++y) {
        kernels.narrow(
            source.pixel(source.area.left, y),
            columns.first.data(),
            source.area.left,
            columns.weights.data(),
            columns.taps,
            columns.outputs(),
            scratch.narrowed.data() + static_cast<std::size_t>(y - rows.low) * row_bytes
        );
    }
    const std::int32_t* weights = rows.weights.data();
    for (int y = 0; y < rows.outputs(); ++y, weights += rows.taps) {
        const auto first =
            static_cast<std::size_t>(rows.first[static_cast<std::size_t>(y)] - rows.low);
        kernels.blend(
            scratch.narrowed.data() + first * row_bytes,
            row_bytes,
            weights,
            rows.taps,
            row_bytes,
            scratch.row.data()
        );
        sink(y, scratch.row.data());
    }
}

void resample(
    const PixelView& source,
    const Windows& columns,
    const Windows& rows,
    ResampleScratch& scratch,
    const RowSink& sink
) {
    resample_with(best_kernels(), source, columns, rows, scratch, sink);
}

}  // namespace ddprun::trainer
