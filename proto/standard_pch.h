#pragma once
// What most sources include, parsed once for each library (CMake: ddprun_precompile). No header of
// ours and no Asio: every source still includes what it uses, and the clang preset builds without
// this.
#include <fmt/format.h>
#include <tl/expected.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>
