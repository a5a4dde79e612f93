// Reads an IDX file (the format of MNIST) inside gzip, whole and checked: magic number, counts, the
// exact length, and gzip's own checksum. Big-endian header: u32 magic 0x00000801 (labels) or
// 0x00000803 (images), u32 count, for images u32 rows and u32 columns, then one byte an element.
#pragma once

#include "proto/result.h"

#include <cstdint>
#include <string>
#include <vector>

namespace ddprun::trainer {

struct IdxFile {
    std::vector<std::uint32_t> sizes;  ///< [count] of labels, [count, rows, columns] of images
    std::vector<std::uint8_t> bytes;   ///< the elements, row by row
};

/// `dimensions` is 1 for labels, 3 for images. Errors, each naming the file: not_found,
/// permission_denied, io_error, malformed.
[[nodiscard]] Result<IdxFile> read_idx_gz(const std::string& path, std::uint32_t dimensions);

}  // namespace ddprun::trainer
