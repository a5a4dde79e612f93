#include "trainer/mapped_file.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace ddprun::trainer {

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
    // Non-blocking: a fifo without a writer would hold the opener up.
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return fail(from_errno(errno, "open " + path.string()));
    }

    struct stat info {};

    void* data = MAP_FAILED;
    int status = 0;
    if (::fstat(fd, &info) != 0) {
        status = errno;
    } else if (!S_ISREG(info.st_mode)) {
        ::close(fd);
        return fail(Errc::io_error, fmt::format("open {}: not a file", path.string()));
    } else if (info.st_size > 0) {
        data =
            ::mmap(nullptr, static_cast<std::size_t>(info.st_size), PROT_READ, MAP_SHARED, fd, 0);
        status = data == MAP_FAILED ? errno : 0;
    }
    ::close(fd);
    if (status != 0) {
        return fail(from_errno(status, "map " + path.string()));
    }
    if (data == MAP_FAILED) {
        return fail(Errc::malformed, fmt::format("read {}: the file is empty", path.string()));
    }
    return MappedFile(
        static_cast<const std::uint8_t*>(data), static_cast<std::size_t>(info.st_size)
    );
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile::~MappedFile() {
    if (data_ != nullptr) {
        ::munmap(const_cast<std::uint8_t*>(data_), size_);
    }
}

void MappedFile::expect_random_reads() const {
    ::madvise(const_cast<std::uint8_t*>(data_), size_, MADV_RANDOM);
}

}  // namespace ddprun::trainer
