#include "tests/support/heap_counter.h"

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace {

std::size_t live = 0;
std::size_t peak = 0;

void* allocate(std::size_t size) {
    // NOLINTNEXTLINE(cppcoreguidelines-no-malloc): this is what new stands on here
    void* memory = std::malloc(std::max<std::size_t>(size, 1));
    if (memory == nullptr) {
        throw std::bad_alloc{};
    }
    live += ::malloc_usable_size(memory);
    peak = std::max(peak, live);
    return memory;
}

void release(void* memory) noexcept {
    if (memory != nullptr) {
        live -= ::malloc_usable_size(memory);
        std::free(memory);  // NOLINT(cppcoreguidelines-no-malloc)
    }
}

}  // namespace

void* operator new(std::size_t size) {
    return allocate(size);
}

void* operator new[](std::size_t size) {
    return allocate(size);
}

void operator delete(void* memory) noexcept {
    release(memory);
}

void operator delete[](void* memory) noexcept {
    release(memory);
}

void operator delete(void* memory, std::size_t) noexcept {
    release(memory);
}

void operator delete[](void* memory, std::size_t) noexcept {
    release(memory);
}

namespace ddprun {

std::size_t heap_bytes() {
    return live;
}

std::size_t heap_peak_bytes() {
    return peak;
}

void reset_heap_peak() {
    peak = live;
}

}  // namespace ddprun
