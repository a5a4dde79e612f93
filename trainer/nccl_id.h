// How all ranks of a job get rank 0's ncclUniqueId over the store, and how each learns that every
// other holds the same bytes. No CUDA and no NCCL in it: to this part an id is 128 bytes.
//
// The store may hold what earlier exchanges with the same prefix left, or be used by one that still
// waits: nothing is read that wasn't written for this exchange. Rank 0 draws a token, every other
// rank a name; a rank sends its name to rank 0's queue and gets token and id at a key of that name,
// holds them up to rank 0 with the token, and reads the verdict at a key of its name. Keys, all
// behind the prefix, are removed by those who read them:
//
//   owner         the token of the rank 0 that began last; an earlier one leaves the queue to it
//   mail          queue: "join RANK WORLD_SIZE NAME", "held RANK TOKEN NAME"
//   answer/NAME   token and id
//   held/NAME     the id that was got, and the rank's obstacle
//   verdict/NAME  '+' and the first obstacle, or '-' or '?' and a reason
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
    std::string prefix;    ///< of the keys; the same on every rank, also from run to run
    std::string id;        ///< of rank 0: kNcclIdBytes; of the others: not looked at
    std::string obstacle;  ///< why this rank can't be part of a communicator; empty: it can
};

/// The same on every rank.
struct NcclIdAgreement {
    std::string id;        ///< kNcclIdBytes that every rank holds
    std::string obstacle;  ///< of the first rank that has one, with the rank's number
    std::string prefix;    ///< of further keys: no other exchange has it
};

/// Every rank calls it; it returns when all have. Errc::malformed where a rank got other bytes than
/// rank 0 gave; Errc::timed_out, with the missing ranks, where some don't come within the client's
/// time-out; Errc::refused where another process takes this rank's part; and the client's errors.
[[nodiscard]] Result<NcclIdAgreement> agree_on_id(StoreClient& store, const NcclIdOffer& offer);

/// 128 random bytes, where NCCL makes no id.
[[nodiscard]] Result<std::string> random_id();

}  // namespace ddprun::trainer
