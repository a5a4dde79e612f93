// Arbitrary bytes in arbitrary pieces into StoreParser: what it finds doesn't depend on the pieces,
// every whole request decodes and encodes to the same bytes, and nothing is read past the end
// (each piece lies in a buffer of exactly its size). The first byte seeds the cuts.
#include "proto/assert.h"
#include "proto/store_parser.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace ddprun;
using Status = StoreParser::Status;

/// Where the requests end, and whether an offence follows them.
struct Findings {
    std::vector<std::size_t> ends;
    bool is_offence = false;

    friend bool operator==(const Findings&, const Findings&) = default;
};

void check_round_trip(std::string_view request) {
    const auto decoded = decode_request(request);
    DDPRUN_ASSERT(decoded.has_value());
    std::string again;
    encode_request(*decoded, again);
    DDPRUN_ASSERT(again == request);
}

/// Parses as a connection does: `step(seen)` says how many more bytes come next.
template <class Step>
Findings parse(std::string_view bytes, Step step) {
    Findings findings;
    StoreParser parser;
    std::size_t begin = 0;
    for (std::size_t seen = 0; seen <= bytes.size(); seen += step(seen)) {
        while (true) {
            const std::vector<char> exact(
                bytes.begin() + static_cast<std::ptrdiff_t>(begin),
                bytes.begin() + static_cast<std::ptrdiff_t>(seen)
            );
            const std::string_view view{exact.data(), exact.size()};
            const Status status = parser.look(view);
            if (status == Status::incomplete) {
                break;
            }
            if (status == Status::offence) {
                DDPRUN_ASSERT(!parser.reason().empty());
                findings.is_offence = true;
                return findings;
            }
            check_round_trip(view.substr(0, parser.size()));
            begin += parser.size();
            findings.ends.push_back(begin);
            parser.reset();
        }
    }
    return findings;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0 || size > 4'096) {
        return 0;
    }
    std::uint32_t state = data[0];
    const std::string_view bytes{reinterpret_cast<const char*>(data) + 1, size - 1};

    const Findings at_once = parse(bytes, [&](std::size_t seen) {
        return seen == 0 && !bytes.empty() ? bytes.size() : bytes.size() + 1;
    });
    const Findings in_pieces = parse(bytes, [&](std::size_t seen) {
        state = state * 1'664'525U + 1'013'904'223U;
        const std::size_t step = 1 + (state >> 24U) % 16;
        const std::size_t left = bytes.size() - seen;
        return left > 0 ? std::min(step, left) : 1;
    });

    DDPRUN_ASSERT(at_once == in_pieces);
    return 0;
}
