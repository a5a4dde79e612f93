#include "proto/store_messages.h"

#include "tests/support/store_samples.h"

#include <doctest/doctest.h>

#include <memory>
#include <string>

namespace ddprun {
namespace {

TEST_SUITE_BEGIN("proto/store_messages");

std::string bytes_of(const StoreRequest& request) {
    std::string bytes;
    encode_request(request, bytes);
    return bytes;
}

TEST_CASE("the first bytes of a client are those of PyTorch's") {
    CHECK(bytes_of(ValidateRequest{kStoreMagic}) == from_hex("00 CE F7 85 3C"));
    CHECK(bytes_of(PingRequest{42}) == from_hex("0D 2A000000"));
}

TEST_CASE("requests have the bytes of the protocol's table") {
    CHECK(
        bytes_of(SetRequest{"/k", "ab"}) ==
        from_hex("01 0200000000000000 2F6B 0200000000000000 6162")
    );
    CHECK(bytes_of(AddRequest{"/n", -7}) == from_hex("04 0200000000000000 2F6E F9FFFFFFFFFFFFFF"));
    CHECK(
        bytes_of(WaitRequest{{"/a", "/b"}}) ==
        from_hex("06 0200000000000000 0200000000000000 2F61 0200000000000000 2F62")
    );
    CHECK(
        bytes_of(MultiSetRequest{{{"/a", "x"}}}) ==
        from_hex("0B 0100000000000000 0200000000000000 2F61 0100000000000000 78")
    );
    CHECK(bytes_of(CancelWaitRequest{}) == from_hex("0C"));
    CHECK(bytes_of(ListKeysRequest{}) == from_hex("11"));
    CHECK(
        bytes_of(BarrierRequest{"/b", 2}) == from_hex("12 0200000000000000 2F62 0200000000000000")
    );
}

TEST_CASE("opcodes are the alternatives' places, 0 to 18") {
    const auto samples = sample_requests();

    REQUIRE(samples.size() == 19);
    for (std::size_t opcode = 0; opcode < samples.size(); ++opcode) {
        CHECK(static_cast<std::size_t>(bytes_of(samples[opcode]).front()) == opcode);
        CHECK(layout_of(static_cast<std::uint8_t>(opcode)) != nullptr);
    }
    CHECK(layout_of(19) == nullptr);
    CHECK(layout_of(255) == nullptr);
}

TEST_CASE("a request that is decoded and encoded again has the same bytes") {
    for (const StoreRequest& request : sample_requests()) {
        const std::string bytes = bytes_of(request);

        const auto decoded = decode_request(bytes);

        REQUIRE(decoded);
        CHECK(decoded->index() == request.index());
        CHECK(bytes_of(*decoded) == bytes);
    }
}

TEST_CASE("a request that is cut anywhere is malformed and is never read past its end") {
    for (const StoreRequest& request : sample_requests()) {
        const std::string bytes = bytes_of(request);
        for (std::size_t size = 0; size < bytes.size(); ++size) {
            const ExactBuffer cut{std::string_view{bytes}.substr(0, size)};

            const auto decoded = decode_request(cut.view());

            CHECK_FALSE(decoded);
        }
    }
}

TEST_CASE("a request with a byte too many is malformed") {
    for (const StoreRequest& request : sample_requests()) {
        const auto decoded = decode_request(bytes_of(request) + "x");

        CHECK_FALSE(decoded);
    }
}

TEST_CASE("a giant announced length or count is malformed and allocates nothing") {
    for (const char* length :
         {"0000008000000000", "0000000000010000", "0000000000000080", "FFFFFFFFFFFFFFFF"}) {
        CHECK_FALSE(decode_request(from_hex("01") + from_hex(length) + "key"));
        CHECK_FALSE(decode_request(from_hex("06") + from_hex(length)));
        CHECK_FALSE(decode_request(from_hex("0B") + from_hex(length)));
    }
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun
