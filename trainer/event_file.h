// Event files that TensorBoard reads: TFRecord frames around Event protocol buffers. What is
// encoded here is all that scalars need; the encodings are pure functions.
#pragma once

#include "proto/result.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::trainer {

struct Scalar {
    std::string tag;  ///< "train/loss"
    double value = 0.0;
};

/// An Event with a summary of scalars. `wall_time` in seconds since 1970.
[[nodiscard]] std::string encode_scalars(
    double wall_time, std::int64_t step, const std::vector<Scalar>& scalars
);

/// The Event that begins each file.
[[nodiscard]] std::string encode_file_version(double wall_time);

/// TFRecord: length, its checksum, the bytes, their checksum.
[[nodiscard]] std::string frame_record(std::string_view bytes);

/// TFRecord's checksum: CRC-32C, rotated and shifted.
[[nodiscard]] std::uint32_t masked_checksum(std::string_view bytes);

/// The open file; rank 0 only. Errors mean that the output can't be written (status 73).
class EventFile {
public:
    /// A new file of this life in `dir`, which is made where it is missing.
    [[nodiscard]] static Result<EventFile> create(const std::string& dir);

    EventFile(EventFile&& other) noexcept;
    EventFile& operator=(EventFile&& other) noexcept;
    EventFile(const EventFile&) = delete;
    EventFile& operator=(const EventFile&) = delete;
    ~EventFile();

    /// At the present time; in the file when it returns.
    [[nodiscard]] Result<void> write(std::int64_t step, const std::vector<Scalar>& scalars);

private:
    EventFile(int fd, std::string path);
    [[nodiscard]] Result<void> write_bytes(std::string_view bytes);

    int fd_;
    std::string path_;
};

}  // namespace ddprun::trainer
