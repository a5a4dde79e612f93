#include "trainer/cifar10.h"

#include "proto/limits.h"
#include "trainer/mapped_file.h"
#include "trainer/small_pictures.h"

#include <fmt/format.h>

#include <cstddef>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

namespace ddprun::trainer {

namespace {

constexpr int kSide = 32;
constexpr std::size_t kPictureBytes = kChannels * kSide * kSide;
constexpr std::size_t kRecordBytes = 1 + kPictureBytes;
constexpr std::uint8_t kClasses = 10;
constexpr const char* kArchiveFolder = "cifar-10-batches-bin";

/// Records of files of equal size.
class Records final : public SmallSource {
public:
    explicit Records(std::vector<MappedFile> files)
        : files_(std::move(files)),
          each_(static_cast<std::int64_t>(files_.front().bytes().size() / kRecordBytes)) {}

    [[nodiscard]] std::int64_t size() const override {
        return each_ * static_cast<std::int64_t>(files_.size());
    }

    [[nodiscard]] std::int64_t label(std::int64_t index) const override {
        return record(index).front();
    }

    [[nodiscard]] std::span<const std::uint8_t> pixels(std::int64_t index) const override {
        return record(index).subspan(1);
    }

private:
    [[nodiscard]] std::span<const std::uint8_t> record(std::int64_t index) const {
        const MappedFile& file = files_[static_cast<std::size_t>(index / each_)];
        const auto number = static_cast<std::size_t>(index % each_);
        return file.bytes().subspan(number * kRecordBytes, kRecordBytes);
    }

    std::vector<MappedFile> files_;
    std::int64_t each_;
};

Result<void> check_file(const std::string& path, std::span<const std::uint8_t> bytes) {
    if (bytes.size() % kRecordBytes != 0 ||
        bytes.size() / kRecordBytes > static_cast<std::size_t>(limits::kSamplesMax) / 5) {
        return fail(
            Errc::malformed,
            fmt::format(
                "read {}: {} bytes are no whole records of {}; it is cut off or not the binary "
                "version of CIFAR-10",
                path,
                bytes.size(),
                kRecordBytes
            )
        );
    }
    for (std::size_t at = 0; at < bytes.size(); at += kRecordBytes) {
        if (bytes[at] >= kClasses) {
            return fail(
                Errc::malformed,
                fmt::format(
                    "read {}: label {} of picture {}, but there are {} classes",
                    path,
                    bytes[at],
                    at / kRecordBytes,
                    kClasses
                )
            );
        }
    }
    return {};
}

}  // namespace

Result<std::unique_ptr<Dataset>> open_cifar10(
    const std::string& dir, const DatasetOptions& options
) {
    std::vector<std::string> names{"test_batch.bin"};
    if (options.split == Split::train) {
        names.clear();
        for (int i = 1; i <= 5; ++i) {
            names.push_back(fmt::format("data_batch_{}.bin", i));
        }
    }
    std::filesystem::path folder = dir;
    std::error_code ignored;
    if (std::filesystem::is_directory(folder / kArchiveFolder, ignored)) {
        folder /= kArchiveFolder;
    }
    std::vector<MappedFile> files;
    for (const std::string& name : names) {
        const std::string path = (folder / name).string();
        auto file = MappedFile::open(path);
        if (!file) {
            return fail(file.error());
        }
        if (auto checked = check_file(path, file->bytes()); !checked) {
            return fail(checked.error());
        }
        if (!files.empty() && file->bytes().size() != files.front().bytes().size()) {
            return fail(
                Errc::malformed,
                fmt::format(
                    "read {}: {} bytes, but {} has {}; one of them is cut off",
                    path,
                    file->bytes().size(),
                    names.front(),
                    files.front().bytes().size()
                )
            );
        }
        files.push_back(std::move(*file));
    }
    SmallOptions small;
    small.native = ImageShape{kSide, kSide};
    small.num_classes = kClasses;
    small.image_size = options.image_size;
    small.normalisation = options.normalisation_or(kCifar10Normalisation);
    small.augment = options.augment;
    small.seed = options.seed;
    return make_small_pictures(std::make_unique<Records>(std::move(files)), small);
}

}  // namespace ddprun::trainer
