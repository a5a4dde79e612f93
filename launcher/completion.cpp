#include "launcher/completion.h"

#include "launcher/option_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

namespace ddprun::launcher {

namespace {

/// Replaces @NAME@ marks in a script, one after another.
std::string filled_in(std::string_view script, std::string_view mark, std::string_view text) {
    std::string result{script};
    for (std::size_t at = result.find(mark); at != std::string::npos;
         at = result.find(mark, at + text.size())) {
        result.replace(at, mark.size(), text);
    }
    return result;
}

std::string with_hyphens(std::string_view name) {
    std::string result{name};
    std::ranges::replace(result, '_', '-');
    return result;
}

/// The spellings of an option's long name, ours first.
std::vector<std::string> spellings(const OptionDefinition& option) {
    std::vector<std::string> names{fmt::format("--{}", option.name)};
    if (option.name.find('_') != std::string_view::npos) {
        names.push_back(fmt::format("--{}", with_hyphens(option.name)));
    }
    return names;
}

bool needs_value(const OptionDefinition& option) {
    return !option.metavar.empty() && option.alone.empty();
}

std::vector<const OptionDefinition*> shown_options() {
    std::vector<const OptionDefinition*> options;
    for (const OptionDefinition& option : option_table()) {
        if (!option.hidden) {
            options.push_back(&option);
        }
    }
    return options;
}

/// Text between single quotes, for POSIX shells and zsh; fish escapes in its own way.
std::string shell_quoted(std::string_view text) {
    return fmt::format("'{}'", filled_in(text, "'", "'\\''"));
}

// ---- bash

constexpr std::string_view kBash =
    R"(# Completion of ddprun for bash, made by: ddprun --print_completion=bash
_ddprun_name() {
    # The long option with underscores, whichever way it is spelled.
    local name=${1#--}
    REPLY=--${name//-/_}
}

_ddprun_value() {
    # Completes the value $2 of the option $1; false where the option takes none.
    case $1 in
@VALUES@        *) return 1 ;;
    esac
}

_ddprun() {
    local current=${COMP_WORDS[COMP_CWORD]} index=1 word REPLY
    COMPREPLY=()
    while ((index < COMP_CWORD)); do
        word=${COMP_WORDS[index]}
        case $word in
            --)
                ((index++))
                break
                ;;
            :) # of HOST:PORT, which bash splits as well
                ((index += 2))
                continue
                ;;
            --*) _ddprun_name "$word" && word=$REPLY ;;
            -?) ;;
            -?*)
                ((index++))
                continue
                ;;
            *) break ;;
        esac
        # bash splits --name=value into three words.
        if [[ ${COMP_WORDS[index + 1]} == = ]]; then
            if ((index + 2 >= COMP_CWORD)); then
                ((index + 1 == COMP_CWORD)) && current=
                _ddprun_value "$word" "$current"
                return 0
            fi
            ((index += 3))
            continue
        fi
        case $word in
            @NEED_VALUE@)
                if ((index + 1 == COMP_CWORD)); then
                    _ddprun_value "$word" "$current"
                    return 0
                fi
                ((index += 2))
                ;;
            *) ((index++)) ;;
        esac
    done
    ((index > COMP_CWORD)) && return 0
    if ((index < COMP_CWORD)); then
        # Behind the program: its own completion, where bash-completion knows it, else files.
        declare -F _command_offset >/dev/null && _command_offset "$index"
        return 0
    fi
    case $current in
        --*-*) COMPREPLY=($(compgen -W '@HYPHENED@ @NAMES@' -- "$current")) ;;
        -*) COMPREPLY=($(compgen -W '@SHORT@ @NAMES@' -- "$current")) ;;
        *) COMPREPLY=($(compgen -c -- "$current") $(compgen -f -- "$current")) ;;
    esac
    return 0
}

complete -o bashdefault -o default -F _ddprun ddprun
)";

std::string bash_value(const OptionDefinition& option) {
    const std::vector<std::string> words = words_of(option);
    std::string what;
    if (!words.empty()) {
        what = fmt::format("-W '{}'", fmt::join(words, " "));
    } else if (option.metavar == "DIR") {
        what = "-d";
    } else if (option.metavar == "FILE") {
        what = "-f";
    }
    const std::string names = option.short_name == '\0'
                                  ? fmt::format("--{}", option.name)
                                  : fmt::format("--{} | -{}", option.name, option.short_name);
    return what.empty()
               ? fmt::format("        {}) ;;\n", names)
               : fmt::format("        {}) COMPREPLY=($(compgen {} -- \"$2\")) ;;\n", names, what);
}

std::string bash_script() {
    std::string values;
    std::vector<std::string> need_value;
    std::vector<std::string> names;
    std::vector<std::string> hyphened;
    std::vector<std::string> short_names;
    for (const OptionDefinition* option : shown_options()) {
        const std::vector<std::string> spelled = spellings(*option);
        names.push_back(spelled.front());
        if (spelled.size() > 1) {
            hyphened.push_back(spelled.back());
        }
        if (option->short_name != '\0') {
            short_names.push_back(fmt::format("-{}", option->short_name));
        }
        if (!option->metavar.empty()) {
            values += bash_value(*option);
        }
        if (needs_value(*option)) {
            need_value.push_back(spelled.front());
            if (option->short_name != '\0') {
                need_value.push_back(short_names.back());
            }
        }
    }
    std::string script = filled_in(kBash, "@VALUES@", values);
    script = filled_in(
        script, "@NEED_VALUE@", fmt::format("{}", fmt::join(need_value, " | \\\n                "))
    );
    script = filled_in(script, "@HYPHENED@", fmt::format("{}", fmt::join(hyphened, " ")));
    script = filled_in(script, "@SHORT@", fmt::format("{}", fmt::join(short_names, " ")));
    return filled_in(script, "@NAMES@", fmt::format("{}", fmt::join(names, " ")));
}

// ---- zsh

constexpr std::string_view kZsh =
    R"(#compdef ddprun
# Completion of ddprun for zsh, made by: ddprun --print_completion=zsh
_ddprun_program() {
    _alternative 'commands:command:_command_names -e' 'files:file:_files'
}

_ddprun() {
    local curcontext=$curcontext state line
    local -a options
    options=(
@OPTIONS@    )
    _arguments -S $options '(-)1:program:_ddprun_program' '*::argument:_normal'
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _ddprun "$@"
else
    compdef _ddprun ddprun
fi
)";

/// Text within a specification of _arguments, where colons and brackets have a meaning.
std::string zsh_text(std::string_view text) {
    std::string result;
    for (const char letter : text) {
        if (std::string_view{"[]:\\"}.find(letter) != std::string_view::npos) {
            result += '\\';
        }
        result += letter;
    }
    return result;
}

std::string zsh_option(const OptionDefinition& option) {
    std::string value;
    if (!option.metavar.empty()) {
        const std::vector<std::string> words = words_of(option);
        std::string action = " ";
        if (!words.empty()) {
            action = fmt::format("({})", fmt::join(words, " "));
        } else if (option.metavar == "DIR") {
            action = "_files -/";
        } else if (option.metavar == "FILE") {
            action = "_files";
        }
        value = fmt::format(
            "{}:{}:{}", option.alone.empty() ? "" : ":", zsh_text(option.metavar), action
        );
    }
    std::string lines;
    const auto add = [&](std::string_view name, std::string_view how) {
        lines += fmt::format(
            "        {}\n",
            shell_quoted(fmt::format("*{}{}[{}]{}", name, how, zsh_text(option.help), value))
        );
    };
    for (const std::string& name : spellings(option)) {
        add(name, option.metavar.empty() ? "" : option.alone.empty() ? "=" : "=-");
    }
    if (option.short_name != '\0') {
        add(fmt::format("-{}", option.short_name), option.metavar.empty() ? "" : "+");
    }
    return lines;
}

std::string zsh_script() {
    std::string options;
    for (const OptionDefinition* option : shown_options()) {
        options += zsh_option(*option);
    }
    return filled_in(kZsh, "@OPTIONS@", options);
}

// ---- fish

constexpr std::string_view kFish =
    R"(# Completion of ddprun for fish, made by: ddprun --print_completion=fish
function __ddprun_before_program
    set -l words (commandline -opc)
    set -l is_value 0
    for word in $words[2..-1]
        if test $is_value = 1
            set is_value 0
            continue
        end
        switch $word
            case --
                return 1
            case '--*=*'
                continue
            case @NEED_VALUE@
                set is_value 1
            case '-*'
                continue
            case '*'
                return 1
        end
    end
    return 0
end

complete -c ddprun -n __ddprun_before_program -a '(__fish_complete_command)'
@OPTIONS@)";

std::string fish_option(const OptionDefinition& option) {
    std::string how;
    if (!option.metavar.empty()) {
        const std::vector<std::string> words = words_of(option);
        if (!words.empty()) {
            how = fmt::format(" -x -a '{}'", fmt::join(words, " "));
        } else if (option.metavar == "DIR") {
            how = " -x -a '(__fish_complete_directories)'";
        } else if (option.metavar == "FILE") {
            how = " -r";
        } else {
            how = " -x";
        }
    }
    const std::string help = filled_in(filled_in(option.help, "\\", "\\\\"), "'", "\\'");
    std::string lines;
    for (const std::string& name : spellings(option)) {
        const bool is_first = lines.empty();
        const std::string short_name = option.short_name != '\0' && is_first
                                           ? fmt::format(" -s {}", option.short_name)
                                           : std::string{};
        lines += fmt::format(
            "complete -c ddprun -n __ddprun_before_program{} -l {}{} -d '{}'\n",
            short_name,
            name.substr(2),
            how,
            help
        );
    }
    return lines;
}

std::string fish_script() {
    std::string options;
    std::vector<std::string> need_value;
    for (const OptionDefinition* option : shown_options()) {
        options += fish_option(*option);
        if (!needs_value(*option)) {
            continue;
        }
        for (const std::string& name : spellings(*option)) {
            need_value.push_back(name);
        }
        if (option->short_name != '\0') {
            need_value.push_back(fmt::format("-{}", option->short_name));
        }
    }
    const std::string script =
        filled_in(kFish, "@NEED_VALUE@", fmt::format("{}", fmt::join(need_value, " ")));
    return filled_in(script, "@OPTIONS@", options);
}

// ---- tcsh

std::string tcsh_script() {
    std::vector<std::string> names;
    std::string values;
    for (const OptionDefinition* option : shown_options()) {
        const std::vector<std::string> words = words_of(*option);
        for (const std::string& name : spellings(*option)) {
            names.push_back(name.substr(2));
            if (!words.empty() && needs_value(*option)) {
                values += fmt::format(" 'n/{}/({})/'", name, fmt::join(words, " "));
            } else if (!words.empty()) {
                values += fmt::format(" 'c/{}=/({})/'", name, fmt::join(words, " "));
            } else if (option->metavar == "DIR") {
                values += fmt::format(" 'n/{}/d/'", name);
            }
        }
    }
    return fmt::format(
        "# Completion of ddprun for tcsh, made by: ddprun --print_completion=tcsh\n"
        "complete ddprun{} 'c/--/({})/' 'p/1/c/' 'p/*/f/'\n",
        values,
        fmt::join(names, " ")
    );
}

}  // namespace

std::string completion_script(std::string_view shell) {
    if (shell == "bash") {
        return bash_script();
    }
    if (shell == "zsh") {
        return zsh_script();
    }
    return shell == "fish" ? fish_script() : tcsh_script();
}

}  // namespace ddprun::launcher
