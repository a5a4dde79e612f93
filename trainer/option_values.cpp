#include "trainer/option_values.h"

#include "proto/limits.h"

namespace ddprun::trainer {

Setter seed_number(std::uint64_t& target) {
    const auto set = [&target](std::string_view value) -> Complaint {
        const auto number = parse_number<std::uint64_t>(value);
        if (!number) {
            return "not a whole number from 0 to 2^64 - 1";
        }
        target = *number;
        return std::nullopt;
    };
    return {set, [&target] { return text_of_value(target); }};
}

Setter seconds_number(std::chrono::seconds& target) {
    const auto set = [&target](std::string_view value) -> Complaint {
        const auto number = parse_number<int>(value);
        if (!number || *number < 1 || *number > limits::kSecondsMax) {
            return fmt::format("not a whole number of seconds from 1 to {}", limits::kSecondsMax);
        }
        target = std::chrono::seconds(*number);
        return std::nullopt;
    };
    return {set, [&target] { return text_of_value(target.count()); }};
}

Setter any_text(std::string& target) {
    const auto set = [&target](std::string_view value) -> Complaint {
        if (value.empty()) {
            return "an empty name";
        }
        target = value;
        return std::nullopt;
    };
    return {set, [&target]() -> std::optional<std::string> {
                return target.empty() ? std::nullopt : std::optional(target);
            }};
}

Setter flag(bool& target, bool when_given) {
    const auto set = [&target, when_given](std::string_view value) -> Complaint {
        if (value != "true" && value != "false") {
            return "takes no value but true or false";
        }
        target = (value == "true") == when_given;
        return std::nullopt;
    };
    return {set, [&target, when_given]() -> std::optional<std::string> {
                return target == when_given ? "true" : "false";
            }};
}

Setter channel_numbers(std::optional<std::array<float, 3>>& target, float low) {
    const auto set = [&target, low](std::string_view value) -> Complaint {
        constexpr float kHigh = 1'000.0F;
        std::vector<float> numbers;
        std::string_view left = value;
        while (numbers.size() <= 3) {
            const std::size_t comma = left.find(',');
            const auto number = parse_number<float>(left.substr(0, comma));
            // The comparison is false for what is no number too.
            if (!number || !(*number >= low && *number <= kHigh)) {
                return fmt::format("not one or three numbers from {} to {}", low, kHigh);
            }
            numbers.push_back(*number);
            if (comma == std::string_view::npos) {
                break;
            }
            left = left.substr(comma + 1);
        }
        if (numbers.size() == 1) {
            numbers.resize(3, numbers.front());
        }
        if (numbers.size() != 3) {
            return "not one or three numbers";
        }
        target = {numbers[0], numbers[1], numbers[2]};
        return std::nullopt;
    };
    return {set, [&target]() -> std::optional<std::string> {
                if (!target) {
                    return std::nullopt;
                }
                return fmt::format("{},{},{}", (*target)[0], (*target)[1], (*target)[2]);
            }};
}

namespace {

constexpr std::string_view kFashionMnistDir = "/usr/share/datasets/fashion-mnist";
constexpr std::array<std::pair<std::string_view, DataKind>, 3> kFolderKinds{{
    {"imagefolder", DataKind::image_folder},
    {"packed", DataKind::packed},
    {"cifar10", DataKind::cifar10},
}};

Complaint set_data(DataSource& target, std::string_view value) {
    const std::size_t colon = value.find(':');
    const std::string_view kind = value.substr(0, colon);
    const std::optional<std::string_view> rest =
        colon == std::string_view::npos ? std::nullopt : std::optional(value.substr(colon + 1));
    if (kind == "synthetic") {
        DataSource source;
        if (rest) {
            const auto setter = whole_number(source.synthetic_size, 1, limits::kSamplesMax);
            if (Complaint complaint = setter(*rest)) {
                return fmt::format("the count of synthetic pictures is {}", *complaint);
            }
        }
        target = source;
        return std::nullopt;
    }
    if (rest && rest->empty()) {
        return "no folder after the colon";
    }
    if (kind == "fashion-mnist" || kind == "fashion_mnist") {
        target = DataSource{DataKind::fashion_mnist, std::string(rest.value_or(kFashionMnistDir))};
        return std::nullopt;
    }
    for (const auto& [name, value_of_name] : kFolderKinds) {
        if (kind == name) {
            if (!rest) {
                return fmt::format("needs a folder: {}:DIR", name);
            }
            target = DataSource{value_of_name, std::string(*rest)};
            return std::nullopt;
        }
    }
    return "not a kind of data; known are imagefolder:DIR, packed:DIR, cifar10:DIR, "
           "fashion-mnist[:DIR] and synthetic[:COUNT]";
}

}  // namespace

Setter data_source(DataSource& target) {
    const auto set = [&target](std::string_view value) { return set_data(target, value); };
    return {set, [&target] { return std::optional(to_string(target)); }};
}

std::string to_string(const DataSource& source) {
    switch (source.kind) {
        case DataKind::fashion_mnist: return "fashion-mnist:" + source.dir;
        case DataKind::cifar10: return "cifar10:" + source.dir;
        case DataKind::packed: return "packed:" + source.dir;
        case DataKind::image_folder: return "imagefolder:" + source.dir;
        case DataKind::synthetic: break;
    }
    return fmt::format("synthetic:{}", source.synthetic_size);
}

}  // namespace ddprun::trainer
