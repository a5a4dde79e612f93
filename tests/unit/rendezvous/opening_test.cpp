#include "rendezvous/opening.h"

#include "proto/agent_messages.h"
#include "proto/store_messages.h"

#include <doctest/doctest.h>

#include <string>

namespace ddprun {
namespace {

std::string greeting() {
    std::string bytes;
    encode_request(ValidateRequest{kStoreMagic}, bytes);
    return bytes;
}

TEST_SUITE_BEGIN("rendezvous/opening");

TEST_CASE("a client of the store is known by its greeting, cut anywhere or with more behind it") {
    const std::string bytes = greeting();
    for (std::size_t size = 1; size <= bytes.size(); ++size) {
        CHECK(opening_of(bytes.substr(0, size)) == Opening::store);
    }
    CHECK(opening_of(bytes + "whatever") == Opening::store);
}

TEST_CASE("each wrong byte of a greeting is seen at once") {
    const std::string bytes = greeting();
    for (std::size_t at = 1; at < bytes.size(); ++at) {
        std::string wrong = bytes;
        wrong[at] = static_cast<char>(wrong[at] ^ 1);
        CHECK(opening_of(wrong) == Opening::wrong_magic);
        CHECK(opening_of(wrong.substr(0, at + 1)) == Opening::wrong_magic);
    }
}

TEST_CASE("an agent is known by its first byte") {
    CHECK(opening_of({kAgentMagic, 1}) == Opening::agent);
    CHECK(opening_of({kAgentMagic, sizeof kAgentMagic}) == Opening::agent);
}

TEST_CASE("a method of HTTP needs its blank") {
    for (const char* request : {"GET / HTTP/1.1\r\n", "HEAD ", "OPTIONS * HTTP/1.1", "PUT /x"}) {
        CAPTURE(request);
        CHECK(opening_of(request) == Opening::http);
    }
    for (const char* begin : {"G", "GET", "P", "OPTION"}) {
        CAPTURE(begin);
        CHECK(opening_of(begin) == Opening::incomplete);
    }
    CHECK(opening_of("GETTER") == Opening::stranger);
}

TEST_CASE("others are strangers from their first bytes") {
    for (const char* bytes : {"SSH-2.0-OpenSSH_9.2", "\x16\x03\x01", "get / HTTP/1.1", "\x01"}) {
        CAPTURE(bytes);
        CHECK(opening_of(bytes) == Opening::stranger);
    }
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun
