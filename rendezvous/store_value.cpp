#include "rendezvous/store_value.h"

#include "proto/assert.h"

#include <algorithm>
#include <limits>
#include <new>

namespace ddprun {

StoreValue::StoreValue(std::string_view bytes, std::string_view more) {
    const std::size_t size = bytes.size() + more.size();
    DDPRUN_ASSERT(size <= std::numeric_limits<std::uint32_t>::max());
    void* memory = ::operator new(sizeof(Block) + size);
    block_ = ::new (memory) Block{1, static_cast<std::uint32_t>(size)};
    char* text = reinterpret_cast<char*>(block_ + 1);
    std::copy(more.begin(), more.end(), std::copy(bytes.begin(), bytes.end(), text));
}

}  // namespace ddprun
