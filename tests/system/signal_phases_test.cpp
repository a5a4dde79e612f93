// A signal to stop in each phase of a job's life.
#include "tests/support/command.h"
#include "tests/support/system.h"

#include <doctest/doctest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>
#include <vector>

namespace ddprun::test {
namespace {

using namespace std::chrono_literals;

/// Lets clients connect and says nothing.
class MuteListener {
public:
    MuteListener() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        address_.sin_family = AF_INET;
        address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof address_;
        // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): the socket interface's way
        auto* generic = reinterpret_cast<sockaddr*>(&address_);
        REQUIRE(::bind(fd_, generic, size) == 0);
        REQUIRE(::getsockname(fd_, generic, &size) == 0);
        REQUIRE(::listen(fd_, 1) == 0);
    }

    MuteListener(const MuteListener&) = delete;
    MuteListener& operator=(const MuteListener&) = delete;

    ~MuteListener() { ::close(fd_); }

    [[nodiscard]] std::string port() const { return std::to_string(ntohs(address_.sin_port)); }

    [[nodiscard]] bool wait_for_connection() const {
        pollfd watched{fd_, POLLIN, 0};
        return ::poll(&watched, 1, 40'000) == 1;
    }

private:
    int fd_;
    sockaddr_in address_{};
};

TEST_SUITE_BEGIN("system/signal_phases");

TEST_CASE("before the rendezvous answers") {
    const MuteListener rendezvous;
    Command job(
        {.argv = ddprun(
             {"--nnodes=2",
              "--rdzv_endpoint=127.0.0.1:" + rendezvous.port(),
              "--rdzv_conf=is_host=0",
              "/bin/echo",
              "started"}
         )}
    );
    REQUIRE(rendezvous.wait_for_connection());

    job.send_signal(SIGTERM);
    const CommandResult result = job.finish();

    CHECK_MESSAGE(result.exit_code == 128 + SIGTERM, describe(result) << result.err);
    CHECK(result.out.empty());
}

TEST_CASE("while the workers of a failed peer are being stopped: the failure stays the cause") {
    const TemporaryFolder folder;
    Command job(
        {.argv = ddprun(
             {"--standalone",
              "--nproc_per_node=2",
              "/bin/sh",
              "-c",
              "if [ $RANK = 1 ]; then until [ -e \"$0/up\" ]; do sleep 0.02; done; exit 3; fi; "
              "trap 'echo stopping; until [ -e \"$0/go\" ]; do sleep 0.02; done; exit 0' TERM; "
              ": > \"$0/up\"; while :; do sleep 0.02; done",
              folder.path()}
         )}
    );
    REQUIRE(job.wait_for_line("stopping"));

    job.send_signal(SIGTERM);
    REQUIRE(job.wait_for_line("got SIGTERM"));
    static_cast<void>(folder.file("go", ""));
    const CommandResult result = job.finish();

    CHECK_MESSAGE(result.exit_code == 3, describe(result) << result.err);
    CHECK(job.left_behind() == "");
}

TEST_CASE("while they are being stopped for a restart: there is none, and the status is 128 + n") {
    const TemporaryFolder folder;
    Command job(
        {.argv = ddprun(
             {"--standalone",
              "--nproc_per_node=2",
              "--max_restarts=5",
              "/bin/sh",
              "-c",
              "echo life; "
              "if [ $RANK = 1 ]; then until [ -e \"$0/up\" ]; do sleep 0.02; done; exit 3; fi; "
              "trap 'echo stopping; until [ -e \"$0/go\" ]; do sleep 0.02; done; exit 0' TERM; "
              ": > \"$0/up\"; while :; do sleep 0.02; done",
              folder.path()}
         )}
    );
    REQUIRE(job.wait_for_line("stopping"));

    job.send_signal(SIGTERM);
    REQUIRE(job.wait_for_line("got SIGTERM"));
    static_cast<void>(folder.file("go", ""));
    const CommandResult result = job.finish();

    CHECK_MESSAGE(result.exit_code == 128 + SIGTERM, describe(result) << result.err);
    CHECK(count_of(result.out, "life") == 2);
    CHECK(job.left_behind() == "");
}

TEST_CASE("a job stopped by a signal is no success though all workers return 0") {
    Command job(
        {.argv = ddprun(
             {"--standalone",
              "--nproc_per_node=2",
              "/bin/sh",
              "-c",
              "trap 'exit 0' TERM; echo ready; while :; do sleep 0.02; done"}
         )}
    );
    REQUIRE(job.wait_for_line("ready", 2));

    job.send_signal(SIGTERM);
    const CommandResult result = job.finish();

    CHECK_MESSAGE(result.exit_code == 128 + SIGTERM, describe(result) << result.err);
}

TEST_CASE("INT after TERM goes to the workers, a second INT kills them at once") {
    Command job(
        {.argv = ddprun(
             {"--standalone",
              "--shutdown_timeout=300",
              "/bin/sh",
              "-c",
              "trap 'echo term' TERM; trap 'echo int' INT; echo ready; "
              "while :; do sleep 0.02; done"}
         )}
    );
    REQUIRE(job.wait_for_line("ready"));
    job.send_signal(SIGTERM);
    REQUIRE(job.wait_for_text("term"));
    job.send_signal(SIGINT);
    REQUIRE(job.wait_for_text("int"));

    job.send_signal(SIGINT);
    const CommandResult result = job.finish();

    CHECK_MESSAGE(result.exit_code == 128 + SIGTERM, describe(result) << result.err);
    CHECK(result.wall < 60s);
    CHECK(job.left_behind() == "");
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::test
