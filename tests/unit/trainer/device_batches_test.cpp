#include "trainer/device_batches.h"

#include "trainer/synthetic.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

namespace ddprun::trainer {
namespace {

constexpr ImageShape kShape{.height = 4, .width = 5};

std::vector<std::int64_t> count_to(std::int64_t size) {
    std::vector<std::int64_t> indices(static_cast<std::size_t>(size));
    std::iota(indices.begin(), indices.end(), std::int64_t{0});
    return indices;
}

TEST_SUITE_BEGIN("trainer/device_batches");

TEST_CASE("on a CPU batches are views of the loader's memory, in order, none copied") {
    const auto data = make_synthetic({23, 10, kShape, 1});
    std::vector<FloatMemory> made;
    LoaderOptions options;
    options.batch_size = 10;
    options.workers = 2;
    options.make_memory = [&made](std::size_t floats) {
        made.push_back(std::make_unique<float[]>(floats));
        return made.back();
    };
    Loader loader(*data, count_to(23), options);
    DeviceBatches batches(loader, {.shape = data->shape()});
    std::vector<float> picture(data->shape().floats());
    std::int64_t seen = 0;

    while (DeviceBatch* const batch = batches.next().value()) {
        CHECK(batch->images.sizes() == at::IntArrayRef({batch->size, 3, 4, 5}));
        CHECK(std::any_of(made.begin(), made.end(), [batch](const FloatMemory& memory) {
            return memory.get() == batch->images.const_data_ptr<float>();
        }));
        for (std::int64_t i = 0; i < batch->size; ++i, ++seen) {
            CHECK(batch->labels[i].item<std::int64_t>() == data->read({seen}, picture).value());
            CHECK(batch->images[i].flatten()[7].item<float>() == picture[7]);
        }
    }

    CHECK(seen == 23);
}

TEST_CASE("channels_last gives the same pictures in the other layout") {
    const auto data = make_synthetic({4, 10, kShape, 1});
    LoaderOptions options;
    options.batch_size = 4;
    Loader loader(*data, count_to(4), options);
    Loader other(*data, count_to(4), options);
    DeviceBatches plain(loader, {.shape = data->shape()});
    DeviceBatches last(other, {.shape = data->shape(), .channels_last = true});

    const at::Tensor images = last.next().value()->images;

    CHECK(images.is_contiguous(at::MemoryFormat::ChannelsLast));
    CHECK(images.equal(plain.next().value()->images));
}

TEST_CASE("a CPU needs no page-locked memory") {
    CHECK(!pinned_memory(c10::Device(c10::kCPU)));
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::trainer
