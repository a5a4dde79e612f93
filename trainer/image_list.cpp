#include "trainer/image_list.h"

#include "proto/limits.h"

#include <fmt/format.h>

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <optional>
#include <utility>

namespace ddprun::trainer {

namespace {

constexpr std::array<std::string_view, 9> kEndings{
    ".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"};

struct CloseFolder {
    void operator()(DIR* folder) const { ::closedir(folder); }
};

struct Entry {
    std::string name;
    bool folder = false;
};

bool is_folder(const std::string& dir, const dirent& entry) {
    if (entry.d_type == DT_DIR) {
        return true;
    }
    if (entry.d_type != DT_LNK && entry.d_type != DT_UNKNOWN) {
        return false;
    }

    struct stat info {};

    return ::stat((dir + "/" + entry.d_name).c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

/// Entries by name.
Result<std::vector<Entry>> list_folder(const std::string& dir) {
    const std::unique_ptr<DIR, CloseFolder> folder(::opendir(dir.c_str()));
    if (!folder) {
        return fail(from_errno(errno, "open folder " + dir));
    }
    std::vector<Entry> entries;
    while (true) {
        errno = 0;
        // Each thread has a DIR of its own, for which readdir is safe.
        const dirent* const entry = ::readdir(folder.get());  // NOLINT(concurrency-mt-unsafe)
        if (entry == nullptr) {
            break;
        }
        const std::string_view name = entry->d_name;
        if (name != "." && name != "..") {
            entries.push_back({std::string(name), is_folder(dir, *entry)});
        }
    }
    if (errno != 0) {
        return fail(from_errno(errno, "read folder " + dir));
    }
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
        return a.name < b.name;
    });
    return entries;
}

struct Pictures {
    std::string folder;
    std::vector<std::string> names;
};

/// `dir` and all folders below it that hold pictures.
Result<void> collect(const std::string& dir, int depth, std::vector<Pictures>& found) {
    if (depth > limits::kFolderDepthMax) {
        return fail(
            Errc::limit_exceeded,
            fmt::format(
                "read folder {}: more than {} folders deep, maybe a link to a folder above",
                dir,
                limits::kFolderDepthMax
            )
        );
    }
    auto entries = list_folder(dir);
    if (!entries) {
        return fail(entries.error());
    }
    Pictures pictures{dir, {}};
    std::vector<std::string> folders;
    for (Entry& entry : *entries) {
        if (entry.folder) {
            folders.push_back(dir + "/" + entry.name);
        } else if (has_picture_ending(entry.name)) {
            pictures.names.push_back(std::move(entry.name));
        }
    }
    if (!pictures.names.empty()) {
        found.push_back(std::move(pictures));
    }
    for (const std::string& folder : folders) {
        if (auto collected = collect(folder, depth + 1, found); !collected) {
            return collected;
        }
    }
    return {};
}

}  // namespace

bool has_picture_ending(std::string_view name) {
    std::string lower(name);
    for (char& letter : lower) {
        if (letter >= 'A' && letter <= 'Z') {
            letter = static_cast<char>(letter - 'A' + 'a');
        }
    }
    return std::any_of(kEndings.begin(), kEndings.end(), [&lower](std::string_view ending) {
        return lower.ends_with(ending);
    });
}

Result<std::vector<std::string>> list_classes(const std::string& dir) {
    auto entries = list_folder(dir);
    if (!entries) {
        return fail(entries.error());
    }
    std::vector<std::string> classes;
    for (Entry& entry : *entries) {
        if (entry.folder) {
            classes.push_back(std::move(entry.name));
        }
    }
    if (classes.empty()) {
        return fail(
            Errc::malformed,
            fmt::format("read {}: no folder in it; there should be one for each class", dir)
        );
    }
    if (static_cast<std::int64_t>(classes.size()) > limits::kClassesMax) {
        return fail(
            Errc::limit_exceeded,
            fmt::format(
                "read {}: {} classes, {} are the limit", dir, classes.size(), limits::kClassesMax
            )
        );
    }
    return classes;
}

Result<ImageList> ImageList::read(const std::string& dir, const std::vector<std::string>& classes) {
    const auto own = list_classes(dir);
    if (!own) {
        return fail(own.error());
    }
    ImageList list;
    for (const std::string& name : *own) {
        const auto place = std::lower_bound(classes.begin(), classes.end(), name);
        if (place == classes.end() || *place != name) {
            return fail(
                Errc::malformed,
                fmt::format("read {}: class {} isn't one of the training split's", dir, name)
            );
        }
        if (auto added = list.add_class(dir + "/" + name, place - classes.begin()); !added) {
            return fail(added.error());
        }
    }
    return list;
}

Result<void> ImageList::add_class(const std::string& path, std::int64_t label) {
    std::vector<Pictures> found;
    if (auto collected = collect(path, 1, found); !collected) {
        return collected;
    }
    if (found.empty()) {
        return fail(Errc::malformed, fmt::format("read {}: no picture of this class in it", path));
    }
    std::sort(found.begin(), found.end(), [](const Pictures& a, const Pictures& b) {
        return a.folder < b.folder;
    });
    for (const Pictures& pictures : found) {
        folders_.push_back({pictures.folder, label, begin_.size()});
        for (const std::string& name : pictures.names) {
            begin_.push_back(names_.size());
            names_.append(name.c_str(), name.size() + 1);
        }
    }
    if (size() > limits::kSamplesMax) {
        return fail(
            Errc::limit_exceeded,
            fmt::format("read {}: more than {} pictures in all", path, limits::kSamplesMax)
        );
    }
    return {};
}

const ImageList::Folder& ImageList::folder_of(std::int64_t index) const {
    const auto wanted = static_cast<std::size_t>(index);
    const auto after = std::upper_bound(
        folders_.begin(),
        folders_.end(),
        wanted,
        [](std::size_t number, const Folder& folder) { return number < folder.first; }
    );
    return *std::prev(after);
}

std::string ImageList::path(std::int64_t index) const {
    const char* const name = names_.c_str() + begin_[static_cast<std::size_t>(index)];
    return fmt::format("{}/{}", folder_of(index).path, name);
}

std::int64_t ImageList::label(std::int64_t index) const {
    return folder_of(index).label;
}

}  // namespace ddprun::trainer
