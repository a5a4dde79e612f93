#include "trainer/batch_tensors.h"

#include <torch/torch.h>

namespace ddprun::trainer {

at::Tensor images_of(Batch& batch, const BatchForm& form) {
    at::Tensor images = torch::from_blob(
        batch.images.data(),
        {batch.size, static_cast<std::int64_t>(kChannels), form.shape.height, form.shape.width}
    );
    if (form.device.is_cuda()) {
        images = images.to(form.device);
    }
    return form.channels_last ? images.contiguous(at::MemoryFormat::ChannelsLast) : images;
}

at::Tensor labels_of(Batch& batch, const BatchForm& form) {
    return torch::from_blob(batch.labels.data(), {batch.size}, at::kLong).to(form.device);
}

}  // namespace ddprun::trainer
