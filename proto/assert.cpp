#include "proto/assert.h"

#include <cstdio>
#include <cstdlib>

namespace ddprun {

void assertion_failed(const char* expression, const char* file, int line) {
    // Nothing is left to report a failed write to.
    static_cast<void>(
        std::fprintf(stderr, "ddprun: assertion failed: %s (%s:%d)\n", expression, file, line)
    );
    std::abort();
}

}  // namespace ddprun
