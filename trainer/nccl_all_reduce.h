// One rank's communicator, made with raw NCCL: an all-reduce whose every element is checked, then
// a few that are timed. Blocks in NCCL for as long as its peers do; whoever started the ranks ends
// those that are left when one fails.
#pragma once

#include "proto/result.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace ddprun::trainer {

/// "2.28.9", of the library that was loaded.
[[nodiscard]] std::string nccl_version();

/// ncclGetUniqueId(): the bytes. Fails on machines without a driver.
[[nodiscard]] Result<std::string> make_nccl_id();

/// The GPU of this local rank can be used; Errc::unsupported, with a text for people, if not.
[[nodiscard]] Result<void> find_gpu(std::int32_t local_rank);

struct AllReduceOptions {
    std::string id;
    std::int32_t rank = 0;
    std::int32_t world_size = 1;
    std::int32_t local_rank = 0;  ///< the GPU's number
    std::size_t bytes = 0;        ///< of the buffer, a multiple of 4
    int repeats = 0;              ///< that are timed
};

struct AllReduceTiming {
    std::string device;               ///< its name
    double bytes_per_second = 0;      ///< size of the buffer over time
    double bus_bytes_per_second = 0;  ///< times 2 (n - 1) / n: what one link carries
};

/// Errc::malformed where an element of the sum is wrong; Errc::io_error where CUDA or NCCL fails.
[[nodiscard]] Result<AllReduceTiming> all_reduce(const AllReduceOptions& options);

}  // namespace ddprun::trainer
