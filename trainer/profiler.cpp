#include "trainer/profiler.h"

#include <fmt/format.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/torch.h>

#include <set>
#include <system_error>

namespace ddprun::trainer {
namespace {

namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

}  // namespace

TraceProfiler::TraceProfiler(bool cuda) {
    const torch::profiler::impl::ProfilerConfig config(
        torch::profiler::impl::ProfilerState::KINETO, /*report_input_shapes=*/true
    );
    std::set<ActivityType> activities{ActivityType::CPU};
    if (cuda) {
        activities.insert(ActivityType::CUDA);
    }
    profiler::prepareProfiler(config, activities);
    profiler::enableProfiler(config, activities);
}

TraceProfiler::~TraceProfiler() {
    if (running_) {
        static_cast<void>(profiler::disableProfiler());
    }
}

Result<void> TraceProfiler::save(const std::filesystem::path& path) {
    running_ = false;
    const auto result = profiler::disableProfiler();
    std::error_code error;
    std::filesystem::create_directories(path.parent_path(), error);
    if (!error) {
        result->save(path.string());
        // Kineto tells nobody when it can't write.
        if (std::filesystem::file_size(path, error) > 0 && !error) {
            return {};
        }
    }
    std::string reason = error ? error.message() : "it is empty";
    std::error_code ignored;
    if (std::filesystem::space(path.parent_path(), ignored).available == 0 && !ignored) {
        reason = "no space is left there";
    }
    std::filesystem::remove(path, ignored);
    std::filesystem::remove(path.string() + ".tmp", ignored);  // which Kineto leaves
    return fail(Errc::io_error, fmt::format("write --profile trace {}: {}", path.string(), reason));
}

}  // namespace ddprun::trainer
