// PNG by libpng. Its errors jump over our frames (setjmp), so the functions that call it hold
// nothing that needs a destructor.
#include "proto/assert.h"
#include "trainer/picture_decoder.h"

#include <png.h>

#include <array>
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace ddprun::trainer {

namespace {

struct PngState {
    std::span<const std::uint8_t> left;  ///< bytes that are not read yet
    std::array<char, 200> text{};
    std::jmp_buf back{};
};

[[noreturn]] void leave(png_structp png, png_const_charp text) {
    auto* const state = static_cast<PngState*>(::png_get_error_ptr(png));
    std::snprintf(state->text.data(), state->text.size(), "%s", text);
    std::longjmp(state->back, 1);  // NOLINT(cert-err52-cpp): the library's way out
}

void ignore_warning(png_structp, png_const_charp) {}

void give_bytes(png_structp png, png_bytep out, std::size_t count) {
    auto* const state = static_cast<PngState*>(::png_get_io_ptr(png));
    if (count > state->left.size()) {
        ::png_error(png, "the file is cut off");
    }
    std::memcpy(out, state->left.data(), count);
    state->left = state->left.subspan(count);
}

class PngDecoder final : public PictureDecoder {
public:
    explicit PngDecoder(std::span<const std::uint8_t> bytes) { state_.left = bytes; }

    PngDecoder(const PngDecoder&) = delete;
    PngDecoder& operator=(const PngDecoder&) = delete;

    ~PngDecoder() override { ::png_destroy_read_struct(&png_, &info_, nullptr); }

    [[nodiscard]] Result<void> open() {
        png_ = ::png_create_read_struct(PNG_LIBPNG_VER_STRING, &state_, leave, ignore_warning);
        info_ = png_ != nullptr ? ::png_create_info_struct(png_) : nullptr;
        if (info_ == nullptr) {
            return fail(Errc::internal, "libpng has no memory, or is of another version");
        }
        if (!read_header()) {
            return broken();
        }
        const auto checked = check_picture_size(width_, height_);
        if (!checked) {
            return checked;
        }
        if (!set_up_conversion()) {
            return broken();
        }
        return {};
    }

    [[nodiscard]] Size size() const override {
        return {static_cast<int>(width_), static_cast<int>(height_)};
    }

    [[nodiscard]] Result<void> decode(Box area, int denominator, Pixels& out) override {
        DDPRUN_ASSERT(denominator == 1);
        DDPRUN_ASSERT(area.right() <= size().width && area.bottom() <= size().height);
        out.reset(whole(size()));
        rows_.resize(height_);
        const std::size_t bytes = std::size_t{width_} * kGrey16Bytes;
        if (grey16_) {
            grey_.resize(bytes * height_);
        }
        for (std::size_t y = 0; y < rows_.size(); ++y) {
            rows_[y] = grey16_ ? grey_.data() + y * bytes : out.row(static_cast<int>(y));
        }
        if (!read_rows()) {
            return broken();
        }
        if (grey16_) {
            spread_grey16(out);
        }
        return {};
    }

private:
    static constexpr std::size_t kGrey16Bytes = 2;

    [[nodiscard]] tl::unexpected<Error> broken() const {
        return fail(Errc::malformed, std::string("PNG: ") + state_.text.data());
    }

    // Each of these three returns false with the text in state_.

    bool read_header() {
        if (setjmp(state_.back) != 0) {  // NOLINT(cert-err52-cpp)
            return false;
        }
        ::png_set_read_fn(png_, &state_, give_bytes);
        ::png_read_info(png_, info_);
        width_ = ::png_get_image_width(png_, info_);
        height_ = ::png_get_image_height(png_, info_);
        return true;
    }

    bool set_up_conversion() {
        if (setjmp(state_.back) != 0) {  // NOLINT(cert-err52-cpp)
            return false;
        }
        const int kind = ::png_get_color_type(png_, info_);
        const int depth = ::png_get_bit_depth(png_, info_);
        grey16_ = kind == PNG_COLOR_TYPE_GRAY && depth == 16;
        if (kind == PNG_COLOR_TYPE_PALETTE) {
            ::png_set_palette_to_rgb(png_);
        }
        if (kind == PNG_COLOR_TYPE_GRAY && depth < 8) {
            ::png_set_expand_gray_1_2_4_to_8(png_);
        }
        if (depth == 16 && !grey16_) {
            ::png_set_strip_16(png_);
        }
        if (!grey16_) {
            ::png_set_gray_to_rgb(png_);
            ::png_set_strip_alpha(png_);
        }
        ::png_set_interlace_handling(png_);
        ::png_read_update_info(png_, info_);
        const std::size_t wanted = std::size_t{width_} * (grey16_ ? kGrey16Bytes : kPixelBytes);
        if (::png_get_rowbytes(png_, info_) != wanted) {
            ::png_error(png_, "a kind of pixels that isn't known");
        }
        return true;
    }

    bool read_rows() {
        if (setjmp(state_.back) != 0) {  // NOLINT(cert-err52-cpp)
            return false;
        }
        ::png_read_image(png_, rows_.data());
        return true;
    }

    /// PIL keeps 16 bits of a grey picture (mode I;16) and cuts what is above 255 for RGB.
    void spread_grey16(Pixels& out) const {
        for (std::size_t y = 0; y < height_; ++y) {
            const std::uint8_t* in = rows_[y];
            std::uint8_t* to = out.row(static_cast<int>(y));
            for (std::size_t x = 0; x < width_; ++x, in += kGrey16Bytes, to += kPixelBytes) {
                const std::uint8_t grey = in[0] != 0 ? 255 : in[1];
                to[0] = to[1] = to[2] = grey;
            }
        }
    }

    PngState state_;
    png_structp png_ = nullptr;
    png_infop info_ = nullptr;
    png_uint_32 width_ = 0;
    png_uint_32 height_ = 0;
    bool grey16_ = false;
    std::vector<png_bytep> rows_;
    std::vector<std::uint8_t> grey_;
};

}  // namespace

Result<std::unique_ptr<PictureDecoder>> open_png(std::span<const std::uint8_t> bytes) {
    auto decoder = std::make_unique<PngDecoder>(bytes);
    if (auto opened = decoder->open(); !opened) {
        return fail(opened.error());
    }
    return std::unique_ptr<PictureDecoder>(std::move(decoder));
}

}  // namespace ddprun::trainer
