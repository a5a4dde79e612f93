// Scenario files of the membership core: each line is an event, the indented lines below it are all
// that the core says then. A file whose indented lines are wrong or missing is written anew with
// DDPRUN_REWRITE=1 in the environment, to be read as a diff.
//
//   job MIN:MAX [restarts=N]       begins a job, or a rendezvous that was started anew
//   join NODE [rank=N]             joins; "again" after a lost connection is the same line
//   claim NODE ROUND RANK NODES    comes back to a rendezvous that knows nothing
//   ready NODE ROUND               its worker store listens
//   fail NODE ROUND CODE, succeed NODE ROUND, stopped NODE ROUND
//   lose NODE, leave NODE, bye NODE, stop NODE SIGNAL
//   new_life NODE                  its next join is another agent's
//   wait MILLISECONDS
#include "tests/unit/rendezvous/membership_job.h"

#include <doctest/doctest.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace ddprun {
namespace {

namespace fs = std::filesystem;
using test::TestJob;

// ---- what is said, in words

std::string words(const Welcome& message) {
    return message.send_again ? "Welcome, send again" : "Welcome";
}

std::string words(const Refused& message) {
    return "Refused: " + message.text;
}

std::string words(const Waiting& message) {
    if (message.spare) {
        return "Waiting as a spare";
    }
    return fmt::format(
        "Waiting: {} joined, {} missing{}{}",
        message.present,
        message.missing,
        message.refused.empty() ? "" : "; refused ",
        fmt::join(message.refused, ", ")
    );
}

std::string words(const PrepareRound& message) {
    return fmt::format("PrepareRound {}", message.round);
}

std::string words(const BeginRound& message) {
    return fmt::format(
        "BeginRound {} as {} of {}, restart {}: {}",
        message.plan.round,
        message.place.group_rank,
        message.plan.nodes,
        message.plan.restart_count,
        message.plan.reason_text
    );
}

std::string words(const StopRound& message) {
    return fmt::format("StopRound {}: {}", message.round, message.reason);
}

std::string words(const EndJob& message) {
    return fmt::format(
        "EndJob {}{}{}", message.exit_status, message.reason.empty() ? "" : ": ", message.reason
    );
}

std::string words(const Ack& /*message*/) {
    return {};  // after each report; tells nothing
}

// ---- one scenario

class Scenario {
public:
    /// Performs one line and gives what was said, a line each.
    std::vector<std::string> perform(const std::string& line) {
        std::istringstream words_of_line{line};
        std::string verb;
        std::string node;
        words_of_line >> verb >> node;
        std::vector<std::int64_t> numbers;
        std::string option;
        for (std::string word; words_of_line >> word;) {
            if (word.find('=') != std::string::npos) {
                option = word.substr(word.find('=') + 1);
            } else {
                numbers.push_back(std::stoll(word));
            }
        }
        if (verb == "job") {
            begin(node, option);
            return {};
        }
        REQUIRE_MESSAGE(job_ != nullptr, line);
        job_->forget_messages();
        job_->refusals.clear();
        REQUIRE_MESSAGE(act(verb, node, numbers, option), "not understood: ", line);
        return said();
    }

private:
    void begin(const std::string& shape, const std::string& restarts) {
        const std::size_t colon = shape.find(':');
        test::JobShape numbers;
        numbers.min_nodes = std::stoi(shape.substr(0, colon));
        numbers.max_nodes = std::stoi(shape.substr(colon + 1));
        numbers.max_restarts = restarts.empty() ? 0 : std::stoi(restarts);
        job_ = std::make_unique<TestJob>(numbers);
    }

    bool act(
        const std::string& verb,
        const std::string& node,
        const std::vector<std::int64_t>& numbers,
        const std::string& option
    ) {
        const auto number = [&](std::size_t i) { return numbers.at(i); };
        const auto small = [&](std::size_t i) { return static_cast<std::int32_t>(numbers.at(i)); };
        if (verb == "join") {
            job_->join(node, option.empty() ? std::nullopt : std::optional(std::stoi(option)));
        } else if (verb == "claim") {
            job_->rejoin(node, number(0), small(1), small(2));
        } else if (verb == "ready") {
            job_->store_ready(node, number(0));
        } else if (verb == "fail") {
            job_->worker_fails(node, number(0), small(1));
        } else if (verb == "succeed") {
            job_->succeeds(node, number(0));
        } else if (verb == "stopped") {
            job_->stopped(node, number(0));
        } else if (verb == "stop") {
            job_->stop_job(node, small(0));
        } else if (verb == "wait") {
            job_->after(std::stoll(node));
        } else {
            return act_on(verb, node);
        }
        return true;
    }

    bool act_on(const std::string& verb, const std::string& node) {
        if (verb == "lose") {
            job_->lose(node);
        } else if (verb == "leave") {
            job_->leave(node);
        } else if (verb == "bye") {
            job_->bye(node);
        } else if (verb == "new_life") {
            job_->new_life(node);
        } else {
            return false;
        }
        return true;
    }

    [[nodiscard]] std::vector<std::string> said() const {
        std::vector<std::string> lines;
        for (const auto& [node, message] : job_->messages) {
            const std::string text =
                std::visit([](const auto& each) { return words(each); }, message);
            if (!text.empty()) {
                lines.push_back(fmt::format("    {}: {}", node, text));
            }
        }
        for (const auto& [node, refused] : job_->refusals) {
            lines.push_back(fmt::format("    {}: {}", node, words(refused)));
        }
        return lines;
    }

    std::unique_ptr<TestJob> job_;
};

/// The file as it should be: its events and comments, with what the core says to them.
std::string performed(const std::string& text) {
    Scenario scenario;
    std::string result;
    std::istringstream lines{text};
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("    ")) {
            continue;
        }
        result += line + "\n";
        if (!line.empty() && line.front() != '#') {
            for (const std::string& said : scenario.perform(line)) {
                result += said + "\n";
            }
        }
    }
    return result;
}

TEST_SUITE_BEGIN("scenario/membership");

TEST_CASE("what the membership core says is what its scenario files have") {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator{SCENARIO_FOLDER}) {
        files.push_back(entry.path());
    }
    std::ranges::sort(files);
    REQUIRE(!files.empty());
    for (const fs::path& path : files) {
        std::ifstream file{path};
        const std::string text{std::istreambuf_iterator<char>{file}, {}};

        const std::string expected = performed(text);

        if (std::getenv("DDPRUN_REWRITE") != nullptr) {
            std::ofstream{path} << expected;
        }
        CHECK_MESSAGE(text == expected, path.filename().string());
    }
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun
