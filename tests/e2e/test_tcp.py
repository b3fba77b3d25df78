"""DNS over TCP (RFC 7766): framing, pipelining, and clients that behave badly."""

import os
import socket
import struct
import time

import dns.edns
import dns.flags
import dns.rcode
import pytest

from dns_client import RawTcp, answers, ask, header, question, resolves
from harness.processes import assert_takes_less, wait_until
from harness.upstreams import Upstream, answer
from hostile_node import NAME, node, still_answers  # noqa: F401 (fixtures)

pytestmark = pytest.mark.hostile

QUESTION = question(NAME)


def message(query_id):
    packet = header(query_id) + QUESTION
    return struct.pack("!H", len(packet)) + packet


def message_id(data):
    return struct.unpack("!H", data[:2])[0]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_one_after_the_other_on_one_connection(node, host):
    with RawTcp(node.port, host) as tcp:
        for query_id in range(1, 21):
            tcp.send(message(query_id))
            assert message_id(tcp.receive_message()) == query_id


def test_a_thousand_pipelined(node):
    count = 1000
    with RawTcp(node.port) as tcp:
        tcp.send(b"".join(message(query_id) for query_id in range(count)))
        received = [message_id(tcp.receive_message()) for _ in range(count)]
    assert sorted(received) == list(range(count))


def test_pipelined_faster_than_read(node):
    """A client that only writes: its answers pile up somewhere bounded, and it alone waits."""
    with RawTcp(node.port) as tcp:
        tcp.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        tcp.sock.settimeout(1)
        burst = b"".join(message(query_id) for query_id in range(2000))
        sent = 0
        try:
            for _ in range(50):
                tcp.sock.sendall(burst)
                sent += 2000
        except (TimeoutError, ConnectionResetError, BrokenPipeError):
            pass  # pushed back, or cut off: both keep the memory bounded
        assert resolves(node, NAME, "192.0.2.7")


@pytest.mark.parametrize("cuts", [(1,), (2,), (3,), (1, 2, 3), (14,), tuple(range(1, 36))])
def test_a_message_in_pieces(node, cuts):
    data = message(7) + message(8)
    with RawTcp(node.port) as tcp:
        begin = 0
        for cut in (*cuts, len(data)):
            tcp.send(data[begin:cut])
            begin = cut
            time.sleep(0.002)  # so that the pieces are pieces
        assert message_id(tcp.receive_message()) == 7
        assert message_id(tcp.receive_message()) == 8


def test_two_and_a_half_messages_at_once(node):
    with RawTcp(node.port) as tcp:
        data = message(1) + message(2) + message(3)
        tcp.send(data[:-10])
        assert message_id(tcp.receive_message()) == 1
        assert message_id(tcp.receive_message()) == 2
        tcp.send(data[-10:])
        assert message_id(tcp.receive_message()) == 3


@pytest.mark.parametrize("length", range(12))
def test_messages_too_short_for_a_header(node, length):
    """Closed, as nothing sensible can follow; or ignored. Never answered."""
    with RawTcp(node.port) as tcp:
        try:
            tcp.send(struct.pack("!H", length) + b"\0" * length)
            tcp.send(message(9))
            data = tcp.receive_message()
        except (ConnectionResetError, BrokenPipeError):
            return
        assert data is None or message_id(data) == 9


def test_half_close(node):
    """A client that has said all it has to say still gets its answers."""
    with RawTcp(node.port) as tcp:
        tcp.send(message(1) + message(2) + message(3))
        tcp.sock.shutdown(socket.SHUT_WR)
        assert [message_id(tcp.receive_message()) for _ in range(3)] == [1, 2, 3]
        assert tcp.receive_message() is None, "then the connection ends"


def test_half_close_inside_a_message(node):
    with RawTcp(node.port) as tcp:
        tcp.send(message(1) + message(2)[:10])
        tcp.sock.shutdown(socket.SHUT_WR)
        assert message_id(tcp.receive_message()) == 1
        assert tcp.ended()


def test_half_close_at_once(node):
    with RawTcp(node.port) as tcp:
        tcp.sock.shutdown(socket.SHUT_WR)
        assert tcp.ended()


def test_reset(node):
    for data in (b"", b"\0", message(1)[:9], message(1) * 50):
        tcp = RawTcp(node.port)
        tcp.send(data)
        # SO_LINGER 0: close() sends RST.
        tcp.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        tcp.sock.close()


def test_a_response_is_not_answered(node):
    packet = header(5, 0x8000) + QUESTION
    with RawTcp(node.port) as tcp:
        try:
            tcp.send_message(packet)
            tcp.send(message(6))
            data = tcp.receive_message()
        except (ConnectionResetError, BrokenPipeError):
            return
        assert data is None or message_id(data) == 6


def test_the_longest_message(node):
    """65,535 bytes: a good question and padding behind it, or nothing but zeros."""
    with RawTcp(node.port) as tcp:
        tcp.send_message(header(5) + QUESTION + b"\0" * (65535 - 12 - len(QUESTION)))
        data = tcp.receive_message()
        assert data is None or message_id(data) == 5
    with RawTcp(node.port) as tcp:
        try:
            tcp.send_message(b"\0" * 65535)
            tcp.receive_message()
        except (ConnectionResetError, BrokenPipeError):
            pass


def test_garbage_that_is_no_dns(node):
    for data in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00" + b"\1" * 200, b"\xff" * 1000):
        with RawTcp(node.port) as tcp:
            tcp.send(data)


def test_many_connections(node):
    connections = []
    try:
        for _ in range(200):
            connections.append(RawTcp(node.port))
        for query_id, tcp in enumerate(connections):
            tcp.send(message(query_id))
        for query_id, tcp in enumerate(connections):
            assert message_id(tcp.receive_message()) == query_id
    finally:
        for tcp in connections:
            tcp.sock.close()


def test_slow_writers_slow_down_nobody_else(node):
    slow = []
    try:
        for _ in range(50):
            tcp = RawTcp(node.port)
            tcp.send(b"\0")
            slow.append(tcp)
        def attempt(_):
            begin = time.monotonic()
            for _ in range(50):
                assert resolves(node, NAME, "192.0.2.7")
            assert resolves(node, NAME, "192.0.2.7", tcp=True)
            return time.monotonic() - begin
        assert_takes_less(2, attempt)
    finally:
        for tcp in slow:
            tcp.sock.close()


def test_idle_and_trickling_connections_are_closed(node):
    """A query must be completed from time to time: bytes alone keep nothing open."""
    with RawTcp(node.port) as silent, RawTcp(node.port) as half, RawTcp(node.port) as trickle, RawTcp(node.port) as served:
        half.send(message(1)[:20])
        served.send(message(2))
        assert message_id(served.receive_message()) == 2
        data = iter(struct.pack("!H", 500) + b"\0" * 500)
        closed = set()

        def all_closed():
            try:
                trickle.send(bytes([next(data)]))
            except (ConnectionResetError, BrokenPipeError):
                closed.add(trickle)
            for tcp in (silent, half, trickle, served):
                tcp.sock.settimeout(0.05)
                try:
                    if tcp.ended():
                        closed.add(tcp)
                except TimeoutError:
                    pass
            return len(closed) == 4

        wait_until(all_closed, 30, lambda: f"four connections to be closed, not {len(closed)}", interval=0.2)


def test_connections_that_come_and_go(node):
    for _ in range(300):
        RawTcp(node.port).sock.close()
    descriptors = f"/proc/{node.pid}/fd"
    wait_until(lambda: len(os.listdir(descriptors)) < 100, 10, lambda: f"{len(os.listdir(descriptors))} descriptors to close")


@pytest.mark.parametrize("use_edns", [False, 0], ids=["plain", "EDNS"])
def test_an_answer_as_long_as_a_message_can_be_arrives(nodes, use_edns):
    """OPT has no room beside it, and no transport has more."""
    long_answer(nodes, 65535, use_edns=use_edns)


def test_an_answer_that_has_room_for_opt_but_not_for_its_options_has_opt(nodes):
    options = [dns.edns.GenericOption(dns.edns.COOKIE, b"12345678"), dns.edns.GenericOption(dns.edns.NSID, b"")]
    for response in long_answer(nodes, 65520, use_edns=0, options=options):
        assert response.edns == 0 and not response.options


def long_answer(nodes, size, **options):
    name = "long.example."
    rest = size - 12 - (len(name) + 1 + 4) - 12  # header, question, and a record's owner, type, class, TTL and length
    strings = ["x" * 255] * (rest // 256) + ["y" * (rest % 256 - 1)]

    def long(query, tcp):
        response = answer(query, "TXT " + " ".join(f'"{text}"' for text in strings)) if tcp else answer(query)
        response.use_edns(False)
        assert not tcp or len(response.to_wire()) == size
        response.flags |= 0 if tcp else dns.flags.TC
        return response

    with Upstream(long) as upstream:
        server = nodes.start(f". {{\n nsid name\n cookies\n forward . {upstream.address}\n cache\n}}\n")
        responses = []
        for _ in range(2):  # of the upstream, and of the cache
            response = ask(server, name, "TXT", tcp=True, **options)
            responses.append(response)
            assert response.rcode() == dns.rcode.NOERROR and not response.flags & dns.flags.TC
            assert len(response.answer[0][0].strings) == len(strings)
    return responses
