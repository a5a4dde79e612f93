// A long text of one character. Written out as `const std::string value(size, 'v')` it is a
// constant expression in C++20 that g++ evaluates byte by byte while it compiles: half a minute for
// 8 MiB.
#pragma once

#include <cstddef>
#include <string>

namespace ddprun::test {

[[nodiscard]] inline std::string filled(std::size_t size, char with) {
    return std::string(size, with);
}

}  // namespace ddprun::test
