#include "agent/cgroups.h"

#include "proto/limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <utility>

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

/// "4:memory:/a/b", "0::/a/b" for version 2: the path, where it is wanted.
std::optional<std::string> group_of_line(const std::string& line, std::string_view controller) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) {
        return std::nullopt;
    }
    const std::string_view names = std::string_view{line}.substr(first + 1, second - first - 1);
    const bool is_wanted = controller.empty() ? names.empty() : has_item(names, controller);
    return is_wanted ? std::optional{line.substr(second + 1)} : std::nullopt;
}

/// What `find` gives for the first of the lines that it gives something for.
template <class Find>
auto first_of(const std::vector<std::string>& lines, std::string_view controller, Find find)
    -> decltype(find(lines.front(), controller)) {
    for (const std::string& line : lines) {
        if (auto found = find(line, controller)) {
            return found;
        }
    }
    return std::nullopt;
}

std::vector<std::string> lines_with(const std::string& path, std::string_view word) {
    std::vector<std::string> lines;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        if (line.find(word) != std::string::npos) {
            lines.push_back(line);
        }
    }
    return lines;
}

}  // namespace

std::optional<Cgroup> Cgroup::parent() const {
    const std::size_t slash = group.rfind('/');
    if (slash == std::string::npos) {
        return std::nullopt;
    }
    return Cgroup{mount, group.substr(0, slash)};
}

OwnCgroups::OwnCgroups(std::string root)
    : root_(std::move(root)),
      mounts_(lines_with(root_ + "/proc/self/mountinfo", " - cgroup")),
      groups_(lines_with(root_ + "/proc/self/cgroup", ":")) {}

std::optional<Cgroup> OwnCgroups::find(std::string_view controller) const {
    const std::optional<Mount> mount = first_of(mounts_, controller, mount_of_line);
    std::optional<std::string> group = first_of(groups_, controller, group_of_line);
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
    return Cgroup{root_ + mount->point, std::move(*group)};
}

}  // namespace ddprun
