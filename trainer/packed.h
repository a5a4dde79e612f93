// A data set that `trainer pack` made: train.pack and val.pack in a folder, mapped, so that nothing
// is decoded and all ranks of a node share one copy. Treated as an image folder is otherwise.
#pragma once

#include "proto/result.h"
#include "trainer/data.h"

#include <memory>
#include <string>

namespace ddprun::trainer {

/// The file of a split.
[[nodiscard]] std::string packed_path(const std::string& dir, Split split);

/// Errors, each naming the file: not_found, permission_denied, io_error, malformed,
/// version_mismatch. A picture's bytes are compared with their checksum when they are first read; a
/// damaged one is malformed then.
[[nodiscard]] Result<std::unique_ptr<Dataset>> open_packed(
    const std::string& dir, const DatasetOptions& options
);

}  // namespace ddprun::trainer
