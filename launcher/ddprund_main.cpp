// ddprund: parse, run. Everything else is in daemon_options.{h,cpp}, daemon.{h,cpp} and below.
#include "launcher/daemon.h"
#include "proto/exit_codes.h"
#include "proto/standard_output.h"

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

namespace {

using namespace ddprun;

int dispatch(const std::vector<std::string>& arguments) {
    const auto command = launcher::parse_daemon_command(arguments);
    if (!command) {
        fmt::print(stderr, "ddprund: {}\n", command.error().context);
        return exit_code::kUsage;
    }
    if (command->show_help) {
        return print_asked_for("ddprund", launcher::daemon_help_text());
    }
    if (command->show_version) {
        return print_asked_for("ddprund", "ddprund " DDPRUN_VERSION "\n");
    }
    return launcher::run_daemon(*command);
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return dispatch({argv + 1, argv + argc});
    } catch (const std::exception& exception) {
        fmt::print(stderr, "ddprund: internal error: {}\n", exception.what());
        return exit_code::kInternal;
    }
}
