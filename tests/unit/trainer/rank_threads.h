// Several ranks as threads of one process, over Gloo on loopback. An exception of any rank is
// thrown again in the caller when all have ended.
#pragma once

#include "trainer/process_group.h"

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace ddprun::trainer::test {

inline void run_ranks(
    int world_size, const std::function<void(int rank, const ProcessGroupPtr& group)>& body
) {
    const StorePtr store = c10::make_intrusive<c10d::HashStore>();
    store->setTimeout(std::chrono::seconds(20));
    std::mutex mutex;
    std::exception_ptr first;
    {
        std::vector<std::jthread> threads;
        for (int rank = 0; rank < world_size; ++rank) {
            threads.emplace_back([&, rank] {
                try {
                    body(rank, make_gloo_group(store, rank, world_size, "127.0.0.1"));
                } catch (...) {
                    const std::lock_guard lock(mutex);
                    if (!first) {
                        first = std::current_exception();
                    }
                }
            });
        }
    }
    if (first) {
        std::rethrow_exception(first);
    }
}

}  // namespace ddprun::trainer::test
