// Exit statuses of ddprun, ddprund, trainer and nccl-check: the whole set, in one place.
// docs/exit_statuses.md is the table that users read. A worker's own code is passed on as it is;
// what a signal ended becomes 128 + signal.
#pragma once

namespace ddprun::exit_code {

inline constexpr int kSuccess = 0;
inline constexpr int kTorchrunFailure = 1;  ///< with --exit_code=torchrun: every failure
inline constexpr int kMax = 255;            ///< the largest that a shell can see
inline constexpr int kUsage = 2;  ///< wrong command line or configuration, nothing was started

// From sysexits.h.
inline constexpr int kData = 65;  ///< trainer: data, weights or a checkpoint is damaged or foreign
inline constexpr int kNoInput = 66;      ///< trainer: an input is missing or unreadable
inline constexpr int kUnavailable = 69;  ///< the endpoint can't be reached, or nobody hosts
inline constexpr int kInternal =
    70;  ///< a bug, or the system refused what an agent can't do without
inline constexpr int kCannotCreate = 73;    ///< output can't be written
inline constexpr int kRendezvousLost = 74;  ///< the rendezvous, or the node that hosts it, was lost
inline constexpr int kJoinTimeout = 75;     ///< the nodes that the job needs didn't all come
inline constexpr int kRefused = 77;         ///< the rendezvous declined this node

inline constexpr int kNoCommunicator =
    79;  ///< nccl-check: the ids agree, but this machine has no GPU

inline constexpr int kNotExecutable = 126;  ///< the program is there but can't be executed
inline constexpr int kNotFound = 127;       ///< there is no such program

/// The status for a process that `signal` ended.
constexpr int from_signal(int signal) {
    constexpr int kSignalBase = 128;
    return kSignalBase + signal;
}

}  // namespace ddprun::exit_code
