#include "trainer/checkpoint.h"

#include "proto/assert.h"
#include "trainer/atomic_file.h"
#include "trainer/checkpoint_format.h"
#include "trainer/pickle.h"
#include "trainer/state_pickler.h"
#include "trainer/zip_checksum.h"

#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <system_error>

namespace ddprun::trainer {

namespace {

namespace fs = std::filesystem;

/// The archive as Python's torch.save lays it out.
Result<void> write_archive(const TrainingState& state, const ZipChecksumWriter::Sink& sink) {
    ZipChecksumWriter checksum(sink);
    Result<void> written;
    // LibTorch's writer must never hear of a failure: its destructor goes on writing, and throws.
    const auto write = [&](const void* bytes, std::size_t size) -> std::size_t {
        if (written) {
            written = checksum.write({static_cast<const char*>(bytes), size});
        }
        return size;
    };
    try {
        const PickledState pickled = pickle_state(state);
        const std::string pickle = write_pickle(pickled.root);
        caffe2::serialize::PyTorchStreamWriter archive(write);
        archive.writeRecord("data.pkl", pickle.data(), pickle.size());
        archive.writeRecord("byteorder", "little", std::string_view("little").size());
        archive.writeRecord(std::string(kFormatRecord), "1", 1);
        for (std::size_t key = 0; written && key < pickled.storages.size(); ++key) {
            const at::Tensor& storage = pickled.storages[key];
            archive.writeRecord(fmt::format("data/{}", key), storage.data_ptr(), storage.nbytes());
        }
        archive.writeEndOfFile();
    } catch (const std::exception& exception) {
        return fail(Errc::internal, fmt::format("LibTorch's archive: {}", exception.what()));
    }
    if (!written) {
        return written;
    }
    return checksum.finish();
}

/// Removes what save_checkpoint promises to remove. A file that can't be removed is left.
void tidy(const fs::path& dir, std::int64_t step, int keep) {
    std::vector<std::int64_t> steps;
    std::error_code error;
    for (fs::directory_iterator entry(dir, error), end; !error && entry != end;
         entry.increment(error)) {
        const std::string name = entry->path().filename().string();
        if (name.starts_with(kCheckpointPrefix) && name.ends_with(kPartSuffix)) {
            std::error_code ignored;
            fs::remove(entry->path(), ignored);
        } else if (const auto found = step_of_checkpoint(name); found && *found <= step) {
            // A later one is damaged, or of a life that began elsewhere: not ours to count.
            steps.push_back(*found);
        }
    }
    std::sort(steps.rbegin(), steps.rend());
    for (std::size_t i = static_cast<std::size_t>(keep); i < steps.size(); ++i) {
        std::error_code ignored;
        fs::remove(dir / checkpoint_name(steps[i]), ignored);
    }
}

}  // namespace

Result<void> write_checkpoint(const TrainingState& state, const fs::path& path) {
    auto file = AtomicFile::create(path);
    if (!file) {
        return fail(file.error());
    }
    auto written =
        write_archive(state, [&file](std::string_view bytes) { return file->write(bytes); });
    if (!written) {
        return written;
    }
    return file->commit();
}

Result<fs::path> save_checkpoint(const TrainingState& state, const fs::path& dir, int keep) {
    DDPRUN_ASSERT(keep >= 1);
    std::error_code error;
    fs::create_directories(dir, error);
    if (error) {
        return fail(from_error_code(error, "make --checkpoint_dir " + dir.string()));
    }
    const fs::path path = dir / checkpoint_name(state.step);
    if (auto written = write_checkpoint(state, path); !written) {
        return fail(written.error());
    }
    tidy(dir, state.step, keep);
    return path;
}

TrainingState snapshot(const TrainingState& state) {
    const auto copy = [](const at::Tensor& tensor) {
        return tensor.defined() ? tensor.detach().to(at::kCPU, false, /*copy=*/true) : tensor;
    };
    const auto copy_all = [&copy](NamedTensors& tensors) {
        for (auto& [name, tensor] : tensors) {
            tensor = copy(tensor);
        }
    };
    TrainingState result = state;
    copy_all(result.model);
    copy_all(result.model_ema);
    for (auto& each : result.optimizer.state) {
        copy_all(each);
    }
    result.rng = copy(result.rng);
    return result;
}

Result<void> mark_best(const fs::path& checkpoint) {
    const fs::path best = checkpoint.parent_path() / kBestName;
    const fs::path part = fs::path(best.string() + std::string(kPartSuffix));
    std::error_code error;
    fs::remove(part, error);
    fs::create_hard_link(checkpoint, part, error);
    if (error) {
        fs::copy_file(checkpoint, part, fs::copy_options::overwrite_existing, error);
    }
    if (!error) {
        fs::rename(part, best, error);
    }
    if (error) {
        return fail(from_error_code(error, "write " + best.string()));
    }
    return {};
}

}  // namespace ddprun::trainer
