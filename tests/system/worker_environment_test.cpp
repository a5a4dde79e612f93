// What a worker finds: its environment, arguments and program.
#include "tests/support/command.h"
#include "tests/support/system.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace ddprun::test {
namespace {

TEST_SUITE_BEGIN("system/worker_environment");

TEST_CASE("every variable that torchrun sets is there") {
    const std::string script =
        "for name in LOCAL_RANK RANK GROUP_RANK ROLE_RANK ROLE_NAME LOCAL_WORLD_SIZE WORLD_SIZE "
        "GROUP_WORLD_SIZE ROLE_WORLD_SIZE MASTER_ADDR MASTER_PORT TORCHELASTIC_RESTART_COUNT "
        "TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_RUN_ID TORCHELASTIC_USE_AGENT_STORE "
        "OMP_NUM_THREADS "
        "TORCHELASTIC_ERROR_FILE TORCH_NCCL_ASYNC_ERROR_HANDLING TEST_SENTINEL_PARENT; do "
        "eval \"value=\\$$name\"; [ -n \"$value\" ] || { echo missing $name; exit 1; }; done";

    const CommandResult result = run_command({
        .argv = ddprun({"--standalone", "--nproc_per_node=2", "/bin/sh", "-c", script}),
        .env = {"TEST_SENTINEL_PARENT=here"},
    });

    CHECK_MESSAGE(result.exit_code == 0, result.out << result.err);
}

TEST_CASE("ranks and sizes are those of the worker") {
    const std::string script =
        "echo $RANK $LOCAL_RANK $GROUP_RANK $ROLE_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE "
        "$GROUP_WORLD_SIZE $ROLE_WORLD_SIZE $ROLE_NAME $TORCHELASTIC_RESTART_COUNT "
        "$TORCHELASTIC_MAX_RESTARTS $TORCHELASTIC_USE_AGENT_STORE";

    const CommandResult result = run_command(
        {.argv = ddprun(
             {"--standalone",
              "--nproc_per_node=3",
              "--max_restarts=4",
              "--role=eva",
              "/bin/sh",
              "-c",
              script}
         )}
    );

    CHECK(result.exit_code == 0);
    CHECK(
        sorted_lines(result.out) ==
        std::vector<std::string>{
            "[eva0]:0 0 0 0 3 3 1 3 eva 0 4 True",
            "[eva1]:1 1 0 1 3 3 1 3 eva 0 4 True",
            "[eva2]:2 2 0 2 3 3 1 3 eva 0 4 True",
        }
    );
}

TEST_CASE("nothing of an outer job reaches the workers") {
    const CommandResult result = run_command({
        .argv = ddprun(
            {"--standalone", "/bin/sh", "-c", "echo $RANK $WORLD_SIZE $TORCHELASTIC_RESTART_COUNT"}
        ),
        .env = {"RANK=7", "WORLD_SIZE=9", "LOCAL_RANK=7", "TORCHELASTIC_RESTART_COUNT=3"},
    });

    CHECK(result.out == "0 1 0\n");
}

TEST_CASE("the user's OMP_NUM_THREADS wins, unset it is the CPUs' share") {
    const std::vector<std::string> argv =
        ddprun({"--standalone", "--nproc_per_node=64", "/bin/sh", "-c", "echo =$OMP_NUM_THREADS="});

    const CommandResult given = run_command({.argv = argv, .env = {"OMP_NUM_THREADS=3"}});
    const CommandResult unset = run_command({.argv = argv, .unset_env = {"OMP_NUM_THREADS"}});

    CHECK(count_of(given.out, "=3=") == 64);
    CHECK(count_of(unset.out, "=1=") == 64);
}

TEST_CASE("arguments reach the program byte for byte") {
    const TemporaryFolder folder;
    const std::string script = folder.file(
        "show.sh", "#!/bin/sh\nfor argument; do printf '<%s>' \"$argument\"; done\n", true
    );

    const CommandResult result = run_command(
        {.argv = ddprun(
             {"--standalone",
              script,
              "$$",
              "${local_rank}",
              "",
              "a\nb",
              "\xff\xfe",
              "--",
              "--nnodes=7"}
         )}
    );

    CHECK(result.out == "<$$><${local_rank}><><a\nb><\xff\xfe><--><--nnodes=7>");
}

TEST_CASE("a program without a slash is found in PATH, else beside ddprun") {
    const TemporaryFolder folder;
    static_cast<void>(folder.file("my-worker", "#!/bin/sh\necho from path\n", true));

    const CommandResult in_path = run_command(
        {.argv = ddprun({"--standalone", "my-worker"}), .env = {"PATH=" + folder.path() + ":/bin"}}
    );
    const CommandResult beside =
        run_command({.argv = ddprun({"--standalone", "ddprun", "--version"})});

    CHECK(in_path.out == "from path\n");
    CHECK(beside.out.starts_with("ddprun "));
}

TEST_CASE("a .py file runs under PYTHON_EXEC with -u") {
    const TemporaryFolder folder;
    const std::string script = folder.file("train.py", "not read", false);
    const std::string python = folder.file("python", "#!/bin/sh\necho \"$@\"\n", true);

    const CommandResult result = run_command(
        {.argv = ddprun({"--standalone", script, "--lr", "1"}), .env = {"PYTHON_EXEC=" + python}}
    );

    CHECK(result.out == "-u " + script + " --lr 1\n");
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::test
