// What an agent's core asked for in one step, chosen by type.
#pragma once

#include "agent/agent_core.h"

#include <variant>
#include <vector>

namespace ddprun::test {

template <class Wanted, class Variants>
std::vector<Wanted> all_of(const Variants& variants) {
    std::vector<Wanted> result;
    for (const auto& variant : variants) {
        if (const auto* found = std::get_if<Wanted>(&variant)) {
            result.push_back(*found);
        }
    }
    return result;
}

template <class Message>
std::vector<Message> sent(const AgentActions& actions) {
    std::vector<AgentMessage> messages;
    for (const auto& send : all_of<agent_action::Send>(actions)) {
        messages.push_back(send.message);
    }
    return all_of<Message>(messages);
}

}  // namespace ddprun::test
