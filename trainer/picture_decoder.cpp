#include "trainer/picture_decoder.h"

#include "proto/limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace ddprun::trainer {

namespace {

constexpr std::array<std::uint8_t, 3> kJpegBegin{0xff, 0xd8, 0xff};
constexpr std::array<std::uint8_t, 8> kPngBegin{0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

template <std::size_t N>
bool begins_with(std::span<const std::uint8_t> bytes, const std::array<std::uint8_t, N>& begin) {
    return bytes.size() >= N && std::equal(begin.begin(), begin.end(), bytes.begin());
}

}  // namespace

Result<void> check_picture_size(std::uint64_t width, std::uint64_t height) {
    if (width == 0 || height == 0) {
        return fail(Errc::malformed, "a picture without pixels");
    }
    if (width > limits::kPicturePixelsMax || height > limits::kPicturePixelsMax ||
        width * height > limits::kPicturePixelsMax) {
        return fail(
            Errc::limit_exceeded,
            fmt::format(
                "{} x {} pixels, {} are the limit", width, height, limits::kPicturePixelsMax
            )
        );
    }
    return {};
}

Result<std::unique_ptr<PictureDecoder>> open_picture(std::span<const std::uint8_t> bytes) {
    if (bytes.empty()) {
        return fail(Errc::malformed, "the file is empty");
    }
    if (begins_with(bytes, kJpegBegin)) {
        return open_jpeg(bytes);
    }
    if (begins_with(bytes, kPngBegin)) {
        return open_png(bytes);
    }
    return fail(Errc::malformed, "neither a JPEG nor a PNG picture; convert it to one of them");
}

}  // namespace ddprun::trainer
