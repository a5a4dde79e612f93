// The main job: the bundled trainer under ddprun trains on real data, loses a worker, recovers.
#include "tests/support/command.h"
#include "tests/support/system.h"

#include <doctest/doctest.h>

#include <algorithm>
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
const std::string kData = "fashion-mnist:" DDPRUN_FASHION_MNIST;

using Words = std::vector<std::string>;

Words with(Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

/// A short deterministic training on real data with checkpoints in `folder`.
Words short_training(const std::string& folder) {
    return {
        "trainer",
        "--model=resnet18",
        "--data=" + kData,
        "--batch_size=8",
        "--steps=12",
        "--lr=0.01",
        "--momentum=0.9",
        "--seed=3",
        "--deterministic",
        "--limit_test=16",
        "--checkpoint_every=2",
        "--keep=100",
        "--checkpoint_dir=" + folder,
        "--log_json=" + folder + "/log.json",
    };
}

std::string newest_checkpoint(const std::string& folder) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) {
        const std::string name = entry.path().filename().string();
        if (name.starts_with("step-") && name.ends_with(".pt")) {
            names.push_back(entry.path().string());
        }
    }
    return names.empty() ? std::string{} : *std::ranges::max_element(names);
}

CommandResult compare(const std::string& one, const std::string& other) {
    return run_command({
        .argv =
            {DDPRUN_PYTHON, DDPRUN_SOURCE_DIR "/tests/support/compare_checkpoints.py", one, other},
        .deadline = 60s,
    });
}

/// Waits until the file holds `text`, as long as the job runs.
bool wait_for_text(Command& job, const std::string& path, const std::string& text) {
    const auto end = std::chrono::steady_clock::now() + kDeadline;
    while (std::chrono::steady_clock::now() < end) {
        if (read_file(path).find(text) != std::string::npos) {
            return true;
        }
        // Bounded: looks at the job's output in between, for at most this long.
        static_cast<void>(job.wait_for_line("never written", 1, 20ms));
    }
    return false;
}

TEST_SUITE_BEGIN("system/trainer");

TEST_CASE("a run that lost a worker ends with the very checkpoint of a run left alone") {
    const TemporaryFolder undisturbed;
    const TemporaryFolder disturbed;

    const CommandResult alone = run_command({
        .argv =
            ddprun(with({"--standalone", "--nproc_per_node=2"}, short_training(undisturbed.path()))
            ),
        .deadline = kDeadline,
    });
    Command job({
        .argv = ddprun(with(
            {"--standalone", "--nproc_per_node=2", "--max_restarts=2"},
            short_training(disturbed.path())
        )),
        .deadline = kDeadline,
    });
    REQUIRE(wait_for_text(job, disturbed.path("log.json"), "\"step\":5"));
    const std::vector<pid_t> workers = workers_of(job.pid());
    const auto victim = std::ranges::find_if(workers, [](pid_t pid) {
        return read_file("/proc/" + std::to_string(pid) + "/environ").find("LOCAL_RANK=1") !=
               std::string::npos;
    });
    REQUIRE(victim != workers.end());
    REQUIRE(::kill(*victim, SIGKILL) == 0);
    const CommandResult killed = job.finish();

    REQUIRE_MESSAGE(alone.exit_code == 0, describe(alone) << alone.err);
    REQUIRE_MESSAGE(killed.exit_code == 0, describe(killed) << killed.err);
    CHECK(killed.err.find("SIGKILL") != std::string::npos);
    const std::string final_name =
        fs::path{newest_checkpoint(disturbed.path())}.filename().string();
    CHECK(final_name == "step-00000012.pt");
    const CommandResult same =
        compare(newest_checkpoint(undisturbed.path()), newest_checkpoint(disturbed.path()));
    CHECK_MESSAGE(same.exit_code == 0, same.out << same.err);
    // The comparison itself can tell: two different steps differ.
    CHECK(
        compare(undisturbed.path("step-00000010.pt"), undisturbed.path("step-00000012.pt"))
            .exit_code == 1
    );
}

TEST_CASE("two nodes train with world size 4, and a worker killed on one restarts both") {
    const TemporaryFolder folder;
    const std::string port = free_port();
    const auto node = [&](const std::string& rank) {
        return ddprun(with(
            {"--nnodes=2",
             "--nproc_per_node=2",
             "--node_rank=" + rank,
             "--max_restarts=2",
             "--rdzv_endpoint=127.0.0.1:" + port},
            short_training(folder.path())
        ));
    };
    Command first({.argv = node("0"), .env = {"OMP_NUM_THREADS=1"}, .deadline = kDeadline});
    Command second({.argv = node("1"), .env = {"OMP_NUM_THREADS=1"}, .deadline = kDeadline});
    REQUIRE(wait_for_text(first, folder.path("log.json"), "\"step\":3"));
    const std::vector<pid_t> workers = workers_of(second.pid());
    REQUIRE(workers.size() >= 2);
    REQUIRE(::kill(workers.back(), SIGKILL) == 0);

    const CommandResult one = first.finish();
    const CommandResult two = second.finish();

    CHECK_MESSAGE(one.exit_code == 0, describe(one) << one.err);
    CHECK_MESSAGE(two.exit_code == 0, describe(two) << two.err);
    CHECK(fs::exists(folder.path("step-00000012.pt")));
    CHECK(one.out.find("4 workers x batch 8") != std::string::npos);
    CHECK(one.err.find("restart") != std::string::npos);
    CHECK(two.err.find("restart") != std::string::npos);
    CHECK(first.left_behind() == "");
    CHECK(second.left_behind() == "");
}

TEST_SUITE_END();

// ---- what can be wrong with the input of a training: one clear line, its status, no half-written
// file

struct Wrong {
    CommandResult result;

    void check(int status, const std::string& named) const {
        CHECK_MESSAGE(result.exit_code == status, describe(result) << result.err);
        CHECK_MESSAGE(result.err.find(named) != std::string::npos, result.err);
        CHECK(result.err.find("Exception raised from") == std::string::npos);
        CHECK(result.err.find("frame #") == std::string::npos);
        CHECK(count_of(result.err, "trainer: error: ") == 1);
    }
};

Wrong train(const Words& words) {
    CommandResult result = run_command({
        .argv = with({program("trainer")}, words),
        .deadline = kDeadline,
    });
    return {std::move(result)};
}

/// Makes a folder with a checkpoint at step 0 and one at step 1 of a resnet18.
void make_checkpoints(const TemporaryFolder& folder) {
    const CommandResult made = run_command({
        .argv =
            {program("trainer"),
             "--model=resnet18",
             "--data=synthetic",
             "--image_size=32",
             "--num_classes=10",
             "--batch_size=4",
             "--steps=1",
             "--limit_test=8",
             "--checkpoint_every=1",
             "--checkpoint_dir=" + folder.path()},
        .deadline = kDeadline,
    });
    REQUIRE_MESSAGE(made.exit_code == 0, describe(made) << made.err);
}

Words resuming(const TemporaryFolder& folder, const std::string& model = "resnet18") {
    return {
        "--model=" + model,
        "--data=synthetic",
        "--image_size=32",
        "--num_classes=10",
        "--batch_size=4",
        "--steps=2",
        "--limit_test=8",
        "--checkpoint_dir=" + folder.path()};
}

TEST_SUITE_BEGIN("system/trainer_bad_input");

TEST_CASE("an unknown option or a bad number is usage: status 2") {
    train({"--bogus"}).check(2, "--bogus");
    train({"--data=synthetic", "--batch_size=many"}).check(2, "--batch_size");
    train({"--data=synthetic", "--steps=-1"}).check(2, "--steps");
    train({"--data=synthetic", "--model=resnet7"}).check(2, "resnet7");
    train({"--data=nothing:x"}).check(2, "nothing");
}

TEST_CASE("a missing data folder is status 66") {
    train({"--data=fashion-mnist:/no/such/folder", "--steps=1"}).check(66, "/no/such/folder");
}

TEST_CASE("a truncated data file is status 65 and named") {
    const TemporaryFolder folder;
    for (const auto& entry : fs::directory_iterator(DDPRUN_FASHION_MNIST)) {
        if (entry.path().extension() == ".gz") {
            fs::copy_file(entry.path(), fs::path{folder.path()} / entry.path().filename());
        }
    }
    const std::string images = folder.path("train-images-idx3-ubyte.gz");
    fs::resize_file(images, 1'000'000);

    train({"--data=fashion-mnist:" + folder.path(), "--steps=1"}).check(65, images);
}

TEST_CASE("a checkpoint of another model is status 65, never a fresh start") {
    const TemporaryFolder folder;
    make_checkpoints(folder);

    train(resuming(folder, "resnet34")).check(65, "step-00000001.pt");
}

TEST_CASE("a truncated newest checkpoint is passed over for the one before, with a warning") {
    const TemporaryFolder folder;
    make_checkpoints(folder);
    fs::resize_file(folder.path("step-00000001.pt"), 100'000);

    const CommandResult result = train(resuming(folder)).result;

    CHECK_MESSAGE(result.exit_code == 0, describe(result) << result.err);
    CHECK(result.err.find("step-00000001.pt") != std::string::npos);
    CHECK(result.err.find("warning") != std::string::npos);
}

TEST_CASE("a full disk is status 73 and leaves no partial file") {
    const TemporaryFolder folder;
    make_checkpoints(folder);
    const auto before =
        std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator{});

    // A limit on the size of files fails a write as a full disk does, without a file system of
    // one's own.
    Words argv{"/bin/sh", "-c", "ulimit -f 1000; exec \"$@\"", "sh", program("trainer")};
    const Wrong wrong{run_command({.argv = with(argv, resuming(folder)), .deadline = kDeadline})};

    wrong.check(73, "step-00000002.pt");
    const auto after =
        std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator{});
    CHECK(after == before);
}

TEST_CASE("a worker that runs alone without an environment trains as world size 1") {
    const CommandResult result = run_command({
        .argv =
            {program("trainer"),
             "--model=resnet18",
             "--data=synthetic",
             "--image_size=32",
             "--num_classes=10",
             "--batch_size=4",
             "--steps=2",
             "--limit_test=8"},
        .unset_env = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"},
        .deadline = kDeadline,
    });

    CHECK_MESSAGE(result.exit_code == 0, describe(result) << result.err);
    CHECK(result.out.find("1 worker x batch 4") != std::string::npos);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::test
