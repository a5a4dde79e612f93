#include "trainer/image_folder.h"

#include "proto/assert.h"
#include "proto/limits.h"
#include "trainer/image_list.h"
#include "trainer/render.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace ddprun::trainer {

namespace {

/// What a loader thread keeps from picture to picture.
struct Scratch {
    std::vector<std::uint8_t> file;
    Renderer renderer;
};

class ImageFolder final : public Dataset {
public:
    ImageFolder(ImageList list, std::int64_t num_classes, const DatasetOptions& options)
        : list_(std::move(list)),
          num_classes_(num_classes),
          options_(options),
          side_(options.image_size.value_or(kDefaultImageSize)),
          normalisation_(options.normalisation_or(kImageNetNormalisation)),
          table_(normalisation_) {}

    [[nodiscard]] std::int64_t size() const override { return list_.size(); }

    [[nodiscard]] std::int64_t num_classes() const override { return num_classes_; }

    [[nodiscard]] ImageShape shape() const override { return {side_, side_}; }

    [[nodiscard]] Normalisation normalisation() const override { return normalisation_; }

    [[nodiscard]] Result<std::int64_t> read(const Sample& sample, std::span<float> out)
        const override {
        DDPRUN_ASSERT(sample.index >= 0 && sample.index < size());
        thread_local Scratch scratch;
        const std::string path = list_.path(sample.index);
        if (auto done = read_picture_file(path, scratch.file); !done) {
            return fail(done.error());
        }
        auto rendered = render(sample, scratch, out);
        if (scratch.file.capacity() > limits::kScratchBytesKept) {
            scratch.file = {};
        }
        scratch.renderer.trim();
        if (!rendered) {
            return fail(of_picture(path, rendered.error()));
        }
        return list_.label(sample.index);
    }

private:
    [[nodiscard]] Result<void> render(const Sample& sample, Scratch& scratch, std::span<float> out)
        const {
        auto decoder = open_picture(scratch.file);
        if (!decoder) {
            return fail(decoder.error());
        }
        const Size size = (*decoder)->size();
        PicturePlan plan;
        if (options_.augment) {
            SampleRandom random(options_.seed, sample.epoch, sample.index);
            plan = random_crop_plan(size, side_, random);
        } else {
            plan = centre_plan(size, side_);
        }
        // Where every picture comes out otherwise each time, a little less exact is as good.
        const bool scaling = options_.augment && options_.jpeg_scaling;
        return scratch.renderer.render(**decoder, plan, scaling, table_, out);
    }

    ImageList list_;
    std::int64_t num_classes_;
    DatasetOptions options_;
    int side_;
    Normalisation normalisation_;
    NormaliseTable table_;
};

}  // namespace

std::string split_folder(const std::string& dir, Split split) {
    return dir + (split == Split::train ? "/train" : "/val");
}

Error of_picture(const std::string& path, Error error) {
    error.context = fmt::format("read {}: {}", path, error.context);
    return error;
}

Result<void> read_picture_file(const std::string& path, std::vector<std::uint8_t>& bytes) {
    // Non-blocking: a fifo without a writer would hold the thread up for good.
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return fail(from_errno(errno, "open " + path));
    }

    struct stat info {};

    Result<void> result;
    if (::fstat(fd, &info) != 0) {
        result = fail(from_errno(errno, "read " + path));
    } else if (!S_ISREG(info.st_mode)) {
        result = fail(Errc::io_error, fmt::format("read {}: not a file", path));
    } else if (static_cast<std::uint64_t>(info.st_size) > limits::kPictureFileBytesMax) {
        result = fail(
            Errc::limit_exceeded,
            fmt::format(
                "read {}: {} bytes, {} are the limit",
                path,
                info.st_size,
                limits::kPictureFileBytesMax
            )
        );
    } else {
        bytes.resize(static_cast<std::size_t>(info.st_size));
    }
    std::size_t done = 0;
    while (result && done < bytes.size()) {
        const ssize_t count = ::read(fd, bytes.data() + done, bytes.size() - done);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count < 0) {
            result = fail(from_errno(errno, "read " + path));
        } else if (count == 0) {
            bytes.resize(done);  // shorter than it was a moment ago
        } else {
            done += static_cast<std::size_t>(count);
        }
    }
    ::close(fd);
    return result;
}

Result<std::unique_ptr<Dataset>> open_image_folder(
    const std::string& dir, const DatasetOptions& options
) {
    // The training split's classes for both: a class that the other lacks moves no label.
    const auto classes = list_classes(split_folder(dir, Split::train));
    if (!classes) {
        Error error = classes.error();
        error.context += "; an image folder has train/ and val/ with a folder for each class";
        return fail(std::move(error));
    }
    auto list = ImageList::read(split_folder(dir, options.split), *classes);
    if (!list) {
        return fail(list.error());
    }
    return std::make_unique<ImageFolder>(
        std::move(*list), static_cast<std::int64_t>(classes->size()), options
    );
}

}  // namespace ddprun::trainer
