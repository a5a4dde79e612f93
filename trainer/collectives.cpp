#include "trainer/collectives.h"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/torch.h>

#include <vector>

namespace ddprun::trainer {

void all_reduce_sum(const ProcessGroupPtr& group, at::Tensor& tensor) {
    if (group) {
        std::vector<at::Tensor> tensors{tensor};
        group->allreduce(tensors)->wait();
    }
}

void broadcast(const ProcessGroupPtr& group, at::Tensor& tensor, int root) {
    if (group) {
        std::vector<at::Tensor> tensors{tensor};
        c10d::BroadcastOptions options;
        options.rootRank = root;
        group->broadcast(tensors, options)->wait();
    }
}

void barrier(const ProcessGroupPtr& group) {
    // A sum over one number: Gloo's own barrier makes a tensor of every back end's device.
    at::Tensor one = torch::ones({1});
    all_reduce_sum(group, one);
}

}  // namespace ddprun::trainer
