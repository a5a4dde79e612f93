// What a worker finds in its environment, and the small pure helpers around it.
#include "agent/allowed_cpus.h"
#include "agent/error_file.h"
#include "agent/exit_status.h"
#include "agent/failure_report.h"
#include "agent/worker_environment.h"
#include "proto/limits.h"

#include <doctest/doctest.h>

#include <signal.h>

#include <algorithm>
#include <string>
#include <vector>

using namespace ddprun;

namespace {

RoundPlan two_nodes() {
    RoundPlan plan;
    plan.round = Round{5};
    plan.reason = RoundReason::worker_failure;
    plan.restart_count = RestartCount{2};
    plan.max_restarts = RestartCount{3};
    plan.master_address = "10.0.0.1";
    plan.master_port = Port{4'000};
    plan.nodes = NodeCount{2};
    plan.world_size = WorldSize{5};
    return plan;
}

/// Of two nodes, the first with three workers and the second with two.
NodePlace place_of(std::int32_t rank) {
    NodeInfo first;
    first.local_world_size = LocalWorldSize{3};
    NodeInfo second;
    second.local_world_size = LocalWorldSize{2};
    return places_of({&first, &second}).at(static_cast<std::size_t>(rank));
}

EnvironmentSettings settings() {
    EnvironmentSettings result;
    result.job = JobId{"run"};
    result.run_folder = "/run";
    result.worker_mark = "mark";
    result.signals_to_handle = "SIGTERM";
    result.allowed_cpus = 9;
    return result;
}

std::string value(const std::vector<std::string>& environment, std::string_view name) {
    return std::string(find_variable(environment, name).value_or("(unset)"));
}

WorkerFailure failure_at(std::int32_t rank, std::int64_t wall_time_ms) {
    WorkerFailure failure;
    failure.host = "node1";
    failure.rank = Rank{rank};
    failure.local_rank = LocalRank{rank};
    failure.pid = 77;
    failure.code = 3;
    failure.wall_time_ms = wall_time_ms;
    failure.uptime_ms = 12'345;
    return failure;
}

std::string many_lines(int count) {
    std::string text;
    for (int i = 0; i < count; ++i) {
        text += "line " + std::to_string(i) + "\n";
    }
    return text;
}

}  // namespace

TEST_SUITE("agent/worker_environment") {
    TEST_CASE("every variable of torchrun is set from the plan") {
        const auto environment =
            worker_environment(settings(), two_nodes(), place_of(1), LocalRank{1});

        const std::vector<std::pair<std::string_view, std::string>> expected = {
            {"RANK", "4"},
            {"LOCAL_RANK", "1"},
            {"GROUP_RANK", "1"},
            {"ROLE_RANK", "4"},
            {"ROLE_NAME", "default"},
            {"ROLE_WORLD_SIZE", "5"},
            {"WORLD_SIZE", "5"},
            {"LOCAL_WORLD_SIZE", "2"},
            {"GROUP_WORLD_SIZE", "2"},
            {"MASTER_ADDR", "10.0.0.1"},
            {"MASTER_PORT", "4000"},
            {"TORCHELASTIC_RESTART_COUNT", "2"},
            {"TORCHELASTIC_MAX_RESTARTS", "3"},
            {"TORCHELASTIC_RUN_ID", "run"},
            {"TORCHELASTIC_USE_AGENT_STORE", "True"},
            {"TORCHELASTIC_ERROR_FILE", "/run/attempt_2/1/error.json"},
            {"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM"},
            {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
            {"OMP_NUM_THREADS", "4"},
            {"DDPRUN_ROUND", "5"},
            {"DDPRUN_WORKER", "mark"},
            {"DDPRUN_TTY", "(unset)"},
            {"CUDA_VISIBLE_DEVICES", "(unset)"},
        };
        for (const auto& [each, text] : expected) {
            const std::string name{each};  // clang 14 captures no structured binding
            CAPTURE(name);
            CHECK(value(environment, name) == text);
        }
    }

    TEST_CASE("nothing of an outer job is inherited, everything else is, byte for byte") {
        const auto inherited = inherited_environment(
            {"RANK=7", "TORCHELASTIC_RUN_ID=outer", "DDPRUN_TTY=80", "RANKING=1", "X=a=b\n\xff"}
        );

        CHECK(inherited == std::vector<std::string>{"RANKING=1", "X=a=b\n\xff"});
    }

    TEST_CASE("the user's OMP_NUM_THREADS and NCCL setting win, a command-line value wins over both"
    ) {
        EnvironmentSettings with_user = settings();
        with_user.inherited = {"OMP_NUM_THREADS=7", "TORCH_NCCL_ASYNC_ERROR_HANDLING=3"};
        const auto user = worker_environment(with_user, two_nodes(), place_of(0), LocalRank{0});
        with_user.omp_num_threads = 2;
        const auto option = worker_environment(with_user, two_nodes(), place_of(0), LocalRank{0});

        CHECK(value(user, "OMP_NUM_THREADS") == "7");
        CHECK(value(user, "TORCH_NCCL_ASYNC_ERROR_HANDLING") == "3");
        CHECK(value(option, "OMP_NUM_THREADS") == "2");
        CHECK(std::count(option.begin(), option.end(), "OMP_NUM_THREADS=7") == 0);
    }

    TEST_CASE("with a virtual local rank each worker sees one device as rank 0") {
        EnvironmentSettings virtual_rank = settings();
        virtual_rank.virtual_local_rank = true;
        const auto plain = worker_environment(virtual_rank, two_nodes(), place_of(0), LocalRank{2});
        virtual_rank.inherited = {"CUDA_VISIBLE_DEVICES=4, 5,6"};
        const auto listed =
            worker_environment(virtual_rank, two_nodes(), place_of(0), LocalRank{1});

        CHECK(value(plain, "LOCAL_RANK") == "0");
        CHECK(value(plain, "CUDA_VISIBLE_DEVICES") == "2");
        CHECK(value(listed, "CUDA_VISIBLE_DEVICES") == "5");
        CHECK(value(listed, "RANK") == "1");
    }

    TEST_CASE("each worker gets at least one thread") {
        CHECK(threads_per_worker(2, LocalWorldSize{4}) == 1);
        CHECK(threads_per_worker(9, LocalWorldSize{2}) == 4);
    }

    TEST_CASE("a bound worker gets no more threads than its share of its CPUs") {
        EnvironmentSettings bound = settings();
        bound.bound_threads = {1, 2, 64};
        const auto threads = [&](std::int32_t rank) {
            return value(
                worker_environment(bound, two_nodes(), place_of(0), LocalRank{rank}),
                "OMP_NUM_THREADS"
            );
        };

        CHECK(threads(0) == "1");
        CHECK(threads(1) == "2");
        CHECK(threads(2) == "3");
    }

    TEST_CASE("membership rounds get folders of their own") {
        RoundPlan plan = two_nodes();
        CHECK(attempt_folder(plan) == "attempt_2");
        plan.reason = RoundReason::node_lost;
        CHECK(attempt_folder(plan) == "attempt_2_r5");
    }
}

TEST_SUITE("agent/allowed_cpus") {
    TEST_CASE("a quota is rounded up to whole CPUs, and no quota is none") {
        CHECK(cpus_of_quota("150000 100000\n") == 2);
        CHECK(cpus_of_quota("50000 100000") == 1);
        CHECK(!cpus_of_quota("max 100000"));
        CHECK(!cpus_of_quota("-1 100000"));
        CHECK(!cpus_of_quota(""));
        CHECK(allowed_cpus() >= 1);
    }
}

TEST_SUITE("agent/exit_status") {
    TEST_CASE("exit 9 and signal 9 differ, and each is said in words") {
        CHECK(ExitStatus::exited(9) != ExitStatus::signaled(9, false));
        CHECK(to_string(ExitStatus{}) == "running");
        CHECK(to_string(ExitStatus::exited(9)) == "exit code 9");
        CHECK(to_string(ExitStatus::signaled(11, true)) == "signal 11 (SIGSEGV), core dumped");
        CHECK(signal_name(SIGRTMIN + 2) == "SIGRTMIN+2");
        CHECK(signal_name(200) == "signal 200");
    }
}

TEST_SUITE("agent/error_file") {
    TEST_CASE("an error file is handed on with the exit code where its form has room for it") {
        const std::string text = with_error_code(
            R"({"message": {"message": "boom", "extraInfo": {"timestamp": "1"}}})", -9
        );

        CHECK(text.find(R"("errorCode":-9)") != std::string::npos);
        CHECK(text.find(R"("timestamp":"1")") != std::string::npos);
        CHECK(parse_error_file(text).message == "boom");
        for (const char* other : {R"({"message": "plain"})", "no json", "", "[1]", "{}"}) {
            CHECK(with_error_code(other, 3) == other);
        }
    }

    TEST_CASE("both forms of torch are read") {
        const ErrorFileContent full = parse_error_file(
            R"({"message": {"message": "ValueError: x", "extraInfo": {"py_callstack": "a\nb"}}})"
        );
        const ErrorFileContent plain = parse_error_file(R"({"message": "text", "timestamp": 3})");

        CHECK(full.message == "ValueError: x");
        CHECK(full.traceback == "a\nb");
        CHECK(plain.message == "text");
    }

    TEST_CASE("damaged files are said to be damaged, whatever is in them") {
        for (const char* text :
             {"", "{", "[]", "{}", "null", "\xff\xfe", "{\"message\"", R"({"x": 1})"}) {
            CHECK(parse_error_file(text).message == "(the worker's error file is damaged)");
        }
        CHECK(parse_error_file(R"({"message": {"extraInfo": {"py_callstack": 3}}})").message == "");
        CHECK(parse_error_file(R"({"message": {"message": {"a": 1}}})").message == R"({"a":1})");
    }

    TEST_CASE("no file, a folder and a device give nothing") {
        CHECK(read_error_file("/nonexistent/error.json").message == "");
        CHECK(read_error_file("/").message == "");
        CHECK(read_error_file("/dev/zero").message == "");
    }
}

TEST_SUITE("agent/failure_report") {
    TEST_CASE("the report says who, when, with what and what it said last") {
        EndJob end;
        end.exit_status = 3;
        end.reason = "rank 1 on node1 failed";
        end.failures = {failure_at(1, 1'769'850'307'042), failure_at(2, 1'769'850'307'052)};
        end.failures[0].stderr_tail = "a\nlast words\n";

        const std::string report = format_failure_report(JobId{"job"}, end);

        for (const char* part :
             {"job job failed with status 3. First failure: rank 1 (local rank 1 on node1, pid 77)",
              "exit code 3, at 2026-01-31 09:05:07.042Z, 12.345 s after its start",
              "    last words\n",
              "    10 ms later: rank 2 (local rank 2 on node1, pid 77): exit code 3\n"}) {
            CAPTURE(part);
            CHECK(report.find(part) != std::string::npos);
        }
    }

    TEST_CASE("the longest report has at most 25 lines of bounded length") {
        EndJob end;
        end.exit_status = 1;
        end.reason = many_lines(50);
        end.failures.assign(64, failure_at(0, 0));
        end.failures[0].message = many_lines(50);
        end.failures[0].traceback = many_lines(50) + std::string(100'000, 'x');
        end.failures[0].stderr_tail = many_lines(50);
        for (std::int32_t rank = 0; rank < 4'000; rank += 2) {
            end.stopped.push_back(StoppedWorker{Rank{rank}, true});
        }

        const std::string report = format_failure_report(JobId{"job"}, end);

        const auto lines = std::count(report.begin(), report.end(), '\n');
        CHECK(lines <= static_cast<long>(limits::kReportLinesMax));
        CHECK(report.size() < 25 * 300);
    }

    TEST_CASE("whom we stopped is said in ranges, and who had to be killed") {
        EndJob end;
        end.failures = {failure_at(1, 0)};
        end.stopped = {
            {Rank{0}, false}, {Rank{2}, false}, {Rank{3}, true}, {Rank{4}, false}, {Rank{7}, true}};

        CHECK(format_failure_report(JobId{"job"}, end)
                  .ends_with("  stopped   ranks 0, 2-4, 7; had to be killed: 3, 7\n"));
    }

    TEST_CASE("a signal that dumps core says whether it did") {
        WorkerFailure failure = failure_at(1, 0);
        failure.kind = FailureKind::signaled;
        failure.code = SIGSEGV;
        CHECK(cause_of(failure) == "signal 11 (SIGSEGV), no core dump");
        failure.core_dumped = true;
        CHECK(cause_of(failure) == "signal 11 (SIGSEGV), core dumped");
        failure.code = SIGKILL;
        failure.core_dumped = false;
        CHECK(cause_of(failure) == "signal 9 (SIGKILL)");
    }

    TEST_CASE("the reason is said only where it says more than the first failure") {
        EndJob end;
        end.failures = {failure_at(1, 0)};
        end.reason = describe_failure(end.failures[0]);
        CHECK(format_failure_report(JobId{"job"}, end).find("reason") == std::string::npos);

        end.reason += " (--min_uptime)";
        CHECK(
            format_failure_report(JobId{"job"}, end).find("  reason    --min_uptime\n") !=
            std::string::npos
        );
    }

    TEST_CASE("clocks that differ between nodes make no negative time") {
        EndJob end;
        end.failures = {failure_at(1, 1'000), failure_at(2, 900)};

        CHECK(
            format_failure_report(JobId{"job"}, end).find("    0 ms later: rank 2") !=
            std::string::npos
        );
    }

    TEST_CASE("control characters of a worker don't reach the terminal") {
        EndJob end;
        end.failures = {failure_at(0, 0)};
        end.failures[0].message = "\x1b[31mred\x07";

        const std::string report = format_failure_report(JobId{"job"}, end);

        CHECK(report.find('\x1b') == std::string::npos);
        CHECK(report.find("[31mred\n") != std::string::npos);
    }

    TEST_CASE("without a failure the reason is all there is") {
        EndJob end;
        end.exit_status = 75;
        end.reason = "2 nodes are missing";

        CHECK(
            format_failure_report(JobId{"j"}, end) ==
            "job j failed with status 75: 2 nodes are missing\n"
        );
    }
}
