#include "trainer/data.h"

#include "tests/unit/trainer/temp_folder.h"
#include "trainer/fashion_mnist.h"
#include "trainer/idx_file.h"
#include "trainer/resize.h"
#include "trainer/synthetic.h"

#include <doctest/doctest.h>

#include <zlib.h>

#include <cmath>
#include <string>
#include <vector>

namespace ddprun::trainer {
namespace {

std::string gzip(const std::string& bytes) {
    z_stream stream{};
    REQUIRE(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    std::string out(compressBound(bytes.size()) + 64, '\0');
    stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(bytes.data()));
    stream.avail_in = static_cast<uInt>(bytes.size());
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<uInt>(out.size());
    REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
    out.resize(stream.total_out);
    deflateEnd(&stream);
    return out;
}

std::string big_endian(std::uint32_t value) {
    std::string out;
    for (int shift = 24; shift >= 0; shift -= 8) {
        out.push_back(static_cast<char>(value >> static_cast<unsigned>(shift)));
    }
    return out;
}

std::string images_of(std::uint32_t count, std::uint32_t side) {
    std::string bytes = big_endian(0x803) + big_endian(count) + big_endian(side) + big_endian(side);
    for (std::uint32_t i = 0; i < count * side * side; ++i) {
        bytes.push_back(static_cast<char>(i * 37));
    }
    return bytes;
}

std::string labels_of(const std::string& labels) {
    return big_endian(0x801) + big_endian(static_cast<std::uint32_t>(labels.size())) + labels;
}

DatasetOptions options_of(Split split, std::optional<int> image_size = std::nullopt) {
    DatasetOptions options;
    options.split = split;
    options.image_size = image_size;
    return options;
}

/// A folder in the form of Fashion-MNIST: three pictures of 4 x 4 for training, two for the test.
struct SmallSet {
    TempFolder folder;

    SmallSet() {
        put("train-images-idx3-ubyte.gz", gzip(images_of(3, 4)));
        put("train-labels-idx1-ubyte.gz", gzip(labels_of({1, 9, 0})));
        put("t10k-images-idx3-ubyte.gz", gzip(images_of(2, 4)));
        put("t10k-labels-idx1-ubyte.gz", gzip(labels_of({5, 6})));
    }

    void put(const char* name, const std::string& bytes) const { write_file(folder / name, bytes); }

    [[nodiscard]] Result<std::unique_ptr<Dataset>> open(std::optional<int> size = {}) const {
        return open_fashion_mnist(folder.path().string(), options_of(Split::train, size));
    }
};

/// One line that names `file`.
void check_error(const Result<std::unique_ptr<Dataset>>& opened, Errc code, const char* file) {
    REQUIRE(!opened.has_value());
    CHECK(opened.error().code == code);
    CHECK_MESSAGE(opened.error().context.find(file) != std::string::npos, opened.error().context);
    CHECK(opened.error().context.find('\n') == std::string::npos);
}

TEST_SUITE_BEGIN("trainer/data");

TEST_CASE("a picture has three equal channels, normalised as torchvision does") {
    const SmallSet set;
    const auto dataset = set.open();
    REQUIRE(dataset.has_value());
    std::vector<float> picture((*dataset)->shape().floats());

    const auto label = (*dataset)->read({1}, picture);

    REQUIRE(label.has_value());
    CHECK(*label == 9);
    CHECK((*dataset)->size() == 3);
    CHECK((*dataset)->num_classes() == 10);
    REQUIRE(picture.size() == 48);
    for (std::size_t i = 0; i < 16; ++i) {
        const auto grey = static_cast<float>(static_cast<std::uint8_t>((16 + i) * 37));
        CHECK(picture[i] == (grey / 255.0F - 0.2860F) / 0.3530F);
        CHECK(picture[16 + i] == picture[i]);
        CHECK(picture[32 + i] == picture[i]);
    }
}

TEST_CASE("each split has its own files") {
    const SmallSet set;

    const auto test = open_fashion_mnist(set.folder.path().string(), options_of(Split::test));

    REQUIRE(test.has_value());
    CHECK((*test)->size() == 2);
    std::vector<float> picture((*test)->shape().floats());
    CHECK((*test)->read({0}, picture).value() == 5);
}

TEST_CASE("pictures are resized to the size that is asked for") {
    const SmallSet set;
    const auto dataset = set.open(8);
    REQUIRE(dataset.has_value());
    std::vector<float> picture((*dataset)->shape().floats());

    REQUIRE((*dataset)->read({0}, picture).has_value());

    CHECK((*dataset)->shape() == ImageShape{8, 8});
    CHECK(picture.size() == 192);
    // The corner's window is the corner pixel alone.
    CHECK(picture[0] == doctest::Approx((0.0F / 255.0F - 0.2860F) / 0.3530F));
}

TEST_CASE("a missing folder and a missing file are named and not found") {
    const SmallSet set;
    std::filesystem::remove(set.folder / "train-labels-idx1-ubyte.gz");

    check_error(
        open_fashion_mnist("/nonexistent/data", options_of(Split::train)),
        Errc::not_found,
        "/nonexistent/data"
    );
    check_error(set.open(), Errc::not_found, "train-labels-idx1-ubyte.gz");
}

TEST_CASE("a folder where a file should be and a file where the folder should be are errors") {
    const SmallSet set;
    std::filesystem::remove(set.folder / "train-images-idx3-ubyte.gz");
    std::filesystem::create_directory(set.folder / "train-images-idx3-ubyte.gz");

    CHECK(!set.open().has_value());
    check_error(
        open_fashion_mnist(
            (set.folder / "train-labels-idx1-ubyte.gz").string(), options_of(Split::train)
        ),
        Errc::not_found,
        "not a folder"
    );
}

TEST_CASE("a gzip stream that is cut at any byte is malformed") {
    const SmallSet set;
    const std::string whole = gzip(images_of(3, 4));
    for (std::size_t size = 0; size < whole.size(); ++size) {
        CAPTURE(size);
        set.put("train-images-idx3-ubyte.gz", whole.substr(0, size));

        check_error(set.open(), Errc::malformed, "train-images-idx3-ubyte.gz");
    }
}

TEST_CASE("a flipped bit in the compressed data is malformed, or changes nothing") {
    const SmallSet set;
    const std::string whole = gzip(labels_of({1, 9, 0}));
    int unused_bits = 0;
    for (std::size_t at = 10; at < whole.size(); ++at) {
        CAPTURE(at);
        std::string flipped = whole;
        flipped[at] = static_cast<char>(flipped[at] ^ 0x10);
        set.put("train-labels-idx1-ubyte.gz", flipped);

        const auto opened = set.open();
        if (opened) {
            // A bit of the filling behind the last symbol.
            std::vector<float> picture((*opened)->shape().floats());
            CHECK((*opened)->read({1}, picture).value() == 9);
            ++unused_bits;
        } else {
            check_error(opened, Errc::malformed, "train-labels-idx1-ubyte.gz");
        }
    }
    CHECK(unused_bits <= 1);
}

TEST_CASE("a wrong magic number is malformed") {
    const SmallSet set;
    set.put("train-images-idx3-ubyte.gz", gzip(labels_of({1, 2, 3})));

    check_error(set.open(), Errc::malformed, "begins with 0x00000801, not 0x00000803");
}

TEST_CASE("a count that doesn't fit the length is malformed") {
    const SmallSet set;
    const std::string images = images_of(3, 4);

    set.put("train-images-idx3-ubyte.gz", gzip(images.substr(0, images.size() - 1)));
    check_error(set.open(), Errc::malformed, "47 bytes of data instead of the 48");
    set.put("train-images-idx3-ubyte.gz", gzip(images + "x"));
    check_error(set.open(), Errc::malformed, "more than the 48 bytes");
    set.put("train-images-idx3-ubyte.gz", gzip(images.substr(0, 11)));
    check_error(set.open(), Errc::malformed, "the header is cut off");
}

TEST_CASE("a count beyond reason is refused before anything is allocated for it") {
    const SmallSet set;
    set.put(
        "train-images-idx3-ubyte.gz",
        gzip(big_endian(0x803) + big_endian(0xffffffff) + big_endian(4) + big_endian(4))
    );
    check_error(set.open(), Errc::malformed, "4294967295");
    set.put(
        "train-images-idx3-ubyte.gz",
        gzip(big_endian(0x803) + big_endian(200'000'000) + big_endian(4096) + big_endian(4096))
    );
    check_error(set.open(), Errc::malformed, "0 bytes of data");
}

TEST_CASE("different counts of pictures and labels are malformed") {
    const SmallSet set;
    set.put("train-labels-idx1-ubyte.gz", gzip(labels_of({1, 2})));

    check_error(set.open(), Errc::malformed, "2 labels for the 3 pictures");
}

TEST_CASE("a label out of range is malformed") {
    const SmallSet set;
    set.put("train-labels-idx1-ubyte.gz", gzip(labels_of({1, 10, 2})));

    check_error(set.open(), Errc::malformed, "label 10 of picture 1");
}

TEST_CASE("options choose the data set, its size and its classes") {
    const SmallSet set;
    Options options;
    options.data = {DataKind::fashion_mnist, set.folder.path().string()};
    options.limit_train = 2;
    options.num_classes = 20;

    const auto train = open_dataset(options, Split::train);
    const auto test = open_dataset(options, Split::test);

    REQUIRE(train.has_value());
    REQUIRE(test.has_value());
    CHECK((*train)->size() == 2);
    CHECK((*test)->size() == 2);
    CHECK((*train)->num_classes() == 20);
    std::vector<float> picture((*train)->shape().floats());
    CHECK((*train)->read({1}, picture).value() == 9);
}

TEST_CASE("fewer classes than the data has are refused") {
    const SmallSet set;
    Options options;
    options.data = {DataKind::fashion_mnist, set.folder.path().string()};
    options.num_classes = 9;

    check_error(open_dataset(options, Split::train), Errc::invalid_argument, "--num_classes=9");
}

TEST_CASE("synthetic pictures are 224 pixels of 1000 classes unless options say otherwise") {
    Options options;
    options.data.synthetic_size = 50;
    const auto usual = open_dataset(options, Split::train);
    options.image_size = 32;
    options.num_classes = 7;
    const auto other = open_dataset(options, Split::train);
    const auto test = open_dataset(options, Split::test);

    REQUIRE(usual.has_value());
    CHECK((*usual)->shape() == ImageShape{224, 224});
    CHECK((*usual)->num_classes() == 1000);
    CHECK((*usual)->size() == 50);
    CHECK((*other)->shape() == ImageShape{32, 32});
    CHECK((*other)->num_classes() == 7);
    CHECK((*test)->size() == 5);
}

TEST_CASE("synthetic pictures follow from seed and index alone") {
    const auto read = [](std::uint64_t seed, std::int64_t index) {
        const auto dataset = make_synthetic({100, 10, {3, 5}, seed});
        std::vector<float> picture(dataset->shape().floats());
        const std::int64_t label = dataset->read({index}, picture).value();
        CHECK(label >= 0);
        CHECK(label < 10);
        return picture;
    };

    CHECK(read(1, 7) == read(1, 7));
    CHECK(read(1, 7) != read(2, 7));
    CHECK(read(1, 7) != read(1, 8));
    for (const float value : read(1, 7)) {
        CHECK(std::abs(value) <= 2.0F);
    }
}

TEST_CASE("a resize gives what torch's interpolate with antialias gives") {
    // x[i][j] = (7 i + 3 j^2) mod 11, 3 x 4 to 5 x 7 and 3 x 6 to 2 x 4.
    const auto input = [](int width) {
        std::vector<float> x;
        for (int i = 0; i < 3; ++i) {
            for (int j = 0; j < width; ++j) {
                x.push_back(static_cast<float>((i * 7 + j * j * 3) % 11));
            }
        }
        return x;
    };
    std::vector<float> larger(35);
    std::vector<float> smaller(8);

    BilinearResize({3, 4}, {5, 7}).apply(input(4), larger);
    BilinearResize({3, 6}, {2, 4}).apply(input(6), smaller);

    const std::vector<double> larger_in_torch{
        0.0,       1.0714288, 2.7857144, 2.0,       1.2857151, 3.5714293, 5.0,
        2.8000002, 3.8714290, 5.5857143, 4.8000002, 3.7714286, 3.5428569, 3.3999999,
        7.0,       8.0714283, 9.7857141, 9.0,       7.4999986, 3.4999988, 1.0,
        4.5999994, 5.6714282, 7.3857136, 6.5999999, 5.5714278, 5.3428574, 5.2000008,
        3.0,       4.0714288, 5.7857141, 5.0,       4.2857151, 6.5714293, 8.0};
    const std::vector<double> smaller_in_torch{
        3.75, 4.277778, 3.180555, 5.625, 5.625, 6.152779, 5.055555, 3.203125};
    for (std::size_t i = 0; i < larger.size(); ++i) {
        CHECK(std::abs(larger[i] - larger_in_torch[i]) < 1e-5);
    }
    for (std::size_t i = 0; i < smaller.size(); ++i) {
        CHECK(std::abs(smaller[i] - smaller_in_torch[i]) < 1e-5);
    }
}

TEST_CASE("Debian's Fashion-MNIST is read as Python reads it") {
    const std::string dir = "/usr/share/datasets/fashion-mnist";
    if (!std::filesystem::exists(dir)) {
        MESSAGE("skipped: the package dataset-fashion-mnist isn't installed");
        return;
    }
    const auto train = open_fashion_mnist(dir, options_of(Split::train));
    const auto test = open_fashion_mnist(dir, options_of(Split::test));
    REQUIRE(train.has_value());
    REQUIRE(test.has_value());
    std::vector<float> picture((*train)->shape().floats());

    const std::int64_t label = (*train)->read({0}, picture).value();

    CHECK((*train)->size() == 60'000);
    CHECK((*test)->size() == 10'000);
    CHECK(label == 9);
    const std::vector<float> in_python{
        -0.8101983666419983F,
        -0.8101983666419983F,
        1.8226962089538574F,
        1.700494408607483F,
        1.600511074066162F,
        1.6671665906906128F};
    for (std::size_t i = 0; i < in_python.size(); ++i) {
        CHECK(picture[14 * 28 + 10 + i] == in_python[i]);
    }
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::trainer
