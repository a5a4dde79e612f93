// The manual page of ddprun (roff, section 1), made from the option table.
#pragma once

#include <string>

namespace ddprun::launcher {

[[nodiscard]] std::string man_page();

}  // namespace ddprun::launcher
