"""What PyTorch's own tests ask of a store, asked of ours, in our words.

Usage: pytorch_store_tests.py STORE_DAEMON. Follows the behaviours of its test_store.py and
TCPStoreTest.cpp that judge a server; those that judge the server inside the client's own process,
or the client alone, have no place here. store_interop.py has the rest of the client's methods.
"""

import datetime
import os
import signal
import threading

from cases import LONG, SHORT, case, dist, expect, expect_error, in_threads, run_cases
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend


def set_get_check(store, own_keys):
    """The basic life of some keys in any kind of store over an empty server."""
    store.add("key", 1)
    store.add("key", 2)
    store.add("key", 3)
    store.set("key0", "value0")
    store.add("key3", 1)
    store.set("key1", "value1")
    store.add("key3", 2)
    store.set("key2", "value2")
    store.add("key3", 3)
    store.add("key3", 4)
    store.add("key3", 5)
    store.add("key3", 6)
    expect(store.num_keys() == own_keys + 5, "five keys more")
    expect(store.get("key") == b"6", "a sum")
    expect(store.get("key0") == b"value0", "a value")
    expect(store.get("key1") == b"value1", "another")
    expect(store.get("key2") == b"value2", "a third")
    expect(store.get("key3") == b"21", "another sum")
    expect(store.check(["key", "key3"]), "both are there")
    expect(not store.check(["Randomkey3"]), "this one isn't")
    store.set("-key3", "7")
    expect(store.get("-key3") == b"7", "a key with a sign")
    store.delete_key("-key3")
    expect(store.num_keys() == own_keys + 5, "and gone again")


@case
def set_get_check_and_counters(daemon):
    set_get_check(daemon.client(), 0)


@case
def set_get_check_and_counters_under_a_prefix(daemon):
    set_get_check(dist.PrefixStore("prefix", daemon.client()), 0)


@case
def set_get_check_beside_other_keys(daemon):
    store = daemon.client()
    store.set("other", "")
    set_get_check(dist.PrefixStore("prefix", store), 1)


@case
def compare_set_walks_through_its_three_answers(daemon):
    for store in (daemon.client(), dist.PrefixStore("p", daemon.client())):
        expect(store.compare_set("key", "wrong", "value") == b"wrong", "absent: what was expected")
        expect(not store.check(["key"]), "and nothing is stored")
        store.set("key", "value0")
        expect(store.compare_set("key", "wrong", "value1") == b"value0", "what is there")
        expect(store.compare_set("key", "value0", "value1") == b"value1", "the new one")
        expect(store.get("key") == b"value1", "which is stored")


@case
def simple_wait_in_both_orders(daemon):
    first, second = daemon.client(), daemon.client()
    expect_error(lambda: second.wait(["key"], SHORT), dist.DistStoreError, "timeout")
    second.set("key", "value")
    first.wait(["key"], LONG)
    expect(first.get("key") == b"value", "after the time-out of another")


@case
def append_builds_a_value_in_pieces(daemon):
    for store in (daemon.client(), dist.PrefixStore("p", daemon.client())):
        store.set("foo", "po")
        store.append("foo", "tato")
        store.append("bar", "po")
        store.append("bar", "tato")
        expect(store.get("foo") == b"potato", "over a set value")
        expect(store.get("bar") == b"potato", "over none")


@case
def multi_set_and_multi_get_keep_their_order(daemon):
    for store in (daemon.client(), dist.PrefixStore("p", daemon.client())):
        store.multi_set(["foo", "bar"], ["po", "tato"])
        expect(store.multi_get(["bar", "foo"]) == [b"tato", b"po"], "in the order asked")
        store.set("third", "3")
        expect(store.multi_get(["foo", "third"]) == [b"po", b"3"], "set singly too")


@case
def deleted_keys_are_counted_out_and_waited_for(daemon):
    store = daemon.client()
    store.set("key", "value")
    store.set("key2", "value2")
    expect(store.num_keys() == 2, "two")
    expect(store.delete_key("key"), "one deleted")
    expect(store.num_keys() == 1, "one left")
    store.set_timeout(SHORT)
    expect_error(lambda: store.get("key"), dist.DistStoreError, "timeout")


def workers(daemon, world_size, count=8):
    """`count` clients that all store, all count and all see the sum."""

    def run(index):
        store = daemon.client(world_size=world_size, wait_for_workers=False)
        store.set(f"key{index}", f"value{index}")
        store.add("counter", index)
        store.add("arrived", 1)
        if store.add("arrived", 0) == count:
            store.set("all", "")
        store.wait(["all"], LONG)
        for peer in range(count):
            expect(store.get(f"key{peer}") == f"value{peer}".encode(), "a peer's value")
        expect(store.add("counter", 0) == count * (count - 1) // 2, "the sum of all")

    in_threads(count, run)


@case
def workers_of_a_fixed_world_size(daemon):
    workers(daemon, 8)


@case
def workers_of_an_unknown_world_size(daemon):
    workers(daemon, None)


@case
def a_world_size_of_zero_is_refused_by_the_client(daemon):
    expect_error(lambda: daemon.client(world_size=0), ValueError, "world size cannot be 0")


@case
def the_store_under_a_prefix_is_the_one_that_was_given(daemon):
    store = daemon.client()
    prefixed = dist.PrefixStore("prefix", store)
    prefixed.underlying_store.set("key", "value")
    expect(store.get("key") == b"value", "the same server")
    expect(not prefixed.check(["key"]), "not under the prefix")


@case
def a_signal_doesnt_break_a_wait(daemon):
    waiting, setting = daemon.client(), daemon.client()
    seen = []
    signal.signal(signal.SIGUSR1, lambda *_: seen.append(True))

    def interrupt():
        for _ in range(5):
            os.kill(os.getpid(), signal.SIGUSR1)
        setting.set("key", "value")

    thread = threading.Timer(0.2, interrupt)
    thread.start()
    waiting.wait(["key"], LONG)
    thread.join()
    expect(waiting.get("key") == b"value", "usable after signals")
    expect(seen, "the signals came")


@case
def many_threads_set_and_read_a_thousand_times(daemon):
    clients = [daemon.client() for _ in range(8)]

    def run(index):
        store = clients[index]
        for i in range(1000):
            key = f"thread{index}_{i % 10}"
            store.set(key, str(i))
            expect(store.get(key) == str(i).encode(), "one's own value")
            store.add("counter", 1)

    in_threads(8, run)
    expect(clients[0].get("counter") == b"8000", "every count")


@case
def a_server_that_goes_ends_a_wait_with_an_error(daemon):
    store = daemon.client()
    thread = threading.Timer(0.2, daemon.process.kill)
    thread.start()
    begin = datetime.datetime.now()
    expect_error(lambda: store.wait(["never"], LONG), dist.DistNetworkError, "")
    thread.join()
    expect(datetime.datetime.now() - begin < LONG, "long before its time-out")


def rendezvous(daemon, urls, environment):
    """Both ranks of a job whose agent hosts the store."""
    environment = {"TORCHELASTIC_USE_AGENT_STORE": "True", "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": str(daemon.port), **environment}
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        stores = [None, None]

        def run(index):
            stores[index], rank, world_size = next(dist.rendezvous(urls[index], index, 2))
            expect((rank, world_size) == (index, 2), "rank and size")

        in_threads(2, run)
        stores[0].set("key", "value")
        expect(stores[1].get("key") == b"value", "both meet")
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@case
def rendezvous_by_environment(daemon):
    rendezvous(daemon, ["env://", "env://"], {})


@case
def rendezvous_by_address(daemon):
    rendezvous(daemon, [f"tcp://127.0.0.1:{daemon.port}"] * 2, {})


@case
def the_rendezvous_state_of_torchrun_is_kept_and_guarded(daemon):
    parameters = RendezvousParameters(
        backend="c10d", endpoint=f"127.0.0.1:{daemon.port}", run_id="job", min_nodes=1, max_nodes=2,
        is_host="false",
    )
    first, _ = create_backend(parameters)
    second, _ = create_backend(parameters)
    expect(first.get_state() is None, "no state at first")
    state, token, is_set = first.set_state(b"one", None)
    expect(is_set and state == b"one", "the first state")
    expect(second.get_state() == (b"one", token), "seen by the other")
    _, _, is_set = second.set_state(b"two", token)
    expect(is_set, "over the token that was read")
    state, _, is_set = first.set_state(b"three", token)
    expect(not is_set and state == b"two", "not over an old one")


if __name__ == "__main__":
    run_cases()
