// Whatever ends ddprun, nothing that it started survives: kill -9 of each of its two processes, of
// its process group, of all processes of its name; grandchildren in groups and sessions of their
// own, and daemons that left nothing to find them by.
#include "tests/support/command.h"
#include "tests/support/system.h"

#include <doctest/doctest.h>

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace ddprun::test {
namespace {

using namespace std::chrono_literals;

constexpr auto kGoneWithin = 5s;

/// A worker with a grandchild in its group, one in a session of its own, and a daemon: forked
/// twice, its descriptors closed, its environment empty. Their pids go to the files named after
/// them; a line "ready" says that all are there. `$1` is the folder.
constexpr const char* kFamily =
    "cd \"$1\"; sleep 600 & echo $! > child.$RANK; "
    "setsid sh -c 'echo $$ > session.'$RANK'; exec sleep 600' & "
    "(setsid env -i /bin/sh -c 'exec 0<&- 1>&- 2>&-; /bin/sleep 600 & echo $! > daemon.'$RANK &) & "
    "for kind in child session daemon; do until [ -s $kind.$RANK ]; do sleep 0.01; done; done; "
    "echo ready; exec sleep 600";

struct Family {
    TemporaryFolder folder;
    Command job;

    explicit Family(const std::function<void()>& in_child = {})
        : job(CommandOptions{
              .argv = ddprun(
                  {"--standalone",
                   "--nproc_per_node=2",
                   "/bin/sh",
                   "-c",
                   kFamily,
                   "sh",
                   folder.path()}
              ),
              .in_child = in_child,
          }) {
        REQUIRE(job.wait_for_line("ready", 2));
    }

    /// Names of those that are alive.
    [[nodiscard]] std::string alive() const {
        std::string names;
        for (const char* kind : {"child", "session", "daemon"}) {
            for (const char* rank : {"0", "1"}) {
                const std::string name = std::string{kind} + "." + rank;
                const std::string pid = read_file(folder.path(name));
                if (pid.empty() || !wait_until_dead(std::stoi(pid), kGoneWithin)) {
                    names += name + " ";
                }
            }
        }
        return names;
    }
};

std::string name_of(pid_t pid) {
    std::string name = read_file("/proc/" + std::to_string(pid) + "/comm");
    return name.substr(0, name.find('\n'));
}

TEST_SUITE_BEGIN("system/survival");

TEST_CASE("kill -9 of ddprun ends the workers, their children, sessions and daemons") {
    Family family;

    family.job.send_signal(SIGKILL);

    CHECK(family.alive() == "");
    CHECK(family.job.left_behind() == "");
}

TEST_CASE("kill -9 of its whole process group ends them too") {
    Family family([] { ::setpgid(0, 0); });

    REQUIRE(::kill(-family.job.pid(), SIGKILL) == 0);

    CHECK(family.alive() == "");
    CHECK(family.job.left_behind() == "");
}

TEST_CASE("kill -9 of the agent behind it ends them too, and ddprun says so with 137") {
    Family family;
    const std::vector<pid_t> agents = Command::children_of(family.job.pid());
    REQUIRE(agents.size() == 1);

    REQUIRE(::kill(agents.front(), SIGKILL) == 0);
    const CommandResult result = family.job.finish();

    CHECK_MESSAGE(result.exit_code == 128 + SIGKILL, describe(result) << result.err);
    CHECK(result.err.find("was ended by signal 9 (SIGKILL)") != std::string::npos);
    CHECK(family.alive() == "");
    CHECK(family.job.left_behind() == "");
}

TEST_CASE("kill -9 of the agent leaves no folder behind, in memory or below TMPDIR") {
    const TemporaryFolder folder;
    Command job(
        {.argv = ddprun({"/bin/sh", "-c", "echo $DDPRUN_MEMORY_DIR; exec sleep 60"}),
         .env = {"TMPDIR=" + folder.path()}}
    );
    const auto memory = job.wait_for_line("ddprun_memory_");
    REQUIRE(memory.has_value());
    REQUIRE(std::filesystem::is_directory(*memory));
    const std::vector<pid_t> agents = Command::children_of(job.pid());
    REQUIRE(agents.size() == 1);

    REQUIRE(::kill(agents.front(), SIGKILL) == 0);
    const CommandResult result = job.finish();

    CHECK(result.exit_code == 128 + SIGKILL);
    CHECK_FALSE(std::filesystem::exists(*memory));
    CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("kill -9 of every process called ddprun ends them too") {
    Family family;
    for (const pid_t pid : family.job.living()) {
        if (name_of(pid).find("ddprun") != std::string::npos) {
            ::kill(pid, SIGKILL);
        }
    }

    CHECK(family.alive() == "");
    CHECK(family.job.left_behind() == "");
}

TEST_CASE("a daemon that a worker left behind ends with a job that succeeded") {
    const TemporaryFolder folder;

    const CommandResult result = run_command(
        {.argv = ddprun(
             {"--standalone",
              "/bin/sh",
              "-c",
              "cd \"$1\"; (setsid env -i /bin/sh -c "
              "'exec 0<&- 1>&- 2>&-; /bin/sleep 600 & echo $! > daemon' &) & "
              "until [ -s daemon ]; do sleep 0.01; done",
              "sh",
              folder.path()}
         )}
    );

    CHECK_MESSAGE(result.exit_code == 0, describe(result) << result.err);
    CHECK(wait_until_dead(std::stoi(read_file(folder.path("daemon"))), kGoneWithin));
}

TEST_CASE("a child that ddprun had before its exec is no worker and stays alive") {
    for (const bool killed : {false, true}) {
        CAPTURE(killed);
        const TemporaryFolder folder;
        std::vector<std::string> argv{
            "/bin/sh",
            "-c",
            "cd \"$1\"; shift; sleep 600 > /dev/null 2>&1 & echo $! > older; exec \"$@\"",
            "sh",
            folder.path()};
        for (const std::string& word : ddprun(
                 {"--standalone",
                  "/bin/sh",
                  "-c",
                  killed ? "echo ready; exec sleep 600" : "echo ready"}
             )) {
            argv.push_back(word);
        }
        Command job({.argv = argv});
        if (killed) {
            REQUIRE(job.wait_for_line("ready"));
            for (const pid_t pid : Command::children_of(job.pid())) {
                if (name_of(pid) == "ddp-agent") {
                    ::kill(pid, SIGKILL);
                }
            }
        }

        static_cast<void>(job.finish());

        const pid_t older = std::stoi(read_file(folder.path("older")));
        CHECK(::kill(older, 0) == 0);
        CHECK_FALSE(wait_until_dead(older, 0ms));
        ::kill(older, SIGKILL);
    }
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::test
