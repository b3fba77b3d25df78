"""`timeouts` and `cancel`: how long connections may be idle, and queries may take."""

import select
import socket
import struct
import threading
import time

import dns.rcode
import dns.rdatatype
import pytest

from dns_client import RawTcp, RawUdp, answers, ask, exchange, extended_errors, header, make_query, question, rcode
from harness.processes import TIME_FACTOR
from harness.upstreams import Upstream, answer

QUERY = make_query("a.example.").to_wire()
NO_REACHABLE_AUTHORITY = 22


def with_timeouts(*lines, directives="whoami"):
    block = "".join(f"        {line}\n" for line in lines)
    return f". {{\n    timeouts {{\n{block}    }}\n    {directives}\n}}\n"


def late(seconds):
    """A handler that takes so long."""
    def handler(query, tcp):
        del tcp
        time.sleep(seconds)  # the length of the fault
        return answer(query, "A 192.0.2.1")
    return handler


def seconds_until_closed(tcp):
    """After a query that is sent now."""
    start = time.monotonic()
    assert tcp.ask(QUERY)[:2] == QUERY[:2]
    assert tcp.ended()
    return time.monotonic() - start


# --- timeouts ---

def test_read_is_for_the_first_query_and_idle_for_the_next(nodes):
    read = 4 * TIME_FACTOR  # seconds: long enough for the query of the one that asks
    node = nodes.start(with_timeouts(f"read {read * 1000:.0f}ms", "idle 1h"))
    with RawTcp(node.port) as asking:
        asking.ask(QUERY)
        start = time.monotonic()
        with RawTcp(node.port) as silent, RawTcp(node.port) as slow:
            slow.send(struct.pack("!H", len(QUERY)) + QUERY[:7])
            assert silent.ended() and slow.ended()
            assert time.monotonic() - start >= read, "not before"
        assert asking.ask(QUERY)[:2] == QUERY[:2], "a connection that was of use is idle, and may be"


def test_idle_is_not_for_the_first_query(nodes):
    node = nodes.start(with_timeouts("read 1h", "idle 1s"))
    with RawTcp(node.port) as silent, RawTcp(node.port) as asking:
        assert seconds_until_closed(asking) >= 1
        assert seconds_until_closed(silent) >= 1, "it was still open, and is idle from now on"


def test_an_upstream_is_waited_for(nodes):
    """For longer than either: the client is not who is idle."""
    with Upstream(late(1.6)) as upstream:
        node = nodes.start(with_timeouts("read 1s", "idle 1s", directives=f"forward . {upstream.address} {{\n prefer_udp\n }}"))
        assert answers(node, "a.example.", tcp=True) == ["192.0.2.1"]


def test_write_is_for_clients_that_do_not_read(nodes):
    """They are cut off long before the others would be."""
    node = nodes.start(with_timeouts("write 1s", "read 1h", "idle 1h"))
    with RawTcp(node.port) as reading, socket.socket() as sock:
        reading.ask(QUERY)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", node.port))
        sock.settimeout(20 * TIME_FACTOR)
        burst = (struct.pack("!H", len(QUERY)) + QUERY) * 1000
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            while True:
                sock.sendall(burst)
        assert reading.ask(QUERY)[:2] == QUERY[:2]


# --- cancel ---

def silence(query, tcp):
    del query, tcp


def test_a_query_to_a_black_hole_is_cancelled(nodes):
    with Upstream(silence) as upstream:
        node = nodes.start(f". {{\n    cancel 700ms\n    errors\n    log\n    forward . {upstream.address}\n}}\n")
        for tcp in (False, True):
            start = time.monotonic()
            response = exchange(node, make_query(f"a{tcp:d}.example.", use_edns=0), tcp, timeout=20 * TIME_FACTOR)
            assert time.monotonic() - start >= 0.7
            assert rcode(response) == "SERVFAIL"
            assert extended_errors(response) == [NO_REACHABLE_AUTHORITY]
        node.wait_logged("cancelled after 700ms", 2)
        node.wait_logged('SERVFAIL qr,rd,ra', 2)


def test_it_is_cancelled_before_forward_gives_up(nodes):
    """The same upstream is not given up by then: its late answer reaches the cache."""
    with Upstream(late(1.5)) as upstream:
        node = nodes.start(f". {{\n    cancel 300ms\n    cache\n    forward . {upstream.address}\n}}\n")
        assert answers(node, "a.example.") == "SERVFAIL"
        deadline = time.monotonic() + 20 * TIME_FACTOR
        while rcode(ask(node, "a.example.")) != "NOERROR":
            assert time.monotonic() < deadline


def test_both_questions_of_dns64_have_one_limit(nodes):
    """It ends before that of a query that comes after the first question, and before the second one."""
    asked, slow = threading.Event(), threading.Event()

    def handler(query, tcp):
        if query.question[0].rdtype != dns.rdatatype.AAAA:
            return None
        if not asked.is_set():  # which may come once more
            asked.set()
            slow.wait(10 * TIME_FACTOR)
        return answer(query)

    with Upstream(handler) as upstream:
        node = nodes.start(f". {{\n    cancel 1s\n    dns64 {{\n allow_ipv4\n }}\n    forward . {upstream.address}\n}}\n")
        with RawUdp(node.port) as client, RawUdp(node.port) as other:
            client.send(header(1, 0x100) + question("a.example.", dns.rdatatype.AAAA))
            assert asked.wait(10 * TIME_FACTOR)
            time.sleep(0.3)  # of the time that the first question has, as such
            other.send(header(2, 0x100) + question("b.example.", dns.rdatatype.TXT))
            time.sleep(0.3)
            slow.set()
            ready, _, _ = select.select([client.sock, other.sock], [], [], 20 * TIME_FACTOR)
            assert ready and client.sock in ready
            assert client.receive()[3] & 15 == other.receive()[3] & 15 == dns.rcode.SERVFAIL


def test_what_is_answered_in_time_is_not_cancelled(nodes):
    with Upstream() as upstream:
        node = nodes.start(f". {{\n    cancel\n    errors\n    cache\n    forward . {upstream.address}\n}}\n")
        assert answers(node, "a.example.") == answers(node, "a.example.") == ["192.0.2.1"]
        assert "cancelled" not in node.out()
