// Every bound on lengths, counts, queues, buffers and retries, with the reason where it isn't
// obvious.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace ddprun::limits {

inline constexpr std::size_t kKiB = 1024;
inline constexpr std::size_t kMiB = 1024 * kKiB;

// The store. The first three are what PyTorch's libuv server allows, so that no legal client
// breaks.
inline constexpr std::size_t kKeyBytesMax = 8 * kKiB;
inline constexpr std::size_t kValueBytesMax = 8 * kMiB;
inline constexpr std::size_t kKeysPerRequestMax = 131'072;
inline constexpr std::size_t kRequestBytesMax = 64 * kMiB;

// The agent protocol.
inline constexpr std::size_t kAgentFrameBytesMax = 4 * kMiB;
inline constexpr std::size_t kNameBytesMax =
    1 * kKiB;  ///< host, node, job and role names, addresses
inline constexpr std::size_t kTextBytesMax =
    64 * kKiB;  ///< a message, a traceback, the last lines of stderr
inline constexpr std::int32_t kNodesMax = 131'072;
inline constexpr std::int32_t kLocalWorldSizeMax = 4'096;
inline constexpr std::int32_t kFailuresPerReportMax =
    64;  ///< a job's report lists no more, and counts the rest

}  // namespace ddprun::limits
