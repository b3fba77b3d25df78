"""What one client's questions cost others: places, answers of a question that many wait for, and what leaves for the network."""

import contextlib
import select
import signal
import socket
import struct
import threading

import dns.rcode
import pytest

from dns_client import answers
from harness.namespace import Namespace
from harness.processes import TIME_FACTOR, wait_until
from harness.upstreams import Upstream, answer

EDE = struct.pack("!HH", 15, 2)  # the option's code and length
PATIENCE = 10 * TIME_FACTOR


def packet(name, number=0):
    """A query for `name` A, with EDNS."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.rstrip(".").split("."))
    return (struct.pack("!6H", number, 0x0100, 1, 0, 0, 1) + labels + b"\0" + struct.pack("!2H", 1, 1)
            + b"\0" + struct.pack("!HHIH", 41, 1232, 0, 0))


def code(response):
    return response[3] & 0xF


def is_truncated(response):
    return response[2] & 0x02 != 0


def client(node):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    sock.connect(("127.0.0.1", node.port))
    sock.settimeout(PATIENCE)
    return sock


def drain(sock):
    """What has come so far."""
    ready = select.poll()
    ready.register(sock, select.POLLIN)
    while ready.poll(0):
        yield sock.recv(4096)


def send_paced(sock, packets, each=50):
    """Thousands must fit the server's buffer."""
    for start in range(0, len(packets), each):
        for one in packets[start:start + each]:
            sock.send(one)
        threading.Event().wait(0.002)


class LiveOnly:
    """Answers names that begin with `live`, and `held` when the test wants it; of others it says nothing. Reads faster than a
    library would."""

    def __init__(self):
        self.held = []
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.sock.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.sock.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while query := self.sock.recvfrom(4096):
            octets, peer = query
            if len(octets) < 12:
                return
            kind = octets[13:17].lower()
            if kind not in (b"live", b"held"):
                continue
            end = octets.index(b"\0", 12) + 5
            reply = (octets[:2] + struct.pack("!5H", 0x8180, 1, 1, 0, 0) + octets[12:end]
                     + b"\xc0\x0c" + struct.pack("!2HIH4B", 1, 1, 60, 4, 192, 0, 2, 1), peer)
            if kind == b"live":
                self.sock.sendto(*reply)
            else:
                self.held.append(reply)

    def let_go(self):
        for reply in self.held:
            self.sock.sendto(*reply)

    def close(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"end", self.sock.getsockname())
        self._thread.join()
        self.sock.close()


@pytest.mark.serial
def test_a_flood_of_dead_names_costs_others_nothing(nodes):
    upstream = LiveOnly()
    try:
        node = nodes.start(f". {{\n forward . {upstream.address} {{\n max_fails 0\n }}\n}}\n")
        refused = []
        with client(node) as flooder:
            sent = 14000  # more than may be in flight
            send_paced(flooder, [packet(f"dead{i}.example.org.", i) for i in range(sent)])
            for i in range(300):
                send_paced(flooder, [packet(f"dead{sent + n}.example.org.", n) for n in range(20)])
                sent += 20
                refused += drain(flooder)
                with client(node) as other:
                    other.send(packet(f"live{i}.example.org.", i))
                    response = other.recv(4096)
                    assert code(response) == dns.rcode.NOERROR, f"query {i}, after {len(refused)} refusals"
            refused += drain(flooder)
        assert len(refused) > 300, "the room was full"
        assert all(code(response) == dns.rcode.SERVFAIL and EDE in response for response in refused)
    finally:
        upstream.close()


@pytest.fixture
def namespace(directory):
    space = Namespace(directory, [f"192.0.2.{i}/32" for i in range(1, 4)]
                      + [f"2001:db8:{net}::{i}/128" for net in (1, 2, 3) for i in range(1, 9)])
    yield space
    space.close()


@pytest.mark.serial
@pytest.mark.parametrize("flooders, other, server", [
    (["192.0.2.1"], "192.0.2.2", "192.0.2.3"),
    ([f"2001:db8:1::{i}" for i in range(1, 9)], "2001:db8:2::1", "2001:db8:3::1"),
], ids=["address", "slash64"])
def test_a_client_is_more_than_a_socket(nodes, namespace, flooders, other, server):
    """All sockets of an IPv4 address, all addresses of an IPv6 /64 have one share."""
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    with namespace.entered(), contextlib.ExitStack() as stack:
        upstream = LiveOnly()
        stack.callback(upstream.close)
        node = nodes.start(f". {{\n forward . {upstream.address} {{\n max_fails 0\n }}\n}}\n")

        def client_at(address):
            sock = stack.enter_context(socket.socket(family, socket.SOCK_DGRAM))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
            sock.bind((address, 0))
            sock.connect((server, node.port))
            sock.settimeout(PATIENCE)
            return sock

        sockets = [client_at(address) for address in flooders for _ in range(200 // len(flooders))]
        for i, sock in enumerate(sockets):
            send_paced(sock, [packet(f"dead{i}-{n}.example.org.", n) for n in range(70)])
        assert any(code(response) == dns.rcode.SERVFAIL for sock in sockets for response in drain(sock)), "the room is full"
        client = client_at(other)
        count = 1000
        send_paced(client, [packet(f"held{n}.example.org.", n) for n in range(count)])
        wait_until(lambda: len(upstream.held) >= count, 5, lambda: f"{len(upstream.held)} questions to arrive")
        upstream.let_go()
        for _ in range(count):
            assert code(client.recv(4096)) == dns.rcode.NOERROR


class Late:
    """An upstream whose answer, a large one, comes when it is let go."""

    def __init__(self, records=50):
        self.free = threading.Event()
        self.arrived = threading.Event()
        self.records = [f"A 192.0.2.{i}" for i in range(1, records + 1)]
        self.server = Upstream(self._answer).start()

    def _answer(self, query, tcp):
        if query.question[0].name.to_text().startswith("late"):
            self.arrived.set()
            self.free.wait(20)
        return answer(query, *self.records)


@pytest.fixture
def late():
    late = Late()
    yield late
    late.free.set()
    late.server.close()


def waiting_for(late):
    return f". {{\n cache\n forward . {late.server.address} {{\n max_fails 0\n }}\n}}\n"


def test_repetitions_are_not_amplified(nodes, late):
    """No client gets much more than it has sent: its address may be another's."""
    node = nodes.start(waiting_for(late))
    with client(node) as sock:
        packets = [packet("late.example.org.", number) for number in range(3000)]
        send_paced(sock, packets)
        assert late.arrived.wait(PATIENCE)
        responses = list(drain(sock))
        assert all(code(response) == dns.rcode.SERVFAIL and EDE in response for response in responses), "refused at once"
        late.free.set()
        while len(responses) < len(packets):
            responses.append(sock.recv(4096))
    assert late.server.names().count("late.example.org.") <= 6, "for each attempt of two seconds a datagram, and perhaps over TCP"
    in_full = [r for r in responses if code(r) == dns.rcode.NOERROR and not is_truncated(r)]
    assert 1 <= len(in_full) <= 4
    assert sum(map(len, responses)) < 1.5 * sum(map(len, packets))
    assert all(len(r) <= 2 * len(packets[0]) for r in responses if r not in in_full)


def test_a_retransmission_is_answered_once(nodes, late):
    node = nodes.start(waiting_for(late))
    with client(node) as sock:
        for _ in range(5):
            sock.send(packet("late.example.org.", 7))
        sock.send(packet("other.example.org.", 8))  # has been answered when all before it have been read
        assert late.arrived.wait(PATIENCE)
        late.free.set()
        numbers = [struct.unpack("!H", sock.recv(4096)[:2])[0] for _ in range(2)]
        assert sorted(numbers) == [7, 8]
        sock.settimeout(0.3)
        with pytest.raises(TimeoutError):
            sock.recv(4096)


@pytest.mark.parametrize("count", [1500])
def test_all_programs_of_a_machine_get_the_answer(nodes, late, count):
    """A reload meanwhile included."""
    node = nodes.start(waiting_for(late))
    clients = [client(node) for _ in range(count)]
    try:
        for start in range(0, count, 50):
            for sock in clients[start:start + 50]:
                sock.send(packet("late.example.org.", 1))
            assert answers(node, "localhost.") == ["127.0.0.1"]  # answered here: those before it have been read
        assert late.arrived.wait(PATIENCE)
        node.signal(signal.SIGHUP)
        wait_until(lambda: "Reloading complete" in node.out(), 5, node.logs)
        late.free.set()
        for sock in clients:
            response = sock.recv(4096)
            assert code(response) == dns.rcode.NOERROR and not is_truncated(response)
            assert struct.unpack("!H", response[6:8])[0] == len(late.records)
    finally:
        for sock in clients:
            sock.close()
    assert late.server.names().count("late.example.org.") <= 6, "for each attempt of two seconds a datagram, and perhaps over TCP"
