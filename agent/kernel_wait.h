// Where a process that doesn't die hangs in the kernel, in words for people.
#pragma once

#include <sys/types.h>

#include <string>

namespace ddprun {

/// "process 4711 (python3), state D, waits in the kernel in rpc_wait_bit_killable"; what can't be
/// read is left out. `proc` is "/proc" but in tests.
[[nodiscard]] std::string describe_kernel_wait(const std::string& proc, pid_t pid);

}  // namespace ddprun
