#include "trainer/gloo_group.h"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <vector>

namespace ddprun::trainer {
namespace {

using c10d::ProcessGroup;
using c10d::ProcessGroupGloo;

/// Python's time-out of a collective; a lost peer is noticed by its closed connection long before.
constexpr std::chrono::minutes kGlooTimeout{30};

std::vector<std::string> split_commas(const std::string& text) {
    std::vector<std::string> parts;
    std::size_t begin = 0;
    while (begin <= text.size()) {
        const std::size_t end = std::min(text.find(',', begin), text.size());
        if (end > begin) {
            parts.push_back(text.substr(begin, end - begin));
        }
        begin = end + 1;
    }
    return parts;
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_gloo_backend(
    const c10::intrusive_ptr<c10d::Store>& store,
    int rank,
    int world_size,
    const std::string& local_address
) {
    auto options = ProcessGroupGloo::Options::create(kGlooTimeout);
    // Python's binding reads this variable, the C++ class doesn't.
    const char* const names = std::getenv("GLOO_SOCKET_IFNAME");
    if (names != nullptr && *names != '\0') {
        for (const auto& name : split_commas(names)) {
            options->devices.push_back(ProcessGroupGloo::createDeviceForInterface(name));
        }
    } else {
        // Never createDefaultDevice: it resolves the host name, which fails in containers.
        options->devices.push_back(ProcessGroupGloo::createDeviceForHostname(local_address));
    }
    options->threads = static_cast<int>(options->devices.size()) * 2;
    return c10::make_intrusive<ProcessGroupGloo>(store, rank, world_size, options);
}

c10::intrusive_ptr<ProcessGroup> make_gloo_group(
    const c10::intrusive_ptr<c10d::Store>& store,
    int rank,
    int world_size,
    const std::string& local_address
) {
    auto group = c10::make_intrusive<ProcessGroup>(store, rank, world_size);
    group->setBackend(
        at::kCPU,
        ProcessGroup::BackendType::GLOO,
        make_gloo_backend(store, rank, world_size, local_address)
    );
    group->setDefaultBackend(ProcessGroup::BackendType::GLOO);
    group->setGroupName("0");
    return group;
}

}  // namespace ddprun::trainer
