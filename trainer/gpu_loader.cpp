#include "trainer/gpu_module.h"

#include <fmt/format.h>

#include <dlfcn.h>

#include <array>
#include <filesystem>
#include <system_error>

namespace ddprun::trainer {
namespace {

constexpr const char* kModuleFile = "libddprun_gpu.so";

Result<std::filesystem::path> find_module() {
    std::error_code error;
    const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
    if (error) {
        return fail(from_error_code(error, "read /proc/self/exe"));
    }
    const auto folder = program.parent_path();
    const std::array<std::filesystem::path, 2> places = {
        folder / kModuleFile, folder.parent_path() / "lib" / kModuleFile};
    for (const auto& place : places) {
        if (std::filesystem::exists(place, error)) {
            return place;
        }
    }
    return fail(
        Errc::unsupported,
        fmt::format(
            "device cuda: {} is neither in {} nor in ../lib; it is built where LibTorch has CUDA "
            "and the headers of CUDA and NCCL are there (scripts/setup --gpu)",
            kModuleFile,
            folder.string()
        )
    );
}

}  // namespace

Result<const GpuModule*> load_gpu_module() {
    const auto path = find_module();
    if (!path) {
        return fail(path.error());
    }
    // Never closed: LibTorch's registrations of it live as long as the process.
    void* module = ::dlopen(path->c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (module == nullptr) {
        return fail(Errc::unsupported, fmt::format("device cuda: load: {}", ::dlerror()));
    }
    using Entry = const GpuModule* (*)();
    const auto entry = reinterpret_cast<Entry>(::dlsym(module, kGpuModuleEntry));
    if (entry == nullptr) {
        return fail(
            Errc::version_mismatch,
            fmt::format("device cuda: {} is of another build", path->string())
        );
    }
    const GpuModule* functions = entry();
    if (functions->device_count() == 0) {
        return fail(
            Errc::unsupported,
            "device cuda: no GPU found (is there a driver, and does CUDA_VISIBLE_DEVICES name one?)"
        );
    }
    return functions;
}

}  // namespace ddprun::trainer
