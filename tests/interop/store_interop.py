"""Real Python clients (torch.distributed.TCPStore) against our store: each method, time-outs, threads.

Usage: store_interop.py STORE_DAEMON.
"""

import datetime
import socket
import struct
import threading

from cases import LONG, SHORT, case, dist, expect, expect_error, in_threads, run_cases


@case
def set_and_get(daemon):
    store = daemon.client()
    store.set("key", "value")
    expect(store.get("key") == b"value", "the value comes back")
    store.set("key", b"\x00\xff" * 1000)
    expect(store.get("key") == b"\x00\xff" * 1000, "any bytes come back")
    store.set("key", "")
    expect(store.get("key") == b"", "an empty value comes back")


@case
def large_values(daemon):
    store = daemon.client()
    value = b"x" * (8 * 1024 * 1024)
    store.set("key", value)
    expect(store.get("key") == value, "8 MiB come back")


@case
def add_counts(daemon):
    store = daemon.client()
    expect(store.add("n", 5) == 5, "absent counts as 0")
    expect(store.add("n", -7) == -2, "negative sums")
    expect(store.get("n") == b"-2", "stored as text")


@case
def check_and_num_keys_and_delete(daemon):
    store = daemon.client()
    store.set("a", "1")
    store.set("b", "2")
    expect(store.check(["a", "b"]), "both are there")
    expect(not store.check(["a", "c"]), "one is missing")
    expect(store.num_keys() == 2, "two keys")
    expect(store.delete_key("a"), "deleted")
    expect(not store.delete_key("a"), "not twice")
    expect(store.num_keys() == 1, "one key")


@case
def list_keys(daemon):
    store = daemon.client()
    store.set("a", "1")
    store.set("b", "2")
    expect(sorted(store.list_keys()) == ["a", "b"], "the keys without their slash")


@case
def compare_set(daemon):
    store = daemon.client()
    expect(store.compare_set("k", "no", "new") == b"no", "absent and expected: expected comes back")
    expect(not store.check(["k"]), "nothing stored")
    expect(store.compare_set("k", "", "a") == b"a", "absent and nothing expected: stored")
    expect(store.compare_set("k", "b", "c") == b"a", "mismatch: what is there")
    expect(store.compare_set("k", "a", "c") == b"c", "match: stored")


@case
def append_and_multi(daemon):
    store = daemon.client()
    expect(store.has_extended_api(), "the extended API is used")
    store.append("k", "ab")
    store.append("k", "cd")
    store.multi_set(["x", "y"], ["1", "2"])
    expect(store.multi_get(["y", "k", "x"]) == [b"2", b"abcd", b"1"], "in order")


@case
def wait_times_out_and_the_client_stays_usable(daemon):
    store = daemon.client()
    for _ in range(3):
        expect_error(lambda: store.wait(["missing"], SHORT), dist.DistStoreError, "wait timeout")
    expect_error(
        lambda: store.wait(["missing"], datetime.timedelta(0)), dist.DistStoreError, "wait timeout"
    )
    store.set("key", "value")
    expect(store.get("key") == b"value", "usable after time-outs")
    store.set_timeout(SHORT)
    expect_error(lambda: store.get("missing"), dist.DistStoreError, "wait timeout")


@case
def wait_ends_with_another_clients_set(daemon):
    waiting = daemon.client()
    setting = daemon.client()
    released = []

    def run(index):
        if index == 0:
            waiting.wait(["a", "b"], LONG)
            released.append(waiting.get("b"))
        else:
            setting.set("a", "1")
            setting.set("b", "2")

    in_threads(2, run)
    expect(released == [b"2"], "released with the last key")


@case
def wait_races_with_cancel(daemon):
    waiting = daemon.client()
    setting = daemon.client()
    for i in range(30):
        timer = threading.Timer(0.01, setting.set, (f"k{i}", "v"))
        timer.start()
        try:
            waiting.wait([f"k{i}"], datetime.timedelta(milliseconds=10))
        except dist.DistStoreError:
            pass
        timer.join()
        expect(waiting.get(f"k{i}") == b"v", "usable after the race")


@case
def prefix_store(daemon):
    store = daemon.client()
    prefixed = dist.PrefixStore("outer", dist.PrefixStore("inner", store))
    prefixed.set("key", "value")
    expect(store.get("inner/outer/key") == b"value", "the prefixes are in the key")
    expect(prefixed.get("key") == b"value", "and don't show")
    expect(prefixed.add("n", 1) == 1, "counters")
    prefixed.multi_set(["x"], ["1"])
    expect(prefixed.multi_get(["x"]) == [b"1"], "several")


@case
def clone(daemon):
    store = daemon.client()
    other = store.clone()
    store.set("key", "value")
    expect(other.get("key") == b"value", "a clone sees the same keys")


@case
def queues(daemon):
    store = daemon.client()
    store.queue_push("q", "a")
    store.queue_push("q", "b")
    expect(store.queue_len("q") == 2, "two values")
    expect(store.queue_pop("q") == b"a", "the oldest first")
    expect(store.queue_pop("q", block=False) == b"b", "then the next")
    expect_error(lambda: store.queue_pop("q", block=False), dist.QueueEmptyError, "empty")
    store.set_timeout(SHORT)
    expect_error(lambda: store.queue_pop("q"), dist.DistStoreError, "timeout")


@case
def a_blocked_pop_gets_what_is_pushed(daemon):
    consumer = daemon.client()
    producer = daemon.client()
    values = []

    def run(index):
        if index == 0:
            values.extend(consumer.queue_pop("q") for _ in range(20))
        else:
            for i in range(20):
                producer.queue_push("q", str(i))

    in_threads(2, run)
    expect(values == [str(i).encode() for i in range(20)], "all, in order")


@case
def barrier(daemon):
    clients = [daemon.client() for _ in range(4)]
    if not hasattr(clients[0], "barrier"):
        return
    in_threads(4, lambda i: clients[i].barrier("b", 4, LONG))
    expect_error(lambda: clients[0].barrier("c", 2, SHORT), dist.DistStoreError, "timeout")
    clients[0].set("key", "value")
    expect(clients[0].get("key") == b"value", "usable after the time-out")


@case
def workers_that_count_themselves(daemon):
    clients = [None] * 4

    def run(index):
        clients[index] = daemon.client(world_size=4, wait_for_workers=True)

    in_threads(4, run)
    expect(clients[0].num_keys() == 1, "only init/ is there")


@case
def many_clients_meet(daemon):
    clients = [daemon.client() for _ in range(32)]

    def run(index):
        clients[index].set(f"rank{index}", str(index))
        for peer in range(32):
            expect(clients[index].get(f"rank{peer}") == str(peer).encode(), "a peer's value")

    in_threads(32, run)


@case
def a_stalled_peer_delays_nobody(daemon):
    with socket.create_connection(("127.0.0.1", daemon.port)) as stalled:
        stalled.sendall(bytes([0]) + struct.pack("<I", 0x3C85F7CE) + bytes([1, 2]))
        store = daemon.client()
        store.set("key", "value")
        expect(store.get("key") == b"value", "served beside a stalled peer")


if __name__ == "__main__":
    run_cases()
