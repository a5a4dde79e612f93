#include "agent/worker_environment.h"

#include "proto/worker_env.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace ddprun {

namespace {

using namespace worker_env;

constexpr std::string_view kTimerFile = "TORCHELASTIC_TIMER_FILE";

/// Set for each worker, or meant for the workers of an outer launcher only.
constexpr std::array kOwnVariables = {
    kRank,          kLocalRank,    kGroupRank,       kRoleRank,       kRoleName,
    kRoleWorldSize, kWorldSize,    kLocalWorldSize,  kGroupWorldSize, kMasterAddr,
    kMasterPort,    kRestartCount, kMaxRestarts,     kRunId,          kUseAgentStore,
    kErrorFile,     kTimerFile,    kSignalsToHandle, kRound,          kWorkerMark,
    kTty,           kMemoryDir,
};

std::string_view name_of(std::string_view entry) {
    return entry.substr(0, entry.find('='));
}

template <class Value>
void set(std::vector<std::string>& environment, std::string_view name, const Value& value) {
    environment.push_back(fmt::format("{}={}", name, value));
}

void replace(std::vector<std::string>& environment, std::string_view name, std::string_view value) {
    std::erase_if(environment, [&](const std::string& entry) { return name_of(entry) == name; });
    set(environment, name, value);
}

/// The `index`-th entry of a comma list without blanks around it; `index` itself for a short list,
/// which a program then reports better than a launcher can.
std::string device_of(std::optional<std::string_view> list, std::int32_t index) {
    if (!list) {
        return fmt::to_string(index);
    }
    std::string_view rest = *list;
    for (std::int32_t i = 0; i < index; ++i) {
        const std::size_t comma = rest.find(',');
        if (comma == std::string_view::npos) {
            return fmt::to_string(index);
        }
        rest.remove_prefix(comma + 1);
    }
    std::string device(rest.substr(0, rest.find(',')));
    std::erase(device, ' ');
    return device;
}

void set_ranks(
    std::vector<std::string>& environment, const EnvironmentSettings& settings, const WorkerRanks& r
) {
    set(environment, kRank, r.rank);
    set(environment, kLocalRank, settings.virtual_local_rank ? LocalRank{0} : r.local_rank);
    set(environment, kGroupRank, r.group_rank);
    set(environment, kRoleRank, r.role_rank);
    set(environment, kRoleName, settings.role);
    set(environment, kRoleWorldSize, r.role_world_size);
    set(environment, kWorldSize, r.world_size);
    set(environment, kLocalWorldSize, r.local_world_size);
    set(environment, kGroupWorldSize, r.group_world_size);
}

void set_defaults(
    std::vector<std::string>& environment, const EnvironmentSettings& settings, const WorkerRanks& r
) {
    if (!find_variable(environment, kNcclAsyncErrorHandling)) {
        set(environment, kNcclAsyncErrorHandling, 1);
    }
    if (settings.omp_num_threads) {
        replace(environment, kOmpNumThreads, fmt::to_string(*settings.omp_num_threads));
    } else if (!find_variable(environment, kOmpNumThreads)) {
        set(environment, kOmpNumThreads, default_threads(settings, r.local_world_size, r.local_rank)
        );
    }
    if (settings.virtual_local_rank) {
        const auto devices = find_variable(environment, kCudaVisibleDevices);
        replace(environment, kCudaVisibleDevices, device_of(devices, r.local_rank.value()));
    }
}

}  // namespace

std::vector<std::string> inherited_environment(const std::vector<std::string>& parent) {
    std::vector<std::string> result;
    for (const std::string& entry : parent) {
        const std::string_view name = name_of(entry);
        if (std::find(kOwnVariables.begin(), kOwnVariables.end(), name) == kOwnVariables.end()) {
            result.push_back(entry);
        }
    }
    return result;
}

std::vector<std::string> worker_environment(
    const EnvironmentSettings& settings,
    const RoundPlan& plan,
    const NodePlace& place,
    LocalRank local_rank
) {
    const WorkerRanks ranks = ranks_of(plan, place, local_rank);
    std::vector<std::string> environment;
    environment.reserve(settings.inherited.size() + kOwnVariables.size() + 3);
    environment = settings.inherited;
    set_ranks(environment, settings, ranks);
    set(environment, kMasterAddr, plan.master_address);
    set(environment, kMasterPort, plan.master_port);
    set(environment, kRestartCount, plan.restart_count);
    set(environment, kMaxRestarts, plan.max_restarts);
    set(environment, kRunId, settings.job);
    set(environment, kUseAgentStore, "True");
    set(environment, kSignalsToHandle, settings.signals_to_handle);
    const std::string folder = settings.run_folder.empty()
                                   ? std::string{}
                                   : worker_folder(settings.run_folder, plan, local_rank) + "/";
    set(environment, kErrorFile, folder.empty() ? folder : folder + "error.json");
    set(environment, kRound, plan.round);
    set(environment, kWorkerMark, settings.worker_mark);
    if (!settings.memory_folder.empty()) {
        set(environment, kMemoryDir, settings.memory_folder);
    }
    if (settings.tty_columns) {
        set(environment, kTty, *settings.tty_columns);
    }
    set_defaults(environment, settings, ranks);
    return environment;
}

std::string worker_mark(Incarnation incarnation) {
    return fmt::format("{:016x}", incarnation.value());
}

std::string worker_mark_entry(Incarnation incarnation) {
    return fmt::format("{}={}", kWorkerMark, worker_mark(incarnation));
}

std::optional<std::string_view> find_variable(
    const std::vector<std::string>& environment, std::string_view name
) {
    for (auto entry = environment.rbegin(); entry != environment.rend(); ++entry) {
        const std::string_view text = *entry;
        if (text.size() > name.size() && text[name.size()] == '=' && text.starts_with(name)) {
            return text.substr(name.size() + 1);
        }
    }
    return std::nullopt;
}

std::int32_t default_threads(
    const EnvironmentSettings& settings, LocalWorldSize workers, LocalRank local_rank
) {
    const std::int32_t share = threads_per_worker(settings.allowed_cpus, workers);
    const auto place = static_cast<std::size_t>(local_rank.value());
    return place < settings.bound_threads.size() ? std::min(share, settings.bound_threads[place])
                                                 : share;
}

std::int32_t threads_per_worker(std::int32_t allowed_cpus, LocalWorldSize workers) {
    return std::max(1, allowed_cpus / std::max(1, workers.value()));
}

std::string attempt_folder(const RoundPlan& plan) {
    switch (plan.reason) {
        case RoundReason::first_start:
        case RoundReason::worker_failure: return fmt::format("attempt_{}", plan.restart_count);
        case RoundReason::node_lost:
        case RoundReason::node_joined:
            return fmt::format("attempt_{}_r{}", plan.restart_count, plan.round);
    }
    return {};
}

std::string worker_folder(
    std::string_view run_folder, const RoundPlan& plan, LocalRank local_rank
) {
    return fmt::format("{}/{}/{}", run_folder, attempt_folder(plan), local_rank);
}

}  // namespace ddprun
