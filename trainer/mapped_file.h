// A file mapped for reading: the system keeps one copy for all ranks of a node and fetches what is
// touched. Whoever shortens the file while it is mapped ends the process (SIGBUS), so files are
// replaced (renamed over), never written in place.
#pragma once

#include "proto/result.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace ddprun::trainer {

class MappedFile {
public:
    /// Errors: not_found, permission_denied, io_error (a folder, for example), malformed (empty).
    [[nodiscard]] static Result<MappedFile> open(const std::filesystem::path& path);

    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&&) = delete;
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;
    ~MappedFile();

    [[nodiscard]] std::span<const std::uint8_t> bytes() const { return {data_, size_}; }

    /// Reads will jump about: the system shall not fetch what follows each of them.
    void expect_random_reads() const;

private:
    MappedFile(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

    const std::uint8_t* data_;
    std::size_t size_;
};

}  // namespace ddprun::trainer
