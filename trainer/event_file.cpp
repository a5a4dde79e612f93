#include "trainer/event_file.h"

#include <boost/crc.hpp>
#include <fmt/format.h>

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <climits>
#include <filesystem>
#include <system_error>
#include <utility>

namespace ddprun::trainer {
namespace {

// Field numbers and wire types of tensorflow/core/util/event.proto and framework/summary.proto.
constexpr std::uint32_t kWallTime = 1;
constexpr std::uint32_t kStep = 2;
constexpr std::uint32_t kFileVersion = 3;
constexpr std::uint32_t kSummary = 5;
constexpr std::uint32_t kSummaryValue = 1;
constexpr std::uint32_t kTag = 1;
constexpr std::uint32_t kSimpleValue = 2;

enum WireType : std::uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void put_varint(std::string& out, std::uint64_t value) {
    constexpr unsigned kBits = 7;
    constexpr std::uint64_t kMore = 0x80;
    while (value >= kMore) {
        out += static_cast<char>((value & (kMore - 1)) | kMore);
        value >>= kBits;
    }
    out += static_cast<char>(value);
}

void put_key(std::string& out, std::uint32_t field, WireType type) {
    constexpr unsigned kTypeBits = 3;
    put_varint(out, field << kTypeBits | type);
}

template <class Number>
void put_little_endian(std::string& out, Number value) {
    for (std::size_t i = 0; i < sizeof value; ++i) {
        out += static_cast<char>(value >> (CHAR_BIT * i) & 0xffU);
    }
}

void put_double(std::string& out, std::uint32_t field, double value) {
    put_key(out, field, kFixed64);
    put_little_endian(out, std::bit_cast<std::uint64_t>(value));
}

void put_bytes(std::string& out, std::uint32_t field, std::string_view bytes) {
    put_key(out, field, kBytes);
    put_varint(out, bytes.size());
    out += bytes;
}

double now() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
}

std::string host_name() {
    std::array<char, HOST_NAME_MAX + 1> name{};
    return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

}  // namespace

std::string encode_scalars(
    double wall_time, std::int64_t step, const std::vector<Scalar>& scalars
) {
    std::string summary;
    for (const Scalar& scalar : scalars) {
        std::string value;
        put_bytes(value, kTag, scalar.tag);
        put_key(value, kSimpleValue, kFixed32);
        put_little_endian(value, std::bit_cast<std::uint32_t>(static_cast<float>(scalar.value)));
        put_bytes(summary, kSummaryValue, value);
    }
    std::string event;
    put_double(event, kWallTime, wall_time);
    put_key(event, kStep, kVarint);
    put_varint(event, static_cast<std::uint64_t>(step));
    put_bytes(event, kSummary, summary);
    return event;
}

std::string encode_file_version(double wall_time) {
    std::string event;
    put_double(event, kWallTime, wall_time);
    put_bytes(event, kFileVersion, "brain.Event:2");
    return event;
}

std::uint32_t masked_checksum(std::string_view bytes) {
    constexpr std::uint32_t kCastagnoli = 0x1EDC6F41;
    boost::crc_optimal<32, kCastagnoli, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;
    crc.process_bytes(bytes.data(), bytes.size());
    constexpr int kRotation = 15;
    constexpr std::uint32_t kDelta = 0xa282ead8;
    return std::rotr(static_cast<std::uint32_t>(crc.checksum()), kRotation) + kDelta;
}

std::string frame_record(std::string_view bytes) {
    std::string length;
    put_little_endian(length, static_cast<std::uint64_t>(bytes.size()));
    std::string record = length;
    put_little_endian(record, masked_checksum(length));
    record += bytes;
    put_little_endian(record, masked_checksum(bytes));
    return record;
}

Result<EventFile> EventFile::create(const std::string& dir) {
    std::error_code error;
    std::filesystem::create_directories(dir, error);
    if (error) {
        return fail(from_error_code(error, "make --tensorboard folder " + dir));
    }
    const std::string path = fmt::format(
        "{}/events.out.tfevents.{}.{}.{}",
        dir,
        static_cast<std::int64_t>(now()),
        host_name(),
        ::getpid()
    );
    constexpr mode_t kMode = 0666;
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, kMode);
    if (fd < 0) {
        return fail(from_errno(errno, "open --tensorboard file " + path));
    }
    EventFile file(fd, path);
    if (auto begun = file.write_bytes(frame_record(encode_file_version(now()))); !begun) {
        return fail(begun.error());
    }
    return file;
}

EventFile::EventFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

EventFile::EventFile(EventFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      path_(std::move(other.path_)) {}

EventFile& EventFile::operator=(EventFile&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(path_, other.path_);
    return *this;
}

EventFile::~EventFile() {
    if (fd_ >= 0) {
        ::close(fd_);
    }
}

Result<void> EventFile::write(std::int64_t step, const std::vector<Scalar>& scalars) {
    return write_bytes(frame_record(encode_scalars(now(), step, scalars)));
}

Result<void> EventFile::write_bytes(std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t count = ::write(fd_, bytes.data(), bytes.size());
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count < 0) {
            return fail(from_errno(errno, "write --tensorboard file " + path_));
        }
        bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    return {};
}

}  // namespace ddprun::trainer
