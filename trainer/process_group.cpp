#include "trainer/process_group.h"

#include "trainer/local_address.h"
#include "trainer/store.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/torch.h>

#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace ddprun::trainer {
namespace {

using c10d::ProcessGroup;
using c10d::ProcessGroupGloo;

/// Python's time-outs of a collective; a lost peer is noticed by its closed connection long before.
constexpr std::chrono::minutes kGlooTimeout{30};
constexpr std::chrono::minutes kNcclTimeout{10};
constexpr const char* kGroupPrefix = "default_pg";

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

c10::intrusive_ptr<c10d::Backend> make_gloo(
    const StorePtr& store, int rank, int world_size, const std::string& local_address
) {
    auto options = ProcessGroupGloo::Options::create(kGlooTimeout);
    // Python's binding reads this variable, the C++ class doesn't.
    if (const auto names = process_environment("GLOO_SOCKET_IFNAME"); names && !names->empty()) {
        for (const auto& name : split_commas(*names)) {
            options->devices.push_back(ProcessGroupGloo::createDeviceForInterface(name));
        }
    } else {
        // Never createDefaultDevice: it resolves the host name, which fails in containers.
        options->devices.push_back(ProcessGroupGloo::createDeviceForHostname(local_address));
    }
    options->threads = static_cast<int>(options->devices.size()) * 2;
    return c10::make_intrusive<ProcessGroupGloo>(store, rank, world_size, options);
}

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
    group->setBoundDeviceId(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(place.local_rank)));
    const auto part = [&prefixed](const char* name) {
        return c10::make_intrusive<c10d::PrefixStore>(name, prefixed);
    };
    group->setBackend(
        at::kCPU,
        ProcessGroup::BackendType::GLOO,
        make_gloo(part("cpu"), place.rank, place.world_size, *address)
    );
    const NcclOptions nccl{
        .rank = place.rank,
        .world_size = place.world_size,
        .device = place.local_rank,
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
    if (place.alone()) {
        return WorkerGroup{};
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

ProcessGroupPtr make_gloo_group(
    const StorePtr& store, int rank, int world_size, const std::string& local_address
) {
    auto group = c10::make_intrusive<ProcessGroup>(store, rank, world_size);
    group->setBackend(
        at::kCPU, ProcessGroup::BackendType::GLOO, make_gloo(store, rank, world_size, local_address)
    );
    group->setDefaultBackend(ProcessGroup::BackendType::GLOO);
    group->setGroupName("0");
    return group;
}

void all_reduce_sum(const ProcessGroupPtr& group, at::Tensor& tensor) {
    if (group) {
        std::vector<at::Tensor> tensors{tensor};
        group->allreduce(tensors)->wait();
    }
}

void broadcast(const ProcessGroupPtr& group, at::Tensor& tensor, int root) {
    if (group) {
        std::vector<at::Tensor> tensors{tensor};
        c10d::BroadcastOptions options;
        options.rootRank = root;
        group->broadcast(tensors, options)->wait();
    }
}

void barrier(const ProcessGroupPtr& group) {
    // A sum over one number: Gloo's own barrier makes a tensor of every back end's device.
    at::Tensor one = torch::ones({1});
    all_reduce_sum(group, one);
}

std::string describe(const std::exception& exception) {
    std::string text = exception.what();
    if (const auto* error = dynamic_cast<const c10::Error*>(&exception)) {
        text = error->what_without_backtrace();
    }
    return text.substr(0, text.find('\n'));
}

}  // namespace ddprun::trainer
