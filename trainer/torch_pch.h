// The precompiled header of every source that uses LibTorch: parsing these takes half a minute.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/nn.h>
#include <torch/torch.h>
