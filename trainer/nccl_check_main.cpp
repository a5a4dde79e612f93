// nccl-check: whether the ranks of a job can talk to each other with NCCL, without LibTorch. Each
// gets rank 0's ncclUniqueId over the store, builds the communicator, all-reduces, checks the sum;
// rank 0 prints the bus bandwidth. On a machine without a GPU it does the exchange alone.
#include "proto/exit_codes.h"
#include "proto/limits.h"
#include "proto/standard_output.h"
#include "rendezvous/client.h"
#include "trainer/nccl_all_reduce.h"
#include "trainer/nccl_id.h"
#include "trainer/worker_place.h"

#include <fmt/format.h>

#include <unistd.h>

#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace ddprun;
using namespace ddprun::trainer;

constexpr std::size_t kBufferBytes = 64 * limits::kMiB;
constexpr int kRepeats = 20;

constexpr std::chrono::seconds kTimeout{300};  // for the store and for the slowest rank

constexpr const char* kHelp =
    "Checks NCCL between the workers of a job: ddprun --nproc_per_node=GPUS nccl-check\n\n"
    "  --timeout=SECONDS  to reach the store, and to wait for the slowest rank (default 300)\n\n"
    "Exchanges the NCCL id over the job's store, builds a communicator, all-reduces 64 MiB, "
    "checks\n"
    "the sum and prints the bus bandwidth. Ends with 0; 79 where the ids agree but a rank has no\n"
    "GPU; 65 where the ids differ or the sum is wrong; 69 where the store can't be reached or a "
    "rank\n"
    "is missing; 70 where CUDA or NCCL fails. May be run again and again with the same store.\n";

/// Prints the reason and chooses the status.
int give_up(const Error& error, int status) {
    fmt::print(stderr, "nccl-check: {}\n", error.context);
    return status;
}

std::string host_name() {
    std::array<char, limits::kNameBytesMax> name{};
    return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown host";
}

/// The id that rank 0 gives out: NCCL's, or where it makes none, bytes to try the exchange with.
Result<std::string> id_to_give() {
    auto id = make_nccl_id();
    if (id) {
        return id;
    }
    fmt::print("nccl-check: {}\n", id.error().context);
    fmt::print("nccl-check: 128 random bytes are exchanged in its place\n");
    return random_id();
}

/// A worker that is alone needs no store.
Result<NcclIdAgreement> agree(const WorkerPlace& place, StoreClient* store, NcclIdOffer offer) {
    if (place.rank == 0) {
        auto id = id_to_give();
        if (!id) {
            return fail(id.error());
        }
        offer.id = std::move(*id);
    }
    if (store == nullptr) {
        return NcclIdAgreement{offer.id, offer.obstacle, offer.prefix};
    }
    return agree_on_id(*store, offer);
}

void print_timing(const WorkerPlace& place, const AllReduceTiming& timing) {
    constexpr double kGiga = 1e9;
    fmt::print(
        "nccl-check: all-reduce of {} MiB over {} ranks ({}, NCCL {}): every sum is right, {:.1f} "
        "GB/s, bus bandwidth {:.1f} GB/s\n",
        kBufferBytes / limits::kMiB,
        place.world_size,
        timing.device,
        nccl_version(),
        timing.bytes_per_second / kGiga,
        timing.bus_bytes_per_second / kGiga
    );
}

/// All ranks have come here. Leaves nothing in the store when they have.
Result<void> meet(const WorkerPlace& place, StoreClient& store, const std::string& key) {
    auto met = store.barrier(key, place.world_size);
    if (met && place.rank == 0) {
        static_cast<void>(store.remove(key));  // no other run has this key
    }
    return met;
}

/// The part with GPUs, when all ranks have one.
int run_all_reduce(const WorkerPlace& place, StoreClient* store, const NcclIdAgreement& agreement) {
    AllReduceOptions options;
    options.id = agreement.id;
    options.rank = place.rank;
    options.world_size = place.world_size;
    options.local_rank = place.local_rank;
    options.bytes = kBufferBytes;
    options.repeats = kRepeats;
    const auto timing = all_reduce(options);
    if (!timing) {
        const bool is_wrong = timing.error().code == Errc::malformed;
        return give_up(timing.error(), is_wrong ? exit_code::kData : exit_code::kInternal);
    }
    if (store != nullptr) {
        // Rank 0 speaks for all: only ranks whose own sum was right come here.
        if (auto met = meet(place, *store, agreement.prefix + "done"); !met) {
            return give_up(met.error(), exit_code::kUnavailable);
        }
    }
    if (place.rank == 0) {
        print_timing(place, *timing);
    }
    return exit_code::kSuccess;
}

int run(const WorkerPlace& place, std::chrono::seconds timeout) {
    std::unique_ptr<StoreClient> store;
    if (!place.master_addr.empty()) {
        StoreClientOptions options;
        options.host = place.master_addr;
        options.port = place.master_port;
        options.timeout = timeout;
        options.connect_timeout = timeout;
        auto connected = StoreClient::connect(std::move(options));
        if (!connected) {
            return give_up(connected.error(), exit_code::kUnavailable);
        }
        store = std::move(*connected);
    }
    NcclIdOffer offer;
    offer.rank = place.rank;
    offer.world_size = place.world_size;
    offer.prefix = fmt::format("nccl-check/{}/", place.round);
    if (const auto gpu = find_gpu(place.local_rank); !gpu) {
        offer.obstacle = fmt::format("{}: {}", host_name(), gpu.error().context);
    }
    const auto agreement = agree(place, store.get(), offer);
    if (!agreement) {
        const bool differs = agreement.error().code == Errc::malformed;
        return give_up(agreement.error(), differs ? exit_code::kData : exit_code::kUnavailable);
    }
    if (place.rank == 0) {
        fmt::print("nccl-check: all {} ranks hold the same 128 bytes\n", place.world_size);
    }
    if (!agreement->obstacle.empty()) {
        fmt::print(
            "nccl-check: rank {}: no communicator can be made: {}\n",
            place.rank,
            agreement->obstacle
        );
        static_cast<void>(std::fflush(stdout));
        if (store != nullptr) {
            // The first to end with a failure ends the others: not before all have spoken. One that
            // goes missing here changes nothing of what was found.
            static_cast<void>(meet(place, *store, agreement->prefix + "told"));
        }
        return exit_code::kNoCommunicator;
    }
    return run_all_reduce(place, store.get(), *agreement);
}

/// The seconds of --timeout=SECONDS.
std::optional<std::chrono::seconds> timeout_of(std::string_view argument) {
    constexpr std::string_view kName = "--timeout=";
    if (!argument.starts_with(kName)) {
        return std::nullopt;
    }
    argument.remove_prefix(kName.size());
    int seconds = 0;
    const char* end = argument.data() + argument.size();
    const auto [stop, error] = std::from_chars(argument.data(), end, seconds);
    const bool is_number = error == std::errc{} && stop == end;
    if (!is_number || seconds < 1 || seconds > limits::kSecondsMax) {
        return std::nullopt;
    }
    return std::chrono::seconds{seconds};
}

}  // namespace

int main(int argc, char** argv) {
    std::chrono::seconds timeout = kTimeout;
    for (const std::string_view argument : std::vector<std::string_view>{argv + 1, argv + argc}) {
        if (argument == "--help" || argument == "-h") {
            return print_asked_for("nccl-check", kHelp);
        }
        const auto given = timeout_of(argument);
        if (!given) {
            fmt::print(stderr, "nccl-check: {}: not understood (see --help)\n", argument);
            return exit_code::kUsage;
        }
        timeout = *given;
    }
    const auto place = read_worker_place(process_environment);
    if (!place) {
        return give_up(place.error(), exit_code::kUsage);
    }
    const int status = run(*place, timeout);
    static_cast<void>(std::fflush(stdout));
    return status;
}
