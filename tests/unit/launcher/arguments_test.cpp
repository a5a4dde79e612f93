#include "launcher/arguments.h"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

namespace ddprun::launcher {
namespace {

using Words = std::vector<std::string>;
using Pairs = std::vector<std::pair<std::string, std::string>>;

Pairs options_of(const SplitArguments& split) {
    Pairs pairs;
    for (const GivenOption& option : split.options) {
        pairs.emplace_back(option.definition->name, option.value);
    }
    return pairs;
}

SplitArguments split(const Words& arguments) {
    auto result = split_arguments(arguments);
    REQUIRE_MESSAGE(result.has_value(), (result ? "" : result.error().context));
    return *result;
}

std::string error_of(const Words& arguments) {
    const auto result = split_arguments(arguments);
    REQUIRE_FALSE(result.has_value());
    CHECK(result.error().code == Errc::invalid_argument);
    return result.error().context;
}

TEST_SUITE_BEGIN("launcher/arguments");

TEST_CASE("a value may be attached by = or follow as the next argument") {
    const Pairs expected{{"nnodes", "2"}, {"nproc_per_node", "4"}};

    CHECK(options_of(split({"--nnodes=2", "--nproc_per_node=4", "x"})) == expected);
    CHECK(options_of(split({"--nnodes", "2", "--nproc_per_node", "4", "x"})) == expected);
}

TEST_CASE("hyphens and underscores are the same in the names of options") {
    const Pairs expected{{"nproc_per_node", "4"}, {"max_restarts", "1"}};

    CHECK(options_of(split({"--nproc-per-node=4", "--max-restarts", "1", "x"})) == expected);
    CHECK(options_of(split({"--nproc_per-node=4", "--max_restarts", "1", "x"})) == expected);
}

TEST_CASE("an unambiguous abbreviation stands for its option") {
    CHECK(options_of(split({"--nproc=4", "x"})) == Pairs{{"nproc_per_node", "4"}});
    CHECK(options_of(split({"--nproc-per=4", "x"})) == Pairs{{"nproc_per_node", "4"}});
}

TEST_CASE("what abbreviates one option of torchrun means it, whatever we add") {
    CHECK(options_of(split({"--print=bash", "x"})) == Pairs{{"print_completion", "bash"}});
    CHECK(options_of(split({"--log-l=x", "x"})) == Pairs{{"log_line_prefix_template", "x"}});
    CHECK(options_of(split({"--nu=node", "x"})) == Pairs{{"numa_binding", "node"}});
}

TEST_CASE("an ambiguous abbreviation is refused with what it could mean") {
    const std::string message = error_of({"--master=1", "x"});

    CHECK(message == "option --master is ambiguous: --master_addr, --master_port");
}

TEST_CASE("an unknown option is refused by name and never taken for the program") {
    CHECK(error_of({"--bogus=1", "trainer"}) == "unknown option --bogus (see ddprun --help)");
    CHECK(error_of({"-Z", "trainer"}) == "unknown option -Z (see ddprun --help)");
    CHECK(error_of({"--=1", "trainer"}) == "unknown option -- (see ddprun --help)");
}

TEST_CASE("reading ends at the program: what follows is its own") {
    const SplitArguments result =
        split({"--nnodes=2", "trainer", "--lr", "0.1", "--nnodes=7", "--", "--bogus"});

    CHECK(options_of(result) == Pairs{{"nnodes", "2"}});
    CHECK(result.program == Words{"trainer", "--lr", "0.1", "--nnodes=7", "--", "--bogus"});
}

TEST_CASE("arguments of the program are passed on byte for byte") {
    const Words program{"x", "$$", "${local_rank}", "", "a\nb", "\xff\xfe", "--n", "3"};

    CHECK(split(program).program == program);
}

TEST_CASE("one -- ends the options and is dropped") {
    CHECK(split({"--nnodes=2", "--", "--odd-name", "1"}).program == Words{"--odd-name", "1"});
    CHECK(split({"--", "--", "x"}).program == Words{"--", "x"});
}

TEST_CASE("a lone hyphen and a negative number are no options") {
    CHECK(split({"-", "x"}).program == Words{"-", "x"});
    CHECK(options_of(split({"--max_restarts", "-1", "x"})) == Pairs{{"max_restarts", "-1"}});
}

TEST_CASE("an option without its value is refused with what it expects") {
    CHECK(error_of({"--nnodes"}) == "option --nnodes needs a value: N|MIN:MAX");
    CHECK(
        error_of({"--nnodes", "--standalone", "x"}) == "option --nnodes needs a value: N|MIN:MAX"
    );
}

TEST_CASE("an empty attached value is a value") {
    CHECK(options_of(split({"--rdzv_endpoint=", "x"})) == Pairs{{"rdzv_endpoint", ""}});
}

TEST_CASE("a flag takes no value") {
    CHECK(options_of(split({"--standalone", "x"})) == Pairs{{"standalone", "1"}});
    CHECK(error_of({"--standalone=1", "x"}) == "option --standalone takes no value (got 1)");
}

TEST_CASE("short options have their value attached or behind them") {
    CHECK(options_of(split({"-m", "x"})) == Pairs{{"module", "1"}});
}

TEST_CASE("a repeated option is kept each time, in order") {
    const Pairs expected{{"rdzv_conf", "join_timeout=5"}, {"rdzv_conf", "is_host=true"}};

    CHECK(
        options_of(split({"--rdzv_conf=join_timeout=5", "--rdzv-conf", "is_host=true", "x"})) ==
        expected
    );
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::launcher
