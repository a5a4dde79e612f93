#include "launcher/log_options.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

namespace ddprun::launcher {
namespace {

using Words = std::vector<std::string>;

LaunchCommand command_of(const Words& arguments, const Environment& environment = {}) {
    auto command = parse_command(arguments, environment);
    REQUIRE_MESSAGE(command.has_value(), (command ? "" : command.error().context));
    REQUIRE(std::holds_alternative<LaunchCommand>(*command));
    return std::get<LaunchCommand>(*command);
}

std::string error_of(const Words& arguments, const Environment& environment = {}) {
    const auto command = parse_command(arguments, environment);
    REQUIRE_FALSE(command.has_value());
    return command.error().context;
}

bool has_note(const LaunchCommand& command, std::string_view part) {
    return std::ranges::any_of(command.notes, [&](const std::string& note) {
        return note.find(part) != std::string::npos;
    });
}

TEST_SUITE_BEGIN("launcher/log_options");

TEST_CASE("streams are one digit for all workers or digits by local rank") {
    CHECK(command_of({"-r3", "x"}).logs.redirects.others == 3);
    CHECK(command_of({"--tee", "1", "x"}).logs.tee.others == 1);

    const StreamChoice choice = command_of({"-t", "0:1,12:3", "x"}).logs.tee;

    CHECK(choice.has(LocalRank{0}, StreamKind::out));
    CHECK_FALSE(choice.has(LocalRank{0}, StreamKind::err));
    CHECK(choice.has(LocalRank{12}, StreamKind::err));
    CHECK_FALSE(choice.has(LocalRank{1}, StreamKind::out));
}

TEST_CASE("other texts for streams are refused with the grammar") {
    for (const char* text : {"4", "", "33", "a", "0:", ":1", "0:4", "0:1,", "0:1;1:2", "-1:1"}) {
        CAPTURE(text);
        CHECK(error_of({std::string{"--redirects="} + text, "x"})
                  .starts_with(std::string{"--redirects="} + text + ": expected 0, 1, 2 or 3"));
    }
    CHECK(error_of({"x"}, {{"PET_TEE", "9"}}).starts_with("PET_TEE=9: expected 0, 1, 2 or 3"));
}

TEST_CASE("ranks are numbers between commas") {
    const LogOptions logs =
        command_of({"--local_ranks_filter=0, 3", "--show-ranks=70000", "x"}).logs;

    CHECK(logs.local_ranks == std::set<LocalRank>{LocalRank{0}, LocalRank{3}});
    CHECK(logs.ranks == std::set<Rank>{Rank{70'000}});
    CHECK(command_of({"--local_ranks_filter=", "x"}).logs.local_ranks.empty());
    CHECK(error_of({"--local_ranks_filter=0,x", "x"})
              .starts_with("--local_ranks_filter=0,x: expected ranks from 0 to"));
}

TEST_CASE("a doubled comma is a comma of the filter") {
    CHECK(parse_filters("loss,a,,b,").size() == 2);
    CHECK(parse_filters("loss,a,,b") == Words{"loss", "a,b"});
    CHECK(parse_filters("").empty());
}

TEST_CASE("filters without a tee'd stream are noted") {
    CHECK(has_note(command_of({"--duplicate_stdout_filters=a", "--tee=2", "x"}), "--tee"));
    CHECK_FALSE(has_note(command_of({"--duplicate_stdout_filters=a", "--tee=1", "x"}), "--tee"));
}

TEST_CASE("sizes have units") {
    CHECK(command_of({"--log_max_size=100", "x"}).logs.size_max == 100);
    CHECK(command_of({"--log_max_size=2k", "x"}).logs.size_max == 2048);
    CHECK(command_of({"--log_max_size=3G", "x"}).logs.size_max == 3ULL * 1024 * 1024 * 1024);
    for (const char* text : {"", "0", "M", "1T", "-1", "9999999999G"}) {
        CAPTURE(text);
        CHECK(error_of({std::string{"--log_max_size="} + text, "x"})
                  .starts_with(std::string{"--log_max_size="} + text + ": expected a number"));
    }
}

TEST_CASE("the prefix's template comes from torchrun's variable below its own") {
    const Environment inherited{{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "a"}};
    Environment both = inherited;
    both["PET_LOG_LINE_PREFIX_TEMPLATE"] = std::string("b");

    CHECK(command_of({"x"}, inherited).logs.prefix_template == "a");
    CHECK(command_of({"x"}, both).logs.prefix_template == "b");
    CHECK(command_of({"--log_line_prefix_template=c", "x"}, both).logs.prefix_template == "c");
}

TEST_CASE("log files without a folder to keep them are noted") {
    CHECK(has_note(command_of({"-r3", "x"}), "--log_dir"));
    CHECK_FALSE(has_note(command_of({"-r3", "--log_dir=/logs", "x"}), "--log_dir"));
}

TEST_CASE("an unknown word of LOGLEVEL is passed over with a note, one of --log_level refused") {
    const LaunchCommand command = command_of({"x"}, {{"LOGLEVEL", "verbose"}});

    CHECK(command.log_level == LogLevel::info);
    CHECK(has_note(command, "LOGLEVEL=verbose"));
    CHECK(command_of({"x"}, {{"LOGLEVEL", "WARN"}}).log_level == LogLevel::warning);
    CHECK(error_of({"--log_level=verbose", "x"}).starts_with("--log_level=verbose: expected debug")
    );
}

TEST_CASE("signals that ddprun doesn't handle are noted, torchrun's own pass") {
    const LaunchCommand command = command_of({"--signals_to_handle=SIGTERM,SIGUSR1,FOO", "x"});

    CHECK(command.signals_to_handle == "SIGTERM,SIGUSR1,FOO");
    CHECK(has_note(command, "SIGUSR1"));
    CHECK(has_note(command, "FOO"));
    CHECK(command_of({"--signals_to_handle=SIGTERM, SIGINT", "x"}).notes.empty());
}

TEST_CASE("what needs Python in the launcher is refused with what to use instead") {
    CHECK(error_of({"--run_path", "x.py"}).starts_with("--run_path: not supported"));
    CHECK(error_of({"x.py"}, {{"PET_RUN_PATH", "1"}}).starts_with("PET_RUN_PATH: not supported"));
    CHECK(error_of({"--logs_specs=a", "x"}).starts_with("--logs_specs=a: not supported"));
}

TEST_CASE("standard input has a reader by local rank") {
    CHECK(command_of({"--stdin=3", "x"}).stdin_rank == LocalRank{3});
    CHECK_FALSE(command_of({"x"}).stdin_rank.has_value());
    CHECK(error_of({"--stdin=-1", "x"}).starts_with("--stdin=-1: expected a number"));
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::launcher
