// Pictures as the data path sees them: 8-bit RGB, interleaved, row by row, and boxes in whole
// pixels. Plain values, no LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ddprun::trainer {

/// Bytes of one pixel.
inline constexpr std::size_t kPixelBytes = 3;

struct Size {
    int width = 0;
    int height = 0;

    [[nodiscard]] std::size_t pixels() const {
        return static_cast<std::size_t>(width) * static_cast<std::size_t>(height);
    }

    friend bool operator==(const Size&, const Size&) = default;
};

struct Box {
    int left = 0;
    int top = 0;
    int width = 0;
    int height = 0;

    [[nodiscard]] int right() const { return left + width; }

    [[nodiscard]] int bottom() const { return top + height; }

    [[nodiscard]] Size size() const { return {width, height}; }

    friend bool operator==(const Box&, const Box&) = default;
};

/// The box of all of a picture.
[[nodiscard]] inline Box whole(Size size) {
    return {0, 0, size.width, size.height};
}

/// Pixels of `area` of a picture that somebody else owns. At least kReadBeyond bytes after the last
/// pixel may be read too, whatever they hold.
struct PixelView {
    const std::uint8_t* data = nullptr;
    Box area;

    [[nodiscard]] const std::uint8_t* pixel(int x, int y) const {
        const auto row = static_cast<std::size_t>(y - area.top);
        const auto column = static_cast<std::size_t>(x - area.left);
        return data + (row * static_cast<std::size_t>(area.width) + column) * kPixelBytes;
    }
};

/// What wide loads of the resampling kernels may touch behind a row.
inline constexpr std::size_t kReadBeyond = 16;

/// Pixels with memory of their own, which is kept when it is used again.
class Pixels {
public:
    /// Room for `area`; what it holds is not defined.
    void reset(Box area) {
        area_ = area;
        bytes_.resize(area.size().pixels() * kPixelBytes + kReadBeyond);
    }

    [[nodiscard]] std::uint8_t* row(int y) {
        return bytes_.data() + static_cast<std::size_t>(y - area_.top) *
                                   static_cast<std::size_t>(area_.width) * kPixelBytes;
    }

    [[nodiscard]] PixelView view() const { return {bytes_.data(), area_}; }

    [[nodiscard]] std::size_t capacity() const { return bytes_.capacity(); }

private:
    Box area_;
    std::vector<std::uint8_t> bytes_;
};

}  // namespace ddprun::trainer
