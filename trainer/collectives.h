// Collectives that wait, on every rank in the same order. Without a group (alone) they do nothing.
// They throw when a peer is gone.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

namespace c10d {
class ProcessGroup;
}

namespace ddprun::trainer {

using ProcessGroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;

void all_reduce_sum(const ProcessGroupPtr& group, at::Tensor& tensor);
void broadcast(const ProcessGroupPtr& group, at::Tensor& tensor, int root);
void barrier(const ProcessGroupPtr& group);

}  // namespace ddprun::trainer
