#include "trainer/checkpoint_folder.h"

#include "trainer/checkpoint_format.h"
#include "trainer/checkpoint_reader.h"
#include "trainer/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>
#include <vector>

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;

/// Checkpoints of `dir`, the newest first; none without the folder.
Result<std::vector<fs::path>> candidates(const fs::path& dir) {
    std::vector<std::pair<std::int64_t, fs::path>> numbered;
    std::vector<std::pair<fs::file_time_type, fs::path>> others;
    std::error_code error;
    fs::directory_iterator entry(dir, error);
    if (error == std::errc::no_such_file_or_directory) {
        return std::vector<fs::path>{};
    }
    for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
        const fs::path& path = entry->path();
        if (const auto step = step_of_checkpoint(path.filename().string())) {
            numbered.emplace_back(*step, path);
        } else if (path.extension() == kCheckpointSuffix) {
            std::error_code ignored;
            others.emplace_back(fs::last_write_time(path, ignored), path);
        }
    }
    if (error) {
        return fail(from_error_code(error, "look for checkpoints in " + dir.string()));
    }
    std::sort(numbered.rbegin(), numbered.rend());
    std::sort(others.rbegin(), others.rend());
    std::vector<fs::path> paths;
    for (auto& [step, path] : numbered) {
        paths.push_back(std::move(path));
    }
    for (auto& [time, path] : others) {
        paths.push_back(std::move(path));
    }
    return paths;
}

}  // namespace

Result<std::optional<FoundCheckpoint>> newest_good_checkpoint(
    const fs::path& dir, const NamedTensors& model, Log& log
) {
    const auto paths = candidates(dir);
    if (!paths) {
        return fail(paths.error());
    }
    for (const fs::path& path : *paths) {
        auto state = read_checkpoint(path);
        if (!state && state.error().code == Errc::malformed) {
            log.warning("skip checkpoint: {}", state.error().context);
            continue;
        }
        if (!state) {
            return fail(state.error());
        }
        if (auto fits = check_weights(model, state->model, path.string()); !fits) {
            return fail(fits.error());
        }
        return std::optional(FoundCheckpoint{path, std::move(*state)});
    }
    if (!paths->empty()) {
        return fail(
            Errc::malformed,
            fmt::format(
                "resume from {}: each of its {} checkpoints is damaged; remove them to start anew",
                dir.string(),
                paths->size()
            )
        );
    }
    return std::optional<FoundCheckpoint>{};
}

}  // namespace ddprun::trainer
