#include "trainer/pack.h"

#include "proto/limits.h"
#include "trainer/atomic_file.h"
#include "trainer/bad_samples.h"
#include "trainer/image_folder.h"
#include "trainer/image_list.h"
#include "trainer/packed.h"
#include "trainer/packed_format.h"
#include "trainer/render.h"
#include "trainer/stop_signal.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace ddprun::trainer {

namespace {

constexpr double kBytesPerGigabyte = 1e9;

struct Picture {
    Size size;
    std::vector<std::uint8_t> pixels;
    std::uint32_t checksum = 0;
    std::optional<Error> error;
};

/// What a thread keeps from picture to picture.
struct Scratch {
    std::vector<std::uint8_t> file;
    Renderer renderer;
};

Result<void> load(const std::string& path, int short_side, Scratch& scratch, Picture& picture) {
    if (auto read = read_picture_file(path, scratch.file); !read) {
        return read;
    }
    auto decoder = open_picture(scratch.file);
    if (!decoder) {
        return fail(of_picture(path, decoder.error()));
    }
    const PicturePlan plan = shrink_plan((*decoder)->size(), short_side);
    picture.size = plan.kept.size();
    if (std::max(picture.size.width, picture.size.height) > limits::kPictureSideMax) {
        return fail(
            Errc::limit_exceeded,
            fmt::format("read {}: a side of more than {} pixels", path, limits::kPictureSideMax)
        );
    }
    picture.pixels.resize(picture.size.pixels() * kPixelBytes);
    if (auto rendered = scratch.renderer.render(**decoder, plan, picture.pixels); !rendered) {
        return fail(of_picture(path, rendered.error()));
    }
    scratch.renderer.trim();
    picture.checksum = checksum_of(picture.pixels);
    return {};
}

/// Writes one split.
class SplitPacker {
public:
    SplitPacker(const PackOptions& options, Split split, Log& log)
        : options_(options),
          split_(split),
          bad_(
              options.max_bad_samples, [&log](const std::string& line) { log.warning("{}", line); }
          ),
          scratch_(static_cast<std::size_t>(options.workers)),
          pictures_(static_cast<std::size_t>(options.workers) * limits::kPackChunk) {}

    /// False if a signal asked to stop: then nothing has been written.
    [[nodiscard]] Outcome<bool> run(const std::vector<std::string>& classes, Log& log) {
        auto list = ImageList::read(split_folder(options_.source, split_), classes);
        if (!list) {
            return input_failed(list.error());
        }
        const std::string path = packed_path(options_.out, split_);
        auto file = AtomicFile::create(path);
        if (!file) {
            return output_failed(file.error());
        }
        if (auto written = write(*file, packed_header()); !written) {
            return tl::unexpected<Failure>(written.error());
        }
        const auto step = static_cast<std::int64_t>(pictures_.size());
        for (std::int64_t begin = 0; begin < list->size(); begin += step) {
            if (stop_signal::pending() != 0) {
                return false;
            }
            const std::int64_t count = std::min(step, list->size() - begin);
            load_all(*list, begin, count);
            if (auto written = write_all(*list, begin, count, *file); !written) {
                return tl::unexpected<Failure>(written.error());
            }
        }
        if (index_.size() == 0) {
            return stop_with(
                exit_code::kData,
                fmt::format("pack {}: not one picture can be read", options_.source)
            );
        }
        const std::int64_t packed = index_.size();
        const std::string tail =
            index_.finish(offset_, classes, static_cast<std::uint32_t>(options_.short_side));
        if (auto written = write(*file, tail); !written) {
            return tl::unexpected<Failure>(written.error());
        }
        if (auto committed = file->commit(); !committed) {
            return output_failed(committed.error());
        }
        log.info(
            "packed {}: {} pictures, {} skipped, {} classes, {:.3f} GB",
            path,
            packed,
            bad_.count(),
            classes.size(),
            static_cast<double>(offset_) / kBytesPerGigabyte
        );
        return true;
    }

private:
    /// Pictures [begin, begin + count) into pictures_, by all threads.
    void load_all(const ImageList& list, std::int64_t begin, std::int64_t count) {
        std::atomic<std::int64_t> next{0};
        const auto work = [&](Scratch& scratch) {
            for (std::int64_t i = next++; i < count; i = next++) {
                Picture& picture = pictures_[static_cast<std::size_t>(i)];
                auto loaded = load(list.path(begin + i), options_.short_side, scratch, picture);
                picture.error = loaded ? std::nullopt : std::optional(loaded.error());
            }
        };
        std::vector<std::thread> threads;
        for (std::size_t t = 1; t < scratch_.size(); ++t) {
            threads.emplace_back(work, std::ref(scratch_[t]));
        }
        work(scratch_.front());
        for (std::thread& thread : threads) {
            thread.join();
        }
    }

    [[nodiscard]] Outcome<void> write_all(
        const ImageList& list, std::int64_t begin, std::int64_t count, AtomicFile& file
    ) {
        for (std::int64_t i = 0; i < count; ++i) {
            Picture& picture = pictures_[static_cast<std::size_t>(i)];
            if (picture.error) {
                if (const auto last = bad_.note(begin + i, *picture.error)) {
                    return input_failed(*last);
                }
                continue;
            }
            index_.add({
                .offset = offset_,
                .size = picture.size,
                .label = static_cast<std::uint32_t>(list.label(begin + i)),
                .checksum = picture.checksum,
            });
            const std::string_view bytes(
                reinterpret_cast<const char*>(picture.pixels.data()), picture.pixels.size()
            );
            if (auto written = write(file, bytes); !written) {
                return written;
            }
        }
        return {};
    }

    [[nodiscard]] Outcome<void> write(AtomicFile& file, std::string_view bytes) {
        if (auto written = file.write(bytes); !written) {
            return output_failed(written.error());
        }
        offset_ += bytes.size();
        return {};
    }

    const PackOptions& options_;
    Split split_;
    BadSamples bad_;
    std::vector<Scratch> scratch_;
    std::vector<Picture> pictures_;
    PackedIndex index_;
    std::uint64_t offset_ = 0;
};

Outcome<int> pack_splits(
    const PackOptions& options, const std::vector<std::string>& classes, Log& log
) {
    for (const Split split : {Split::train, Split::test}) {
        SplitPacker packer(options, split, log);
        const auto done = packer.run(classes, log);
        if (!done) {
            return tl::unexpected<Failure>(done.error());
        }
        if (!*done) {
            return exit_code::from_signal(stop_signal::pending());
        }
    }
    return exit_code::kSuccess;
}

}  // namespace

Outcome<int> pack(const PackOptions& options, Log& log) {
    const auto classes = list_classes(split_folder(options.source, Split::train));
    if (!classes) {
        Error error = classes.error();
        error.context += "; an image folder has train/ and val/ with a folder for each class";
        return input_failed(error);
    }
    for (const std::string& name : *classes) {
        if (name.size() > limits::kClassNameBytesMax) {
            return stop_with(
                exit_code::kData, fmt::format("pack: class {}: the name is too long", name)
            );
        }
    }
    std::error_code failed;
    const bool is_new = std::filesystem::create_directories(options.out, failed);
    if (failed) {
        return output_failed(from_error_code(failed, "make folder " + options.out));
    }
    stop_signal::catch_all();
    Outcome<int> status = pack_splits(options, *classes, log);
    if (is_new && (!status || *status != exit_code::kSuccess)) {
        std::filesystem::remove(options.out, failed);  // where nothing is in it
    }
    return status;
}

}  // namespace ddprun::trainer
