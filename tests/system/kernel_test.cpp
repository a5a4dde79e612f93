// What needs the kernel's help: a worker that doesn't die of SIGKILL, lack of memory, ddprun as the
// first process of a container. Each case is skipped, with the reason, where this machine refuses.
#include "tests/support/command.h"
#include "tests/support/system.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace ddprun::test {
namespace {

namespace fs = std::filesystem;

/// Mount point of a controller of control groups, version 1; empty where there is none.
std::string mount_of(const std::string& controller) {
    std::ifstream mounts{"/proc/self/mountinfo"};
    for (std::string line; std::getline(mounts, line);) {
        const std::size_t separator = line.find(" - cgroup ");
        if (separator == std::string::npos) {
            continue;
        }
        const std::string options = "," + line.substr(line.rfind(' ') + 1) + ",";
        if (options.find("," + controller + ",") != std::string::npos) {
            std::istringstream words{line};
            std::string word;
            for (int i = 0; i < 5; ++i) {
                words >> word;
            }
            return word;
        }
    }
    return {};
}

bool write_to(const std::string& path, const std::string& text) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    const bool written =
        fd >= 0 && ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    if (fd >= 0) {
        ::close(fd);
    }
    return written;
}

/// A group of version 1 for a test; invalid where none may be made.
class Group {
public:
    explicit Group(const std::string& controller) {
        const std::string mount = mount_of(controller);
        if (!mount.empty()) {
            path_ = fmt::format("{}/ddprun-test-{}", mount, ::getpid());
            std::error_code error;
            valid_ = fs::create_directory(path_, error);
        }
    }

    Group(const Group&) = delete;
    Group& operator=(const Group&) = delete;

    ~Group() {
        if (!valid_) {
            return;
        }
        write("freezer.state", "THAWED");
        std::ifstream processes{path("cgroup.procs")};
        for (pid_t pid = 0; processes >> pid;) {
            ::kill(pid, SIGKILL);
            static_cast<void>(wait_until_dead(pid, std::chrono::seconds(5)));
        }
        ::rmdir(path_.c_str());
    }

    [[nodiscard]] bool valid() const { return valid_; }

    [[nodiscard]] std::string path(const std::string& file) const { return path_ + "/" + file; }

    bool write(const std::string& file, const std::string& text) const {
        return write_to(path(file), text);
    }

private:
    std::string path_;
    bool valid_ = false;
};

/// Mount point of control groups, version 2.
std::string unified_mount() {
    std::ifstream mounts{"/proc/self/mountinfo"};
    for (std::string line; std::getline(mounts, line);) {
        if (line.find(" - cgroup2 ") != std::string::npos) {
            std::istringstream words{line};
            std::string word;
            for (int i = 0; i < 5; ++i) {
                words >> word;
            }
            return word;
        }
    }
    return {};
}

bool may_make_groups() {
    const CommandResult result =
        run_command({.argv = ddprun({"--standalone", "/bin/sh", "-c", "cat /proc/self/cgroup"})});
    return result.out.find("/ddprun-") != std::string::npos;
}

bool can_unshare() {
    return run_command({.argv = {"unshare", "--pid", "--fork", "--mount-proc", "true"}}
           ).exit_code == 0;
}

std::vector<std::string> in_container(const std::vector<std::string>& arguments) {
    std::vector<std::string> argv{"unshare", "--pid", "--fork", "--mount-proc"};
    for (const std::string& word : ddprun(arguments)) {
        argv.push_back(word);
    }
    return argv;
}

TEST_SUITE_BEGIN("system/kernel");

TEST_CASE("a worker that doesn't die of SIGKILL is named, and ddprun ends all the same") {
    const Group frozen("freezer");
    if (!frozen.valid()) {
        MESSAGE("skipped: no freezer of cgroup v1 in which a group may be made");
        return;
    }
    Command job(
        {.argv = ddprun(
             {"--standalone",
              "--nproc_per_node=2",
              "--shutdown_timeout=0.2",
              "/bin/sh",
              "-c",
              "trap 'exit 0' TERM; echo ready $RANK $$; while :; do sleep 0.02; done"}
         )}
    );
    REQUIRE(job.wait_for_line("ready", 2));
    const auto line = job.wait_for_line("ready 1 ");
    REQUIRE(line);
    const std::string pid = line->substr(line->rfind(' ') + 1);
    REQUIRE(frozen.write("cgroup.procs", pid));
    REQUIRE(frozen.write("freezer.state", "FROZEN"));

    job.send_signal(SIGTERM);
    const CommandResult result = job.finish();

    CHECK_MESSAGE(result.exit_code == 128 + SIGTERM, describe(result) << result.err);
    CHECK_MESSAGE(result.err.find("after SIGKILL") != std::string::npos, result.err);
    CHECK_MESSAGE(
        result.err.find("process " + pid + " (sh), state D, ") != std::string::npos, result.err
    );
    // The other worker ended as it should.
    CHECK(job.living() == std::vector<pid_t>{std::stoi(pid)});
    REQUIRE(frozen.write("freezer.state", "THAWED"));
    CHECK(job.left_behind(std::chrono::seconds(10)) == "");
}

TEST_CASE("a worker killed for lack of memory is said to be") {
    const Group small("memory");
    if (!small.valid() || !small.write("memory.limit_in_bytes", "67108864")) {
        MESSAGE("skipped: no memory controller of cgroup v1 in which a group may be made");
        return;
    }
    const std::string processes = small.path("cgroup.procs");
    // Doubles a text until it is killed.
    const CommandResult result = run_command({
        .argv = ddprun(
            {"--standalone",
             "/bin/sh",
             "-c",
             "echo 1000 > /proc/self/oom_score_adj; x=0123456789abcdef; while :; do x=$x$x; done"}
        ),
        .in_child = [&] { write_to(processes, "0"); },
    });

    if (result.err.find("annot allocate") != std::string::npos) {
        MESSAGE("skipped: the shell got an error instead of being killed");
        return;
    }
    CHECK_MESSAGE(result.exit_code == 128 + SIGKILL, describe(result) << result.err);
    CHECK_MESSAGE(result.err.find("out of memory") != std::string::npos, result.err);
}

TEST_CASE("a worker killed by somebody isn't said to have lacked memory") {
    const CommandResult result =
        run_command({.argv = ddprun({"--standalone", "/bin/sh", "-c", "kill -9 $$"})});

    CHECK_MESSAGE(result.exit_code == 128 + SIGKILL, describe(result) << result.err);
    CHECK_MESSAGE(result.err.find("memory") == std::string::npos, result.err);
}

TEST_CASE("workers have a control group of their own, which is gone afterwards") {
    for (const bool killed : {false, true}) {
        CAPTURE(killed);
        Command job(
            {.argv = ddprun(
                 {"--standalone",
                  "/bin/sh",
                  "-c",
                  "grep ^0:: /proc/self/cgroup; echo ready; " +
                      std::string{killed ? "exec sleep 600" : "exit 0"}}
             )}
        );
        REQUIRE(job.wait_for_line("ready"));
        const auto line = job.wait_for_line("ddprun-", 1, std::chrono::milliseconds(0));
        if (!line) {
            MESSAGE("skipped: no control group of version 2 may be made");
            return;
        }
        if (killed) {
            ::kill(Command::children_of(job.pid()).at(0), SIGKILL);
        }

        static_cast<void>(job.finish());

        CHECK_FALSE(fs::exists(unified_mount() + line->substr(std::string{"0::"}.size())));
        CHECK(job.left_behind() == "");
    }
}

/// ddprun as the successor of a shell that has a child: a stranger to it, so that what a killed
/// agent leaves behind is told from strangers by its mark.
std::vector<std::string> with_child_of_its_own(const std::vector<std::string>& arguments) {
    std::vector<std::string> argv{
        "/bin/sh", "-c", "sleep 600 > /dev/null 2>&1 & exec \"$@\"", "sh"};
    const std::vector<std::string> words = ddprun(arguments);
    argv.insert(argv.end(), words.begin(), words.end());
    return argv;
}

/// Shell code of a worker that leaves a daemon without a mark; its pid is in the file `daemon`.
constexpr const char* kLeaveDaemon =
    "(setsid env -i /bin/sh -c 'exec 0<&- 1>&- 2>&-; /bin/sleep 600 & echo $! > daemon' &) & "
    "until [ -s daemon ]; do sleep 0.01; done; ";

TEST_CASE("a daemon without a mark ends with its round though ddprun has children of its own") {
    const TemporaryFolder folder;

    std::string code =
        "cd \"$0\"; if [ $TORCHELASTIC_RESTART_COUNT = 1 ]; then "
        "kill -0 $(cat daemon) 2> /dev/null && echo alive; echo over; exit 0; fi; ";
    code += kLeaveDaemon;
    code += "exit 3";

    const CommandResult result = run_command(
        {.argv = with_child_of_its_own(
             {"--standalone", "--max_restarts=1", "/bin/sh", "-c", code, folder.path()}
         )}
    );

    CHECK_MESSAGE(result.exit_code == 0, describe(result) << result.err);
    CHECK(result.out == "over\n");
}

TEST_CASE("a daemon without a mark ends with a killed agent though ddprun has children of its own"
) {
    if (!may_make_groups()) {
        MESSAGE("skipped: no control group of version 2 may be made");
        return;
    }
    const TemporaryFolder folder;
    std::string code = "cd \"$0\"; ";
    code += kLeaveDaemon;
    code += "echo agent $PPID; exec sleep 600";
    Command job(
        {.argv = with_child_of_its_own({"--standalone", "/bin/sh", "-c", code, folder.path()})}
    );
    const auto line = job.wait_for_line("agent ");
    REQUIRE(line.has_value());
    const pid_t daemon = std::stoi(read_file(folder.path("daemon")));

    REQUIRE(::kill(std::stoi(line->substr(line->find(' '))), SIGKILL) == 0);

    CHECK(job.finish().exit_code == 128 + SIGKILL);
    CHECK(wait_until_dead(daemon, std::chrono::milliseconds(500)));
}

TEST_CASE("as the first process of a container it reaps orphans") {
    if (!can_unshare()) {
        MESSAGE("skipped: no namespace of processes may be made");
        return;
    }
    const TemporaryFolder folder;

    // The orphan's parent ends at once; a zombie would keep its folder in /proc.
    const CommandResult result = run_command(
        {.argv = in_container(
             {"--standalone",
              "/bin/sh",
              "-c",
              "(sh -c 'echo $$ > \"$0/orphan\"' \"$0\" &) ; "
              "until [ -s \"$0/orphan\" ]; do sleep 0.02; done; "
              "while [ -e /proc/$(cat \"$0/orphan\") ]; do sleep 0.02; done; echo reaped",
              folder.path()}
         )}
    );

    CHECK_MESSAGE(result.exit_code == 0, describe(result) << result.err);
    CHECK(result.out == "reaped\n");
}

TEST_CASE("as the first process of a container it obeys TERM and leaves nothing") {
    if (!can_unshare()) {
        MESSAGE("skipped: no namespace of processes may be made");
        return;
    }
    Command job(
        {.argv = in_container(
             {"--standalone",
              "/bin/sh",
              "-c",
              "trap 'echo saved; exit 0' TERM; setsid sleep 600 & echo ready; "
              "while :; do sleep 0.02; done"}
         )}
    );
    REQUIRE(job.wait_for_line("ready"));
    const std::vector<pid_t> firsts = Command::children_of(job.pid());
    REQUIRE(firsts.size() == 1);

    REQUIRE(::kill(firsts.front(), SIGTERM) == 0);
    const CommandResult result = job.finish();

    CHECK_MESSAGE(result.exit_code == 128 + SIGTERM, describe(result) << result.err);
    CHECK(count_of(result.out, "saved") == 1);
    CHECK(job.left_behind() == "");
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::test
