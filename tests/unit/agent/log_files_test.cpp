// Log files on a real disk, and what happens when it is full or stands still.
#include "agent/log_files.h"

#include "proto/limits.h"
#include "tests/support/system.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <doctest/doctest.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <string>
#include <vector>

using namespace ddprun;
using ddprun::test::read_file;
using ddprun::test::TemporaryFolder;

namespace {

class CapturedLog final : public Log {
public:
    void write(LogLevel, std::string_view line) override { lines.emplace_back(line); }

    [[nodiscard]] bool enabled(LogLevel) const override { return true; }

    std::vector<std::string> lines;
};

/// A LogFiles with its loop. finish() runs the loop until all is written.
struct Bench {
    explicit Bench(LogFilesOptions options = {})
        : files(
              io_context, options, [this] { ++rooms; }, log
          ) {}

    void finish() {
        bool done = false;
        files.finish([&done] { done = true; });
        io_context.restart();
        while (!done && io_context.run_one() > 0) {
        }
        CHECK(done);
    }

    boost::asio::io_context io_context{1};
    CapturedLog log;
    int rooms = 0;
    LogFiles files;
};

/// No file of this process may grow beyond `bytes` while it lives.
class FileSizeLimit {
public:
    explicit FileSizeLimit(rlim_t bytes) {
        ::getrlimit(RLIMIT_FSIZE, &before_);
        const rlimit limit{bytes, before_.rlim_max};
        ::setrlimit(RLIMIT_FSIZE, &limit);
    }

    FileSizeLimit(const FileSizeLimit&) = delete;
    FileSizeLimit& operator=(const FileSizeLimit&) = delete;

    ~FileSizeLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }

private:
    rlimit before_{};
};

}  // namespace

TEST_SUITE("agent/log_files") {
    TEST_CASE("a file holds what was appended, byte for byte") {
        const TemporaryFolder folder;
        Bench bench;
        const auto file = bench.files.open(folder.path("a.log"));

        bench.files.append(file, std::string_view("one\0two", 7));
        bench.files.append(file, "\nthree");
        bench.files.close(file);
        bench.finish();

        CHECK(read_file(folder.path("a.log")) == std::string("one\0two\nthree", 13));
        CHECK(bench.log.lines.empty());
    }

    TEST_CASE("one path opened by two is one file, open until both have closed it") {
        const TemporaryFolder folder;
        Bench bench;
        const auto first = bench.files.open(folder.path("a.log"));
        const auto second = bench.files.open(folder.path("a.log"));

        bench.files.append(first, "first\n");
        bench.files.close(first);
        bench.files.append(second, "second\n");
        bench.files.close(second);
        bench.finish();

        CHECK(read_file(folder.path("a.log")) == "first\nsecond\n");
    }

    TEST_CASE("a file at its largest size is renamed at the end of a line and begun anew") {
        const TemporaryFolder folder;
        Bench bench({.size_max = 10});
        const auto file = bench.files.open(folder.path("a.log"));

        bench.files.append(file, "12345\n789\nabcdef\nxy");
        bench.finish();

        CHECK(read_file(folder.path("a.log.1")) == "12345\n789\n");
        CHECK(read_file(folder.path("a.log")) == "abcdef\nxy");
    }

    TEST_CASE("a line longer than a file may be is cut, and nothing of it is lost") {
        const TemporaryFolder folder;
        Bench bench({.size_max = 4});
        const auto file = bench.files.open(folder.path("a.log"));

        bench.files.append(file, "abcdefghij\n");
        bench.finish();

        CHECK(
            read_file(folder.path("a.log.2")) + read_file(folder.path("a.log.1")) +
                read_file(folder.path("a.log")) ==
            "abcdefghij\n"
        );
    }

    TEST_CASE("only so many older parts are kept") {
        const TemporaryFolder folder;
        Bench bench({.size_max = 2});
        const auto file = bench.files.open(folder.path("a.log"));

        bench.files.append(file, "1\n2\n3\n4\n5\n6\n7\n");
        bench.finish();

        CHECK(read_file(folder.path("a.log")) == "7\n");
        CHECK(read_file(folder.path("a.log.1")) == "6\n");
        CHECK(read_file(folder.path(fmt::format("a.log.{}", limits::kRotatedLogsMax))) == "3\n");
        CHECK(read_file(folder.path(fmt::format("a.log.{}", limits::kRotatedLogsMax + 1))) == "");
    }

    TEST_CASE("a disk that is full is said once, and what it refused is counted") {
        const TemporaryFolder folder;
        Bench bench;
        const auto full = bench.files.open(folder.path("full.log"));
        const auto other = bench.files.open(folder.path("other.log"));
        {
            const FileSizeLimit limit(8);
            bench.files.append(full, "12345678more");
            bench.files.append(other, "fits");
            bench.finish();
            bench.files.append(full, "again");
            bench.finish();
        }
        bench.files.append(full, "!");
        bench.finish();

        CHECK(read_file(folder.path("full.log")) == "12345678!");
        CHECK(read_file(folder.path("other.log")) == "fits");
        const std::string path = folder.path("full.log");
        CHECK(
            bench.log.lines ==
            std::vector<std::string>{
                "write " + path +
                    ": File too large; the job goes on, its log files are not complete",
                "4 bytes of the workers' output are missing in their log files",
                "5 bytes of the workers' output are missing in their log files",
            }
        );
    }

    TEST_CASE("a file that can't be made is said with its reason") {
        const TemporaryFolder folder;
        Bench bench;
        const auto file = bench.files.open(folder.path("missing/a.log"));

        bench.files.append(file, "x");
        bench.finish();

        REQUIRE(bench.log.lines.size() == 2);
        CHECK(
            bench.log.lines[0] ==
            "open " + folder.path("missing/a.log") +
                ": No such file or directory; the job goes on, its log files are not complete"
        );
    }

    TEST_CASE("a full queue asks to wait, and says when there is room again") {
        const TemporaryFolder folder;
        Bench bench;
        const auto file = bench.files.open(folder.path("a.log"));
        const std::string much(limits::kLogBytesQueuedMax + 1, 'x');

        bench.files.append(file, much);
        while (bench.rooms == 0 && bench.files.full(file)) {
            bench.io_context.restart();
            bench.io_context.run_one();
        }
        bench.finish();

        CHECK_FALSE(bench.files.full(file));
        CHECK(read_file(folder.path("a.log")) == much);
    }

    TEST_CASE("a disk that takes nothing holds nobody up for longer than the bound") {
        const TemporaryFolder folder;
        const std::string path = folder.path("pipe");
        REQUIRE(::mkfifo(path.c_str(), 0600) == 0);  // whose opening waits for a reader: a stall
        Bench bench({.stall_max = std::chrono::milliseconds(20)});
        const auto file = bench.files.open(path);

        bench.files.append(file, std::string(limits::kLogQueueBytesMax + 1, 'x'));
        // The helper takes the first queue and stands still; the second one fills.
        while (bench.rooms == 0) {
            if (!bench.files.full(file)) {
                bench.files.append(file, std::string(limits::kLogQueueBytesMax + 1, 'y'));
                continue;
            }
            bench.io_context.restart();
            bench.io_context.run_one();
        }

        CHECK_FALSE(bench.files.full(file));
        bench.files.append(file, "dropped");
        REQUIRE(bench.log.lines.size() == 1);
        CHECK(bench.log.lines[0].starts_with("the disk of the workers' log files has taken nothing")
        );
        // The end of this process is not held up either: a reader comes only now, or never.
        const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        CHECK(reader >= 0);
    }
}
