// Where the control groups of this process are: found by /proc/self/mountinfo and
// /proc/self/cgroup, in both versions, in containers and without any assumption about mount points.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ddprun {

struct Cgroup {
    std::string mount;  ///< mount point of the hierarchy
    std::string group;  ///< path of our group below it: "/a/b", or "" for the top

    [[nodiscard]] std::string folder() const { return mount + group; }

    /// The group above; none above the top.
    [[nodiscard]] std::optional<Cgroup> parent() const;
};

/// Our group in the hierarchy of version 1 that has `controller`, or of version 2 for "". `root`
/// precedes every path that is read and every mount point: empty but in tests.
[[nodiscard]] std::optional<Cgroup> find_cgroup(
    std::string_view controller, const std::string& root = {}
);

}  // namespace ddprun
