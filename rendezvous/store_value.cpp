#include "rendezvous/store_value.h"

#include "proto/assert.h"

#include <algorithm>
#include <limits>
#include <new>

namespace ddprun {

StoreValue::StoreValue(std::string_view name, std::string_view bytes, std::string_view more) {
    constexpr std::size_t kSizeMax = std::numeric_limits<std::uint32_t>::max();
    const std::size_t size = bytes.size() + more.size();
    DDPRUN_ASSERT(size <= kSizeMax && name.size() <= kSizeMax);
    void* memory = ::operator new(sizeof(Block) + size + name.size());
    block_ = ::new (memory)
        Block{1, static_cast<std::uint32_t>(size), static_cast<std::uint32_t>(name.size())};
    char* text = reinterpret_cast<char*>(block_ + 1);
    text = std::copy(bytes.begin(), bytes.end(), text);
    text = std::copy(more.begin(), more.end(), text);
    std::copy(name.begin(), name.end(), text);
}

}  // namespace ddprun
