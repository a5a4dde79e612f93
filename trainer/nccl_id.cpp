#include "trainer/nccl_id.h"

#include "proto/limits.h"
#include "trainer/nccl_collector.h"

#include <fmt/format.h>

#include <sys/random.h>

#include <cerrno>
#include <string_view>
#include <utility>

namespace ddprun::trainer {

namespace {

/// An error of the store in the words of the exchange: `who` hasn't done what was waited for.
Error not_in_time(const StoreClient& store, const Error& error, std::string_view who) {
    if (error.code != Errc::timed_out) {
        return error;
    }
    const auto& options = store.options();
    return Error{
        error.code,
        fmt::format(
            "exchange the NCCL id over the store {}:{}: {} within {} ms ({})",
            options.host,
            options.port,
            who,
            options.timeout.count(),
            error.context
        )};
}

Result<NcclIdAgreement> as_agreement(
    const NcclIdOffer& offer, NcclGreeting greeting, std::string_view verdict
) {
    const char kind = verdict.empty() ? '\0' : verdict.front();
    const std::string text{verdict.empty() ? verdict : verdict.substr(1)};
    if (kind == kNcclAgreed) {
        return NcclIdAgreement{
            std::move(greeting.id), text, fmt::format("{}{}/", offer.prefix, greeting.token)};
    }
    const std::string context = fmt::format("exchange the NCCL id: {}", text);
    switch (kind) {
        case kNcclDiffers: return fail(Errc::malformed, context);
        case kNcclMissing: return fail(Errc::timed_out, context);
        case kNcclTaken: return fail(Errc::refused, context);
        default: return fail(Errc::malformed, "exchange the NCCL id: a verdict without sense");
    }
}

/// Of rank 0.
Result<NcclIdAgreement> lead(StoreClient& store, const NcclIdOffer& offer) {
    const auto token = random_name();
    if (!token) {
        return fail(token.error());
    }
    NcclCollector collector{store, offer, *token};
    const auto verdict = collector.run();
    if (!verdict) {
        return fail(verdict.error());
    }
    return as_agreement(offer, NcclGreeting{*token, offer.id}, *verdict);
}

/// Of every other rank.
Result<NcclIdAgreement> follow(StoreClient& store, const NcclIdOffer& offer) {
    const auto name = random_name();
    if (!name) {
        return fail(name.error());
    }
    const NcclKeys keys{offer.prefix, *name};
    const std::string mail = NcclKeys::mail(offer.prefix);
    const auto joined = store.queue_push(mail, join_text(offer.rank, offer.world_size, *name));
    if (!joined) {
        return fail(joined.error());
    }
    const auto answer = store.get(keys.answer);
    if (!answer) {
        return fail(not_in_time(store, answer.error(), "rank 0 hasn't come"));
    }
    auto greeting = parse_greeting(*answer);
    if (!greeting) {
        return fail(greeting.error());
    }
    if (auto told = store.set(keys.held, greeting->id + offer.obstacle); !told) {
        return fail(told.error());
    }
    const auto held = store.queue_push(mail, held_text(offer.rank, greeting->token, *name));
    if (!held) {
        return fail(held.error());
    }
    // Rank 0 began before it answered, so it gives up first and says who is missing.
    const auto verdict = store.get(keys.verdict, store.options().timeout + kNcclVerdictSlack);
    if (!verdict) {
        return fail(not_in_time(store, verdict.error(), "rank 0 gave no verdict"));
    }
    for (const std::string& key : {keys.answer, keys.held, keys.verdict}) {
        // What stays is in nobody's way: its name was drawn for this process.
        static_cast<void>(store.remove(key));
    }
    return as_agreement(offer, std::move(*greeting), *verdict);
}

}  // namespace

Result<NcclIdAgreement> agree_on_id(StoreClient& store, const NcclIdOffer& offer) {
    return offer.rank == 0 ? lead(store, offer) : follow(store, offer);
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
