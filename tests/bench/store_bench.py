"""The store beside PyTorch's two servers: same load generator, same machine, same run.

Usage: store_bench.py BIN [SECONDS]. BIN has the built programs; with a Python that has torch the
peers are measured too, case by case in turn with ours. Prints for each case operations per second,
p99 latency and the server's CPU time per operation; what that CPU time is above a bare epoll server;
connects, crowds, replays of what process groups say, memory, and healthy clients beside bad ones.
"""

import importlib.util
import json
import os
import pathlib
import resource
import socket
import struct
import subprocess
import sys
import threading
import time

OURS = "ddprun"
PYTORCH = """
import sys, torch.distributed as dist
store = dist.TCPStore("127.0.0.1", 0, is_master=True, use_libuv=sys.argv[1] == "libuv",
                      wait_for_workers=False)
print(f"listening on 127.0.0.1:{store.port}", flush=True)
sys.stdin.read()
"""
BIN = pathlib.Path(sys.argv[1])
SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
LIMIT_S = 20  # for one run of a load generator
OPERATIONS = ("set_get", "add", "wait_get", "compare_set", "multi_get")
FLOOR_SIZES = {"set_get": [136], "add": [8], "wait_get": [1, 136], "compare_set": [136],
               "multi_get": [1, 64 * 136]}
CASES = [(operation, connections, 1, 128) for operation in OPERATIONS for connections in (1, 64, 1000)]
CASES += [("add", 4, 32, 128), ("set_get", 4, 1, 65536)]


class Server:
    """A store in a process of its own, until the end of its `with` block."""

    def __init__(self, command, environment=None):
        self.process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        self.port = int(self.process.stdout.readline().rsplit(":", 1)[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()  # a measured server has nothing to lose, and PyTorch's may take long
        self.process.wait(timeout=30)
        self.process.stdin.close()
        self.process.stdout.close()

    def load(self, program, *arguments):
        """What the load generator says, None where the server didn't bear it."""
        command = [BIN / program, self.port, self.process.pid, *arguments]
        try:
            done = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                                  timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            return None
        return json.loads(done.stdout) if done.returncode == 0 else None


def start(kind):
    if kind == OURS:
        return Server([BIN / "store_daemon"])
    # Without slow names: else nothing but the name server would be measured.
    names = {"LD_PRELOAD": str(BIN.parent / "lib/bench_numeric_names.so")}
    return Server([sys.executable, "-c", PYTORCH, kind], names)


def cell(result):
    if result is None:
        return f"{'failed':>34}"
    return "{:>10.0f}/s {:>7.0f} us {:>6.2f} us".format(
        result["operations_per_second"], result["p99_us"], result["server_cpu_us"]
    ).rjust(34)


def ratio(results, kinds):
    """Ours over libuv's rate."""
    if "libuv" not in kinds or results[0] is None or results[1] is None:
        return ""
    return f"{results[0]['operations_per_second'] / results[1]['operations_per_second']:8.2f} x"


def loads(kinds):
    print("operations/s, p99, server CPU per operation; our rate over libuv's")
    print(f"{'':32}" + "".join(f"{kind:>34}" for kind in kinds))
    cpu = {}
    servers = [start(kind) for kind in kinds]
    try:
        for operation, connections, depth, size in CASES:
            row = [server.load("store_load", operation, connections, SECONDS, depth, size)
                   for server in servers]
            if connections == 64:
                cpu[operation] = [result and result["server_cpu_us"] for result in row]
            name = f"{operation} x{connections} depth {depth} {size} B"
            print(f"{name:32}" + "".join(cell(result) for result in row) + ratio(row, kinds), flush=True)
    finally:
        for server in servers:
            server.__exit__()
    return cpu


def above_the_floor(kinds, cpu):
    print("\nserver CPU per operation at 64 connections above a bare epoll server [us]")
    for operation, values in cpu.items():
        with Server([BIN / "store_floor", *FLOOR_SIZES[operation]]) as floor:
            result = floor.load("store_load", operation, 64, SECONDS)
        if result is None or None in values:
            continue
        base = result["server_cpu_us"]
        above = [value - base for value in values]
        text = "  ".join(f"{kind} {value:.2f}" for kind, value in zip(kinds, above))
        share = f"  ({above[0] / above[1]:.2f} of libuv's)" if len(above) > 1 and above[1] > 0 else ""
        print(f"  {operation:12} floor {base:.2f}  {text}{share}", flush=True)


def crowds(kinds):
    print("\nconnects, crowds, replays of process groups, memory; each on a fresh server")
    for program, arguments in (
        ("store_load", ("connect", 5000, 0)),
        ("store_load", ("herd", 10000, 0)),
        ("store_replay", ("gloo", 256)),
        ("store_replay", ("nccl", 8192)),
        ("store_replay", ("idle", 5000)),
        ("store_replay", ("fill", 100000)),
    ):
        for kind in kinds:
            with start(kind) as server:
                print(f"  {kind:8}", json.dumps(server.load(program, *arguments)), flush=True)


HELLO = b"\0" + struct.pack("<I", 0x3C85F7CE)
PING = b"\x0d" + struct.pack("<I", 1)


def text64(text):
    return struct.pack("<Q", len(text)) + text


def attacks():
    """Name and bytes of what a bad client sends, and how many of it come."""
    key = text64(b"/k")
    cut = HELLO + b"\x01" + key + struct.pack("<Q", 8 << 20) + b"v" * (4 << 20)
    names = b"".join(text64(b"/key/%d" % i) for i in range(100000))
    return {
        "nobody": (b"", 0),
        "one byte": (b"\0", 1),
        "a set cut in the middle": (cut, 1),
        "HTTP": (b"GET / HTTP/1.1\r\n\r\n", 1),
        "64 zero bytes": (b"\0" * 64, 1),
        "a length of 2^63": (HELLO + b"\x01" + key + struct.pack("<Q", 1 << 63), 1),
        "a wait on 100,000 keys": (HELLO + b"\x06" + struct.pack("<Q", 100000) + names, 1),
        "never reads": (HELLO + (b"\x03" + text64(b"/big")) * 10000, 1),
        "vanish while waiting": (HELLO + b"\x06" + struct.pack("<Q", 1) + key, 500),
        "connection flood": (b"", 1000),
    }


class Calls:
    """How many calls each healthy client has made, to wait for some more of each."""

    def __init__(self, clients):
        self.made = [0] * clients
        self.changed = threading.Condition()

    def count(self, index):
        with self.changed:
            self.made[index] += 1
            self.changed.notify_all()

    def wait_for_more(self, number):
        with self.changed:
            goal = [made + number for made in self.made]
            self.changed.wait_for(lambda: all(m >= g for m, g in zip(self.made, goal)), LIMIT_S)


def healthy_client(port, stop, slowest, calls, index):
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(HELLO)
        while not stop.is_set():
            begin = time.monotonic()
            client.sendall(PING)
            if len(client.recv(4)) != 4:
                slowest[index] = float("inf")
                return
            slowest[index] = max(slowest[index], time.monotonic() - begin)
            calls.count(index)
            stop.wait(0.01)


def healthy_beside_bad():
    print("\nslowest call of four healthy clients at 100 Hz beside bad clients, ours [ms]")
    with start(OURS) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as setting:
            setting.sendall(HELLO + b"\x01" + text64(b"/big") + text64(b"v" * (8 << 20)) + PING)
            setting.recv(4)
        for name, (data, count) in attacks().items():
            stop, slowest, calls = threading.Event(), [0.0] * 4, Calls(4)
            clients = [threading.Thread(target=healthy_client, args=(server.port, stop, slowest, calls, i))
                       for i in range(4)]
            for client in clients:
                client.start()
            bad = []
            for _ in range(count):
                bad.append(socket.create_connection(("127.0.0.1", server.port)))
                bad[-1].setblocking(False)
                try:
                    bad[-1].send(data)
                except OSError:
                    pass  # closed already
            calls.wait_for_more(40)
            for each in bad:
                each.close()
            calls.wait_for_more(10)
            stop.set()
            for client in clients:
                client.join()
            print(f"  {name:26} {1e3 * max(slowest):8.1f}", flush=True)


def main():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # PyTorch's servers don't raise it
    has_torch = importlib.util.find_spec("torch") is not None
    kinds = (OURS, "libuv", "legacy") if has_torch else (OURS,)
    if not has_torch:
        print(f"left out: PyTorch's servers, {sys.executable} has no torch")
    cpu = loads(kinds)
    above_the_floor(kinds, cpu)
    crowds(kinds)
    healthy_beside_bad()


if __name__ == "__main__":
    main()
