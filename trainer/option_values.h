// What the trainer's options take as values: functions that check a text and set a variable, or say
// in a few words what is wrong with it. The variables must outlive the functions.
#pragma once

#include "trainer/options.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ddprun::trainer {

/// What is wrong with a value; none if it was taken over.
using Complaint = std::optional<std::string>;

/// Takes a value over, and shows the one in force as it would be given.
class Setter {
public:
    using Set = std::function<Complaint(std::string_view value)>;
    using Show = std::function<std::optional<std::string>()>;

    /// Without `show` the option has no value that could be shown.
    template <class Function>

    requires std::convertible_to<Function, Set> Setter(Function set, Show show = nullptr)
        : set_(std::move(set)),
          show_(std::move(show)) {}

    Complaint operator()(std::string_view value) const { return set_(value); }

    [[nodiscard]] std::optional<std::string> show() const { return show_ ? show_() : std::nullopt; }

private:
    Set set_;
    Show show_;
};

/// The text of a number, or of what an optional holds.
template <class Value>
[[nodiscard]] std::optional<std::string> text_of_value(const Value& value) {
    if constexpr (requires { typename Value::value_type; }) {
        return value ? std::optional(fmt::format("{}", *value)) : std::nullopt;
    } else {
        return fmt::format("{}", value);
    }
}

template <class Number>
[[nodiscard]] std::optional<Number> parse_number(std::string_view text) {
    Number number{};
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    if (text.empty() || error != std::errc{} || stop != end) {
        return std::nullopt;
    }
    return number;
}

template <class Target>
[[nodiscard]] Setter whole_number(Target& target, std::int64_t low, std::int64_t high) {
    const auto set = [&target, low, high](std::string_view value) -> Complaint {
        const auto number = parse_number<std::int64_t>(value);
        if (!number || *number < low || *number > high) {
            return fmt::format("not a whole number from {} to {}", low, high);
        }
        if constexpr (requires { typename Target::value_type; }) {
            target = static_cast<typename Target::value_type>(*number);
        } else {
            target = static_cast<Target>(*number);
        }
        return std::nullopt;
    };
    return {set, [&target] { return text_of_value(target); }};
}

template <class Target>
[[nodiscard]] Setter real_number(Target& target, double low, double high) {
    const auto set = [&target, low, high](std::string_view value) -> Complaint {
        const auto number = parse_number<double>(value);
        if (!number || !std::isfinite(*number) || *number < low || *number > high) {
            return fmt::format("not a number from {} to {}", low, high);
        }
        target = *number;
        return std::nullopt;
    };
    return {set, [&target] { return text_of_value(target); }};
}

/// One of several names, each with the value that it stands for.
template <class Value>
[[nodiscard]] Setter one_of(Value& target, std::vector<std::pair<std::string, Value>> choices) {
    const auto set = [&target, choices](std::string_view value) -> Complaint {
        std::string names;
        for (const auto& [name, choice] : choices) {
            if (name == value) {
                target = choice;
                return std::nullopt;
            }
            names += names.empty() ? name : ", " + name;
        }
        return fmt::format("not one of {}", names);
    };
    return {set, [&target, choices = std::move(choices)]() -> std::optional<std::string> {
                for (const auto& [name, choice] : choices) {
                    if (choice == target) {
                        return name;
                    }
                }
                return std::nullopt;
            }};
}

[[nodiscard]] Setter seed_number(std::uint64_t& target);

[[nodiscard]] Setter seconds_number(std::chrono::seconds& target);

/// Anything but an empty text.
[[nodiscard]] Setter any_text(std::string& target);

/// `--name`, `--name=true`, `--name=false`; `when_given` is what the option stands for.
[[nodiscard]] Setter flag(bool& target, bool when_given);

/// One number from `low` to 1000 for all channels, or three with commas between them.
[[nodiscard]] Setter channel_numbers(std::optional<std::array<float, 3>>& target, float low);

/// KIND[:DIR], with Debian's folder as the default.
[[nodiscard]] Setter data_source(DataSource& target);

}  // namespace ddprun::trainer
