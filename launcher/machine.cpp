#include "launcher/machine.h"

#include "proto/limits.h"

#include <fmt/format.h>

#include <sched.h>
#include <sys/random.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <string_view>
#include <system_error>

namespace ddprun::launcher {

namespace {

namespace fs = std::filesystem;

/// nvidia0, nvidia1, ...: not nvidiactl, nvidia-uvm.
bool is_gpu_device(std::string_view name) {
    constexpr std::string_view kPrefix = "nvidia";
    if (!name.starts_with(kPrefix) || name.size() == kPrefix.size()) {
        return false;
    }
    return std::ranges::all_of(name.substr(kPrefix.size()), [](unsigned char letter) {
        return std::isdigit(letter) != 0;
    });
}

}  // namespace

int count_gpus(const Environment& environment, const fs::path& device_folder) {
    const auto visible = environment.find("CUDA_VISIBLE_DEVICES");
    if (visible != environment.end()) {
        const std::string& list = visible->second;
        const bool is_none = list.empty() || list == "-1" || list == "NoDevFiles";
        return is_none ? 0 : static_cast<int>(std::ranges::count(list, ',')) + 1;
    }
    std::error_code error;
    int count = 0;
    for (const fs::directory_entry& entry : fs::directory_iterator(device_folder, error)) {
        count += is_gpu_device(entry.path().filename().string()) ? 1 : 0;
    }
    return count;
}

int count_cpus() {
    // The kernel wants room for all CPUs that it could have, whatever the mask says.
    constexpr std::size_t kCpusMax = 65'536;
    cpu_set_t* mask = CPU_ALLOC(kCpusMax);
    const std::size_t bytes = CPU_ALLOC_SIZE(kCpusMax);
    int count = 1;
    if (mask != nullptr && ::sched_getaffinity(0, bytes, mask) == 0) {
        count = std::max(1, CPU_COUNT_S(bytes, mask));
    }
    CPU_FREE(mask);
    return count;
}

Result<LocalWorldSize> count_workers(const LaunchCommand& command, const Environment& environment) {
    int count = command.nproc_per_node.value();
    switch (command.worker_source) {
        case WorkerSource::number: break;
        case WorkerSource::cpu: count = count_cpus(); break;
        case WorkerSource::gpu:
            count = count_gpus(environment);
            if (count == 0) {
                return fail(
                    Errc::not_found,
                    "--nproc_per_node=gpu: no GPU found (CUDA_VISIBLE_DEVICES, /dev/nvidia*); use "
                    "a "
                    "number, or auto"
                );
            }
            break;
        case WorkerSource::automatic:
            count = count_gpus(environment);
            count = count == 0 ? count_cpus() : count;
            break;
    }
    if (count > limits::kLocalWorldSizeMax) {
        return fail(
            Errc::limit_exceeded,
            fmt::format(
                "--nproc_per_node: {} workers were counted, at most {} are supported",
                count,
                limits::kLocalWorldSizeMax
            )
        );
    }
    return LocalWorldSize{count};
}

std::string host_name() {
    utsname names{};
    return ::uname(&names) == 0 ? std::string{names.nodename} : std::string{"localhost"};
}

Result<fs::path> own_folder() {
    std::error_code error;
    const fs::path own = fs::read_symlink("/proc/self/exe", error);
    if (error) {
        return fail(from_error_code(error, "read /proc/self/exe"));
    }
    return own.parent_path();
}

Result<std::uint64_t> random_bits() {
    std::uint64_t bits = 0;
    if (::getrandom(&bits, sizeof bits, 0) != static_cast<ssize_t>(sizeof bits)) {
        return fail(from_errno(errno, "draw random bits from the kernel"));
    }
    return bits;
}

Environment process_environment() {
    Environment environment;
    for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
        const std::string_view text = *entry;
        const std::size_t equals = text.find('=');
        if (equals != std::string_view::npos) {
            environment.insert_or_assign(
                std::string{text.substr(0, equals)}, std::string{text.substr(equals + 1)}
            );
        }
    }
    return environment;
}

}  // namespace ddprun::launcher
