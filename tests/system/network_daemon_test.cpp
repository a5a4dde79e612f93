// The daemon in a small cluster: it may die and come back, serves many jobs, and forgets them.
#include "tests/support/network_lab.h"

#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ddprun::test {
namespace {

using namespace std::chrono_literals;

/// A daemon on node1, agents on the others.
class Cluster {
public:
    explicit Cluster(int nodes) : lab(nodes) {}

    [[nodiscard]] std::unique_ptr<Command> daemon(std::vector<std::string> options = {}) const {
        options.insert(options.begin(), {program("ddprund"), "--listen=10.77.0.1:29400"});
        auto started = std::make_unique<Command>(lab.on(1, std::move(options)));
        REQUIRE(started->wait_for_line("listening on 10.77.0.1:29400"));
        return started;
    }

    [[nodiscard]] std::unique_ptr<Command> agent(
        int number, const std::string& script, std::vector<std::string> options = {}
    ) const {
        options.insert(
            options.begin(), {"--nnodes=2", "--rdzv_endpoint=10.77.0.1", "--rdzv_backend=c10d"}
        );
        options.insert(options.end(), {"/bin/sh", "-c", script});
        return std::make_unique<Command>(lab.on(number, ddprun(std::move(options))));
    }

    [[nodiscard]] std::string wait_for(const std::string& name) const {
        return "while [ ! -e " + folder.path(name) + " ]; do sleep 0.1; done; ";
    }

    void set(const std::string& name) const { static_cast<void>(folder.file(name, "")); }

    NetworkLab lab;
    TemporaryFolder folder;
};

void check_success(Command& command) {
    const CommandResult result = command.finish();
    CHECK_MESSAGE(result.exit_code == 0, describe(result), " ", result.err);
    CHECK(command.left_behind() == "");
}

const std::string kSayRound =
    "echo round $DDPRUN_ROUND rank $RANK restart $TORCHELASTIC_RESTART_COUNT; ";

TEST_SUITE_BEGIN("system/network_daemon");

TEST_CASE("a daemon that is killed and started anew restarts no worker and loses no success") {
    if (no_lab()) {
        return;
    }
    const Cluster cluster(3);
    auto daemon = cluster.daemon();
    const auto first = cluster.agent(2, kSayRound + "echo done");
    const auto second = cluster.agent(3, kSayRound + cluster.wait_for("release"));
    REQUIRE(first->wait_for_line("done"));
    REQUIRE(second->wait_for_line("round 0"));

    daemon->send_signal(SIGKILL);
    REQUIRE(daemon->finish().signal == SIGKILL);
    REQUIRE(first->wait_for_line("connecting again"));
    REQUIRE(second->wait_for_line("connecting again"));
    daemon = cluster.daemon();
    cluster.set("release");

    check_success(*first);
    check_success(*second);
    CHECK(count_of(first->out() + second->out(), "round") == 2);
}

TEST_CASE("a worker's failure while the daemon is away waits for it and restarts all") {
    if (no_lab()) {
        return;
    }
    const Cluster cluster(3);
    auto daemon = cluster.daemon();
    const std::string script = kSayRound + "[ $DDPRUN_ROUND = 1 ] && exit 0; ";
    const auto first =
        cluster.agent(2, script + cluster.wait_for("fail") + "exit 7", {"--max_restarts=1"});
    const auto second = cluster.agent(3, script + "exec sleep 60", {"--max_restarts=1"});
    REQUIRE(first->wait_for_line("round 0"));
    REQUIRE(second->wait_for_line("round 0"));

    daemon->send_signal(SIGKILL);
    REQUIRE(daemon->finish().signal == SIGKILL);
    REQUIRE(second->wait_for_line("connecting again"));
    cluster.set("fail");
    REQUIRE(first->wait_for_line("exited with code 7"));
    daemon = cluster.daemon();

    CHECK(first->wait_for_line("round 1 rank 0 restart 1"));
    CHECK(second->wait_for_line("round 1 rank 1 restart 1"));
    check_success(*first);
    check_success(*second);
}

TEST_CASE("a daemon that stays away: success ends 0 with a warning, running workers end with 74") {
    if (no_lab()) {
        return;
    }
    const Cluster cluster(3);
    const auto daemon = cluster.daemon();
    const auto first = cluster.agent(2, "echo done", {"--rdzv_conf=lost_timeout=3"});
    const auto second = cluster.agent(3, "echo on; exec sleep 60", {"--rdzv_conf=lost_timeout=3"});
    REQUIRE(first->wait_for_line("done"));
    REQUIRE(second->wait_for_line("on"));

    daemon->send_signal(SIGKILL);

    const CommandResult one = first->finish();
    const CommandResult two = second->finish();
    CHECK_MESSAGE(one.exit_code == 0, describe(one), " ", one.err);
    CHECK(one.err.find("have succeeded") != std::string::npos);
    CHECK_MESSAGE(two.exit_code == 74, describe(two), " ", two.err);
    CHECK(two.err.find("node1") != std::string::npos);
    CHECK(second->left_behind() == "");
}

TEST_CASE("three jobs on one daemon know nothing of each other") {
    if (no_lab()) {
        return;
    }
    const Cluster cluster(3);
    const auto daemon = cluster.daemon();
    std::vector<std::unique_ptr<Command>> agents;
    for (const char* id : {"a", "b", "c"}) {
        const std::string job = std::string{"--rdzv_id="} + id;
        const std::string script = "echo job " + std::string{id} + " rank $RANK of $WORLD_SIZE";
        agents.push_back(cluster.agent(2, script, {job}));
        agents.push_back(cluster.agent(3, script, {job}));
    }

    for (std::size_t i = 0; i < agents.size(); ++i) {
        check_success(*agents[i]);
        const std::string id(1, static_cast<char>('a' + i / 2));
        CHECK(agents[i]->out() == "job " + id + " rank " + std::to_string(i % 2) + " of 2\n");
    }
}

TEST_CASE("a job is forgotten after its end: its id can be used again") {
    if (no_lab()) {
        return;
    }
    const Cluster cluster(3);
    const auto daemon = cluster.daemon();
    for (int run = 0; run < 2; ++run) {
        const auto first = cluster.agent(2, kSayRound, {"--rdzv_id=again"});
        const auto second = cluster.agent(3, kSayRound, {"--rdzv_id=again"});

        check_success(*first);
        check_success(*second);
        CHECK(first->out() == "round 0 rank 0 restart 0\n");
    }
}

TEST_CASE("HUP goes on in a fresh log file") {
    if (no_lab()) {
        return;
    }
    const Cluster cluster(3);
    const std::string path = cluster.folder.path("ddprund.log");
    const auto daemon = cluster.daemon({"--log_file=" + path, "--log_level=debug"});
    const auto run = [&] {
        const auto first = cluster.agent(2, "exit 0");
        const auto second = cluster.agent(3, "exit 0");
        check_success(*first);
        check_success(*second);
    };
    run();
    REQUIRE(read_file(path).find("joined") != std::string::npos);

    std::filesystem::rename(path, path + ".1");
    daemon->send_signal(SIGHUP);
    run();

    CHECK(read_file(path).find("joined") != std::string::npos);
    daemon->send_signal(SIGTERM);
    CHECK(daemon->finish().exit_code == 0);
}

TEST_CASE("an ordinary user serves sockets that a service manager hands down") {
    if (no_lab()) {
        return;
    }
    const Cluster cluster(3);
    const std::string activate =
        "import os,socket\n"
        "s=socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
        "s.bind(('10.77.0.1',29400)); s.listen(100)\n"
        "os.dup2(s.fileno(), 3); os.set_inheritable(3, True)\n"
        "p=os.open('" +
        program("ddprund") +
        "', os.O_RDONLY)\n"  // before: that user may not enter our folders
        "os.setgid(65534); os.setuid(65534)\n"
        "os.environ['LISTEN_FDS']='1'; os.environ['LISTEN_PID']=str(os.getpid())\n"
        "os.execve(p, ['ddprund'], os.environ)\n";
    const Command daemon(cluster.lab.on(1, {"/usr/bin/python3", "-c", activate}));
    const auto first = cluster.agent(2, "exit 0");
    const auto second = cluster.agent(3, "exit 0");

    check_success(*first);
    check_success(*second);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::test
