// Output that is hard to pass on: floods, tiny writes, long lines, odd bytes, readers that stop,
// descriptors that are closed.
#include "tests/support/command.h"
#include "tests/support/system.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace ddprun::test {
namespace {

using Words = std::vector<std::string>;

std::string checksum_of(std::string_view text) {
    std::uint64_t sum = 14'695'981'039'346'656'037ULL;
    for (const char letter : text) {
        if (letter != '\n') {
            sum = (sum ^ static_cast<unsigned char>(letter)) * 1'099'511'628'211ULL;
        }
    }
    return fmt::format("{:016x}", sum);
}

std::size_t resident_bytes(pid_t pid) {
    std::ifstream status(fmt::format("/proc/{}/status", pid));
    for (std::string line; std::getline(status, line);) {
        if (line.starts_with("VmRSS:")) {
            constexpr std::size_t kKib = 1024;
            return static_cast<std::size_t>(std::stoul(line.substr(6))) * kKib;
        }
    }
    return 0;
}

/// The state in the kernel's words ("S", "R"), and how much it has written so far.
std::string progress_of(pid_t pid) {
    return read_file(fmt::format("/proc/{}/io", pid));
}

/// True once `pid` writes nothing more: its output isn't taken. Looks twice with a pause between.
bool stands_still(pid_t pid) {
    constexpr int kLooksMax = 200;
    constexpr long kPauseNanoseconds = 100'000'000;
    std::string before;
    for (int look = 0; look < kLooksMax; ++look) {
        const std::string now = progress_of(pid);
        if (now == before && now.find("wchar: 0\n") == std::string::npos) {
            return true;
        }
        before = now;
        const timespec pause{0, kPauseNanoseconds};
        ::nanosleep(&pause, nullptr);
    }
    return false;
}

TEST_SUITE_BEGIN("system/awkward output");

TEST_CASE("of 1,000 lines without a last newline nothing is lost, in any of many runs") {
    std::string expected;
    for (int line = 1; line <= 1'000; ++line) {
        expected += std::to_string(line) + "\n";
    }
    expected.pop_back();
    constexpr int kRuns = 100;
    int complete = 0;
    for (int run = 0; run < kRuns; ++run) {
        const CommandResult result = run_command(
            {.argv = ddprun({"--standalone", "/bin/sh", "-c", "seq 1 999; printf 1000"})}
        );
        complete += result.exit_code == 0 && result.out == expected ? 1 : 0;
    }

    CHECK(complete == kRuns);
}

TEST_CASE("lines in writes of 3 bytes by four workers arrive whole, by their checksums") {
    const TemporaryFolder folder;
    const CommandResult result = run_command(
        {.argv = ddprun(
             {"--standalone",
              "--nproc_per_node=4",
              "-t3",
              "--log_dir=" + folder.path("logs"),
              program("output_worker"),
              folder.path(),
              "pieces",
              "2000"}
         )}
    );

    CHECK_MESSAGE(result.exit_code == 0, result.err);
    for (const char* rank : {"0", "1", "2", "3"}) {
        CAPTURE(rank);
        const std::string sum = read_file(folder.path("sum." + std::string{rank}));
        const std::string prefix = "[default" + std::string{rank} + "]:";
        CHECK(checksum_of(text_of(result.out, prefix)) == sum);
        const std::string file =
            read_file(folder.path("logs/latest/attempt_0/" + std::string{rank} + "/stdout.log"));
        CHECK(checksum_of(file) == sum);
        CHECK(count_of(file, "\n") == 2'000);
    }
}

TEST_CASE("lines of 100 kB by two workers are never mixed") {
    const TemporaryFolder folder;
    const CommandResult result = run_command(
        {.argv = ddprun(
             {"--standalone",
              "--nproc_per_node=2",
              program("output_worker"),
              folder.path(),
              "lines",
              "30",
              "100000"}
         )}
    );

    CHECK_MESSAGE(result.exit_code == 0, result.err);
    CHECK(checksum_of(text_of(result.out, "[default0]:")) == read_file(folder.path("sum.0")));
    CHECK(checksum_of(text_of(result.out, "[default1]:")) == read_file(folder.path("sum.1")));
    std::istringstream lines{result.out};
    bool unmixed = true;
    for (std::string line; std::getline(lines, line);) {
        const bool is_0 = line.starts_with("[default0]:");
        unmixed = unmixed && (is_0 || line.starts_with("[default1]:")) &&
                  line.find(is_0 ? 'b' : 'a', 11) == std::string::npos;
    }
    CHECK(unmixed);
}

TEST_CASE("NUL and other bytes of several workers pass as they are") {
    const CommandResult result = run_command(
        {.argv = ddprun(
             {"--standalone",
              "--nproc_per_node=2",
              "/bin/sh",
              "-c",
              "printf 'a\\000b\\377\\r\\033[0m\\n'"}
         )}
    );
    const std::string line{"a\0b\xff\r\x1b[0m\n", 10};

    CHECK(result.exit_code == 0);
    CHECK(
        (result.out == "[default0]:" + line + "[default1]:" + line ||
         result.out == "[default1]:" + line + "[default0]:" + line)
    );
}

TEST_CASE("somebody who holds a worker's pipe after its end does not hold ddprun") {
    const TemporaryFolder folder;
    Command job(
        {.argv = ddprun(
             {"--standalone",
              "/bin/sh",
              "-c",
              "echo $$; until [ -e " + folder.path("go") + " ]; do sleep 0.02; done; echo end"}
         )}
    );
    REQUIRE(job.wait_for_text("\n"));
    const std::string pid = job.out().substr(0, job.out().find('\n'));
    // As a grandchild would, but one that no sweep reaches.
    const int held = ::open(("/proc/" + pid + "/fd/1").c_str(), O_WRONLY | O_CLOEXEC);
    REQUIRE(held >= 0);

    static_cast<void>(folder.file("go", ""));
    REQUIRE(job.wait_for_text("end"));
    const auto before = std::chrono::steady_clock::now();
    const CommandResult result = job.finish();
    const auto after_end = std::chrono::steady_clock::now() - before;
    ::close(held);

    CHECK_MESSAGE(result.exit_code == 0, describe(result));
    CHECK(result.out == pid + "\nend\n");
    CHECK(after_end < std::chrono::seconds{10});  // one second, on a machine that isn't busy
}

TEST_CASE("a grandchild that holds the pipe is ended with the round") {
    const CommandResult result = run_command(
        {.argv = ddprun({"--standalone", "/bin/sh", "-c", "setsid sleep 600 & echo end"})}
    );

    CHECK_MESSAGE(result.exit_code == 0, describe(result));
    CHECK(result.out == "end\n");
}

TEST_CASE("a flood for a reader that stands still waits in the workers, not in our memory") {
    Command job({.argv = ddprun({"--standalone", "--nproc_per_node=2", "/usr/bin/yes"})});
    REQUIRE(job.wait_for_text("[default1]:y"));
    REQUIRE(job.wait_for_text("[default0]:y"));
    const std::vector<pid_t> workers = workers_of(job.pid());
    REQUIRE(workers.size() == 2);

    // Nobody reads now.
    CHECK(stands_still(workers[0]));
    CHECK(stands_still(workers[1]));
    std::size_t most = 0;
    for (const pid_t pid : job.living()) {
        most = std::max(most, resident_bytes(pid));
    }
    job.send_signal(SIGTERM);
    const CommandResult result = job.finish();

    constexpr std::size_t kMiB = 1024 * 1024;
    CHECK_MESSAGE(most < 64 * kMiB, most);
    CHECK(result.exit_code == 128 + SIGTERM);
    CHECK(job.left_behind() == "");
}

TEST_CASE("with closed standard descriptors a job runs, and its workers have all three") {
    for (const Words& closed : {Words{"0"}, Words{"1"}, Words{"2"}, Words{"0", "1", "2"}}) {
        CAPTURE(closed.front());
        const TemporaryFolder folder;
        const CommandResult result = run_command(
            {.argv = ddprun(
                 {"--standalone",
                  "/bin/sh",
                  "-c",
                  "read -r line; echo to-out; echo to-err >&2; for n in 0 1 2 3; do [ -e "
                  "/proc/$$/fd/$n ] && echo $n; done > " +
                      folder.path("descriptors") + "; exit 7"}
             ),
             .in_child =
                 [closed] {
                     for (const std::string& number : closed) {
                         ::close(number.front() - '0');
                     }
                 }}
        );

        CHECK_MESSAGE(result.exit_code == 7, describe(result));
        CHECK(read_file(folder.path("descriptors")) == "0\n1\n2\n");
        const bool has_out = std::ranges::find(closed, "1") == closed.end();
        CHECK(result.out == (has_out ? "to-out\n" : ""));
    }
}

TEST_CASE("256 workers of one node all speak and all end") {
    Command job(
        {.argv = ddprun({"--standalone", "--nproc_per_node=256", "/bin/sh", "-c", "echo =$RANK="})}
    );
    const CommandResult result = job.finish();

    CHECK_MESSAGE(result.exit_code == 0, describe(result) << result.err);
    for (int rank = 0; rank < 256; ++rank) {
        CAPTURE(rank);
        CHECK(count_of(result.out, fmt::format("[default{0}]:={0}=\n", rank)) == 1);
    }
    CHECK(job.left_behind() == "");
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::test
