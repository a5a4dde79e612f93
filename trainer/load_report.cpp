#include "trainer/load_report.h"

#include "trainer/svg.h"

#include <fmt/format.h>

#include <algorithm>

namespace ddprun::trainer {
namespace {

constexpr double kPerCent = 100.0;

double share(double part, double whole) {
    return whole > 0.0 ? kPerCent * part / whole : 0.0;
}

RankLoad sum_of(const std::vector<RankLoad>& loads) {
    RankLoad sum;
    for (const RankLoad& load : loads) {
        sum.pictures += load.pictures;
        sum.data += load.data;
        sum.compute += load.compute;
        sum.update += load.update;
        sum.wait += load.wait;
    }
    return sum;
}

std::vector<SvgPart> parts_of(const RankLoad& load) {
    return {
        {"compute", load.compute, "#4e79a7"},
        {"data", load.data, "#f28e2b"},
        {"update", load.update, "#59a14f"},
        {"wait for others", load.wait, "#bab0ac"},
    };
}

}  // namespace

double imbalance(const std::vector<RankLoad>& loads) {
    double most = 0.0;
    double sum = 0.0;
    for (const RankLoad& load : loads) {
        const double work = load.total() - load.wait;
        most = std::max(most, work);
        sum += work;
    }
    return sum > 0.0 ? most * static_cast<double>(loads.size()) / sum - 1.0 : 0.0;
}

std::string load_table(const std::vector<RankLoad>& loads) {
    std::string table = fmt::format(
        "{:>5} {:>10} {:>10} {:>9} {:>9} {:>9} {:>9}\n",
        "rank",
        "pictures",
        "seconds",
        "compute",
        "data",
        "update",
        "wait"
    );
    const auto row = [&table](const std::string& name, const RankLoad& load) {
        const double total = load.total();
        table += fmt::format(
            "{:>5} {:>10} {:>10.1f} {:>7.1f} % {:>7.1f} % {:>7.1f} % {:>7.1f} %\n",
            name,
            load.pictures,
            total,
            share(load.compute, total),
            share(load.data, total),
            share(load.update, total),
            share(load.wait, total)
        );
    };
    for (std::size_t rank = 0; rank < loads.size(); ++rank) {
        row(std::to_string(rank), loads[rank]);
    }
    row("all", sum_of(loads));
    table += fmt::format(
        "the busiest rank works {:.1f} % longer than the mean\n", kPerCent * imbalance(loads)
    );
    return table;
}

std::string load_picture(const std::vector<RankLoad>& loads) {
    std::vector<SvgBar> bars;
    for (std::size_t rank = 0; rank < loads.size(); ++rank) {
        bars.push_back({fmt::format("rank {}", rank), parts_of(loads[rank])});
    }
    return svg_bars_and_pie(
        {.title = "Load of the ranks, seconds", .bars = bars, .pie = parts_of(sum_of(loads))}
    );
}

}  // namespace ddprun::trainer
