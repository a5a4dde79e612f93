// Weights in the safetensors format.
#pragma once

#include "proto/result.h"
#include "trainer/named_tensors.h"

#include <filesystem>

namespace ddprun::trainer {

/// Whether the name ends with .safetensors.
[[nodiscard]] bool is_safetensors(const std::filesystem::path& path);

/// On the CPU. Errors: not_found, permission_denied, io_error, malformed.
[[nodiscard]] Result<NamedTensors> read_safetensors(const std::filesystem::path& path);

/// Atomic. Errors mean that the output can't be written.
[[nodiscard]] Result<void> write_safetensors(
    const NamedTensors& tensors, const std::filesystem::path& path
);

}  // namespace ddprun::trainer
