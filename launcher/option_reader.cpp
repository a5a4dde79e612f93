#include "launcher/option_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

namespace ddprun::launcher {

Error wrong(const Sourced& option, std::string_view why) {
    return {Errc::invalid_argument, fmt::format("{}={}: {}", option.origin, option.value, why)};
}

std::string on_one_line(std::string_view text) {
    constexpr unsigned char kBlank = 0x20;
    constexpr unsigned char kDelete = 0x7f;
    std::string line;
    for (const char letter : text) {
        const auto byte = static_cast<unsigned char>(letter);
        if (letter == '\n') {
            line += "\\n";
        } else if (letter == '\t') {
            line += "\\t";
        } else if (byte < kBlank || byte == kDelete) {
            line += fmt::format("\\x{:02x}", byte);
        } else {
            line += letter;
        }
    }
    return line;
}

std::string Reader::origin(std::string_view name) const {
    const Sourced* option = find(name);
    return option == nullptr ? fmt::format("--{}", name) : option->origin;
}

bool Reader::flag(std::string_view name) {
    constexpr auto kLargest = std::numeric_limits<std::int32_t>::max();
    return number(name, -kLargest, kLargest).value_or(0) != 0;
}

std::optional<std::string> Reader::choice(std::string_view name, std::vector<std::string> choices) {
    return parsed<std::string>(name, [&](std::string_view value) -> Result<std::string> {
        if (std::ranges::find(choices, value) == choices.end()) {
            return fail(
                Errc::invalid_argument, fmt::format("expected {}", fmt::join(choices, ", "))
            );
        }
        return std::string{value};
    });
}

}  // namespace ddprun::launcher
