"""What the interop programs share: a fresh store for each case, its clients, and the run of all cases.

A program collects its cases with @case and ends with run_cases(); its first argument is the program
that serves. Each case is one behaviour; the first line of a failure names it.
"""

import datetime
import os
import subprocess
import sys
import threading
import traceback

os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"  # each time-out on purpose is a warning otherwise
import torch.distributed as dist  # noqa: E402

SHORT = datetime.timedelta(milliseconds=200)
LONG = datetime.timedelta(seconds=20)
CASES = []


def case(function):
    CASES.append(function)
    return function


class Daemon:
    """A store_daemon that ends with its `with` block: it serves until its standard input closes."""

    def __init__(self, program):
        self.process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        address = self.process.stdout.readline().split()[-1]
        self.port = int(address.rsplit(":", 1)[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(timeout=20)
        self.process.stdout.close()

    def client(self, **options):
        options.setdefault("timeout", LONG)
        return dist.TCPStore("127.0.0.1", self.port, is_master=False, **options)


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def expect_error(function, kind, part):
    try:
        function()
    except kind as error:
        expect(part in str(error), f"{part!r} is not in {error}")
        return
    raise AssertionError(f"no {kind.__name__} from {function}")


def in_threads(count, function):
    """Runs function(i) in `count` threads; raises the first error."""
    errors = []

    def run(index):
        try:
            function(index)
        except BaseException as error:  # noqa: BLE001: reported below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def run_cases():
    failed = 0
    for function in CASES:
        try:
            with Daemon(sys.argv[1]) as daemon:
                function(daemon)
            print(f"ok      {function.__name__}", flush=True)
        except Exception:  # noqa: BLE001: every failure is reported and counted
            failed += 1
            print(f"FAILED  {function.__name__}", flush=True)
            traceback.print_exc()
    print(f"{len(CASES) - failed} passed, {failed} failed", flush=True)
    sys.exit(1 if failed else 0)
