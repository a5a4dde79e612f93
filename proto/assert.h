// DDPRUN_ASSERT: a programmer's error ends the program with the expression and its place. On in
// every build.
#pragma once

namespace ddprun {

/// Prints "assertion failed: EXPRESSION (FILE:LINE)" to stderr and aborts.
[[noreturn]] void assertion_failed(const char* expression, const char* file, int line);

}  // namespace ddprun

#define DDPRUN_ASSERT(condition)        \
    ((condition) ? static_cast<void>(0) \
                 : ::ddprun::assertion_failed(#condition, __FILE__, __LINE__))
