#include "agent/kernel_file.h"

#include "proto/limits.h"

#include <array>
#include <cstddef>
#include <fstream>

namespace ddprun {

std::string read_kernel_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::string text;
    std::array<char, 4096> piece{};
    // Not by iterators, which throw where read() sets a flag.
    while (file && text.size() < limits::kKernelFileBytesMax) {
        file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
        text.append(piece.data(), static_cast<std::size_t>(file.gcount()));
    }
    return text;
}

}  // namespace ddprun
