#include "trainer/data.h"

#include "proto/limits.h"
#include "trainer/cifar10.h"
#include "trainer/fashion_mnist.h"
#include "trainer/image_folder.h"
#include "trainer/packed.h"
#include "trainer/synthetic.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace ddprun::trainer {

namespace {

constexpr int kSyntheticImageSize = 224;
constexpr std::int64_t kSyntheticClasses = 1'000;
/// The test split is a tenth of the training split, but never more than this.
constexpr std::int64_t kSyntheticTestMax = 1'000;

/// The first pictures of another data set, or more classes than it has.
class Narrowed final : public Dataset {
public:
    Narrowed(std::unique_ptr<Dataset> dataset, std::int64_t size, std::int64_t num_classes)
        : dataset_(std::move(dataset)),
          size_(size),
          num_classes_(num_classes) {}

    [[nodiscard]] std::int64_t size() const override { return size_; }

    [[nodiscard]] std::int64_t num_classes() const override { return num_classes_; }

    [[nodiscard]] ImageShape shape() const override { return dataset_->shape(); }

    [[nodiscard]] Normalisation normalisation() const override { return dataset_->normalisation(); }

    [[nodiscard]] Result<std::int64_t> read(const Sample& sample, std::span<float> out)
        const override {
        return dataset_->read(sample, out);
    }

private:
    std::unique_ptr<Dataset> dataset_;
    std::int64_t size_;
    std::int64_t num_classes_;
};

std::unique_ptr<Dataset> open_synthetic(const Options& options, Split split) {
    const int side = options.image_size.value_or(kSyntheticImageSize);
    SyntheticOptions synthetic;
    synthetic.size = options.data.synthetic_size;
    synthetic.seed = options.seed;
    if (split == Split::test) {
        synthetic.size = std::clamp(synthetic.size / 10, std::int64_t{1}, kSyntheticTestMax);
        synthetic.seed = ~options.seed;
    }
    synthetic.num_classes = options.num_classes.value_or(kSyntheticClasses);
    synthetic.shape = ImageShape{side, side};
    return make_synthetic(synthetic);
}

Result<std::unique_ptr<Dataset>> open_source(const Options& options, Split split) {
    const DatasetOptions opened = dataset_options(options, split);
    switch (options.data.kind) {
        case DataKind::fashion_mnist: return open_fashion_mnist(options.data.dir, opened);
        case DataKind::cifar10: return open_cifar10(options.data.dir, opened);
        case DataKind::image_folder: return open_image_folder(options.data.dir, opened);
        case DataKind::packed: return open_packed(options.data.dir, opened);
        case DataKind::synthetic: return open_synthetic(options, split);
    }
    return fail(Errc::internal, "a kind of data that isn't known");
}

}  // namespace

DatasetOptions dataset_options(const Options& options, Split split) {
    DatasetOptions opened;
    opened.split = split;
    opened.image_size = options.image_size;
    if (options.mean || options.std) {
        Normalisation usual = usual_normalisation(options.data.kind);
        usual.mean = options.mean.value_or(usual.mean);
        usual.deviation = options.std.value_or(usual.deviation);
        opened.normalisation = usual;
    }
    opened.augment = split == Split::train && options.augment == Augment::standard;
    opened.jpeg_scaling = options.jpeg_scaling;
    opened.seed = options.seed;
    return opened;
}

Normalisation usual_normalisation(DataKind kind) {
    switch (kind) {
        case DataKind::fashion_mnist: return kFashionMnistNormalisation;
        case DataKind::cifar10: return kCifar10Normalisation;
        case DataKind::image_folder:
        case DataKind::packed: return kImageNetNormalisation;
        case DataKind::synthetic: break;
    }
    return {};
}

Result<std::unique_ptr<Dataset>> open_dataset(const Options& options, Split split) {
    auto dataset = open_source(options, split);
    if (!dataset) {
        return dataset;
    }
    const std::int64_t classes = (*dataset)->num_classes();
    if (options.num_classes && *options.num_classes < classes) {
        return fail(
            Errc::invalid_argument,
            fmt::format("--num_classes={}: the data has {} classes", *options.num_classes, classes)
        );
    }
    const auto limit = split == Split::train ? options.limit_train : options.limit_test;
    const std::int64_t size = std::min((*dataset)->size(), limit.value_or(limits::kSamplesMax));
    const std::int64_t wanted_classes = options.num_classes.value_or(classes);
    if (size != (*dataset)->size() || wanted_classes != classes) {
        return std::make_unique<Narrowed>(std::move(*dataset), size, wanted_classes);
    }
    return dataset;
}

}  // namespace ddprun::trainer
