// Typed values out of raw options, one after another; the first error stays and is reported at the
// end, so that whoever reads need not look after each.
#pragma once

#include "launcher/option_parser.h"
#include "launcher/rendezvous_conf.h"
#include "proto/result.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ddprun::launcher {

/// Errc::invalid_argument: "ORIGIN=VALUE: WHY".
[[nodiscard]] Error wrong(const Sourced& option, std::string_view why);

/// The text with control characters as \n, \t or \xNN: a message is one line whatever was given.
[[nodiscard]] std::string on_one_line(std::string_view text);

/// Reads the options one after another; the first error stays.
class Reader {
public:
    explicit Reader(const RawOptions& raw) : raw_(raw) {}

    [[nodiscard]] const Sourced* find(std::string_view name) const {
        const auto found = raw_.find(name);
        return found == raw_.end() ? nullptr : &found->second.back();
    }

    /// What gave the option its value, for messages: "--NAME" where nothing did.
    [[nodiscard]] std::string origin(std::string_view name) const;

    [[nodiscard]] std::string text(std::string_view name, std::string_view fallback = {}) const {
        const Sourced* option = find(name);
        return std::string{option == nullptr ? fallback : std::string_view{option->value}};
    }

    std::optional<std::int64_t> number(
        std::string_view name, std::int64_t smallest, std::int64_t largest
    ) {
        return parsed<std::int64_t>(name, [&](std::string_view value) {
            return parse_number(trimmed(value), smallest, largest);  // as Python's int() reads it
        });
    }

    std::optional<std::chrono::milliseconds> seconds(std::string_view name) {
        return parsed<std::chrono::milliseconds>(name, parse_seconds);
    }

    bool flag(std::string_view name);

    /// The value, if it is one of `choices`.
    std::optional<std::string> choice(std::string_view name, std::vector<std::string> choices);

    /// The value as `parse` (a Result<T> of a string_view) reads it.
    template <class T, class Parse>
    std::optional<T> parsed(std::string_view name, Parse parse) {
        const Sourced* option = find(name);
        if (option == nullptr) {
            return std::nullopt;
        }
        Result<T> value = parse(std::string_view{option->value});
        if (!value) {
            set_error(wrong(*option, value.error().context));
            return std::nullopt;
        }
        return std::move(*value);
    }

    void set_error(Error error) {
        if (!error_) {
            error_ = std::move(error);
        }
    }

    [[nodiscard]] const std::optional<Error>& error() const { return error_; }

private:
    const RawOptions& raw_;
    std::optional<Error> error_;
};

}  // namespace ddprun::launcher
