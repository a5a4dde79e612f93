#include "rendezvous/reply_buffer.h"

#include "tests/support/store_samples.h"

#include <doctest/doctest.h>

#include <memory>
#include <string>

namespace ddprun {
namespace {

TEST_SUITE_BEGIN("rendezvous/reply_buffer");

TEST_CASE("small things are one piece and large values are pieces of their own") {
    ReplyBuffer buffer;
    buffer.byte(7);
    buffer.number(2);
    buffer.value(StoreValue("ab"));
    CHECK(buffer.front(10).size() == 1);
    CHECK(buffer.only_piece() == from_hex("07 0200000000000000 0200000000000000 6162"));

    buffer.value(StoreValue(std::string(10'000, 'x')));

    CHECK(buffer.front(10).size() == 2);
    CHECK(buffer.front(1).size() == 1);
    CHECK(buffer.only_piece().empty());
    CHECK(buffer.size() == 27 + 10'000);
}

TEST_CASE("what is written in any steps leaves the rest as it was") {
    for (std::size_t step = 1; step < 40; ++step) {
        ReplyBuffer buffer;
        for (int i = 0; i < 5; ++i) {
            buffer.value(StoreValue(std::to_string(i)));
            buffer.value(StoreValue(std::string(5'000, 'x')));
        }
        const std::string all = buffer.text();
        std::string written;
        while (!buffer.empty()) {
            const std::size_t count = std::min(step * 100, buffer.size());
            written += buffer.text().substr(0, count);
            buffer.consume(count);
            CHECK(buffer.size() == all.size() - written.size());
        }

        CHECK(written == all);
    }
}

TEST_CASE("a shared value is let go when it has been written") {
    const auto value = StoreValue(std::string(5'000, 'x'));
    ReplyBuffer buffer;
    buffer.value(value);
    buffer.byte(1);
    CHECK(value.holders() == 2);

    buffer.consume(8 + 5'000);

    CHECK(value.holders() == 1);
    CHECK(buffer.text() == from_hex("01"));
}

TEST_CASE("a buffer that is never quite empty doesn't grow") {
    ReplyBuffer buffer;
    const auto value = StoreValue(std::string(5'000, 'x'));
    for (int i = 0; i < 10'000; ++i) {
        buffer.number(i);
        buffer.value(value);
        buffer.consume(i == 0 ? 100 : 5'016);
    }

    CHECK(buffer.size() == 5'016 - 100);
    CHECK(buffer.own_bytes() < 200'000);
}

TEST_CASE("small replies to a client that is never quite done don't grow the buffer") {
    ReplyBuffer buffer;
    for (int i = 0; i < 1'000'000; ++i) {
        buffer.number(i);
        buffer.consume(i == 0 ? 1 : 8);
    }

    CHECK(buffer.size() == 7);
    CHECK(buffer.own_bytes() < 500'000);
}

TEST_CASE("an emptied buffer keeps next to nothing") {
    ReplyBuffer buffer;
    buffer.bytes(std::string(100'000, 'x'));

    buffer.consume(buffer.size());

    CHECK(buffer.own_bytes() < 1'000);
    CHECK(buffer.empty());
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun
