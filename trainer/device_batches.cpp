#include "trainer/device_batches.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/torch.h>

#include <utility>

namespace ddprun::trainer {
namespace {

at::Tensor labels_of(Batch& batch) {
    return torch::from_blob(batch.labels.data(), {batch.size}, at::kLong);
}

}  // namespace

MakeFloatMemory pinned_memory(c10::Device device) {
    if (!device.is_cuda()) {
        return {};
    }
    return [](std::size_t floats) {
        const at::Tensor memory = at::empty(
            {static_cast<std::int64_t>(floats)}, at::TensorOptions(at::kFloat).pinned_memory(true)
        );
        // The pointer keeps the tensor.
        return FloatMemory(memory.mutable_data_ptr<float>(), [memory](float*) {});
    };
}

DeviceBatches::DeviceBatches(Loader& loader, const BatchForm& form) : loader_(loader), form_(form) {
    if (form.device.is_cuda()) {
        const c10::impl::VirtualGuardImpl gpu(form.device.type());
        copy_stream_ = gpu.getStreamFromGlobalPool(form.device);
    }
}

DeviceBatches::~DeviceBatches() {
    wait_for_copies();
}

/// The loader's memory is free for it again when the copies from there are done.
void DeviceBatches::wait_for_copies() {
    if (current_) {
        current_->done.synchronize();
    }
    if (ahead_ && *ahead_ && **ahead_) {
        (**ahead_)->done.synchronize();
    }
}

at::Tensor DeviceBatches::images_of(Batch& batch) const {
    return torch::from_blob(
        batch.images.data(),
        {batch.size, static_cast<std::int64_t>(kChannels), form_.shape.height, form_.shape.width}
    );
}

/// Takes a batch from the loader and begins to copy it; none after the last.
Result<std::optional<DeviceBatches::Copy>> DeviceBatches::start_copy() {
    wait_for_copies();
    const auto batch = loader_.next();
    if (!batch) {
        return fail(batch.error());
    }
    if (*batch == nullptr) {
        return std::nullopt;
    }
    Copy copy{{}, c10::Event(form_.device.type())};
    const c10::StreamGuard guard(*copy_stream_);
    copy.batch.size = (*batch)->size;
    copy.batch.images = images_of(**batch).to(form_.device, /*non_blocking=*/true);
    if (form_.channels_last) {
        copy.batch.images = copy.batch.images.contiguous(at::MemoryFormat::ChannelsLast);
    }
    // Few bytes in ordinary memory: their copy returns when it is done.
    copy.batch.labels = labels_of(**batch).to(form_.device);
    copy.done.record(*copy_stream_);
    return copy;
}

Result<DeviceBatch*> DeviceBatches::next_view() {
    const auto batch = loader_.next();
    if (!batch) {
        return fail(batch.error());
    }
    if (*batch == nullptr) {
        return nullptr;
    }
    view_ = {(*batch)->size, images_of(**batch), labels_of(**batch)};
    if (form_.channels_last) {
        view_.images = view_.images.contiguous(at::MemoryFormat::ChannelsLast);
    }
    return &view_;
}

Result<DeviceBatch*> DeviceBatches::next() {
    if (!copy_stream_) {
        return next_view();
    }
    auto taken = ahead_ ? std::move(*ahead_) : start_copy();
    ahead_.reset();
    if (!taken) {
        return fail(taken.error());
    }
    current_ = std::move(*taken);
    if (!current_) {
        return nullptr;
    }
    const c10::impl::VirtualGuardImpl gpu(form_.device.type());
    const c10::Stream stream = gpu.getStream(form_.device);
    current_->done.block(stream);
    // The memory was taken on the other stream: it must not be given away before this one is done.
    current_->batch.images.record_stream(stream);
    current_->batch.labels.record_stream(stream);
    if (loader_.ready()) {
        ahead_ = start_copy();
    }
    return &current_->batch;
}

}  // namespace ddprun::trainer
