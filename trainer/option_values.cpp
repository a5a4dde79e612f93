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

namespace {

constexpr std::string_view kFashionMnistDir = "/usr/share/datasets/fashion-mnist";

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
    if (kind == "fashion-mnist" || kind == "fashion_mnist") {
        if (rest && rest->empty()) {
            return "no folder after the colon";
        }
        target = DataSource{DataKind::fashion_mnist, std::string(rest.value_or(kFashionMnistDir))};
        return std::nullopt;
    }
    return "not a kind of data; known are fashion-mnist[:DIR] and synthetic[:COUNT]";
}

std::string describe(const DataSource& source) {
    switch (source.kind) {
        case DataKind::synthetic: return fmt::format("synthetic:{}", source.synthetic_size);
        case DataKind::fashion_mnist: return "fashion-mnist:" + source.dir;
    }
    return {};
}

}  // namespace

Setter data_source(DataSource& target) {
    const auto set = [&target](std::string_view value) { return set_data(target, value); };
    return {set, [&target] { return std::optional(describe(target)); }};
}

}  // namespace ddprun::trainer
