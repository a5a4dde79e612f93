#include "trainer/nccl_collector.h"

#include "proto/limits.h"

#include <fmt/format.h>

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace ddprun::trainer {

namespace {

using std::chrono::milliseconds;

constexpr std::size_t kNameBytes = 16;

/// How many ranks' answers rank 0 reads at a time.
constexpr std::size_t kRanksPerRead = 4'096;

constexpr std::string_view kJoin = "join";
constexpr std::string_view kHeld = "held";

/// One of the queue's messages: its four words.
struct Letter {
    std::string_view kind;
    std::int32_t rank = 0;
    std::string_view third;  ///< world size, or token
    std::string_view name;
};

std::optional<std::int32_t> number_of(std::string_view text) {
    std::int32_t number = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    return error == std::errc{} && stop == end ? std::optional{number} : std::nullopt;
}

std::optional<Letter> parse_letter(std::string_view text) {
    std::array<std::string_view, 4> words;
    for (std::string_view& word : words) {
        const std::size_t size = std::min(text.find(' '), text.size());
        word = text.substr(0, size);
        text.remove_prefix(std::min(size + 1, text.size()));
    }
    const auto rank = number_of(words[1]);
    if (!rank || !text.empty() || words[3].size() != kNameBytes) {
        return std::nullopt;
    }
    return Letter{words[0], *rank, words[2], words[3]};
}

/// What is left until then, not less than nothing.
milliseconds left_until(std::chrono::steady_clock::time_point deadline) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now());
    return std::max(left, milliseconds{0});
}

}  // namespace

NcclKeys::NcclKeys(std::string_view prefix, std::string_view name)
    : answer(fmt::format("{}answer/{}", prefix, name)),
      held(fmt::format("{}held/{}", prefix, name)),
      verdict(fmt::format("{}verdict/{}", prefix, name)) {}

std::string NcclKeys::mail(std::string_view prefix) {
    return fmt::format("{}mail", prefix);
}

std::string NcclKeys::owner(std::string_view prefix) {
    return fmt::format("{}owner", prefix);
}

Result<NcclGreeting> parse_greeting(std::string_view answer) {
    if (answer.size() != kNameBytes + kNcclIdBytes) {
        return fail(
            Errc::malformed,
            fmt::format(
                "exchange the NCCL id: rank 0 answered {} bytes, not {}",
                answer.size(),
                kNameBytes + kNcclIdBytes
            )
        );
    }
    return NcclGreeting{
        std::string{answer.substr(0, kNameBytes)}, std::string{answer.substr(kNameBytes)}};
}

std::string join_text(std::int32_t rank, std::int32_t world_size, std::string_view name) {
    return fmt::format("{} {} {} {}", kJoin, rank, world_size, name);
}

std::string held_text(std::int32_t rank, std::string_view token, std::string_view name) {
    return fmt::format("{} {} {} {}", kHeld, rank, token, name);
}

Result<std::string> random_name() {
    std::uint64_t number = 0;
    if (::getrandom(&number, sizeof number, 0) != static_cast<ssize_t>(sizeof number)) {
        return fail(from_errno(errno, "draw a random name"));
    }
    return fmt::format("{:0{}x}", number, kNameBytes);
}

NcclCollector::NcclCollector(StoreClient& store, const NcclIdOffer& offer, std::string token)
    : store_(store),
      offer_(offer),
      token_(std::move(token)) {}

Result<std::string> NcclCollector::run() {
    const Deadline deadline = std::chrono::steady_clock::now() + store_.options().timeout;
    if (auto begun = store_.set(NcclKeys::owner(offer_.prefix), token_); !begun) {
        return fail(begun.error());
    }
    if (auto collected = collect(deadline); !collected) {
        if (collected.error().code != Errc::timed_out) {
            return fail(collected.error());
        }
        if (auto alive = store_.ping(); !alive) {
            return fail(alive.error());  // nobody's fault but the store's
        }
        const std::string verdict = fmt::format("{}{}", kNcclMissing, missing());
        // Whoever doesn't hear of it finds out by its own time-out.
        static_cast<void>(tell(verdict));
        return verdict;
    }
    auto verdict = judge();
    if (!verdict) {
        return verdict;
    }
    if (auto told = tell(*verdict); !told) {
        return fail(told.error());
    }
    return verdict;
}

/// Errc::timed_out when the ranks aren't complete at the deadline.
Result<void> NcclCollector::collect(Deadline deadline) {
    const std::string mail = NcclKeys::mail(offer_.prefix);
    while (static_cast<std::int32_t>(chosen_.size()) < offer_.world_size - 1) {
        const auto letter = store_.queue_pop(mail, left_until(deadline));
        if (!letter) {
            return fail(letter.error());
        }
        if (auto owned = check_owner(*letter); !owned) {
            return owned;
        }
        if (auto taken = take(*letter); !taken) {
            return taken;
        }
    }
    return {};
}

/// A rank 0 that began later, of a run that came after ours was given up, gets the letter back.
Result<void> NcclCollector::check_owner(std::string_view letter) {
    const auto owner = store_.get(NcclKeys::owner(offer_.prefix));
    if (!owner) {
        return fail(owner.error());
    }
    if (*owner == token_) {
        return {};
    }
    if (auto back = store_.queue_push(NcclKeys::mail(offer_.prefix), letter); !back) {
        return back;
    }
    return fail(
        Errc::refused,
        "exchange the NCCL id: another process has begun as rank 0 with the same store: end the "
        "run that isn't wanted"
    );
}

/// Letters of other runs, and what makes no sense, are passed over.
Result<void> NcclCollector::take(std::string_view letter) {
    const auto parsed = parse_letter(letter);
    if (!parsed || parsed->rank < 1 || parsed->rank >= offer_.world_size) {
        return {};
    }
    if (parsed->kind == kJoin && number_of(parsed->third) == offer_.world_size) {
        return answer(parsed->rank, parsed->name);
    }
    const auto member = members_.find(parsed->name);
    if (parsed->kind == kHeld && parsed->third == token_ && member != members_.end()) {
        // The first of two processes that both say they are this rank.
        const bool is_first = chosen_.try_emplace(parsed->rank, parsed->name).second;
        member->second.state = is_first ? State::held : State::surplus;
    }
    return {};
}

Result<void> NcclCollector::answer(std::int32_t rank, std::string_view name) {
    // Remembered first: the rank's next letter may be there at once.
    members_.insert_or_assign(std::string{name}, Member{rank, State::answered});
    return store_.set(NcclKeys{offer_.prefix, name}.answer, token_ + offer_.id);
}

/// From what every rank holds: kNcclAgreed and the first obstacle, or kNcclDiffers and the reason.
Result<std::string> NcclCollector::judge() {
    std::string obstacle;
    if (!offer_.obstacle.empty()) {
        obstacle = fmt::format("rank 0: {}", offer_.obstacle);
    }
    auto next = chosen_.begin();
    while (next != chosen_.end()) {
        const auto first = next;
        StoreClient::Keys keys;
        for (; next != chosen_.end() && keys.size() < kRanksPerRead; ++next) {
            keys.push_back(NcclKeys{offer_.prefix, next->second}.held);
        }
        const auto answers = store_.multi_get(keys);
        if (!answers) {
            return fail(answers.error());
        }
        auto each = first;
        for (const std::string_view answer : *answers) {
            const std::int32_t rank = (each++)->first;
            if (answer.substr(0, kNcclIdBytes) != offer_.id) {
                return fmt::format("{}rank {} holds another id than rank 0", kNcclDiffers, rank);
            }
            const std::string_view own = answer.substr(kNcclIdBytes);
            if (obstacle.empty() && !own.empty()) {
                obstacle = fmt::format("rank {}: {}", rank, own);
            }
        }
    }
    return fmt::format("{}{}", kNcclAgreed, obstacle);
}

/// The verdict to whom it is for; a name that was answered and never came back is forgotten.
Result<void> NcclCollector::tell(std::string_view verdict) {
    StoreClient::KeyValues verdicts;
    for (const auto& [name, member] : members_) {
        const NcclKeys keys{offer_.prefix, name};
        if (member.state == State::answered) {
            if (auto removed = store_.remove(keys.answer); !removed) {
                return fail(removed.error());
            }
            continue;
        }
        const bool is_surplus = member.state == State::surplus;
        verdicts.emplace_back(
            keys.verdict,
            is_surplus ? fmt::format(
                             "{}another process is rank {} of this run: is one of an earlier run "
                             "still alive?",
                             kNcclTaken,
                             member.rank
                         )
                       : std::string{verdict}
        );
    }
    return verdicts.empty() ? Result<void>{} : store_.multi_set(verdicts);
}

std::string NcclCollector::missing() const {
    std::string ranks;
    std::size_t count = 0;
    for (std::int32_t rank = 1; rank < offer_.world_size; ++rank) {
        if (chosen_.contains(rank)) {
            continue;
        }
        if (++count <= limits::kKeysListedMax) {
            ranks += fmt::format("{}{}", count == 1 ? "" : ", ", rank);
        }
    }
    if (count > limits::kKeysListedMax) {
        ranks += fmt::format(" ... ({} more)", count - limits::kKeysListedMax);
    }
    return fmt::format(
        "rank{} {} of {} did not come within {} ms: are they running, with the same store {}:{}?",
        count == 1 ? "" : "s",
        ranks,
        offer_.world_size,
        store_.options().timeout.count(),
        store_.options().host,
        store_.options().port
    );
}

}  // namespace ddprun::trainer
