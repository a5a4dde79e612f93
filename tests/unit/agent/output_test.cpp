// What the console shows: the pure half of the workers' output.
#include "agent/line_splitter.h"
#include "agent/prefix.h"
#include "proto/limits.h"
#include "tests/support/filled.h"

#include <doctest/doctest.h>

using namespace ddprun;
using Mode = LineSplitter::Mode;

namespace {

constexpr TimePoint kStart{std::chrono::seconds(1'000)};

}  // namespace

TEST_SUITE("agent/line_splitter") {
    TEST_CASE("a text cut at every byte gives the same whole lines with a prefix") {
        const std::string text("one\n\ntwo \0 three\nend\n", 21);
        const std::string expected("[p]:one\n[p]:\n[p]:two \0 three\n[p]:end\n", 37);
        for (std::size_t cut = 0; cut <= text.size(); ++cut) {
            ConsoleLine console;
            LineSplitter splitter(Mode::lines, "[p]:", console);
            std::string out;

            splitter.feed(std::string_view(text).substr(0, cut), kStart, out);
            splitter.feed(std::string_view(text).substr(cut), kStart, out);

            CHECK(out == expected);
        }
    }

    TEST_CASE("a partial line is held back and due after the silence") {
        ConsoleLine console;
        LineSplitter splitter(Mode::lines, "[p]:", console);
        std::string out;

        splitter.feed("promp", kStart, out);
        splitter.feed("t> ", kStart + std::chrono::milliseconds(5), out);

        CHECK(out == "");
        CHECK(
            splitter.due() == kStart + std::chrono::milliseconds(5) + limits::kPartialLineSilence
        );
        splitter.show_partial(out);
        CHECK(out == "[p]:prompt> ");
        CHECK(!splitter.due());
    }

    TEST_CASE("a line that redraws itself is due after the time of a silence though it has none") {
        ConsoleLine console;
        std::string out;
        LineSplitter splitter(LineSplitter::Mode::lines, "[w]:", console);
        const TimePoint start{std::chrono::seconds(100)};
        const auto late = [&](int ms) { return start + std::chrono::milliseconds(ms); };

        splitter.feed("\r 1%", start, out);
        splitter.feed("\r 2%", late(70), out);
        splitter.feed("\r 3%", late(140), out);
        CHECK(out.empty());
        CHECK(splitter.due() == start + limits::kPartialLineSilence);

        splitter.show_partial(out);
        CHECK(out == "[w]:\r 1%\r 2%\r 3%");
        splitter.feed("\r 4%", late(210), out);
        CHECK(splitter.due() == late(210) + limits::kPartialLineSilence);
        splitter.feed(" done", late(300), out);
        CHECK(splitter.due() == late(210) + limits::kPartialLineSilence);
        splitter.feed("\nplain", late(310), out);
        splitter.feed(" text", late(400), out);
        CHECK(splitter.due() == late(400) + limits::kPartialLineSilence);
    }

    TEST_CASE("the rest of a shown line follows without a prefix while nobody else wrote") {
        ConsoleLine console;
        LineSplitter splitter(Mode::lines, "[p]:", console);
        std::string out;
        splitter.feed("10 %", kStart, out);
        splitter.show_partial(out);

        splitter.feed("\r20 %\n", kStart, out);

        CHECK(out == "[p]:10 %\r20 %\n");
    }

    TEST_CASE("another worker's text never stands on a shown partial line") {
        ConsoleLine console;
        LineSplitter a(Mode::lines, "[a]:", console);
        LineSplitter b(Mode::lines, "[b]:", console);
        std::string out;
        a.feed("wait", kStart, out);
        a.show_partial(out);

        b.feed("line\n", kStart, out);
        a.feed("ed\n", kStart, out);

        CHECK(out == "[a]:wait\n[b]:line\n[a]:ed\n");
    }

    TEST_CASE("a prefix shows the time of its line") {
        ConsoleLine console;
        LineSplitter splitter(Mode::lines, "${time} [p] ${time}:", console);
        std::string out;

        console.time = "10:00";
        splitter.feed("a\n", kStart, out);
        console.time = "10:01";
        splitter.feed("b\n", kStart, out);

        CHECK(splitter.shows_time());
        CHECK(out == "10:00 [p] 10:00:a\n10:01 [p] 10:01:b\n");
    }

    TEST_CASE("an unfinished last line is shown and ended at the end of the stream") {
        ConsoleLine console;
        LineSplitter splitter(Mode::lines, "[p]:", console);
        std::string out;

        splitter.feed("last", kStart, out);
        splitter.finish(out);
        splitter.finish(out);

        CHECK(out == "[p]:last\n");
        CHECK(console.owner == nullptr);
    }

    TEST_CASE("raw bytes pass as they are, at the end too") {
        ConsoleLine console;
        LineSplitter splitter(Mode::raw, "", console);
        std::string out;

        splitter.feed(std::string_view("a\0b", 3), kStart, out);
        splitter.finish(out);

        CHECK(out == std::string("a\0b", 3));
        CHECK(!splitter.due());
    }

    TEST_CASE("a line of 100 kB stays whole and one beyond the bound is forwarded in pieces") {
        ConsoleLine console;
        LineSplitter splitter(Mode::lines, "[p]:", console);
        std::string out;
        const std::string piece = test::filled(100'000, 'x');

        splitter.feed(piece, kStart, out);
        CHECK(out == "");
        splitter.feed("\n", kStart, out);
        CHECK(out == "[p]:" + piece + "\n");
        out.clear();
        for (std::size_t i = 0; i <= limits::kLineBytesMax / piece.size(); ++i) {
            splitter.feed(piece, kStart, out);
        }
        CHECK(out.size() > limits::kLineBytesMax);
    }
}

TEST_SUITE("agent/prefix") {
    TEST_CASE("without a template it is torchrun's") {
        PrefixValues values;
        values.role = "default";
        values.ranks.local_rank = LocalRank{12};

        CHECK(expand_prefix("", values) == "[default12]:");
    }

    TEST_CASE("macros are replaced and unknown ones stay") {
        PrefixValues values{
            .role = "r", .host = "node1.example.org", .ranks = {}, .round = Round{4}};
        values.ranks.rank = Rank{9};
        values.ranks.local_rank = LocalRank{1};

        CHECK(
            expand_prefix(
                "${hostname}|${rank}|${local_rank}|${role_name}|${round}|${what}|${open", values
            ) == "node1|9|1|r|4|${what}|${open"
        );
    }
}
