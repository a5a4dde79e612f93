// ddprun: parse, resolve, run. Everything else is in run.{h,cpp} and below.
#include "launcher/completion.h"
#include "launcher/machine.h"
#include "launcher/man_page.h"
#include "launcher/options.h"
#include "launcher/run.h"
#include "proto/exit_codes.h"
#include "proto/standard_output.h"

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string>
#include <variant>
#include <vector>

namespace {

using namespace ddprun;

int dispatch(const std::vector<std::string>& arguments) {
    const launcher::Environment environment = launcher::process_environment();
    const auto command = launcher::parse_command(arguments, environment);
    if (!command) {
        fmt::print(stderr, "ddprun: {}\n", command.error().context);
        return exit_code::kUsage;
    }
    if (std::holds_alternative<launcher::HelpCommand>(*command)) {
        return print_asked_for("ddprun", launcher::help_text());
    }
    if (std::holds_alternative<launcher::VersionCommand>(*command)) {
        return print_asked_for("ddprun", "ddprun " DDPRUN_VERSION "\n");
    }
    if (std::holds_alternative<launcher::ManCommand>(*command)) {
        return print_asked_for("ddprun", launcher::man_page());
    }
    if (const auto* completion = std::get_if<launcher::CompletionCommand>(&*command)) {
        return print_asked_for("ddprun", launcher::completion_script(completion->shell));
    }
    return launcher::run(std::get<launcher::LaunchCommand>(*command), environment);
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return dispatch({argv + 1, argv + argc});
    } catch (const std::exception& exception) {
        fmt::print(stderr, "ddprun: internal error: {}\n", exception.what());
        return exit_code::kInternal;
    }
}
