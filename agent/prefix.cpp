#include "agent/prefix.h"

#include <fmt/format.h>

#include <optional>

namespace ddprun {

namespace {

std::optional<std::string> value_of(std::string_view name, const PrefixValues& values) {
    if (name == "role_name") {
        return values.role;
    }
    if (name == "local_rank") {
        return fmt::to_string(values.ranks.local_rank);
    }
    if (name == "rank") {
        return fmt::to_string(values.ranks.rank);
    }
    if (name == "hostname") {
        return values.host.substr(0, values.host.find('.'));
    }
    if (name == "round") {
        return fmt::to_string(values.round);
    }
    return std::nullopt;
}

}  // namespace

std::string expand_prefix(std::string_view prefix_template, const PrefixValues& values) {
    if (prefix_template.empty()) {
        return fmt::format("[{}{}]:", values.role, values.ranks.local_rank);
    }
    std::string result;
    std::string_view rest = prefix_template;
    for (std::size_t begin = rest.find("${"); begin != std::string_view::npos;
         begin = rest.find("${")) {
        const std::size_t end = rest.find('}', begin);
        if (end == std::string_view::npos) {
            break;
        }
        result += rest.substr(0, begin);
        const std::string_view macro = rest.substr(begin, end + 1 - begin);
        const auto value = value_of(macro.substr(2, macro.size() - 3), values);
        result += value ? *value : std::string(macro);
        rest.remove_prefix(end + 1);
    }
    result += rest;
    return result;
}

}  // namespace ddprun
