#include "trainer/arguments.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace ddprun::trainer {

namespace {

/// "--batch-size=3" as "--batch_size=3"; values and short options stay.
std::string with_underscores(std::string argument) {
    if (!argument.starts_with("--") || argument.size() == 2) {
        return argument;
    }
    const std::size_t end = std::min(argument.find('='), argument.size());
    std::replace(
        argument.begin() + 2, argument.begin() + static_cast<std::ptrdiff_t>(end), '-', '_'
    );
    return argument;
}

Error describe(const CLI::App& app, const CLI::ParseError& error) {
    std::string text = error.what();
    Errc code = Errc::invalid_argument;
    if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
        const std::vector<std::string> unknown = app.remaining();
        const std::string first = unknown.empty() ? "" : unknown.front();
        text = fmt::format(
            "{} {}; {} --help lists the options",
            first.starts_with("-") ? "unknown option" : "unexpected argument",
            first,
            app.get_name()
        );
    } else if (dynamic_cast<const CLI::ConfigError*>(&error) != nullptr) {
        text = fmt::format("--config={}: {}", app.get_config_ptr()->as<std::string>(), text);
    } else if (dynamic_cast<const CLI::FileError*>(&error) != nullptr) {
        text = "--config: " + text;
        code = Errc::not_found;
    } else if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
        text = text.substr(0, text.find(':')) + ": needs a value";
    }
    std::replace(text.begin(), text.end(), '\n', ' ');
    return Error{code, text};
}

}  // namespace

CLI::Option& add_value(
    CLI::App& app,
    const std::string& names,
    const std::string& placeholder,
    const std::string& help,
    const Setter& set
) {
    const std::string first_name = names.substr(0, names.find(','));
    const auto take = [first_name, set](const std::string& value) {
        if (const Complaint complaint = set(value)) {
            throw CLI::ValidationError(fmt::format("{}={}", first_name, value), *complaint);
        }
    };
    CLI::Option& option = *app.add_option_function<std::string>(names, take, help);
    option.option_text(placeholder)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    return option;
}

Result<std::optional<InformationText>> parse_arguments(
    CLI::App& app, std::span<const std::string> arguments
) {
    // CLI11 takes the arguments from the back.
    std::vector<std::string> reversed;
    for (auto argument = arguments.rbegin(); argument != arguments.rend(); ++argument) {
        reversed.push_back(with_underscores(*argument));
    }
    try {
        app.parse(reversed);
    } catch (const CLI::CallForHelp&) {
        return InformationText{app.help()};
    } catch (const CLI::CallForVersion& version) {
        return InformationText{std::string(version.what()) + "\n"};
    } catch (const CLI::ParseError& error) {
        return fail(describe(app, error));
    }
    return std::nullopt;
}

}  // namespace ddprun::trainer
