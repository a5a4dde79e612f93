#include "trainer/prefetch.h"

#include "trainer/synthetic.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace ddprun::trainer {
namespace {

TEST_SUITE_BEGIN("trainer/prefetch");

TEST_CASE("on a CPU batches are views of the loader's memory, in order, none copied") {
    const auto data = make_synthetic({23, 10, {4, 5}, 1});
    std::vector<std::int64_t> indices(23);
    std::iota(indices.begin(), indices.end(), std::int64_t{0});
    std::vector<FloatMemory> made;
    LoaderOptions options;
    options.batch_size = 10;
    options.workers = 2;
    options.make_memory = [&made](std::size_t floats) {
        made.push_back(std::make_unique<float[]>(floats));
        return made.back();
    };
    Loader loader(*data, indices, options);
    DeviceBatches batches(loader, c10::Device(c10::kCPU), data->shape());
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

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::trainer
