// The main job on a small cluster: an agent is killed in mid-training, another node takes its
// place.
#include "tests/support/network_lab.h"

#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ddprun::test {
namespace {

using namespace std::chrono_literals;

constexpr auto kDeadline = 300s;

/// One node of a deterministic training of two, with checkpoints in `folder`.
std::unique_ptr<Command> node(const NetworkLab& lab, int number, const std::string& folder) {
    CommandOptions options = lab.on(
        number,
        ddprun({
            "--nnodes=2",
            "--nproc_per_node=1",
            "--rdzv_endpoint=10.77.0.1",
            "trainer",
            "--model=resnet18",
            "--data=fashion-mnist:" DDPRUN_FASHION_MNIST,
            "--batch_size=8",
            "--steps=12",
            "--lr=0.01",
            "--momentum=0.9",
            "--seed=3",
            "--deterministic",
            "--limit_test=16",
            "--checkpoint_every=2",
            "--checkpoint_dir=" + folder,
            "--log_json=" + folder + "/log.json",
        })
    );
    options.deadline = kDeadline;
    return std::make_unique<Command>(std::move(options));
}

bool wait_for_step(Command& job, const std::string& folder, const std::string& step) {
    const auto end = std::chrono::steady_clock::now() + kDeadline;
    while (std::chrono::steady_clock::now() < end) {
        if (read_file(folder + "/log.json").find("\"step\":" + step) != std::string::npos) {
            return true;
        }
        // Bounded: looks at the job's output in between, for at most this long.
        static_cast<void>(job.wait_for_line("never written", 1, 20ms));
    }
    return false;
}

TEST_SUITE_BEGIN("system/network_trainer");

TEST_CASE("a node that takes the place of a killed one ends with the weights of a run left alone") {
    if (no_lab()) {
        return;
    }
    const NetworkLab lab(3);
    const TemporaryFolder undisturbed;
    const TemporaryFolder disturbed;
    {
        const auto first = node(lab, 1, undisturbed.path());
        const auto second = node(lab, 2, undisturbed.path());
        CHECK(first->finish().exit_code == 0);
        CHECK(second->finish().exit_code == 0);
    }

    const auto first = node(lab, 1, disturbed.path());
    const auto second = node(lab, 2, disturbed.path());
    REQUIRE(wait_for_step(*first, disturbed.path(), "5"));
    const std::vector<pid_t> agents = Command::children_of(second->pid());
    REQUIRE(agents.size() == 1);
    REQUIRE(::kill(agents.front(), SIGKILL) == 0);
    const auto third = node(lab, 3, disturbed.path());

    const CommandResult one = first->finish();
    const CommandResult three = third->finish();
    CHECK_MESSAGE(one.exit_code == 0, describe(one), " ", one.err);
    CHECK_MESSAGE(three.exit_code == 0, describe(three), " ", three.err);
    const CommandResult same = run_command({
        .argv =
            {DDPRUN_PYTHON,
             DDPRUN_SOURCE_DIR "/tests/support/compare_checkpoints.py",
             undisturbed.path("step-00000012.pt"),
             disturbed.path("step-00000012.pt")},
        .deadline = 60s,
    });
    CHECK_MESSAGE(same.exit_code == 0, same.out, same.err);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::test
