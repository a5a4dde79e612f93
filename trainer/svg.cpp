#include "trainer/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <string_view>

namespace ddprun::trainer {
namespace {

constexpr double kMargin = 20.0;
constexpr double kTitleHeight = 40.0;
constexpr double kBarHeight = 18.0;
constexpr double kBarDistance = 26.0;
constexpr double kNameWidth = 80.0;
constexpr double kBarsWidth = 420.0;
constexpr double kRadius = 90.0;
constexpr double kLegendDistance = 22.0;

std::string escaped(std::string_view text) {
    std::string result;
    for (const char c : text) {
        switch (c) {
            case '&': result += "&amp;"; break;
            case '<': result += "&lt;"; break;
            case '>': result += "&gt;"; break;
            default: result += c;
        }
    }
    return result;
}

double sum_of(const std::vector<SvgPart>& parts) {
    double sum = 0.0;
    for (const SvgPart& part : parts) {
        sum += part.value;
    }
    return sum;
}

std::string text_at(double x, double y, std::string_view text, std::string_view more = "") {
    return fmt::format(
        R"(<text x="{:.1f}" y="{:.1f}"{}>{}</text>)"
        "\n",
        x,
        y,
        more,
        escaped(text)
    );
}

std::string rectangle(double x, double y, double width, double height, std::string_view colour) {
    return fmt::format(
        R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="{}"/>)"
        "\n",
        x,
        y,
        width,
        height,
        colour
    );
}

std::string bars(const SvgPicture& picture) {
    double longest = 0.0;
    for (const SvgBar& bar : picture.bars) {
        longest = std::max(longest, sum_of(bar.parts));
    }
    std::string result;
    double y = kTitleHeight;
    for (const SvgBar& bar : picture.bars) {
        result += text_at(kMargin, y + kBarHeight - 4.0, bar.name);
        double x = kMargin + kNameWidth;
        for (const SvgPart& part : bar.parts) {
            const double width = longest > 0.0 ? kBarsWidth * part.value / longest : 0.0;
            result += rectangle(x, y, width, kBarHeight, part.colour);
            x += width;
        }
        result += text_at(x + 4.0, y + kBarHeight - 4.0, fmt::format("{:.1f}", sum_of(bar.parts)));
        y += kBarDistance;
    }
    return result;
}

/// A sector from one share of the circle to another, clockwise from the top.
std::string sector(double x, double y, double from, double to, std::string_view colour) {
    constexpr double kTurn = 2.0 * std::numbers::pi;
    if (to - from >= 1.0 - 1e-9) {
        return fmt::format(
            R"(<circle cx="{:.1f}" cy="{:.1f}" r="{:.1f}" fill="{}"/>)"
            "\n",
            x,
            y,
            kRadius,
            colour
        );
    }
    const auto px = [&](double share) { return x + kRadius * std::sin(kTurn * share); };
    const auto py = [&](double share) { return y - kRadius * std::cos(kTurn * share); };
    return fmt::format(
        R"(<path d="M{:.2f},{:.2f} L{:.2f},{:.2f} A{},{} 0 {} 1 {:.2f},{:.2f} Z" fill="{}"/>)"
        "\n",
        x,
        y,
        px(from),
        py(from),
        kRadius,
        kRadius,
        to - from > 0.5 ? 1 : 0,
        px(to),
        py(to),
        colour
    );
}

std::string pie(const SvgPicture& picture, double left) {
    const double sum = sum_of(picture.pie);
    const double x = left + kRadius;
    const double y = kTitleHeight + kRadius;
    std::string result;
    double from = 0.0;
    double legend_y = kTitleHeight + 2.0 * kRadius + kLegendDistance;
    for (const SvgPart& part : picture.pie) {
        const double share = sum > 0.0 ? part.value / sum : 0.0;
        if (share > 0.0) {
            result += sector(x, y, from, from + share, part.colour);
        }
        from += share;
        result += rectangle(left, legend_y - 11.0, 12.0, 12.0, part.colour);
        result +=
            text_at(left + kMargin, legend_y, fmt::format("{} {:.1f} %", part.name, 100.0 * share));
        legend_y += kLegendDistance;
    }
    return result;
}

}  // namespace

std::string svg_bars_and_pie(const SvgPicture& picture) {
    const double pie_left = kMargin + kNameWidth + kBarsWidth + 4.0 * kMargin;
    const double width = pie_left + 2.0 * kRadius + kMargin;
    const double bars_height = kBarDistance * static_cast<double>(picture.bars.size());
    const double pie_height =
        2.0 * kRadius + kLegendDistance * static_cast<double>(picture.pie.size() + 1);
    const double height = kTitleHeight + std::max(bars_height, pie_height) + kMargin;
    return fmt::format(
               R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0:.0f}" height="{1:.0f}" )"
               R"(viewBox="0 0 {0:.0f} {1:.0f}" font-family="sans-serif" font-size="13">)"
               "\n",
               width,
               height
           ) +
           rectangle(0.0, 0.0, width, height, "#ffffff") +
           text_at(kMargin, kMargin + 4.0, picture.title, R"( font-weight="bold")") +
           bars(picture) + pie(picture, pie_left) + "</svg>\n";
}

}  // namespace ddprun::trainer
