#include "trainer/loader.h"

#include "trainer/synthetic.h"

#include <doctest/doctest.h>

#include <algorithm>
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

    [[nodiscard]] Result<std::int64_t> read(const Sample& sample, std::span<float> out)
        const override {
        const std::int64_t index = sample.index;
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

    // Two threads, four pictures ahead for each, and the one that next() holds.
    CHECK(dataset.reads.load() <= 9);
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

/// Every tenth picture is broken.
class BrokenTenths final : public Dataset {
public:
    [[nodiscard]] std::int64_t size() const override { return 50; }

    [[nodiscard]] std::int64_t num_classes() const override { return 50; }

    [[nodiscard]] ImageShape shape() const override { return {2, 2}; }

    [[nodiscard]] Result<std::int64_t> read(const Sample& sample, std::span<float> out)
        const override {
        if (sample.index % 10 == 9) {
            return fail(Errc::malformed, "picture " + std::to_string(sample.index));
        }
        std::fill(out.begin(), out.end(), static_cast<float>(sample.index));
        return sample.index;
    }
};

TEST_CASE("in training the next good picture takes the place of a broken one") {
    const BrokenTenths dataset;
    for (const int workers : {0, 3}) {
        std::vector<std::string> lines;
        BadSamples bad(5, [&lines](const std::string& line) { lines.push_back(line); });
        Loader loader(dataset, count_to(50), {10, workers, true, 0, &bad});

        const auto batches = drain(loader, 12);

        REQUIRE(batches.size() == 5);
        CHECK(batches[0] == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 10});
        CHECK(batches[4].back() == 0);
        CHECK(bad.count() == 5);
        CHECK(lines.size() == 5);
    }
}

TEST_CASE("in an evaluation a broken picture is left out of its batch") {
    const BrokenTenths dataset;
    for (const int workers : {0, 3}) {
        BadSamples bad(5, [](const std::string&) {});
        Loader loader(dataset, {8, 9, 10, 19, 29, 11}, {3, workers, false, 0, &bad});

        const auto batches = drain(loader, 12);

        REQUIRE(batches.size() == 2);
        CHECK(batches[0] == std::vector<std::int64_t>{8, 10});
        CHECK(batches[1] == std::vector<std::int64_t>{11});
    }
}

TEST_CASE("a batch of broken pictures alone is empty, and the next one whole") {
    const BrokenTenths dataset;
    BadSamples bad(5, [](const std::string&) {});
    Loader loader(dataset, {9, 19, 1, 2}, {2, 1, false, 0, &bad});

    const auto batches = drain(loader, 12);

    REQUIRE(batches.size() == 2);
    CHECK(batches[0].empty());
    CHECK(batches[1] == std::vector<std::int64_t>{1, 2});
}

TEST_CASE("one broken picture more than is allowed is an error that names it and the option") {
    const BrokenTenths dataset;
    BadSamples bad(2, [](const std::string&) {});
    Loader loader(dataset, count_to(50), {10, 0, true, 0, &bad});

    CHECK(loader.next().has_value());
    CHECK(loader.next().has_value());
    const auto third = loader.next();
    REQUIRE(!third.has_value());
    CHECK(third.error().context.starts_with("picture 29; 2 broken pictures"));
    CHECK(third.error().context.find("--max_bad_samples") != std::string::npos);
}

TEST_CASE("a broken picture is counted and named once, however often it comes") {
    std::vector<std::string> lines;
    BadSamples bad(1, [&lines](const std::string& line) { lines.push_back(line); });
    const Error error{Errc::malformed, "read x.jpg: cut off"};

    CHECK(!bad.note(7, error).has_value());
    CHECK(!bad.note(7, error).has_value());
    CHECK(bad.note(8, error).has_value());
    CHECK(bad.count() == 1);
    REQUIRE(lines.size() == 1);
    CHECK(lines[0] == "skipped a broken picture (1 of at most 1): read x.jpg: cut off");
}

TEST_CASE("batches lie in the memory that the caller provides") {
    const IndexSet dataset;
    std::vector<FloatMemory> made;
    LoaderOptions options{10, 2, true};
    options.make_memory = [&made](std::size_t floats) {
        made.push_back(std::make_unique<float[]>(floats));
        return made.back();
    };
    Loader loader(dataset, count_to(100), options);
    Batch* const batch = loader.next().value();

    CHECK(made.size() == 3);
    CHECK(std::any_of(made.begin(), made.end(), [batch](const FloatMemory& memory) {
        return memory.get() == batch->images.data();
    }));
}

TEST_CASE("time in next is counted as waiting") {
    const auto dataset = make_synthetic({8, 10, {64, 64}, 0});
    Loader loader(*dataset, count_to(8), {4, 0, true});

    REQUIRE(loader.next().has_value());

    CHECK(loader.waited().count() > 0);
}

TEST_CASE("a loader says when a batch can be had at once") {
    const IndexSet dataset;
    Loader with_threads(dataset, count_to(40), {10, 2, true});
    Loader without(dataset, count_to(40), {10, 0, true});

    REQUIRE(with_threads.next().has_value());
    // Becomes true by itself: the threads work ahead.
    while (!with_threads.ready()) {
        std::this_thread::yield();
    }
    while (with_threads.next().value() != nullptr) {
    }

    CHECK(!with_threads.ready());
    CHECK(!without.ready());
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::trainer
