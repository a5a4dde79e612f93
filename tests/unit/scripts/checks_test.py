"""Each check script finds a planted fault and leaves sound text alone."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[3] / "scripts"


def run_check(script, files):
    """Writes `files` (name -> text) into an empty folder and runs the check there: (status, output)."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        command = [sys.executable, str(SCRIPTS / script), "--root", folder]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
        return ran.returncode, ran.stdout + ran.stderr


class CheckCase(unittest.TestCase):
    script = ""

    def assert_clean(self, name, text):
        self.assertEqual((0, ""), run_check(self.script, {name: text}))

    def assert_found(self, name, text, expected):
        status, output = run_check(self.script, {name: text})
        self.assertEqual(1, status, output)
        self.assertIn(expected, output)


class Layers(CheckCase):
    script = "check_layers"

    def test_an_include_down_the_layers_is_allowed(self):
        self.assert_clean("agent/a.cpp", '#include "proto/types.h"\n#include "rendezvous/link.h"\n')

    def test_an_include_up_the_layers_is_found(self):
        self.assert_found("proto/a.h", '\n#include "agent/a.h"\n', "proto/a.h:2: proto may not include")

    def test_the_trainer_may_include_the_store_client_and_nothing_else_of_the_rendezvous(self):
        self.assert_clean("trainer/a.cpp", '#include "rendezvous/client.h"\n')
        self.assert_found("trainer/a.cpp", '#include "rendezvous/server.h"\n', "trainer may not include")

    def test_libtorch_outside_the_trainer_is_found(self):
        self.assert_found("agent/a.cpp", "#include <torch/torch.h>\n", "belongs to trainer/ only")

    def test_boost_process_outside_child_process_is_found(self):
        self.assert_found("agent/a.cpp", "#include <boost/process/child.hpp>\n", "agent/child_process")
        self.assert_clean("agent/child_process.cpp", "#include <boost/process/child.hpp>\n")

    def test_the_whole_of_asio_is_found(self):
        self.assert_found("agent/a.cpp", "#include <boost/asio.hpp>\n", "include pieces")

    def test_tests_may_include_everything(self):
        self.assert_clean("tests/unit/a.cpp", '#include "launcher/options.h"\n')


class Coroutines(CheckCase):
    script = "check_coroutines"

    def faulty(self, statement, expected):
        body = f"awaitable<void> f() {{\n    int x = 0;\n    {statement}\n}}\n"
        self.assert_found("agent/a.cpp", body, expected)

    def test_braces_in_the_statement_are_found(self):
        self.faulty("co_await send(Message{1});", "braces")

    def test_an_initializer_list_that_awaits_is_found(self):
        self.faulty("Pair p{co_await f(), 3};", "inside braces")

    def test_a_lambda_in_the_statement_is_found(self):
        self.faulty("co_await f([x] { return x; });", "lambda")

    def test_a_conditional_expression_is_found(self):
        self.faulty("s = x ? co_await f() : 1;", "conditional")

    def test_a_logical_operator_is_found(self):
        self.faulty("if (co_await f(1) && x) { return; }", "&& or ||")

    def test_a_switch_over_an_awaited_value_is_found(self):
        self.faulty("switch ((co_await f()).kind) { case 1: break; }", "switch")

    def test_two_awaits_in_one_statement_are_found(self):
        self.faulty("g(co_await f(), co_await f());", "two co_await")

    def test_the_safe_forms_are_left_alone(self):
        body = (
            "awaitable<void> f() {\n"
            "    auto fn = [x] { return x; };\n"
            "    const auto r = co_await g(std::move(fn));\n"
            "    if (auto q = co_await g(r); q) {\n        co_await h(q);\n    }\n"
            "    while (auto q = co_await g(r)) {\n        use(q);\n    }\n"
            "    // co_await f(A{1}); in a comment\n"
            "    if (r && x) {\n        co_await h(r);\n    } else {\n        co_await h(x);\n    }\n"
            "    co_return;\n}\n"
        )
        self.assert_clean("agent/a.cpp", body)


class Limits(CheckCase):
    script = "check_limits"

    def test_a_file_beyond_the_limit_is_found(self):
        self.assert_found("proto/a.cpp", "int x;\n" * 601, "601 lines")
        self.assert_clean("proto/a.cpp", "int x;\n" * 600)

    def test_a_clock_wait_in_the_product_is_found(self):
        self.assert_found("agent/a.cpp", "\nstd::this_thread::sleep_for(x);\n", "agent/a.cpp:2: sleep_for")

    def test_a_banned_word_in_a_comment_or_a_string_is_left_alone(self):
        self.assert_clean("agent/a.cpp", '// never sleep_for\nconst char* s = "system(fork())";\n')

    def test_a_thread_outside_the_named_files_is_found(self):
        self.assert_found("agent/a.cpp", "std::thread t(f);\n", "std::thread")
        self.assert_clean("agent/a.cpp", "const auto id = std::thread::id();\n")

    def test_starting_or_reaping_a_process_elsewhere_is_found(self):
        self.assert_found("rendezvous/a.cpp", "const int pid = ::fork();\n", "child_process")
        self.assert_found("agent/a.cpp", "waitid(P_PID, 1, &i, 0);\n", "child_process")
        self.assert_clean("agent/child_process_wait.cpp", "waitid(P_PID, 1, &i, 0);\n")

    def test_a_shell_command_is_found(self):
        self.assert_found("agent/a.cpp", 'system("ls");\n', "system")

    def test_using_namespace_in_a_header_is_found(self):
        self.assert_found("proto/a.h", "#pragma once\nusing namespace std;\n", "using namespace")

    def test_a_header_without_pragma_once_is_found(self):
        self.assert_found("proto/a.h", "int x;\n", "#pragma once")

    def test_an_opcode_as_a_number_outside_its_file_is_found(self):
        self.assert_found("rendezvous/a.cpp", "if (opcode == 7) { f(); }\n", "opcode")
        self.assert_clean("proto/store_messages.cpp", "if (opcode == 7) { f(); }\n")

    def test_a_document_with_two_titles_or_none_is_found(self):
        self.assert_found("docs/a.md", "# One\n\n# Two\n", "2 lines begin")
        self.assert_found("docs/a.md", "## None\n", "0 lines begin")
        self.assert_clean("docs/a.md", "# One\n\n```sh\n# a comment of the shell\n```\n")


class Headers(CheckCase):
    script = "check_headers"

    def test_a_header_that_needs_another_one_is_found(self):
        self.assert_found("proto/a.h", "#pragma once\nstd::string f();\n", "proto/a.h: does not compile")

    def test_a_header_that_stands_alone_is_left_alone(self):
        self.assert_clean("proto/a.h", "#pragma once\n#include <string>\nstd::string f();\n")


class Setup(unittest.TestCase):
    def test_a_wrong_option_ends_with_status_2(self):
        ran = subprocess.run([SCRIPTS / "setup", "--nonsense"], capture_output=True, text=True, timeout=60)

        self.assertEqual(2, ran.returncode)
        self.assertIn("--nonsense", ran.stderr)

    def test_a_torch_folder_without_libtorch_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            ran = subprocess.run([SCRIPTS / "setup", "--torch", folder], capture_output=True, text=True,
                                 timeout=60)

        self.assertEqual(1, ran.returncode)
        self.assertIn(folder, ran.stderr)


if __name__ == "__main__":
    unittest.main()
