// What the command line says without running anything, and what a wrong one does not start.
#include "tests/support/command.h"
#include "tests/support/sysfs_tree.h"
#include "tests/support/system.h"

#include <doctest/doctest.h>

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>
#include <tuple>
#include <vector>

namespace ddprun::test {
namespace {

using Words = std::vector<std::string>;

bool has_program(const std::string& name) {
    return run_command({.argv = {"/bin/sh", "-c", "command -v " + name}}).exit_code == 0;
}

/// A control group of its own with a quota of one CPU, where this user may make one.
class OneCpuGroup {
public:
    OneCpuGroup() {
        for (const auto& [base, file, quota] :
             {std::tuple{"/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "100000"},
              std::tuple{"/sys/fs/cgroup", "cpu.max", "100000 100000"}}) {
            const std::string folder =
                std::string{base} + "/ddprun_test_" + std::to_string(::getpid());
            std::error_code refused;
            if (!std::filesystem::exists(std::string{base} + "/cgroup.procs", refused) ||
                !std::filesystem::create_directory(folder, refused)) {
                continue;
            }
            path_ = folder;
            std::ofstream limit{folder + "/" + file};
            limit << quota << std::flush;
            if (limit.good()) {
                return;
            }
            remove();
        }
    }

    OneCpuGroup(const OneCpuGroup&) = delete;
    OneCpuGroup& operator=(const OneCpuGroup&) = delete;

    ~OneCpuGroup() { remove(); }

    /// Empty where there is none.
    [[nodiscard]] const std::string& path() const { return path_; }

private:
    void remove() {
        std::error_code ignored;
        std::filesystem::remove(path_, ignored);
        path_.clear();
    }

    std::string path_;
};

/// What bash completes: the words of a command line, the last of which is being typed.
Words completions(const TemporaryFolder& folder, const std::string& words) {
    const CommandResult script = run_command({.argv = ddprun({"--print_completion=bash"})});
    const std::string path = folder.file("completion.bash", script.out);
    const CommandResult result = run_command(
        {.argv =
             {"bash",
              "-c",
              "source " + path + "; COMP_WORDS=(" + words +
                  "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _ddprun; printf '%s\\n' "
                  "\"${COMPREPLY[@]}\""}}
    );
    CHECK_MESSAGE(result.exit_code == 0, describe(result) << result.err);
    CHECK(result.err == "");
    return sorted_lines(result.out);
}

TEST_SUITE_BEGIN("system/command line");

TEST_CASE("help and version of both programs are on stdout, within 100 columns") {
    for (const char* name : {"ddprun", "ddprund"}) {
        CAPTURE(name);
        const CommandResult help = run_command({.argv = {program(name), "--help"}});
        const CommandResult version = run_command({.argv = {program(name), "--version"}});

        CHECK(help.exit_code == 0);
        CHECK(help.err == "");
        CHECK(help.out.find("Usage: " + std::string{name} + " [OPTIONS]") != std::string::npos);
        CHECK(help.out.find("--help") != std::string::npos);
        std::istringstream lines{help.out};
        for (std::string line; std::getline(lines, line);) {
            CAPTURE(line);
            CHECK(line.size() <= 100);
        }
        CHECK(version.out.starts_with(std::string{name} + " "));
        CHECK(count_of(version.out, "\n") == 1);
    }
}

TEST_CASE("a wrong command line of either program is one line and status 2") {
    for (const char* name : {"ddprun", "ddprund"}) {
        for (const char* option :
             {"--bogus", "--log_level=loud", "--log_level", "--version=1", "--help=no", "-z"}) {
            CAPTURE(option);
            const CommandResult result = run_command({.argv = {program(name), option}});

            CHECK(result.exit_code == 2);
            CHECK(result.out == "");
            CHECK(result.err.starts_with(std::string{name} + ": "));
            CHECK(count_of(result.err, "\n") == 1);
        }
    }
}

TEST_CASE("what the machine hasn't got is one line and status 2, before anything is started") {
    const TemporaryFolder folder;
    const std::string started = folder.path("started");
    const std::string file = folder.file("file", "");
    const std::vector<std::string> options{
        "--stdin=2",
        "--log_dir=" + file,
        "--log_dir=" + file + "/below",
        "--local_addr=no-such-host.invalid",
        "--local_addr=203.0.113.7",
        "--iface=no-such-interface",
        "--rdzv_endpoint=host/path",
        "--rdzv_endpoint=a b",
        "--pass_fds=999",
        "--report=/no/such/folder/report.json",
    };
    for (const std::string& option : options) {
        CAPTURE(option);
        const CommandResult result = run_command(
            {.argv = ddprun({"--nproc_per_node=2", option, "/bin/sh", "-c", "touch " + started})}
        );

        CHECK(result.exit_code == 2);
        CHECK(result.out == "");
        const std::string name = option.substr(0, option.find('='));
        CHECK(result.err.starts_with("ddprun: " + name));
        CHECK(count_of(result.err, "\n") == 1);
        CHECK_FALSE(std::filesystem::exists(started));
    }
}

TEST_CASE("too few visible devices for --virtual_local_rank are refused, none is made up") {
    for (const auto& [devices, code] :
         {std::pair{"3", 2}, {"", 2}, {"3,5", 0}, {"GPU-1,GPU-2,GPU-3", 0}}) {
        CAPTURE(devices);
        const CommandResult result = run_command(
            {.argv = ddprun({"--nproc_per_node=2", "--virtual_local_rank", "/bin/true"}),
             .env = {std::string{"CUDA_VISIBLE_DEVICES="} + devices}}
        );

        CHECK_MESSAGE(result.exit_code == code, result.err);
        CHECK((code == 0 || count_of(result.err, "\n") == 1));
    }
}

TEST_CASE("a host name may be given as this node's address") {
    const CommandResult result = run_command(
        {.argv = ddprun({"--local_addr=localhost", "/bin/sh", "-c", "echo at $MASTER_ADDR"})}
    );

    CHECK_MESSAGE(result.exit_code == 0, result.err);
    CHECK(result.out == "at 127.0.0.1\n");
}

TEST_CASE("a job of one node may ask for any free port") {
    for (const char* backend : {"--rdzv_backend=c10d", "--rdzv_backend=static"}) {
        const CommandResult result = run_command(
            {.argv = ddprun(
                 {backend,
                  "--rdzv_endpoint=localhost:0",
                  "/bin/sh",
                  "-c",
                  "[ $MASTER_PORT -gt 0 ] && echo ran"}
             )}
        );

        CHECK_MESSAGE(result.exit_code == 0, result.err);
        CHECK(result.out == "ran\n");
    }
}

TEST_CASE("a plan shows the variables of the first round as its workers get them") {
    const std::string print =
        "env | grep -E '^(DDPRUN_|TORCHELASTIC_)' | grep -v TEST | sed 's/=.*//' | sort";
    const CommandResult plan =
        run_command({.argv = ddprun({"--print_plan", "/bin/sh", "-c", "true"})});
    const CommandResult names = run_command({.argv = ddprun({"/bin/sh", "-c", print})});
    const CommandResult round =
        run_command({.argv = ddprun({"/bin/sh", "-c", "echo DDPRUN_ROUND=$DDPRUN_ROUND"})});

    CHECK(plan.out.find(" " + round.out) != std::string::npos);
    std::istringstream lines{names.out};
    for (std::string name; std::getline(lines, name);) {
        CAPTURE(name);
        const bool is_planned = plan.out.find(" " + name + "=") != std::string::npos ||
                                plan.out.find(" " + name + " (known") != std::string::npos;
        CHECK(is_planned);
    }
}

TEST_CASE("a plan is shown and nothing is started") {
    const TemporaryFolder folder;
    const std::string script =
        folder.file("x.sh", "#!/bin/sh\ntouch " + folder.path("started") + "\n", true);

    const CommandResult text = run_command(
        {.argv = ddprun(
             {"--print_plan",
              "--nproc_per_node=2",
              "--log_dir=" + folder.path("logs"),
              script,
              "a b"}
         )}
    );
    const CommandResult json = run_command(
        {.argv = ddprun({"--print_plan=json", "--nnodes=2", "--rdzv_endpoint=127.0.0.1:1", script})}
    );

    CHECK(text.exit_code == 0);
    CHECK(text.out.find("command      " + script + " 'a b'\n") != std::string::npos);
    CHECK(json.exit_code == 0);
    CHECK(json.out.starts_with("{\n"));
    CHECK(json.out.find("\"rendezvous\": \"127.0.0.1:1\"") != std::string::npos);
    CHECK_FALSE(std::filesystem::exists(folder.path("started")));
    CHECK_FALSE(std::filesystem::exists(folder.path("logs")));
}

TEST_CASE("the plan of a program that isn't there is refused as its start would be") {
    const CommandResult result =
        run_command({.argv = ddprun({"--print_plan", "/no/such/program"})});

    CHECK(result.exit_code == 127);
    CHECK(result.out == "");
}

TEST_CASE("every shell parses its completion script") {
    const TemporaryFolder folder;
    for (const std::string shell : {"bash", "zsh", "fish", "tcsh"}) {
        CAPTURE(shell);
        const CommandResult script = run_command({.argv = ddprun({"--print_completion", shell})});
        CHECK(script.exit_code == 0);
        const std::string path = folder.file("completion." + shell, script.out);
        if (!has_program(shell)) {
            MESSAGE("not tried: no " << shell << " here");
            continue;
        }
        const CommandResult parsed = run_command({.argv = {shell, "-n", path}});
        CHECK_MESSAGE(parsed.exit_code == 0, parsed.err);
        CHECK(parsed.err == "");
    }
}

TEST_CASE("bash completes names in both spellings, values, and nothing of the program's own") {
    const TemporaryFolder folder;

    CHECK(completions(folder, "ddprun --rdzv_e") == Words{"--rdzv_endpoint"});
    CHECK(completions(folder, "ddprun --rdzv-e") == Words{"--rdzv-endpoint"});
    CHECK(completions(folder, "ddprun --standalone --numa_binding ''").size() == 4);
    CHECK(completions(folder, "ddprun --numa-binding = so") == Words{"socket"});
    CHECK(
        completions(folder, "ddprun --nproc_per_node = gpu : 2 --print_pl") == Words{"--print_plan"}
    );
    CHECK(completions(folder, "ddprun -r 3 --exit_code = t") == Words{"torchrun"});
    CHECK(completions(folder, "ddprun --nnodes 2 train.py --rdzv_e").empty());
    CHECK(completions(folder, "ddprun -- --odd --rdzv_e").empty());
    CHECK(completions(folder, "ddprun --rdzv_id ''").empty());
}

TEST_CASE("the manual page is formatted without a warning") {
    const TemporaryFolder folder;
    const CommandResult page = run_command({.argv = ddprun({"--print_man"})});
    CHECK(page.exit_code == 0);
    if (!has_program("groff")) {
        MESSAGE("not tried: no groff here");
        return;
    }

    const CommandResult formatted =
        run_command({.argv = {"groff", "-man", "-ww", "-Tutf8", folder.file("ddprun.1", page.out)}}
        );

    CHECK(formatted.exit_code == 0);
    CHECK(formatted.err == "");
    CHECK(formatted.out.find("nproc_per_node") != std::string::npos);
}

TEST_CASE("the number of threads is said for one worker as for several, unless the user has set it"
) {
    const auto run = [](Words options, Words env) {
        options.insert(options.end(), {"/bin/sh", "-c", "echo $OMP_NUM_THREADS"});
        return run_command({.argv = ddprun(options), .env = env, .unset_env = {"OMP_NUM_THREADS"}});
    };
    const std::string line = "OMP_NUM_THREADS=";

    const CommandResult one = run({"--nproc_per_node=1"}, {});
    const CommandResult two = run({"--nproc_per_node=2"}, {});
    const CommandResult set = run({"--nproc_per_node=1", "--omp_num_threads=3"}, {});

    CHECK(one.err.find(line + one.out.substr(0, one.out.find('\n')) + " ") != std::string::npos);
    CHECK(one.err.find("by 1 worker\n") != std::string::npos);
    CHECK(two.err.find("by 2 workers\n") != std::string::npos);
    CHECK(set.out == "3\n");
    CHECK(set.err.find(line) == std::string::npos);
}

TEST_CASE("workers are bound to the CPUs of made NUMA nodes, and their plan says so") {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    REQUIRE(::sched_getaffinity(0, sizeof mask, &mask) == 0);
    std::vector<int> cpus;
    for (int cpu = 0; cpu < CPU_SETSIZE && cpus.size() < 2; ++cpu) {
        if (CPU_ISSET(static_cast<std::size_t>(cpu), &mask)) {
            cpus.push_back(cpu);
        }
    }
    if (cpus.size() < 2) {
        MESSAGE("not tried: one CPU");
        return;
    }
    const SysfsTree tree;
    for (int node = 0; node < 2; ++node) {
        const std::string cpu = std::to_string(cpus[static_cast<std::size_t>(node)]);
        tree.node(node, cpu);
        tree.cpu(std::stoi(cpu), node, cpu);
    }
    tree.pci_device("0000:3b:00.0", 1);
    tree.pci_device("0000:86:00.0", 0);
    const auto run = [&](Words options) {
        options.insert(
            options.begin(),
            {"--standalone",
             "--nproc_per_node=2",
             "--sysfs_root=" + tree.root(),
             "--log_line_prefix_template=${rank} "}
        );
        options.insert(
            options.end(),
            {"/bin/sh",
             "-c",
             "echo \"$(grep Cpus_allowed_list: /proc/self/status | cut -f2) $OMP_NUM_THREADS\""}
        );
        return run_command(
            {.argv = ddprun(options),
             .env = {"LD_LIBRARY_PATH=" NVML_STAND_IN_FOLDER, "NVML_STAND_IN_BUSES=3b,86"},
             .unset_env = {"CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"}}
        );
    };

    const CommandResult bound = run({"--numa_binding=node"});
    const CommandResult plan = run({"--numa_binding=exclusive", "--print_plan"});
    const CommandResult refused =
        run({"--numa_binding=socket", "--sysfs_root=" + tree.root() + "/x"});

    CHECK_MESSAGE(bound.exit_code == 0, bound.err);
    CHECK(
        sorted_lines(bound.out) ==
        Words{"0 " + std::to_string(cpus[1]) + " 1", "1 " + std::to_string(cpus[0]) + " 1"}
    );
    CHECK(plan.out.find("CPUs         " + std::to_string(cpus[1]) + "\n") != std::string::npos);
    CHECK(refused.exit_code == 2);
    CHECK(refused.out == "");
    CHECK(refused.err.find("--numa_binding=socket: ") != std::string::npos);
}

TEST_CASE("a bound worker prefers the memory of its node") {
    const CommandResult result = run_command(
        {.argv = ddprun(
             {"--standalone",
              "--numa_binding=node",
              "/bin/sh",
              "-c",
              "head -n 1 /proc/self/numa_maps 2> /dev/null || echo none"}
         )}
    );
    if (result.out == "none\n" || result.err.find("bound to CPUs alone") != std::string::npos) {
        MESSAGE("skipped: this kernel knows no NUMA nodes");
        return;
    }

    CHECK_MESSAGE(result.exit_code == 0, describe(result) << result.err);
    CHECK_MESSAGE(result.out.find(" prefer") != std::string::npos, result.out);
}

TEST_CASE("without an affinity of their own workers share what taskset leaves") {
    if (!has_program("taskset")) {
        MESSAGE("not tried: no taskset here");
        return;
    }
    Words argv = ddprun(
        {"--nproc_per_node=2",
         "/bin/sh",
         "-c",
         "echo $OMP_NUM_THREADS $(grep "
         "Cpus_allowed_list: /proc/self/status | cut -f2)"}
    );
    const std::string cpu =
        run_command({.argv = {"/bin/sh", "-c", "taskset -cp $$ | sed 's/.*: //; s/[-,].*//'"}}).out;
    argv.insert(argv.begin(), {"taskset", "-c", cpu.substr(0, cpu.size() - 1)});

    const CommandResult result = run_command({.argv = argv, .unset_env = {"OMP_NUM_THREADS"}});

    CHECK(
        sorted_lines(result.out) ==
        Words{
            "[default0]:1 " + cpu.substr(0, cpu.size() - 1),
            "[default1]:1 " + cpu.substr(0, cpu.size() - 1)}
    );
    CHECK(
        result.err.find("OMP_NUM_THREADS=1 for each worker: 1 CPUs may be used") !=
        std::string::npos
    );
}

TEST_CASE("workers share what the quota of their control group leaves") {
    const OneCpuGroup group;
    if (group.path().empty()) {
        MESSAGE("not tried: no control group can be made here");
        return;
    }
    Words argv{"/bin/sh", "-c", "echo $$ > " + group.path() + "/cgroup.procs && exec \"$@\"", "sh"};
    const Words job = ddprun({"--print_plan", "/bin/true"});
    argv.insert(argv.end(), job.begin(), job.end());

    const CommandResult limited = run_command({.argv = argv, .unset_env = {"OMP_NUM_THREADS"}});

    CHECK_MESSAGE(limited.exit_code == 0, limited.err);
    CHECK(limited.out.find("OMP_NUM_THREADS=1\n") != std::string::npos);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::test
