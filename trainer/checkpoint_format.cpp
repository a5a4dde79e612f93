#include "trainer/checkpoint_format.h"

#include "trainer/checkpoint.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <utility>

namespace ddprun::trainer {

namespace {

constexpr std::array<std::pair<c10::ScalarType, std::string_view>, 10> kStorageTypes{{
    {c10::ScalarType::Float, "FloatStorage"},
    {c10::ScalarType::Double, "DoubleStorage"},
    {c10::ScalarType::Half, "HalfStorage"},
    {c10::ScalarType::BFloat16, "BFloat16Storage"},
    {c10::ScalarType::Long, "LongStorage"},
    {c10::ScalarType::Int, "IntStorage"},
    {c10::ScalarType::Short, "ShortStorage"},
    {c10::ScalarType::Char, "CharStorage"},
    {c10::ScalarType::Byte, "ByteStorage"},
    {c10::ScalarType::Bool, "BoolStorage"},
}};

}  // namespace

std::optional<std::string> storage_type_of(c10::ScalarType type) {
    for (const auto& [known, name] : kStorageTypes) {
        if (known == type) {
            return std::string(name);
        }
    }
    return std::nullopt;
}

std::optional<c10::ScalarType> type_of_storage(std::string_view storage_type) {
    for (const auto& [type, name] : kStorageTypes) {
        if (name == storage_type) {
            return type;
        }
    }
    return std::nullopt;
}

std::string checkpoint_name(std::int64_t step) {
    return fmt::format("{}{:08}{}", kCheckpointPrefix, step, kCheckpointSuffix);
}

std::optional<std::int64_t> step_of_checkpoint(std::string_view file_name) {
    if (!file_name.starts_with(kCheckpointPrefix) || !file_name.ends_with(kCheckpointSuffix)) {
        return std::nullopt;
    }
    std::string_view digits = file_name.substr(kCheckpointPrefix.size());
    digits.remove_suffix(kCheckpointSuffix.size());
    std::int64_t step = 0;
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
    // The name must be the one that we would give it: removing goes by number.
    if (error != std::errc{} || step < 0 || checkpoint_name(step) != file_name) {
        return std::nullopt;
    }
    return step;
}

}  // namespace ddprun::trainer
