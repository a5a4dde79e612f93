#include "launcher/arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <string_view>

namespace ddprun::launcher {

namespace {

using enum Errc;

std::string with_underscores(std::string_view name) {
    std::string result{name};
    std::ranges::replace(result, '-', '_');
    return result;
}

/// Options whose argument looks like another option are taken to lack theirs; a negative number is
/// a value.
bool looks_like_option(std::string_view argument) {
    const bool is_number =
        argument.size() > 1 && (std::isdigit(static_cast<unsigned char>(argument[1])) != 0);
    return argument.size() > 1 && argument[0] == '-' && !is_number;
}

/// Whether torchrun has it, too: those that it takes from a variable, and three more.
bool is_of_torchrun(const OptionDefinition& definition) {
    return definition.variable.starts_with("PET_") || definition.name == "print_completion" ||
           definition.name == "numa_binding" || definition.name == "logs_specs";
}

Result<const OptionDefinition*> find_long(std::string_view spelled) {
    const std::string name = with_underscores(spelled);
    if (const OptionDefinition* exact = find_option(name); exact != nullptr) {
        return exact;
    }
    std::vector<std::string> candidates;
    const OptionDefinition* match = nullptr;
    std::vector<const OptionDefinition*> of_torchrun;
    for (const OptionDefinition& definition : option_table()) {
        if (!name.empty() && definition.name.starts_with(name)) {
            match = &definition;
            candidates.push_back(fmt::format("--{}", definition.name));
            if (is_of_torchrun(definition)) {
                of_torchrun.push_back(&definition);
            }
        }
    }
    if (of_torchrun.size() == 1) {
        return of_torchrun.front();  // what is unambiguous there stays so, whatever we add
    }
    if (candidates.empty()) {
        return fail(
            invalid_argument, fmt::format("unknown option --{} (see ddprun --help)", spelled)
        );
    }
    if (candidates.size() > 1) {
        return fail(
            invalid_argument,
            fmt::format("option --{} is ambiguous: {}", spelled, fmt::join(candidates, ", "))
        );
    }
    return match;
}

Result<const OptionDefinition*> find_short(char letter) {
    for (const OptionDefinition& definition : option_table()) {
        if (definition.short_name == letter) {
            return &definition;
        }
    }
    return fail(invalid_argument, fmt::format("unknown option -{} (see ddprun --help)", letter));
}

/// One option as written: what it is, and the value that was attached to it, if any.
struct Spelled {
    const OptionDefinition* definition = nullptr;
    std::optional<std::string> attached;
    std::string shown;
};

Result<Spelled> read_spelling(const std::string& argument) {
    Spelled spelled;
    if (argument.starts_with("--")) {
        const std::size_t equals = argument.find('=');
        const auto definition = find_long(argument.substr(2, equals - 2));
        if (!definition) {
            return fail(definition.error());
        }
        spelled.definition = *definition;
        if (equals != std::string::npos) {
            spelled.attached = argument.substr(equals + 1);
        }
        spelled.shown = argument.substr(0, equals);
        return spelled;
    }
    const auto definition = find_short(argument[1]);
    if (!definition) {
        return fail(definition.error());
    }
    spelled.definition = *definition;
    if (argument.size() > 2) {
        spelled.attached = argument.substr(2);
    }
    spelled.shown = argument.substr(0, 2);
    return spelled;
}

}  // namespace

Result<SplitArguments> split_arguments(std::span<const std::string> arguments) {
    SplitArguments split;
    std::size_t next = 0;
    while (next < arguments.size() && looks_like_option(arguments[next])) {
        const std::string& argument = arguments[next++];
        if (argument == "--") {
            break;
        }
        auto spelled = read_spelling(argument);
        if (!spelled) {
            return fail(spelled.error());
        }
        const bool is_flag = spelled->definition->metavar.empty();
        if (is_flag && spelled->attached) {
            return fail(
                invalid_argument,
                fmt::format("option {} takes no value (got {})", spelled->shown, *spelled->attached)
            );
        }
        if (!spelled->attached && !spelled->definition->alone.empty()) {
            spelled->attached = std::string{spelled->definition->alone};
        }
        if (!is_flag && !spelled->attached) {
            if (next == arguments.size() || looks_like_option(arguments[next])) {
                return fail(
                    invalid_argument,
                    fmt::format(
                        "option {} needs a value: {}", spelled->shown, spelled->definition->metavar
                    )
                );
            }
            spelled->attached = arguments[next++];
        }
        split.options.push_back({spelled->definition, spelled->attached.value_or("1")});
    }
    split.program.assign(arguments.begin() + static_cast<std::ptrdiff_t>(next), arguments.end());
    return split;
}

}  // namespace ddprun::launcher
