#include "trainer/worker_place.h"

#include "proto/worker_env.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <limits>

namespace ddprun::trainer {
namespace {

struct Range {
    std::int64_t low = 0;
    std::int64_t high = std::numeric_limits<std::int32_t>::max();
};

/// The integer in a variable; `fallback` where it isn't set, an error where there is no fallback.
Result<std::int64_t> integer(
    const GetEnvironment& get,
    std::string_view name,
    std::optional<std::int64_t> fallback,
    Range range
) {
    const auto text = get(name);
    if (!text) {
        if (fallback) {
            return *fallback;
        }
        return fail(
            Errc::invalid_argument,
            fmt::format(
                "environment: {} is not set, but RANK or WORLD_SIZE is; start it by ddprun or "
                "torchrun, or alone with neither",
                name
            )
        );
    }
    std::int64_t value = 0;
    const char* end = text->data() + text->size();
    const auto [stop, error] = std::from_chars(text->data(), end, value);
    if (error != std::errc{} || stop != end || value < range.low || value > range.high) {
        return fail(
            Errc::invalid_argument,
            fmt::format(
                "environment: {}={} is not a number from {} to {}",
                name,
                *text,
                range.low,
                range.high
            )
        );
    }
    return value;
}

Result<std::string> master_address(const GetEnvironment& get) {
    auto address = get(worker_env::kMasterAddr);
    if (!address || address->empty()) {
        return fail(
            Errc::invalid_argument,
            fmt::format("environment: {} is not set", worker_env::kMasterAddr)
        );
    }
    return *address;
}

/// Reads one integer after the other into fields; remembers the first error.
class Reader {
public:
    explicit Reader(const GetEnvironment& get) : get_(get) {}

    template <class Field>
    void read(
        Field& field, std::string_view name, std::optional<std::int64_t> fallback, Range range
    ) {
        if (error_) {
            return;
        }
        auto value = integer(get_, name, fallback, range);
        if (value) {
            field = static_cast<Field>(*value);
        } else {
            error_ = value.error();
        }
    }

    [[nodiscard]] const std::optional<Error>& error() const { return error_; }

private:
    const GetEnvironment& get_;
    std::optional<Error> error_;
};

}  // namespace

std::optional<std::string> process_environment(std::string_view name) {
    const char* value = std::getenv(std::string(name).c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

Result<WorkerPlace> read_worker_place(const GetEnvironment& get) {
    constexpr std::int64_t kPortMax = 65'535;
    constexpr std::int64_t kRoundMax = std::numeric_limits<std::int64_t>::max();
    WorkerPlace place;
    Reader reader(get);
    int columns = 0;
    reader.read(columns, worker_env::kTty, 0, {});
    if (columns > 0) {
        place.terminal_columns = columns;
    }
    if (get(worker_env::kRank) || get(worker_env::kWorldSize)) {
        reader.read(place.world_size, worker_env::kWorldSize, std::nullopt, {.low = 1});
        reader.read(
            place.rank, worker_env::kRank, std::nullopt, {.low = 0, .high = place.world_size - 1}
        );
        reader.read(place.local_world_size, worker_env::kLocalWorldSize, 1, {1, place.world_size});
        reader.read(place.local_rank, worker_env::kLocalRank, 0, {});
        reader.read(place.restart_count, worker_env::kRestartCount, 0, {});
        reader.read(place.round, worker_env::kRound, place.restart_count, {0, kRoundMax});
        int listen_fd = -1;
        reader.read(listen_fd, worker_env::kListenFd, -1, {});
        if (listen_fd >= 0) {
            place.listen_fd = listen_fd;
        }
        // A worker that is alone needs no store, but may want one (--ddp).
        const std::optional<std::int64_t> none =
            place.alone() ? std::optional<std::int64_t>(0) : std::nullopt;
        reader.read(
            place.master_port,
            worker_env::kMasterPort,
            none,
            {.low = place.alone() ? 0 : 1, .high = kPortMax}
        );
    }
    if (reader.error()) {
        return fail(*reader.error());
    }
    if (!place.alone()) {
        auto address = master_address(get);
        if (!address) {
            return fail(address.error());
        }
        place.master_addr = *address;
    } else if (place.master_port != 0) {
        place.master_addr = get(worker_env::kMasterAddr).value_or("");
    }
    place.agent_hosts_store = get(worker_env::kUseAgentStore) == "True";
    return place;
}

}  // namespace ddprun::trainer
