// Log files, and what of the workers' output the console shows.
#include "tests/support/command.h"
#include "tests/support/system.h"

#include <doctest/doctest.h>

#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

namespace ddprun::test {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

/// ddprun of two workers with these options and this shell script.
Words job(Words options, const std::string& script) {
    Words arguments{"--standalone", "--nproc_per_node=2"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    arguments.insert(arguments.end(), {"/bin/sh", "-c", script});
    return ddprun(arguments);
}

/// Names of what lies directly in a folder, sorted.
Words entries_of(const fs::path& folder) {
    Words names;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
        names.push_back(entry.path().filename().string());
    }
    std::ranges::sort(names);
    return names;
}

TEST_SUITE_BEGIN("system/logs");

TEST_CASE("redirected output lies in torchrun's folders byte for byte, and not on the console") {
    const TemporaryFolder folder;
    const CommandResult result = run_command(
        {.argv =
             job({"-r", "3", "--log_dir", folder.path("logs")},
                 "printf 'out\\000%s\\377no end' $RANK; printf 'err %s\\n' $RANK >&2")}
    );

    CHECK(result.exit_code == 0);
    CHECK(result.out == "");
    CHECK(result.err.find("err ") == std::string::npos);  // only ddprun's own lines
    const fs::path attempt = folder.path("logs/latest/attempt_0");
    CHECK(entries_of(attempt) == Words{"0", "1"});
    CHECK(entries_of(attempt / "0") == Words{"stderr.log", "stdout.log"});
    CHECK(read_file(attempt / "1/stdout.log") == std::string("out\0001\377no end", 12));
    CHECK(read_file(attempt / "1/stderr.log") == "err 1\n");
}

TEST_CASE("latest points to the newest run, and older runs stay") {
    const TemporaryFolder folder;
    for (const char* word : {"first", "second"}) {
        const CommandResult result = run_command(
            {.argv = job({"-r3", "--log_dir=" + folder.path()}, std::string{"echo "} + word)}
        );
        CHECK(result.exit_code == 0);
    }

    CHECK(entries_of(folder.path()).size() == 3);
    CHECK(fs::is_symlink(folder.path("latest")));
    CHECK(read_file(folder.path("latest/attempt_0/0/stdout.log")) == "second\n");
}

TEST_CASE("a job id of any length and with slashes has a log folder") {
    const TemporaryFolder folder;

    const CommandResult result = run_command(
        {.argv = ddprun(
             {"--rdzv_id=" + std::string(300, 'i') + "/end",
              "--log_dir=" + folder.path(),
              "--redirects=3",
              "/bin/sh",
              "-c",
              "echo line"}
         )}
    );

    CHECK(result.exit_code == 0);
    CHECK(result.err.find("log folder") == std::string::npos);
    CHECK(read_file(folder.path("latest/attempt_0/0/stdout.log")) == "line\n");
}

TEST_CASE("each attempt has its own folder") {
    const TemporaryFolder folder;
    const CommandResult result = run_command(
        {.argv = job(
             {"--max_restarts=1", "-r1", "--log_dir=" + folder.path()},
             "echo attempt $TORCHELASTIC_RESTART_COUNT; exit $((1 - TORCHELASTIC_RESTART_COUNT))"
         )}
    );

    CHECK(result.exit_code == 0);
    CHECK(read_file(folder.path("latest/attempt_1/0/stdout.log")) == "attempt 1\n");
    CHECK(fs::exists(folder.path("latest/attempt_0/0/stdout.log")));
}

TEST_CASE("tee writes to both, filters and rank choices leave the files whole") {
    const TemporaryFolder folder;
    const CommandResult result = run_command(
        {.argv =
             job({"--tee=0:1,1:1",
                  "--local_ranks_filter=1",
                  "--duplicate_stdout_filters=loss",
                  "--log_dir=" + folder.path()},
                 "echo loss $RANK; echo other $RANK")}
    );

    CHECK(sorted_lines(result.out) == Words{"[default1]:loss 1", "[default1]:other 1"});
    CHECK(read_file(folder.path("latest/attempt_0/0/stdout.log")) == "loss 0\nother 0\n");
    CHECK(
        sorted_lines(read_file(folder.path("latest/attempt_0/filtered_stdout.log"))) ==
        Words{"[default0]:loss 0", "[default1]:loss 1"}
    );
}

TEST_CASE("show_ranks chooses by global rank, a template shows what it names") {
    const CommandResult result = run_command(
        {.argv =
             job({"--show_ranks=1", "--log_line_prefix_template=<${rank} ${round} ${time}> "},
                 "echo hello")}
    );

    CHECK(result.out.starts_with("<1 0 2"));
    CHECK(result.out.ends_with("> hello\n"));
    CHECK(count_of(result.out, "\n") == 1);
}

TEST_CASE("nothing is left in the temporary folder, log files included") {
    const TemporaryFolder folder;
    const CommandResult result =
        run_command({.argv = job({"-r3"}, "echo x; exit 3"), .env = {"TMPDIR=" + folder.path()}});

    CHECK(result.exit_code == 3);
    CHECK(entries_of(folder.path()).empty());
}

TEST_CASE("a log folder of /dev/null means no files at all") {
    const TemporaryFolder folder;
    const CommandResult result = run_command(
        {.argv = job({"-r3", "--log_dir=/dev/null"}, "echo [$TORCHELASTIC_ERROR_FILE]"),
         .env = {"TMPDIR=" + folder.path()}}
    );

    CHECK(sorted_lines(result.out) == Words{"[default0]:[]", "[default1]:[]"});
    CHECK(entries_of(folder.path()).empty());
}

TEST_CASE("a log file that grows is rotated, and its parts make the whole") {
    const TemporaryFolder folder;
    const CommandResult result = run_command(
        {.argv = job({"-r1", "--log_max_size=3K", "--log_dir=" + folder.path()}, "seq 1 1500")}
    );

    CHECK(result.exit_code == 0);
    const std::string file = folder.path("latest/attempt_0/1/stdout.log");
    const std::string whole = read_file(file + ".2") + read_file(file + ".1") + read_file(file);
    CHECK(whole.starts_with("1\n2\n"));
    CHECK(whole.ends_with("\n1499\n1500\n"));
    CHECK(count_of(whole, "\n") == 1500);
    CHECK(read_file(file + ".1").size() <= 3 * 1024);
}

TEST_CASE("a disk that is full costs the log files and nothing else") {
    const TemporaryFolder folder;
    const CommandResult result = run_command(
        {.argv = job({"-t1", "--log_dir=" + folder.path()}, "seq 1 20000; exit 5"),
         .in_child =
             [] {
                 const rlimit limit{4096, 4096};
                 ::setrlimit(RLIMIT_FSIZE, &limit);
             }}
    );

    CHECK(result.exit_code == 5);
    CHECK(count_of(result.err, "File too large; the job goes on") >= 1);
    CHECK(result.err.find("are missing in their log files") != std::string::npos);
    CHECK(fs::file_size(folder.path("latest/attempt_0/0/stdout.log")) == 4096);
}

TEST_CASE("a reader that has gone leaves the files whole") {
    const TemporaryFolder folder;
    Command running(
        {.argv =
             job({"-t1", "--log_dir=" + folder.path("logs")},
                 "echo ready; until [ -e " + folder.path("go") +
                     " ]; do sleep 0.02; done; seq 1 50000; exit 7")}
    );
    REQUIRE(running.wait_for_line("ready", 2));

    running.close_stdout();
    static_cast<void>(folder.file("go", ""));
    const CommandResult result = running.finish();

    CHECK(result.exit_code == 7);
    const std::string text = read_file(folder.path("logs/latest/attempt_0/0/stdout.log")) +
                             read_file(folder.path("logs/latest/attempt_0/1/stdout.log"));
    CHECK(text.find("\n50000\n") != std::string::npos);
}

/// Runs ddprun with `options` and the worker's `code`, whose stdout nobody reads, and then `end`,
/// until stderr says that output was dropped; stderr. The code writes a file `pid`, for which `end`
/// is held back; both run in a folder of their own.
std::string stderr_of_job_without_reader(
    const std::vector<std::string>& options, const std::string& code, const std::string& end
) {
    const TemporaryFolder folder;
    std::string command = "cd " + folder.path() + "; mkfifo fifo; exec 3> err; ";
    for (const std::string& word : ddprun(options)) {
        command += word + " ";
    }
    command += "/bin/sh -c '" + code + "' 2>&3 3>&- | { read -r never < fifo; }";
    Command running({.argv = {"/bin/bash", "-c", command}});
    const CommandResult ended = run_command(
        {.argv =
             {"/bin/bash",
              "-c",
              "cd " + folder.path() + "; until [ -s pid ]; do sleep 0.02; done; " + end +
                  "; until grep -q 'bytes of it were dropped' err; do sleep 0.02; done; echo > "
                  "fifo"}}
    );
    static_cast<void>(running.finish());
    CHECK_MESSAGE(ended.exit_code == 0, describe(ended));
    return read_file(folder.path("err"));
}

TEST_CASE("a reader that stands still ends no stop: what it leaves is counted") {
    const std::string err = stderr_of_job_without_reader(
        {"--standalone"}, "echo $PPID > pid; yes 0123456789", "kill -TERM $(cat pid)"
    );

    CHECK_MESSAGE(err.find("stopped by signal 15") != std::string::npos, err);
}

TEST_CASE("a reader that stands still holds no failed job up: the report comes") {
    const std::string err = stderr_of_job_without_reader(
        {"--standalone", "--nproc_per_node=2"},
        "if [ $RANK = 0 ]; then until [ -s pid ]; do sleep 0.02; done; exit 3; fi; "
        "yes 0123456789 | head -n 20000; echo $PPID > pid; yes 0123456789",
        ":"
    );

    CHECK_MESSAGE(
        err.find("failed with status 3. First failure: rank 0") != std::string::npos, err
    );
}

TEST_CASE("a reader that is slower than the job loses nothing: its end is waited for") {
    // More than a pipe and our queue hold; it reads later than a stop would wait.
    std::string command;
    for (const std::string& word : ddprun({"/bin/sh"})) {
        command += word + " ";
    }
    command += "-c 'yes 123456789 | head -n 300000; echo last' | (sleep 3; tail -n 1; ) ; ";
    const CommandResult result =
        run_command({.argv = {"/bin/bash", "-c", command + "echo ended ${PIPESTATUS[0]}"}});

    CHECK(result.out == "last\nended 0\n");
    CHECK(result.err.find("dropped") == std::string::npos);
}

TEST_CASE("standard input goes to the worker that is named") {
    const CommandResult result = run_command(
        {.argv = job({"--stdin=1"}, "read -r line; echo \"$line\""), .stdin_text = "typed\n"}
    );

    CHECK(sorted_lines(result.out) == Words{"[default0]:", "[default1]:typed"});
}

TEST_CASE("arguments are expanded on request only") {
    const std::string script = "echo \"$1\"";
    const auto out = [&](Words options) {
        Words arguments{"--standalone"};
        arguments.insert(arguments.end(), options.begin(), options.end());
        arguments.insert(
            arguments.end(), {"/bin/sh", "-c", script, "sh", "${local_rank} $$ $local_rank"}
        );
        return run_command({.argv = ddprun(arguments)}).out;
    };

    CHECK(out({}) == "${local_rank} $$ $local_rank\n");
    CHECK(out({"--expand_args"}) == "0 $ 0\n");
}

TEST_CASE("with a virtual local rank each worker sees one device as its first") {
    const CommandResult result = run_command(
        {.argv = job({"--virtual_local_rank"}, "echo $LOCAL_RANK $CUDA_VISIBLE_DEVICES"),
         .env = {"CUDA_VISIBLE_DEVICES=4,6"}}
    );

    CHECK(sorted_lines(result.out) == Words{"[default0]:0 4", "[default1]:0 6"});
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::test
