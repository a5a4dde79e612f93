// Fashion-MNIST and other sets in its form: four IDX .gz files in a folder, as Debian's package
// dataset-fashion-mnist has them. Grey pictures become three equal channels, normalised by the
// set's mean and deviation (0.2860, 0.3530), resized where another size is asked for.
#pragma once

#include "proto/result.h"
#include "trainer/data.h"

#include <memory>
#include <string>

namespace ddprun::trainer {

/// Reads `train-` or `t10k-images-idx3-ubyte.gz` and `-labels-idx1-ubyte.gz` of `dir` into memory.
/// Errors, each naming the file: not_found, permission_denied, io_error, malformed.
[[nodiscard]] Result<std::unique_ptr<Dataset>> open_fashion_mnist(
    const std::string& dir, const DatasetOptions& options
);

}  // namespace ddprun::trainer
