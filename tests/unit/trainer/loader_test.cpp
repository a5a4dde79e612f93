#include "trainer/loader.h"

#include "trainer/synthetic.h"

#include <doctest/doctest.h>

#include <atomic>
#include <future>
#include <numeric>
#include <string>

namespace ddprun::trainer {
namespace {

std::vector<std::int64_t> count_to(std::int64_t count) {
    std::vector<std::int64_t> indices(static_cast<std::size_t>(count));
    std::iota(indices.begin(), indices.end(), std::int64_t{0});
    return indices;
}

/// Each picture is filled with its index; an index below zero can't be read.
class IndexSet final : public Dataset {
public:
    [[nodiscard]] std::int64_t size() const override { return 1000; }

    [[nodiscard]] std::int64_t num_classes() const override { return 1000; }

    [[nodiscard]] ImageShape shape() const override { return {2, 2}; }

    [[nodiscard]] Result<std::int64_t> read(std::int64_t index, std::span<float> out)
        const override {
        reads.fetch_add(1);
        if (index < 0) {
            return fail(Errc::malformed, "picture " + std::to_string(index));
        }
        for (float& value : out) {
            value = static_cast<float>(index);
        }
        return index;
    }

    mutable std::atomic<int> reads{0};
};

/// Labels of all batches, checked against their pictures.
std::vector<std::vector<std::int64_t>> drain(Loader& loader, std::size_t floats) {
    std::vector<std::vector<std::int64_t>> batches;
    while (Batch* const batch = loader.next().value()) {
        std::vector<std::int64_t> labels(
            batch->labels.begin(), batch->labels.begin() + batch->size
        );
        for (std::size_t i = 0; i < labels.size(); ++i) {
            CHECK(batch->images[i * floats] == static_cast<float>(labels[i]));
            CHECK(batch->images[(i + 1) * floats - 1] == static_cast<float>(labels[i]));
        }
        batches.push_back(std::move(labels));
    }
    return batches;
}

TEST_SUITE_BEGIN("trainer/loader");

TEST_CASE("batches come in order and are the same with any number of threads") {
    const IndexSet dataset;
    std::vector<std::vector<std::int64_t>> expected;
    for (std::int64_t begin = 0; begin < 103; begin += 10) {
        expected.emplace_back();
        for (std::int64_t i = begin; i < std::min<std::int64_t>(begin + 10, 103); ++i) {
            expected.back().push_back(i);
        }
    }
    for (const int workers : {0, 1, 2, 5, 16}) {
        CAPTURE(workers);
        Loader loader(dataset, count_to(103), {10, workers, true});

        CHECK(loader.batches() == 11);
        CHECK(drain(loader, dataset.shape().floats()) == expected);
        CHECK(loader.next().value() == nullptr);
    }
}

TEST_CASE("one picture alone is dropped in training and kept in an evaluation") {
    const IndexSet dataset;
    Loader training(dataset, count_to(21), {10, 2, true});
    Loader evaluation(dataset, count_to(21), {10, 2, false});

    CHECK(drain(training, 12).size() == 2);
    const auto all = drain(evaluation, 12);
    REQUIRE(all.size() == 3);
    CHECK(all[2] == std::vector<std::int64_t>{20});
}

TEST_CASE("without indices there is no batch") {
    const IndexSet dataset;
    Loader loader(dataset, {}, {10, 2, true});

    CHECK(loader.batches() == 0);
    CHECK(loader.next().value() == nullptr);
}

TEST_CASE("a batch stays as it is until the next call") {
    const IndexSet dataset;
    Loader loader(dataset, count_to(200), {2, 4, true});

    for (std::int64_t k = 0; k < 100; ++k) {
        const Batch* const batch = loader.next().value();
        std::this_thread::yield();

        CHECK(batch->labels[0] == 2 * k);
        CHECK(batch->images[0] == static_cast<float>(2 * k));
    }
}

TEST_CASE("threads work ahead only as far as the ring of buffers goes") {
    const IndexSet dataset;
    {
        Loader loader(dataset, count_to(1000), {1, 2, true});
        REQUIRE(loader.next().has_value());
    }

    // Two threads, two batches ahead for each, and the one that next() holds.
    CHECK(dataset.reads.load() <= 5);
}

TEST_CASE("a loader that is left in the middle stops its threads") {
    const IndexSet dataset;
    const auto finished = std::async(std::launch::async, [&dataset] {
        for (int i = 0; i < 50; ++i) {
            Loader loader(dataset, count_to(500), {3, 4, true});
            for (int k = 0; k < i % 5; ++k) {
                (void)loader.next();
            }
        }
    });

    CHECK(finished.wait_for(std::chrono::seconds(15)) == std::future_status::ready);
}

TEST_CASE("an error arrives at the batch that it concerns") {
    const IndexSet dataset;
    std::vector<std::int64_t> indices = count_to(40);
    indices[25] = -3;
    for (const int workers : {0, 3}) {
        Loader loader(dataset, indices, {10, workers, true});

        CHECK(loader.next().has_value());
        CHECK(loader.next().has_value());
        const auto third = loader.next();
        REQUIRE(!third.has_value());
        CHECK(third.error().context == "picture -3");
        CHECK(loader.next().has_value());
    }
}

TEST_CASE("time in next is counted as waiting") {
    const auto dataset = make_synthetic({8, 10, {64, 64}, 0});
    Loader loader(*dataset, count_to(8), {4, 0, true});

    REQUIRE(loader.next().has_value());

    CHECK(loader.waited().count() > 0);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::trainer
