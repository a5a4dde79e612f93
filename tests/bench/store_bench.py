"""The store's speed beside PyTorch's two servers: same load generator, same machine, same run.

Usage: store_bench.py STORE_DAEMON STORE_LOAD [SECONDS]. The interpreter needs torch. Prints a table:
operations per second, p99 latency and the server's CPU time per operation; then connects
one at a time, and a herd of 10,000 connections that is released by one SET.
"""

import json
import resource
import subprocess
import sys

OURS = "ddprun"
PYTORCH = """
import sys, torch.distributed as dist
store = dist.TCPStore("127.0.0.1", 0, is_master=True, use_libuv=sys.argv[1] == "libuv",
                      wait_for_workers=False)
print(f"listening on 127.0.0.1:{store.port}", flush=True)
sys.stdin.read()
"""


class Server:
    def __init__(self, kind, daemon):
        command = [daemon] if kind == OURS else [sys.executable, "-c", PYTORCH, kind]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.port = self.process.stdout.readline().rsplit(":", 1)[1].strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()  # a measured server has nothing to lose, and PyTorch's may take long
        self.process.wait(timeout=30)
        self.process.stdin.close()
        self.process.stdout.close()

    def load(self, program, *arguments):
        command = [program, self.port, str(self.process.pid), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        return json.loads(done.stdout) if done.returncode == 0 else None


CASES = [
    (operation, connections, 1, 128)
    for operation in ("set_get", "add", "wait_get", "compare_set", "multi_get")
    for connections in (1, 64, 1000)
] + [("add", 4, 32, 128), ("set_get", 4, 1, 65536)]


def cell(result):
    if result is None:
        return f"{'failed':>30}"
    return "{:>12.0f}/s {:>9.0f} us {:>6.2f}".format(
        result["operations_per_second"], result["p99_us"], result["server_cpu_us"]
    )


def main():
    daemon, load = sys.argv[1:3]
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # PyTorch's servers don't raise it
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 1.0
    kinds = (OURS, "libuv", "legacy")
    print("operations/s, p99, server CPU us per operation")
    print(f"{'':34}" + "".join(f"{kind:>33}" for kind in kinds))
    for operation, connections, depth, size in CASES:
        name = f"{operation} x{connections} depth {depth} {size} B"
        row = []
        for kind in kinds:
            with Server(kind, daemon) as server:
                row.append(server.load(load, operation, connections, seconds, depth, size))
        print(f"{name:34}" + "".join(f"{cell(result):>33}" for result in row), flush=True)
    for operation, count in (("connect", 5000), ("herd", 10000)):
        for kind in kinds:
            with Server(kind, daemon) as server:
                print(kind, json.dumps(server.load(load, operation, count, 0)), flush=True)


if __name__ == "__main__":
    main()
