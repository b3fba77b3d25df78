"""What an operator drops from the caches, and what the status says of caches and upstreams; with two event loops."""

import os
import signal
import threading

import dns.rcode
import pytest

from dns_client import answers, ask, patient
from harness.metrics import Metrics
from harness.processes import wait_until
from harness.upstreams import Upstream
from test_cache import reload, restarted, world  # pylint: disable=unused-import


@pytest.fixture
def start(world, nodes):
    def make(*options):
        block = "".join(f"        {option}\n" for option in options)
        return nodes.start(f""". {{
    workers 2
    cache {{
        success 10000
{block}    }}
    forward . {world.server.address} {{
        max_fails 0
    }}
}}
""")
    return make


def flush(node, name=None):
    """How many answers were dropped."""
    status, body = node.control("/v1/flush" + (f"?name={name}" if name else ""), "POST")
    assert (status, list(body)) == (200, ["flushed"]), body
    return body["flushed"]


def section(node, name):
    status, body = node.control("/v1/status")
    assert status == 200
    return body[name]


def entries(node):
    (cache,) = section(node, "caches")
    return cache["entries"]


def fill(node, names, copies=2):
    """Until both loops have them; which one is asked is the kernel's choice."""
    def all_have_all():
        for name in names:
            ask(node, name)
        return entries(node) == copies * len(names)
    wait_until(all_have_all, 30, lambda: f"both caches to have all names: {section(node, 'caches')}")


NAMES = ["www.example.org.", "a.www.example.org.", "b.A.www.example.org.", "xwww.example.org.", "example.org.", "www.example.net."]
BELOW = NAMES[:3]


def test_all_that_is_cached(start, world):
    node = start()
    assert flush(node) == 0
    fill(node, NAMES)
    assert flush(node) == 2 * len(NAMES)
    assert entries(node) == 0
    world.server.queries.clear()
    world.records = ["A 192.0.2.2"]
    for name in NAMES:
        assert answers(node, name) == ["192.0.2.2"]
    assert len(world.server.names()) == len(NAMES)


@pytest.mark.parametrize("name", ["www.example.org.", "www.example.org", "WWW.Example.ORG", "%77ww.example.org."])
def test_a_name_and_what_is_below(start, world, name):
    node = start()
    fill(node, NAMES)
    world.records = ["A 192.0.2.2"]
    assert flush(node, name) == 2 * len(BELOW)
    for _ in range(5):
        for name in NAMES:
            assert answers(node, name) == ["192.0.2.2" if name in BELOW else "192.0.2.1"], name
    node.wait_logged("answers for www.example.org. flushed", times=1)


def test_the_root_is_all(start, world):
    node = start()
    fill(node, NAMES)
    assert flush(node, ".") == 2 * len(NAMES)


def test_failures_and_denials_go_too(start, world):
    world.deny(dns.rcode.SERVFAIL)
    node = start("servfail 5m")
    fill(node, ["fails.example.org."])
    world.deny(soa=300)
    fill(node, ["fails.example.org.", "not.example.org."])
    assert flush(node, "example.org") == 4


@pytest.mark.parametrize("query", ["name=", "name", "name=a..b", "name=" + "a" * 64, "nam=www.example.org.", "name=" + "abcdefg." * 32, "name=example.org&nam=example.net"])
def test_what_is_no_name_is_refused_and_nothing_flushed(start, world, query):
    node = start()
    fill(node, NAMES[:1])
    status, body = node.control(f"/v1/flush?{query}", "POST")
    assert status == 400 and list(body) == ["error"], body
    assert entries(node) == 2


def test_only_a_post_flushes(start, world):
    node = start()
    fill(node, NAMES[:1])
    status, body = node.control("/v1/flush")
    assert status == 405 and list(body) == ["error"], body
    assert entries(node) == 2


@pytest.mark.parametrize("corefile", [". {\n whoami\n}\n", ". {\n cache\n whoami\n}\n", ". {\n forward . 127.0.0.1:9\n}\n"])
def test_without_a_cache_there_is_nothing(nodes, corefile):
    node = nodes.start(corefile)
    assert flush(node) == flush(node, "example.org") == 0
    assert section(node, "caches") == []


def test_clients_get_answers_all_the_time(start, world):
    """While one thread flushes, others ask."""
    node = start("denial 10000")
    names = [f"n{i}.example.org." for i in range(300)]
    stop, wrong = threading.Event(), []

    def ask_on():
        while not stop.is_set():
            for name in names:
                answer = patient(lambda name=name: answers(node, name))()  # None: the machine is busy
                if answer not in (["192.0.2.1"], None):
                    wrong.append((name, answer))

    threads = [threading.Thread(target=ask_on) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for i in range(100):
            flush(node, [None, "example.org", names[i], f"x.{names[i]}"][i % 4])
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not wrong


# --- caches that are kept over a restart ---

@pytest.mark.parametrize("kill", [False, True], ids=["ended", "killed"])
@pytest.mark.parametrize("name", [None, "www.example.org"], ids=["all", "a name"])
def test_a_restart_brings_nothing_back(start, world, directory, kill, name):
    node = start(f"persist {os.path.join(directory, 'kept')}")
    fill(node, NAMES)
    assert node.terminate() == 0
    node.start()  # so that both files have all
    wait_until(lambda: node.out().count("answers of") == 2, 10, node.logs)
    assert entries(node) == 2 * len(NAMES)
    gone = BELOW if name else NAMES
    assert flush(node, name) == 2 * len(gone)
    world.records = ["A 192.0.2.2"]
    node = restarted(node, kill)
    wait_until(lambda: node.out().count("answers of") == 4, 10, node.logs)
    assert entries(node) == 2 * (len(NAMES) - len(gone))
    for one in NAMES:
        assert answers(node, one) == ["192.0.2.2" if one in gone else "192.0.2.1"], one


@pytest.mark.parametrize("name", [None, "www.example.org"], ids=["all", "a name"])
def test_a_file_that_is_being_read_brings_nothing_back(start, world, directory, name):
    """Whenever the flush comes: the files are read a step in each millisecond, from the start on."""
    node = start(f"persist {os.path.join(directory, 'kept')}")
    more = [f"n{i}.www.example.org." for i in range(2000)]
    for one in NAMES + more:
        ask(node, one)
    node = restarted(node)
    flush(node, name)
    world.records = ["A 192.0.2.2"]
    for one in BELOW + more[::50]:
        assert answers(node, one) == ["192.0.2.2"], one
    node = restarted(node, kill=True)
    world.records = ["A 192.0.2.3"]
    for one in BELOW + more[::50]:
        assert answers(node, one) != ["192.0.2.1"], one


def test_a_file_that_cannot_be_written_is_said(start, world, directory):
    kept = os.path.join(directory, "kept")
    node = start(f"persist {kept}")
    fill(node, NAMES[:1])
    os.rename(kept, kept + ".away")
    status, body = node.control("/v1/flush", "POST")
    assert status == 500 and "a restart may bring it back" in body["error"], body
    assert entries(node) == 0


# --- the status ---

def test_the_status_of_caches(start, world, nodes):
    node = start()
    assert section(node, "caches") == [{"block": ".:" + str(node.port), "entries": 0, "bytes": 0, "hits": 0, "misses": 0}]
    asked = 0

    def both_have_it():
        nonlocal asked
        ask(node, "www.example.org.")
        asked += 1
        return entries(node) == 2

    wait_until(both_have_it, 30, "both loops to be asked")
    (cache,) = section(node, "caches")
    assert (cache["misses"], cache["hits"]) == (2, asked - 2)
    assert 0 < cache["bytes"] < 2000
    reload(node, "    workers 2\n", "    workers 2\n    errors\n")
    assert section(node, "caches") == [cache], "the cache that it was"


def test_the_status_of_upstreams(world, nodes, free_port):
    dead = f"127.0.0.1:{free_port()}"
    node = nodes.start(f""". {{
    workers 2
    forward . {world.server.address} {dead} {{
        policy round_robin
        health_check 50ms
    }}
}}
example.net {{
    forward . {dead}
}}
""")
    block, other = f".:{node.port}", f"example.net.:{node.port}"

    def state():
        return {(one["block"], one["server"]): (one["up"], one["round_trip_seconds"]) for one in section(node, "upstreams")}

    assert state() == {(block, world.server.address): (True, None), (block, dead): (True, None), (other, dead): (True, None)}
    number = iter(range(10**6))

    def condition():
        for _ in range(10):
            ask(node, f"n{next(number)}.example.org.")
        known = state()
        return known[block, world.server.address][1] and not known[block, dead][0]

    wait_until(condition, 30, lambda: state())
    up, round_trip = state()[block, world.server.address]
    assert up and 0 < round_trip < 5
    assert state()[block, dead] == (False, None)
    assert state()[other, dead] == (True, None), "nobody has asked it there"


def test_a_forward_without_a_server_that_answers_is_degraded(nodes, free_port):
    """Nothing is missing of what is configured, but an operator has to know."""
    port, metrics = free_port(), free_port()
    node = nodes.start(f". {{\n prometheus 127.0.0.1:{metrics}\n forward . 127.0.0.1:{port} {{\n  health_check 50ms\n }}\n}}\n")

    def up():
        return Metrics.of(metrics).sum("idetcd_forward_server_up", to=f"127.0.0.1:{port}")

    assert section(node, "degraded") == [] and up() == 1
    ask(node, "www.example.org.")
    expected = [f".:{node.port}: no upstream answers: 127.0.0.1:{port}"]
    wait_until(lambda: section(node, "degraded") == expected and up() == 0, 20, node.logs)
    with Upstream(port=port):
        wait_until(lambda: section(node, "degraded") == [] and up() == 1, 20, node.logs)


def test_a_forward_whose_file_names_no_server_is_degraded(nodes, directory):
    """Also where it has named one before."""
    path = f"{directory}/resolv.conf"

    def write(text):
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(path + ".new", path)
    write("# none yet\n")
    node = nodes.start(f". {{\n forward . {path}\n}}\n")
    expected = [f".:{node.port}: there is no upstream: {path} names none"]
    assert section(node, "degraded") == expected
    for text, reasons in (("nameserver 127.0.0.9\n", []), ("#\n", expected)):
        write(text)
        wait_until(lambda r=reasons: section(node, "degraded") == r, 20, node.logs)


def test_a_reload_shows_the_new_upstreams_only(start, world):
    node = start()
    with Upstream() as other:
        reload(node, world.server.address, other.address)
        assert [one["server"] for one in section(node, "upstreams")] == [other.address]
        node.signal(signal.SIGHUP)
        node.wait_logged("Reloading complete", times=2)
        assert [one["server"] for one in section(node, "upstreams")] == [other.address]
        reload(node, f"    forward . {other.address} {{\n        max_fails 0\n    }}\n", "    whoami\n")
        assert section(node, "upstreams") == section(node, "caches") == []
