// JPEG by libjpeg-turbo. Its errors jump over our frames (setjmp), so the functions that call it
// hold nothing that needs a destructor.
#include "proto/assert.h"
#include "proto/limits.h"
#include "trainer/jpeg_library.h"
#include "trainer/picture_decoder.h"

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

namespace ddprun::trainer {

namespace {

/// Chroma at half the width is interpolated from both neighbours: with this many pixels more on
/// each side the pixels asked for come out as if the whole row had been decoded.
constexpr int kSideMargin = 2;
constexpr int kCmykBytes = 4;

struct ErrorState {
    jpeg_error_mgr base{};
    std::jmp_buf back{};
    std::array<char, JMSG_LENGTH_MAX> text{};
    bool cut_off = false;
};

ErrorState& state_of(j_common_ptr info) {
    // `base` is the first member, as libjpeg's own example has it.
    return *reinterpret_cast<ErrorState*>(info->err);
}

[[noreturn]] void leave(j_common_ptr info) {
    ErrorState& state = state_of(info);
    state.base.format_message(info, state.text.data());
    std::longjmp(state.back, 1);  // NOLINT(cert-err52-cpp): the library's way out
}

/// Warnings are damage that the decoder gets over, as PIL does; all but the end of the data.
void take_message(j_common_ptr info, int level) {
    ErrorState& state = state_of(info);
    if (level < 0 && state.base.msg_code == JWRN_JPEG_EOF) {
        state.cut_off = true;
    }
}

/// A progressive file of few bytes may ask for any number of passes over all of the picture.
void watch_scans(j_common_ptr info) {
    auto* const decompress = reinterpret_cast<j_decompress_ptr>(info);
    if (decompress->input_scan_number > limits::kJpegScansMax) {
        ErrorState& state = state_of(info);
        std::snprintf(state.text.data(), state.text.size(), "more scans than any encoder makes");
        std::longjmp(state.back, 1);  // NOLINT(cert-err52-cpp)
    }
}

/// (a * b) / 255, rounded, as PIL multiplies 8-bit values.
std::uint8_t scale_by(unsigned a, unsigned b) {
    const unsigned product = a * b + 128;
    return static_cast<std::uint8_t>((product + (product >> 8U)) >> 8U);
}

/// Inks are inverted in the files that programs write (Adobe's convention), which PIL takes for
/// all.
void cmyk_to_rgb(const std::uint8_t* in, std::uint8_t* out, int width) {
    for (int x = 0; x < width; ++x, in += kCmykBytes, out += kPixelBytes) {
        const unsigned light = in[3];
        for (int c = 0; c < 3; ++c) {
            const unsigned ink = 255U - in[c];
            out[c] = static_cast<std::uint8_t>(light - scale_by(ink, light));
        }
    }
}

class JpegDecoder final : public PictureDecoder {
public:
    explicit JpegDecoder(std::span<const std::uint8_t> bytes) : bytes_(bytes) {
        info_.err = ::jpeg_std_error(&errors_.base);
        errors_.base.error_exit = leave;
        errors_.base.emit_message = take_message;
        progress_.progress_monitor = watch_scans;
    }

    JpegDecoder(const JpegDecoder&) = delete;
    JpegDecoder& operator=(const JpegDecoder&) = delete;

    ~JpegDecoder() override { ::jpeg_destroy_decompress(&info_); }

    [[nodiscard]] Result<void> open() {
        if (!read_header()) {
            return broken();
        }
        if (errors_.cut_off) {
            return fail(Errc::malformed, "the JPEG file is cut off");
        }
        return check_picture_size(info_.image_width, info_.image_height);
    }

    [[nodiscard]] Size size() const override {
        return {static_cast<int>(info_.image_width), static_cast<int>(info_.image_height)};
    }

    [[nodiscard]] bool can_scale() const override { return true; }

    [[nodiscard]] Result<void> decode(Box area, int denominator, Pixels& out) override {
        const Size scaled = scaled_size(denominator);
        DDPRUN_ASSERT(area.left >= 0 && area.top >= 0 && area.width >= 1 && area.height >= 1);
        DDPRUN_ASSERT(area.right() <= scaled.width && area.bottom() <= scaled.height);
        if (!start(denominator, area)) {
            return broken();
        }
        out.reset({left_, area.top, width_, area.height});
        line_.resize(static_cast<std::size_t>(width_) * kCmykBytes);
        if (!read_rows(out, area)) {
            return broken();
        }
        if (errors_.cut_off) {
            return fail(Errc::malformed, "the JPEG file is cut off");
        }
        return {};
    }

private:
    [[nodiscard]] tl::unexpected<Error> broken() const {
        return fail(Errc::malformed, std::string("JPEG: ") + errors_.text.data());
    }

    // Each of these three returns false with the text in errors_.

    bool read_header() {
        if (setjmp(errors_.back) != 0) {  // NOLINT(cert-err52-cpp)
            return false;
        }
        jpeg_create_decompress(&info_);
        info_.progress = &progress_;
        ::jpeg_mem_src(&info_, bytes_.data(), static_cast<unsigned long>(bytes_.size()));
        ::jpeg_read_header(&info_, TRUE);
        return true;
    }

    bool start(int denominator, const Box& area) {
        if (setjmp(errors_.back) != 0) {  // NOLINT(cert-err52-cpp)
            return false;
        }
        info_.scale_num = 1;
        info_.scale_denom = static_cast<unsigned>(denominator);
        info_.out_color_space = info_.num_components == 4 ? JCS_CMYK : JCS_RGB;
        ::jpeg_start_decompress(&info_);
        const auto output_width = static_cast<int>(info_.output_width);
        const int begin = std::max(area.left - kSideMargin, 0);
        const int end = std::min(area.right() + kSideMargin, output_width);
        JDIMENSION left = static_cast<JDIMENSION>(begin);
        JDIMENSION width = static_cast<JDIMENSION>(end - begin);
        if (begin > 0 || end < output_width) {
            // Moves `left` to the border of a block.
            ::jpeg_crop_scanline(&info_, &left, &width);
        }
        left_ = static_cast<int>(left);
        width_ = static_cast<int>(width);
        return true;
    }

    bool read_rows(Pixels& out, const Box& area) {
        if (setjmp(errors_.back) != 0) {  // NOLINT(cert-err52-cpp)
            return false;
        }
        if (area.top > 0) {
            ::jpeg_skip_scanlines(&info_, static_cast<JDIMENSION>(area.top));
        }
        for (int y = area.top; y < area.bottom(); ++y) {
            if (info_.out_color_space == JCS_CMYK) {
                JSAMPROW row = line_.data();
                ::jpeg_read_scanlines(&info_, &row, 1);
                cmyk_to_rgb(line_.data(), out.row(y), width_);
            } else {
                JSAMPROW row = out.row(y);
                ::jpeg_read_scanlines(&info_, &row, 1);
            }
        }
        // A whole file ends with its end marker, and then the rows below needn't be looked at.
        const JDIMENSION left = info_.output_height - info_.output_scanline;
        if (left > 0 && !ends_with_marker()) {
            if (left > 1) {
                ::jpeg_skip_scanlines(&info_, left - 1);
            }
            // A skip to the end would not look at the data; reading the last row does.
            JSAMPROW row = line_.data();
            ::jpeg_read_scanlines(&info_, &row, 1);
        }
        return true;
    }

    [[nodiscard]] bool ends_with_marker() const {
        return bytes_.size() >= 2 && bytes_[bytes_.size() - 2] == 0xff && bytes_.back() == JPEG_EOI;
    }

    std::span<const std::uint8_t> bytes_;
    ErrorState errors_;
    jpeg_progress_mgr progress_{};
    jpeg_decompress_struct info_{};
    std::vector<std::uint8_t> line_;  ///< one row of four inks
    int left_ = 0;                    ///< what decode() really decodes
    int width_ = 0;
};

}  // namespace

Result<std::unique_ptr<PictureDecoder>> open_jpeg(std::span<const std::uint8_t> bytes) {
    auto decoder = std::make_unique<JpegDecoder>(bytes);
    if (auto opened = decoder->open(); !opened) {
        return fail(opened.error());
    }
    return std::unique_ptr<PictureDecoder>(std::move(decoder));
}

}  // namespace ddprun::trainer
