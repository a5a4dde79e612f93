// JPEG and PNG files made in a test, by the libraries themselves.
#pragma once

#include "trainer/jpeg_library.h"
#include "trainer/picture.h"

#include <doctest/doctest.h>

#include <png.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::trainer {

/// A picture with edges, slopes and colour, 3 bytes a pixel; `variant` changes all of it.
inline std::vector<std::uint8_t> make_pixels(int width, int height, int variant = 0) {
    std::vector<std::uint8_t> pixels;
    for (int y = 0; y < height; ++y) {
        for (int x = 0; x < width; ++x) {
            const double wave = std::sin((x * 0.31 + variant) * (1.0 + y * 0.004)) * 60.0;
            pixels.push_back(static_cast<std::uint8_t>(120.0 + wave + (x / 7 % 2) * 40));
            pixels.push_back(static_cast<std::uint8_t>((x * 3 + y * 5 + variant * 31) % 256));
            pixels.push_back(static_cast<std::uint8_t>((x / 5 + y / 3) % 2 == 0 ? 30 : 210));
        }
    }
    return pixels;
}

struct JpegKind {
    const char* name = "4:2:0";
    int channels = 3;    ///< 1 grey, 3 colour, 4 inks
    int horizontal = 2;  ///< sampling factors of the first channel
    int vertical = 2;
    bool progressive = false;
    unsigned restart_rows = 0;
    int quality = 85;
};

/// `pixels` with kind.channels bytes each.
inline std::string encode_jpeg(
    const std::vector<std::uint8_t>& pixels, int width, int height, const JpegKind& kind = {}
) {
    jpeg_compress_struct info{};
    jpeg_error_mgr errors{};
    info.err = ::jpeg_std_error(&errors);
    jpeg_create_compress(&info);
    unsigned char* memory = nullptr;
    unsigned long size = 0;
    ::jpeg_mem_dest(&info, &memory, &size);
    info.image_width = static_cast<JDIMENSION>(width);
    info.image_height = static_cast<JDIMENSION>(height);
    info.input_components = kind.channels;
    info.in_color_space = kind.channels == 1   ? JCS_GRAYSCALE
                          : kind.channels == 3 ? JCS_RGB
                                               : JCS_CMYK;
    ::jpeg_set_defaults(&info);
    ::jpeg_set_quality(&info, kind.quality, TRUE);
    info.comp_info[0].h_samp_factor = kind.channels == 3 ? kind.horizontal : 1;
    info.comp_info[0].v_samp_factor = kind.channels == 3 ? kind.vertical : 1;
    info.restart_in_rows = static_cast<int>(kind.restart_rows);
    if (kind.progressive) {
        ::jpeg_simple_progression(&info);
    }
    ::jpeg_start_compress(&info, TRUE);
    const auto row_bytes =
        static_cast<std::size_t>(width) * static_cast<std::size_t>(kind.channels);
    for (std::size_t y = 0; y < static_cast<std::size_t>(height); ++y) {
        auto* row = const_cast<JSAMPROW>(pixels.data() + y * row_bytes);
        ::jpeg_write_scanlines(&info, &row, 1);
    }
    ::jpeg_finish_compress(&info);
    ::jpeg_destroy_compress(&info);
    std::string bytes(reinterpret_cast<const char*>(memory), size);
    std::free(memory);
    return bytes;
}

struct PngKind {
    int color_type = PNG_COLOR_TYPE_RGB;
    int depth = 8;
    bool interlaced = false;
    std::vector<png_color> palette{};
};

/// `rows` are PNG's own bytes of each row, all of `row_bytes`.
inline std::string encode_png(
    const std::vector<std::uint8_t>& rows, int width, int height, const PngKind& kind = {}
) {
    png_structp png = ::png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
    png_infop info = ::png_create_info_struct(png);
    std::string bytes;
    ::png_set_write_fn(
        png,
        &bytes,
        [](png_structp writer, png_bytep data, std::size_t size) {
            static_cast<std::string*>(::png_get_io_ptr(writer))
                ->append(reinterpret_cast<const char*>(data), size);
        },
        nullptr
    );
    ::png_set_IHDR(
        png,
        info,
        static_cast<png_uint_32>(width),
        static_cast<png_uint_32>(height),
        kind.depth,
        kind.color_type,
        kind.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
        PNG_COMPRESSION_TYPE_DEFAULT,
        PNG_FILTER_TYPE_DEFAULT
    );
    if (!kind.palette.empty()) {
        ::png_set_PLTE(png, info, kind.palette.data(), static_cast<int>(kind.palette.size()));
    }
    ::png_write_info(png, info);
    std::vector<png_bytep> pointers;
    const std::size_t row_bytes = rows.size() / static_cast<std::size_t>(height);
    for (std::size_t y = 0; y < static_cast<std::size_t>(height); ++y) {
        pointers.push_back(const_cast<png_bytep>(rows.data() + y * row_bytes));
    }
    ::png_write_image(png, pointers.data());
    ::png_write_end(png, info);
    ::png_destroy_write_struct(&png, &info);
    return bytes;
}

inline std::vector<std::uint8_t> bytes_of(std::string_view text) {
    return {text.begin(), text.end()};
}

}  // namespace ddprun::trainer
