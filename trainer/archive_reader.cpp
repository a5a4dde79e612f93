#include "trainer/archive_reader.h"

#include "proto/limits.h"
#include "trainer/checkpoint_format.h"
#include "trainer/zip_checksum.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <exception>
#include <fstream>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

namespace ddprun::trainer {

namespace {

namespace fs = std::filesystem;

/// The first sentence of what LibTorch throws; its advice and its backtrace help nobody here.
std::string first_sentence(const std::exception& exception) {
    const auto* const torch_error = dynamic_cast<const c10::Error*>(&exception);
    const std::string text =
        torch_error != nullptr ? torch_error->what_without_backtrace() : exception.what();
    return text.substr(0, std::min(text.find('\n'), text.find(". ")));
}

/// Elements of the storage that the tensor needs; none for sizes that make no sense.
std::optional<std::uint64_t> reach_of(const PickledTensor& pickled) {
    constexpr std::int64_t kElementsMax = std::int64_t{1} << 40;
    if (pickled.sizes.size() != pickled.strides.size() || pickled.offset < 0 ||
        pickled.offset > kElementsMax) {
        return std::nullopt;
    }
    std::uint64_t last = static_cast<std::uint64_t>(pickled.offset);
    bool empty = false;
    for (std::size_t i = 0; i < pickled.sizes.size(); ++i) {
        const std::int64_t size = pickled.sizes[i];
        const std::int64_t stride = pickled.strides[i];
        if (size < 0 || size > kElementsMax || stride < 0 || stride > kElementsMax) {
            return std::nullopt;
        }
        if (size == 0) {
            empty = true;
            continue;
        }
        if (stride > 0 && size - 1 > kElementsMax / stride) {
            return std::nullopt;
        }
        last += static_cast<std::uint64_t>((size - 1) * stride);
        if (last > static_cast<std::uint64_t>(kElementsMax)) {
            return std::nullopt;
        }
    }
    return empty ? 0 : last + 1;
}

/// torch.save wrote pickles one after another before PyTorch 1.6: no archive.
bool is_legacy(const fs::path& path) {
    constexpr std::string_view kBegin = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9";  // its magic number
    std::array<char, kBegin.size()> begin{};
    std::ifstream file(path, std::ios::binary);
    file.read(begin.data(), begin.size());
    return std::string_view(begin.data(), static_cast<std::size_t>(file.gcount())) == kBegin;
}

}  // namespace

ArchiveReader::ArchiveReader(fs::path path, std::uint64_t file_bytes)
    : path_(std::move(path)),
      file_bytes_(file_bytes) {}

ArchiveReader::ArchiveReader(ArchiveReader&&) noexcept = default;
ArchiveReader& ArchiveReader::operator=(ArchiveReader&&) noexcept = default;
ArchiveReader::~ArchiveReader() = default;

Error ArchiveReader::damaged(std::string_view what) const {
    return Error{
        Errc::malformed,
        fmt::format("read {}: damaged, or not made by torch.save: {}", path_.string(), what)};
}

Result<ArchiveReader> ArchiveReader::open(const fs::path& path) {
    const auto checksum = check_zip_checksum(path);
    if (!checksum) {
        return fail(checksum.error());
    }
    std::error_code error;
    const std::uint64_t file_bytes = fs::file_size(path, error);
    if (error) {
        return fail(from_error_code(error, "read " + path.string()));
    }
    if (is_legacy(path)) {
        return fail(
            Errc::unsupported,
            fmt::format(
                "read {}: it has the form of torch.save before PyTorch 1.6; load it in Python and "
                "save it again",
                path.string()
            )
        );
    }
    ArchiveReader archive(path, file_bytes);
    try {
        archive.reader_ = std::make_unique<caffe2::serialize::PyTorchStreamReader>(path.string());
        archive.reader_->setShouldLoadDebugSymbol(false);
        if (auto done = archive.check_origin(*checksum == ZipChecksum::right); !done) {
            return fail(done.error());
        }
        if (auto done = archive.read_root(); !done) {
            return fail(done.error());
        }
    } catch (const std::exception& exception) {
        return fail(archive.damaged(first_sentence(exception)));
    }
    return archive;
}

Result<void> ArchiveReader::check_origin(bool has_checksum) {
    if (reader_->hasRecord(std::string(kFormatRecord)) != has_checksum) {
        return fail(damaged("its checksum is missing"));
    }
    if (reader_->hasRecord("byteorder")) {
        const auto [bytes, size] = reader_->getRecord("byteorder");
        if (std::string_view(static_cast<const char*>(bytes.get()), size) != "little") {
            return fail(damaged("written on a big-endian machine"));
        }
    }
    return {};
}

Result<void> ArchiveReader::read_root() {
    constexpr const char* kPickle = "data.pkl";
    if (!reader_->hasRecord(kPickle)) {
        return fail(damaged("no data.pkl in it"));
    }
    if (reader_->getRecordSize(kPickle) > limits::kPickleBytesMax) {
        return fail(damaged("its data.pkl is larger than any state of a model"));
    }
    const auto [bytes, size] = reader_->getRecord(kPickle);
    auto root = read_pickle({static_cast<const char*>(bytes.get()), size});
    if (!root) {
        return fail(damaged(root.error().context));
    }
    root_ = std::move(*root);
    return {};
}

Result<c10::Storage> ArchiveReader::storage(const PickledTensor& pickled, std::uint64_t bytes) {
    const auto known = storages_.find(pickled.key);
    if (known != storages_.end()) {
        if (known->second.nbytes() != bytes) {
            return fail(damaged(fmt::format("storage {} has two sizes", pickled.key)));
        }
        return known->second;
    }
    const std::string record = "data/" + pickled.key;
    if (!reader_->hasRecord(record) || reader_->getRecordSize(record) != bytes ||
        bytes > file_bytes_) {
        return fail(damaged(fmt::format("storage {} is missing or of a wrong size", pickled.key)));
    }
    auto [data, size] = reader_->getRecord(record);
    c10::Storage storage(
        c10::Storage::use_byte_size_t{}, size, std::move(data), c10::GetCPUAllocator(), false
    );
    storages_.emplace(pickled.key, storage);
    return storage;
}

Result<at::Tensor> ArchiveReader::tensor(const PickledTensor& pickled) {
    const auto type = type_of_storage(pickled.storage_type);
    const auto reach = reach_of(pickled);
    if (!type) {
        return fail(damaged("a tensor of unknown type " + pickled.storage_type));
    }
    const std::uint64_t element_bytes = c10::elementSize(*type);
    if (!reach || pickled.storage_size < 0 ||
        static_cast<std::uint64_t>(pickled.storage_size) > file_bytes_ / element_bytes ||
        *reach > static_cast<std::uint64_t>(pickled.storage_size)) {
        return fail(damaged("a tensor reaches beyond its storage"));
    }
    if (pickled.storage_size == 0) {
        return at::empty(pickled.sizes, *type);
    }
    try {
        auto data =
            storage(pickled, static_cast<std::uint64_t>(pickled.storage_size) * element_bytes);
        if (!data) {
            return fail(data.error());
        }
        at::Tensor tensor = at::empty({0}, *type);
        tensor.set_(*data, pickled.offset, pickled.sizes, pickled.strides);
        return tensor;
    } catch (const std::exception& exception) {
        return fail(damaged(first_sentence(exception)));
    }
}

}  // namespace ddprun::trainer
