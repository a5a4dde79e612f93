"""An unmodified Python torchrun with two agents over ddprund, which survives a worker's failure.

Usage: torchrun_interop.py DDPRUND.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

LIMIT_S = 150  # for a job of both agents
# Rank 3 fails in the first round, when all others are there; these live until they are stopped. (A
# restart count can't tell the rounds: torchrun counts on the failing node only.)
WORKER = """#!/bin/sh
cd "$1"
if [ -e failed ]; then
    touch "second.$RANK.of.$WORLD_SIZE"
    exit 0
fi
touch "first.$RANK"
[ "$RANK" = 3 ] || exec sleep 170
until [ -e first.0 ] && [ -e first.1 ] && [ -e first.2 ]; do sleep 0.05; done
touch failed
exit 7
"""


def agent(port, node, worker, folder):
    log = open(pathlib.Path(folder, f"agent{node}.log"), "w")
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=2",
        "--max-restarts=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}",
        "--rdzv-id=interop", "--rdzv-conf=is_host=false", "--local-addr=127.0.0.1",
        "--monitor-interval=0.1", "--no-python", worker, folder,
    ]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def check(folder, statuses, daemon_log):
    for log in sorted(pathlib.Path(folder).glob("agent*.log")):
        print(log.name, log.read_text()[-3000:], sep="\n")
    print("ddprund:", daemon_log, sep="\n")
    assert statuses == [0, 0], f"both agents end with success: {statuses}"
    names = sorted(path.name for path in pathlib.Path(folder).glob("second*"))
    expected = [f"second.{rank}.of.4" for rank in range(4)]
    assert names == expected, f"all four workers in the second round: {names}"
    assert ": closed:" not in daemon_log, "no client was closed for an offence"


def main():
    daemon = subprocess.Popen(
        [sys.argv[1], "--listen", "127.0.0.1:0"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )
    agents = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            port = daemon.stdout.readline().rsplit(":", 1)[1].strip()
            worker = pathlib.Path(folder, "worker.sh")
            worker.write_text(WORKER)
            os.chmod(worker, 0o755)
            agents = [agent(port, node, worker, folder) for node in range(2)]
            statuses = [process.wait(timeout=LIMIT_S) for process in agents]
        except subprocess.TimeoutExpired:
            statuses = [process.poll() for process in agents]
        finally:
            for process in agents:
                process.terminate()  # an agent takes its workers with it
            for process in agents:
                try:
                    process.wait(timeout=60)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            daemon.terminate()
            daemon_log = daemon.communicate(timeout=20)[1]
        check(folder, statuses, daemon_log)
    print("1 passed, 0 failed")


main()
