// A checksum over all bytes of a zip archive, in the archive's own comment, where every reader of
// zip files ignores it: "ddprun crc32 0123abcd" at the very end, over everything before the digits.
// (The checksums of the zip format cover neither names nor offsets nor the directory, and
// LibTorch's reader doesn't compare them.)
#pragma once

#include "proto/result.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace ddprun::trainer {

/// Stands between a writer of a zip archive, which gives the bytes in order, and its file.
class ZipChecksumWriter {
public:
    using Sink = std::function<Result<void>(std::string_view bytes)>;

    explicit ZipChecksumWriter(Sink sink) : sink_(std::move(sink)) {}

    [[nodiscard]] Result<void> write(std::string_view bytes);

    /// After the last byte of the archive: adds the comment. Errors: the sink's; internal if what
    /// was written does not end as a zip archive without a comment.
    [[nodiscard]] Result<void> finish();

private:
    [[nodiscard]] Result<void> forward(std::string_view bytes);

    Sink sink_;
    std::string tail_;  ///< the last bytes, held back: the record that counts the comment's length
    std::uint32_t crc_ = 0;
};

enum class ZipChecksum { right, absent };

/// Reads the whole file. Errors: not_found, permission_denied, io_error; malformed for a wrong
/// checksum.
[[nodiscard]] Result<ZipChecksum> check_zip_checksum(const std::filesystem::path& path);

}  // namespace ddprun::trainer
