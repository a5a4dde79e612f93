#include "trainer/safetensors_file.h"

#include "trainer/atomic_file.h"
#include "trainer/safetensors_header.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::pair<c10::ScalarType, std::string_view>, 10> kTypes{{
    {c10::ScalarType::Float, "F32"},
    {c10::ScalarType::Double, "F64"},
    {c10::ScalarType::Half, "F16"},
    {c10::ScalarType::BFloat16, "BF16"},
    {c10::ScalarType::Long, "I64"},
    {c10::ScalarType::Int, "I32"},
    {c10::ScalarType::Short, "I16"},
    {c10::ScalarType::Char, "I8"},
    {c10::ScalarType::Byte, "U8"},
    {c10::ScalarType::Bool, "BOOL"},
}};

std::optional<c10::ScalarType> type_of(std::string_view name) {
    for (const auto& [type, known] : kTypes) {
        if (known == name) {
            return type;
        }
    }
    return std::nullopt;
}

std::string name_of(c10::ScalarType type) {
    for (const auto& [known, name] : kTypes) {
        if (known == type) {
            return std::string(name);
        }
    }
    return {};
}

/// The tensor of an entry, filled from `file`.
Result<at::Tensor> read_tensor(std::ifstream& file, const SafetensorsEntry& entry) {
    const auto type = type_of(entry.dtype);
    if (!type) {
        return fail(Errc::malformed, fmt::format("{} is of type {}", entry.name, entry.dtype));
    }
    // Against overflow: no size may go beyond the bytes that are there.
    std::uint64_t elements = 1;
    const std::uint64_t bytes = entry.end - entry.begin;
    for (const std::int64_t size : entry.shape) {
        elements *= static_cast<std::uint64_t>(size);
        if (elements > bytes) {
            break;
        }
    }
    if (elements > bytes || elements * c10::elementSize(*type) != bytes) {
        return fail(Errc::malformed, fmt::format("{} has another size than its shape", entry.name));
    }
    at::Tensor tensor = at::empty(entry.shape, *type);
    if (bytes > 0 &&
        !file.read(static_cast<char*>(tensor.data_ptr()), static_cast<std::streamsize>(bytes))) {
        return fail(Errc::io_error, fmt::format("the bytes of {} can't be read", entry.name));
    }
    return tensor;
}

}  // namespace

bool is_safetensors(const fs::path& path) {
    return path.extension() == ".safetensors";
}

Result<NamedTensors> read_safetensors(const fs::path& path) {
    const std::string what = "read " + path.string();
    std::error_code error;
    const std::uint64_t file_bytes = fs::file_size(path, error);
    std::ifstream file(path, std::ios::binary);
    if (error || !file) {
        return fail(error ? from_error_code(error, what) : from_errno(errno, what));
    }
    const auto failed = [&what](const Error& cause) {
        return fail(cause.code, what + ": " + cause.context);
    };
    std::string length(kSafetensorsLengthBytes, '\0');
    file.read(length.data(), static_cast<std::streamsize>(length.size()));
    length.resize(static_cast<std::size_t>(file.gcount()));
    const auto header_bytes = safetensors_header_length(length);
    if (!header_bytes) {
        return failed(header_bytes.error());
    }
    if (*header_bytes > file_bytes - kSafetensorsLengthBytes) {
        return failed(Error{Errc::malformed, "damaged: shorter than its header"});
    }
    std::string json(*header_bytes, '\0');
    file.read(json.data(), static_cast<std::streamsize>(json.size()));
    const auto entries =
        parse_safetensors_header(json, file_bytes - kSafetensorsLengthBytes - *header_bytes);
    if (!entries) {
        return failed(entries.error());
    }
    NamedTensors tensors;
    for (const SafetensorsEntry& entry : *entries) {
        auto tensor = read_tensor(file, entry);
        if (!tensor) {
            return failed(tensor.error());
        }
        tensors.emplace_back(entry.name, std::move(*tensor));
    }
    return tensors;
}

Result<void> write_safetensors(const NamedTensors& tensors, const fs::path& path) {
    std::vector<SafetensorsEntry> entries;
    std::vector<at::Tensor> plain;
    std::uint64_t next = 0;
    for (const auto& [name, tensor] : tensors) {
        plain.push_back(tensor.detach().to(at::kCPU).contiguous());
        const std::string dtype = name_of(plain.back().scalar_type());
        if (dtype.empty()) {
            return fail(
                Errc::unsupported,
                fmt::format("write {}: {} is of a type without a name there", path.string(), name)
            );
        }
        const std::uint64_t end = next + plain.back().nbytes();
        entries.push_back({name, dtype, plain.back().sizes().vec(), next, end});
        next = end;
    }
    auto file = AtomicFile::create(path);
    if (!file) {
        return fail(file.error());
    }
    auto written = file->write(write_safetensors_header(entries));
    for (std::size_t i = 0; written && i < plain.size(); ++i) {
        written = file->write({static_cast<const char*>(plain[i].data_ptr()), plain[i].nbytes()});
    }
    return written ? file->commit() : written;
}

}  // namespace ddprun::trainer
