#include "trainer/loader.h"

#include "proto/assert.h"
#include "proto/limits.h"
#include "trainer/sampler.h"

#include <signal.h>

#include <algorithm>
#include <cstddef>
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

/// Batches that are prepared while the caller of next() has one: enough for every thread to have a
/// few pictures.
std::int64_t batches_ahead(const LoaderOptions& options) {
    const std::int64_t pictures = options.workers * limits::kPicturesAhead;
    const std::int64_t batches = (pictures + options.batch_size - 1) / options.batch_size;
    return options.workers == 0 ? 0 : std::max(batches, limits::kBatchesAhead);
}

FloatMemory ordinary_memory(std::size_t floats) {
    return std::make_unique_for_overwrite<float[]>(floats);
}

}  // namespace

Loader::Loader(
    const Dataset& dataset, std::vector<std::int64_t> indices, const LoaderOptions& options
)
    : dataset_(dataset),
      indices_(std::move(indices)),
      options_(options),
      floats_(dataset.shape().floats()),
      batches_(count_batches(static_cast<std::int64_t>(indices_.size()), options)) {
    DDPRUN_ASSERT(options.workers >= 0 && options.workers <= limits::kLoaderThreadsMax);
    entries_ = std::min(static_cast<std::int64_t>(indices_.size()), batches_ * options.batch_size);
    if (batches_ > 0) {
        make_slots();
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

void Loader::make_slots() {
    slots_.resize(static_cast<std::size_t>(std::min(batches_ahead(options_) + 1, batches_)));
    const auto pictures = static_cast<std::size_t>(std::min(options_.batch_size, entries_));
    for (Slot& slot : slots_) {
        const std::size_t floats = pictures * floats_;
        slot.memory = options_.make_memory ? options_.make_memory(floats) : ordinary_memory(floats);
        slot.batch.images = {slot.memory.get(), floats};
        slot.batch.labels.resize(pictures);
        slot.skipped.resize(pictures);
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

/// The next few entries, for one thread; the slot of a batch that is begun is made ready for it.
Loader::Range Loader::claim() {
    const std::int64_t number = batch_of(claimed_);
    const std::int64_t batch_begin = number * options_.batch_size;
    const std::int64_t batch_end = std::min(batch_begin + options_.batch_size, entries_);
    if (claimed_ == batch_begin) {
        Slot& slot = slot_of(number);
        slot.left = batch_end - batch_begin;
        slot.batch.size = slot.left;
        slot.error.reset();
        std::fill(slot.skipped.begin(), slot.skipped.end(), std::uint8_t{0});
    }
    // Few enough that all threads end a batch together, several where pictures are small.
    const std::int64_t share = options_.batch_size / std::max(4 * options_.workers, 1);
    const std::int64_t count = std::clamp<std::int64_t>(share, 1, limits::kPicturesClaimedMax);
    const Range range{
        claimed_, options_.workers == 0 ? batch_end : std::min(claimed_ + count, batch_end)};
    claimed_ = range.end;
    return range;
}

void Loader::work() {
    std::unique_lock lock(mutex_);
    while (true) {
        // A slot is free again when the caller has asked for the batch after the one in it.
        free_.wait(lock, [this] {
            const auto limit = std::max<std::int64_t>(taken_ - 1, 0);
            return stopping_ || claimed_ == entries_ ||
                   batch_of(claimed_) < limit + static_cast<std::int64_t>(slots_.size());
        });
        if (stopping_ || claimed_ == entries_) {
            return;
        }
        const Range range = claim();
        Slot& slot = slot_of(batch_of(range.begin));
        lock.unlock();
        fill(range, slot);
        lock.lock();
        slot.left -= range.end - range.begin;
        if (slot.left == 0) {
            ready_.notify_all();
        }
    }
}

void Loader::fill(Range range, Slot& slot) {
    const std::int64_t batch_begin = batch_of(range.begin) * options_.batch_size;
    for (std::int64_t entry = range.begin; entry < range.end; ++entry) {
        const auto place = static_cast<std::size_t>(entry - batch_begin);
        const auto label = read(
            indices_[static_cast<std::size_t>(entry)],
            slot.batch.images.subspan(place * floats_, floats_)
        );
        if (!label) {
            const std::lock_guard lock(mutex_);
            if (!slot.error || entry < slot.error_at) {
                slot.error = label.error();
                slot.error_at = entry;
            }
            return;
        }
        slot.skipped[place] = label->has_value() ? 0 : 1;
        slot.batch.labels[place] = label->value_or(0);
    }
}

/// The label; none if the picture is to be left out.
Result<std::optional<std::int64_t>> Loader::read(std::int64_t index, std::span<float> out) const {
    auto label = dataset_.read({index, options_.epoch}, out);
    // Ends at the latest when `bad` allows no more: each try that fails is another picture.
    for (std::int64_t offset = 1; !label; ++offset) {
        if (options_.bad == nullptr || label.error().code == Errc::internal) {
            return fail(label.error());
        }
        const std::int64_t tried = (index + offset - 1) % dataset_.size();
        if (auto last = options_.bad->note(tried, label.error())) {
            return fail(std::move(*last));
        }
        if (!options_.training) {
            return std::nullopt;
        }
        if (offset == dataset_.size()) {
            return fail(label.error());  // not one is left
        }
        label = dataset_.read({(index + offset) % dataset_.size(), options_.epoch}, out);
    }
    return *label;
}

/// Moves what stands behind skipped pictures forward.
void Loader::close_gaps(Slot& slot) const {
    std::size_t to = 0;
    for (std::size_t from = 0; from < static_cast<std::size_t>(slot.batch.size); ++from) {
        if (slot.skipped[from] != 0) {
            continue;
        }
        if (from != to) {
            const std::span<float> picture = slot.batch.images.subspan(from * floats_, floats_);
            std::copy(
                picture.begin(), picture.end(), slot.batch.images.subspan(to * floats_).begin()
            );
            slot.batch.labels[to] = slot.batch.labels[from];
        }
        ++to;
    }
    slot.batch.size = static_cast<std::int64_t>(to);
}

bool Loader::ready() {
    const std::lock_guard lock(mutex_);
    if (taken_ == batches_ || threads_.empty()) {
        return false;
    }
    const std::int64_t end = std::min((taken_ + 1) * options_.batch_size, entries_);
    return claimed_ >= end && slot_of(taken_).left == 0;
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
        const Range range = claim();
        lock.unlock();
        fill(range, slot);
        lock.lock();
    } else {
        free_.notify_all();
        const std::int64_t end = std::min((number + 1) * options_.batch_size, entries_);
        ready_.wait(lock, [this, &slot, end] { return claimed_ >= end && slot.left == 0; });
    }
    close_gaps(slot);
    waited_ += std::chrono::steady_clock::now() - begin;
    if (slot.error) {
        return fail(*slot.error);
    }
    return &slot.batch;
}

}  // namespace ddprun::trainer
