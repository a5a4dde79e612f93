#include "trainer/process_group.h"

#include "trainer/gloo_group.h"
#include "trainer/local_address.h"
#include "trainer/store.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/torch.h>

#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace ddprun::trainer {
namespace {

using c10d::ProcessGroup;

/// Python's time-out of a collective.
constexpr std::chrono::minutes kNcclTimeout{10};
constexpr const char* kGroupPrefix = "default_pg";

Result<WorkerGroup> connect(const WorkerPlace& place, const GroupOptions& options) {
    const bool several_nodes = place.local_world_size != place.world_size;
    const auto address = local_address_towards(place.master_addr, place.master_port, several_nodes);
    if (!address) {
        return fail(address.error());
    }
    WorkerGroup result;
    auto store = connect_store(place, options.init_timeout);
    if (!store) {
        return fail(store.error());
    }
    result.store = *store;
    const auto prefixed = c10::make_intrusive<c10d::PrefixStore>(kGroupPrefix, result.store);
    if (options.gpu == nullptr) {
        result.group = make_gloo_group(prefixed, place.rank, place.world_size, *address);
        return result;
    }
    auto group = c10::make_intrusive<ProcessGroup>(prefixed, place.rank, place.world_size);
    group->setBoundDeviceId(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(options.device)));
    const auto part = [&prefixed](const char* name) {
        return c10::make_intrusive<c10d::PrefixStore>(name, prefixed);
    };
    group->setBackend(
        at::kCPU,
        ProcessGroup::BackendType::GLOO,
        make_gloo_backend(part("cpu"), place.rank, place.world_size, *address)
    );
    const NcclOptions nccl{
        .rank = place.rank,
        .world_size = place.world_size,
        .device = options.device,
        .timeout = kNcclTimeout};
    group->setBackend(
        at::kCUDA, ProcessGroup::BackendType::NCCL, options.gpu->make_nccl(part("cuda"), nccl)
    );
    group->setDefaultBackend(ProcessGroup::BackendType::NCCL);
    group->setGroupName("0");
    result.group = std::move(group);
    return result;
}

Result<WorkerGroup> connect_or_error(const WorkerPlace& place, const GroupOptions& options) {
    try {
        return connect(place, options);
    } catch (const std::exception& exception) {
        return fail(
            Errc::connection_lost,
            fmt::format(
                "set up the process group of {} workers over {}:{}: {}",
                place.world_size,
                place.master_addr,
                place.master_port,
                describe(exception)
            )
        );
    }
}

}  // namespace

Result<WorkerGroup> connect_group(const WorkerPlace& place, const GroupOptions& options) {
    if (place.alone() && !options.even_alone) {
        return WorkerGroup{};
    }
    if (place.master_addr.empty()) {
        return fail(
            Errc::invalid_argument,
            "--ddp: set up a process group of one: MASTER_ADDR and MASTER_PORT are not set; start "
            "the trainer by ddprun or torchrun"
        );
    }
    // Gloo's full-mesh connect can hang for good when a peer dies in it, and takes no deadline: it
    // runs in a thread of its own, which is left behind when time is up.
    std::promise<Result<WorkerGroup>> promise;
    auto future = promise.get_future();
    std::thread([place, options, promise = std::move(promise)]() mutable {
        promise.set_value(connect_or_error(place, options));
    }).detach();
    if (future.wait_for(options.init_timeout) == std::future_status::ready) {
        return future.get();
    }
    return fail(
        Errc::timed_out,
        fmt::format(
            "set up the process group of {} workers over {}:{}: not complete within {} s; a worker "
            "may have ended, or can't be reached (--init_timeout, GLOO_SOCKET_IFNAME)",
            place.world_size,
            place.master_addr,
            place.master_port,
            options.init_timeout.count()
        )
    );
}

std::string describe(const std::exception& exception) {
    std::string text = exception.what();
    if (const auto* error = dynamic_cast<const c10::Error*>(&exception)) {
        text = error->what_without_backtrace();
    }
    return text.substr(0, text.find('\n'));
}

}  // namespace ddprun::trainer
