// The bundled worker: options and environment in, exit status out.
#include "proto/exit_codes.h"
#include "proto/log.h"
#include "proto/standard_output.h"
#include "proto/worker_env.h"
#include "trainer/bench_data.h"
#include "trainer/export.h"
#include "trainer/input_status.h"
#include "trainer/options.h"
#include "trainer/pack.h"
#include "trainer/spawn.h"
#include "trainer/train.h"
#include "trainer/worker_place.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace {

using namespace ddprun;
using namespace ddprun::trainer;

class StderrLog final : public Log {
public:
    void write(LogLevel level, std::string_view line) override {
        const char* kind = level == LogLevel::error     ? "error: "
                           : level == LogLevel::warning ? "warning: "
                                                        : "";
        // One call, so that lines of several workers don't mix.
        std::fprintf(stderr, "trainer: %s%.*s\n", kind, static_cast<int>(line.size()), line.data());
    }

    [[nodiscard]] bool enabled(LogLevel level) const override { return level != LogLevel::debug; }
};

/// The parent of --spawn.
int spawn(const std::vector<std::string>& arguments, int count, Log& log) {
    if (process_environment(worker_env::kRank)) {
        log.error("--spawn={}: this is a worker of a launcher already", count);
        return exit_code::kUsage;
    }
    const auto status = spawn_workers(arguments, count, log);
    if (!status) {
        log.error("{}", status.error().context);
        return exit_code::kInternal;
    }
    return *status;
}

int run(const std::vector<std::string>& arguments, Log& log) {
    if (!arguments.empty() && arguments.front() == "pack") {
        return run_pack(std::span(arguments).subspan(1), log);
    }
    if (!arguments.empty() && arguments.front() == "export") {
        return export_weights(std::span(arguments).subspan(1), log);
    }
    auto command = parse_options(arguments);
    if (!command) {
        log.error("{}", command.error().context);
        return status_of_input(command.error());
    }
    if (const auto* information = std::get_if<InformationText>(&*command)) {
        return print_asked_for("trainer", information->text);
    }
    const auto& options = std::get<Options>(*command);
    if (const auto parent = process_environment(kSpawnedVariable)) {
        if (!tie_to_parent(*parent)) {
            return exit_code::kInternal;  // nobody is left to hear why
        }
    } else if (options.spawn > 0) {
        return spawn(arguments, options.spawn, log);
    }
    const auto place = read_worker_place(process_environment);
    if (!place) {
        log.error("{}", place.error().context);
        return exit_code::kUsage;
    }
    return options.bench_data ? bench_data(options, *place, log) : train(options, *place, log);
}

}  // namespace

int main(int argc, char** argv) {
    // A file beyond the user's limit is an error of the write, with its line and status, not a
    // death that leaves half a file.
    static_cast<void>(std::signal(SIGXFSZ, SIG_IGN));
    StderrLog log;
    const int status = run({argv + 1, argv + argc}, log);
    std::fflush(nullptr);
    // Not exit(): destructors of a process group whose peers are gone may wait for them.
    std::_Exit(status);
}
