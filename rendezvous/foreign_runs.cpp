#include "rendezvous/foreign_runs.h"

#include "proto/assert.h"

#include <algorithm>

namespace ddprun {

namespace {

constexpr std::string_view kPrefix = "torch.rendezvous.";

bool is_digit(char character) {
    return character >= '0' && character <= '9';
}

}  // namespace

std::string_view ForeignRuns::run_of(std::string_view key) {
    // PyTorch's client puts a slash before every key.
    const std::size_t begin = key.starts_with('/') ? 1 : 0;
    if (!key.substr(begin).starts_with(kPrefix)) {
        return {};
    }
    const std::size_t id = begin + kPrefix.size();
    const std::size_t slash = key.find('/', id);
    if (slash == std::string_view::npos) {
        return key;
    }
    const std::string_view name = key.substr(0, slash);
    // Before a slash stands the round's number; the id may hold dots and digits of its own.
    const std::size_t dot = name.rfind('.');
    const std::string_view round = name.substr(dot + 1);
    const bool has_round = dot >= id && !round.empty() && std::ranges::all_of(round, is_digit);
    return has_round ? name.substr(0, dot) : name;
}

void ForeignRuns::stored(std::string_view key) {
    const std::string_view name = run_of(key);
    if (name.empty()) {
        return;
    }
    auto found = runs_.find(name);
    if (found == runs_.end()) {
        found = runs_.emplace(name, Run{}).first;
        found->second.name = name;
    }
    found->second.keys.emplace(key);
    settle(found->second);
}

void ForeignRuns::removed(std::string_view key) {
    const std::string_view name = run_of(key);
    const auto found = name.empty() ? runs_.end() : runs_.find(name);
    if (found == runs_.end()) {
        return;
    }
    auto& keys = found->second.keys;
    if (const auto known = keys.find(key); known != keys.end()) {
        keys.erase(known);
    }
    settle(found->second);
}

void ForeignRuns::used(ClientId client, std::string_view key) {
    const std::string_view name = run_of(key);
    const auto found = name.empty() ? runs_.end() : runs_.find(name);
    if (found == runs_.end()) {
        return;
    }
    Run& run = found->second;
    if (uses_ < uses_max_ && runs_of_clients_[client].insert(&run).second) {
        ++uses_;
        ++run.users;
    }
    settle(run);
}

void ForeignRuns::gone(ClientId client, TimePoint now) {
    now_ = std::max(now_, now);
    const auto found = runs_of_clients_.find(client);
    if (found == runs_of_clients_.end()) {
        return;
    }
    for (Run* run : found->second) {
        DDPRUN_ASSERT(run->users > 0 && uses_ > 0);
        --run->users;
        --uses_;
        settle(*run);
    }
    runs_of_clients_.erase(found);
}

/// Puts the run where its numbers of keys and users say; it may be gone afterwards.
void ForeignRuns::settle(Run& run) {
    const bool is_due = run.users == 0 && !run.keys.empty();
    if (is_due && !run.place) {
        run.due_at = now_ + keep_;
        run.place = due_.insert(due_.end(), &run);
    } else if (!is_due && run.place) {
        due_.erase(*run.place);
        run.place.reset();
    }
    if (run.users == 0 && run.keys.empty()) {
        runs_.erase(runs_.find(run.name));
    }
}

std::vector<std::string> ForeignRuns::due(TimePoint now, std::size_t count) const {
    std::vector<std::string> keys;
    for (const Run* run : due_) {
        if (run->due_at > now) {
            break;
        }
        for (const std::string& key : run->keys) {
            if (keys.size() == count) {
                return keys;
            }
            keys.emplace_back(key);
        }
    }
    return keys;
}

std::optional<ForeignRuns::TimePoint> ForeignRuns::next() const {
    return due_.empty() ? std::nullopt : std::optional{due_.front()->due_at};
}

}  // namespace ddprun
