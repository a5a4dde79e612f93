// A file that appears whole or not at all: written under another suffix in the same folder, flushed
// to the disk, renamed, and the folder flushed. Without a commit nothing is left. One thread uses
// it.
#pragma once

#include "proto/result.h"

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace ddprun::trainer {

/// Suffix of files that are being written; one that is found later was left by a sudden death.
inline constexpr std::string_view kPartSuffix = ".part";

class AtomicFile {
public:
    /// Begins `path`; an existing file stays as it is until commit(). Errors: not_found (no such
    /// folder), permission_denied, io_error.
    [[nodiscard]] static Result<AtomicFile> create(const std::filesystem::path& path);

    AtomicFile(AtomicFile&& other) noexcept;
    AtomicFile& operator=(AtomicFile&&) = delete;
    AtomicFile(const AtomicFile&) = delete;
    AtomicFile& operator=(const AtomicFile&) = delete;
    ~AtomicFile();

    [[nodiscard]] Result<void> write(std::string_view bytes);

    /// After it the file is there and survives a loss of power.
    [[nodiscard]] Result<void> commit();

private:
    AtomicFile(int fd, std::filesystem::path path, std::filesystem::path part);

    int fd_;
    std::filesystem::path path_;
    std::filesystem::path part_;
};

}  // namespace ddprun::trainer
