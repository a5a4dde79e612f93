// The zip archive of Python's torch.save, ours included: its pickle, and the tensors that the
// pickle refers to. Nothing in a file is trusted: sizes are checked against what is there, and one
// of our own files against its checksum.
#pragma once

#include "proto/result.h"
#include "trainer/pickle.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

namespace caffe2::serialize {
class PyTorchStreamReader;
}

namespace ddprun::trainer {

class ArchiveReader {
public:
    /// Errors: not_found, permission_denied, io_error, malformed; unsupported for the form that
    /// torch.save had before PyTorch 1.6.
    [[nodiscard]] static Result<ArchiveReader> open(const std::filesystem::path& path);

    ArchiveReader(ArchiveReader&&) noexcept;
    ArchiveReader& operator=(ArchiveReader&&) noexcept;
    ~ArchiveReader();

    /// What data.pkl holds.
    [[nodiscard]] const PickleValue& root() const { return root_; }

    /// Reads a tensor, on the CPU; those of one storage share it. Errors: malformed.
    [[nodiscard]] Result<at::Tensor> tensor(const PickledTensor& pickled);

private:
    ArchiveReader(std::filesystem::path path, std::uint64_t file_bytes);

    [[nodiscard]] Result<void> check_origin(bool has_checksum);
    [[nodiscard]] Result<void> read_root();
    [[nodiscard]] Result<c10::Storage> storage(const PickledTensor& pickled, std::uint64_t bytes);
    [[nodiscard]] Error damaged(std::string_view what) const;

    std::filesystem::path path_;
    std::uint64_t file_bytes_;
    std::unique_ptr<caffe2::serialize::PyTorchStreamReader> reader_;
    std::map<std::string, c10::Storage> storages_;
    PickleValue root_;
};

}  // namespace ddprun::trainer
