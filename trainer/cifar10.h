// CIFAR-10 in its binary version: five training files and a test file of records of a label byte
// and 3,072 bytes of a 32 x 32 picture, channel by channel. The files are mapped, not read.
#pragma once

#include "proto/result.h"
#include "trainer/data.h"

#include <memory>
#include <optional>
#include <string>

namespace ddprun::trainer {

/// Opens `data_batch_1.bin` ... `data_batch_5.bin` or `test_batch.bin` of `dir`, or of
/// cifar-10-batches-bin in it (as the archive unpacks). Errors, each naming the file: not_found,
/// permission_denied, io_error; malformed (a size that isn't whole records, training files of
/// different sizes, a label above 9).
[[nodiscard]] Result<std::unique_ptr<Dataset>> open_cifar10(
    const std::string& dir, const DatasetOptions& options
);

}  // namespace ddprun::trainer
