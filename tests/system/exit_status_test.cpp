// Which status ddprun ends with, as a shell sees it.
#include "tests/support/command.h"
#include "tests/support/system.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace ddprun::test {
namespace {

CommandResult run_shell(const std::vector<std::string>& options, const std::string& script) {
    std::vector<std::string> argv = ddprun(options);
    argv.insert(argv.end(), {"/bin/sh", "-c", script});
    return run_command({.argv = argv});
}

TEST_SUITE_BEGIN("system/exit_status");

TEST_CASE("a job whose workers all end with 0 ends with 0") {
    const CommandResult result = run_shell({"--standalone", "--nproc_per_node=2"}, "exit 0");

    CHECK_MESSAGE(result.exit_code == 0, describe(result) << result.err);
    CHECK(result.out.empty());
}

TEST_CASE("a worker's own exit code is the job's") {
    for (const int code : {1, 2, 42, 255}) {
        CAPTURE(code);
        const CommandResult result = run_shell(
            {"--standalone", "--nproc_per_node=2"},
            "[ $RANK = 1 ] && exit " + std::to_string(code) + "; exec sleep 60"
        );
        CHECK_MESSAGE(result.exit_code == code, describe(result) << result.err);
    }
}

TEST_CASE("a worker that a signal ended gives 128 + the signal") {
    for (const int signal : {6, 9, 11, 15}) {
        CAPTURE(signal);
        const CommandResult result = run_shell(
            {"--standalone", "--nproc_per_node=2"},
            "[ $RANK = 1 ] && kill -" + std::to_string(signal) + " $$; exec sleep 60"
        );
        CHECK_MESSAGE(result.exit_code == 128 + signal, describe(result) << result.err);
    }
}

TEST_CASE("the report names the rank that failed first and how") {
    const CommandResult result = run_shell(
        {"--standalone", "--nproc_per_node=2"},
        "[ $RANK = 1 ] && { echo out of luck >&2; exit 3; }; exec sleep 60"
    );

    CHECK(result.err.find("rank 1") != std::string::npos);
    CHECK(result.err.find("code 3") != std::string::npos);
    CHECK(result.err.find("out of luck") != std::string::npos);
}

TEST_CASE("a missing program ends with 127 and one line that names it") {
    const CommandResult bare = run_command({.argv = ddprun({"--standalone", "no-such-program"})});
    const CommandResult path = run_command({.argv = ddprun({"--standalone", "/no/such/program"})});
    const CommandResult python = run_command({.argv = ddprun({"--standalone", "./no-such.py"})});

    for (const CommandResult& result : {bare, path, python}) {
        CHECK_MESSAGE(result.exit_code == 127, describe(result) << result.err);
        CHECK(count_of(result.err, "\n") == 1);
        CHECK(result.err.find("no") != std::string::npos);
        CHECK(result.out.empty());
    }
    CHECK(bare.err.find("no-such-program") != std::string::npos);
    CHECK(path.err.find("/no/such/program") != std::string::npos);
    CHECK(python.err.find("./no-such.py") != std::string::npos);
}

TEST_CASE("a program that can't be executed ends with 126 and one line that names it") {
    const TemporaryFolder folder;
    const std::string script = folder.file("worker.sh", "#!/bin/sh\nexit 0\n", false);

    const CommandResult result = run_command({.argv = ddprun({"--standalone", script})});

    CHECK_MESSAGE(result.exit_code == 126, describe(result) << result.err);
    CHECK(count_of(result.err, "\n") == 1);
    CHECK(result.err.find(script) != std::string::npos);
}

TEST_CASE("a script whose interpreter is missing is never restarted") {
    const TemporaryFolder folder;
    const std::string script = folder.file("worker", "#!/no/such/interpreter\n", true);

    const CommandResult result = run_command(
        {.argv = ddprun({"--standalone", "--nproc_per_node=2", "--max_restarts=3", script})}
    );

    CHECK_MESSAGE(result.exit_code == 127, describe(result) << result.err);
    CHECK(
        result.err.find(
            "execute " + script + ": its interpreter /no/such/interpreter is missing"
        ) != std::string::npos
    );
    CHECK(result.err.find("restart") == std::string::npos);
    CHECK(result.err.find("stopped") == std::string::npos);  // none of them ran
}

TEST_CASE("wrong usage ends with 2 and one line, and nothing is started") {
    const TemporaryFolder folder;
    const std::vector<std::vector<std::string>> wrong{
        {"--bogus", "x"},
        {"--nproc_per_node=x", "x"},
        {"--nproc_per_node=0", "x"},
        {"--nnodes=2:1", "x"},
        {"--max_restarts=-1", "x"},
        {"--rdzv_conf=jion_timeout=3", "--nnodes=2", "x"},
        {"--rdzv_endpoint=host:notaport", "--nnodes=2", "x"},
        {},
    };
    for (std::vector<std::string> arguments : wrong) {
        if (!arguments.empty()) {
            arguments.back() = "/bin/touch";
            arguments.push_back(folder.path("started"));
        }
        CAPTURE(arguments.empty() ? std::string{} : arguments.front());
        const CommandResult result = run_command({.argv = ddprun(arguments)});
        CHECK_MESSAGE(result.exit_code == 2, describe(result) << result.err);
        CHECK(count_of(result.err, "\n") == 1);
        CHECK(result.err.starts_with("ddprun: "));
        CHECK(read_file(folder.path("started")).empty());
    }
    CHECK_FALSE(std::filesystem::exists(folder.path("started")));
}

TEST_CASE(
    "what is wrong about a variable's value is told by the variable, also where the machine says so"
) {
    const TemporaryFolder folder;
    const std::vector<std::string> wrong{
        "PET_LOG_DIR=/dev/full",
        "PET_LOCAL_ADDR=192.0.2.1",
        "PET_LOCAL_ADDR=no-such-host.invalid",
        "PET_NPROC_PER_NODE=gpu",
        "PET_NPROC_PER_NODE=gpu:63",
    };
    for (const std::string& variable : wrong) {
        const CommandResult result = run_command(
            {.argv = ddprun({"--nnodes=2", "/bin/touch", folder.path("started")}),
             .env = {variable, "CUDA_VISIBLE_DEVICES=none"}}
        );

        CHECK_MESSAGE(result.exit_code == 2, describe(result) << result.err);
        CHECK_MESSAGE(
            result.err.starts_with("ddprun: " + variable.substr(0, variable.find('=') + 1)),
            result.err
        );
        CHECK(count_of(result.err, "\n") == 1);
    }
    CHECK_FALSE(std::filesystem::exists(folder.path("started")));
}

TEST_CASE("with exit_code=torchrun every failure is 1") {
    const CommandResult result = run_shell({"--standalone", "--exit_code=torchrun"}, "exit 42");

    CHECK_MESSAGE(result.exit_code == 1, describe(result) << result.err);
}

TEST_CASE("what was asked for and can't be printed is one line and status 73, never success") {
    const std::vector<std::string> asked{
        "ddprun --help",
        "ddprun --version",
        "ddprun --print_man",
        "ddprun --print_completion=bash",
        "ddprun --print_plan true",
        "ddprund --help",
        "ddprund --version",
    };
    const std::string folder = std::filesystem::path{ddprun({}).front()}.parent_path();
    for (const std::string& words : asked) {
        const std::string command = folder + "/" + words;
        const CommandResult full =
            run_command({.argv = {"/bin/bash", "-c", command + " > /dev/full"}});
        const CommandResult closed = run_command({.argv = {"/bin/bash", "-c", command + " >&-"}});
        const CommandResult gone =
            run_command({.argv = {"/bin/bash", "-c", command + " | true; echo ${PIPESTATUS[0]}"}});

        CHECK_MESSAGE(full.exit_code == 73, describe(full) << full.err);
        CHECK(full.err.find("No space left on device") != std::string::npos);
        CHECK(count_of(full.err, "\n") == 1);
        // For a plan, as for a job, what is closed is /dev/null.
        const int when_closed = words.find("plan") == std::string::npos ? 73 : 0;
        CHECK_MESSAGE(closed.exit_code == when_closed, describe(closed) << closed.err);
        CHECK_MESSAGE((gone.out == "0\n" || gone.out == "141\n"), gone.out);
        CHECK(gone.err == "");
    }
}

TEST_CASE("help and version go to stdout and end with 0") {
    const CommandResult help = run_command({.argv = ddprun({"--help"})});
    const CommandResult version = run_command({.argv = ddprun({"--version"})});

    CHECK(help.exit_code == 0);
    CHECK(help.out.find("--nproc_per_node") != std::string::npos);
    CHECK(version.exit_code == 0);
    CHECK(version.out.starts_with("ddprun "));
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::test
