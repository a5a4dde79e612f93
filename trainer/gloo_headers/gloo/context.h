// Stand-in for a header of gloo, which LibTorch is built with but does not ship.
// ProcessGroupGloo.hpp holds contexts by pointer and names one member function. Never instantiated
// here: the objects are made inside libtorch_cpu.
#pragma once

#include <chrono>

namespace gloo {

class Context {
public:
    void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo
