#include "trainer/image_folder.h"

#include "tests/unit/trainer/make_pictures.h"
#include "tests/unit/trainer/temp_folder.h"
#include "trainer/image_list.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;

struct Tree {
    TempFolder folder;

    /// Writes `bytes` to a file below the folder, with the folders that it needs.
    void put(const std::string& name, const std::string& bytes = "x") const {
        const fs::path path = folder / name;
        fs::create_directories(path.parent_path());
        write_file(path, bytes);
    }

    [[nodiscard]] std::string dir(const std::string& name = "") const {
        return (folder / name).string();
    }

    [[nodiscard]] std::vector<std::string> list(const std::string& name) const {
        const auto classes = list_classes(dir(name));
        REQUIRE(classes.has_value());
        const auto list = ImageList::read(dir(name), *classes);
        REQUIRE_MESSAGE(list.has_value(), list.error().context);
        std::vector<std::string> lines;
        for (std::int64_t i = 0; i < list->size(); ++i) {
            const std::string path = list->path(i).substr(dir(name).size() + 1);
            lines.push_back(path + " " + std::to_string(list->label(i)));
        }
        return lines;
    }
};

template <class T>
void check_error(const Result<T>& result, Errc code, const std::string& part) {
    REQUIRE(!result.has_value());
    CHECK(result.error().code == code);
    CHECK_MESSAGE(result.error().context.find(part) != std::string::npos, result.error().context);
    CHECK(result.error().context.find('\n') == std::string::npos);
}

/// Two classes of three training pictures and one for the test.
struct SmallFolder : Tree {
    SmallFolder() {
        for (int i = 0; i < 6; ++i) {
            const std::string name = (i < 3 ? "train/cat/" : "train/dog/") + std::to_string(i);
            put(name + ".jpg", encode_jpeg(make_pixels(60, 40, i), 60, 40));
        }
        put("val/cat/0.png", encode_png(make_pixels(50, 70), 50, 70));
        put("val/dog/1.jpg", encode_jpeg(make_pixels(50, 70), 50, 70));
    }

    [[nodiscard]] std::unique_ptr<Dataset> open(DatasetOptions options) const {
        options.image_size = 24;
        auto opened = open_image_folder(dir(), options);
        REQUIRE_MESSAGE(opened.has_value(), opened.error().context);
        return std::move(*opened);
    }
};

std::vector<float> read(const Dataset& data, std::int64_t index, std::int64_t epoch = 0) {
    std::vector<float> picture(data.shape().floats());
    const auto label = data.read({index, epoch}, picture);
    REQUIRE_MESSAGE(label.has_value(), label.error().context);
    return picture;
}

DatasetOptions augmented(std::uint64_t seed) {
    DatasetOptions options;
    options.augment = true;
    options.seed = seed;
    return options;
}

TEST_SUITE_BEGIN("trainer/image_folder");

TEST_CASE("pictures are listed in the order of torchvision's ImageFolder") {
    const Tree tree;
    for (const char* name :
         {"b/2.jpg",
          "b/10.JPEG",
          "B/x.png",
          "a/z.jpg",
          "a/sub/1.jpg",
          "a/sub-2/0.jpg",
          "a/a.PNG"}) {
        tree.put(std::string("t/") + name);
    }
    tree.put("t/a/notes.txt");
    tree.put("t/a/no_ending");
    tree.put("t/top.jpg");

    CHECK(
        tree.list("t") ==
        std::vector<std::string>{
            "B/x.png 0",
            "a/a.PNG 1",
            "a/z.jpg 1",
            "a/sub/1.jpg 1",
            "a/sub-2/0.jpg 1",
            "b/10.JPEG 2",
            "b/2.jpg 2"}
    );
}

TEST_CASE("endings count as pictures where torchvision takes them for such") {
    for (const char* name :
         {"a.jpg",
          "a.JPEG",
          "a.Png",
          "a.ppm",
          "a.bmp",
          "a.pgm",
          "a.tif",
          "a.tiff",
          "a.webp",
          ".jpg"}) {
        CHECK_MESSAGE(has_picture_ending(name), name);
    }
    for (const char* name : {"a.gif", "jpg", "a.jpg.txt", "a.jpgx", ""}) {
        CHECK_MESSAGE(!has_picture_ending(name), name);
    }
}

TEST_CASE("folders behind links count, and a link to a folder above is refused") {
    const Tree tree;
    tree.put("other/1.jpg");
    tree.put("t/a/0.jpg");
    fs::create_directory_symlink(tree.dir("other"), tree.dir("t/b"));
    CHECK(tree.list("t") == std::vector<std::string>{"a/0.jpg 0", "b/1.jpg 1"});

    fs::create_directory_symlink(tree.dir("t"), tree.dir("t/a/loop"));

    CHECK(!ImageList::read(tree.dir("t"), {"a", "b"}).has_value());
}

TEST_CASE("a class without pictures, an unknown class and no class are malformed") {
    const Tree tree;
    tree.put("t/a/0.txt");
    tree.put("u/c/0.jpg");
    tree.put("v/0.jpg");

    check_error(ImageList::read(tree.dir("t"), {"a"}), Errc::malformed, "t/a: no picture");
    check_error(ImageList::read(tree.dir("u"), {"a", "b"}), Errc::malformed, "class c isn't one");
    check_error(list_classes(tree.dir("v")), Errc::malformed, "no folder in it");
    check_error(list_classes(tree.dir("w")), Errc::not_found, "/w");
}

TEST_CASE("a folder without a split is not found, and the line says what there should be") {
    const Tree tree;
    tree.put("train/a/0.jpg");
    DatasetOptions test;
    test.split = Split::test;

    check_error(open_image_folder(tree.dir(), test), Errc::not_found, "/val");
    check_error(open_image_folder(tree.dir("none"), {}), Errc::not_found, "has train/ and val/");
}

TEST_CASE("labels are those of the training split, also where the other lacks a class") {
    SmallFolder folder;
    fs::remove_all(folder.dir("val/cat"));
    DatasetOptions options;
    options.split = Split::test;
    const auto data = folder.open(options);

    std::vector<float> picture(data->shape().floats());
    CHECK(data->num_classes() == 2);
    CHECK(data->size() == 1);
    CHECK(data->read({0}, picture).value() == 1);
}

TEST_CASE("a JPEG and a PNG of the same picture differ by JPEG's losses only") {
    SmallFolder folder;
    DatasetOptions options;
    options.split = Split::test;
    options.normalisation = Normalisation{};
    const auto data = folder.open(options);

    const auto png = read(*data, 0);
    const auto jpeg = read(*data, 1);

    double sum = 0.0;
    for (std::size_t i = 0; i < png.size(); ++i) {
        sum += std::abs(png[i] - jpeg[i]);
    }
    CHECK(sum / static_cast<double>(png.size()) < 0.08);
    CHECK(data->shape() == ImageShape{24, 24});
}

TEST_CASE("without augmentation a picture is the same in every epoch") {
    const SmallFolder folder;
    const auto data = folder.open({});

    CHECK(read(*data, 1, 0) == read(*data, 1, 5));
    CHECK(read(*data, 1) != read(*data, 2));
}

TEST_CASE("augmented pictures follow from seed, epoch and index alone") {
    const SmallFolder folder;
    const auto one = folder.open(augmented(7));
    const auto same = folder.open(augmented(7));
    const auto other = folder.open(augmented(8));

    CHECK(read(*one, 4, 3) == read(*same, 4, 3));
    CHECK(read(*one, 4, 3) != read(*one, 4, 2));
    CHECK(read(*one, 4, 3) != read(*other, 4, 3));
}

TEST_CASE("a picture that can't be read is an error that names the file") {
    const SmallFolder folder;
    const std::string jpeg = read_file(folder.dir("train/cat/0.jpg"));
    folder.put("train/cat/0.jpg", jpeg.substr(0, jpeg.size() / 2));
    folder.put("train/cat/1.jpg", "no picture");
    fs::remove(folder.dir("train/cat/2.jpg"));
    fs::create_symlink("nowhere", folder.dir("train/cat/2.jpg"));
    const auto data = folder.open({});
    std::vector<float> picture(data->shape().floats());

    check_error(data->read({0}, picture), Errc::malformed, "cat/0.jpg: the JPEG file is cut off");
    check_error(data->read({1}, picture), Errc::malformed, "cat/1.jpg: neither a JPEG nor a PNG");
    check_error(data->read({2}, picture), Errc::not_found, "cat/2.jpg");
    CHECK(data->read({3}, picture).value() == 1);
}

TEST_CASE("a large JPEG is decoded at a fraction only where it is augmented") {
    const Tree tree;
    tree.put("train/a/0.jpg", encode_jpeg(make_pixels(400, 400), 400, 400));
    const auto open = [&tree](bool augment, bool scaling) {
        DatasetOptions options = augmented(3);
        options.augment = augment;
        options.jpeg_scaling = scaling;
        options.image_size = 16;
        return std::move(*open_image_folder(tree.dir(), options));
    };

    CHECK(read(*open(true, true), 0) != read(*open(true, false), 0));
    CHECK(read(*open(false, true), 0) == read(*open(false, false), 0));
    // The two differ by little.
    const auto scaled = read(*open(true, true), 0);
    const auto exact = read(*open(true, false), 0);
    for (std::size_t i = 0; i < scaled.size(); ++i) {
        CHECK(std::abs(scaled[i] - exact[i]) < 0.5F);
    }
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::trainer
