// For tests of the store's dialect: one sample of each request, bytes from hex, and buffers of
// exactly the size of their content, so that the address sanitizer sees a read past the end.
#pragma once

#include "proto/store_messages.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

/// Blanks between digits are skipped.
inline std::string from_hex(std::string_view text) {
    std::string bytes;
    int high = -1;
    for (const char character : text) {
        if (character == ' ') {
            continue;
        }
        const int digit = character <= '9' ? character - '0' : (character | 0x20) - 'a' + 10;
        if (high < 0) {
            high = digit;
        } else {
            bytes.push_back(static_cast<char>(16 * high + digit));
            high = -1;
        }
    }
    return bytes;
}

/// A heap buffer without a byte of slack.
class ExactBuffer {
public:
    explicit ExactBuffer(std::string_view bytes)
        : bytes_(std::make_unique<char[]>(bytes.size())),
          size_(bytes.size()) {
        std::copy(bytes.begin(), bytes.end(), bytes_.get());
    }

    [[nodiscard]] std::string_view view() const { return {bytes_.get(), size_}; }

private:
    std::unique_ptr<char[]> bytes_;
    std::size_t size_;
};

/// One of each, in the order of the opcodes.
inline std::vector<StoreRequest> sample_requests() {
    return {
        ValidateRequest{kStoreMagic},
        SetRequest{"/key", "value"},
        CompareSetRequest{"/key", "expected", "desired"},
        GetRequest{"/key"},
        AddRequest{"/counter", -7},
        CheckRequest{{"/a", "", "/c"}},
        WaitRequest{{"/a", "/b"}},
        NumKeysRequest{},
        DeleteKeyRequest{"/key"},
        AppendRequest{"/key", "more"},
        MultiGetRequest{{"/a", "/b", "/c"}},
        MultiSetRequest{{{"/a", "1"}, {"/b", ""}}},
        CancelWaitRequest{},
        PingRequest{42},
        QueuePushRequest{"/queue", "item"},
        QueuePopRequest{"/queue"},
        QueueLengthRequest{"/queue"},
        ListKeysRequest{},
        BarrierRequest{"/barrier", 3},
    };
}

}  // namespace ddprun
