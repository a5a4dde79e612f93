// Files that the kernel makes while they are read: /proc, /sys, control groups.
#pragma once

#include <string>

namespace ddprun {

/// At most kKernelFileBytesMax of the file; what was read before an error, empty where it can't be
/// opened. Throws nothing: a process may end while its file in /proc is read.
[[nodiscard]] std::string read_kernel_file(const std::string& path);

}  // namespace ddprun
