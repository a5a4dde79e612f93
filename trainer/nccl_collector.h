// Rank 0's part of the exchange of an NCCL id, and what both sides write (see nccl_id.h).
#pragma once

#include "proto/result.h"
#include "rendezvous/client.h"
#include "trainer/nccl_id.h"

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace ddprun::trainer {

// The first byte of rank 0's verdict.
inline constexpr char kNcclAgreed = '+';
inline constexpr char kNcclDiffers = '-';
inline constexpr char kNcclMissing = '?';
inline constexpr char kNcclTaken = '!';

/// A rank waits so much longer for the verdict than rank 0 for the ranks.
inline constexpr std::chrono::milliseconds kNcclVerdictSlack{2'000};

/// Those of one rank that is not 0.
struct NcclKeys {
    std::string answer;
    std::string held;
    std::string verdict;

    NcclKeys(std::string_view prefix, std::string_view name);

    [[nodiscard]] static std::string mail(std::string_view prefix);
    [[nodiscard]] static std::string owner(std::string_view prefix);
};

/// What rank 0 answers to a rank that joins.
struct NcclGreeting {
    std::string token;
    std::string id;
};

[[nodiscard]] Result<NcclGreeting> parse_greeting(std::string_view answer);

[[nodiscard]] std::string join_text(
    std::int32_t rank, std::int32_t world_size, std::string_view name
);
[[nodiscard]] std::string held_text(
    std::int32_t rank, std::string_view token, std::string_view name
);

/// 16 hexadecimal digits that nobody has drawn before.
[[nodiscard]] Result<std::string> random_name();

class NcclCollector {
public:
    NcclCollector(StoreClient& store, const NcclIdOffer& offer, std::string token);

    /// Answers the ranks, waits until each has held up what it got, and tells them the verdict,
    /// which it returns. One that lacks ranks after the client's time-out is told as well.
    [[nodiscard]] Result<std::string> run();

private:
    using Deadline = std::chrono::steady_clock::time_point;

    /// What a name is to this run.
    enum class State { answered, held, surplus };

    struct Member {
        std::int32_t rank = 0;
        State state = State::answered;
    };

    Result<void> collect(Deadline deadline);
    Result<void> take(std::string_view letter);
    Result<void> answer(std::int32_t rank, std::string_view name);
    Result<void> check_owner(std::string_view letter);
    [[nodiscard]] Result<std::string> judge();
    Result<void> tell(std::string_view verdict);
    [[nodiscard]] std::string missing() const;

    StoreClient& store_;
    const NcclIdOffer& offer_;
    std::string token_;
    std::map<std::string, Member, std::less<>> members_;  ///< by name
    std::map<std::int32_t, std::string> chosen_;          ///< rank -> name, of those that held
};

}  // namespace ddprun::trainer
