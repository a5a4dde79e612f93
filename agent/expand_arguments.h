// torchrun's macros in a program's arguments, as a pure function; only for those who ask for them.
#pragma once

#include "proto/types.h"

#include <string>
#include <string_view>

namespace ddprun {

/// As Python's string.Template does it safely: ${local_rank} and $local_rank become the rank, $$
/// becomes $, everything else stays.
[[nodiscard]] std::string expand_argument(std::string_view argument, LocalRank local_rank);

}  // namespace ddprun
