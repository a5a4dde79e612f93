// Why a program that is there could not be executed, where errno's words mislead: "no such file"
// for a script means its interpreter, "exec format error" that it says none.
#pragma once

#include <string>
#include <string_view>

namespace ddprun {

/// "execute PATH: WHY"; empty where errno's own words say it. `head` is what the file begins with.
[[nodiscard]] std::string describe_exec_trouble(
    const std::string& path, std::string_view head, int error_number
);

/// The same of the file itself; empty also where it isn't there.
[[nodiscard]] std::string exec_trouble_of(const std::string& path, int error_number);

}  // namespace ddprun
