// A picture of stacked bars and a pie, as SVG that any browser shows. Pure.
#pragma once

#include <string>
#include <vector>

namespace ddprun::trainer {

struct SvgPart {
    std::string name;
    double value = 0.0;  ///< not negative
    std::string colour;  ///< "#4e79a7"
};

struct SvgBar {
    std::string name;
    std::vector<SvgPart> parts;
};

struct SvgPicture {
    std::string title;
    std::vector<SvgBar> bars;
    std::vector<SvgPart> pie;  ///< also the legend
};

[[nodiscard]] std::string svg_bars_and_pie(const SvgPicture& picture);

}  // namespace ddprun::trainer
