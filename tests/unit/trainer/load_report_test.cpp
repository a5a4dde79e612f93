#include "trainer/load_report.h"

#include "trainer/memory_use.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace ddprun::trainer {
namespace {

const std::vector<RankLoad> kLoads{
    {.pictures = 100, .data = 1.0, .compute = 6.0, .update = 1.0, .wait = 2.0},
    {.pictures = 100, .data = 1.0, .compute = 8.0, .update = 1.0, .wait = 0.0},
};

int count_of(const std::string& text, const std::string& part) {
    int count = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
        ++count;
    }
    return count;
}

TEST_SUITE_BEGIN("trainer/load_report");

TEST_CASE("the table has a line for each rank and one for all, and names the imbalance") {
    const std::string table = load_table(kLoads);

    CHECK(count_of(table, "\n") == 5);
    CHECK(
        table.find("    0        100       10.0    60.0 %    10.0 %    10.0 %    20.0 %") !=
        std::string::npos
    );
    CHECK(table.find("  all        200       20.0    70.0 %") != std::string::npos);
    CHECK(table.find("busiest rank works 11.1 % longer") != std::string::npos);
}

TEST_CASE("ranks that work the same are balanced, however long they wait") {
    CHECK(imbalance({kLoads[0], kLoads[0]}) == doctest::Approx(0.0));
    CHECK(imbalance({}) == 0.0);
    CHECK(imbalance({RankLoad{}}) == 0.0);
}

TEST_CASE("the picture is one SVG with a bar for each rank, a pie and a legend") {
    const std::string picture = load_picture(kLoads);

    CHECK(picture.starts_with("<svg "));
    CHECK(picture.ends_with("</svg>\n"));
    CHECK(count_of(picture, "rank 0") == 1);
    CHECK(count_of(picture, "rank 1") == 1);
    CHECK(count_of(picture, "<path ") == 4);
    CHECK(picture.find("compute 70.0 %") != std::string::npos);
    CHECK(picture.find("nan") == std::string::npos);
}

TEST_CASE("a picture of nothing has no number that isn't one") {
    const std::string picture = load_picture({RankLoad{}});

    CHECK(picture.find("nan") == std::string::npos);
    CHECK(picture.find("inf") == std::string::npos);
}

TEST_CASE("a pie of one part is a whole circle") {
    CHECK(count_of(load_picture({{.pictures = 1, .compute = 2.0}}), "<circle ") == 1);
}

TEST_CASE("memory comes from the kernel's lines") {
    const auto use = parse_status("Name:\tx\nVmHWM:\t  2048 kB\nVmRSS:\t    1024 kB\n");

    REQUIRE(use);
    CHECK(use->resident_kb == 1024);
    CHECK(use->peak_kb == 2048);
    CHECK(!parse_status("Name:\tx\n"));
    CHECK(memory_use().resident_kb > 0);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::trainer
