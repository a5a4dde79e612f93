// Writes checkpoints in the background, one at a time: training goes on while the copy that was
// taken of its state goes to the disk. Rank 0 only; one thread calls it.
#pragma once

#include "proto/result.h"
#include "trainer/checkpoint.h"

#include <filesystem>
#include <future>

namespace ddprun::trainer {

class CheckpointSaver {
public:
    /// Into `dir`, `keep` of which stay.
    CheckpointSaver(std::filesystem::path dir, int keep);
    CheckpointSaver(const CheckpointSaver&) = delete;
    CheckpointSaver& operator=(const CheckpointSaver&) = delete;
    /// Waits for the one that is being written.
    ~CheckpointSaver();

    /// Copies `state` and begins to write it, after the one before; `best`: it is also the best
    /// one. The error is that of the one before.
    [[nodiscard]] Result<void> begin(const TrainingState& state, bool best);

    /// Whether nothing is being written.
    [[nodiscard]] bool idle() const;

    /// Until what was begun is on the disk. The error is its own.
    [[nodiscard]] Result<void> wait();

private:
    std::filesystem::path dir_;
    int keep_;
    std::future<Result<void>> writing_;
};

}  // namespace ddprun::trainer
