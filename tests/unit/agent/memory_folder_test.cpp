#include "agent/memory_folder.h"

#include "agent/agent_folders.h"
#include "tests/support/command.h"
#include "tests/support/system.h"

#include <doctest/doctest.h>

#include <unistd.h>

#include <filesystem>
#include <string>

namespace ddprun {
namespace {

class NoLog final : public Log {
public:
    void write(LogLevel, std::string_view) override {}

    [[nodiscard]] bool enabled(LogLevel) const override { return false; }
};

TEST_SUITE_BEGIN("agent/memory_folder");

TEST_CASE("the folder is there, is its user's own, and goes with all that is in it") {
    const test::TemporaryFolder base;
    NoLog log;
    std::string path;
    {
        const MemoryFolder folder(log, base.path());
        path = folder.path();
        REQUIRE(std::filesystem::is_directory(path));
        CHECK(
            (std::filesystem::status(path).permissions() & std::filesystem::perms::others_all) ==
            std::filesystem::perms::none
        );
        std::filesystem::create_directories(path + "/a/b");
    }
    CHECK(!std::filesystem::exists(path));
}

TEST_CASE("what a killed agent left is removed, what a living one has is not") {
    const test::TemporaryFolder base;
    NoLog log;
    // A process that is gone: its number may be used again, but hardly at once.
    const auto gone = test::run_command({.argv = {"/bin/sh", "-c", "echo $$"}});
    const std::string pid = gone.out.substr(0, gone.out.find('\n'));
    const std::string here = "ddprun_memory_" + std::to_string(pid_namespace()) + "_";
    const std::string left = base.path(here + pid + "_abcdef");
    const std::string living = base.path(here + std::to_string(::getpid()) + "_abcdef");
    const std::string foreign = base.path("ddprun_memory_x");
    // Its number may be that of a living process where it was made.
    const std::string other =
        base.path("ddprun_memory_" + std::to_string(pid_namespace() + 1) + "_" + pid + "_abcdef");
    for (const auto& path : {left, living, foreign, other}) {
        std::filesystem::create_directories(path + "/inside");
    }

    const MemoryFolder folder(log, base.path());

    CHECK(!std::filesystem::exists(left));
    CHECK(std::filesystem::exists(living));
    CHECK(std::filesystem::exists(foreign));
    CHECK(std::filesystem::exists(other));
}

TEST_CASE("without a base there is no folder, and no failure") {
    NoLog log;
    CHECK(MemoryFolder(log, "/no/such/base").path().empty());
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun
