// What system tests share: where the built programs are, folders of their own, free ports, files.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::test {

/// Path of a built program, for example "ddprun".
[[nodiscard]] std::string program(std::string_view name);

/// argv of ddprun with these arguments.
[[nodiscard]] std::vector<std::string> ddprun(std::vector<std::string> arguments);

/// The workers of a running ddprun: the children of the agent behind it, in order of their pids.
[[nodiscard]] std::vector<pid_t> workers_of(pid_t ddprun);

/// A loopback port that was free a moment ago.
[[nodiscard]] std::string free_port();

/// What a file holds; empty where there is none.
[[nodiscard]] std::string read_file(const std::filesystem::path& path);

/// The lines of a text, sorted, without empty ones.
[[nodiscard]] std::vector<std::string> sorted_lines(std::string_view text);

/// What one worker wrote, from the console of a job of several: its prefix is taken off each of its
/// lines and the lines are joined without their ends (a line whose writer was silent for a while in
/// its middle stands on the console in two parts, which this puts together again).
[[nodiscard]] std::string text_of(std::string_view console, std::string_view prefix);

/// How often `part` occurs in `text`.
[[nodiscard]] int count_of(std::string_view text, std::string_view part);

/// A temporary folder, removed with all that is in it.
class TemporaryFolder {
public:
    TemporaryFolder();
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    ~TemporaryFolder();

    [[nodiscard]] std::string path(std::string_view name = {}) const;

    /// Writes a file and returns its path.
    [[nodiscard]] std::string file(
        std::string_view name, std::string_view content, bool executable = false
    ) const;

private:
    std::filesystem::path path_;
};

}  // namespace ddprun::test
