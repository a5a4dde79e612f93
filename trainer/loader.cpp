#include "trainer/loader.h"

#include "proto/assert.h"
#include "proto/limits.h"
#include "trainer/sampler.h"

#include <signal.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

namespace ddprun::trainer {

namespace {

std::int64_t count_batches(std::int64_t samples, const LoaderOptions& options) {
    DDPRUN_ASSERT(options.batch_size >= 1 && options.batch_size <= limits::kBatchSizeMax);
    if (options.training) {
        return training_batches(samples, options.batch_size);
    }
    return (samples + options.batch_size - 1) / options.batch_size;
}

}  // namespace

Loader::Loader(
    const Dataset& dataset, std::vector<std::int64_t> indices, const LoaderOptions& options
)
    : dataset_(dataset),
      indices_(std::move(indices)),
      options_(options),
      batches_(count_batches(static_cast<std::int64_t>(indices_.size()), options)) {
    DDPRUN_ASSERT(options.workers >= 0 && options.workers <= limits::kLoaderThreadsMax);
    // One more than the threads work on ahead: the caller of next() holds it.
    const std::int64_t ahead = options.workers * limits::kBatchesAhead + 1;
    slots_.resize(static_cast<std::size_t>(std::clamp<std::int64_t>(batches_, 1, ahead)));
    if (batches_ > 0) {
        start_threads();
    }
}

Loader::~Loader() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    free_.notify_all();
    for (std::thread& thread : threads_) {
        thread.join();
    }
}

void Loader::start_threads() {
    // Signals are the main thread's: a new thread inherits the mask of its maker.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int i = 0; i < options_.workers; ++i) {
        threads_.emplace_back([this] { work(); });
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Loader::Slot& Loader::slot_of(std::int64_t number) {
    return slots_[static_cast<std::size_t>(number) % slots_.size()];
}

void Loader::work() {
    std::unique_lock lock(mutex_);
    while (true) {
        // A slot is free again when the caller has asked for the batch after the one in it.
        free_.wait(lock, [this] {
            const auto limit = std::max<std::int64_t>(taken_ - 1, 0);
            return stopping_ || claimed_ == batches_ ||
                   claimed_ < limit + static_cast<std::int64_t>(slots_.size());
        });
        if (stopping_ || claimed_ == batches_) {
            return;
        }
        const std::int64_t number = claimed_++;
        Slot& slot = slot_of(number);
        slot.ready = false;
        lock.unlock();
        auto error = fill(number, slot.batch);
        lock.lock();
        slot.error = std::move(error);
        slot.ready = true;
        ready_.notify_all();
    }
}

std::optional<Error> Loader::fill(std::int64_t number, Batch& batch) const {
    const auto begin = static_cast<std::size_t>(number * options_.batch_size);
    const std::size_t count =
        std::min(static_cast<std::size_t>(options_.batch_size), indices_.size() - begin);
    const std::size_t floats = dataset_.shape().floats();
    if (batch.labels.size() < count) {
        batch.images.resize(count * floats);
        batch.labels.resize(count);
    }
    batch.size = static_cast<std::int64_t>(count);
    const std::span<float> images(batch.images);
    for (std::size_t i = 0; i < count; ++i) {
        const auto label = dataset_.read(indices_[begin + i], images.subspan(i * floats, floats));
        if (!label) {
            return label.error();
        }
        batch.labels[i] = *label;
    }
    return std::nullopt;
}

Result<Batch*> Loader::next() {
    if (taken_ == batches_) {
        return nullptr;
    }
    const auto begin = std::chrono::steady_clock::now();
    std::unique_lock lock(mutex_);
    const std::int64_t number = taken_++;
    Slot& slot = slot_of(number);
    if (threads_.empty()) {
        slot.error = fill(number, slot.batch);
    } else {
        free_.notify_one();
        ready_.wait(lock, [this, &slot, number] { return claimed_ > number && slot.ready; });
    }
    waited_ += std::chrono::steady_clock::now() - begin;
    if (slot.error) {
        return fail(*slot.error);
    }
    return &slot.batch;
}

}  // namespace ddprun::trainer
