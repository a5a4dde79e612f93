// What the workers write reaches the console whole and unmixed.
#include "tests/support/command.h"
#include "tests/support/system.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <vector>

namespace ddprun::test {
namespace {

TEST_SUITE_BEGIN("system/output");

TEST_CASE("a lone worker's bytes are passed on as they are") {
    const CommandResult result = run_command(
        {.argv = ddprun({"--standalone", "/bin/sh", "-c", "printf 'a\\000b\\377'; printf err >&2"}),
         .env = {"OMP_NUM_THREADS=1"}}  // else a line of ours says it
    );

    CHECK(result.out == std::string{"a\0b\xff", 4});
    CHECK(result.err == "err");
}

TEST_CASE("with several workers each line has torchrun's prefix") {
    const CommandResult result = run_command(
        {.argv = ddprun(
             {"--standalone",
              "--nproc_per_node=2",
              "/bin/sh",
              "-c",
              "echo hello; printf 'no newline'"}
         )}
    );

    CHECK(
        sorted_lines(result.out) ==
        std::vector<std::string>{
            "[default0]:hello",
            "[default0]:no newline",
            "[default1]:hello",
            "[default1]:no newline",
        }
    );
}

TEST_CASE("nothing of a large output without a last newline is lost") {
    const CommandResult result =
        run_command({.argv = ddprun({"--standalone", "/bin/sh", "-c", "seq 1 100000; printf end"})}
        );

    CHECK(result.exit_code == 0);
    CHECK(count_of(result.out, "\n") == 100'000);
    CHECK(result.out.ends_with("100000\nend"));
}

TEST_CASE("a reader that has gone does not end the job") {
    const TemporaryFolder folder;
    Command job(
        {.argv = ddprun(
             {"--standalone",
              "/bin/sh",
              "-c",
              "echo ready; cd " + folder.path() +
                  "; until [ -e go ]; do sleep 0.02; done; seq 1 100000; echo done > done; exit 7"}
         )}
    );
    REQUIRE(job.wait_for_line("ready"));

    job.close_stdout();
    static_cast<void>(folder.file("go", ""));
    const CommandResult result = job.finish();

    CHECK_MESSAGE(result.exit_code == 7, describe(result) << result.err);
    CHECK(read_file(folder.path("done")) == "done\n");
}

TEST_CASE("a full disk behind our output does not end the job and is named") {
    const std::string job =
        "'" + program("ddprun") + "' --nproc_per_node=2 /bin/sh -c 'echo line; exit 4'";
    const CommandResult result = run_command({.argv = {"/bin/bash", "-c", job + " > /dev/full"}});

    CHECK(result.exit_code == 4);
    CHECK_MESSAGE(
        result.err.find("write our output: No space left on device; the job goes on") !=
            std::string::npos,
        result.err
    );
}

TEST_CASE("a partial line is shown while its worker waits") {
    const TemporaryFolder folder;
    Command job(
        {.argv = ddprun(
             {"--standalone",
              "--nproc_per_node=2",
              "/bin/sh",
              "-c",
              "[ $RANK = 0 ] && { printf 'password: '; exec sleep 60; }; "
              "until [ -e " +
                  folder.path("go") + " ]; do sleep 0.02; done; echo after; exec sleep 60"}
         )}
    );
    REQUIRE(job.wait_for_text("password: "));
    static_cast<void>(folder.file("go", ""));
    REQUIRE(job.wait_for_line("after"));

    job.send_signal(SIGTERM);
    const CommandResult result = job.finish();

    CHECK(result.out.starts_with("[default0]:password: "));
    CHECK(result.out.find("[default1]:after\n") != std::string::npos);
    CHECK(result.out.find("password: [default1]") == std::string::npos);
}

TEST_CASE("a lone worker's unfinished line on stderr is ended before a line of ours") {
    const CommandResult result = run_command(
        {.argv = ddprun({"/bin/sh", "-c", "printf unfinished >&2; exit 3"}),
         .env = {"OMP_NUM_THREADS=1"}}
    );

    CHECK(result.exit_code == 3);
    CHECK(result.err.starts_with("unfinished\n[ddprun "));
    CHECK(result.err.find("\n\n") == std::string::npos);
}

TEST_CASE("a reader of the log that has gone ends no job before it began, and loses no status") {
    const std::string job = "'" + program("ddprun") + "' --nproc_per_node=2 /bin/sh -c 'exit 4'";
    const CommandResult result =
        run_command({.argv = {"/bin/bash", "-c", job + " 2>&1 | true; exit ${PIPESTATUS[0]}"}});

    CHECK(result.exit_code == 4);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::test
