// The store's client as other projects get it: installed, found by find_package(), compiled with
// nothing of the source tree, and run.
#include "tests/support/package_build.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>

namespace ddprun::test {
namespace {

const BuildTree kTree{
    DDPRUN_SOURCE_DIR, DDPRUN_BUILD_DIR, DDPRUN_CMAKE, DDPRUN_GENERATOR, DDPRUN_CXX};

TEST_SUITE_BEGIN("system/store_client_package");

TEST_CASE("a project that finds the installed package builds the documented example and runs it") {
    const TemporaryFolder folder;
    const std::string program = kTree.build_example(folder, "store_client", "example.h");

    const CommandResult result =
        run_quietly(ddprun({"--standalone", "--nproc_per_node=3", program}));

    const std::string one = text_of(result.out, "[default0]:");
    CHECK(one.size() == 127);
    CHECK(text_of(result.out, "[default1]:") == one);
    CHECK(text_of(result.out, "[default2]:") == one);
}

TEST_CASE("the installed headers include nothing but the standard library and tl::expected") {
    const TemporaryFolder folder;
    const std::string prefix = folder.path("prefix");
    kTree.install("store_client", prefix);

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
