#include "launcher/machine.h"

#include "agent/topology.h"

#include <sys/random.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <system_error>

namespace ddprun::launcher {

namespace fs = std::filesystem;

int count_cpus() {
    return std::max(1, static_cast<int>(affinity_of_this_process().size()));
}

std::string host_name() {
    utsname names{};
    return ::uname(&names) == 0 ? std::string{names.nodename} : std::string{"localhost"};
}

Result<fs::path> own_folder() {
    std::error_code error;
    const fs::path own = fs::read_symlink("/proc/self/exe", error);
    if (error) {
        return fail(from_error_code(error, "read /proc/self/exe"));
    }
    return own.parent_path();
}

Result<std::uint64_t> random_bits() {
    std::uint64_t bits = 0;
    if (::getrandom(&bits, sizeof bits, 0) != static_cast<ssize_t>(sizeof bits)) {
        return fail(from_errno(errno, "draw random bits from the kernel"));
    }
    return bits;
}

Environment process_environment() {
    Environment environment;
    for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
        const std::string_view text = *entry;
        const std::size_t equals = text.find('=');
        if (equals != std::string_view::npos) {
            environment.insert_or_assign(
                std::string{text.substr(0, equals)}, std::string{text.substr(equals + 1)}
            );
        }
    }
    return environment;
}

}  // namespace ddprun::launcher
