// Batches of a data set, prepared by threads ahead of the training loop, in order, in a fixed ring
// of buffers: memory stays flat, and the batches don't depend on the number of threads. One thread
// calls next(); the destructor stops the threads at once, batches left or not.
#pragma once

#include "proto/result.h"
#include "trainer/data.h"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace ddprun::trainer {

struct Batch {
    std::int64_t size = 0;
    std::vector<float> images;         ///< [size, 3, H, W] in the front part
    std::vector<std::int64_t> labels;  ///< [size] in the front part
};

struct LoaderOptions {
    std::int64_t batch_size = 1;
    int workers = 0;       ///< threads; 0: next() prepares the batch itself
    bool training = true;  ///< drop a last batch of one picture (training_batches)
};

class Loader {
public:
    /// `dataset` must outlive the loader. `indices` in the order in which they are wanted.
    Loader(const Dataset& dataset, std::vector<std::int64_t> indices, const LoaderOptions& options);
    Loader(const Loader&) = delete;
    Loader& operator=(const Loader&) = delete;
    ~Loader();

    [[nodiscard]] std::int64_t batches() const { return batches_; }

    /// The next batch, or null after the last. It is the caller's to read (and to wrap in tensors)
    /// until the next call. An error is the data set's, at the batch that it concerns.
    [[nodiscard]] Result<Batch*> next();

    /// Time that next() has spent so far in waiting for, or preparing, batches.
    [[nodiscard]] std::chrono::nanoseconds waited() const { return waited_; }

private:
    struct Slot {
        Batch batch;
        std::optional<Error> error;
        bool ready = false;
    };

    void start_threads();
    void work();
    [[nodiscard]] std::optional<Error> fill(std::int64_t number, Batch& batch) const;
    Slot& slot_of(std::int64_t number);

    const Dataset& dataset_;
    const std::vector<std::int64_t> indices_;
    const LoaderOptions options_;
    std::int64_t batches_;
    std::chrono::nanoseconds waited_{0};

    // Guarded by mutex_, except a slot's batch: it belongs to the thread that claimed its number
    // until ready is set, and to the caller of next() from then until the call after.
    std::mutex mutex_;
    std::condition_variable ready_;
    std::condition_variable free_;
    std::vector<Slot> slots_;
    std::int64_t claimed_ = 0;  ///< batches that a thread has begun
    std::int64_t taken_ = 0;    ///< batches that next() has given out
    bool stopping_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace ddprun::trainer
