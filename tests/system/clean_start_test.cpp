// A worker starts from a clean state: signals, descriptors, limits, mask of files, folder.
#include "tests/support/command.h"
#include "tests/support/system.h"

#include <doctest/doctest.h>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

namespace ddprun::test {
namespace {

std::vector<std::string> worker(
    const std::vector<std::string>& options, const std::string& script
) {
    std::vector<std::string> argv{"--standalone"};
    argv.insert(argv.end(), options.begin(), options.end());
    argv.insert(argv.end(), {"/bin/sh", "-c", script});
    return ddprun(argv);
}

/// Descriptors above 2 that a worker finds open, as "5 7 ".
constexpr const char* kOpenDescriptors =
    "for fd in 3 4 5 6 7 8 9 11 12 13 14 15 16 20 30; do "
    "[ -e /proc/$$/fd/$fd ] && printf '%s ' $fd; done; true";

void open_as(int fd) {
    const int opened = ::open("/dev/zero", O_RDONLY);
    ::dup2(opened, fd);
    ::close(opened);
}

TEST_SUITE_BEGIN("system/clean_start");

TEST_CASE("no signal is blocked and none is ignored but what the user had ignored") {
    const CommandResult result = run_command({
        .argv = worker({}, "exec grep -E 'SigBlk|SigIgn' /proc/self/status"),
        .in_child =
            [] {
                sigset_t blocked;
                sigemptyset(&blocked);
                sigaddset(&blocked, SIGUSR2);
                sigaddset(&blocked, SIGALRM);
                ::sigprocmask(SIG_SETMASK, &blocked, nullptr);
                ::signal(SIGPIPE, SIG_IGN);
                ::signal(SIGCHLD, SIG_IGN);
                ::signal(SIGTTOU, SIG_IGN);
            },
    });

    CHECK_MESSAGE(
        result.out == "SigBlk:\t0000000000000000\nSigIgn:\t0000000000200000\n",
        result.out << result.err
    );
}

TEST_CASE("nothing is open but 0, 1 and 2, also of what ddprun was given") {
    const CommandResult result = run_command({
        .argv = worker({"--nproc_per_node=2"}, kOpenDescriptors),
        .in_child =
            [] {
                open_as(7);
                open_as(30);
            },
    });

    CHECK_MESSAGE(result.out == "", result.out << result.err);
    CHECK(result.exit_code == 0);
}

TEST_CASE("descriptors of --pass_fds reach every worker, under their numbers and no others") {
    const CommandResult result = run_command({
        .argv = worker({"--nproc_per_node=2", "--pass_fds=7,13"}, kOpenDescriptors),
        .in_child =
            [] {
                open_as(7);
                open_as(13);
                open_as(30);
            },
    });

    CHECK_MESSAGE(count_of(result.out, "7 13 ") == 2, result.out << result.err);
    CHECK(count_of(result.out, "30") == 0);
}

TEST_CASE("a descriptor that isn't open is wrong usage") {
    const TemporaryFolder folder;

    const CommandResult result = run_command(
        {.argv = ddprun({"--standalone", "--pass_fds=77", "/bin/touch", folder.path("started")})}
    );

    CHECK_MESSAGE(result.exit_code == 2, describe(result) << result.err);
    CHECK(count_of(result.err, "\n") == 1);
    CHECK(result.err.find("--pass_fds=77") != std::string::npos);
    CHECK_FALSE(std::filesystem::exists(folder.path("started")));
}

TEST_CASE("limits, the mask of new files and the folder are the user's") {
    const TemporaryFolder folder;
    const CommandResult result = run_command({
        .argv = worker({}, "ulimit -Sn; ulimit -Hn; ulimit -St; umask; pwd"),
        .cwd = folder.path(),
        .in_child =
            [] {
                const rlimit descriptors{64, 300};
                ::setrlimit(RLIMIT_NOFILE, &descriptors);
                const rlimit time{1'234, 4'321};
                ::setrlimit(RLIMIT_CPU, &time);
                ::umask(027);
            },
    });

    CHECK_MESSAGE(
        result.out == "64\n300\n1234\n0027\n" + folder.path() + "\n", result.out << result.err
    );
}

TEST_CASE("a raised limit of the agent isn't passed on") {
    const CommandResult result = run_command({
        .argv = worker({"--nproc_per_node=40"}, "[ $RANK = 39 ] && ulimit -Sn; true"),
        .in_child =
            [] {
                const rlimit descriptors{100, 1'000};
                ::setrlimit(RLIMIT_NOFILE, &descriptors);
            },
    });

    CHECK_MESSAGE(result.exit_code == 0, describe(result) << result.err);
    CHECK_MESSAGE(count_of(result.out, "]:100\n") == 1, result.out);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::test
