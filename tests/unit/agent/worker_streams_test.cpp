// Where a worker's bytes go, and which of its lines are duplicated: pure cores of the output.
#include "agent/worker_streams.h"

#include "agent/expand_arguments.h"
#include "agent/line_filter.h"
#include "proto/limits.h"

#include <doctest/doctest.h>

using namespace ddprun;

namespace {

PrefixValues worker(std::int32_t local_rank, std::int32_t workers = 4, std::int32_t rank = 0) {
    PrefixValues values;
    values.role = "default";
    values.ranks.local_rank = LocalRank{local_rank};
    values.ranks.rank = Rank{rank};
    values.ranks.local_world_size = LocalWorldSize{workers};
    return values;
}

std::string filtered(LineFilter& filter, std::string_view bytes) {
    std::string out;
    filter.feed(bytes, out);
    return out;
}

}  // namespace

TEST_SUITE("agent/worker_streams") {
    TEST_CASE("without any choice both streams are shown and no file is written") {
        const WorkerStreams streams = streams_of({}, worker(0), "/run/attempt_0/0");

        CHECK(streams.prefix == "[default0]:");
        CHECK(streams.mode == LineSplitter::Mode::lines);
        for (const StreamKind kind : {StreamKind::out, StreamKind::err}) {
            CHECK(streams.of(kind).shown);
            CHECK(streams.of(kind).file == "");
        }
    }

    TEST_CASE("a lone worker's bytes are raw unless a template asks for a prefix") {
        OutputSettings settings;

        CHECK(streams_of(settings, worker(0, 1), "").mode == LineSplitter::Mode::raw);
        settings.prefix_template = "${rank}> ";
        const WorkerStreams streams = streams_of(settings, worker(0, 1), "");
        CHECK(streams.mode == LineSplitter::Mode::lines);
        CHECK(streams.prefix == "0> ");
    }

    TEST_CASE("a redirected stream is in its file alone, a tee'd one on the console as well") {
        OutputSettings settings;
        settings.redirects.others = 1;
        settings.tee.by_rank[LocalRank{1}] = 2;

        const WorkerStreams first = streams_of(settings, worker(0), "/run/attempt_0/0");
        const WorkerStreams second = streams_of(settings, worker(1), "/run/attempt_0/1");

        CHECK_FALSE(first.of(StreamKind::out).shown);
        CHECK(first.of(StreamKind::out).file == "/run/attempt_0/0/stdout.log");
        CHECK(first.of(StreamKind::err).shown);
        CHECK(first.of(StreamKind::err).file == "");
        CHECK(second.of(StreamKind::err).shown);
        CHECK(second.of(StreamKind::err).file == "/run/attempt_0/1/stderr.log");
    }

    TEST_CASE("tee wins where a stream is redirected, too") {
        OutputSettings settings;
        settings.redirects.others = 3;
        settings.tee.others = 1;

        const WorkerStreams streams = streams_of(settings, worker(0), "/run/attempt_0/0");

        CHECK(streams.of(StreamKind::out).shown);
        CHECK_FALSE(streams.of(StreamKind::err).shown);
        CHECK(streams.of(StreamKind::err).file == "/run/attempt_0/0/stderr.log");
    }

    TEST_CASE("without a folder nothing is redirected") {
        OutputSettings settings;
        settings.redirects.others = 3;

        const WorkerStreams streams = streams_of(settings, worker(0), "");

        CHECK(streams.of(StreamKind::out).shown);
        CHECK(streams.of(StreamKind::out).file == "");
    }

    TEST_CASE("ranks that the console doesn't show keep their files") {
        OutputSettings settings;
        settings.tee.others = 3;
        settings.shown_ranks = {LocalRank{1}};

        const WorkerStreams streams = streams_of(settings, worker(0), "/run/attempt_0/0");

        CHECK_FALSE(streams.of(StreamKind::out).shown);
        CHECK(streams.of(StreamKind::out).file == "/run/attempt_0/0/stdout.log");
        CHECK(streams_of(settings, worker(1), "/run/attempt_0/1").of(StreamKind::out).shown);
    }

    TEST_CASE("a choice by global rank goes by the global rank") {
        OutputSettings settings;
        settings.shown_global_ranks = {Rank{5}};

        CHECK(streams_of(settings, worker(1, 4, 5), "").of(StreamKind::out).shown);
        CHECK_FALSE(streams_of(settings, worker(1, 4, 1), "").of(StreamKind::out).shown);
    }

    TEST_CASE("filters take tee'd streams into one file of the attempt") {
        OutputSettings settings;
        settings.tee.others = 1;
        settings.redirects.others = 2;
        settings.stdout_filters = {"loss"};
        settings.stderr_filters = {"error"};

        const WorkerStreams streams = streams_of(settings, worker(2), "/run/attempt_1/2");

        CHECK(streams.of(StreamKind::out).filtered_file == "/run/attempt_1/filtered_stdout.log");
        CHECK(streams.of(StreamKind::out).filters == settings.stdout_filters);
        CHECK(streams.of(StreamKind::err).filtered_file == "");
    }
}

TEST_SUITE("agent/line_filter") {
    TEST_CASE("lines with one of the texts pass with the prefix, at every cut") {
        const std::string text = "loss 1\nnothing\nan error\nloss";
        for (std::size_t cut = 0; cut <= text.size(); ++cut) {
            LineFilter filter({"loss", "error"}, "[p]:");

            std::string out = filtered(filter, text.substr(0, cut));
            out += filtered(filter, text.substr(cut));
            filter.finish(out);

            CHECK(out == "[p]:loss 1\n[p]:an error\n[p]:loss\n");
        }
    }

    TEST_CASE("without texts nothing passes") {
        LineFilter filter({}, "");

        CHECK(filtered(filter, "line\n") == "");
    }

    TEST_CASE("a line without an end is judged when it is too long") {
        LineFilter filter({"x"}, "");

        CHECK(filtered(filter, std::string(limits::kLineBytesMax + 1, 'x')) != "");
    }
}

TEST_SUITE("agent/expand_arguments") {
    TEST_CASE("macros are replaced as Python's safe templates do it") {
        const auto expanded = [](std::string_view text) {
            return expand_argument(text, LocalRank{7});
        };

        CHECK(expanded("--file=out_${local_rank}.txt") == "--file=out_7.txt");
        CHECK(expanded("$local_rank $local_rank") == "7 7");
        CHECK(expanded("echo $$") == "echo $");
        CHECK(expanded("$$local_rank") == "$local_rank");
        CHECK(
            expanded("$local_ranks ${local_ranks} $HOME $ ${") ==
            "$local_ranks ${local_ranks} $HOME $ ${"
        );
        CHECK(expanded("") == "");
    }
}
