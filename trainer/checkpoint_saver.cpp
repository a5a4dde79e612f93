#include "trainer/checkpoint_saver.h"

#include <chrono>
#include <utility>

namespace ddprun::trainer {

CheckpointSaver::CheckpointSaver(std::filesystem::path dir, int keep)
    : dir_(std::move(dir)),
      keep_(keep) {}

CheckpointSaver::~CheckpointSaver() {
    static_cast<void>(wait());
}

Result<void> CheckpointSaver::begin(const TrainingState& state, bool best) {
    if (auto before = wait(); !before) {
        return before;
    }
    writing_ = std::async(
        std::launch::async,
        [dir = dir_, keep = keep_, best, copy = snapshot(state)]() -> Result<void> {
            auto path = save_checkpoint(copy, dir, keep);
            if (!path) {
                return fail(path.error());
            }
            return best ? mark_best(*path) : Result<void>{};
        }
    );
    return {};
}

bool CheckpointSaver::idle() const {
    return !writing_.valid() ||
           writing_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

Result<void> CheckpointSaver::wait() {
    return writing_.valid() ? writing_.get() : Result<void>{};
}

}  // namespace ddprun::trainer
