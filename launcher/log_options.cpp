#include "launcher/log_options.h"

#include "proto/limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>

namespace ddprun::launcher {

namespace {

using enum Errc;

constexpr std::string_view kStreamsExpected =
    "expected 0, 1, 2 or 3 (1 stdout, 2 stderr, 3 both) for all workers, or LOCAL_RANK:0-3,...";

/// The parts between commas; one, empty, for an empty text.
std::vector<std::string_view> split_at_commas(std::string_view text) {
    std::vector<std::string_view> parts;
    for (std::size_t comma = text.find(','); comma != std::string_view::npos;
         comma = text.find(',')) {
        parts.push_back(text.substr(0, comma));
        text.remove_prefix(comma + 1);
    }
    parts.push_back(text);
    return parts;
}

std::optional<std::uint8_t> stream_set(std::string_view text) {
    if (text.size() != 1 || text[0] < '0' || text[0] > '3') {
        return std::nullopt;
    }
    return static_cast<std::uint8_t>(text[0] - '0');
}

std::string lower_case(std::string text) {
    std::ranges::transform(text, text.begin(), [](unsigned char letter) {
        return static_cast<char>(std::tolower(letter));
    });
    return text;
}

std::optional<LogLevel> level_of(const std::string& word) {
    if (word == "debug") {
        return LogLevel::debug;
    }
    if (word == "info") {
        return LogLevel::info;
    }
    if (word == "warning" || word == "warn") {
        return LogLevel::warning;
    }
    if (word == "error" || word == "critical" || word == "fatal") {
        return LogLevel::error;
    }
    return std::nullopt;
}

/// Files that the user asks for without saying where are gone after the job, which nobody expects.
void note_on_files(LaunchCommand& command) {
    LogOptions& logs = command.logs;
    const auto any = [](const StreamChoice& choice) {
        return choice.any(StreamKind::out) || choice.any(StreamKind::err);
    };
    if (logs.folder.empty() && any(logs.redirects)) {
        command.notes.emplace_back(
            "--redirects without --log_dir: the log files lie in a temporary folder, which is "
            "removed at the end of the job"
        );
    }
    if ((!logs.stdout_filters.empty() && !logs.tee.any(StreamKind::out)) ||
        (!logs.stderr_filters.empty() && !logs.tee.any(StreamKind::err))) {
        command.notes.emplace_back(
            "--duplicate_stdout_filters and --duplicate_stderr_filters take lines of streams that "
            "--tee names, and it names none"
        );
    }
}

}  // namespace

Result<StreamChoice> parse_streams(std::string_view text) {
    StreamChoice choice;
    if (const auto all = stream_set(text)) {
        choice.others = *all;
        return choice;
    }
    for (const std::string_view part : split_at_commas(text)) {
        const std::size_t colon = part.find(':');
        if (colon == std::string_view::npos) {
            return fail(invalid_argument, std::string{kStreamsExpected});
        }
        const auto rank = parse_number(part.substr(0, colon), 0, limits::kLocalWorldSizeMax - 1);
        const auto set = stream_set(part.substr(colon + 1));
        if (!rank || !set) {
            return fail(invalid_argument, std::string{kStreamsExpected});
        }
        choice.by_rank[LocalRank{static_cast<std::int32_t>(*rank)}] = *set;
    }
    return choice;
}

Result<std::set<std::int32_t>> parse_ranks(std::string_view text, std::int32_t largest) {
    std::set<std::int32_t> ranks;
    if (text.empty()) {
        return ranks;
    }
    for (std::string_view part : split_at_commas(text)) {
        part.remove_prefix(std::min(part.find_first_not_of(' '), part.size()));
        part = part.substr(0, part.find_last_not_of(' ') + 1);
        const auto rank = parse_number(part, 0, largest);
        if (!rank) {
            return fail(
                invalid_argument, fmt::format("expected ranks from 0 to {}: 0,3,...", largest)
            );
        }
        ranks.insert(static_cast<std::int32_t>(*rank));
    }
    return ranks;
}

std::vector<std::string> parse_filters(std::string_view text) {
    std::vector<std::string> filters(1);
    for (std::size_t i = 0; i < text.size(); ++i) {
        const bool is_comma = text[i] == ',';
        if (is_comma && text.substr(i + 1).starts_with(',')) {
            filters.back() += ',';
            ++i;
        } else if (is_comma) {
            filters.emplace_back();
        } else {
            filters.back() += text[i];
        }
    }
    std::erase(filters, std::string{});
    return filters;
}

Result<std::uint64_t> parse_size(std::string_view text) {
    constexpr std::string_view kUnits = "KMG";
    constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
    constexpr std::int64_t kFactor = 1024;
    std::int64_t unit = 1;
    if (!text.empty()) {
        const char letter =
            static_cast<char>(std::toupper(static_cast<unsigned char>(text.back())));
        const std::size_t index = kUnits.find(letter);
        for (std::size_t i = 0; index != std::string_view::npos && i <= index; ++i) {
            unit *= kFactor;
        }
        text.remove_suffix(index == std::string_view::npos ? 0 : 1);
    }
    const auto count = parse_number(text, 1, kLargest / unit);
    if (!count) {
        return fail(invalid_argument, "expected a number of bytes above 0, as 500K, 100M or 2G");
    }
    return static_cast<std::uint64_t>(*count * unit);
}

void read_logs(Reader& reader, LaunchCommand& command) {
    LogOptions& logs = command.logs;
    logs.folder = reader.text("log_dir");
    logs.redirects =
        reader.parsed<StreamChoice>("redirects", parse_streams).value_or(StreamChoice{});
    logs.tee = reader.parsed<StreamChoice>("tee", parse_streams).value_or(StreamChoice{});
    const auto ranks = [&](std::string_view name, std::int32_t largest) {
        return reader
            .parsed<std::set<std::int32_t>>(
                name, [&](std::string_view text) { return parse_ranks(text, largest); }
            )
            .value_or(std::set<std::int32_t>{});
    };
    for (const std::int32_t rank : ranks("local_ranks_filter", limits::kLocalWorldSizeMax - 1)) {
        logs.local_ranks.insert(LocalRank{rank});
    }
    for (const std::int32_t rank :
         ranks("show_ranks", limits::kNodesMax * limits::kLocalWorldSizeMax - 1)) {
        logs.ranks.insert(Rank{rank});
    }
    logs.stdout_filters = parse_filters(reader.text("duplicate_stdout_filters"));
    logs.stderr_filters = parse_filters(reader.text("duplicate_stderr_filters"));
    logs.prefix_template = reader.text("log_line_prefix_template");
    logs.size_max = reader.parsed<std::uint64_t>("log_max_size", parse_size).value_or(0);
    note_on_files(command);
}

LogLevel read_log_level(Reader& reader, LaunchCommand& command) {
    const Sourced* option = reader.find("log_level");
    if (option == nullptr) {
        return command.log_level;
    }
    const auto level = level_of(lower_case(option->value));
    if (level) {
        return *level;
    }
    // The variable is Python's as well, and torchrun passes over what it doesn't know.
    if (option->origin.starts_with("--")) {
        reader.set_error(wrong(*option, "expected debug, info, warning or error"));
    } else {
        command.notes.push_back(fmt::format(
            "{}={}: not one of debug, info, warning, error; info is used",
            option->origin,
            option->value
        ));
    }
    return command.log_level;
}

void read_signals(Reader& reader, LaunchCommand& command) {
    constexpr std::array<std::string_view, 4> kHandled = {"SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"};
    const Sourced* option = reader.find("signals_to_handle");
    if (option == nullptr) {
        return;
    }
    command.signals_to_handle = option->value;
    for (std::string_view name : split_at_commas(option->value)) {
        name.remove_prefix(std::min(name.find_first_not_of(' '), name.size()));
        name = name.substr(0, name.find_last_not_of(' ') + 1);
        if (std::ranges::find(kHandled, name) == kHandled.end()) {
            command.notes.push_back(fmt::format(
                "{}: {} does not stop the job; SIGTERM, SIGINT, SIGHUP and SIGQUIT do",
                option->origin,
                name
            ));
        }
    }
}

}  // namespace ddprun::launcher
