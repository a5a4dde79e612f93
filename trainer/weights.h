// Weights in files: plain state_dicts of torch.save, with or without the level "model" or
// "state_dict" and with or without DDP's prefix "module.", and safetensors; and how they get into a
// model.
#pragma once

#include "proto/log.h"
#include "proto/result.h"
#include "trainer/archive_reader.h"
#include "trainer/named_tensors.h"
#include "trainer/pickle.h"

#include <filesystem>
#include <string_view>

namespace ddprun::trainer {

/// The weights of a file. Errors: not_found, permission_denied, io_error, malformed (damaged),
/// unsupported (readable, but no weights in it).
[[nodiscard]] Result<NamedTensors> read_weights(const std::filesystem::path& path);

/// The tensors of a pickled dict, without the prefix "module." where all of them have it.
[[nodiscard]] Result<NamedTensors> tensors_of(ArchiveReader& archive, const PickleDict& dict);

/// Copies `weights` into the tensors of `model` (in place, without gradient) if the names and
/// shapes are the same; else changes nothing and fails (malformed) with a list of what is missing,
/// unexpected or of another shape. `source` names where the weights come from. Weights of another
/// floating-point type are converted, with a note to `log` (if there is one).
[[nodiscard]] Result<void> load_weights(
    const NamedTensors& model,
    const NamedTensors& weights,
    std::string_view source,
    Log* log = nullptr
);

/// What load_weights would say, without changing anything.
[[nodiscard]] Result<void> check_weights(
    const NamedTensors& model, const NamedTensors& weights, std::string_view source
);

}  // namespace ddprun::trainer
