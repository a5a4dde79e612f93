#include "proto/exit_codes.h"
#include "proto/limits.h"
#include "proto/standard_output.h"
#include "trainer/arguments.h"
#include "trainer/option_values.h"
#include "trainer/pack.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

namespace ddprun::trainer {

namespace {

/// A folder of pictures, as --data or by its path alone.
Complaint set_source(std::string& target, std::string_view value) {
    constexpr std::string_view kKind = "imagefolder:";
    if (value.starts_with(kKind)) {
        value.remove_prefix(kKind.size());
    }
    for (const std::string_view other :
         {"cifar10", "fashion-mnist", "fashion_mnist", "synthetic", "packed"}) {
        if (value == other || value.starts_with(std::string(other) + ":")) {
            return "only image folders are packed: the pictures of the others are raw already";
        }
    }
    if (value.empty()) {
        return "an empty name";
    }
    target = value;
    return std::nullopt;
}

}  // namespace

Result<PackCommand> parse_pack_options(std::span<const std::string> arguments) {
    PackOptions options;
    std::vector<std::string> places;
    CLI::App app{
        "Decodes the pictures of an image folder once, for --data packed:OUT.", "trainer pack"};
    app.set_help_flag("-h,--help", "This text");
    app.add_option(
        "SRC OUT", places, "imagefolder:DIR (or DIR) with train/ and val/, and a folder"
    );
    add_value(
        app,
        "--short_side",
        "N",
        "Shrink pictures until their shorter side has N pixels; 0 keeps their sizes [256]",
        whole_number(options.short_side, 0, limits::kImageSizeMax)
    );
    add_value(
        app,
        "--workers",
        "N",
        "Threads [2]",
        whole_number(options.workers, 1, limits::kLoaderThreadsMax)
    );
    add_value(
        app,
        "--max_bad_samples",
        "N",
        "Broken pictures of each split that are skipped and named [10]",
        whole_number(options.max_bad_samples, 0, limits::kBadSamplesMax)
    );
    auto information = parse_arguments(app, arguments);
    if (!information) {
        return fail(Errc::invalid_argument, "pack: " + information.error().context);
    }
    if (*information) {
        return PackCommand{std::move(**information)};
    }
    if (places.size() != 2) {
        return fail(
            Errc::invalid_argument,
            fmt::format("pack: needs SRC and OUT, two folders, not {}", places.size())
        );
    }
    if (const Complaint complaint = set_source(options.source, places[0])) {
        return fail(Errc::invalid_argument, fmt::format("pack {}: {}", places[0], *complaint));
    }
    if (places[1].empty()) {
        return fail(Errc::invalid_argument, "pack: OUT is an empty name");
    }
    options.out = places[1];
    return PackCommand{std::move(options)};
}

int run_pack(std::span<const std::string> arguments, Log& log) {
    const auto command = parse_pack_options(arguments);
    if (!command) {
        log.error("{}", command.error().context);
        return exit_code::kUsage;
    }
    if (const auto* information = std::get_if<InformationText>(&*command)) {
        return print_asked_for("trainer", information->text);
    }
    const auto status = pack(std::get<PackOptions>(*command), log);
    if (!status) {
        log.error("{}", status.error().line);
        return status.error().status;
    }
    return *status;
}

}  // namespace ddprun::trainer
