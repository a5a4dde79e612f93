#include "trainer/torchscript.h"

#include "trainer/atomic_file.h"

#include <fmt/format.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <sstream>
#include <utility>
#include <vector>

namespace ddprun::trainer {
namespace {

/// A tree of modules, made of names like "layer1.0.conv1.weight".
struct Node {
    std::vector<std::pair<std::string, at::Tensor>> tensors;
    std::vector<std::pair<std::string, Node>> children;

    Node& child(const std::string& name) {
        for (auto& [known, node] : children) {
            if (known == name) {
                return node;
            }
        }
        return children.emplace_back(name, Node{}).second;
    }
};

Node tree_of(const NamedTensors& state) {
    Node root;
    for (const auto& [name, tensor] : state) {
        Node* node = &root;
        std::size_t begin = 0;
        for (std::size_t dot = name.find('.'); dot != std::string::npos;
             dot = name.find('.', begin)) {
            node = &node->child(name.substr(begin, dot - begin));
            begin = dot + 1;
        }
        node->tensors.emplace_back(name.substr(begin), tensor);
    }
    return root;
}

/// `number` keeps the types of different modules apart.
torch::jit::Module module_of(const Node& node, int& number) {
    torch::jit::Module module(c10::QualifiedName(fmt::format("__torch__.ddprun.Module{}", number++))
    );
    for (const auto& [name, tensor] : node.tensors) {
        const at::Tensor copy = tensor.detach().clone();
        if (name == "weight" || name == "bias") {
            module.register_parameter(name, copy, /*is_buffer=*/false);
        } else {
            module.register_buffer(name, copy);
        }
    }
    for (const auto& [name, child] : node.children) {
        module.register_module(name, module_of(child, number));
    }
    return module;
}

/// Lines of a forward method.
class Source {
public:
    void line(const std::string& text) { text_ += "    " + text + "\n"; }

    struct ConvNorm {
        std::string conv;
        std::string norm;
        int stride = 1;
        int padding = 0;
    };

    /// out = norm(conv(in))
    void conv_norm(const std::string& out, const std::string& in, const ConvNorm& layer) {
        line(fmt::format(
            "{} = torch.conv2d({}, {}.weight, None, [{}, {}], [{}, {}], [1, 1], 1)",
            out,
            in,
            layer.conv,
            layer.stride,
            layer.stride,
            layer.padding,
            layer.padding
        ));
        line(fmt::format(
            "{0} = torch.batch_norm({0}, {1}.weight, {1}.bias, {1}.running_mean, "
            "{1}.running_var, False, 0.1, 1e-05, True)",
            out,
            layer.norm
        ));
    }

    [[nodiscard]] const std::string& text() const { return text_; }

private:
    std::string text_;
};

/// x = block(x); `block` is the variable that holds its module.
void add_block(
    Source& source, const std::string& block, bool bottleneck, int stride, bool downsample
) {
    const auto layer = [&block](int number, int own_stride, int padding) {
        return Source::ConvNorm{
            fmt::format("{}.conv{}", block, number),
            fmt::format("{}.bn{}", block, number),
            own_stride,
            padding};
    };
    if (bottleneck) {
        source.conv_norm("y", "x", layer(1, 1, 0));
        source.line("y = torch.relu(y)");
        source.conv_norm("y", "y", layer(2, stride, 1));
        source.line("y = torch.relu(y)");
        source.conv_norm("y", "y", layer(3, 1, 0));
    } else {
        source.conv_norm("y", "x", layer(1, stride, 1));
        source.line("y = torch.relu(y)");
        source.conv_norm("y", "y", layer(2, 1, 1));
    }
    if (downsample) {
        source.conv_norm(
            "x",
            "x",
            {fmt::format("getattr({}.downsample, \"0\")", block),
             fmt::format("getattr({}.downsample, \"1\")", block),
             stride,
             0}
        );
    }
    source.line("x = torch.relu(y + x)");
}

}  // namespace

std::string resnet_source(const ResNetShape& shape) {
    Source source;
    source.conv_norm("x", "x", {"self.conv1", "self.bn1", 2, 3});
    source.line("x = torch.max_pool2d(torch.relu(x), [3, 3], [2, 2], [1, 1])");
    for (std::size_t layer = 0; layer < shape.blocks.size(); ++layer) {
        for (std::int64_t block = 0; block < shape.blocks[layer]; ++block) {
            // A block's module has a type of its own, and so a variable of its own.
            const std::string name = fmt::format("block{}_{}", layer + 1, block);
            source.line(fmt::format("{} = getattr(self.layer{}, \"{}\")", name, layer + 1, block));
            const bool first = block == 0;
            const int stride = first && layer > 0 ? 2 : 1;
            add_block(
                source, name, shape.bottleneck, stride, first && (layer > 0 || shape.bottleneck)
            );
        }
    }
    source.line("x = torch.flatten(torch.adaptive_avg_pool2d(x, [1, 1]), 1)");
    source.line("return torch.linear(x, self.fc.weight, self.fc.bias)");
    return "def forward(self, x):\n" + source.text();
}

Result<void> save_torchscript(
    const NamedTensors& state, const ResNetShape& shape, const std::filesystem::path& path
) {
    std::ostringstream bytes;
    try {
        int number = 0;
        torch::jit::Module module = module_of(tree_of(state), number);
        module.define(resnet_source(shape));
        module.eval();
        module.save(bytes);
    } catch (const std::exception& exception) {
        return fail(Errc::internal, fmt::format("LibTorch's TorchScript: {}", exception.what()));
    }
    auto file = AtomicFile::create(path);
    if (!file) {
        return fail(file.error());
    }
    auto written = file->write(bytes.str());
    return written ? file->commit() : written;
}

}  // namespace ddprun::trainer
