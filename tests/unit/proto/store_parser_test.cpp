#include "proto/store_parser.h"

#include "proto/limits.h"
#include "tests/support/filled.h"
#include "tests/support/store_samples.h"

#include <doctest/doctest.h>

#include <string>

namespace ddprun {
namespace {

using Status = StoreParser::Status;

std::string bytes_of(const StoreRequest& request) {
    std::string bytes;
    encode_request(request, bytes);
    return bytes;
}

std::string number(std::uint64_t value) {
    std::string bytes;
    for (int i = 0; i < 8; ++i) {
        bytes.push_back(static_cast<char>(static_cast<unsigned char>(value >> (8 * i))));
    }
    return bytes;
}

TEST_SUITE_BEGIN("proto/store_parser");

TEST_CASE("a request is complete with its last byte and not before, wherever it is cut") {
    for (const StoreRequest& request : sample_requests()) {
        const std::string bytes = bytes_of(request);
        for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
            StoreParser parser;
            const ExactBuffer first{std::string_view{bytes}.substr(0, cut)};

            CHECK(parser.look(first.view()) == Status::incomplete);
            CHECK(parser.look(bytes) == Status::complete);
            CHECK(parser.size() == bytes.size());
        }
    }
}

TEST_CASE("a request that comes byte by byte is complete with its last byte") {
    for (const StoreRequest& request : sample_requests()) {
        const std::string bytes = bytes_of(request);
        StoreParser parser;
        for (std::size_t size = 0; size < bytes.size(); ++size) {
            CHECK(
                parser.look(ExactBuffer{std::string_view{bytes}.substr(0, size)}.view()) ==
                Status::incomplete
            );
        }

        CHECK(parser.look(bytes) == Status::complete);
    }
}

TEST_CASE("bytes of the next request are left alone") {
    const std::string first = bytes_of(SetRequest{"/k", "v"});
    const std::string both = first + bytes_of(GetRequest{"/k"});
    StoreParser parser;

    CHECK(parser.look(both) == Status::complete);
    CHECK(parser.size() == first.size());
    parser.reset();
    CHECK(parser.look(std::string_view{both}.substr(first.size())) == Status::complete);
    CHECK(parser.size() == both.size() - first.size());
}

TEST_CASE("an unknown opcode is an offence") {
    for (const char opcode : {'\x13', '\x63', '\xFF'}) {
        StoreParser parser;

        CHECK(parser.look({&opcode, 1}) == Status::offence);
        CHECK(parser.reason() == "unknown opcode");
    }
}

TEST_CASE("a key of the limit passes and a longer one is an offence with its length alone") {
    const std::string longest = test::filled(limits::kKeyBytesMax, 'k');
    StoreParser parser;
    CHECK(parser.look(bytes_of(GetRequest{longest})) == Status::complete);

    parser.reset();
    CHECK(parser.look("\x03" + number(limits::kKeyBytesMax + 1)) == Status::offence);
    CHECK(parser.reason() == "a key is longer than the limit");
}

TEST_CASE("a value of the limit passes and a longer one is an offence with its length alone") {
    const std::string longest = test::filled(limits::kValueBytesMax, 'v');
    StoreParser parser;
    CHECK(parser.look(bytes_of(SetRequest{"/k", longest})) == Status::complete);

    parser.reset();
    const std::string head = bytes_of(GetRequest{"/k"}).substr(1);
    CHECK(parser.look("\x01" + head + number(limits::kValueBytesMax + 1)) == Status::offence);
    CHECK(parser.reason() == "a value is longer than the limit");
}

TEST_CASE("lengths of 2^31 2^40 2^63 and 2^64-1 are offences") {
    for (const std::uint64_t length :
         {std::uint64_t{1} << 31,
          std::uint64_t{1} << 40,
          std::uint64_t{1} << 63,
          ~std::uint64_t{0}}) {
        for (const char opcode : {'\x01', '\x03', '\x05', '\x06', '\x0A', '\x0B', '\x0E'}) {
            StoreParser parser;

            CHECK(parser.look(opcode + number(length)) == Status::offence);
        }
    }
}

TEST_CASE("131072 keys pass and one more is an offence with the count alone") {
    std::string bytes = "\x06" + number(limits::kKeysPerRequestMax);
    for (std::size_t i = 0; i < limits::kKeysPerRequestMax; ++i) {
        bytes += number(1) + "k";
    }
    StoreParser parser;
    CHECK(parser.look(bytes) == Status::complete);
    CHECK(parser.size() == bytes.size());

    parser.reset();
    CHECK(parser.look("\x06" + number(limits::kKeysPerRequestMax + 1)) == Status::offence);
    CHECK(parser.reason() == "a request has more keys than the limit");
}

TEST_CASE("a request beyond the limit as a whole is an offence before its bytes are there") {
    const std::string value = test::filled(limits::kValueBytesMax, 'v');
    const std::string pair = number(2) + "/k" + number(value.size()) + value;
    std::string bytes = "\x0B" + number(9);
    for (int i = 0; i < 7; ++i) {
        bytes += pair;
    }
    StoreParser parser;
    CHECK(parser.look(bytes) == Status::incomplete);

    bytes += number(2) + "/k" + number(value.size());
    CHECK(parser.look(bytes) == Status::offence);
    CHECK(parser.reason() == "a request is longer than the limit");
}

TEST_CASE("64 zero bytes are VALIDATEs with a wrong magic and not a crash") {
    const std::string bytes(64, '\0');
    StoreParser parser;

    CHECK(parser.look(bytes) == Status::complete);
    CHECK(parser.size() == 5);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun
