// What other projects do with an installed part of ddprun: install it under a prefix, find it with
// find_package(), compile a documented example with nothing of the source tree.
#pragma once

#include "tests/support/command.h"
#include "tests/support/system.h"

#include <doctest/doctest.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace ddprun::test {

/// Runs it to its end, which is 0, within five minutes.
inline CommandResult run_quietly(std::vector<std::string> argv) {
    CommandResult result =
        run_command({.argv = std::move(argv), .deadline = std::chrono::seconds(300)});
    REQUIRE_MESSAGE(result.exit_code == 0, describe(result) << result.out << result.err);
    return result;
}

/// Where this build was made, and by what.
struct BuildTree {
    std::string source;
    std::string build;
    std::string cmake;
    std::string generator;
    std::string compiler;

    /// Builds the program of tests/system/COMPONENT_consumer in `folder` against the installed
    /// component, with the first C++ example of docs/COMPONENT.md as its file `example`; its path.
    [[nodiscard]] std::string build_example(
        const TemporaryFolder& folder, const std::string& component, const std::string& example
    ) const {
        const std::string consumer = folder.path("consumer");
        std::filesystem::copy(source + "/tests/system/" + component + "_consumer", consumer);
        static_cast<void>(
            folder.file("consumer/" + example, example_of("docs/" + component + ".md"))
        );
        install(component, folder.path("prefix"));
        return build_consumer(consumer, folder.path("prefix"));
    }

    void install(const std::string& component, const std::string& prefix) const {
        run_quietly({cmake, "--install", build, "--prefix", prefix, "--component", component});
    }

private:
    /// The first C++ example of a document, as docs/ddp.md.
    [[nodiscard]] std::string example_of(const std::string& document) const {
        const std::string text = read_file(source + "/" + document);
        const std::string fence = "```cpp\n";
        const std::size_t begin = text.find(fence);
        REQUIRE(begin != std::string::npos);
        return text.substr(
            begin + fence.size(), text.find("```", begin + 1) - begin - fence.size()
        );
    }

    /// Builds the project in `folder` against what is installed under `prefix`; the path of its
    /// program `consumer`.
    [[nodiscard]] std::string build_consumer(const std::string& folder, const std::string& prefix)
        const {
        run_quietly(
            {cmake,
             "-S",
             folder,
             "-B",
             folder + "/build",
             "-G",
             generator,
             "-DCMAKE_CXX_COMPILER=" + compiler,
             "-DCMAKE_PREFIX_PATH=" + prefix}
        );
        run_quietly({cmake, "--build", folder + "/build"});
        return folder + "/build/consumer";
    }
};

}  // namespace ddprun::test
