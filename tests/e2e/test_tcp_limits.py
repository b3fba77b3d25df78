"""What clients over TCP may take up, and what those who take much do to others (RFC 7766 §6.2, RFC 9210 §4)."""

import contextlib
import os
import random
import resource
import socket
import statistics
import struct
import time

import pytest

from dns_client import TIMEOUT, make_query
from harness.namespace import Namespace
from harness.processes import TIME_FACTOR, wait_until

QUERY = make_query("a.example.").to_wire()
FRAMED = struct.pack("!H", len(QUERY)) + QUERY


def connect(node, source, host="127.0.0.1"):
    sock = socket.socket()
    sock.bind((source, 0))
    sock.settimeout(TIMEOUT)
    sock.connect((host, node.port))
    return sock


def is_answered(sock):
    """Whether the connection is still of use."""
    try:
        sock.sendall(FRAMED)
        head = sock.recv(2, socket.MSG_WAITALL)
        return len(head) == 2 and len(sock.recv(struct.unpack("!H", head)[0], socket.MSG_WAITALL)) > 12
    except (ConnectionResetError, BrokenPipeError):
        return False


def answered(node, source, count, host="127.0.0.1"):
    """`count` connections, one after the other, each of which has been answered."""
    sockets = []
    for _ in range(count):
        sockets.append(connect(node, source, host))
        assert is_answered(sockets[-1])
    return sockets


@contextlib.contextmanager
def closing(*groups):
    try:
        yield
    finally:
        for group in groups:
            for sock in group:
                sock.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="addresses that are not on loopback need a namespace")
def test_no_more_than_max_per_client(nodes, directory):
    """Of each client; not of programs on loopback. After a reload within the new limit."""
    text = ". {{\n    tcp {{\n        max_per_client {}\n    }}\n    whoami\n}}\n"
    here = Namespace(directory, ["192.0.2.1/24", "192.0.2.2/24", "192.0.2.3/24"])
    try:
        with here.entered():
            node = nodes.start(text.format(5))
            one = answered(node, "192.0.2.2", 8, "192.0.2.1")
            other = answered(node, "192.0.2.3", 5, "192.0.2.1")
            local = answered(node, "127.0.0.1", 20)
            with closing(one, other, local):
                assert [is_answered(sock) for sock in one] == [False] * 3 + [True] * 5
                assert all(is_answered(sock) for sock in [*other, *local])
                with open(node.corefile_path, "w", encoding="ascii") as file:
                    file.write(text.format(7))
                node.signal(1)
                node.wait_logged("Reloading complete", 1)
                more = answered(node, "192.0.2.2", 3, "192.0.2.1")
                with closing(more):
                    assert [is_answered(sock) for sock in [*one[3:], *more]] == [False] + [True] * 7
            assert node.terminate() == 0
    finally:
        here.close()


def test_many_connections_of_one_client_cost_no_other_one_its_own(nodes):
    """With hardly any descriptors, and a client that opens connections without end."""
    node = nodes.make(". {\n    whoami\n}\n")
    node.launch(prefix=["prlimit", "--nofile=100:100", "--"])
    node.wait_answers()
    few = answered(node, "127.0.0.2", 5)
    many = []
    with closing(few, many):
        for i in range(500):
            many.append(connect(node, "127.0.0.3"))
            if i % 100 == 99:
                assert is_answered(many[-1]), "the last one is served"
                assert all(is_answered(sock) for sock in few)
        newcomers = [sock for i in range(4, 14) for sock in answered(node, f"127.0.0.{i}", 1)]
        with closing(newcomers):
            assert all(is_answered(sock) for sock in [*few, *newcomers])


def test_the_idle_timeout_is_configured(nodes):
    idle = 5 * TIME_FACTOR
    node = nodes.start(f". {{\n    tcp {{\n        idle {idle * 1000:.0f}ms\n    }}\n    whoami\n}}\n")
    silent, half, used = (connect(node, "127.0.0.1") for _ in range(3))
    with closing([silent, half, used]):
        start = time.monotonic()
        half.sendall(FRAMED[:1])  # half a length
        while time.monotonic() - start < 1.25 * idle:
            assert is_answered(used)
            time.sleep(0.1)  # a client that comes back now and then
        for sock in (silent, half):
            assert sock.recv(1) == b""
        assert is_answered(used)


# --- ten thousand ---

CONNECTIONS = 10_000
PER_SOURCE = 200
SLOW_READERS = 100
ROUNDS = 12
QUERIES = 10_000


def connections(node):
    """Ten thousand from fifty addresses: idle ones, ones with a part of a query, and ones that do not read."""
    sockets = []
    for i in range(CONNECTIONS):
        sockets.append(connect(node, f"127.0.8.{1 + i // PER_SOURCE}"))
        if i % 2:
            sockets[-1].sendall(struct.pack("!H", 2000))
    for sock in sockets[:2 * SLOW_READERS:2]:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                sock.send(FRAMED * 1000)
    return sockets


def quantile_99(udp, slow):
    """In seconds, of queries one after the other; every tenth time a slow client sends one byte more."""
    times = []
    for i in range(QUERIES):
        if slow and i % 10 == 0:
            random.choice(slow).send(b"\0")
        start = time.perf_counter()
        udp.send(QUERY)
        udp.recv(4096)
        times.append(time.perf_counter() - start)
    return statistics.quantiles(times, n=100)[98]


def room_for(descriptors):
    """Raises the limit of this process, and of those that it starts, if it can."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < descriptors:
        pytest.skip(f"no more than {hard} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, descriptors), hard))
    return soft, hard


@pytest.mark.serial
def test_ten_thousand_connections_do_not_slow_down_udp(nodes, record_property):
    """The 99th percentile over UDP, beside that of a node without a connection, in turns."""
    limits = room_for(CONNECTIONS + 2000)
    text = ". {\n    tcp {\n        idle 1h\n    }\n    whoami\n}\n"
    sockets = []
    try:
        busy, quiet = nodes.start(text), nodes.start(text)
        sockets = connections(busy)
        wait_until(lambda: sum(busy.connected_ports().values()) >= CONNECTIONS, 30, "all connections to be accepted")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as to_busy, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as to_quiet:
            for sock, node in ((to_busy, busy), (to_quiet, quiet)):
                sock.settimeout(TIMEOUT)
                sock.connect(("127.0.0.1", node.port))
            rounds = [(quantile_99(to_quiet, []), quantile_99(to_busy, sockets[1::2])) for _ in range(ROUNDS)]
        assert sum(busy.connected_ports().values()) >= CONNECTIONS, "all of them are still there"
        # The quietest round of each: what else this machine does comes and goes.
        baseline, loaded = (min(column) for column in zip(*rounds))
        figures = f"p99 {loaded * 1e6:.0f} us with {CONNECTIONS} connections, {baseline * 1e6:.0f} us without"
        record_property("figures", figures)
        print(figures)
        assert loaded <= 2 * baseline, figures
    finally:
        for sock in sockets:
            sock.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
