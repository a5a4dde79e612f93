// The trainer over many steps and many deaths: killed at any moment a job ends as one left alone,
// and its memory stays flat. DDPRUN_TEST_FULL=1 asks for the long forms.
#include "tests/support/command.h"
#include "tests/support/system.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

namespace ddprun::test {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

using Words = std::vector<std::string>;

bool full() {
    return std::getenv("DDPRUN_TEST_FULL") != nullptr;
}

/// A deterministic training on synthetic pictures, a checkpoint in `folder` at its end.
Words training(const std::string& folder, int steps, const Words& more) {
    Words words{
        "trainer",
        "--model=resnet18",
        "--data=synthetic:640",
        "--image_size=32",
        "--num_classes=10",
        "--batch_size=4",
        "--lr=0.01",
        "--momentum=0.9",
        "--threads=1",
        "--limit_test=8",
        "--deterministic",
        "--steps=" + std::to_string(steps),
        "--checkpoint_dir=" + folder};
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

CommandOptions job_of(int ranks, int max_restarts, const Words& worker) {
    Words argv = ddprun(
        {"--standalone",
         "--nproc_per_node=" + std::to_string(ranks),
         "--max_restarts=" + std::to_string(max_restarts)}
    );
    argv.insert(argv.end(), worker.begin(), worker.end());
    return {.argv = argv, .env = {"OMP_NUM_THREADS=1"}, .deadline = full() ? 1'800s : 300s};
}

/// Kills one worker after another, each a random moment after all were there. Gives how many.
int kill_at_random(Command& job, int ranks, int kills, unsigned seed) {
    std::mt19937 random(seed);
    std::uniform_int_distribution<int> moment_ms(0, 2'500);
    int done = 0;
    while (done < kills) {
        const auto end = std::chrono::milliseconds(moment_ms(random));
        static_cast<void>(job.wait_for_line("never written", 1, end));
        const std::vector<pid_t> workers = workers_of(job.pid());
        if (workers.empty() && Command::children_of(job.pid()).empty()) {
            return done;  // the job is over
        }
        if (workers.size() != static_cast<std::size_t>(ranks)) {
            continue;
        }
        done += ::kill(workers[random() % workers.size()], SIGKILL) == 0 ? 1 : 0;
    }
    return done;
}

void check_every_checkpoint_loads(const std::string& folder) {
    Words argv{
        DDPRUN_PYTHON,
        "-c",
        "import sys, torch\nfor p in sys.argv[1:]: torch.load(p, weights_only=True)\n"};
    for (const auto& entry : fs::directory_iterator(folder)) {
        CHECK_MESSAGE(entry.path().extension() == ".pt", entry.path().string());
        argv.push_back(entry.path().string());
    }
    const CommandResult loaded = run_command({.argv = argv, .deadline = 120s});
    CHECK_MESSAGE(loaded.exit_code == 0, loaded.err);
}

/// Runs the training alone, and again with deaths; both must end with the same checkpoint.
void check_survives(int ranks, int kills, int steps, const Words& more) {
    const TemporaryFolder undisturbed;
    const TemporaryFolder disturbed;
    const CommandResult alone =
        run_command(job_of(ranks, 0, training(undisturbed.path(), steps, more)));
    REQUIRE_MESSAGE(alone.exit_code == 0, describe(alone) << alone.err);

    Command job(job_of(ranks, 2 * kills, training(disturbed.path(), steps, more)));
    const int done = kill_at_random(job, ranks, kills, 20'261'202U);
    const CommandResult result = job.finish();

    REQUIRE_MESSAGE(result.exit_code == 0, describe(result) << result.err);
    CHECK(done >= std::min(kills, 2));
    check_every_checkpoint_loads(disturbed.path());
    const std::string name = "step-" + std::string(8 - std::to_string(steps).size(), '0') +
                             std::to_string(steps) + ".pt";
    const CommandResult same = run_command({
        .argv =
            {DDPRUN_PYTHON,
             DDPRUN_SOURCE_DIR "/tests/support/compare_checkpoints.py",
             undisturbed.path(name),
             disturbed.path(name)},
        .deadline = 60s,
    });
    CHECK_MESSAGE(same.exit_code == 0, same.out << same.err);
}

/// Resident kilobytes of a process.
double resident_kb(pid_t pid) {
    const std::string status = read_file("/proc/" + std::to_string(pid) + "/status");
    const std::size_t place = status.find("VmRSS:");
    if (place == std::string::npos) {
        return 0.0;
    }
    return std::strtod(status.c_str() + place + 6, nullptr);
}

/// The step of the newest whole line of a --log_json file; 0 without one.
int newest_step(const std::string& path) {
    const std::string text = read_file(path);
    const std::size_t end = text.rfind('\n');
    const std::size_t place = end == std::string::npos ? end : text.rfind("{\"step\":", end);
    int step = 0;
    if (place != std::string::npos) {
        const char* const begin = text.data() + place + 8;
        std::from_chars(begin, text.data() + text.size(), step);
    }
    return step;
}

TEST_SUITE_BEGIN("system/trainer");

TEST_CASE("workers killed at random moments cost time only: the end is that of a run left alone") {
    check_survives(2, full() ? 100 : 3, full() ? 300 : 40, {"--checkpoint_every=1"});
}

TEST_CASE("with --memory_checkpoint alone killed workers go on, too, to the very same end") {
    check_survives(2, full() ? 20 : 3, full() ? 100 : 40, {"--memory_checkpoint"});
}

TEST_CASE("four ranks killed at random moments end as a run left alone") {
    check_survives(4, full() ? 20 : 2, full() ? 60 : 12, {"--checkpoint_every=1"});
}

/// kB a step over the second half of a training's steps; the first fills pools.
double memory_slope(int steps) {
    const TemporaryFolder folder;
    Words argv = training(
        folder.path(),
        steps,
        {"--workers=2", "--log_json=" + folder.path("log.json"), "--log_interval=1000000"}
    );
    argv.front() = program("trainer");
    Command job({
        .argv = argv,
        .unset_env = {"RANK", "WORLD_SIZE"},
        .deadline = full() ? 1'800s : 300s,
    });
    std::vector<std::pair<double, double>> samples;  // step, kB
    while (!job.wait_for_line("never written", 1, 100ms)) {
        const int step = newest_step(folder.path("log.json"));
        const double memory = resident_kb(job.pid());
        if (memory == 0.0 || step >= steps) {
            break;
        }
        if (step >= steps / 2) {
            samples.emplace_back(step, memory);
        }
    }
    const CommandResult result = job.finish();

    REQUIRE_MESSAGE(result.exit_code == 0, describe(result) << result.err);
    REQUIRE(samples.size() >= 5);
    double mean_step = 0.0;
    double mean_kb = 0.0;
    for (const auto& [step, kb] : samples) {
        mean_step += step / static_cast<double>(samples.size());
        mean_kb += kb / static_cast<double>(samples.size());
    }
    double covariance = 0.0;
    double variance = 0.0;
    for (const auto& [step, kb] : samples) {
        covariance += (step - mean_step) * (kb - mean_kb);
        variance += (step - mean_step) * (step - mean_step);
    }
    return covariance / variance;
}

TEST_CASE("memory stays flat over the steps of a training, loader included") {
    constexpr double kSlopeMax = 1.0;  // kB a step
    // A busy machine can delay what fills a pool into the second half. A leak is there every time.
    constexpr int kRuns = 3;
    const int steps = full() ? 4'000 : 800;
    std::vector<double> slopes;
    do {
        slopes.push_back(memory_slope(steps));
    } while (slopes.back() >= kSlopeMax && slopes.size() < kRuns);
    CAPTURE(slopes.front());
    CHECK(slopes.back() < kSlopeMax);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::test
