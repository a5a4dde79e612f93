// Where the control groups of this process are: found by /proc/self/mountinfo and
// /proc/self/cgroup, in both versions, in containers and without any assumption about mount points.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

struct Cgroup {
    std::string mount;  ///< mount point of the hierarchy
    std::string group;  ///< path of our group below it: "/a/b", or "" for the top

    [[nodiscard]] std::string folder() const { return mount + group; }

    /// The group above; none above the top.
    [[nodiscard]] std::optional<Cgroup> parent() const;
};

/// The groups of this process as they are when it is made: a look at the kernel's table of mounts
/// costs as much as a small file, several cost a noticeable part of a start.
class OwnCgroups {
public:
    /// `root` precedes every path that is read and every mount point: empty but in tests.
    explicit OwnCgroups(std::string root = {});

    /// In the hierarchy of version 1 that has `controller`, or of version 2 for "".
    [[nodiscard]] std::optional<Cgroup> find(std::string_view controller) const;

private:
    std::string root_;
    std::vector<std::string> mounts_;  ///< lines of /proc/self/mountinfo, of cgroups alone
    std::vector<std::string> groups_;  ///< lines of /proc/self/cgroup
};

}  // namespace ddprun
