// What is made from the option table: completions and the manual page have every option of it.
#include "launcher/completion.h"
#include "launcher/man_page.h"
#include "launcher/option_table.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

namespace ddprun::launcher {
namespace {

using Words = std::vector<std::string>;

std::string hyphened(std::string_view name) {
    std::string result{name};
    std::ranges::replace(result, '_', '-');
    return result;
}

TEST_SUITE_BEGIN("launcher/documents");

TEST_CASE("each completion script has every shown option in both spellings") {
    for (const char* shell : {"bash", "zsh", "fish", "tcsh"}) {
        CAPTURE(shell);
        const std::string script = completion_script(shell);
        CHECK(script.find('@') == script.find("@\""));  // no mark is left; "$@" alone
        for (const OptionDefinition& option : option_table()) {
            CAPTURE(option.name);
            const bool has_name = script.find(option.name) != std::string::npos;
            CHECK(has_name != option.hidden);
            const bool has_hyphens = script.find(hyphened(option.name)) != std::string::npos;
            CHECK(has_hyphens != option.hidden);
            for (const std::string& word : words_of(option)) {
                CHECK((option.hidden || script.find(word) != std::string::npos));
            }
        }
    }
}

TEST_CASE("the manual page has every shown option with its help and its variable") {
    const std::string page = man_page();
    std::string plain;
    std::ranges::copy_if(page, std::back_inserter(plain), [](char c) { return c != '\\'; });
    for (const OptionDefinition& option : option_table()) {
        CAPTURE(option.name);
        const bool has_name = plain.find(fmt::format("fB--{}fR", option.name)) != std::string::npos;
        CHECK(has_name != option.hidden);
        const bool has_variable =
            plain.find(fmt::format("fB{}fR", option.variable)) != std::string::npos;
        CHECK((option.hidden || option.variable.empty() || has_variable));
    }
    for (const char* part :
         {".TH DDPRUN 1", ".SH SYNOPSIS", ".SH ENVIRONMENT", ".SH EXIT STATUS"}) {
        CHECK(page.find(part) != std::string::npos);
    }
}

TEST_CASE("no line of the manual page begins with a dot or a quote that is text") {
    std::istringstream lines{man_page()};
    for (std::string line; std::getline(lines, line);) {
        CAPTURE(line);
        CHECK_FALSE(line.starts_with('\''));
        CHECK((!line.starts_with('.') || line.size() > 1));
    }
}

TEST_CASE("words of an option's values are the literal ones") {
    CHECK(words_of(*find_option("nproc_per_node")) == Words{"auto", "cpu", "gpu"});
    CHECK(words_of(*find_option("rdzv_backend")) == Words{"static", "c10d"});
    CHECK(words_of(*find_option("numa_binding")).back() == "core-complex");
    CHECK(words_of(*find_option("log_dir")).empty());
    CHECK(words_of(*find_option("standalone")).empty());
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::launcher
