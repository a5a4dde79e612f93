// DistributedDataParallel as other projects get it.
#include "tests/support/package_build.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>

namespace ddprun::test {
namespace {

const BuildTree kTree{
    DDPRUN_SOURCE_DIR, DDPRUN_BUILD_DIR, DDPRUN_CMAKE, DDPRUN_GENERATOR, DDPRUN_CXX};

TEST_SUITE_BEGIN("system/ddp_package");

TEST_CASE("the documented program builds against the installed package, and its ranks agree") {
    const TemporaryFolder folder;
    const std::string prefix = folder.path("prefix");
    const std::string source = folder.path("consumer");
    std::filesystem::copy(kTree.source + "/tests/system/ddp_consumer", source);
    static_cast<void>(folder.file("consumer/example.cpp", kTree.example_of("docs/ddp.md")));
    kTree.install("ddp", prefix);
    const std::string program = kTree.build_consumer(source, prefix);

    const CommandResult result =
        run_quietly(ddprun({"--standalone", "--nproc_per_node=2", program}));

    const std::string weights = text_of(result.out, "[default0]:");
    CHECK(weights.starts_with("sum of weights "));
    CHECK(text_of(result.out, "[default1]:") == weights);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::test
