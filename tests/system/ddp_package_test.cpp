// DistributedDataParallel as other projects get it.
#include "tests/support/package_build.h"

#include <doctest/doctest.h>

#include <string>

namespace ddprun::test {
namespace {

const BuildTree kTree{
    DDPRUN_SOURCE_DIR, DDPRUN_BUILD_DIR, DDPRUN_CMAKE, DDPRUN_GENERATOR, DDPRUN_CXX};

TEST_SUITE_BEGIN("system/ddp_package");

TEST_CASE("the documented program builds against the installed package, and its ranks agree") {
    const TemporaryFolder folder;
    const std::string program = kTree.build_example(folder, "ddp", "example.cpp");

    const CommandResult result =
        run_quietly(ddprun({"--standalone", "--nproc_per_node=2", program}));

    const std::string weights = text_of(result.out, "[default0]:");
    CHECK(weights.starts_with("sum of weights "));
    CHECK(text_of(result.out, "[default1]:") == weights);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::test
