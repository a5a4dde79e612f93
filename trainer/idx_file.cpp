#include "trainer/idx_file.h"

#include "proto/assert.h"
#include "proto/limits.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <optional>
#include <type_traits>

namespace ddprun::trainer {

namespace {

constexpr std::uint32_t kUnsignedByteMagic = 0x00000800;
constexpr std::size_t kReadBytes = 1 << 20;

struct CloseGzip {
    void operator()(gzFile file) const { gzclose_r(file); }
};

using GzipFile = std::unique_ptr<std::remove_pointer_t<gzFile>, CloseGzip>;

Error damaged(const std::string& path, std::string_view what) {
    return Error{
        Errc::malformed,
        fmt::format(
            "read {}: {}; the file is damaged or of another kind, get it anew", path, what
        )};
}

Result<GzipFile> open_gzip(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return fail(from_errno(errno, "open " + path));
    }
    GzipFile file(gzdopen(fd, "rb"));
    if (!file) {
        ::close(fd);
        return fail(Errc::io_error, fmt::format("open {}: zlib has no memory for it", path));
    }
    return file;
}

/// At most `size` bytes; fewer only at the end.
Result<std::size_t> read_some(
    const GzipFile& file, const std::string& path, std::uint8_t* out, std::size_t size
) {
    errno = 0;
    const int count = gzread(file.get(), out, static_cast<unsigned>(size));
    int status = Z_OK;
    const char* const text = gzerror(file.get(), &status);
    if (count < 0 && status == Z_ERRNO) {
        return fail(from_errno(errno, "read " + path));
    }
    // A stream that ends too early is no error to gzread, but leaves Z_BUF_ERROR.
    if (count < 0 || status == Z_BUF_ERROR) {
        return fail(damaged(path, status == Z_BUF_ERROR ? "the gzip stream is cut off" : text));
    }
    return static_cast<std::size_t>(count);
}

Result<std::uint32_t> read_u32(const GzipFile& file, const std::string& path) {
    std::array<std::uint8_t, 4> bytes{};
    const auto count = read_some(file, path, bytes.data(), bytes.size());
    if (!count) {
        return fail(count.error());
    }
    if (*count < bytes.size()) {
        return fail(damaged(path, "the header is cut off"));
    }
    std::uint32_t value = 0;
    for (const std::uint8_t byte : bytes) {
        value = value << 8U | byte;
    }
    return value;
}

/// All that follows the header. Memory grows with what is there, not with what the header says.
Result<std::vector<std::uint8_t>> read_elements(
    const GzipFile& file, const std::string& path, std::uint64_t expected
) {
    std::vector<std::uint8_t> bytes;
    while (true) {
        const std::size_t before = bytes.size();
        bytes.resize(before + kReadBytes);
        const auto count = read_some(file, path, bytes.data() + before, kReadBytes);
        if (!count) {
            return fail(count.error());
        }
        bytes.resize(before + *count);
        if (bytes.size() > expected) {
            return fail(damaged(path, fmt::format("more than the {} bytes announced", expected)));
        }
        if (*count < kReadBytes) {
            break;
        }
    }
    if (bytes.size() < expected) {
        return fail(damaged(
            path,
            fmt::format("{} bytes of data instead of the {} announced", bytes.size(), expected)
        ));
    }
    return bytes;
}

}  // namespace

Result<IdxFile> read_idx_gz(const std::string& path, std::uint32_t dimensions) {
    DDPRUN_ASSERT(dimensions >= 1 && dimensions <= 3);
    auto file = open_gzip(path);
    if (!file) {
        return fail(file.error());
    }
    const auto magic = read_u32(*file, path);
    if (!magic) {
        return fail(magic.error());
    }
    if (*magic != (kUnsignedByteMagic | dimensions)) {
        return fail(damaged(
            path,
            fmt::format(
                "begins with {:#010x}, not {:#010x}", *magic, kUnsignedByteMagic | dimensions
            )
        ));
    }
    IdxFile idx;
    std::uint64_t elements = 1;
    for (std::uint32_t i = 0; i < dimensions; ++i) {
        const auto size = read_u32(*file, path);
        if (!size) {
            return fail(size.error());
        }
        const std::uint64_t size_max = i == 0 ? static_cast<std::uint64_t>(limits::kSamplesMax)
                                              : static_cast<std::uint64_t>(limits::kImageSizeMax);
        if (*size == 0 || *size > size_max) {
            return fail(damaged(path, fmt::format("a size of {} in its header", *size)));
        }
        idx.sizes.push_back(*size);
        elements *= *size;
    }
    auto bytes = read_elements(*file, path, elements);
    if (!bytes) {
        return fail(bytes.error());
    }
    idx.bytes = std::move(*bytes);
    return idx;
}

}  // namespace ddprun::trainer
