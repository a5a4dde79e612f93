// The store's client as other projects get it: installed, found by find_package(), compiled with
// nothing of the source tree, and run.
#include "tests/support/command.h"
#include "tests/support/system.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

namespace ddprun::test {
namespace {

using namespace std::chrono_literals;

CommandResult run_quietly(std::vector<std::string> argv) {
    CommandResult result = run_command({.argv = std::move(argv), .deadline = 300s});
    REQUIRE_MESSAGE(result.exit_code == 0, describe(result) << result.out << result.err);
    return result;
}

/// The C++ example of docs/store_client.md.
std::string example() {
    const std::string text = read_file(DDPRUN_SOURCE_DIR "/docs/store_client.md");
    const std::string fence = "```cpp\n";
    const std::size_t begin = text.find(fence);
    REQUIRE(begin != std::string::npos);
    return text.substr(begin + fence.size(), text.find("```", begin + 1) - begin - fence.size());
}

TEST_SUITE_BEGIN("system/store_client_package");

TEST_CASE("a project that finds the installed package builds the documented example and runs it") {
    const TemporaryFolder folder;
    const std::string prefix = folder.path("prefix");
    const std::string source = folder.path("consumer");
    std::filesystem::copy(DDPRUN_SOURCE_DIR "/tests/system/store_client_consumer", source);
    static_cast<void>(folder.file("consumer/example.h", example()));

    run_quietly(
        {DDPRUN_CMAKE,
         "--install",
         DDPRUN_BUILD_DIR,
         "--prefix",
         prefix,
         "--component",
         "store_client"}
    );
    run_quietly(
        {DDPRUN_CMAKE,
         "-S",
         source,
         "-B",
         source + "/build",
         "-G",
         DDPRUN_GENERATOR,
         "-DCMAKE_CXX_COMPILER=" DDPRUN_CXX,
         "-DCMAKE_PREFIX_PATH=" + prefix}
    );
    run_quietly({DDPRUN_CMAKE, "--build", source + "/build"});
    const CommandResult result =
        run_quietly(ddprun({"--standalone", "--nproc_per_node=3", source + "/build/consumer"}));

    const std::string one = text_of(result.out, "[default0]:");
    CHECK(one.size() == 127);
    CHECK(text_of(result.out, "[default1]:") == one);
    CHECK(text_of(result.out, "[default2]:") == one);
}

TEST_CASE("the installed headers include nothing but the standard library and tl::expected") {
    const TemporaryFolder folder;
    const std::string prefix = folder.path("prefix");
    run_quietly(
        {DDPRUN_CMAKE,
         "--install",
         DDPRUN_BUILD_DIR,
         "--prefix",
         prefix,
         "--component",
         "store_client"}
    );

    int headers = 0;
    for (const auto& entry : std::filesystem::directory_iterator{prefix + "/include/ddprun"}) {
        const std::string text = read_file(entry.path());
        ++headers;
        CHECK(count_of(text, "#include \"") == count_of(text, "#include \"ddprun/"));
        for (const char* foreign : {"boost/", "fmt/", "spdlog/"}) {
            CHECK(count_of(text, std::string{"#include <"} + foreign) == 0);
        }
    }
    CHECK(headers == 3);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::test
