// The batches of a loader as tensors on the device. On a CPU they are views of the loader's memory.
// On a GPU the loader's memory is pinned (pinned_memory), and the next batch, if it is ready, is
// copied on a stream of its own while the caller computes with this one. One thread uses it.
//
//   Loader loader(data, indices, {..., .make_memory = pinned_memory(form.device)});
//   DeviceBatches batches(loader, form);
//   while (DeviceBatch* batch = batches.next().value()) ...
#pragma once

#include "proto/result.h"
#include "trainer/data.h"
#include "trainer/loader.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <optional>

namespace ddprun::trainer {

struct BatchForm {
    ImageShape shape;
    c10::Device device{c10::kCPU};
    bool channels_last = false;
};

struct DeviceBatch {
    std::int64_t size = 0;  ///< 0 in an evaluation where every picture of it was broken
    at::Tensor images;      ///< [size, 3, H, W] float32 on the device
    at::Tensor labels;      ///< [size] int64 on the device
};

/// For LoaderOptions::make_memory: page-locked memory for a GPU, none (ordinary memory) for a CPU.
[[nodiscard]] MakeFloatMemory pinned_memory(c10::Device device);

class DeviceBatches {
public:
    /// `loader` must outlive it and be asked for batches by nobody else.
    DeviceBatches(Loader& loader, const BatchForm& form);
    DeviceBatches(const DeviceBatches&) = delete;
    DeviceBatches& operator=(const DeviceBatches&) = delete;
    ~DeviceBatches();

    /// The next batch, or null after the last. Its tensors stay until the next call; with a GPU the
    /// current stream waits for the copy. Errors: the loader's.
    [[nodiscard]] Result<DeviceBatch*> next();

private:
    struct Copy {
        DeviceBatch batch;
        c10::Event done;
    };

    [[nodiscard]] at::Tensor images_of(Batch& batch) const;
    [[nodiscard]] Result<DeviceBatch*> next_view();
    [[nodiscard]] Result<std::optional<Copy>> start_copy();
    void wait_for_copies();

    Loader& loader_;
    BatchForm form_;
    std::optional<c10::Stream> copy_stream_;            ///< with a GPU
    std::optional<Result<std::optional<Copy>>> ahead_;  ///< what the next call gives
    std::optional<Copy> current_;
    DeviceBatch view_;  ///< without a GPU
};

}  // namespace ddprun::trainer
