// Stand-in for a header of gloo, which LibTorch is built with but does not ship.
// Devices and buffers are held by pointer only.
#pragma once

namespace gloo::transport {

class Device;

class UnboundBuffer {
public:
    virtual ~UnboundBuffer() = default;
};

}  // namespace gloo::transport
