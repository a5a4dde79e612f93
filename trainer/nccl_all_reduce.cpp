#include "trainer/nccl_all_reduce.h"

#include <fmt/format.h>
#include <nccl.h>

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string_view>
#include <type_traits>
#include <vector>

namespace ddprun::trainer {

namespace {

constexpr int kRankPeriod = 7;   // what a rank adds depends on its number
constexpr int kIndexPeriod = 5;  // and on the place in the buffer
constexpr int kWarmUps = 5;      // NCCL sets its channels up with the first ones

struct FreeDevice {
    void operator()(float* memory) const { ::cudaFree(memory); }
};

struct DestroyStream {
    void operator()(cudaStream_t stream) const { ::cudaStreamDestroy(stream); }
};

struct DestroyCommunicator {
    void operator()(ncclComm_t communicator) const { ::ncclCommDestroy(communicator); }
};

using DeviceBuffer = std::unique_ptr<float, FreeDevice>;
using Stream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, DestroyStream>;
using Communicator = std::unique_ptr<std::remove_pointer_t<ncclComm_t>, DestroyCommunicator>;

Result<void> check(cudaError_t status, std::string_view what) {
    if (status == cudaSuccess) {
        return {};
    }
    return fail(Errc::io_error, fmt::format("{}: CUDA: {}", what, ::cudaGetErrorString(status)));
}

Result<void> check(ncclResult_t status, std::string_view what) {
    if (status == ncclSuccess) {
        return {};
    }
    const char* last = ::ncclGetLastError(nullptr);
    return fail(
        Errc::io_error,
        fmt::format(
            "{}: NCCL: {}; {} (NCCL_DEBUG=INFO tells more)",
            what,
            ::ncclGetErrorString(status),
            last == nullptr ? "" : last
        )
    );
}

float share_of(std::int32_t rank, std::size_t index) {
    return static_cast<float>(rank % kRankPeriod) +
           static_cast<float>(index % static_cast<std::size_t>(kIndexPeriod));
}

/// The sum of all ranks' shares: small whole numbers, so that floats hold it exactly.
float sum_of(std::int32_t world_size, std::size_t index) {
    double sum = 0;
    for (std::int32_t rank = 0; rank < world_size; ++rank) {
        sum += static_cast<double>(share_of(rank, index));
    }
    return static_cast<float>(sum);
}

/// What one rank works with; destroyed in reverse order.
struct Bench {
    std::size_t count = 0;
    Stream stream;
    DeviceBuffer input;
    DeviceBuffer output;
    Communicator communicator;

    Result<void> reduce() const {
        const ncclResult_t status = ::ncclAllReduce(
            input.get(), output.get(), count, ncclFloat, ncclSum, communicator.get(), stream.get()
        );
        return check(status, "all-reduce");
    }

    Result<void> wait() const {
        return check(::cudaStreamSynchronize(stream.get()), "wait for the all-reduce");
    }
};

Result<DeviceBuffer> allocate(std::size_t bytes) {
    void* memory = nullptr;
    if (auto allocated = check(::cudaMalloc(&memory, bytes), "allocate GPU memory"); !allocated) {
        return fail(allocated.error());
    }
    return DeviceBuffer{static_cast<float*>(memory)};
}

Result<Bench> set_up(const AllReduceOptions& options) {
    Bench bench;
    bench.count = options.bytes / sizeof(float);
    if (auto chosen = check(::cudaSetDevice(options.local_rank), "choose the GPU"); !chosen) {
        return fail(chosen.error());
    }
    cudaStream_t stream = nullptr;
    if (auto made = check(::cudaStreamCreate(&stream), "make a stream"); !made) {
        return fail(made.error());
    }
    bench.stream.reset(stream);
    auto input = allocate(options.bytes);
    auto output = allocate(options.bytes);
    if (!input || !output) {
        return fail(!input ? input.error() : output.error());
    }
    bench.input = std::move(*input);
    bench.output = std::move(*output);
    ncclUniqueId id;
    std::memcpy(&id, options.id.data(), sizeof id);
    ncclComm_t communicator = nullptr;
    const ncclResult_t status =
        ::ncclCommInitRank(&communicator, options.world_size, id, options.rank);
    if (auto made = check(status, "make a communicator"); !made) {
        return fail(made.error());
    }
    bench.communicator.reset(communicator);
    return bench;
}

Result<void> check_sum(const Bench& bench, const AllReduceOptions& options) {
    std::vector<float> values(bench.count);
    for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = share_of(options.rank, i);
    }
    const cudaError_t filled =
        ::cudaMemcpy(bench.input.get(), values.data(), options.bytes, cudaMemcpyHostToDevice);
    if (auto copied = check(filled, "fill the buffer"); !copied) {
        return copied;
    }
    if (auto reduced = bench.reduce(); !reduced) {
        return reduced;
    }
    if (auto waited = bench.wait(); !waited) {
        return waited;
    }
    const cudaError_t read =
        ::cudaMemcpy(values.data(), bench.output.get(), options.bytes, cudaMemcpyDeviceToHost);
    if (auto copied = check(read, "read the sum"); !copied) {
        return copied;
    }
    float expected[kIndexPeriod];
    for (std::size_t i = 0; i < kIndexPeriod; ++i) {
        expected[i] = sum_of(options.world_size, i);
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (values[i] != expected[i % kIndexPeriod]) {
            return fail(
                Errc::malformed,
                fmt::format(
                    "all-reduce over {} ranks: element {} is {}, not {}",
                    options.world_size,
                    i,
                    values[i],
                    expected[i % kIndexPeriod]
                )
            );
        }
    }
    return {};
}

Result<double> seconds_of(const Bench& bench, int repeats) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < repeats; ++i) {
        if (auto reduced = bench.reduce(); !reduced) {
            return fail(reduced.error());
        }
    }
    if (auto waited = bench.wait(); !waited) {
        return fail(waited.error());
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

std::string nccl_version() {
    int version = 0;
    if (::ncclGetVersion(&version) != ncclSuccess) {
        return "of unknown version";
    }
    return fmt::format("{}.{}.{}", version / 10'000, version / 100 % 100, version % 100);
}

Result<std::string> make_nccl_id() {
    ncclUniqueId id;
    if (auto made = check(::ncclGetUniqueId(&id), "make an NCCL id"); !made) {
        return fail(made.error());
    }
    return std::string{id.internal, sizeof id.internal};
}

Result<void> find_gpu(std::int32_t local_rank) {
    int count = 0;
    const cudaError_t status = ::cudaGetDeviceCount(&count);
    if (status != cudaSuccess) {
        return fail(
            Errc::unsupported, fmt::format("no GPU can be used: {}", ::cudaGetErrorString(status))
        );
    }
    if (local_rank >= count) {
        return fail(
            Errc::unsupported,
            fmt::format("local rank {} has no GPU of its own, there are {}", local_rank, count)
        );
    }
    return {};
}

Result<AllReduceTiming> all_reduce(const AllReduceOptions& options) {
    const auto bench = set_up(options);
    if (!bench) {
        return fail(bench.error());
    }
    if (auto right = check_sum(*bench, options); !right) {
        return fail(right.error());
    }
    if (auto warm = seconds_of(*bench, kWarmUps); !warm) {
        return fail(warm.error());
    }
    const auto seconds = seconds_of(*bench, options.repeats);
    if (!seconds) {
        return fail(seconds.error());
    }
    cudaDeviceProp properties{};
    if (auto told =
            check(::cudaGetDeviceProperties(&properties, options.local_rank), "ask the GPU");
        !told) {
        return fail(told.error());
    }
    const double ranks = options.world_size;
    AllReduceTiming timing;
    timing.device = properties.name;
    timing.bytes_per_second = static_cast<double>(options.bytes) * options.repeats / *seconds;
    timing.bus_bytes_per_second = timing.bytes_per_second * 2 * (ranks - 1) / ranks;
    return timing;
}

}  // namespace ddprun::trainer
