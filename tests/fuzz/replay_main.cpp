// Runs a fuzz target without libFuzzer: on each file of the folder given, then on inputs made from
// a fixed seed, so that every build has a short, repeatable run.
// Usage: TARGET_replay FOLDER RANDOM_INPUTS
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Input = std::vector<std::uint8_t>;

std::size_t replay_folder(const std::filesystem::path& folder) {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator{folder}) {
        std::ifstream file{entry.path(), std::ios::binary};
        const Input input{std::istreambuf_iterator<char>{file}, std::istreambuf_iterator<char>{}};
        LLVMFuzzerTestOneInput(input.data(), input.size());
        ++count;
    }
    return count;
}

void run_random(std::size_t count) {
    std::mt19937 random{20'240'601};
    for (std::size_t i = 0; i < count; ++i) {
        Input input(random() % 200);
        // Small numbers are opcodes and lengths: without many of them little gets past the front.
        for (std::uint8_t& byte : input) {
            const auto kind = random() % 4;
            byte = static_cast<std::uint8_t>(kind == 0 ? random() : kind == 1 ? random() % 20 : 0);
        }
        LLVMFuzzerTestOneInput(input.data(), input.size());
        for (std::uint8_t& byte : input) {
            byte = static_cast<std::uint8_t>(random());
        }
        LLVMFuzzerTestOneInput(input.data(), input.size());
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: %s FOLDER RANDOM_INPUTS\n", argv[0]);
        return 2;
    }
    const std::size_t files = replay_folder(argv[1]);
    run_random(std::strtoull(argv[2], nullptr, 10));
    std::printf("%zu files and %s random inputs\n", files, argv[2]);
    return files == 0 ? 1 : 0;
}
