#include "agent/cgroups.h"

#include "proto/limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace ddprun {

namespace {

struct Mount {
    std::string root;  ///< of the hierarchy, what is seen at `point`
    std::string point;
};

bool has_item(std::string_view list, std::string_view item) {
    return fmt::format(",{},", list).find(fmt::format(",{},", item)) != std::string::npos;
}

/// "31 23 0:28 ROOT POINT OPTIONS [FIELDS...] - TYPE SOURCE OPTIONS", where it is wanted.
std::optional<Mount> mount_of_line(const std::string& line, std::string_view controller) {
    constexpr std::string_view kSeparator = " - ";
    const std::size_t separator = line.find(kSeparator);
    if (separator == std::string::npos) {
        return std::nullopt;
    }
    std::istringstream tail(line.substr(separator + kSeparator.size()));
    std::string type;
    std::string source;
    std::string options;
    tail >> type >> source >> options;
    const bool is_wanted =
        controller.empty() ? type == "cgroup2" : type == "cgroup" && has_item(options, controller);
    if (!is_wanted) {
        return std::nullopt;
    }
    std::istringstream head(line);
    std::string ignored;
    Mount mount;
    head >> ignored >> ignored >> ignored >> mount.root >> mount.point;
    return mount;
}

std::optional<Mount> find_mount(std::string_view controller, const std::string& root) {
    std::ifstream mounts(root + "/proc/self/mountinfo");
    for (std::string line; std::getline(mounts, line);) {
        if (auto mount = mount_of_line(line, controller)) {
            return mount;
        }
    }
    return std::nullopt;
}

/// "4:memory:/a/b", "0::/a/b" for version 2.
std::optional<std::string> find_group(std::string_view controller, const std::string& root) {
    std::ifstream groups(root + "/proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) {
        const std::size_t first = line.find(':');
        const std::size_t second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) {
            continue;
        }
        const std::string_view names = std::string_view{line}.substr(first + 1, second - first - 1);
        if (controller.empty() ? names.empty() : has_item(names, controller)) {
            return line.substr(second + 1);
        }
    }
    return std::nullopt;
}

}  // namespace

std::optional<Cgroup> Cgroup::parent() const {
    const std::size_t slash = group.rfind('/');
    if (slash == std::string::npos) {
        return std::nullopt;
    }
    return Cgroup{mount, group.substr(0, slash)};
}

std::optional<Cgroup> find_cgroup(std::string_view controller, const std::string& root) {
    const std::optional<Mount> mount = find_mount(controller, root);
    std::optional<std::string> group = find_group(controller, root);
    if (!mount || !group) {
        return std::nullopt;
    }
    // In a container only the part below the mount's root can be seen.
    if (mount->root != "/" && group->starts_with(mount->root)) {
        group->erase(0, mount->root.size());
    }
    if (*group == "/") {
        group->clear();
    }
    return Cgroup{root + mount->point, std::move(*group)};
}

}  // namespace ddprun
