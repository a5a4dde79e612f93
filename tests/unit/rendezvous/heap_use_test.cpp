#include "rendezvous/heap_use.h"

#include "proto/limits.h"

#include <doctest/doctest.h>

namespace ddprun {
namespace {

constexpr std::size_t kLittle = limits::kTrimBytesMin / 2;
constexpr std::size_t kMuch = 10 * limits::kTrimBytesMin;

TEST_SUITE_BEGIN("rendezvous/heap_use");

TEST_CASE("memory goes back once after much was freed") {
    HeapUse use;
    use.holds(kMuch, 1);
    CHECK_FALSE(use.is_due());

    use.holds(kLittle, 1);
    CHECK(use.is_due());

    use.trimmed();
    CHECK_FALSE(use.is_due());
    use.holds(0, 1);
    CHECK_FALSE(use.is_due());
}

TEST_CASE("many small falls count together and what comes and goes doesn't count twice") {
    HeapUse use;
    for (std::size_t bytes = kMuch; bytes > kMuch - limits::kTrimBytesMin; bytes -= kLittle) {
        use.holds(bytes, 1);
        CHECK_FALSE(use.is_due());
    }
    use.holds(kMuch, 1);
    CHECK_FALSE(use.is_due());

    use.holds(kMuch - limits::kTrimBytesMin, 1);
    CHECK(use.is_due());
}

TEST_CASE("memory stays where too many pieces live until they have gone") {
    HeapUse use;
    use.holds(kMuch, limits::kTrimPiecesMax + 1);
    use.holds(kLittle, limits::kTrimPiecesMax + 1);
    CHECK_FALSE(use.is_due());

    use.holds(kLittle, limits::kTrimPiecesMax);
    CHECK(use.is_due());
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun
