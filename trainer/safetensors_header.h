// The header of a safetensors file: 8 bytes little-endian length, then JSON with the place of each
// tensor in the bytes that follow. Pure; nothing in a header is trusted.
#pragma once

#include "proto/result.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::trainer {

struct SafetensorsEntry {
    std::string name;
    std::string dtype;  ///< "F32", "I64", ...
    std::vector<std::int64_t> shape;
    std::uint64_t begin = 0;  ///< bytes after the header
    std::uint64_t end = 0;

    friend bool operator==(const SafetensorsEntry&, const SafetensorsEntry&) = default;
};

inline constexpr std::size_t kSafetensorsLengthBytes = 8;

/// Length and JSON, padded so that the data begins at a multiple of 8.
[[nodiscard]] std::string write_safetensors_header(const std::vector<SafetensorsEntry>& entries);

/// The length that the first 8 bytes of a file announce. Errors: malformed, limit_exceeded.
[[nodiscard]] Result<std::uint64_t> safetensors_header_length(std::string_view first_bytes);

/// `json` without the length, in the order of the data; `data_bytes` follow it in the file. Tensors
/// must cover them exactly, without holes or overlaps. Errors: malformed.
[[nodiscard]] Result<std::vector<SafetensorsEntry>> parse_safetensors_header(
    std::string_view json, std::uint64_t data_bytes
);

}  // namespace ddprun::trainer
