#include "trainer/atomic_file.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace ddprun::trainer {

namespace {

Error write_error(int error_number, const std::filesystem::path& path) {
    Error error = from_errno(error_number, "write " + path.string());
    if (error_number == ENOSPC || error_number == EDQUOT) {
        error.context += "; free some space or write elsewhere";
    }
    return error;
}

Result<void> flush_folder(const std::filesystem::path& file) {
    const std::filesystem::path parent = file.parent_path();
    const std::string folder = parent.empty() ? "." : parent.string();
    const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return fail(from_errno(errno, "open folder " + folder));
    }
    // Some network file systems can't flush a folder (EINVAL); the file itself is safe there.
    const int status = ::fsync(fd) == 0 || errno == EINVAL ? 0 : errno;
    ::close(fd);
    if (status != 0) {
        return fail(from_errno(status, "flush folder " + folder));
    }
    return {};
}

}  // namespace

Result<AtomicFile> AtomicFile::create(const std::filesystem::path& path) {
    struct stat status {};

    if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
        // The renaming at the end would put a file in the place of a device or a pipe.
        return fail(
            Errc::io_error,
            fmt::format(
                "write {}: there is something else than a file; name another", path.string()
            )
        );
    }
    const std::filesystem::path part =
        fmt::format("{}.{}{}", path.string(), ::getpid(), kPartSuffix);
    constexpr mode_t kMode = 0666;
    const int fd = ::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kMode);
    if (fd < 0) {
        return fail(write_error(errno, path));
    }
    return AtomicFile(fd, path, part);
}

AtomicFile::AtomicFile(int fd, std::filesystem::path path, std::filesystem::path part)
    : fd_(fd),
      path_(std::move(path)),
      part_(std::move(part)) {}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      path_(std::move(other.path_)),
      part_(std::move(other.part_)) {}

AtomicFile::~AtomicFile() {
    if (fd_ >= 0) {
        ::close(fd_);
        ::unlink(part_.c_str());
    }
}

Result<void> AtomicFile::write(std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t count = ::write(fd_, bytes.data(), bytes.size());
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count < 0) {
            return fail(write_error(errno, path_));
        }
        bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    return {};
}

Result<void> AtomicFile::commit() {
    if (::fsync(fd_) != 0) {
        return fail(write_error(errno, path_));
    }
    if (::rename(part_.c_str(), path_.c_str()) != 0) {
        return fail(write_error(errno, path_));
    }
    ::close(std::exchange(fd_, -1));
    return flush_folder(path_);
}

}  // namespace ddprun::trainer
