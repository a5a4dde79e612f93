#include "agent/agent_setup.h"

#include "agent/allowed_cpus.h"
#include "proto/worker_env.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

namespace ddprun {

std::int64_t wall_time_ms() {
    const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::milliseconds>(since_epoch).count();
}

void ensure_standard_descriptors() {
    int fd = -1;
    do {
        // Numbers 0, 1 and 2 are taken on purpose and kept, for workers too.
        fd = ::open("/dev/null", O_RDWR);  // NOLINT(android-cloexec-open)
    } while (fd >= 0 && fd <= 2);
    if (fd > 2) {
        ::close(fd);
    }
}

void raise_descriptor_limit(const ProcessState& state, LocalWorldSize workers) {
    constexpr std::uint64_t kPerWorker = 4;
    constexpr std::uint64_t kOthers = 256;
    const std::uint64_t wanted =
        kOthers + kPerWorker * static_cast<std::uint64_t>(std::max(1, workers.value()));
    if (state.descriptors_soft != 0 && state.descriptors_soft < wanted) {
        const rlimit limit{std::min(wanted, state.descriptors_hard), state.descriptors_hard};
        ::setrlimit(RLIMIT_NOFILE, &limit);
    }
}

std::set<int> watched_signals(const ProcessState& at_start, const std::set<int>& forwarded) {
    std::set<int> signals{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCHLD};
    signals.insert(forwarded.begin(), forwarded.end());
    for (const int ignored : at_start.ignored_signals) {
        signals.erase(ignored);
    }
    return signals;
}

AgentSettings completed(AgentSettings settings) {
    if (!settings.at_start) {
        settings.at_start = capture_process_state();
    }
    return settings;
}

AgentCoreSettings core_settings(
    const AgentSettings& settings, const std::string& run_folder, const std::string& memory_folder
) {
    AgentCoreSettings core;
    core.join = Join{
        .job = settings.job,
        .node = settings.node,
        .incarnation = settings.incarnation,
        .info = settings.info,
        .spec = settings.spec,
        .requested_rank = settings.requested_rank,
        .current_round = std::nullopt,
    };
    EnvironmentSettings& environment = core.environment;
    environment.inherited = inherited_environment(settings.environment);
    environment.job = settings.job;
    environment.role = settings.role;
    environment.run_folder = run_folder;
    environment.memory_folder = memory_folder;
    environment.worker_mark = worker_mark(settings.incarnation);
    environment.signals_to_handle = settings.signals_to_handle;
    environment.virtual_local_rank = settings.virtual_local_rank;
    environment.omp_num_threads = settings.omp_num_threads;
    environment.tty_columns = settings.tty_columns;
    const bool omp_is_open = !settings.omp_num_threads &&
                             !find_variable(environment.inherited, worker_env::kOmpNumThreads);
    environment.allowed_cpus = omp_is_open ? allowed_cpus() : 1;
    for (const WorkerBinding& binding : settings.bindings) {
        environment.bound_threads.push_back(binding.threads);
    }
    core.group = GroupSettings{
        .host = settings.info.host,
        .program = settings.program,
        .grace = settings.shutdown_timeout,
        .membership_signal = settings.membership_signal,
        .membership_grace = settings.membership_grace,
    };
    core.leaves_on_term = settings.leaves_on_term;
    return core;
}

}  // namespace ddprun
