// A process group over Gloo, which LibTorch ships without the headers that its use needs.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <string>

namespace c10d {
class Backend;
class ProcessGroup;
class Store;
}  // namespace c10d

namespace ddprun::trainer {

/// Connects all ranks, over the interface that has `local_address` (numeric), or those that
/// GLOO_SOCKET_IFNAME names. The store must be one that no earlier start of the job has used.
/// Blocks, for good when a peer dies in it; throws c10::Error.
[[nodiscard]] c10::intrusive_ptr<c10d::ProcessGroup> make_gloo_group(
    const c10::intrusive_ptr<c10d::Store>& store,
    int rank,
    int world_size,
    const std::string& local_address
);

/// The back end alone, for a group of several.
[[nodiscard]] c10::intrusive_ptr<c10d::Backend> make_gloo_backend(
    const c10::intrusive_ptr<c10d::Store>& store,
    int rank,
    int world_size,
    const std::string& local_address
);

}  // namespace ddprun::trainer
