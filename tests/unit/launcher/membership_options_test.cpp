// Options for nodes that come and go, addresses and ports; and who holds a port.
#include "launcher/membership_options.h"

#include "launcher/meeting.h"
#include "launcher/port_holder.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <doctest/doctest.h>

#include <signal.h>
#include <unistd.h>

#include <string>
#include <variant>
#include <vector>

namespace ddprun::launcher {
namespace {

using Words = std::vector<std::string>;

Result<LaunchCommand> parsed(Words options) {
    options.insert(options.begin(), {"--rdzv_endpoint=node0"});
    options.emplace_back("program");
    auto command = parse_command(options, {});
    if (!command) {
        return fail(command.error());
    }
    return std::get<LaunchCommand>(*command);
}

TEST_SUITE_BEGIN("launcher/membership_options");

TEST_CASE("TERM stops a job of fixed size and lets an elastic one go on, unless told otherwise") {
    CHECK_FALSE(parsed({"--nnodes=2"})->leaves_on_term);
    CHECK(parsed({"--nnodes=1:2"})->leaves_on_term);
    CHECK(parsed({"--nnodes=2", "--on_term=leave"})->leaves_on_term);
    CHECK_FALSE(parsed({"--nnodes=1:2", "--on_term=stop"})->leaves_on_term);
    CHECK_FALSE(parsed({"--nnodes=2", "--on_term=go"}).has_value());
}

TEST_CASE("a signal is a name with or without SIG, or a number that a program can handle") {
    CHECK(parse_signal("SIGUSR1").value() == SIGUSR1);
    CHECK(parse_signal("USR2").value() == SIGUSR2);
    CHECK(parse_signal("15").value() == SIGTERM);
    for (const char* wrong : {"", "SIG", "NOSUCH", "usr1", "0", "99", "KILL", "9", "STOP"}) {
        CHECK_MESSAGE(!parse_signal(wrong), wrong);
    }
}

TEST_CASE("the membership signal brings ten seconds to save, or as many as are given") {
    const auto usual = parsed({"--nnodes=1:2", "--membership_signal=USR1"});
    CHECK(usual->membership_signal == SIGUSR1);
    CHECK(usual->membership_grace == std::chrono::seconds(10));
    const auto more =
        parsed({"--nnodes=1:2", "--membership_signal=USR1", "--membership_grace=2.5"});
    CHECK(more->membership_grace == std::chrono::milliseconds(2'500));
    CHECK(more->notes.empty());
    CHECK(parsed({"--nnodes=1:2", "--membership_grace=3"})->notes.size() == 1);
}

TEST_CASE("a port range is two ports in order") {
    CHECK(parse_port_range("40000-40100").value() == PortRange{Port{40000}, Port{40100}});
    CHECK(parse_port_range("40000").value() == PortRange{Port{40000}, Port{40000}});
    for (const char* wrong : {"", "-", "5-4", "0-9", "1-70000", "a-b", "1-2-3"}) {
        CHECK_MESSAGE(!parse_port_range(wrong), wrong);
    }
}

TEST_CASE("one of --iface and --local_addr is enough") {
    CHECK(parsed({"--nnodes=2", "--iface=ib0"})->interface == "ib0");
    CHECK_FALSE(parsed({"--nnodes=2", "--iface=ib0", "--local_addr=10.0.0.1"}).has_value());
}

TEST_CASE("the back end static is meant by --master_addr or said by name") {
    CHECK_FALSE(parsed({"--nnodes=2"})->is_static);
    CHECK(parsed({"--nnodes=2", "--rdzv_backend=static"})->is_static);
    CHECK_FALSE(parsed({"--nnodes=2", "--rdzv_backend=c10d"})->is_static);
    const Words master{"--nnodes=2", "--master_addr=node0", "--master_port=1234", "program"};
    const auto command = parse_command(master, {});
    REQUIRE(command);
    CHECK(std::get<LaunchCommand>(*command).is_static);
    CHECK(std::get<LaunchCommand>(*command).endpoint == Endpoint{"node0", Port{1234}});
}

TEST_CASE("membership_rounds_max reaches the job") {
    CHECK(
        parsed({"--nnodes=2", "--rdzv_conf=membership_rounds_max=3"})->spec.membership_rounds_max ==
        3
    );
}

TEST_CASE("the published address is one that others reach") {
    const std::vector<std::string> own{"127.0.0.1", "10.0.0.1", "::1", "fd00::1"};
    CHECK(published_address({"127.0.1.1"}, own, true) == "10.0.0.1");
    CHECK(published_address({"fd00::1", "10.0.0.1"}, own, false) == "fd00::1");
    CHECK(published_address({"127.0.1.1", "10.0.0.1"}, own, true) == "10.0.0.1");
    CHECK(published_address({"127.0.0.1"}, own, false) == "127.0.0.1");
    CHECK(published_address({}, {"127.0.0.1"}, true) == "127.0.0.1");
}

TEST_CASE("listening sockets of a port are found in the kernel's table, others are not") {
    const std::string table =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  "
        "timeout "
        "inode\n"
        "   0: 0100007F:72D8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        "
        "0 "
        "4711 1 0000000000000000 100 0 0 10 0\n"
        "   1: 0100007F:72D8 0100007F:1234 01 00000000:00000000 00:00000000 00000000     0        "
        "0 "
        "4712 1 0000000000000000 20 4 30 10 -1\n"
        "   2: 0100007F:72D9 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        "
        "0 "
        "4713 1 0000000000000000 100 0 0 10 0\n";
    CHECK(listening_inodes(table, Port{29400}) == std::set<std::uint64_t>{4711});
    CHECK(listening_inodes("", Port{29400}).empty());
}

TEST_CASE("the holder of a port is named with its pid and program") {
    namespace asio = boost::asio;
    asio::io_context io_context{1};
    const asio::ip::tcp::acceptor acceptor{
        io_context, asio::ip::tcp::endpoint{asio::ip::address_v4::loopback(), 0}};
    const Port port{acceptor.local_endpoint().port()};

    const std::string holder = holder_of_port(port);

    CHECK(holder.find("pid " + std::to_string(::getpid())) != std::string::npos);
    CHECK(holder.find("launcher_tests") != std::string::npos);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::launcher
