// A folder with train/ and val/, each with a folder of JPEG and PNG files for each class, as
// ImageNet is kept: labels and order are those of torchvision's ImageFolder. The training split is
// cut at random and mirrored (--augment=standard), else pictures are resized and cut in the centre;
// the numbers are torchvision's within one of 255 levels.
#pragma once

#include "proto/result.h"
#include "trainer/data.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ddprun::trainer {

/// Side of the pictures where none is asked for.
inline constexpr int kDefaultImageSize = 224;

/// Errors: not_found, permission_denied, io_error, malformed (image_list.h).
[[nodiscard]] Result<std::unique_ptr<Dataset>> open_image_folder(
    const std::string& dir, const DatasetOptions& options
);

/// A whole file, into memory that is used again. Errors, naming it: not_found, permission_denied,
/// io_error, limit_exceeded.
[[nodiscard]] Result<void> read_picture_file(
    const std::string& path, std::vector<std::uint8_t>& bytes
);

/// The error of a picture with the file's name before it.
[[nodiscard]] Error of_picture(const std::string& path, Error error);

/// The folder of a split.
[[nodiscard]] std::string split_folder(const std::string& dir, Split split);

}  // namespace ddprun::trainer
