// Batches of a data set, prepared by threads ahead of the training loop, in order, in a fixed ring
// of buffers: memory stays flat, and the batches don't depend on the number of threads, which share
// the pictures of a batch between them. One thread calls next(); the destructor stops the threads
// at once, batches left or not.
//
// With `bad` a picture that can't be read is skipped. In training the next good one of the data set
// takes its place, so that all ranks make the same steps; in an evaluation the batch has one less,
// maybe none.
#pragma once

#include "proto/result.h"
#include "trainer/bad_samples.h"
#include "trainer/data.h"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

namespace ddprun::trainer {

struct Batch {
    std::int64_t size = 0;
    std::span<float> images;           ///< [size, 3, H, W] in the front part
    std::vector<std::int64_t> labels;  ///< [size] in the front part
};

/// Memory for `floats` numbers, whatever they are.
using FloatMemory = std::shared_ptr<float[]>;
using MakeFloatMemory = std::function<FloatMemory(std::size_t floats)>;

struct LoaderOptions {
    std::int64_t batch_size = 1;
    int workers = 0;         ///< threads; 0: next() prepares the batch itself
    bool training = true;    ///< drop a last batch of one picture (training_batches)
    std::int64_t epoch = 0;  ///< of the augmentation
    BadSamples* bad =
        nullptr;  ///< null: a picture that can't be read is an error; else outlives it
    MakeFloatMemory make_memory{};  ///< of the batches' pictures; unset: ordinary memory
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

    /// Whether next() would give a batch at once. Always false without threads.
    [[nodiscard]] bool ready();

    /// Time that next() has spent so far in waiting for, or preparing, batches.
    [[nodiscard]] std::chrono::nanoseconds waited() const { return waited_; }

private:
    struct Slot {
        FloatMemory memory;
        Batch batch;
        std::int64_t left = 0;  ///< pictures that aren't done; 0: the batch is ready
        std::optional<Error> error;
        std::int64_t error_at = 0;          ///< the first picture in the batch with an error
        std::vector<std::uint8_t> skipped;  ///< for each picture of the batch
    };

    /// Entries [begin, end) of indices_, all of one batch.
    struct Range {
        std::int64_t begin = 0;
        std::int64_t end = 0;
    };

    void make_slots();
    void start_threads();
    void work();
    [[nodiscard]] Range claim();
    void fill(Range range, Slot& slot);
    [[nodiscard]] Result<std::optional<std::int64_t>> read(std::int64_t index, std::span<float> out)
        const;
    void close_gaps(Slot& slot) const;

    [[nodiscard]] std::int64_t batch_of(std::int64_t entry) const {
        return entry / options_.batch_size;
    }

    [[nodiscard]] Slot& slot_of(std::int64_t batch) {
        return slots_[static_cast<std::size_t>(batch) % slots_.size()];
    }

    const Dataset& dataset_;
    const std::vector<std::int64_t> indices_;
    const LoaderOptions options_;
    const std::size_t floats_;  ///< of a picture
    std::int64_t batches_;
    std::int64_t entries_ = 0;  ///< of indices_ that are in a batch
    std::chrono::nanoseconds waited_{0};

    // Guarded by mutex_, except the parts of a slot's batch: a picture belongs to the thread that
    // claimed its entry until that is done, and the whole to the caller of next() from then until
    // the call after.
    std::mutex mutex_;
    std::condition_variable ready_;
    std::condition_variable free_;
    std::vector<Slot> slots_;
    std::int64_t claimed_ = 0;  ///< entries that a thread has begun
    std::int64_t taken_ = 0;    ///< batches that next() has given out
    bool stopping_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace ddprun::trainer
