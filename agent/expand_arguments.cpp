#include "agent/expand_arguments.h"

#include <fmt/format.h>

#include <algorithm>

namespace ddprun {

namespace {

constexpr std::string_view kName = "local_rank";

bool continues_name(char letter) {
    return letter == '_' || (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') ||
           (letter >= 'A' && letter <= 'Z');
}

/// How many bytes after a $ are the macro; 0 where they are none.
std::size_t macro_size(std::string_view rest) {
    if (rest.starts_with("{local_rank}")) {
        return kName.size() + 2;
    }
    const bool ends = rest.size() == kName.size() ||
                      (rest.size() > kName.size() && !continues_name(rest[kName.size()]));
    return rest.starts_with(kName) && ends ? kName.size() : 0;
}

}  // namespace

std::string expand_argument(std::string_view argument, LocalRank local_rank) {
    std::string result;
    while (!argument.empty()) {
        const std::size_t dollar = std::min(argument.find('$'), argument.size());
        result += argument.substr(0, dollar);
        argument.remove_prefix(dollar);
        if (argument.empty()) {
            break;
        }
        argument.remove_prefix(1);
        if (const std::size_t size = macro_size(argument); size > 0) {
            result += fmt::to_string(local_rank);
            argument.remove_prefix(size);
        } else {
            result += '$';
            argument.remove_prefix(argument.starts_with('$') ? 1 : 0);
        }
    }
    return result;
}

}  // namespace ddprun
