// The pictures of a folder with a folder for each class, in the order of torchvision's ImageFolder:
// classes by name, in each class the folders by their path, in each folder the files by their name,
// all compared by bytes. What counts as a picture is decided by the name's ending, as there.
#pragma once

#include "proto/result.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::trainer {

/// Class folders of `dir`, sorted. Errors: not_found, permission_denied, io_error; malformed
/// (none).
[[nodiscard]] Result<std::vector<std::string>> list_classes(const std::string& dir);

/// Whether torchvision takes a file of this name for a picture.
[[nodiscard]] bool has_picture_ending(std::string_view name);

/// Many names in little memory: 1.3 million pictures take about 40 MB.
class ImageList {
public:
    /// Lists `dir`; `classes` (sorted) give the labels. Links to folders are followed. Errors, each
    /// with the folder's name: not_found, permission_denied, io_error; malformed (a class that
    /// isn't one of `classes`, a class without a picture), limit_exceeded.
    [[nodiscard]] static Result<ImageList> read(
        const std::string& dir, const std::vector<std::string>& classes
    );

    [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(begin_.size()); }

    [[nodiscard]] std::string path(std::int64_t index) const;

    [[nodiscard]] std::int64_t label(std::int64_t index) const;

private:
    struct Folder {
        std::string path;
        std::int64_t label = 0;
        std::size_t first = 0;  ///< index of its first picture
    };

    [[nodiscard]] Result<void> add_class(const std::string& path, std::int64_t label);
    [[nodiscard]] const Folder& folder_of(std::int64_t index) const;

    std::vector<Folder> folders_;       ///< those with pictures, in the order of the pictures
    std::string names_;                 ///< file names, each ended by a 0
    std::vector<std::uint64_t> begin_;  ///< of each picture's name in names_
};

}  // namespace ddprun::trainer
