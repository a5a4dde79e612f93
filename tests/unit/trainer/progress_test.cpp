#include "trainer/progress.h"

#include <doctest/doctest.h>

#include <array>
#include <memory>
#include <string>

namespace ddprun::trainer {
namespace {

using namespace std::chrono_literals;

constexpr ProgressPoint kPoint{0, 5, 120, 480, 0.43214, 318.24, 0.1};

struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
};

/// A file in memory for the printer to write to.
class Output {
public:
    Output() : file_(std::tmpfile()) { REQUIRE(file_ != nullptr); }

    [[nodiscard]] std::FILE* file() const { return file_.get(); }

    [[nodiscard]] std::string text() const {
        std::rewind(file_.get());
        std::string text;
        std::array<char, 4096> block{};
        for (std::size_t n = 0; (n = std::fread(block.data(), 1, block.size(), file_.get())) > 0;) {
            text.append(block.data(), n);
        }
        return text;
    }

private:
    std::unique_ptr<std::FILE, CloseFile> file_;
};

ProgressPoint at_step(std::int64_t step) {
    ProgressPoint point = kPoint;
    point.step = step;
    return point;
}

TEST_SUITE_BEGIN("trainer/progress");

TEST_CASE("a line has epoch, step, loss, pace and learning rate") {
    CHECK(progress_line(kPoint) == "epoch 1/5  step 120/480  loss 0.4321  318.2 images/s  lr 0.1");
}

TEST_CASE("a bar shows the share that is done") {
    CHECK(
        progress_bar(kPoint, 92s, 120) ==
        " 25% [##########------------------------------] 120/480  loss 0.432  eta 1:32"
        "  318 images/s"
    );
    CHECK(progress_bar(at_step(480), 0s, 120).starts_with("100% [####"));
}

TEST_CASE("a bar is never wider than the terminal") {
    for (int columns = 0; columns <= 130; ++columns) {
        CHECK(progress_bar(kPoint, 100h, columns).size() <= static_cast<std::size_t>(columns));
    }
}

TEST_CASE("without room for a bar the numbers remain") {
    CHECK(progress_bar(kPoint, 92s, 14) == " 25% 120/480");
    CHECK(progress_bar(kPoint, 92s, 4) == " 25%");
}

TEST_CASE("hours appear in the time left when there are some") {
    CHECK(progress_bar(kPoint, 3723s, 120).find("eta 1:02:03") != std::string::npos);
}

TEST_CASE("the time left follows from the pace") {
    CHECK(estimate_left(10s, 5, 10) == 20s);
    CHECK(estimate_left(10s, 0, 10) == 0s);
    CHECK(estimate_left(10s, 5, 0) == 0s);
}

TEST_CASE("without a terminal there are lines at each interval and at the end, and no bar") {
    const Output output;
    ProgressPrinter printer(output.file(), {100, std::nullopt});
    const ProgressPrinter::Clock::time_point start{};
    for (const std::int64_t step : {99, 100, 101, 200, 201, 480}) {
        printer.step(at_step(step), start);
    }
    printer.finish();

    CHECK(
        output.text() == progress_line(at_step(100)) + "\n" + progress_line(at_step(200)) + "\n" +
                             progress_line(at_step(480)) + "\n"
    );
}

TEST_CASE("on a terminal the bar is redrawn in place and makes way for lines") {
    const Output output;
    ProgressPrinter printer(output.file(), {100, 60});
    const ProgressPrinter::Clock::time_point start{};
    printer.step(at_step(1), start);
    printer.step(at_step(2), start + 50ms);  // too soon
    printer.step(at_step(3), start + 150ms);
    printer.line("saved");
    printer.finish();

    const std::string erase = "\r\x1b[K";
    CHECK(
        output.text() == erase + progress_bar(at_step(1), 0s, 59) + erase +
                             progress_bar(at_step(3), 36s, 59) + erase + "saved\n"
    );
}

TEST_CASE("finish removes the bar once") {
    const Output output;
    ProgressPrinter printer(output.file(), {100, 60});
    printer.step(at_step(1), {});
    printer.finish();
    printer.finish();

    CHECK(output.text() == "\r\x1b[K" + progress_bar(at_step(1), 0s, 59) + "\r\x1b[K");
}

TEST_CASE("a file is no terminal") {
    const Output output;

    CHECK(!terminal_columns(::fileno(output.file())));
    CHECK(!terminal_columns(-1));
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::trainer
