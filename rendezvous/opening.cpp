#include "rendezvous/opening.h"

#include "proto/agent_messages.h"
#include "proto/store_messages.h"

#include <array>
#include <string>

namespace ddprun {

namespace {

Opening opening_as_http(std::string_view bytes) {
    constexpr auto kMethods = std::to_array<std::string_view>(
        {"GET ", "HEAD ", "POST ", "PUT ", "DELETE ", "OPTIONS ", "PATCH ", "CONNECT ", "TRACE "}
    );
    Opening opening = Opening::stranger;
    for (const std::string_view method : kMethods) {
        if (bytes.starts_with(method)) {
            return Opening::http;
        }
        if (method.starts_with(bytes)) {
            opening = Opening::incomplete;
        }
    }
    return opening;
}

}  // namespace

Opening opening_of(std::string_view bytes) {
    std::string greeting;
    encode_request(ValidateRequest{kStoreMagic}, greeting);
    if (bytes.front() == greeting.front()) {
        const bool is_right = bytes.starts_with(greeting) || greeting.starts_with(bytes);
        return is_right ? Opening::store : Opening::wrong_magic;
    }
    return bytes.front() == kAgentMagic[0] ? Opening::agent : opening_as_http(bytes);
}

}  // namespace ddprun
