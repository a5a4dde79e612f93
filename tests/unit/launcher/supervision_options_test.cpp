#include "launcher/supervision_options.h"

#include <doctest/doctest.h>

#include <signal.h>

namespace ddprun::launcher {
namespace {

LaunchCommand parsed(std::vector<std::string> arguments) {
    arguments.emplace_back("prog");
    const auto command = parse_command(arguments, Environment{});
    REQUIRE_MESSAGE(command, command.error().context);
    return std::get<LaunchCommand>(*command);
}

std::string error_of(std::vector<std::string> arguments) {
    arguments.emplace_back("prog");
    const auto command = parse_command(arguments, Environment{});
    return command ? std::string{} : command.error().context;
}

TEST_SUITE_BEGIN("launcher/supervision_options");

TEST_CASE("statuses are read as numbers and ranges, each once and in order") {
    CHECK(*parse_statuses("42") == std::vector<std::int32_t>{42});
    CHECK(*parse_statuses("130-131, 3,3") == std::vector<std::int32_t>{3, 130, 131});
}

TEST_CASE("statuses that no worker can have are refused") {
    for (const char* text : {"", "0", "256", "3,", "x", "5-3", "-1", "3-", "1-2-3"}) {
        CAPTURE(std::string{text});
        CHECK_FALSE(parse_statuses(text));
    }
}

TEST_CASE("signals are read by name, with and without SIG, and by number") {
    CHECK(*parse_signals("WINCH,SIGALRM") == std::set<int>{SIGALRM, SIGWINCH});
    CHECK(*parse_signals("12") == std::set<int>{12});
    CHECK(*parse_signals("RTMIN,SIGRTMIN+3") == std::set<int>{SIGRTMIN, SIGRTMIN + 3});
}

TEST_CASE("signals that can't be forwarded are refused") {
    for (const char* text :
         {"",
          "NOPE",
          "winch,",
          "TERM",
          "SIGKILL",
          "STOP",
          "CHLD",
          "SEGV",
          "CONT",
          "0",
          "32",
          "65",
          "RTMIN+99",
          "RTMIN-1"}) {
        CAPTURE(std::string{text});
        CHECK_FALSE(parse_signals(text));
    }
}

TEST_CASE("descriptors are above 2") {
    CHECK(*parse_descriptors("3,5,3") == std::set<int>{3, 5});
    for (const char* text : {"", "2", "-1", "x", "3,"}) {
        CAPTURE(std::string{text});
        CHECK_FALSE(parse_descriptors(text));
    }
}

TEST_CASE("the rules of restarts become the job's") {
    const LaunchCommand command =
        parsed({"--no_restart_codes=3,4", "--restart-delay", "0.5", "--min_uptime=10"});

    CHECK(command.spec.no_restart_codes == std::vector<std::int32_t>{3, 4});
    CHECK(command.spec.restart_delay == std::chrono::milliseconds(500));
    CHECK(command.spec.min_uptime == std::chrono::milliseconds(10'000));
}

TEST_CASE("they are off by default, and the signals' scope is the worker") {
    const LaunchCommand command = parsed({});

    CHECK(command.spec.no_restart_codes.empty());
    CHECK(command.spec.restart_delay.count() == 0);
    CHECK(command.spec.min_uptime.count() == 0);
    CHECK_FALSE(command.supervision.signal_groups);
    CHECK(command.supervision.forward_signals.empty());
    CHECK(command.supervision.report_file.empty());
}

TEST_CASE("scope, forwarded signals, descriptors and the report are read") {
    const LaunchCommand command = parsed(
        {"--signal_scope=group", "--forward-signals=WINCH", "--pass_fds=7", "--report=/tmp/r.json"}
    );

    CHECK(command.supervision.signal_groups);
    CHECK(command.supervision.forward_signals == std::set<int>{SIGWINCH});
    CHECK(command.supervision.passed_fds == std::set<int>{7});
    CHECK(command.supervision.report_file == "/tmp/r.json");
}

TEST_CASE("wrong values name the option") {
    CHECK(error_of({"--no_restart_codes=0"}).starts_with("--no_restart_codes=0: expected"));
    CHECK(error_of({"--restart_delay=x"}).starts_with("--restart_delay=x: expected"));
    CHECK(error_of({"--forward_signals=TERM"}).starts_with("--forward_signals=TERM: TERM can't"));
    CHECK(error_of({"--signal_scope=all"}).starts_with("--signal_scope=all: expected"));
    CHECK(error_of({"--pass_fds=1"}).starts_with("--pass_fds=1: expected"));
    CHECK(error_of({"--report="}).starts_with("--report=: expected"));
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::launcher
