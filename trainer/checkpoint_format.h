// What the writer and the reader of checkpoints must agree on.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ddprun::trainer {

inline constexpr std::string_view kCheckpointPrefix = "step-";
inline constexpr std::string_view kCheckpointSuffix = ".pt";

/// A record of the archive that marks the files that have our checksum.
inline constexpr std::string_view kFormatRecord = "ddprun_format";

/// Python's class for storages of a type, for example "FloatStorage"; none for types without one.
[[nodiscard]] std::optional<std::string> storage_type_of(c10::ScalarType type);

[[nodiscard]] std::optional<c10::ScalarType> type_of_storage(std::string_view storage_type);

/// The N of "step-N.pt"; none for other names.
[[nodiscard]] std::optional<std::int64_t> step_of_checkpoint(std::string_view file_name);

}  // namespace ddprun::trainer
