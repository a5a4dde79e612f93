#include "rendezvous/membership_ranks.h"

#include "proto/assert.h"

#include <algorithm>
#include <optional>
#include <tuple>

namespace ddprun {

namespace {

using Node = std::map<NodeId, LivingNode>::value_type;

bool is_digit(char letter) {
    return letter >= '0' && letter <= '9';
}

/// The digits at the front of `text` without leading zeros; `text` moves behind them.
std::string_view take_number(std::string_view& text) {
    std::size_t end = 0;
    while (end < text.size() && is_digit(text[end])) {
        ++end;
    }
    std::string_view number = text.substr(0, end);
    text.remove_prefix(end);
    number.remove_prefix(std::min(number.find_first_not_of('0'), number.size()));
    return number;
}

std::vector<const Node*> select(const std::map<NodeId, LivingNode>& nodes, std::size_t count_max) {
    std::vector<const Node*> selected;
    for (const Node& node : nodes) {
        if (is_fit(node.second)) {
            selected.push_back(&node);
        }
    }
    const auto before = [](const Node* left, const Node* right) {
        return std::tuple(!left->second.last_rank.has_value(), left->second.arrival) <
               std::tuple(!right->second.last_rank.has_value(), right->second.arrival);
    };
    std::sort(selected.begin(), selected.end(), before);
    selected.resize(std::min(selected.size(), count_max));
    return selected;
}

bool newcomer_before(const Node* left, const Node* right) {
    // Those that ran before and lost their place to a smaller round come first, in their order.
    if (left->second.last_rank.has_value() != right->second.last_rank.has_value()) {
        return left->second.last_rank.has_value();
    }
    if (left->second.last_rank != right->second.last_rank) {
        return left->second.last_rank < right->second.last_rank;
    }
    if (natural_less(left->second.info.host, right->second.info.host)) {
        return true;
    }
    if (natural_less(right->second.info.host, left->second.info.host)) {
        return false;
    }
    return left->second.arrival < right->second.arrival;
}

class Places {
public:
    explicit Places(std::size_t count) : nodes_(count) {}

    bool take(std::optional<GroupRank> rank, const Node* node) {
        if (!rank || rank->value() < 0) {
            return false;
        }
        const auto index = static_cast<std::size_t>(rank->value());
        if (index >= nodes_.size() || nodes_[index] != nullptr) {
            return false;
        }
        nodes_[index] = node;
        return true;
    }

    void take_first_free(const Node* node) {
        const auto free = std::find(nodes_.begin() + first_free_, nodes_.end(), nullptr);
        DDPRUN_ASSERT(free != nodes_.end());
        *free = node;
        first_free_ = free - nodes_.begin();
    }

    [[nodiscard]] std::vector<NodeId> order() const {
        std::vector<NodeId> ids;
        for (const Node* node : nodes_) {
            ids.push_back(node->first);
        }
        return ids;
    }

private:
    std::vector<const Node*> nodes_;
    std::ptrdiff_t first_free_ = 0;  ///< no free place before it
};

}  // namespace

bool natural_less(std::string_view left, std::string_view right) {
    while (!left.empty() && !right.empty()) {
        if (is_digit(left.front()) && is_digit(right.front())) {
            const std::string_view left_number = take_number(left);
            const std::string_view right_number = take_number(right);
            if (left_number.size() != right_number.size()) {
                return left_number.size() < right_number.size();
            }
            if (left_number != right_number) {
                return left_number < right_number;
            }
            continue;
        }
        if (left.front() != right.front()) {
            return left.front() < right.front();
        }
        left.remove_prefix(1);
        right.remove_prefix(1);
    }
    return left.empty() && !right.empty();
}

std::vector<NodeId> seat_order(const std::map<NodeId, LivingNode>& nodes, NodeCount nodes_max) {
    const std::vector<const Node*> selected =
        select(nodes, static_cast<std::size_t>(nodes_max.value()));
    Places places(selected.size());
    std::vector<const Node*> kept;
    for (const Node* node : selected) {
        if (!places.take(node->second.requested_rank, node)) {
            kept.push_back(node);
        }
    }
    std::vector<const Node*> unplaced;
    for (const Node* node : kept) {
        if (!places.take(node->second.last_rank, node)) {
            unplaced.push_back(node);
        }
    }
    std::sort(unplaced.begin(), unplaced.end(), newcomer_before);
    for (const Node* node : unplaced) {
        places.take_first_free(node);
    }
    return places.order();
}

}  // namespace ddprun
