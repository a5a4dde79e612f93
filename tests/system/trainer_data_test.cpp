// The trainer on folders of pictures, packed sets and CIFAR-10, as a user runs it: what it says and
// with which status it ends.
#include "tests/support/command.h"
#include "tests/support/system.h"
#include "tests/unit/trainer/make_pictures.h"

#include <doctest/doctest.h>

#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

namespace ddprun::test {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr auto kDeadline = 240s;
using Words = std::vector<std::string>;

/// An image folder of two classes, in a folder of the test's own.
struct Pictures {
    TemporaryFolder folder;

    explicit Pictures(int training = 12, int evaluated = 5) {
        for (int i = 0; i < training; ++i) {
            put("train", i);
        }
        for (int i = 0; i < evaluated; ++i) {
            put("val", i);
        }
    }

    void put(const std::string& split, int number) const {
        const std::string path = path_of(split, number);
        fs::create_directories(fs::path{path}.parent_path());
        const auto pixels = trainer::make_pixels(80, 60, number);
        static_cast<void>(folder.file(
            fs::relative(path, folder.path()).string(), trainer::encode_jpeg(pixels, 80, 60)
        ));
    }

    [[nodiscard]] std::string path_of(const std::string& split, int number) const {
        const std::string name =
            number < 10 ? "0" + std::to_string(number) : std::to_string(number);
        return folder.path("in/" + split + (number % 2 == 0 ? "/cat/" : "/dog/") + name + ".jpg");
    }

    [[nodiscard]] std::string data() const { return "imagefolder:" + folder.path("in"); }

    /// Cuts a picture in half.
    void break_picture(const std::string& split, int number) const {
        fs::resize_file(path_of(split, number), fs::file_size(path_of(split, number)) / 2);
    }
};

CommandResult trainer(const Words& words) {
    Words argv{program("trainer")};
    argv.insert(argv.end(), words.begin(), words.end());
    return run_command({.argv = std::move(argv), .deadline = kDeadline});
}

/// Two steps of a small model, then the evaluation.
Words short_training(const std::string& data, const std::string& log) {
    return {
        "--model=resnet18",
        "--data=" + data,
        "--image_size=32",
        "--batch_size=6",
        "--epochs=1",
        "--lr=0.01",
        "--device=cpu",
        "--log_json=" + log};
}

TEST_SUITE_BEGIN("system/trainer_data");

TEST_CASE("two ranks train on a folder of pictures and evaluate each picture once") {
    const Pictures pictures(12, 5);
    const std::string log = pictures.folder.path("log.json");
    Words words{"--standalone", "--nproc_per_node=2", "trainer"};
    const Words training = short_training(pictures.data(), log);
    words.insert(words.end(), training.begin(), training.end());
    words.emplace_back("--augment=standard");

    const CommandResult result = run_command({.argv = ddprun(words), .deadline = kDeadline});

    REQUIRE_MESSAGE(result.exit_code == 0, describe(result) << result.err);
    CHECK(result.out.find("resnet18 on 12 pictures, 2 classes") != std::string::npos);
    CHECK(result.out.find("of the time spent waiting for data") != std::string::npos);
    CHECK(read_file(log).find("\"count\":5") != std::string::npos);
}

TEST_CASE("broken pictures are named and skipped, and not counted in the evaluation") {
    const Pictures pictures(12, 5);
    pictures.break_picture("train", 3);
    pictures.break_picture("val", 0);
    const std::string log = pictures.folder.path("log.json");

    const CommandResult result = trainer(short_training(pictures.data(), log));

    REQUIRE_MESSAGE(result.exit_code == 0, describe(result) << result.err);
    CHECK(count_of(result.err, "skipped a broken picture (1 of at most 10)") == 2);
    CHECK(result.err.find("train/dog/03.jpg") != std::string::npos);
    CHECK(result.err.find("val/cat/00.jpg") != std::string::npos);
    CHECK(read_file(log).find("\"count\":4") != std::string::npos);
}

TEST_CASE("more broken pictures than allowed end a training with 65 and one line") {
    const Pictures pictures;
    pictures.break_picture("train", 3);
    Words words = short_training(pictures.data(), pictures.folder.path("log.json"));
    words.emplace_back("--max_bad_samples=0");

    const CommandResult result = trainer(words);

    CHECK_MESSAGE(result.exit_code == 65, describe(result) << result.err);
    CHECK(count_of(result.err, "trainer: error: ") == 1);
    CHECK(result.err.find("03.jpg: the JPEG file is cut off") != std::string::npos);
    CHECK(result.err.find("--max_bad_samples allows none") != std::string::npos);
}

TEST_CASE("a packed set trains as its folder does, to the same losses") {
    const Pictures pictures;
    const std::string packed = pictures.folder.path("packed");
    const CommandResult made = trainer({"pack", pictures.data(), packed, "--short_side=37"});
    REQUIRE_MESSAGE(made.exit_code == 0, describe(made) << made.err);
    CHECK(made.err.find("train.pack: 12 pictures, 0 skipped, 2 classes") != std::string::npos);
    const auto losses = [&pictures](const std::string& data, const std::string& name) {
        const std::string log = pictures.folder.path(name);
        Words words = short_training(data, log);
        words.emplace_back("--deterministic");
        const CommandResult result = trainer(words);
        REQUIRE_MESSAGE(result.exit_code == 0, describe(result) << result.err);
        std::string found;
        const std::string text = read_file(log);
        for (std::size_t at = text.find("\"loss\""); at != std::string::npos;
             at = text.find("\"loss\"", at + 1)) {
            found += text.substr(at, text.find(',', at) - at) + " ";
        }
        return found;
    };

    const std::string from_files = losses(pictures.data(), "files.json");

    CHECK(!from_files.empty());
    CHECK(losses("packed:" + packed, "packed.json") == from_files);
}

TEST_CASE("a disk that is full ends pack with 73, and nothing half-written stays") {
    const Pictures pictures;
    const std::string packed = pictures.folder.path("packed");
    const CommandResult result = run_command({
        .argv = {program("trainer"), "pack", pictures.data(), packed},
        .in_child =
            [] {
                const rlimit small{20'000, 20'000};
                ::setrlimit(RLIMIT_FSIZE, &small);
            },
    });

    CHECK_MESSAGE(result.exit_code == 73, describe(result) << result.err);
    CHECK(result.err.find("train.pack") != std::string::npos);
    CHECK(count_of(result.err, "trainer: error: ") == 1);
    CHECK_FALSE(fs::exists(packed));
}

TEST_CASE("pack without a folder to read ends with 66, with a wrong option with 2") {
    const TemporaryFolder folder;
    const CommandResult missing = trainer({"pack", folder.path("none"), folder.path("out")});
    const CommandResult wrong = trainer({"pack", folder.path("none"), folder.path("out"), "--x"});

    CHECK_MESSAGE(missing.exit_code == 66, missing.err);
    CHECK(missing.err.find("has train/ and val/") != std::string::npos);
    CHECK_MESSAGE(wrong.exit_code == 2, wrong.err);
}

TEST_CASE("data that is missing ends with 66, and data of another kind with 65") {
    const TemporaryFolder folder;
    static_cast<void>(folder.file("test_batch.bin", std::string(3000, 'x')));
    const CommandResult missing = trainer({"--data=cifar10:" + folder.path("none")});
    for (int i = 1; i <= 5; ++i) {
        static_cast<void>(
            folder.file("data_batch_" + std::to_string(i) + ".bin", std::string(3000, 'x'))
        );
    }
    const CommandResult damaged = trainer({"--data=cifar10:" + folder.path()});

    CHECK_MESSAGE(missing.exit_code == 66, missing.err);
    CHECK_MESSAGE(damaged.exit_code == 65, damaged.err);
    CHECK(damaged.err.find("no whole records of 3073") != std::string::npos);
}

TEST_CASE("bench_data reads the data alone and says how fast") {
    const Pictures pictures;

    const CommandResult result =
        trainer({"--data=" + pictures.data(), "--bench_data", "--epochs=2", "--workers=3"});

    CHECK_MESSAGE(result.exit_code == 0, result.err);
    CHECK_MESSAGE(result.out.starts_with("data: 24 images in "), result.out);
    CHECK(result.out.find("images/s, 3 threads, ") != std::string::npos);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::test
