// Any C++ program on LibTorch's own store client: every rank counts itself in and waits for the
// others.
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

namespace {

// The environment is read before there is a second thread.
std::string variable(const char* name) {
    const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
    return value == nullptr ? std::string{} : std::string{value};
}

}  // namespace

int main() {
    try {
        c10d::TCPStoreOptions options;
        options.port = static_cast<std::uint16_t>(std::stoi(variable("MASTER_PORT")));
        options.isServer = false;
        c10d::TCPStore store{variable("MASTER_ADDR"), options};
        const std::int64_t world_size = std::stoll(variable("WORLD_SIZE"));
        if (store.add("here", 1) == world_size) {
            store.set("all", std::vector<std::uint8_t>{1});
        }
        store.wait({"all"});
        std::printf(
            "rank %s met %lld\n", variable("RANK").c_str(), static_cast<long long>(world_size)
        );
    } catch (const std::exception& error) {
        std::fprintf(stderr, "libtorch_store_worker: %s\n", error.what());
        return 1;
    }
    return 0;
}
