#include "launcher/program.h"

#include <doctest/doctest.h>

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace ddprun::launcher {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

/// A folder of its own with some programs, removed at the end.
class Folder {
public:
    Folder() {
        std::string name = (fs::temp_directory_path() / "ddprun-test-XXXXXX").string();
        REQUIRE(::mkdtemp(name.data()) != nullptr);
        path_ = name;
    }

    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;

    ~Folder() { fs::remove_all(path_); }

    [[nodiscard]] std::string file(const std::string& name, bool executable) const {
        const fs::path path = path_ / name;
        fs::create_directories(path.parent_path());
        std::ofstream{path} << "#!/bin/sh\n";
        fs::permissions(path, executable ? fs::perms{0755} : fs::perms{0644});
        return path.string();
    }

    [[nodiscard]] std::string path(const std::string& name = {}) const {
        return (path_ / name).string();
    }

private:
    fs::path path_;
};

LaunchCommand command_of(Words program) {
    LaunchCommand command;
    command.program = std::move(program);
    return command;
}

TEST_SUITE_BEGIN("launcher/program");

TEST_CASE("a program with a slash is taken as it is") {
    const Folder folder;
    const std::string path = folder.file("worker", true);

    const auto program = resolve_program(command_of({path, "a", ""}), {}, folder.path());

    REQUIRE(program.has_value());
    CHECK(program->path == path);
    CHECK(program->argv == Words{path, "a", ""});
}

TEST_CASE("a program without a slash is found in PATH before the folder of ddprun") {
    const Folder folder;
    const std::string in_path = folder.file("second/worker", true);
    const std::string beside = folder.file("own/worker", true);
    const Environment environment{{"PATH", folder.path("first") + ":" + folder.path("second")}};

    CHECK(
        resolve_program(command_of({"worker"}), environment, folder.path("own"))->path == in_path
    );
    CHECK(
        resolve_program(command_of({"worker"}), {{"PATH", "/nowhere"}}, folder.path("own"))->path ==
        beside
    );
}

TEST_CASE("a file in PATH that can't be executed is passed over for one that can") {
    const Folder folder;
    static_cast<void>(folder.file("first/worker", false));
    const std::string good = folder.file("second/worker", true);
    const Environment environment{{"PATH", folder.path("first") + ":" + folder.path("second")}};

    CHECK(resolve_program(command_of({"worker"}), environment, folder.path())->path == good);
}

TEST_CASE("a missing program is not found, with the places that were searched") {
    const Folder folder;

    const auto bare =
        resolve_program(command_of({"trainr"}), {{"PATH", "/nowhere"}}, folder.path());
    const auto slashed = resolve_program(command_of({folder.path("none")}), {}, folder.path());

    REQUIRE_FALSE(bare.has_value());
    CHECK(bare.error().code == Errc::not_found);
    CHECK(
        bare.error().context ==
        "start trainr: not found in PATH (/nowhere) nor beside ddprun (" + folder.path() + ")"
    );
    REQUIRE_FALSE(slashed.has_value());
    CHECK(slashed.error().code == Errc::not_found);
}

TEST_CASE("a file or folder that can't be executed is refused with what to try") {
    const Folder folder;
    const std::string path = folder.file("worker", false);

    const auto file = resolve_program(command_of({path}), {}, folder.path());
    const auto directory = resolve_program(command_of({folder.path()}), {}, folder.path());

    REQUIRE_FALSE(file.has_value());
    CHECK(file.error().code == Errc::permission_denied);
    CHECK(file.error().context.find("chmod +x") != std::string::npos);
    REQUIRE_FALSE(directory.has_value());
    CHECK(directory.error().code == Errc::permission_denied);
}

TEST_CASE("a .py file runs as python3 -u, executable or not") {
    const Folder folder;
    const std::string script = folder.file("train.py", false);
    const std::string python = folder.file("bin/python3", true);
    const Environment environment{{"PATH", folder.path("bin")}};

    const auto program = resolve_program(command_of({script, "--lr"}), environment, folder.path());

    REQUIRE(program.has_value());
    CHECK(program->path == python);
    CHECK(program->argv == Words{"python3", "-u", script, "--lr"});
}

TEST_CASE("PYTHON_EXEC wins over python3") {
    const Folder folder;
    const std::string script = folder.file("train.py", true);
    const std::string python = folder.file("my-python", true);

    const auto program =
        resolve_program(command_of({script}), {{"PYTHON_EXEC", python}}, folder.path());

    REQUIRE(program.has_value());
    CHECK(program->argv == Words{python, "-u", script});
}

TEST_CASE("a PYTHON_EXEC without a value is none") {
    const Folder folder;
    const std::string script = folder.file("train.py", true);
    const std::string python = folder.file("python3", true);

    const auto program = resolve_program(
        command_of({script}),
        {{"PYTHON_EXEC", ""}, {"PATH", folder.path()}},
        folder.path("elsewhere")
    );

    REQUIRE(program.has_value());
    CHECK(program->path == python);
}

TEST_CASE("a missing .py file is not found before Python starts") {
    const Folder folder;

    const auto program = resolve_program(command_of({folder.path("no.py")}), {}, folder.path());

    REQUIRE_FALSE(program.has_value());
    CHECK(program.error().code == Errc::not_found);
}

TEST_CASE("with no_python a .py file is executed itself") {
    const Folder folder;
    const std::string script = folder.file("train.py", true);
    LaunchCommand command = command_of({script});
    command.no_python = true;

    CHECK(resolve_program(command, {}, folder.path())->argv == Words{script});
}

TEST_CASE("a module runs as python3 -u -m") {
    const Folder folder;
    static_cast<void>(folder.file("bin/python3", true));
    LaunchCommand command = command_of({"package.train", "-x"});
    command.is_module = true;

    const auto program = resolve_program(command, {{"PATH", folder.path("bin")}}, folder.path());

    REQUIRE(program.has_value());
    CHECK(program->argv == Words{"python3", "-u", "-m", "package.train", "-x"});
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::launcher
