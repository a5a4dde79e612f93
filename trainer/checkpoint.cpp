#include "trainer/checkpoint.h"

#include "proto/assert.h"
#include "trainer/atomic_file.h"
#include "trainer/checkpoint_format.h"
#include "trainer/pickle.h"
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

PickleValue text(std::string value) {
    return PickleValue{std::move(value)};
}

PickleValue integer(std::int64_t value) {
    return PickleValue{value};
}

PickleValue real(double value) {
    return PickleValue{value};
}

PickleValue boolean(bool value) {
    return PickleValue{value};
}

/// Builds the tree of data.pkl and collects the tensors that it refers to.
class StatePickler {
public:
    [[nodiscard]] PickleValue pickle(const TrainingState& state) {
        PickleDict root;
        const auto add = [&root](const char* key, PickleValue value) {
            root.items.push_back({text(key), std::move(value)});
        };
        add("model", model(state));
        add("optimizer", optimizer(state));
        add("lr_scheduler", scheduler(state));
        add("epoch", integer(state.epoch));
        PickleDict args;
        for (const auto& [name, value] : state.args) {
            args.items.push_back({text(name), text(value)});
        }
        add("args", PickleValue{std::move(args)});
        add("step", integer(state.step));
        add("position", integer(state.position));
        if (state.rng.defined()) {
            add("rng", tensor(state.rng));
        }
        add("ddp_buckets", buckets(state));
        return PickleValue{std::move(root)};
    }

    /// Index = key of the storage.
    [[nodiscard]] const std::vector<at::Tensor>& storages() const { return storages_; }

private:
    PickleValue tensor(const at::Tensor& source) {
        const at::Tensor plain = source.detach().to(at::kCPU).contiguous();
        const std::optional<std::string> type = storage_type_of(plain.scalar_type());
        DDPRUN_ASSERT(type.has_value());
        PickledTensor pickled;
        pickled.storage_type = *type;
        pickled.key = std::to_string(storages_.size());
        pickled.storage_size = plain.numel();
        pickled.sizes = plain.sizes().vec();
        pickled.strides = plain.strides().vec();
        storages_.push_back(plain);
        return PickleValue{std::move(pickled)};
    }

    PickleValue model(const TrainingState& state) {
        PickleDict dict;
        dict.ordered = true;
        for (const auto& [name, value] : state.model) {
            dict.items.push_back({text(name), tensor(value)});
        }
        return PickleValue{std::move(dict)};
    }

    /// The state_dict of torch.optim.SGD with one group.
    PickleValue optimizer(const TrainingState& state) {
        PickleDict buffers;
        PickleList parameters;
        for (std::size_t i = 0; i < state.momentum_buffers.size(); ++i) {
            const auto index = static_cast<std::int64_t>(i);
            parameters.push_back(integer(index));
            if (state.momentum_buffers[i].defined()) {
                PickleDict entry;
                entry.items.push_back({text("momentum_buffer"), tensor(state.momentum_buffers[i])});
                buffers.items.push_back({integer(index), PickleValue{std::move(entry)}});
            }
        }
        PickleDict group;
        group.items = {
            {text("lr"), real(state.lr)},
            {text("momentum"), real(state.momentum)},
            {text("dampening"), integer(0)},
            {text("weight_decay"), real(state.weight_decay)},
            {text("nesterov"), boolean(state.nesterov)},
            {text("maximize"), boolean(false)},
            {text("foreach"), PickleValue{PickleNone{}}},
            {text("differentiable"), boolean(false)},
            {text("fused"), PickleValue{PickleNone{}}},
            {text("params"), PickleValue{std::move(parameters)}},
        };
        PickleDict dict;
        dict.items.push_back({text("state"), PickleValue{std::move(buffers)}});
        dict.items.push_back(
            {text("param_groups"), PickleValue{PickleList{PickleValue{std::move(group)}}}}
        );
        return PickleValue{std::move(dict)};
    }

    /// What every scheduler of torch.optim has; those without a state of their own take it over.
    static PickleValue scheduler(const TrainingState& state) {
        PickleDict dict;
        dict.items = {
            {text("base_lrs"), PickleValue{PickleList{real(state.lr)}}},
            {text("last_epoch"), integer(state.epoch + 1)},
            {text("_step_count"), integer(state.epoch + 2)},
            {text("_last_lr"), PickleValue{PickleList{real(state.lr)}}},
        };
        return PickleValue{std::move(dict)};
    }

    static PickleValue buckets(const TrainingState& state) {
        PickleList list;
        for (const std::vector<std::size_t>& bucket : state.ddp_buckets) {
            PickleList indices;
            for (const std::size_t index : bucket) {
                indices.push_back(integer(static_cast<std::int64_t>(index)));
            }
            list.push_back(PickleValue{std::move(indices)});
        }
        return PickleValue{std::move(list)};
    }

    std::vector<at::Tensor> storages_;
};

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
        StatePickler pickler;
        const std::string pickle = write_pickle(pickler.pickle(state));
        caffe2::serialize::PyTorchStreamWriter archive(write);
        archive.writeRecord("data.pkl", pickle.data(), pickle.size());
        archive.writeRecord("byteorder", "little", std::string_view("little").size());
        archive.writeRecord(std::string(kFormatRecord), "1", 1);
        for (std::size_t key = 0; written && key < pickler.storages().size(); ++key) {
            const at::Tensor& storage = pickler.storages()[key];
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

}  // namespace ddprun::trainer
