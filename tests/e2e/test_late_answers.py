"""Answers that come when an upstream does: how large they may be, what they say of this node, and clients that do not
read them."""

import signal
import socket
import struct
import threading

import dns.edns
import dns.flags
import dns.message
import pytest

from corefiles import corefile
from dns_client import RawTcp, answers, ask, header, question, record, wait_says
from harness.processes import TIME_FACTOR, wait_until
from harness.upstreams import Upstream, answer

NSID = dns.edns.GenericOption(dns.edns.NSID, b"")
LONGEST = ".".join(["a" * 63, "b" * 63, "c" * 63, "d" * 61]) + "."


class LateUpstream(Upstream):
    """Answers nothing until release() is called; then all it was asked, and at once from then on."""

    def __init__(self, handler=None):
        super().__init__(self._wait)
        self._respond = handler or (lambda query, tcp: answer(query, "A 192.0.2.1"))
        self._released = threading.Event()

    def release(self):
        self._released.set()

    def hold(self):
        self._released.clear()

    def _wait(self, query, tcp):
        self._released.wait(10 * TIME_FACTOR)
        return self._respond(query, tcp)

    def wait_asked(self, count=1):
        wait_until(lambda: len(self.queries) >= count, 10, "the upstream to be asked")


@pytest.fixture
def late():
    """A function that starts one."""
    running = []

    def start(handler=None):
        running.append(LateUpstream(handler).start())
        return running[-1]

    yield start
    for upstream in running:
        upstream.release()
        upstream.close()


class Waiting:
    """A query over UDP whose answer is awaited later."""

    def __init__(self, node, query):
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.settimeout(10 * TIME_FACTOR)
        self.sock.sendto(query.to_wire(), ("127.0.0.1", node.port))

    def receive(self):
        with self.sock:
            return self.sock.recv(65535)


def nsid_of(message):
    return [option.data for option in message.options if option.otype == dns.edns.NSID]


@pytest.mark.parametrize("size", [1, 200, 240, 255])
def test_what_does_not_fit_is_left_out(late, nodes, size):
    """The longest name, the longest NSID and the smallest payload: the NSID gives way, not the end of the buffer."""
    upstream = late()
    node = nodes.start(f". {{\n forward . {upstream.address}\n nsid {'n' * size}\n}}")
    waiting = Waiting(node, dns.message.make_query(LONGEST, "A", use_edns=0, payload=512, options=[NSID]))
    upstream.wait_asked()
    upstream.release()
    packet = waiting.receive()
    assert len(packet) <= 512
    response = dns.message.from_wire(packet)
    assert response.answer[0][0].to_text() == "192.0.2.1"
    assert nsid_of(response) == ([b"n" * size] if size <= 200 else [])
    assert nsid_of(ask(node, LONGEST, tcp=True, use_edns=0, options=[NSID])) == [b"n" * size]


def answer_meanwhile(late, nodes, etcd, happens):
    """What a query gets that waits for an upstream while `happens(node, upstream)`. On a busy machine that may take longer than
    a query waits: then it is tried again, with another node."""
    for _ in range(5):
        upstream = late()
        node = nodes.start(corefile(etcd.endpoint, directives=[f"forward . {upstream.address}"]))
        node.wait_owns(etcd)
        wait_says(node, "worker1.tf.local.")
        waiting = Waiting(node, dns.message.make_query("www.example.org.", "A", use_edns=0, options=[NSID]))
        upstream.wait_asked()
        happens(node, upstream)
        upstream.release()
        response = dns.message.from_wire(waiting.receive())
        if response.answer:
            return response
        assert node.terminate() == 0
        etcd.delete("worker1.tf.local.")
    raise AssertionError("never within the time of a query")


def test_an_answer_that_leaves_after_the_name_was_lost_does_not_say_it(late, nodes, etcd):
    def loses_its_name(node, upstream):
        with open(node.corefile_path, "w", encoding="utf-8") as file:
            file.write(f". {{\n forward . {upstream.address}\n}}")
        node.signal(signal.SIGHUP)
        wait_until(lambda: not etcd.names(), 4, "the name to be given up")
    assert nsid_of(answer_meanwhile(late, nodes, etcd, loses_its_name)) == []


def test_an_answer_says_the_name_of_the_moment_at_which_it_leaves(late, nodes, etcd):
    def takes_another_name(node, _):
        etcd.put("worker1.tf.local.", '{"ipv4":"198.51.100.1"}')  # another has it now
        wait_says(node, "worker2.tf.local.", timeout=4)
    assert nsid_of(answer_meanwhile(late, nodes, etcd, takes_another_name)) == [b"worker2.tf.local"]


def test_who_has_said_all_still_gets_late_answers(late, nodes):
    """A half-close ends the queries of the client, not the answers."""
    upstream = late()
    node = nodes.start(f". {{\n forward . {upstream.address} {{\n prefer_udp\n }}\n}}")
    with RawTcp(node.port) as tcp:
        tcp.sock.settimeout(10 * TIME_FACTOR)
        for number in range(3):
            tcp.send_message(header(number, flags=0x0100) + question(f"{number}.example.org."))
        tcp.sock.shutdown(socket.SHUT_WR)
        upstream.wait_asked()
        answers(node, "localhost.")  # a round of the loop has seen the end by then
        upstream.release()
        assert sorted(tcp.receive_message()[:2] for _ in range(3)) == [b"\0\0", b"\0\1", b"\0\2"]
        assert tcp.ended()


# --- clients that do not read ---

TEXTS = b"".join(record(b"\xc0\x0c", 16, 1, 60, bytes([250]) + b"%04d" % i + b"x" * 246) for i in range(240))


def large(query, tcp):
    """Some 63 KB, over TCP."""
    if not tcp:
        response = answer(query)
        response.flags |= dns.flags.TC
        return response
    asked = query.question[0]
    return header(query.id, flags=0x8180, an=240) + question(asked.name.to_text(), asked.rdtype) + TEXTS


def resident_kb(node):
    with open(f"/proc/{node.pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


def pipeline(node, count, name, receive_buffer=None):
    """A connection on which `count` questions were asked."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if receive_buffer:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.settimeout(30 * TIME_FACTOR)
    sock.connect(("127.0.0.1", node.port))
    packets = (header(i, flags=0x0100) + question(name(i), 16) for i in range(count))
    sock.sendall(b"".join(struct.pack("!H", len(packet)) + packet for packet in packets))
    return sock


def established(port, peer_port):
    """Whether this side of a connection on 127.0.0.1 is open."""
    with open("/proc/net/tcp", encoding="ascii") as file:
        lines = [line.split() for line in file][1:]
    return any(local.endswith(f":{port:04X}") and remote.endswith(f":{peer_port:04X}") and state == "01"
               for _, local, remote, state, *_ in lines)


def not_received(port, peer_port):
    """Bytes that the kernel still has for the other side of a connection on 127.0.0.1, in whatever state that is."""
    with open("/proc/net/tcp", encoding="ascii") as file:
        lines = [line.split() for line in file][1:]
    return sum(int(queues.split(":")[0], 16) for _, local, remote, _, queues, *_ in lines
               if local.endswith(f":{port:04X}") and remote.endswith(f":{peer_port:04X}"))


def read_exactly(sock, size):
    data = bytearray()
    while len(data) < size:
        more = sock.recv(min(65536, size - len(data)))
        if not more:
            return None
        data += more
    return bytes(data)


def read_all(sock, count):
    """The IDs of that many messages, each of which must be whole and large."""
    ids = []
    for _ in range(count):
        prefix = read_exactly(sock, 2)
        assert prefix, f"closed after {len(ids)} answers"
        message = read_exactly(sock, struct.unpack("!H", prefix)[0])
        assert len(message) > 60000 and message[3] & 15 == 0, message[:12]
        ids.append(struct.unpack("!H", message[:2])[0])
    return sorted(ids)


@pytest.mark.parametrize("cache", ["cache", ""], ids=["cached", "not cached"])
@pytest.mark.parametrize("distinct", [False, True], ids=["one name", "many names"])
def test_answers_that_are_not_read_yet_are_put_off_and_none_is_lost(late, nodes, cache, distinct):
    """128 questions on each of 20 connections for 63 KB that come late: 160 MB, of which a few are kept in memory. Who
    reads later gets all of them."""
    connections, questions = 20, 128
    upstream = late(large)
    node = nodes.start(f". {{\n {cache}\n forward . {upstream.address}\n}}")
    name = (lambda i: f"{i}.example.org.") if distinct else (lambda i: "large.example.org.")
    upstream.release()
    assert ask(node, name(0), "TXT", tcp=True).answer
    before = resident_kb(node)
    upstream.hold()
    asked = len(upstream.queries)
    name_later = (lambda i: f"later-{i}.example.org.") if distinct else (lambda i: "later.example.org.")
    clients = [pipeline(node, questions, name_later, receive_buffer=65536) for _ in range(connections)]
    try:
        upstream.wait_asked(asked + 1)
        upstream.release()
        first, *others = clients
        assert read_all(first, questions) == list(range(questions))
        grown = resident_kb(node) - before
        assert grown < connections * 512 + (20 << 10), f"{grown} KB for {connections} connections"
        for client in others[:3]:
            assert read_all(client, questions) == list(range(questions))
    finally:
        for client in clients:
            client.close()


def test_a_client_that_does_not_read_is_closed(late, nodes):
    upstream = late(large)
    node = nodes.start(f". {{\n cache\n forward . {upstream.address}\n}}")
    with pipeline(node, 128, lambda i: "large.example.org.", receive_buffer=65536) as client:
        upstream.wait_asked()
        upstream.release()
        # A client that does not read does not see the end either, but the server's side of the connection shows it.
        wait_until(lambda: not established(node.port, client.getsockname()[1]), 30, "the connection to be closed", interval=0.1)
        assert not_received(node.port, client.getsockname()[1]) == 0, "the kernel keeps nothing for it either"
    assert answers(node, "large.example.org.", "TXT", tcp=True)
