"""A server that is started anew, and what it tells the service manager that does that (harness/service_manager.py speaks
systemd's protocol)."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import threading
import time

import pytest

from corefiles import corefile
from dns_client import RawTcp, RawUdp, answers, ask, header, question, said_name, wait_says
from harness.load import Load
from harness.metrics import Metrics
from harness.node import ROOT, binary
from harness.processes import TIME_FACTOR, wait_until
from harness.proxy import TcpProxy
from harness.service_manager import ServiceManager
from harness.state import Readings, State, contents
from harness.upstreams import Upstream
from harness.upstreams import answer as upstream_answer

SO_RCVBUFFORCE = 33  # Python has no name for it
WORKER1 = "worker1.tf.local."
WHOAMI = ". {\n    bind 127.0.0.1\n    whoami\n}\n"


@pytest.fixture
def manager(directory):
    with ServiceManager(directory) as service_manager:
        yield service_manager


@pytest.fixture
def state(directory):
    return State(f"{directory}/state")


# --- what the service manager is told ---

def test_ready_means_that_the_listeners_answer(nodes, manager):
    node = nodes.make(WHOAMI)
    manager.launch(node)
    manager.wait_said("READY", "1")
    assert node.answers()


def test_an_abstract_socket_does_as_well(nodes, directory):
    with ServiceManager(directory, abstract=True) as manager:
        node = nodes.make(WHOAMI)
        manager.launch(node)
        manager.wait_said("READY", "1")


def test_the_status_is_the_name_that_the_node_owns(etcd, nodes, manager):
    node = nodes.make(corefile(etcd.endpoint, options=["address 192.0.2.7"]))
    manager.launch(node)
    manager.wait_said("STATUS", "no name of worker{{.ID}}.tf.local.")
    manager.wait_said("STATUS", "worker1.tf.local")
    assert said_name(node) == WORKER1
    seen = len(manager.messages)
    # Another takes the name by force, as the Go plugin may: the node takes another one.
    etcd.put(WORKER1, '{"ipv4":"192.0.2.8","ipv6":"","port":"53"}')
    manager.wait_said("STATUS", "worker2.tf.local", seen)


def test_a_reload_is_announced_and_its_end_too(nodes, manager):
    node = nodes.make(WHOAMI)
    manager.launch(node)
    manager.wait_said("READY", "1")
    for text, line in ((WHOAMI, "Reloading complete"), (". {\n    nonsense\n}\n", "Restart failed")):
        seen = len(manager.messages)
        with open(node.corefile_path, "w", encoding="ascii") as file:
            file.write(text)
        before = time.monotonic()
        node.signal(signal.SIGHUP)
        reloading = manager.wait_said("RELOADING", "1", seen)
        assert before <= int(reloading["MONOTONIC_USEC"]) / 1e6 <= time.monotonic(), "as systemd orders them"
        ready = manager.wait_said("READY", "1", seen)
        assert ready["at"] >= reloading["at"]
        node.wait_logged(line)


def test_the_end_is_announced(nodes, manager):
    node = nodes.make(WHOAMI)
    manager.launch(node)
    manager.wait_said("READY", "1")
    assert node.terminate() == 0
    manager.wait_said("STOPPING", "1")


def test_a_program_of_on_claim_is_told_of_no_manager(etcd, nodes, manager, directory):
    node = nodes.make(corefile(etcd.endpoint, options=[
        "address 192.0.2.7", f'on-claim /bin/sh -c "env > {directory}/new; mv {directory}/new {directory}/env"']))
    manager.launch(node, watchdog=5)
    environment = wait_until(lambda: contents(f"{directory}/env"), 10, "the program to run")
    assert "IDETCD_NAME" in environment
    assert not any(variable in environment for variable in ("NOTIFY_SOCKET", "LISTEN_", "WATCHDOG_")), environment


# --- the watchdog ---

@pytest.mark.parametrize("workers", [1, 2])
def test_a_server_that_lives_gives_signs_of_it_in_time(nodes, manager, workers):
    node = nodes.make(WHOAMI.replace("whoami", f"workers {workers}\n    whoami"))
    limit = 3 * TIME_FACTOR  # and we read each sign a moment after it was given
    manager.launch(node, watchdog=limit)
    signs = manager.wait(lambda m: [s["at"] for s in m.messages if "WATCHDOG" in s][:6] if
                         sum("WATCHDOG" in s for s in m.messages) >= 6 else None, "six signs of life", timeout=30)
    assert max(later - earlier for earlier, later in zip(signs, signs[1:])) < limit, signs


def test_no_watchdog_no_signs(nodes, manager):
    node = nodes.make(WHOAMI)
    manager.launch(node)
    manager.wait_said("READY", "1")
    assert node.terminate() == 0
    manager.wait_said("STOPPING", "1")
    assert not any("WATCHDOG" in message for message in manager.messages)


# --- sockets that outlive the process ---

NAMES = [f"db{number}.tf.local." for number in range(100)]
OWN = "address 192.0.2.7"


def put_names(etcd):
    etcd.put_many({name: f'{{"ipv4":"192.0.2.{number + 100}"}}' for number, name in enumerate(NAMES)})


def start(node, manager, **options):
    seen = len(manager.messages)
    manager.launch(node, **options)
    manager.wait_said("READY", "1", seen)


def wait_owns(node, etcd, state):
    """It has its name, and its state directory knows by which claim: only then can the next process prove that this one has ended."""
    wait_says(node, WORKER1)
    wait_until(lambda: str(etcd.pairs()[WORKER1.encode()]["lease"]) in contents(state.file("json")), 5, lambda: contents(state.file("json")))


def end_with(how):
    """What ends it: each returns when it has ended."""
    def end(node):
        if how == "KILL":
            node.kill()
        elif how == "USR2":
            node.signal(signal.SIGUSR2)
            assert node.exit_code(30) == 75
        else:
            assert node.terminate() == 0
    return end


@pytest.mark.serial
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("how", ["KILL", "TERM", "USR2"])
def test_a_restart_loses_no_query(etcd, nodes, manager, state, directory, how, workers):
    """The second time with another binary."""
    put_names(etcd)
    node = nodes.make(corefile(etcd.endpoint, lease=20, options=[OWN, state.option], directives=[f"workers {workers}", "bind 127.0.0.1"]))
    start(node, manager)
    wait_owns(node, etcd, state)
    wait_until(lambda: state.saved(*NAMES), 40, "the names to be kept")
    assert len(manager.names()) == 2 * workers
    with Load(directory, node.port, NAMES, rate=2000) as load:
        for binary in (node.binary, shutil.copy(node.binary, f"{directory}/new-idetcd")):
            time.sleep(0.5)  # of load, as such
            end_with(how)(node)
            node.binary = binary
            start(node, manager)
            wait_owns(node, etcd, state)
        time.sleep(0.5)
    print(load)
    assert load.lost == 0
    assert load.other == {}, "names that were known, if only as stale"
    assert set(etcd.names()) == {WORKER1}
    assert len(manager.names()) == 2 * workers, "none is stored twice"


CACHED = [f"c{number}.example.org." for number in range(100)]
CACHED_TTL = 3600


class Restarts:
    """One server after the other of a service whose sockets are a socket unit's, with a load of RATE queries a second: half of them for
    the cluster's names, half for what it has cached."""

    RATE = 50_000
    WAITING = 50_000  # queries, at most: so many find room in the sockets

    def __init__(self, nodes, manager, etcd, state, directory, metrics):
        self.nodes, self.manager, self.etcd, self.state = nodes, manager, etcd, state
        self._metrics = metrics
        self._arguments = ["-handover", f"{directory}/handover"]
        self._binaries = [binary(), shutil.copy(binary(), f"{directory}/new-idetcd")]
        self.asked_at = {}  # a name -> when the upstream was asked for it: while the cache is read from its file it may be once more

    def answer(self, query, tcp):
        self.asked_at.setdefault(query.question[0].name.to_text(), []).append(time.monotonic())
        return upstream_answer(query, "A 192.0.2.1", ttl=CACHED_TTL)

    def begin(self, stack, directory):
        upstream = stack.enter_context(Upstream(self.answer))
        self.node = self.nodes.make(
            corefile(self.etcd.endpoint, lease=20, options=[OWN, self.state.option], directives=[
                "bind 127.0.0.1", "reload 2s", f"prometheus 127.0.0.1:{self._metrics}", f"cache {{\n persist {directory}/kept\n }}",
                f"forward . {upstream.address}"]), arguments=self._arguments)
        self._sockets = unit_sockets(self.node.port, room=64 << 20)
        for _, sock in self._sockets:
            stack.enter_context(sock)
        self._start()
        wait_until(lambda: self.state.saved(*NAMES), 40, "the names to be kept")
        for name in CACHED:
            assert answers(self.node, name) == ["192.0.2.1"]
        self.end("USR2")  # which writes the cache to its file; a kill would not
        self._start()
        return stack.enter_context(Load(directory, self.node.port, NAMES + CACHED, rate=self.RATE, room=self.WAITING))

    def turn(self, how):
        """What happens to the server; its name stays."""
        before = self.token()
        if how in ("KILL", "USR2"):
            self.end(how)
            self._start()
        elif how == "binary":
            self._swap()
        else:
            self._reload(how)
        self._wait_hits()
        assert set(self.etcd.names()) == {WORKER1}, how
        token = self.token()
        assert token == before if how in ("HUP", "reload") else token > before, (how, before, token)

    def check_ttls(self):
        """They have gone on all the time, but for what an answer of the upstream may have waited for a busy server."""
        waited = 10
        for name in CACHED:
            before = time.monotonic() - self.asked_at[name][-1]
            ttl = ask(self.node, name, tcp=True).answer[0].ttl
            after = time.monotonic() - self.asked_at[name][0]
            assert CACHED_TTL - after - 2 <= ttl <= CACHED_TTL - before + waited, name

    def end(self, how):
        end_with(how)(self.node)

    def token(self):
        return self.etcd.pairs()[WORKER1.encode()]["token"]

    def _wait_hits(self):
        """That a second later what was cached is answered from the cache again."""
        time.sleep(max(0, self._ready["at"] + 1 - time.monotonic()))  # as such
        hits, misses = self._counts()
        def more():
            now = self._counts()
            return (now[0] - hits, now[1] - misses) if sum(now) - hits - misses >= 2000 else None
        hits, misses = wait_until(more, 30, self.node.logs)
        assert hits >= 0.99 * (hits + misses), (hits, misses)

    def _counts(self):
        metrics = Metrics.of(self._metrics)
        return [metrics.sum(f"coredns_cache_{what}_total") or 0 for what in ("hits", "misses")]

    def _launch(self, node):
        seen = len(self.manager.messages)
        self.manager.launch(node, sockets=self._sockets)
        return seen

    def _wait_serves(self, seen):
        """With a name, and what was cached. By messages, which do not wait behind the queries in the sockets."""
        self._ready = self.manager.wait_said("READY", "1", seen, timeout=30)
        self.manager.wait_said("STATUS", "worker1.tf.local", seen, timeout=30)
        wait_until(lambda: str(self.etcd.pairs()[WORKER1.encode()]["lease"]) in contents(self.state.file("json")), 30, self.node.logs)

    def _start(self):
        self._wait_serves(self._launch(self.node))

    def _swap(self):
        """For the other binary, which takes over from the one that runs."""
        old = self.node
        with open(old.corefile_path, encoding="ascii") as file:
            self.node = self.nodes.make(file.read(), port=old.port, arguments=self._arguments)
        self.node.binary = next(other for other in self._binaries if other != old.binary)
        seen = self._launch(self.node)
        assert old.exit_code(30) == 0
        self._wait_serves(seen)

    def _reload(self, how):
        seen = len(self.manager.messages)
        if how == "HUP":
            self.node.signal(signal.SIGHUP)
        else:
            with open(self.node.corefile_path, "a", encoding="ascii") as file:
                file.write(f"# {time.monotonic()}\n")
        self.manager.wait_said("RELOADING", "1", seen, timeout=30)
        self._ready = self.manager.wait_said("READY", "1", seen, timeout=30)


@pytest.mark.serial
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a socket as much room as it likes")
def test_twenty_restarts_at_50_000_queries_a_second(etcd, nodes, manager, state, directory, free_port):
    """With room for what comes meanwhile, which a socket unit gives (ReceiveBuffer=64M)."""
    put_names(etcd)
    restarts = Restarts(nodes, manager, etcd, state, directory, free_port())
    with contextlib.ExitStack() as stack:
        load = restarts.begin(stack, directory)
        for how in 4 * ["KILL", "HUP", "USR2", "KILL", "binary"] + ["reload"]:
            restarts.turn(how)
        restarts.check_ttls()
    print(load)
    assert load.lost == 0
    assert load.other == {}


# --- ended in the middle of a batch ---

SANITIZED = pytest.mark.skipif("asan" in binary() or "tsan" in binary(), reason="a sanitizer wants to be the first library")


@pytest.fixture
def crash(directory):
    """What has a process crash over a batch with a query for crash.test.: see crash.c."""
    library = os.path.join(directory, "crash.so")
    source = os.path.join(ROOT, "tests", "e2e", "harness", "crash.c")
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return {"LD_PRELOAD": library}


def send_together(node, client, names):
    """So that they are in one batch, of which the first has the ID 1: the server stands still meanwhile."""
    node.signal(signal.SIGSTOP)
    wait_until(lambda: contents(f"/proc/{node.pid}/stat").rpartition(")")[2].split()[0] == "T", 5, "it to stand still")
    for number, name in enumerate(names, 1):
        client.send(header(number) + question(name))
    node.signal(signal.SIGCONT)


def ids(client, count):
    """Of the next `count` answers."""
    return [int.from_bytes(client.receive()[:2], "big") for _ in range(count)]


TOGETHER = [f"a{number}.test." for number in range(20)] + ["crash.test."] + [f"b{number}.test." for number in range(20)]


@SANITIZED
@pytest.mark.parametrize("keeper", ["store", "unit"])
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_what_a_crashed_process_has_read_is_answered_by_the_next(nodes, manager, crash, keeper, host):
    node = nodes.make(f". {{\n    bind {host}\n    whoami\n}}\n")
    with contextlib.ExitStack() as stack:
        sockets = unit_sockets(node.port, host) if keeper == "unit" else []
        for _, sock in sockets:
            stack.enter_context(sock)
        start(node, manager, sockets=sockets, env=crash)
        client = stack.enter_context(RawUdp(node.port))
        send_together(node, client, TOGETHER)
        assert node.exit_code(8) == -signal.SIGILL
        start(node, manager, sockets=sockets)
        assert ids(client, len(TOGETHER)) == list(range(1, len(TOGETHER) + 1))
        client.send(header(500) + question("later.test."))
        assert ids(client, 1) == [500], "and none twice"


@SANITIZED
def test_a_query_over_which_the_server_crashes_is_gone_with_the_second_crash(nodes, manager, crash):
    node = nodes.make(WHOAMI)
    start(node, manager, env=crash)
    with RawUdp(node.port) as client:
        send_together(node, client, TOGETHER)
        assert node.exit_code(8) == -signal.SIGILL
        manager.launch(node, env=crash)
        assert node.exit_code(8) == -signal.SIGILL
        start(node, manager, env=crash)
        client.send(header(500) + question("later.test."))
        assert ids(client, 1) == [500]
    assert node.running()


def test_a_connection_that_comes_while_no_server_runs_waits_for_one(nodes, manager):
    node = nodes.make(WHOAMI)
    start(node, manager)
    node.kill()
    with RawTcp(node.port) as client:
        client.send_message(header(7) + question("anything.test."))
        start(node, manager)
        assert client.receive_message()[:2] == b"\0\7"


def test_a_socket_that_a_reload_drops_is_not_stored_any_more(nodes, manager, free_port):
    other = free_port()
    both = f".:{other} {{\n    bind 127.0.0.1\n    whoami\n}}\n.:{free_port()} {{\n    bind 127.0.0.1\n    whoami\n}}\n"
    one = both.split("\n.")[1]
    node = nodes.make(both, "both", port=None)
    start(node, manager)
    assert len(manager.names()) == 4
    for text, count in ((f".{one}", 2), (both, 4), (f".{one}", 2)):
        seen = len(manager.messages)
        with open(node.corefile_path, "w", encoding="ascii") as file:
            file.write(text)
        node.signal(signal.SIGHUP)
        manager.wait_said("READY", "1", seen)
        assert len(manager.names()) == count, (text, node.logs())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", other))


def test_a_stored_socket_that_the_corefile_does_not_want_is_closed(nodes, manager, free_port):
    node = nodes.make(WHOAMI + f".:{free_port()} {{\n    bind 127.0.0.1\n    whoami\n}}\n")
    start(node, manager)
    assert len(manager.names()) == 4
    node.kill()
    with open(node.corefile_path, "w", encoding="ascii") as file:
        file.write(". {\n    bind 127.0.0.2\n    workers 2\n    whoami\n}\n")
    start(node, manager)
    assert len(manager.names()) == 4 and all("127.0.0.2" in name for name in manager.names())
    node.wait_logged("of the service manager is closed: no server block wants", times=4)
    node.kill()
    with open(node.corefile_path, "w", encoding="ascii") as file:
        file.write(". {\n    bind 127.0.0.2\n    whoami\n}\n")
    start(node, manager)
    assert len(manager.names()) == 2, "fewer workers"
    assert all(node.answers("127.0.0.2") for _ in range(20)), "no query goes to a socket that nobody reads"


def unit_sockets(port, host="127.0.0.1", room=None):
    """As a socket unit makes them."""
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    if room:
        udp.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, room)
    udp.bind((host, port))
    tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    tcp.bind((host, port))
    tcp.listen()
    return [("idetcd.socket", tcp), ("idetcd.socket", udp)]


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_sockets_of_a_socket_unit(nodes, manager, host):
    node = nodes.make(f". {{\n    bind {host}\n    whoami\n}}\n")
    sockets = unit_sockets(node.port, host)
    with contextlib.ExitStack() as stack:
        for _, sock in sockets:
            stack.enter_context(sock)
        with RawUdp(node.port) as client:
            client.send(header(5) + question("early.test."))  # which is why the service is started
            start(node, manager, sockets=sockets)
            assert client.receive()[:2] == b"\0\5"
        assert answers(node, "a.test.", tcp=True) == answers(node, "a.test.")
        assert manager.names() == [], "the unit has them"
        assert node.terminate() == 0
        with RawUdp(node.port) as client:
            client.send(header(6) + question("between.test."))
            start(node, manager, sockets=sockets)
            assert client.receive()[:2] == b"\0\6"


def test_what_was_read_is_answered_before_the_end(nodes, manager):
    """A query that waits for an upstream when the service is stopped."""
    asked = threading.Event()
    released = threading.Event()

    def slowly(query, tcp):
        asked.set()
        released.wait(5)
        return upstream_answer(query, "A 192.0.2.1")

    with Upstream(slowly) as upstream:
        node = nodes.make(f". {{\n    bind 127.0.0.1\n    forward . 127.0.0.1:{upstream.port}\n}}\n")
        start(node, manager)
        with RawUdp(node.port) as client, RawUdp(node.port) as late:
            client.send(header(5, 0x100) + question("slow.example.org."))
            assert asked.wait(5)
            node.signal(signal.SIGTERM)
            manager.wait_said("STOPPING", "1")
            time.sleep(0.15)  # of the time that the upstream has, as such: a server that does not wait is gone by then
            released.set()
            assert client.receive()[:2] == b"\0\5"
            assert node.exit_code(5) == 0
            late.send(header(6, 0x100) + question("late.example.org."))
            start(node, manager)
            assert late.receive()[:2] == b"\0\6"


# --- without a service manager ---

@pytest.fixture
def place(directory):
    return f"{directory}/handover"


def successor(nodes, node, place):
    """The same server once more."""
    with open(node.corefile_path, encoding="ascii") as file:
        return nodes.make(file.read(), port=node.port, arguments=["-handover", place])


@pytest.mark.serial
@pytest.mark.parametrize("workers", [1, 2])
def test_a_new_process_takes_over_and_no_query_is_lost(etcd, nodes, state, directory, place, workers):
    put_names(etcd)
    node = nodes.make(corefile(etcd.endpoint, lease=20, options=[OWN, state.option], directives=[f"workers {workers}", "bind 127.0.0.1"]),
                      arguments=["-handover", place])
    node.start()
    wait_owns(node, etcd, state)
    wait_until(lambda: state.saved(*NAMES), 40, "the names to be kept")
    uuid = etcd.names()[WORKER1]["id"]
    with Load(directory, node.port, NAMES, rate=2000) as load:
        for _ in range(3):
            time.sleep(0.5)  # of load, as such
            new = successor(nodes, node, place).launch()
            assert node.exit_code(8) == 0
            wait_owns(new, etcd, state)
            node = new
    print(load)
    assert load.lost == 0
    assert load.other == {}
    assert {name: value["id"] for name, value in etcd.names().items()} == {WORKER1: uuid}


def start_named(nodes, etcd, state, place, lease=20, limit=10, endpoint=None):
    node = nodes.make(corefile(endpoint or etcd.endpoint, limit=limit, lease=lease, options=[OWN, state.option], directives=["bind 127.0.0.1"]),
                      arguments=["-handover", place])
    node.start()
    wait_owns(node, etcd, state)
    wait_until(lambda: WORKER1 in contents(f"{state.path}/identity"), 5, "the identity file")
    return node


def tokens(readings):
    return [int(token) for text in readings for token in re.findall("IDETCD_TOKEN='([0-9]+)'", text)]


def test_who_watches_the_identity_sees_no_loss_when_a_new_process_takes_over(etcd, nodes, state, place):
    node = start_named(nodes, etcd, state, place)
    with Readings(f"{state.path}/identity") as identity:
        for number in range(3):
            new = successor(nodes, node, place).launch()
            assert node.exit_code(30) == 0
            wait_until(lambda: len(tokens(identity.seen)) == number + 2, 10, new.logs)
            wait_owns(new, etcd, state)
            # Then nothing is left to be written: what is being written when the next one takes over is not handed over.
            lease = etcd.pairs()[WORKER1.encode()]["lease"]
            wait_until(lambda: json.loads(contents(state.file("json")))["leases"] == [lease], 10, new.logs)
            node = new
    assert all(f"IDETCD_NAME='{WORKER1}'" in text for text in identity.seen), identity.seen
    assert tokens(identity.seen) == sorted(set(tokens(identity.seen)))
    assert node.terminate() == 0
    assert contents(f"{state.path}/identity") == ""


def test_the_identity_is_empty_in_time_if_the_name_is_not_confirmed_to_the_new_process(etcd, nodes, state, place):
    """The name is owned until nine tenths of the lease have passed since the last request that etcd has confirmed."""
    lease = 20
    node = start_named(nodes, etcd, state, place, lease=lease)
    etcd.pause()
    try:
        paused = time.monotonic()
        with Readings(f"{state.path}/identity") as identity:
            new = successor(nodes, node, place).launch()
            assert node.exit_code(30) == 0
            wait_until(lambda: identity.seen[-1] == "", lease * 2, new.logs)
            assert time.monotonic() - paused < lease
        assert len(identity.seen) == 2, identity.seen
    finally:
        etcd.resume()
    wait_until(lambda: WORKER1 in contents(f"{state.path}/identity"), 30, new.logs)


def test_the_identity_is_emptied_when_the_name_was_lost_meanwhile(etcd, nodes, state, place):
    """Another one has the only name by then."""
    with TcpProxy(etcd.client_port) as proxy:
        node = start_named(nodes, etcd, state, place, lease=60, limit=1, endpoint=proxy.endpoint)
        proxy.silence()  # so that the node does not learn what comes
        etcd.put(WORKER1, '{"ipv4":"192.0.2.77"}')
        new = successor(nodes, node, place).launch()
        assert node.exit_code(30) == 0
        assert WORKER1 in contents(f"{state.path}/identity"), "nobody has said so yet"
        proxy.restore()
        wait_until(lambda: contents(f"{state.path}/identity") == "", 30, new.logs)


@pytest.mark.parametrize("other", ["pattern", "directory", "none"])
def test_a_new_process_that_does_not_go_on_with_the_name_leaves_the_identity_empty(etcd, nodes, state, directory, place, other):
    node = start_named(nodes, etcd, state, place)
    identity = state.file("env")
    new = successor(nodes, node, place)
    fine = contents(new.corefile_path)
    options = {"pattern": ("worker{", "other{"), "directory": (state.option, f"state {directory}/other"), "none": (state.option, "")}
    with open(new.corefile_path, "w", encoding="ascii") as file:
        file.write(fine.replace(*options[other]))
    new.launch()
    assert node.exit_code(30) == 0
    assert contents(identity) == ""
    new.wait_answers()
    if other == "pattern":
        wait_until(lambda: "other1.tf.local." in contents(f"{state.path}/identity"), 10, new.logs)
        assert contents(identity) == ""


def test_a_successor_with_a_bad_corefile_changes_nothing(nodes, place):
    node = nodes.make(WHOAMI, arguments=["-handover", place]).start()
    new = successor(nodes, node, place)
    with open(new.corefile_path, "w", encoding="ascii") as file:
        file.write(". {\n    nonsense\n}\n")
    assert new.launch().exit_code(5) == 1
    assert node.running() and node.answers()
    with open(new.corefile_path, "w", encoding="ascii") as file:
        file.write(WHOAMI)
    new.launch()
    assert node.exit_code(5) == 0
    new.wait_answers()


@pytest.mark.parametrize("beside, block", [
    ("", "health 127.0.0.1:{taken}"), ("", "forward . tls://127.0.0.1 {{\n tls /nonexistent/ca\n }}"),
    ("", "idetcd {{\n pattern w{{{{.ID}}}}.\n state /dev/null/state\n }}"), (".:{taken} {{\n bind 127.0.0.1\n whoami\n}}\n", ""),
    ("x {{\n bind 203.0.113.7\n whoami\n}}\n", "")], ids=["health", "tls", "state", "listener", "address"])
def test_a_successor_that_cannot_start_changes_nothing(nodes, place, free_port, beside, block):
    own = f"health 127.0.0.1:{free_port()}"  # which the old process has
    node = nodes.make(WHOAMI.replace("whoami", f"whoami\n    {own}"), arguments=["-handover", place]).start()
    new = successor(nodes, node, place)
    fine = contents(new.corefile_path)
    with socket.create_server(("127.0.0.1", 0)) as taker:
        taken = taker.getsockname()[1]
        with open(new.corefile_path, "w", encoding="ascii") as file:
            file.write(beside.format(taken=taken) + fine.replace(own, f"{own}\n    " + block.format(taken=taken)))
        assert new.launch().exit_code(10) == 1, new.logs()
        assert node.running() and node.answers()
    with open(new.corefile_path, "w", encoding="ascii") as file:
        file.write(fine)
    new.launch()
    assert node.exit_code(8) == 0
    new.wait_answers()


def test_a_successor_may_want_other_addresses(nodes, place):
    node = nodes.make(WHOAMI, arguments=["-handover", place]).start()
    new = successor(nodes, node, place)
    with open(new.corefile_path, "w", encoding="ascii") as file:
        file.write(WHOAMI.replace("127.0.0.1", "0.0.0.0"))  # which the socket of the first one would keep it from
    new.launch()
    assert node.exit_code(5) == 0
    new.wait_answers()


@pytest.mark.skipif(os.geteuid() != 0, reason="to be another user needs root")
def test_only_the_user_of_the_server_can_take_over(nodes):
    with tempfile.TemporaryDirectory() as open_to_all:
        os.chmod(open_to_all, 0o755)
        place = f"{open_to_all}/handover"
        node = nodes.make(WHOAMI, arguments=["-handover", place]).start()
        assert stat.S_IMODE(os.stat(place).st_mode) == 0o600
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
            with as_nobody(), pytest.raises(PermissionError):
                other.connect(place)
            os.chmod(place, 0o666)  # whoever did that
            with as_nobody():
                other.connect(place)
            assert other.recv(100) == b""
        node.wait_logged("does not get them: it is another user's")
        assert node.answers()
        assert node.terminate() == 0


@contextlib.contextmanager
def as_nobody():
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_what_a_crashed_server_has_left_is_no_hindrance(nodes, place):
    node = nodes.make(WHOAMI, arguments=["-handover", place]).start()
    node.kill()
    assert os.path.exists(place)
    node.start()
    new = successor(nodes, node, place).launch()
    assert node.exit_code(5) == 0
    new.wait_answers()


def test_a_file_that_is_no_socket_is_left_alone(nodes, place):
    with open(place, "w", encoding="ascii") as file:
        file.write("mine")
    node = nodes.make(WHOAMI, arguments=["-handover", place]).launch()
    assert node.exit_code(5) == 1
    assert f"-handover {place}: " in node.err()
    assert contents(place) == "mine"


def test_without_a_manager_a_restart_is_not_begun(nodes):
    node = nodes.start(WHOAMI)
    node.signal(signal.SIGUSR2)
    node.wait_logged("SIGUSR2: No service manager keeps the sockets")
    assert node.running() and node.answers()
