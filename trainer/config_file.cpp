#include "trainer/config_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <string_view>

namespace ddprun::trainer {

namespace {

constexpr std::string_view kBlanks = " \t\r";

std::string_view trimmed(std::string_view text) {
    const std::size_t begin = text.find_first_not_of(kBlanks);
    if (begin == std::string_view::npos) {
        return {};
    }
    return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

std::string with_underscores(std::string_view name) {
    std::string text{name};
    std::ranges::replace(text, '-', '_');
    return text;
}

CLI::ConfigError error_at(int line, std::string_view text, std::string_view reason) {
    return CLI::ConfigError{fmt::format("line {}: {}: {}", line, text, reason)};
}

}  // namespace

std::vector<CLI::ConfigItem> ConfigFile::from_config(std::istream& input) const {
    std::ostringstream text;
    int number = 0;
    for (std::string whole; std::getline(input, whole);) {
        ++number;
        text << whole << '\n';
        const std::string_view line = trimmed(whole);
        if (line.empty() || line.front() == '#') {
            continue;
        }
        const std::size_t equals = line.find('=');
        if (equals == std::string_view::npos) {
            throw error_at(number, line, "expected name = value");
        }
        const std::string name = with_underscores(trimmed(line.substr(0, equals)));
        if (!is_option_(name)) {
            throw error_at(number, name, "no such option; trainer --help lists them");
        }
        lines_[name] = number;
    }
    std::istringstream checked{text.str()};
    auto read = ConfigBase::from_config(checked);
    for (auto& item : read) {
        item.name = with_underscores(item.name);
    }
    return read;
}

std::optional<int> ConfigFile::line_of(const std::string& name) const {
    const auto found = lines_.find(name);
    return found == lines_.end() ? std::nullopt : std::optional{found->second};
}

}  // namespace ddprun::trainer
