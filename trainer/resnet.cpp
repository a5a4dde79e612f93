#include "trainer/resnet.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace ddprun::trainer {
namespace {

namespace nn = torch::nn;

constexpr std::int64_t kStemChannels = 64;
constexpr std::int64_t kBottleneckExpansion = 4;
constexpr std::size_t kSplitLayer = 2;  ///< the first of the second half, of about equal work

nn::Conv2d conv(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride) {
    return nn::Conv2d(
        nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false)
    );
}

struct BlockOptions {
    bool bottleneck = false;
    std::int64_t in = 0;
    std::int64_t planes = 0;
    std::int64_t stride = 1;
};

/// A residual block. `downsample` is made by the caller, before the block: that is the order in
/// which torchvision draws.
class Block final : public nn::Module {
public:
    Block(const BlockOptions& options, nn::Sequential downsample)
        : downsample_(std::move(downsample)) {
        const std::int64_t planes = options.planes;
        // v1.5: the stride sits in the 3x3 convolution.
        if (options.bottleneck) {
            add(conv(options.in, planes, 1, 1), planes);
            add(conv(planes, planes, 3, options.stride), planes);
            add(conv(planes, planes * kBottleneckExpansion, 1, 1), planes * kBottleneckExpansion);
        } else {
            add(conv(options.in, planes, 3, options.stride), planes);
            add(conv(planes, planes, 3, 1), planes);
        }
        if (downsample_) {
            register_module("downsample", downsample_);
        }
    }

    at::Tensor forward(at::Tensor input) {
        at::Tensor output = input;
        for (std::size_t i = 0; i < convs_.size(); ++i) {
            output = norms_[i]->forward(convs_[i]->forward(output));
            if (i + 1 < convs_.size()) {
                output.relu_();
            }
        }
        output += downsample_ ? downsample_->forward(input) : input;
        return output.relu_();
    }

    [[nodiscard]] const Norm& last_norm() const { return norms_.back(); }

private:
    void add(const nn::Conv2d& convolution, std::int64_t channels) {
        const std::string number = std::to_string(convs_.size() + 1);
        convs_.push_back(register_module("conv" + number, convolution));
        norms_.push_back(register_module("bn" + number, Norm(channels)));
    }

    std::vector<nn::Conv2d> convs_;
    std::vector<Norm> norms_;
    nn::Sequential downsample_;
};

}  // namespace

Result<ResNetShape> resnet_shape(std::string_view name) {
    if (name == "resnet18") {
        return ResNetShape{.bottleneck = false, .blocks = {2, 2, 2, 2}};
    }
    if (name == "resnet34") {
        return ResNetShape{.bottleneck = false, .blocks = {3, 4, 6, 3}};
    }
    if (name == "resnet50") {
        return ResNetShape{.bottleneck = true, .blocks = {3, 4, 6, 3}};
    }
    if (name == "resnet101") {
        return ResNetShape{.bottleneck = true, .blocks = {3, 4, 23, 3}};
    }
    if (name == "resnet152") {
        return ResNetShape{.bottleneck = true, .blocks = {3, 8, 36, 3}};
    }
    return fail(
        Errc::invalid_argument,
        fmt::format(
            "model {}: unknown; there are resnet18, resnet34, resnet50, resnet101, resnet152", name
        )
    );
}

ResNet::ResNet(const ResNetOptions& options) {
    conv1_ = register_module(
        "conv1", nn::Conv2d(nn::Conv2dOptions(3, kStemChannels, 7).stride(2).padding(3).bias(false))
    );
    bn1_ = register_module("bn1", Norm(kStemChannels));
    std::int64_t channels = kStemChannels;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
        layers_[i] = register_module(
            "layer" + std::to_string(i + 1), make_layer(options.shape, i, channels)
        );
    }
    fc_ = register_module("fc", nn::Linear(channels, options.num_classes));
    initialise(options.zero_init_residual);
}

nn::Sequential ResNet::make_layer(
    const ResNetShape& shape, std::size_t index, std::int64_t& channels
) {
    const std::int64_t planes = kStemChannels << index;
    const std::int64_t out = shape.bottleneck ? planes * kBottleneckExpansion : planes;
    nn::Sequential layer;
    for (std::int64_t i = 0; i < shape.blocks[index]; ++i) {
        const std::int64_t stride = (i == 0 && index > 0) ? 2 : 1;
        nn::Sequential downsample = nullptr;
        if (stride != 1 || channels != out) {
            downsample = nn::Sequential(conv(channels, out, 1, stride), Norm(out));
        }
        const BlockOptions block{
            .bottleneck = shape.bottleneck, .in = channels, .planes = planes, .stride = stride};
        layer->push_back(std::make_shared<Block>(block, std::move(downsample)));
        channels = out;
    }
    return layer;
}

void ResNet::initialise(bool zero_init_residual) {
    const torch::NoGradGuard no_grad;
    for (const auto& module : modules(/*include_self=*/false)) {
        if (const auto* convolution = module->as<nn::Conv2dImpl>()) {
            nn::init::kaiming_normal_(convolution->weight, 0, torch::kFanOut, torch::kReLU);
        }
        // Norms already start at weight 1, bias 0.
    }
    if (!zero_init_residual) {
        return;
    }
    for (const auto& module : modules(/*include_self=*/false)) {
        if (const auto* block = module->as<Block>()) {
            nn::init::zeros_(block->last_norm()->weight);
        }
    }
}

void ResNet::synchronise_norms(const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
    for (const auto& module : modules(/*include_self=*/false)) {
        if (auto* norm = module->as<NormImpl>()) {
            norm->synchronise(group);
        }
    }
}

void ResNet::split(c10::Device first, c10::Device second) {
    conv1_->to(first);
    bn1_->to(first);
    for (std::size_t i = 0; i < layers_.size(); ++i) {
        layers_[i]->to(i < kSplitLayer ? first : second);
    }
    fc_->to(second);
    second_device_ = second;
}

at::Tensor ResNet::forward(at::Tensor images) {
    at::Tensor x = bn1_->forward(conv1_->forward(images));
    x.relu_();
    x = torch::max_pool2d(x, 3, 2, 1);
    for (std::size_t i = 0; i < layers_.size(); ++i) {
        if (second_device_ && i == kSplitLayer) {
            x = x.to(*second_device_);
        }
        x = layers_[i]->forward(x);
    }
    x = torch::adaptive_avg_pool2d(x, {1, 1});
    return fc_->forward(torch::flatten(x, 1));
}

}  // namespace ddprun::trainer
