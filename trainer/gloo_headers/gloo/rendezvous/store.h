// Stand-in for a header of gloo, which LibTorch is built with but does not ship.
// The abstract base of ProcessGroupGloo::GlooStore, which we never instantiate.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace gloo::rendezvous {

class Store {
public:
    virtual ~Store() = default;
    virtual void set(const std::string& key, const std::vector<char>& value) = 0;
    virtual std::vector<char> get(const std::string& key) = 0;
    virtual void wait(const std::vector<std::string>& keys) = 0;
    virtual void wait(
        const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout
    ) = 0;
};

}  // namespace gloo::rendezvous
