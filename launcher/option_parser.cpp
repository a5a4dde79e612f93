#include "launcher/option_parser.h"

#include "launcher/option_table.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

namespace ddprun::launcher {

namespace {

/// torchrun's variables besides PET_*, below those; option and variable.
constexpr auto kFurtherVariables = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"shutdown_timeout", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"},
    {"log_line_prefix_template", "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"},
});
constexpr int kHelpNameColumns = 34;
constexpr std::size_t kHelpColumns = 100;

/// Lines of at most `columns` characters, broken at blanks.
std::string wrapped(std::string_view text, std::size_t columns) {
    std::string result;
    std::size_t column = 0;
    while (!text.empty()) {
        const std::size_t blank = std::min(text.find(' '), text.size());
        if (column > 0 && column + 1 + blank > columns) {
            result += '\n';
            column = 0;
        } else if (column > 0) {
            result += ' ';
            ++column;
        }
        result += text.substr(0, blank);
        column += blank;
        text.remove_prefix(std::min(blank + 1, text.size()));
    }
    return result;
}

class HelpFormatter final : public CLI::Formatter {
public:
    HelpFormatter() { column_width(kHelpNameColumns); }

    std::string make_usage(const CLI::App*, std::string) const override {
        return "Usage: ddprun [OPTIONS] PROGRAM [ARGUMENTS...]\n";
    }

    std::string make_option_opts(const CLI::Option* option) const override {
        const OptionDefinition* definition = find_option(option->get_lnames().front());
        if (!definition->alone.empty()) {
            return fmt::format("[={}]", definition->metavar);
        }
        return definition->metavar.empty() ? "" : fmt::format(" {}", definition->metavar);
    }
};

/// The option table as a CLI11 parser, which binds names to values and prints the help.
std::unique_ptr<CLI::App> make_parser() {
    auto app = std::make_unique<CLI::App>(
        "Starts the workers of a distributed training job on this node and looks after them.\n"
        "Options may be spelled with hyphens and abbreviated; the variable in brackets gives a\n"
        "default. What follows PROGRAM reaches it byte for byte.",
        "ddprun"
    );
    app->set_help_flag();
    app->formatter(std::make_shared<HelpFormatter>());
    for (const OptionDefinition& definition : option_table()) {
        std::string names = fmt::format("--{}", definition.name);
        if (definition.short_name != '\0') {
            names = fmt::format("-{},{}", definition.short_name, names);
        }
        std::string help{definition.help};
        if (!definition.variable.empty()) {
            help += fmt::format(" [{}]", definition.variable);
        }
        const std::string description = wrapped(help, kHelpColumns - kHelpNameColumns);
        CLI::Option* option = app->add_option(names, description);
        // CLI11 leaves options of the group "" out of the help.
        option->type_size(1)->take_all()->group(
            definition.hidden ? std::string{} : std::string{title_of(definition.group)}
        );
    }
    return app;
}

}  // namespace

RawOptions collect(const SplitArguments& split, const Environment& environment) {
    std::vector<std::string> tokens;
    std::map<std::string, std::string, std::less<>> origins;
    const auto add = [&](std::string_view name, std::string_view value, std::string_view origin) {
        tokens.push_back(fmt::format("--{}", name));
        tokens.back() += value.empty() ? "" : fmt::format("={}", value);
        if (value.empty()) {
            tokens.emplace_back();
        }
        origins.insert_or_assign(std::string{name}, std::string{origin});
    };
    for (const GivenOption& option : split.options) {
        add(option.definition->name, option.value, fmt::format("--{}", option.definition->name));
    }
    for (const OptionDefinition& definition : option_table()) {
        const auto found = environment.find(std::string{definition.variable});
        if (!origins.contains(definition.name) && found != environment.end()) {
            add(definition.name, found->second, found->first);
        }
    }
    for (const auto& [name, variable] : kFurtherVariables) {
        const auto found = environment.find(std::string{variable});
        if (!origins.contains(name) && found != environment.end()) {
            add(name, found->second, found->first);
        }
    }
    const auto parser = make_parser();
    std::ranges::reverse(tokens);  // CLI11 takes them from the end
    parser->parse(std::move(tokens));
    RawOptions raw;
    for (const CLI::Option* option : parser->get_options()) {
        for (const std::string& value : option->results()) {
            const std::string& name = option->get_lnames().front();
            raw[name].push_back({value, origins.at(name)});
        }
    }
    return raw;
}

std::string help_text() {
    return make_parser()->help();
}

}  // namespace ddprun::launcher
