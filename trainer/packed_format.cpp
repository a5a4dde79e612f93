#include "trainer/packed_format.h"

#include "proto/bytes.h"
#include "proto/limits.h"

#include <fmt/format.h>

#include <zlib.h>

#include <cstddef>

namespace ddprun::trainer {

namespace {

constexpr std::string_view kHeaderMagic = "ddprpack";
constexpr std::string_view kFooterMagic = "kcaprpdd";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kHeaderBytes = 16;
constexpr std::size_t kEntryBytes = 24;
constexpr std::size_t kFooterBytes = 56;

std::string_view text_of(std::span<const std::uint8_t> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::span<const std::uint8_t> bytes_of(std::string_view text) {
    return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

tl::unexpected<Error> damaged(std::string_view what) {
    return fail(Errc::malformed, fmt::format("{}; pack the pictures again", what));
}

struct Footer {
    std::uint64_t index_offset = 0;
    std::uint64_t classes_offset = 0;
    std::uint64_t count = 0;
    std::uint32_t classes = 0;
    std::uint32_t short_side = 0;
    std::uint32_t checksum = 0;  ///< of index and classes
    std::uint32_t version = 0;
};

Result<Footer> parse_footer(std::string_view file) {
    const std::string_view bytes = file.substr(file.size() - kFooterBytes);
    ByteReader reader(bytes);
    Footer footer;
    footer.index_offset = reader.u64();
    footer.classes_offset = reader.u64();
    footer.count = reader.u64();
    footer.classes = reader.u32();
    footer.short_side = reader.u32();
    footer.checksum = reader.u32();
    footer.version = reader.u32();
    const std::size_t summed = kFooterBytes - reader.remaining();
    const std::uint32_t own = reader.u32();
    const std::uint32_t unused = reader.u32();
    const std::string_view magic = reader.raw(kFooterMagic.size());
    if (magic != kFooterMagic) {
        return damaged("the file is cut off: it doesn't end as a packed file");
    }
    if (own != checksum_of(bytes_of(bytes.substr(0, summed))) || unused != 0) {
        return damaged("the footer doesn't match its checksum");
    }
    const std::uint64_t end = file.size() - kFooterBytes;
    const bool sane = footer.count >= 1 &&
                      footer.count <= static_cast<std::uint64_t>(limits::kSamplesMax) &&
                      footer.classes >= 1 && footer.classes <= limits::kClassesMax &&
                      footer.index_offset >= kHeaderBytes && footer.index_offset <= end &&
                      footer.classes_offset == footer.index_offset + footer.count * kEntryBytes &&
                      footer.classes_offset <= end;
    if (!sane) {
        return damaged("the footer makes no sense");
    }
    return footer;
}

}  // namespace

std::uint32_t checksum_of(std::span<const std::uint8_t> bytes) {
    return static_cast<std::uint32_t>(::crc32_z(0, bytes.data(), bytes.size()));
}

std::string packed_header() {
    std::string bytes;
    ByteWriter writer(bytes);
    writer.raw(kHeaderMagic);
    writer.u32(kVersion);
    writer.u32(0);
    return bytes;
}

void PackedIndex::add(const PackedEntry& entry) {
    ByteWriter writer(bytes_);
    writer.u64(entry.offset);
    writer.u32(static_cast<std::uint32_t>(entry.size.width));
    writer.u32(static_cast<std::uint32_t>(entry.size.height));
    writer.u32(entry.label);
    writer.u32(entry.checksum);
    ++count_;
}

std::string PackedIndex::finish(
    std::uint64_t offset, const std::vector<std::string>& classes, std::uint32_t short_side
) {
    std::string bytes = std::move(bytes_);
    const std::uint64_t index_bytes = bytes.size();
    ByteWriter writer(bytes);
    for (const std::string& name : classes) {
        writer.string32(name);
    }
    std::string footer;
    ByteWriter footer_writer(footer);
    footer_writer.u64(offset);
    footer_writer.u64(offset + index_bytes);
    footer_writer.u64(static_cast<std::uint64_t>(count_));
    footer_writer.u32(static_cast<std::uint32_t>(classes.size()));
    footer_writer.u32(short_side);
    footer_writer.u32(checksum_of(bytes_of(bytes)));
    footer_writer.u32(kVersion);
    footer_writer.u32(checksum_of(bytes_of(footer)));
    footer_writer.u32(0);
    footer_writer.raw(kFooterMagic);
    return bytes + footer;
}

Result<PackedView> PackedView::parse(std::span<const std::uint8_t> file) {
    const std::string_view text = text_of(file);
    ByteReader header(text);
    if (header.raw(kHeaderMagic.size()) != kHeaderMagic) {
        return fail(Errc::malformed, "not a packed file; `trainer pack` makes one");
    }
    const std::uint32_t version = header.u32();
    if (header.ok() && version != kVersion) {
        return fail(
            Errc::version_mismatch,
            fmt::format("version {} of the format, this program reads {}", version, kVersion)
        );
    }
    if (text.size() < kHeaderBytes + kFooterBytes) {
        return damaged("the file is cut off");
    }
    const auto footer = parse_footer(text);
    if (!footer) {
        return fail(footer.error());
    }
    const std::string_view tail = text.substr(
        static_cast<std::size_t>(footer->index_offset),
        text.size() - kFooterBytes - static_cast<std::size_t>(footer->index_offset)
    );
    if (checksum_of(bytes_of(tail)) != footer->checksum) {
        return damaged("the index doesn't match its checksum");
    }
    PackedView view;
    view.file_ = file;
    view.count_ = static_cast<std::int64_t>(footer->count);
    view.short_side_ = footer->short_side;
    const std::size_t index_bytes = static_cast<std::size_t>(footer->count) * kEntryBytes;
    view.index_ = bytes_of(tail.substr(0, index_bytes));
    ByteReader names(tail.substr(index_bytes));
    for (std::uint32_t i = 0; i < footer->classes && names.ok(); ++i) {
        view.classes_.emplace_back(names.string32(limits::kClassNameBytesMax));
    }
    if (!names.finished()) {
        return damaged("the names of the classes make no sense");
    }
    if (auto checked = view.check_entries(footer->index_offset); !checked) {
        return fail(checked.error());
    }
    return view;
}

/// The checksum has shown that the index is as it was written; this, that a faulty writer's index
/// leads nowhere outside the pictures.
Result<void> PackedView::check_entries(std::uint64_t index_offset) const {
    const auto side_max = static_cast<std::uint32_t>(limits::kPictureSideMax);
    for (std::int64_t i = 0; i < count_; ++i) {
        ByteReader reader(text_of(index_.subspan(static_cast<std::size_t>(i) * kEntryBytes)));
        const std::uint64_t offset = reader.u64();
        const std::uint32_t width = reader.u32();
        const std::uint32_t height = reader.u32();
        const std::uint32_t label = reader.u32();
        const std::uint64_t bytes = std::uint64_t{width} * height * kPixelBytes;
        const bool sane = width >= 1 && width <= side_max && height >= 1 && height <= side_max &&
                          offset >= kHeaderBytes && offset <= index_offset &&
                          bytes <= index_offset - offset && label < classes_.size();
        if (!sane) {
            return damaged(fmt::format("entry {} of the index makes no sense", i));
        }
    }
    return {};
}

PackedEntry PackedView::entry(std::int64_t index) const {
    const std::size_t at = static_cast<std::size_t>(index) * kEntryBytes;
    ByteReader reader(text_of(index_.subspan(at, kEntryBytes)));
    PackedEntry entry;
    entry.offset = reader.u64();
    entry.size.width = static_cast<int>(reader.u32());
    entry.size.height = static_cast<int>(reader.u32());
    entry.label = reader.u32();
    entry.checksum = reader.u32();
    return entry;
}

std::span<const std::uint8_t> PackedView::pixels(const PackedEntry& entry) const {
    return file_.subspan(static_cast<std::size_t>(entry.offset), entry.size.pixels() * kPixelBytes);
}

}  // namespace ddprun::trainer
