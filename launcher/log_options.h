// The options of the workers' output in torchrun's grammars, and those that ddprun itself logs by.
#pragma once

#include "launcher/option_reader.h"
#include "launcher/options.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::launcher {

/// torchrun's -r and -t: "3" for all workers, or "0:1,1:3" by local rank (the others 0).
[[nodiscard]] Result<StreamChoice> parse_streams(std::string_view text);

/// "0,3": numbers from 0 to `largest`; none for an empty text.
[[nodiscard]] Result<std::set<std::int32_t>> parse_ranks(
    std::string_view text, std::int32_t largest
);

/// Texts between commas; ",," is a comma within a text. Empty ones are left out.
[[nodiscard]] std::vector<std::string> parse_filters(std::string_view text);

/// Bytes, with K, M or G for 1024, 1024^2 or 1024^3 of them.
[[nodiscard]] Result<std::uint64_t> parse_size(std::string_view text);

/// Reads the options of the workers' output into `command`.
void read_logs(Reader& reader, LaunchCommand& command);

/// --log_level, or LOGLEVEL, whose unknown words (it is Python's, too) leave the default and a
/// note.
[[nodiscard]] LogLevel read_log_level(Reader& reader, LaunchCommand& command);

/// --signals_to_handle: checked, and said where it asks for what ddprun doesn't do.
void read_signals(Reader& reader, LaunchCommand& command);

}  // namespace ddprun::launcher
