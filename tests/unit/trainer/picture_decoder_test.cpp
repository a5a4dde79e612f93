#include "trainer/picture_decoder.h"

#include "proto/limits.h"
#include "tests/unit/trainer/make_pictures.h"
#include "trainer/sample_random.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace ddprun::trainer {
namespace {

/// The bytes of `area`, decoded by itself.
std::vector<std::uint8_t> decode(const std::string& file, Box area, int denominator = 1) {
    const std::vector<std::uint8_t> bytes = bytes_of(file);
    auto decoder = open_picture(bytes);
    REQUIRE_MESSAGE(decoder.has_value(), decoder.error().context);
    Pixels pixels;
    const auto decoded = (*decoder)->decode(area, denominator, pixels);
    REQUIRE_MESSAGE(decoded.has_value(), decoded.error().context);
    std::vector<std::uint8_t> out;
    const PixelView view = pixels.view();
    for (int y = area.top; y < area.bottom(); ++y) {
        const std::uint8_t* const row = view.pixel(area.left, y);
        out.insert(out.end(), row, row + static_cast<std::size_t>(area.width) * kPixelBytes);
    }
    return out;
}

std::vector<std::uint8_t> cut(const std::vector<std::uint8_t>& pixels, int width, Box area) {
    std::vector<std::uint8_t> out;
    for (int y = area.top; y < area.bottom(); ++y) {
        const auto begin = pixels.begin() + (std::ptrdiff_t{y} * width + area.left) * 3;
        out.insert(out.end(), begin, begin + std::ptrdiff_t{area.width} * 3);
    }
    return out;
}

/// Why a file can't be decoded.
std::string complaint(const std::string& file, Box area) {
    const std::vector<std::uint8_t> bytes = bytes_of(file);
    auto decoder = open_picture(bytes);
    if (!decoder) {
        CHECK(decoder.error().code == Errc::malformed);
        return decoder.error().context;
    }
    Pixels pixels;
    const auto decoded = (*decoder)->decode(area, 1, pixels);
    REQUIRE(!decoded.has_value());
    CHECK(decoded.error().code == Errc::malformed);
    return decoded.error().context;
}

const std::vector<JpegKind>& jpeg_kinds() {
    static const std::vector<JpegKind> kKinds{
        {"4:2:0", 3, 2, 2, false, 0},
        {"4:2:2", 3, 2, 1, false, 0},
        {"4:4:4", 3, 1, 1, false, 0},
        {"4:4:0", 3, 1, 2, false, 0},
        {"4:1:1", 3, 4, 1, false, 0},
        {"4:2:0 progressive", 3, 2, 2, true, 0},
        {"4:4:4 progressive", 3, 1, 1, true, 0},
        {"4:2:0 restarts", 3, 2, 2, false, 2},
        {"grey", 1, 1, 1, false, 0},
        {"grey progressive", 1, 1, 1, true, 0},
    };
    return kKinds;
}

std::string make_jpeg(int width, int height, const JpegKind& kind) {
    std::vector<std::uint8_t> pixels = make_pixels(width, height);
    if (kind.channels == 1) {
        pixels.resize(pixels.size() / 3);
    }
    return encode_jpeg(pixels, width, height, kind);
}

TEST_SUITE_BEGIN("trainer/picture_decoder");

TEST_CASE("a part of a JPEG has the pixels that the whole has there") {
    SampleRandom random(1, 0, 0);
    for (const JpegKind& kind : jpeg_kinds()) {
        CAPTURE(kind.name);
        for (const Size size : {Size{131, 97}, Size{48, 64}, Size{9, 5}}) {
            const std::string file = make_jpeg(size.width, size.height, kind);
            for (const int denominator : {1, 2}) {
                const Size scaled{
                    (size.width + denominator - 1) / denominator,
                    (size.height + denominator - 1) / denominator};
                const auto all = decode(file, whole(scaled), denominator);
                for (int i = 0; i < 12; ++i) {
                    Box area;
                    area.width = 1 + random.below(scaled.width);
                    area.height = 1 + random.below(scaled.height);
                    area.left = random.below(scaled.width - area.width + 1);
                    area.top = random.below(scaled.height - area.height + 1);
                    CAPTURE(area.left);
                    CAPTURE(area.top);
                    CAPTURE(area.width);
                    CAPTURE(area.height);
                    CAPTURE(denominator);

                    CHECK(decode(file, area, denominator) == cut(all, scaled.width, area));
                }
            }
        }
    }
}

TEST_CASE("a JPEG that is cut off is malformed, whatever part of it is wanted") {
    for (const JpegKind& kind : jpeg_kinds()) {
        CAPTURE(kind.name);
        const std::string file = make_jpeg(96, 80, kind);
        for (const double share : {0.0, 0.1, 0.5, 0.9}) {
            const auto size = static_cast<std::size_t>(static_cast<double>(file.size()) * share);
            CAPTURE(size);
            CHECK(!complaint(file.substr(0, size), {0, 0, 8, 8}).empty());
            CHECK(!complaint(file.substr(0, size), {40, 60, 50, 20}).empty());
        }
    }
}

TEST_CASE("bytes behind the end of a JPEG do no harm") {
    const std::string file = make_jpeg(40, 30, {});

    CHECK(decode(file + std::string(100, '\0'), {3, 4, 20, 10}) == decode(file, {3, 4, 20, 10}));
}

TEST_CASE("a JPEG with damaged data in its middle is decoded as well as it goes, as PIL does") {
    std::string file = make_jpeg(96, 80, {});
    file[file.size() / 2] = static_cast<char>(file[file.size() / 2] ^ 0x55);

    CHECK(decode(file, {0, 0, 96, 80}).size() == 96 * 80 * 3);
}

TEST_CASE("a grey JPEG has three equal channels") {
    const auto pixels = decode(make_jpeg(20, 10, {"grey", 1, 1, 1}), {0, 0, 20, 10});

    for (std::size_t i = 0; i < pixels.size(); i += 3) {
        CHECK(pixels[i] == pixels[i + 1]);
        CHECK(pixels[i] == pixels[i + 2]);
    }
}

TEST_CASE("inks become colours, inverted as Adobe's programs write them") {
    // Four flat fields: none of all inks, black alone, cyan alone, all.
    std::vector<std::uint8_t> inks;
    const std::vector<std::vector<std::uint8_t>> fields{
        {255, 255, 255, 255}, {255, 255, 255, 0}, {0, 255, 255, 255}, {0, 0, 0, 0}};
    for (int y = 0; y < 8; ++y) {
        for (const auto& field : fields) {
            for (int x = 0; x < 8; ++x) {
                inks.insert(inks.end(), field.begin(), field.end());
            }
        }
    }
    JpegKind kind{"inks", 4, 1, 1};
    kind.quality = 100;
    const auto pixels = decode(encode_jpeg(inks, 32, 8, kind), {0, 0, 32, 8});
    const auto at = [&pixels](std::size_t x) {
        return std::vector<int>(pixels.begin() + x * 3, pixels.begin() + x * 3 + 3);
    };

    CHECK(at(4) == std::vector<int>{255, 255, 255});
    CHECK(at(12) == std::vector<int>{0, 0, 0});
    CHECK(at(20) == std::vector<int>{0, 255, 255});
    CHECK(at(28) == std::vector<int>{0, 0, 0});
}

TEST_CASE("a PNG of every kind of pixels becomes RGB") {
    const auto first = [](const std::vector<std::uint8_t>& rows, const PngKind& kind) {
        const auto pixels = decode(encode_png(rows, 1, 1, kind), {0, 0, 1, 1});
        return std::vector<int>(pixels.begin(), pixels.end());
    };
    using Colours = std::vector<int>;

    CHECK(first({10, 20, 30}, {PNG_COLOR_TYPE_RGB, 8}) == Colours{10, 20, 30});
    CHECK(first({10, 20, 30, 7}, {PNG_COLOR_TYPE_RGB_ALPHA, 8}) == Colours{10, 20, 30});
    CHECK(first({10, 99, 20, 99, 30, 99}, {PNG_COLOR_TYPE_RGB, 16}) == Colours{10, 20, 30});
    CHECK(first({77}, {PNG_COLOR_TYPE_GRAY, 8}) == Colours{77, 77, 77});
    CHECK(first({77, 5}, {PNG_COLOR_TYPE_GRAY_ALPHA, 8}) == Colours{77, 77, 77});
    CHECK(first({0x80}, {PNG_COLOR_TYPE_GRAY, 1}) == Colours{255, 255, 255});
    CHECK(first({0x40}, {PNG_COLOR_TYPE_GRAY, 2}) == Colours{85, 85, 85});
    CHECK(
        first({1}, {PNG_COLOR_TYPE_PALETTE, 8, false, {{1, 2, 3}, {40, 50, 60}}}) ==
        Colours{40, 50, 60}
    );
    // PIL cuts 16-bit grey at 255 when it makes RGB of it.
    CHECK(first({0, 200}, {PNG_COLOR_TYPE_GRAY, 16}) == Colours{200, 200, 200});
    CHECK(first({1, 0}, {PNG_COLOR_TYPE_GRAY, 16}) == Colours{255, 255, 255});
}

TEST_CASE("an interlaced PNG has the pixels of one that isn't") {
    const auto rows = make_pixels(23, 17);

    CHECK(decode(encode_png(rows, 23, 17, {PNG_COLOR_TYPE_RGB, 8, true}), {0, 0, 23, 17}) == rows);
    CHECK(decode(encode_png(rows, 23, 17), {5, 6, 10, 9}) == cut(rows, 23, {5, 6, 10, 9}));
}

TEST_CASE("a PNG that is cut off or damaged is malformed") {
    const std::string file = encode_png(make_pixels(40, 30), 40, 30);
    std::string damaged = file;
    damaged[file.size() / 2] = static_cast<char>(damaged[file.size() / 2] ^ 1);

    CHECK(complaint(file.substr(0, 20), {0, 0, 1, 1}) == "PNG: the file is cut off");
    CHECK(
        complaint(file.substr(0, file.size() / 2), {0, 0, 1, 1}).find("cut") != std::string::npos
    );
    CHECK(!complaint(damaged, {0, 0, 1, 1}).empty());
}

TEST_CASE("what is no picture is malformed and said so") {
    CHECK(complaint("", {}) == "the file is empty");
    CHECK(complaint("hello", {}).starts_with("neither a JPEG nor a PNG"));
    CHECK(!complaint("\xff\xd8\xff", {}).empty());
}

TEST_CASE("a picture with too many pixels is refused by its header") {
    const auto big = check_picture_size(100'000, 100'000);

    REQUIRE(!big.has_value());
    CHECK(big.error().code == Errc::limit_exceeded);
    CHECK(check_picture_size(8'000, 8'000).has_value());
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::trainer
