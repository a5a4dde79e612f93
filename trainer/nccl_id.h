// How all ranks of a job get rank 0's ncclUniqueId over the store, and how each learns that every
// other holds the same bytes. No CUDA and no NCCL in it: to this part an id is 128 bytes.
#pragma once

#include "proto/result.h"
#include "rendezvous/client.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace ddprun::trainer {

inline constexpr std::size_t kNcclIdBytes = 128;

/// What one rank brings to the exchange.
struct NcclIdOffer {
    std::int32_t rank = 0;
    std::int32_t world_size = 1;
    std::string prefix;    ///< of the keys; another one for each exchange
    std::string id;        ///< of rank 0: kNcclIdBytes; of the others: not looked at
    std::string obstacle;  ///< why this rank can't be part of a communicator; empty: it can
};

/// The same on every rank.
struct NcclIdAgreement {
    std::string id;        ///< kNcclIdBytes that every rank holds
    std::string obstacle;  ///< of the first rank that has one, with the rank's number
};

/// Every rank calls it; it returns when all have. Errc::malformed where a rank got other bytes than
/// rank 0 gave, and the client's errors. Blocks for the client's time-out a step at most.
[[nodiscard]] Result<NcclIdAgreement> agree_on_id(StoreClient& store, const NcclIdOffer& offer);

/// 128 random bytes, where NCCL makes no id.
[[nodiscard]] Result<std::string> random_id();

}  // namespace ddprun::trainer
