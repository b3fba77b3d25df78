"""Few descriptors: what comes and goes (clients over TCP, questions to upstreams) shares them, and leaves enough for etcd."""

import collections
import contextlib
import os
import re
import resource
import signal
import socket
import struct
import threading
import time

import dns.exception
import pytest

from dns_client import answers, ask, make_query, rcode, resolves, wait_resolves
from harness.node import binary
from harness.processes import TIME_FACTOR, wait_until
from harness.upstreams import Upstream

pytestmark = pytest.mark.serial

ADDRESSES = [f"127.0.7.{i}" for i in range(1, 21)]
COREFILE = """(etcd) {{
    bind {addresses}
    workers 2
    errors
}}
. {{
    import etcd
    idetcd {{
        endpoint {endpoint}
        pattern worker{{{{.ID}}}}.tf.internal.
        address 192.0.2.7
        lease 3s
    }}
    forward . {live}
}}
dead.test {{
    import etcd
    forward . 127.0.0.1:{silent}
}}
dead6.test {{
    import etcd
    forward . [::1]:{silent6}
}}
late.test {{
    import etcd
    forward . {late}
}}
"""


@pytest.fixture
def silent():
    """Sockets that are not read, of both families; the ports."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as v4, socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as v6:
        v4.bind(("127.0.0.1", 0))
        v6.bind(("::1", 0))
        yield v4.getsockname()[1], v6.getsockname()[1]


class LateUpstream:
    """Answers each datagram after half a second."""

    DELAY = 0.5

    def __init__(self):
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.sock.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.sock.getsockname()[1]}"
        self.ended = False
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        queue = collections.deque()
        while not self.ended:
            self.sock.settimeout(max(0.001, queue[0][0] - time.monotonic()) if queue else 0.05)
            with contextlib.suppress(TimeoutError):
                packet, client = self.sock.recvfrom(4096)
                queue.append((time.monotonic() + self.DELAY, packet, client))
            while queue and queue[0][0] <= time.monotonic():
                _, packet, client = queue.popleft()
                self.sock.sendto(late_answer(packet), client)

    def close(self):
        self.ended = True
        self.thread.join()
        self.sock.close()


def late_answer(query):
    """One A record, 192.0.2.2, without the work of dnspython."""
    end = query.index(b"\0", 12) + 5
    record = struct.pack("!HHHIH4B", 0xC00C, 1, 1, 60, 4, 192, 0, 2, 2)
    return query[:2] + struct.pack("!5H", 0x8180, 1, 1, 0, 0) + query[12:end] + record


@pytest.fixture
def upstreams():
    late = LateUpstream()
    with Upstream() as live:
        yield live, late
    late.close()


def text(etcd, silent, upstreams):
    live, late = upstreams
    return COREFILE.format(addresses=" ".join(ADDRESSES), endpoint=etcd.endpoint, silent=silent[0], silent6=silent[1],
                           live=live.address, late=late.address)


def descriptors(node):
    return len(os.listdir(f"/proc/{node.pid}/fd"))


def limited(nodes, corefile, limit):
    with open(binary(), "rb") as file:
        if b"libubsan" in file.read():
            pytest.skip("UBSan itself needs descriptors: it probes memory through a pipe")
    node = nodes.make(corefile)
    node.launch(prefix=["prlimit", f"--nofile={limit}:{limit}", "--"])
    node.wait_answers(host=ADDRESSES[0])
    return node


class Flood:
    """Questions without hope, from several ports to several addresses."""

    def __init__(self, node, zones):
        self.node, self.zones, self.count = node, zones, 0
        self.sockets = []
        for address in ADDRESSES[:8]:
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sock.setblocking(False)
            sock.connect((address, node.port))
            self.sockets.append(sock)

    def send(self, count):
        for _ in range(count):
            self.count += 1
            zone = self.zones[self.count % len(self.zones)]
            query = make_query(f"n{self.count}.{zone}").to_wire()
            with contextlib.suppress(BlockingIOError):
                self.sockets[self.count % len(self.sockets)].send(query)
            if self.count % 50 == 0:
                time.sleep(0.001)

    def close(self):
        for sock in self.sockets:
            sock.close()


def connect(host, port):
    sock = socket.socket()
    sock.settimeout(5 * TIME_FACTOR)
    sock.connect((host, port))
    return sock


def ask_over(sock, name):
    """The rcode over a connection; None if it is closed."""
    query = make_query(name).to_wire()
    try:
        sock.sendall(struct.pack("!H", len(query)) + query)
        head = sock.recv(2, socket.MSG_WAITALL)
        if len(head) < 2:
            return None
        return sock.recv(struct.unpack("!H", head)[0], socket.MSG_WAITALL)[3] & 0xF
    except (ConnectionResetError, BrokenPipeError):
        return None


def waiting_connections(port):
    """How many connections to `port` the server has yet to accept, over all its listeners."""
    with open("/proc/net/tcp", encoding="ascii") as table:
        rows = [line.split() for line in table][1:]
    return sum(int(row[4].split(":")[1], 16) for row in rows if row[3] == "0A" and int(row[1].split(":")[1], 16) == port)


def newcomer(node, host):
    """A client that connects after all others have been accepted: of a crowd it is unknown which came last."""
    wait_until(lambda: waiting_connections(node.port) == 0, 5, "every connection to be accepted")
    return connect(host, node.port)


def resolves_by_and_by(node, name, address, host):
    """A client repeats a question that was not answered."""
    said = []

    def condition():
        try:
            said.append(answers(node, name, host=host))
        except dns.exception.Timeout:
            said.append("nothing")
        return said[-1] == [address]

    wait_until(condition, 8, lambda: f"{name} to be resolved at {host}; it was {said}", interval=0.05)


@pytest.mark.parametrize("limit", [1024, 256])
def test_a_flood_of_everything(nodes, etcd, silent, upstreams, limit):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 8192)), hard))
    node = limited(nodes, text(etcd, silent, upstreams), limit)
    node.wait_owns(etcd)
    wait_until(lambda: resolves(node, "worker1.tf.internal.", "192.0.2.7", host=ADDRESSES[0]), 5, "the own name")
    resolves_by_and_by(node, "first.example.org.", "192.0.2.1", ADDRESSES[0])
    quiet = descriptors(node)
    log_before = len(node.out())
    flood = Flood(node, ["dead.test.", "dead6.test.", "late.test."])
    clients, most = [], 0
    try:
        for i in range(2000):
            clients.append(connect(ADDRESSES[i % len(ADDRESSES)], node.port))
            flood.send(2)
            if i % 100 == 0:
                most = max(most, descriptors(node))
                host = ADDRESSES[(i // 100) % len(ADDRESSES)]
                assert resolves(node, "worker1.tf.internal.", "192.0.2.7", host=host)
                clients.append(newcomer(node, host))
                assert ask_over(clients[-1], "worker1.tf.internal.") == 0, "the newcomer has its place"
                resolves_by_and_by(node, f"n{i}.example.org.", "192.0.2.1", host)
                etcd.put(f"db{i}.tf.internal.", '{"ipv4":"192.0.2.50"}')
                wait_until(lambda: resolves(node, f"db{i}.tf.internal.", "192.0.2.50", host=host), 2, "the mirror")
        flood.send(2000)
        most = max(most, descriptors(node))
        for i in range(10):
            resolves_by_and_by(node, f"m{i}.example.org.", "192.0.2.1", ADDRESSES[i])
        resolves_by_and_by(node, "x.late.test.", "192.0.2.2", ADDRESSES[0])
        assert most > limit * 0.75, "there was a shortage"
        assert most < limit, "and something left"
        clients.append(newcomer(node, ADDRESSES[3]))
        assert ask_over(clients[-1], "worker1.tf.internal.") == 0
    finally:
        for sock in clients:
            sock.close()
        flood.close()
    assert node.owned_name(etcd) == "worker1.tf.internal."
    # Servers that do not answer are still probed, by each worker; libuv keeps one in reserve.
    wait_until(lambda: descriptors(node) <= quiet + 6, 15, lambda: f"{descriptors(node)} descriptors to be {quiet}")
    lines = node.out()[log_before:].splitlines()
    own = [line for line in lines if not re.search(r"plugin/errors: 2 n\d+\.(dead|dead6|late)\.test\.", line)]
    assert len(own) < 60, own[:80]


def test_a_reload_without_descriptors_changes_nothing(nodes, etcd, upstreams, free_port):
    """However many are left: it is done, or refused; it never ends the process, and never does half."""
    live, _ = upstreams
    before = f"""tf.internal. {{
    idetcd {{
        endpoint {etcd.endpoint}
        pattern worker{{{{.ID}}}}.tf.internal.
        address 192.0.2.7
    }}
}}
. {{
    errors
    hosts {{
        fallthrough
    }}
    forward . {live.address}
}}
"""
    port = free_port()
    after = before + f"""new.test:{port} {{
    workers 3
    bind 127.0.0.1 127.0.7.1 127.0.7.2 127.0.7.3
    errors
    forward . {live.address}
}}
more.internal. {{
    idetcd {{
        endpoint {etcd.endpoint}
        pattern other{{{{.ID}}}}.more.internal.
        address 192.0.2.8
    }}
}}
"""
    node = nodes.start(before)
    node.wait_owns(etcd)
    resolves_by_and_by(node, "first.example.org.", "192.0.2.1", "127.0.0.1")
    resolves_by_and_by(node, "worker1.tf.internal.", "192.0.2.7", "::1")
    _, hard = resource.prlimit(node.pid, resource.RLIMIT_NOFILE)
    with open(node.corefile_path, "w", encoding="utf-8") as file:
        file.write(after)
    refused, settled = 0, descriptors(node)
    for spare in [0, 1, 2, 4, 8, 11, 12, 13, 14, 15, 16, 18, 20, 22, 24, 26, 28, 30, 33, 36, 40, 45, 50, 60, 80]:
        lines = len(node.out().splitlines())

        def outcome(lines=lines):
            return [line for line in node.out().splitlines()[lines:] if "Restart failed" in line or "Reloading comp" in line]

        wait_until(lambda: descriptors(node) <= settled, 5, lambda: f"{descriptors(node)} to be {settled}\n{node.logs()}")
        resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (settled + spare, hard))
        node.signal(signal.SIGHUP)
        (line,) = wait_until(lambda: not node.running() or outcome(), 5, lambda: f"a reload, {spare} left\n{node.logs()}")
        resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (hard, hard))
        if "Reloading comp" in line:
            break
        refused += 1
        assert resolves(node, "worker1.tf.internal.", "192.0.2.7"), spare
        assert node.answers(host="::1"), spare
        if spare in (0, 20):  # not always: a socket is kept for a while
            assert resolves(node, f"n{spare}.example.org.", "192.0.2.1", host="::1"), spare
        assert ask(node, "worker1.tf.internal.", tcp=True).answer, spare
    assert refused > 10, "there are many new listeners"
    wait_until(lambda: answers(node, "x.new.test.", port=port) == ["192.0.2.1"], 5, "the new block")
    wait_until(lambda: resolves(node, "other1.more.internal.", "192.0.2.8"), 10, "the new name")
    assert resolves(node, "worker1.tf.internal.", "192.0.2.7", host="::1")
