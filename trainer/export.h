// `trainer export`: the weights of a checkpoint as another program wants them, safetensors or
// TorchScript (for inference, with torchvision's names).
#pragma once

#include "proto/log.h"

#include <span>
#include <string>

namespace ddprun::trainer {

/// `arguments` after the word export. Gives the program's exit status, after the line that says why
/// it isn't 0.
[[nodiscard]] int export_weights(std::span<const std::string> arguments, Log& log);

}  // namespace ddprun::trainer
