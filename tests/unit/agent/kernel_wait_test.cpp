// Where a process hangs, from made /proc trees.
#include "agent/kernel_wait.h"

#include "agent/kernel_file.h"
#include "tests/support/system.h"

#include <doctest/doctest.h>

#include <unistd.h>

using namespace ddprun;

namespace {

TEST_SUITE_BEGIN("agent/kernel_wait");

TEST_CASE("the wait channel is named") {
    const test::TemporaryFolder proc;
    static_cast<void>(proc.file("47/stat", "47 (a (b) c) D 1 47\n"));
    static_cast<void>(proc.file("47/wchan", "rpc_wait_bit_killable"));

    CHECK(
        describe_kernel_wait(proc.path(), 47) ==
        "process 47 (a (b) c), state D, waits in the kernel in rpc_wait_bit_killable"
    );
}

TEST_CASE("where the kernel hides it the stack is asked") {
    const test::TemporaryFolder proc;
    static_cast<void>(proc.file("47/stat", "47 (x) D 1 47\n"));
    static_cast<void>(proc.file("47/wchan", "0"));
    static_cast<void>(proc.file("47/stack", "[<0>] folio_wait_bit+0x1c/0x30\n[<0>] next+0x1/0x2\n")
    );

    CHECK(
        describe_kernel_wait(proc.path(), 47) ==
        "process 47 (x), state D, waits in the kernel in folio_wait_bit"
    );
}

TEST_CASE("what can't be read is left out") {
    const test::TemporaryFolder proc;
    static_cast<void>(proc.file("48/stat", "damaged"));

    CHECK(describe_kernel_wait(proc.path(), 47) == "process 47, hangs in the kernel");
    CHECK(describe_kernel_wait(proc.path(), 48) == "process 48, hangs in the kernel");
}

TEST_CASE("a process of this machine has a state") {
    const std::string text = describe_kernel_wait("/proc", ::getpid());

    CHECK_MESSAGE(text.find(", state R") != std::string::npos, text);
}

TEST_CASE("a file that can be opened but not read is empty, as is one that isn't there") {
    CHECK(read_kernel_file("/proc/self/mem") == "");  // its first page is nobody's
    CHECK(read_kernel_file("/proc/self/no-such-file") == "");
    CHECK(read_kernel_file("/proc/self/comm") != "");
}

TEST_SUITE_END();

}  // namespace
