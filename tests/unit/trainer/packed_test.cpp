#include "trainer/packed.h"

#include "tests/unit/trainer/make_pictures.h"
#include "tests/unit/trainer/temp_folder.h"
#include "trainer/image_folder.h"
#include "trainer/pack.h"
#include "trainer/packed_format.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;

std::vector<std::uint8_t> flat(std::size_t bytes, int value) {
    return std::vector<std::uint8_t>(bytes, static_cast<std::uint8_t>(value));
}

/// Two pictures, 2 x 1 and 1 x 3, of the classes a and bc.
std::string small_file() {
    const auto first = flat(6, 7);
    const auto second = flat(9, 8);
    std::string file = packed_header();
    PackedIndex index;
    index.add({file.size(), {2, 1}, 1, checksum_of(first)});
    file.append(first.begin(), first.end());
    index.add({file.size(), {1, 3}, 0, checksum_of(second)});
    file.append(second.begin(), second.end());
    return file + index.finish(file.size(), {"a", "bc"}, 256);
}

Result<PackedView> parse(const std::vector<std::uint8_t>& bytes) {
    return PackedView::parse(bytes);
}

/// An image folder of six training pictures and two others, and where it is packed to.
struct Source {
    TempFolder folder;
    NullLog log;
    PackOptions options;

    Source() {
        for (int i = 0; i < 6; ++i) {
            put((i < 3 ? "train/cat/" : "train/dog/") + std::to_string(i) + ".jpg", i);
        }
        put("val/cat/0.jpg", 6);
        put("val/dog/0.jpg", 7);
        options.source = (folder / "in").string();
        options.out = (folder / "out/made").string();
        options.short_side = 40;
    }

    void put(const std::string& name, int variant) const {
        const fs::path path = folder / "in" / name;
        fs::create_directories(path.parent_path());
        write_file(path, encode_jpeg(make_pixels(90, 60, variant), 90, 60));
    }

    [[nodiscard]] int run() {
        const auto status = pack(options, log);
        return status ? *status : status.error().status;
    }

    [[nodiscard]] std::string out(const std::string& name) const {
        return options.out + "/" + name;
    }
};

std::vector<float> read(const Dataset& data, std::int64_t index, std::int64_t epoch = 0) {
    std::vector<float> picture(data.shape().floats());
    const auto label = data.read({index, epoch}, picture);
    REQUIRE_MESSAGE(label.has_value(), label.error().context);
    picture.push_back(static_cast<float>(*label));
    return picture;
}

TEST_SUITE_BEGIN("trainer/packed");

TEST_CASE("what is written is read") {
    const auto bytes = bytes_of(small_file());
    const auto view = parse(bytes);

    REQUIRE_MESSAGE(view.has_value(), view.error().context);
    CHECK(view->size() == 2);
    CHECK(view->classes() == std::vector<std::string>{"a", "bc"});
    CHECK(view->short_side() == 256);
    CHECK(view->entry(0).size == Size{2, 1});
    CHECK(view->entry(0).label == 1);
    CHECK(view->entry(1).offset == 22);
    const auto pixels = view->pixels(view->entry(1));
    CHECK(std::vector<std::uint8_t>(pixels.begin(), pixels.end()) == flat(9, 8));
}

TEST_CASE("the bytes of a packed file are those of docs/data.md") {
    const std::string file = small_file();
    const auto hex = [&file](std::size_t at, std::size_t count) {
        std::string text;
        for (std::size_t i = at; i < at + count; ++i) {
            text += fmt::format("{:02x}", static_cast<std::uint8_t>(file[i]));
        }
        return text;
    };

    CHECK(file.size() == 16 + 15 + 48 + 11 + 56);
    CHECK(hex(0, 16) == "646470727061636b0100000000000000");
    CHECK(hex(31, 20) == "1000000000000000020000000100000001000000");
    CHECK(hex(79, 11) == "0100000061020000006263");
    CHECK(hex(90, 32) == "1f000000000000004f0000000000000002000000000000000200000000010000");
    CHECK(file.substr(file.size() - 8) == "kcaprpdd");
}

TEST_CASE("a packed file that is cut anywhere is malformed") {
    const std::string file = small_file();
    for (std::size_t size = 0; size < file.size(); ++size) {
        CAPTURE(size);
        const auto bytes = bytes_of(file.substr(0, size));
        const auto view = parse(bytes);

        REQUIRE(!view.has_value());
        CHECK(view.error().code == Errc::malformed);
    }
}

TEST_CASE("a flipped bit anywhere but in the pixels is noticed when the file is opened") {
    const std::string file = small_file();
    for (std::size_t at = 0; at < file.size(); ++at) {
        const bool in_pixels = at >= 16 && at < 31;
        const bool reserved = at >= 12 && at < 16;
        if (in_pixels || reserved) {
            continue;
        }
        CAPTURE(at);
        std::string flipped = file;
        flipped[at] = static_cast<char>(flipped[at] ^ 0x04);
        const auto bytes = bytes_of(flipped);

        CHECK(!parse(bytes).has_value());
    }
}

TEST_CASE("an index that leads outside the pictures is malformed even with a right checksum") {
    const std::vector<PackedEntry> wrong{
        {16, {3, 1}, 0, 0},
        {0, {1, 1}, 0, 0},
        {16, {0, 1}, 0, 0},
        {16, {1, 1}, 2, 0},
        {~0ULL, {1, 1}, 0, 0},
        {16, {70'000, 1}, 0, 0},
    };
    for (const PackedEntry& entry : wrong) {
        std::string file = packed_header() + std::string(8, 'x');
        PackedIndex index;
        index.add(entry);
        file += index.finish(file.size(), {"a", "b"}, 0);
        const auto bytes = bytes_of(file);
        const auto view = parse(bytes);

        REQUIRE(!view.has_value());
        CHECK(view.error().context.find("entry 0") != std::string::npos);
    }
}

TEST_CASE("evaluated pictures are the same packed and from their files, to the last bit") {
    Source source;
    source.options.short_side = 73;  // what an evaluation of 64 pixels resizes to
    REQUIRE(source.run() == 0);
    for (const Split split : {Split::train, Split::test}) {
        DatasetOptions options;
        options.split = split;
        options.image_size = 64;
        const auto files = open_image_folder(source.options.source, options);
        const auto packed = open_packed(source.options.out, options);
        REQUIRE(files.has_value());
        REQUIRE_MESSAGE(packed.has_value(), packed.error().context);
        REQUIRE((*files)->size() == (*packed)->size());
        CHECK((*packed)->num_classes() == 2);

        for (std::int64_t i = 0; i < (*files)->size(); ++i) {
            CHECK(read(**files, i) == read(**packed, i));
        }
    }
}

TEST_CASE("augmented pictures of a packed file follow from seed, epoch and index alone") {
    Source source;
    REQUIRE(source.run() == 0);
    const auto open = [&source](std::uint64_t seed) {
        DatasetOptions options;
        options.image_size = 32;
        options.augment = true;
        options.seed = seed;
        return open_packed(source.options.out, options).value();
    };
    const auto one = open(7);
    const auto same = open(7);
    const auto other = open(8);

    CHECK(read(*one, 4, 3) == read(*same, 4, 3));
    CHECK(read(*one, 4, 3) != read(*one, 4, 2));
    CHECK(read(*one, 4, 3) != read(*other, 4, 3));
}

TEST_CASE("the packed file does not depend on the number of threads") {
    Source source;
    REQUIRE(source.run() == 0);
    const std::string one = read_file(source.out("train.pack"));
    source.options.workers = 5;
    REQUIRE(source.run() == 0);

    CHECK(read_file(source.out("train.pack")) == one);
}

TEST_CASE("a pack that fails leaves no new folder, and nothing in one that was there") {
    for (const bool was_there : {false, true}) {
        CAPTURE(was_there);
        Source source;
        for (int i = 0; i < 6; ++i) {
            const std::string name = (i < 3 ? "cat/" : "dog/") + std::to_string(i) + ".jpg";
            write_file(source.folder / "in/train" / name, "no picture");
        }
        if (was_there) {
            fs::create_directories(source.options.out);
        }

        CHECK(source.run() == exit_code::kData);

        CHECK(fs::exists(source.options.out) == was_there);
        CHECK((!was_there || fs::is_empty(source.options.out)));
    }
}

TEST_CASE("broken pictures are left out of a packed file, up to the number allowed") {
    Source source;
    write_file(source.folder / "in/train/cat/1.jpg", "broken");
    source.options.max_bad_samples = 1;
    CHECK(source.run() == 0);
    CHECK((*open_packed(source.options.out, {}))->size() == 5);

    source.options.max_bad_samples = 0;
    source.options.out += "2";

    CHECK(source.run() == exit_code::kData);
    CHECK_FALSE(fs::exists(source.options.out));
}

TEST_CASE("a damaged picture is malformed when it is read, and the others are not") {
    Source source;
    REQUIRE(source.run() == 0);
    std::string file = read_file(source.out("train.pack"));
    file[16 + 100] = static_cast<char>(file[16 + 100] ^ 1);
    write_file(source.out("train.pack"), file);
    const auto data = open_packed(source.options.out, {});
    REQUIRE(data.has_value());
    std::vector<float> picture((*data)->shape().floats());

    const auto damaged = (*data)->read({0}, picture);

    REQUIRE(!damaged.has_value());
    CHECK(damaged.error().code == Errc::malformed);
    CHECK(damaged.error().context.find("train.pack: picture 0") != std::string::npos);
    CHECK((*data)->read({1}, picture).has_value());
}

TEST_CASE("what is no packed folder is said so, with its file") {
    const TempFolder folder;
    const auto missing = open_packed(folder.path().string(), {});
    write_file(folder / "train.pack", "something else entirely");
    const auto other = open_packed(folder.path().string(), {});

    REQUIRE(!missing.has_value());
    CHECK(missing.error().code == Errc::not_found);
    CHECK(missing.error().context.find("trainer pack") != std::string::npos);
    REQUIRE(!other.has_value());
    CHECK(other.error().context.find("train.pack: not a packed file") != std::string::npos);
}

TEST_CASE("pack takes a folder, an output and its options, and says what is wrong with them") {
    const auto parse_words = [](const std::vector<std::string>& words) {
        return parse_pack_options(words);
    };
    const auto good = parse_words({"imagefolder:/in", "/out", "--short-side=0", "--workers", "3"});
    REQUIRE(good.has_value());
    const auto& options = std::get<PackOptions>(*good);
    CHECK(options.source == "/in");
    CHECK(options.out == "/out");
    CHECK(options.short_side == 0);
    CHECK(options.workers == 3);
    const std::vector<std::vector<std::string>> wrong{
        {},
        {"/in"},
        {"/in", "/out", "/more"},
        {"/in", "/out", "--short_side=-1"},
        {"/in", "/out", "--bogus"},
        {"cifar10:/in", "/out"}};
    for (const auto& words : wrong) {
        const auto complaint = parse_words(words);
        REQUIRE(!complaint.has_value());
        CHECK(complaint.error().code == Errc::invalid_argument);
        CHECK(complaint.error().context.find('\n') == std::string::npos);
    }
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::trainer
