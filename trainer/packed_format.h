// The bytes of a packed split (docs/data.md): raw RGB pictures one behind the other, then an index
// of them, the names of the classes, and a footer that says where these begin. All integers are
// little endian. Written front to back in one go, read through a mapping. Pure.
#pragma once

#include "proto/result.h"
#include "trainer/picture.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::trainer {

/// First bytes of the file.
[[nodiscard]] std::string packed_header();

struct PackedEntry {
    std::uint64_t offset = 0;  ///< of the first pixel in the file
    Size size;                 ///< the pixels are size.pixels() x 3 bytes, row by row
    std::uint32_t label = 0;
    std::uint32_t checksum = 0;  ///< CRC-32 of the pixels
};

/// Collects what stands behind the pictures.
class PackedIndex {
public:
    void add(const PackedEntry& entry);

    [[nodiscard]] std::int64_t size() const { return count_; }

    /// Index, classes and footer. `offset` is that of the index: the end of the pictures.
    [[nodiscard]] std::string finish(
        std::uint64_t offset, const std::vector<std::string>& classes, std::uint32_t short_side
    );

private:
    std::string bytes_;
    std::int64_t count_ = 0;
};

/// A packed split as it lies in memory, which must outlive it. All entries have been checked.
class PackedView {
public:
    /// Errors: malformed (cut off, damaged, another kind of file), version_mismatch. The pixels
    /// themselves are not looked at.
    [[nodiscard]] static Result<PackedView> parse(std::span<const std::uint8_t> file);

    [[nodiscard]] std::int64_t size() const { return count_; }

    [[nodiscard]] const std::vector<std::string>& classes() const { return classes_; }

    /// What the shorter sides were shrunk to; 0: pictures have their own sizes.
    [[nodiscard]] std::uint32_t short_side() const { return short_side_; }

    [[nodiscard]] PackedEntry entry(std::int64_t index) const;

    [[nodiscard]] std::span<const std::uint8_t> pixels(const PackedEntry& entry) const;

private:
    [[nodiscard]] Result<void> check_entries(std::uint64_t index_offset) const;

    std::span<const std::uint8_t> file_;
    std::span<const std::uint8_t> index_;
    std::int64_t count_ = 0;
    std::vector<std::string> classes_;
    std::uint32_t short_side_ = 0;
};

[[nodiscard]] std::uint32_t checksum_of(std::span<const std::uint8_t> bytes);

}  // namespace ddprun::trainer
