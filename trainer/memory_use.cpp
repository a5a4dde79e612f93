#include "trainer/memory_use.h"

#include <charconv>
#include <fstream>
#include <iterator>
#include <string>

namespace ddprun::trainer {
namespace {

std::optional<std::int64_t> kilobytes(std::string_view text, std::string_view name) {
    const std::size_t line = text.find(name);
    if (line == std::string_view::npos) {
        return std::nullopt;
    }
    text.remove_prefix(line + name.size());
    text.remove_prefix(std::min(text.find_first_of("0123456789"), text.size()));
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc{} ? std::optional(value) : std::nullopt;
}

}  // namespace

std::optional<MemoryUse> parse_status(std::string_view text) {
    const auto resident = kilobytes(text, "VmRSS:");
    const auto peak = kilobytes(text, "VmHWM:");
    if (!resident || !peak) {
        return std::nullopt;
    }
    return MemoryUse{*resident, *peak};
}

MemoryUse memory_use() {
    std::ifstream file("/proc/self/status");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    return parse_status(text).value_or(MemoryUse{});
}

}  // namespace ddprun::trainer
