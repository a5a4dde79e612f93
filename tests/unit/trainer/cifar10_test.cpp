#include "trainer/cifar10.h"

#include "tests/unit/trainer/temp_folder.h"
#include "trainer/picture_plan.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

namespace ddprun::trainer {
namespace {

constexpr std::size_t kRecord = 3073;

/// `count` records with the labels first, first + 1, ... and bytes that tell the place.
std::string records(int count, int first) {
    std::string bytes;
    for (int i = 0; i < count; ++i) {
        bytes.push_back(static_cast<char>((first + i) % 10));
        for (std::size_t k = 0; k + 1 < kRecord; ++k) {
            bytes.push_back(static_cast<char>(k * 7 + static_cast<std::size_t>(first + i) * 13));
        }
    }
    return bytes;
}

struct Folder {
    TempFolder temp;
    std::filesystem::path at;

    explicit Folder(const char* below = "") : at(temp / below) {
        std::filesystem::create_directories(at);
        for (int i = 0; i < 5; ++i) {
            put("data_batch_" + std::to_string(i + 1) + ".bin", records(2, 2 * i));
        }
        put("test_batch.bin", records(3, 5));
    }

    void put(const std::string& name, const std::string& bytes) const {
        write_file(at / name, bytes);
    }

    [[nodiscard]] Result<std::unique_ptr<Dataset>> open(const DatasetOptions& options = {}) const {
        return open_cifar10(temp.path().string(), options);
    }
};

void check_error(const Result<std::unique_ptr<Dataset>>& opened, Errc code, const char* part) {
    REQUIRE(!opened.has_value());
    CHECK(opened.error().code == code);
    CHECK_MESSAGE(opened.error().context.find(part) != std::string::npos, opened.error().context);
}

TEST_SUITE_BEGIN("trainer/cifar10");

TEST_CASE("pictures come from five files, channel by channel, normalised") {
    const Folder folder;
    const auto data = folder.open();
    REQUIRE(data.has_value());
    std::vector<float> picture((*data)->shape().floats());

    CHECK((*data)->size() == 10);
    CHECK((*data)->num_classes() == 10);
    CHECK((*data)->shape() == ImageShape{32, 32});
    for (std::int64_t i = 0; i < 10; ++i) {
        CHECK((*data)->read({i}, picture).value() == i);
    }
    const auto byte = static_cast<float>(static_cast<std::uint8_t>(2048 * 7 + 9 * 13));
    CHECK(picture[2048] == (byte / 255.0F - 0.4465F) / 0.2616F);
}

TEST_CASE("the folder of the archive and its parent both do, and the test has its own file") {
    const Folder folder("cifar-10-batches-bin");
    DatasetOptions test;
    test.split = Split::test;
    const auto data = folder.open(test);
    REQUIRE(data.has_value());
    std::vector<float> picture((*data)->shape().floats());

    CHECK((*data)->size() == 3);
    CHECK((*data)->read({2}, picture).value() == 7);
}

TEST_CASE("a file that is missing, cut off, empty or of another kind is named") {
    const Folder folder;
    folder.put("data_batch_3.bin", records(2, 0).substr(0, 5000));
    check_error(
        folder.open(), Errc::malformed, "data_batch_3.bin: 5000 bytes are no whole records"
    );
    folder.put("data_batch_3.bin", records(1, 0));
    check_error(
        folder.open(), Errc::malformed, "data_batch_3.bin: 3073 bytes, but data_batch_1.bin"
    );
    folder.put("data_batch_3.bin", "");
    check_error(folder.open(), Errc::malformed, "data_batch_3.bin: the file is empty");
    std::string wrong = records(2, 0);
    wrong[kRecord] = 10;
    folder.put("data_batch_3.bin", wrong);
    check_error(folder.open(), Errc::malformed, "label 10 of picture 1");
    std::filesystem::remove(folder.at / "data_batch_3.bin");
    check_error(folder.open(), Errc::not_found, "data_batch_3.bin");
}

TEST_CASE("augmentation shifts and mirrors, black where nothing is") {
    const Folder folder;
    DatasetOptions options;
    options.augment = true;
    options.normalisation = Normalisation{};
    const auto data = folder.open(options);
    const auto plain = [&] {
        options.augment = false;
        return folder.open(options);
    }();
    std::vector<float> picture((*data)->shape().floats());
    std::vector<float> original(picture.size());
    REQUIRE((*plain)->read({1, 0}, original).has_value());
    bool mirrored = false;
    bool moved = false;
    for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
        REQUIRE((*data)->read({1, epoch}, picture).has_value());
        SampleRandom random(0, epoch, 1);
        const ShiftPlan plan = shift_plan(random);
        mirrored = mirrored || plan.flip;
        moved = moved || plan.left != 0;
        for (int y = 0; y < 32; ++y) {
            for (int x = 0; x < 32; ++x) {
                const int from_x = (plan.flip ? 31 - x : x) - plan.left;
                const int from_y = y - plan.top;
                const bool there = from_x >= 0 && from_x < 32 && from_y >= 0 && from_y < 32;
                const float expected =
                    there ? original[static_cast<std::size_t>(from_y * 32 + from_x)] : 0.0F;
                REQUIRE(picture[static_cast<std::size_t>(y * 32 + x)] == expected);
            }
        }
    }
    CHECK(mirrored);
    CHECK(moved);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::trainer
