#include "launcher/line_writer.h"

#include <doctest/doctest.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <memory>
#include <string>

namespace ddprun::launcher {
namespace {

/// Two ends, of a pipe or of a stream socket; [0] is read from.
struct Ends {
    explicit Ends(bool is_socket) {
        REQUIRE(
            (is_socket ? ::socketpair(AF_UNIX, SOCK_STREAM, 0, fds.data()) : ::pipe(fds.data())) ==
            0
        );
        REQUIRE(::fcntl(fds[0], F_SETFL, O_NONBLOCK) == 0);
    }

    Ends(const Ends&) = delete;
    Ends& operator=(const Ends&) = delete;

    ~Ends() {
        close_reader();
        ::close(fds[1]);
    }

    void close_reader() {
        if (fds[0] >= 0) {
            ::close(fds[0]);
        }
        fds[0] = -1;
    }

    /// All that is there now.
    [[nodiscard]] std::string read() const {
        std::string all;
        std::array<char, 65'536> bytes{};
        for (ssize_t size = 0; (size = ::read(fds[0], bytes.data(), bytes.size())) > 0;) {
            all.append(bytes.data(), static_cast<std::size_t>(size));
        }
        return all;
    }

    std::array<int, 2> fds{-1, -1};
};

const std::string kLine = std::string(999, 'x') + "\n";

/// Enough to fill the descriptor and the queue.
constexpr int kMany = 2'000;

TEST_SUITE_BEGIN("launcher/line_writer");

TEST_CASE("a line that can be written is written at once") {
    for (const bool is_socket : {false, true}) {
        const Ends ends(is_socket);
        LineWriter writer(ends.fds[1]);

        writer.write("one\n");

        CHECK(ends.read() == "one\n");
    }
}

TEST_CASE("a reader that stands still costs one moment, not one for each line") {
    for (const bool is_socket : {false, true}) {
        const Ends ends(is_socket);
        LineWriter writer(ends.fds[1]);
        const auto start = std::chrono::steady_clock::now();

        for (int i = 0; i < kMany; ++i) {
            writer.write(kLine);
        }

        CHECK(writer.lost() > 0);
        CHECK(std::chrono::steady_clock::now() - start < kMany * kLinePatience / 10);
        static_cast<void>(ends.read());
    }
}

TEST_CASE(
    "lines that were kept come whole and in order, those that are lost are counted in their place"
) {
    for (const bool is_socket : {false, true}) {
        const Ends ends(is_socket);
        std::string read;
        std::size_t lost = 0;
        {
            LineWriter writer(ends.fds[1]);
            for (int i = 0; i < kMany; ++i) {
                writer.write(kLine);
            }
            lost = writer.lost();
            for (int i = 0; i < kMany && writer.lost() == lost && read.find("last\n") == read.npos;
                 ++i) {
                read += ends.read();
                writer.write("last\n");
            }
            read += ends.read();
        }
        read += ends.read();

        REQUIRE(lost > 0);
        const std::string note = "(" + std::to_string(lost) + " lines are missing here";
        const std::size_t place = read.find(note);
        REQUIRE(place != std::string::npos);
        CHECK(place == (kMany - lost) * kLine.size());
        CHECK(read.find("last\n", place) != std::string::npos);
        CHECK(read.find(note, place + 1) == std::string::npos);
    }
}

TEST_CASE("what is left is written at the end, when somebody reads again") {
    const Ends ends(false);
    auto writer = std::make_unique<LineWriter>(ends.fds[1]);
    while (writer->lost() == 0) {
        writer->write(kLine);
    }
    const std::string before = ends.read();

    writer.reset();

    CHECK_FALSE(before.empty());
    CHECK(ends.read().size() >= 50'000);  // a pipe takes 64 KiB
}

TEST_CASE("a reader that has gone is no error") {
    struct sigaction ignore {};

    struct sigaction before {};

    ignore.sa_handler = SIG_IGN;
    REQUIRE(::sigaction(SIGPIPE, &ignore, &before) == 0);
    for (const bool is_socket : {false, true}) {
        Ends ends(is_socket);
        LineWriter writer(ends.fds[1]);
        ends.close_reader();

        for (int i = 0; i < kMany; ++i) {
            writer.write(kLine);
        }

        CHECK(writer.lost() == 0);  // nobody is there to miss it
    }
    REQUIRE(::sigaction(SIGPIPE, &before, nullptr) == 0);
}

TEST_CASE("a descriptor that is closed is no error") {
    const int fd = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    LineWriter writer(fd);
    ::close(fd);

    writer.write("line\n");

    CHECK(writer.lost() == 0);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::launcher
