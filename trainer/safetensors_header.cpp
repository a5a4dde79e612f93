#include "trainer/safetensors_header.h"

#include "proto/limits.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>

namespace ddprun::trainer {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kByteBits = 8;

Error malformed(std::string what) {
    return Error{Errc::malformed, "damaged, or no safetensors file: " + std::move(what)};
}

/// A number that is whole and not negative.
bool is_count(const Json& value) {
    return value.is_number_unsigned();
}

bool is_counts(const Json& value) {
    return value.is_array() && std::all_of(value.begin(), value.end(), is_count);
}

Result<SafetensorsEntry> parse_entry(const std::string& name, const Json& value) {
    const auto field = [&value](const char* key) {
        const auto found = value.find(key);
        return found == value.end() ? Json() : *found;
    };
    if (!value.is_object() || !field("dtype").is_string() || !is_counts(field("shape")) ||
        !is_counts(field("data_offsets")) || field("data_offsets").size() != 2) {
        return fail(malformed("tensor " + name + " has no dtype, shape or data_offsets"));
    }
    SafetensorsEntry entry;
    entry.name = name;
    entry.dtype = field("dtype").get<std::string>();
    entry.shape = field("shape").get<std::vector<std::int64_t>>();
    entry.begin = field("data_offsets")[0].get<std::uint64_t>();
    entry.end = field("data_offsets")[1].get<std::uint64_t>();
    if (std::any_of(entry.shape.begin(), entry.shape.end(), [](auto size) { return size < 0; })) {
        return fail(malformed("tensor " + name + " has a size that is too large"));
    }
    return entry;
}

}  // namespace

std::string write_safetensors_header(const std::vector<SafetensorsEntry>& entries) {
    Json root = Json::object();
    root["__metadata__"] = {{"format", "pt"}};
    for (const SafetensorsEntry& entry : entries) {
        root[entry.name] = {
            {"dtype", entry.dtype},
            {"shape", entry.shape},
            {"data_offsets", {entry.begin, entry.end}}};
    }
    std::string json = root.dump();
    constexpr std::size_t kAlignment = 8;
    json.append((kAlignment - json.size() % kAlignment) % kAlignment, ' ');
    std::string header;
    for (std::size_t i = 0; i < kSafetensorsLengthBytes; ++i) {
        header += static_cast<char>(json.size() >> (kByteBits * i) & 0xffU);
    }
    return header + json;
}

Result<std::uint64_t> safetensors_header_length(std::string_view first_bytes) {
    if (first_bytes.size() < kSafetensorsLengthBytes) {
        return fail(malformed("shorter than 8 bytes"));
    }
    std::uint64_t length = 0;
    for (std::size_t i = kSafetensorsLengthBytes; i-- > 0;) {
        length = length << kByteBits | static_cast<unsigned char>(first_bytes[i]);
    }
    if (length > limits::kSafetensorsHeaderMax) {
        return fail(malformed(fmt::format("a header of {} bytes", length)));
    }
    return length;
}

Result<std::vector<SafetensorsEntry>> parse_safetensors_header(
    std::string_view json, std::uint64_t data_bytes
) {
    const Json root = Json::parse(json, nullptr, /*allow_exceptions=*/false);
    if (!root.is_object()) {
        return fail(malformed("the header is no JSON object"));
    }
    std::vector<SafetensorsEntry> entries;
    for (const auto& [name, value] : root.items()) {
        if (name == "__metadata__") {
            continue;
        }
        auto entry = parse_entry(name, value);
        if (!entry) {
            return fail(entry.error());
        }
        entries.push_back(std::move(*entry));
    }
    std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
        return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    std::uint64_t next = 0;
    for (const SafetensorsEntry& entry : entries) {
        if (entry.begin != next || entry.end < entry.begin) {
            return fail(malformed("tensor " + entry.name + " does not follow the one before"));
        }
        next = entry.end;
    }
    if (next != data_bytes) {
        return fail(
            malformed(fmt::format("its tensors take {} bytes, but there are {}", next, data_bytes))
        );
    }
    return entries;
}

}  // namespace ddprun::trainer
