// `trainer pack SRC OUT`: decodes an image folder once, shrinks its pictures, and writes train.pack
// and val.pack (packed_format.h), each whole or not at all.
#pragma once

#include "proto/log.h"
#include "proto/result.h"
#include "trainer/options.h"
#include "trainer/outcome.h"

#include <cstdint>
#include <span>
#include <string>
#include <variant>

namespace ddprun::trainer {

struct PackOptions {
    std::string source;                 ///< an image folder
    std::string out;                    ///< a folder, made if it isn't there
    int short_side = 256;               ///< pictures are shrunk to it; 0: they keep their sizes
    int workers = 2;                    ///< threads, at least 1
    std::int64_t max_bad_samples = 10;  ///< of each split, that are skipped and named
};

using PackCommand = std::variant<PackOptions, InformationText>;

/// `arguments` behind "pack". Errors: invalid_argument, one line.
[[nodiscard]] Result<PackCommand> parse_pack_options(std::span<const std::string> arguments);

/// Status 0, or 128 + n after a stop by signal n, with nothing half-written left.
[[nodiscard]] Outcome<int> pack(const PackOptions& options, Log& log);

/// Parses and packs; the exit status of the program.
[[nodiscard]] int run_pack(std::span<const std::string> arguments, Log& log);

}  // namespace ddprun::trainer
