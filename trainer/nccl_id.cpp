#include "trainer/nccl_id.h"

#include <fmt/format.h>

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <vector>

namespace ddprun::trainer {

namespace {

/// How many ranks' answers rank 0 reads at a time.
constexpr std::int32_t kRanksPerRead = 4'096;

// The first byte of rank 0's verdict.
constexpr char kAgreed = '+';
constexpr char kDiffers = '-';

std::string key_of_rank(const NcclIdOffer& offer, std::int32_t rank) {
    return fmt::format("{}held/{}", offer.prefix, rank);
}

/// What rank 0 tells all, from what every rank holds: kAgreed and the first obstacle, or kDiffers
/// and the reason.
Result<std::string> judge(StoreClient& store, const NcclIdOffer& offer) {
    std::string obstacle;
    for (std::int32_t first = 0; first < offer.world_size; first += kRanksPerRead) {
        const std::int32_t end = std::min(offer.world_size, first + kRanksPerRead);
        StoreClient::Keys keys;
        for (std::int32_t rank = first; rank < end; ++rank) {
            keys.push_back(key_of_rank(offer, rank));
        }
        const auto answers = store.multi_get(keys);
        if (!answers) {
            return fail(answers.error());
        }
        for (std::int32_t rank = first; rank < end; ++rank) {
            const std::string_view answer = (*answers)[static_cast<std::size_t>(rank - first)];
            if (answer.substr(0, kNcclIdBytes) != offer.id) {
                return fmt::format("{}rank {} holds another id than rank 0", kDiffers, rank);
            }
            const std::string_view own = answer.substr(kNcclIdBytes);
            if (obstacle.empty() && !own.empty()) {
                obstacle = fmt::format("rank {}: {}", rank, own);
            }
        }
    }
    return fmt::format("{}{}", kAgreed, obstacle);
}

}  // namespace

Result<NcclIdAgreement> agree_on_id(StoreClient& store, const NcclIdOffer& offer) {
    const std::string id_key = fmt::format("{}id", offer.prefix);
    const std::string verdict_key = fmt::format("{}verdict", offer.prefix);
    if (offer.rank == 0) {
        if (auto given = store.set(id_key, offer.id); !given) {
            return fail(given.error());
        }
    }
    auto id = store.get(id_key);
    if (!id) {
        return fail(id.error());
    }
    if (auto told = store.set(key_of_rank(offer, offer.rank), *id + offer.obstacle); !told) {
        return fail(told.error());
    }
    if (offer.rank == 0) {
        const auto judged = judge(store, offer);
        if (!judged) {
            return fail(judged.error());
        }
        if (auto told = store.set(verdict_key, *judged); !told) {
            return fail(told.error());
        }
    }
    const auto verdict = store.get(verdict_key);
    if (!verdict) {
        return fail(verdict.error());
    }
    if (verdict->empty() || verdict->front() != kAgreed) {
        return fail(
            Errc::malformed,
            fmt::format("exchange the NCCL id: {}", std::string_view{*verdict}.substr(1))
        );
    }
    return NcclIdAgreement{std::move(*id), verdict->substr(1)};
}

Result<std::string> random_id() {
    std::string id(kNcclIdBytes, '\0');
    // Up to 256 bytes come whole, or not at all.
    if (::getrandom(id.data(), id.size(), 0) != static_cast<ssize_t>(id.size())) {
        return fail(from_errno(errno, "draw 128 random bytes"));
    }
    return id;
}

}  // namespace ddprun::trainer
