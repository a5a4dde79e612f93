#include "trainer/bench_data.h"

#include "proto/standard_output.h"
#include "trainer/bad_samples.h"
#include "trainer/data.h"
#include "trainer/input_status.h"
#include "trainer/loader.h"
#include "trainer/sampler.h"

#include <fmt/format.h>

#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <string>

namespace ddprun::trainer {

namespace {

double cpu_seconds() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    constexpr double kMicroseconds = 1e6;
    const auto seconds = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / kMicroseconds;
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Counted {
    std::int64_t images = 0;
    std::int64_t batches = 0;
};

Result<void> run_epoch(
    const Dataset& data,
    std::vector<std::int64_t> indices,
    const LoaderOptions& loading,
    std::int64_t batches_max,
    Counted& counted
) {
    Loader loader(data, std::move(indices), loading);
    while (counted.batches < batches_max) {
        const auto batch = loader.next();
        if (!batch) {
            return fail(batch.error());
        }
        if (*batch == nullptr) {
            break;
        }
        counted.images += (*batch)->size;
        counted.batches += 1;
    }
    return {};
}

}  // namespace

int bench_data(const Options& options, const WorkerPlace& place, Log& log) {
    const auto data = open_dataset(options, Split::train);
    if (!data) {
        log.error("{}", data.error().context);
        return status_of_input(data.error());
    }
    BadSamples bad(options.max_bad_samples, [&log](const std::string& line) {
        log.warning("{}", line);
    });
    const DistributedSampler sampler({
        .dataset_size = (*data)->size(),
        .world_size = place.world_size,
        .rank = place.rank,
        .seed = options.seed,
    });
    LoaderOptions loading;
    loading.batch_size = options.batch_size;
    loading.workers = options.workers;
    loading.bad = &bad;
    const std::int64_t each = training_batches(sampler.samples_per_rank(), options.batch_size);
    Options once = options;
    if (!once.epochs && !once.steps) {
        once.epochs = 1;
    }
    const std::int64_t batches_max = each == 0 ? 0 : total_steps(once, each);
    Counted counted;
    const double cpu_begin = cpu_seconds();
    const auto begin = std::chrono::steady_clock::now();
    for (; counted.batches < batches_max; ++loading.epoch) {
        const auto done =
            run_epoch(**data, sampler.indices(loading.epoch), loading, batches_max, counted);
        if (!done) {
            log.error("{}", done.error().context);
            return status_of_input(done.error());
        }
    }
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
    const double cpu = cpu_seconds() - cpu_begin;
    const auto images = static_cast<double>(counted.images);
    const auto per = [images](double seconds) { return seconds > 0.0 ? images / seconds : 0.0; };
    const std::string line = fmt::format(
        "data: {} images in {:.3f} s: {:.1f} images/s, {} threads, {:.1f} images per CPU second\n",
        counted.images,
        wall.count(),
        per(wall.count()),
        options.workers,
        per(cpu)
    );
    return print_asked_for("trainer", line);
}

}  // namespace ddprun::trainer
