#include "trainer/zip_checksum.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>

namespace ddprun::trainer {

namespace {

constexpr std::string_view kCommentHead = "ddprun crc32 ";
constexpr std::size_t kDigits = 8;
/// The end record of a zip archive: signature, 16 bytes, u16 length of the comment.
constexpr std::size_t kEndRecordBytes = 22;
constexpr std::string_view kEndSignature("PK\x05\x06", 4);
constexpr std::size_t kReadBytes = 1 << 20;

std::uint32_t update_crc(std::uint32_t crc, std::string_view bytes) {
    return static_cast<std::uint32_t>(
        ::crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size())
    );
}

/// Closes what it opened.
class InputFile {
public:
    explicit InputFile(const std::filesystem::path& path)
        : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}

    InputFile(const InputFile&) = delete;
    InputFile& operator=(const InputFile&) = delete;

    ~InputFile() {
        if (fd_ >= 0) {
            ::close(fd_);
        }
    }

    [[nodiscard]] int fd() const { return fd_; }

private:
    int fd_;
};

struct Summed {
    std::uint32_t crc = 0;  ///< of all but the last kDigits bytes
    std::string tail;       ///< the last bytes, as many as a comment has
};

Result<Summed> sum_up(const InputFile& file, const std::filesystem::path& path) {
    const std::size_t comment_bytes = kCommentHead.size() + kDigits;
    Summed summed;
    std::string window;
    std::string block(kReadBytes, '\0');
    while (true) {
        const ssize_t count = ::read(file.fd(), block.data(), block.size());
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count < 0) {
            return fail(from_errno(errno, "read " + path.string()));
        }
        if (count == 0) {
            break;
        }
        window.append(block, 0, static_cast<std::size_t>(count));
        if (window.size() > comment_bytes) {
            const std::size_t ripe = window.size() - comment_bytes;
            summed.crc = update_crc(summed.crc, std::string_view(window).substr(0, ripe));
            window.erase(0, ripe);
        }
    }
    const std::size_t covered = window.size() > kDigits ? window.size() - kDigits : 0;
    summed.crc = update_crc(summed.crc, std::string_view(window).substr(0, covered));
    summed.tail = std::move(window);
    return summed;
}

}  // namespace

Result<void> ZipChecksumWriter::forward(std::string_view bytes) {
    crc_ = update_crc(crc_, bytes);
    return sink_(bytes);
}

Result<void> ZipChecksumWriter::write(std::string_view bytes) {
    const std::size_t total = tail_.size() + bytes.size();
    const std::size_t ripe = total > kEndRecordBytes ? total - kEndRecordBytes : 0;
    const std::size_t from_tail = std::min(ripe, tail_.size());
    if (from_tail > 0) {
        if (auto done = forward(std::string_view(tail_).substr(0, from_tail)); !done) {
            return done;
        }
        tail_.erase(0, from_tail);
    }
    const std::size_t from_bytes = ripe - from_tail;
    if (from_bytes > 0) {
        if (auto done = forward(bytes.substr(0, from_bytes)); !done) {
            return done;
        }
    }
    tail_.append(bytes.substr(from_bytes));
    return {};
}

Result<void> ZipChecksumWriter::finish() {
    if (tail_.size() != kEndRecordBytes || !tail_.starts_with(kEndSignature) ||
        !tail_.ends_with(std::string_view("\0\0", 2))) {
        return fail(Errc::internal, "write a checkpoint: the archive has no plain end record");
    }
    tail_[kEndRecordBytes - 2] = static_cast<char>(kCommentHead.size() + kDigits);
    tail_ += kCommentHead;
    if (auto done = forward(tail_); !done) {
        return done;
    }
    return sink_(fmt::format("{:08x}", crc_));
}

Result<ZipChecksum> check_zip_checksum(const std::filesystem::path& path) {
    const InputFile file(path);
    if (file.fd() < 0) {
        return fail(from_errno(errno, "open " + path.string()));
    }
    const auto summed = sum_up(file, path);
    if (!summed) {
        return fail(summed.error());
    }
    if (!std::string_view(summed->tail).starts_with(kCommentHead)) {
        return ZipChecksum::absent;
    }
    if (summed->tail.substr(kCommentHead.size()) != fmt::format("{:08x}", summed->crc)) {
        return fail(
            Errc::malformed,
            fmt::format("read {}: its checksum is wrong, so it is damaged", path.string())
        );
    }
    return ZipChecksum::right;
}

}  // namespace ddprun::trainer
