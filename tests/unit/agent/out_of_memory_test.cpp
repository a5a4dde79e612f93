// Who was killed for lack of memory, from made trees of control groups and made kernel logs.
#include "agent/out_of_memory.h"

#include "agent/cgroups.h"
#include "agent/worker_cgroup.h"
#include "tests/support/system.h"

#include <doctest/doctest.h>

#include <filesystem>

using namespace ddprun;

namespace {

constexpr const char* kVersion2Mounts =
    "22 1 0:5 / /proc rw - proc proc rw\n"
    "41 31 0:38 / /cg2 rw,relatime shared:9 - cgroup2 cgroup2 rw\n";
constexpr const char* kVersion1Mounts =
    "35 31 0:32 / /cg/memory rw,relatime - cgroup cgroup rw,memory\n"
    "32 31 0:29 / /cg/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n";

/// A machine in a folder.
struct Machine {
    test::TemporaryFolder root;

    Machine(const std::string& mounts, const std::string& groups) {
        static_cast<void>(root.file("proc/self/mountinfo", mounts));
        static_cast<void>(root.file("proc/self/cgroup", groups));
    }

    void write(const std::string& path, const std::string& content) const {
        static_cast<void>(root.file(path, content));
    }

    [[nodiscard]] OutOfMemoryWatch watch(std::string log = {}) const {
        return {root.path(), [log = std::move(log)] { return log; }};
    }
};

TEST_SUITE_BEGIN("agent/cgroups");

TEST_CASE("our group of version 2 is found by mount and path") {
    const Machine machine(kVersion2Mounts, "0::/a/b\n");

    const auto group = OwnCgroups{machine.root.path()}.find("");

    REQUIRE(group);
    CHECK(group->folder() == machine.root.path("cg2/a/b"));
    REQUIRE(group->parent());
    CHECK(group->parent()->folder() == machine.root.path("cg2/a"));
    CHECK_FALSE(group->parent()->parent()->parent());
}

TEST_CASE("a controller of version 1 is found among those mounted together") {
    const Machine machine(kVersion1Mounts, "4:memory:/m\n3:cpu,cpuacct:/c\n");

    CHECK(
        OwnCgroups{machine.root.path()}.find("memory")->folder() == machine.root.path("cg/memory/m")
    );
    CHECK(
        OwnCgroups{machine.root.path()}.find("cpuacct")->folder() == machine.root.path("cg/cpu/c")
    );
    CHECK_FALSE(OwnCgroups{machine.root.path()}.find(""));
    CHECK_FALSE(OwnCgroups{machine.root.path()}.find("freezer"));
}

TEST_CASE("in a container only the part below the mount's root counts") {
    const Machine machine(
        "41 31 0:38 /docker/x /cg2 rw - cgroup2 cgroup2 rw\n", "0::/docker/x/inner\n"
    );

    CHECK(OwnCgroups{machine.root.path()}.find("")->folder() == machine.root.path("cg2/inner"));
}

TEST_CASE("the top group has no slash at its end") {
    const Machine machine(kVersion2Mounts, "0::/\n");

    CHECK(OwnCgroups{machine.root.path()}.find("")->folder() == machine.root.path("cg2"));
}

TEST_CASE("where groups can't be killed at once workers get none, and nothing is left") {
    const Machine machine(kVersion2Mounts, "0::/job\n");
    machine.write("cg2/job/cgroup.procs", "");

    const WorkerCgroup group("ddprun-1", machine.root.path());

    CHECK(group.fd() == -1);
    CHECK_FALSE(std::filesystem::exists(machine.root.path("cg2/job/ddprun-1")));
}

TEST_CASE("without a hierarchy workers get none either") {
    const test::TemporaryFolder empty;

    const WorkerCgroup group("ddprun-1", empty.path());

    CHECK(group.fd() == -1);
}

TEST_CASE("without the files of /proc there are no groups") {
    const test::TemporaryFolder empty;

    CHECK_FALSE(OwnCgroups{empty.path()}.find(""));
}

TEST_SUITE_END();

TEST_SUITE_BEGIN("agent/out_of_memory");

TEST_CASE("the count is read from both versions' files") {
    CHECK(count_of_oom_kills("low 0\nhigh 0\nmax 7\noom 3\noom_kill 2\noom_group_kill 1\n") == 2);
    CHECK(count_of_oom_kills("oom_kill_disable 0\nunder_oom 0\noom_kill 5\n") == 5);
    CHECK_FALSE(count_of_oom_kills("oom_kill_disable 0\nunder_oom 0\n"));
    CHECK_FALSE(count_of_oom_kills("oom_kill x\n"));
    CHECK_FALSE(count_of_oom_kills(""));
}

TEST_CASE("a kill that version 2 has counted since the start is found, once") {
    const Machine machine(kVersion2Mounts, "0::/job\n");
    machine.write("cg2/job/memory.events", "oom 1\noom_kill 1\n");
    OutOfMemoryWatch watch = machine.watch();
    watch.begin();
    CHECK_FALSE(watch.was_killed(47, 0));

    machine.write("cg2/job/memory.events", "oom 2\noom_kill 2\n");

    CHECK(watch.was_killed(47, 0));
    CHECK_FALSE(watch.was_killed(48, 0));
}

TEST_CASE("a kill that version 1 has counted is found") {
    const Machine machine(kVersion1Mounts, "4:memory:/job\n");
    machine.write("cg/memory/job/memory.oom_control", "under_oom 0\noom_kill 0\n");
    OutOfMemoryWatch watch = machine.watch();
    watch.begin();

    machine.write("cg/memory/job/memory.oom_control", "under_oom 0\noom_kill 1\n");

    CHECK(watch.was_killed(47, 0));
}

TEST_CASE("without any witness nobody was killed for lack of memory") {
    const test::TemporaryFolder empty;
    OutOfMemoryWatch watch(empty.path(), [] { return std::string{}; });
    watch.begin();

    CHECK_FALSE(watch.was_killed(47, 0));
}

TEST_CASE("the kernel's log names the victim") {
    const std::string log =
        "<6>[  100.000001] something else\n"
        "<3>[  123.456789] Memory cgroup out of memory: Killed process 47 (python3) total-vm:1kB\n"
        "[  124.000000] Out of memory: Killed process 48 (a) total-vm:1kB\n";

    CHECK(log_names_victim(log, 47, 123.0));
    CHECK(log_names_victim(log, 48, 123.0));
    CHECK_FALSE(log_names_victim(log, 4, 0));
    CHECK_FALSE(log_names_victim(log, 7, 0));

    const test::TemporaryFolder empty;
    OutOfMemoryWatch watch(empty.path(), [&] { return log; });
    CHECK(watch.was_killed(47, 123.0));
}

TEST_CASE("an older victim of the same number isn't meant") {
    const std::string log =
        "[  123.456789] Out of memory: Killed process 47 (python3) total-vm:1kB\n";

    CHECK_FALSE(log_names_victim(log, 47, 200.0));
    CHECK_FALSE(log_names_victim("Out of memory: Killed process 47 (x)\n", 47, 0));
}

TEST_SUITE_END();

}  // namespace
