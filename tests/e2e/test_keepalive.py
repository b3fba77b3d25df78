"""How long a connection may be idle (edns-tcp-keepalive, RFC 7828), said to clients and heard of upstreams."""

import struct
import subprocess
import time

import dns.edns
import dns.message
import pytest

from dns_client import RawTcp, answers, exchange, make_query, rcode
from harness.processes import wait_until
from harness.upstreams import Upstream, answer

KEEPALIVE = 11
PLAIN = ". {\n    whoami\n}\n"


def with_option(data=b"", code=KEEPALIVE, name="a.example.", **more):
    return make_query(name, use_edns=0, options=[dns.edns.GenericOption(code, data)], **more)


def timeouts(response):
    """What the options say, in units of 100 ms."""
    return [struct.unpack("!H", option.data)[0] for option in response.options if int(option.otype) == KEEPALIVE]


@pytest.fixture(scope="module")
def node(shared_nodes):
    return shared_nodes.start(". {\n    tcp {\n        idle 1500ms\n    }\n    whoami\n}\n")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_timeout_is_said_over_tcp_to_who_asks(node, host):
    assert timeouts(exchange(node, with_option(), tcp=True, host=host)) == [15]
    assert timeouts(exchange(node, make_query("a.example.", use_edns=0), tcp=True, host=host)) == []
    assert exchange(node, make_query("a.example."), tcp=True, host=host).edns == -1


def test_it_is_the_one_in_force(node):
    """A connection that was told 1.5 s is closed after that, and not before."""
    with RawTcp(node.port) as tcp:
        start = time.monotonic()
        response = dns.message.from_wire(tcp.ask(with_option().to_wire()))
        assert timeouts(response) == [15]
        assert tcp.ended()
        assert time.monotonic() - start >= 1.49  # the server's clock counts whole milliseconds


def test_over_udp_it_is_ignored(node):
    for data in (b"", b"\0\5", b"x"):
        response = exchange(node, with_option(data))
        assert rcode(response) == "NOERROR" and not response.options


def test_a_query_that_says_a_timeout_is_a_format_error(node):
    for data in (b"\0\5", b"\0", b"\0\0\0"):
        response = exchange(node, with_option(data), tcp=True)
        assert rcode(response) == "FORMERR" and not response.answer and not timeouts(response)


def test_refusals_say_it_too(node):
    response = exchange(node, with_option(name="a.example.", rdclass="CH"), tcp=True)
    assert rcode(response) == "REFUSED" and timeouts(response) == [15]
    newer = with_option()
    newer.use_edns(1, options=newer.options)
    response = exchange(node, newer, tcp=True)
    assert rcode(response) == "BADVERS" and not response.options, "nothing else of another version is looked at"


def test_late_answers_say_it_too(nodes):
    with Upstream() as upstream:
        node = nodes.start(f". {{\n    cache\n    forward . {upstream.address}\n}}\n")
        for _ in range(2):  # the second one is from the cache
            assert timeouts(exchange(node, with_option(), tcp=True)) == [100]


def test_dig(node):
    def dig(*options):
        command = ["dig", "@127.0.0.1", "-p", str(node.port), "a.example.", "+keepalive", *options]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout
    assert "TCP-KEEPALIVE: 1.5 secs" in dig("+tcp").replace("TCP KEEPALIVE", "TCP-KEEPALIVE")
    assert "KEEPALIVE" not in dig("+notcp")


def test_kdig(node):
    command = ["kdig", "@127.0.0.1", "-p", str(node.port), "+tcp", "+ednsopt=11", "a.example.", "b.example.", "+keepopen"]
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout
    assert output.count("status: NOERROR") == 2, output


def test_when_there_are_too_many_clients_are_asked_to_go(nodes):
    """With room for few connections: the time-out shrinks, and at last it is 0."""
    node = nodes.make(PLAIN)
    node.launch(prefix=["prlimit", "--nofile=100:100", "--"])
    node.wait_answers()
    said, sockets = [], []
    try:
        for i in range(70):
            tcp = RawTcp(node.port)
            sockets.append(tcp)
            said += timeouts(dns.message.from_wire(tcp.ask(with_option().to_wire())))
        # On a busy machine one that is closed meanwhile makes room again.
        assert sorted(set(said), key=said.index) == [100, 25, 0], said
        assert sockets[said.index(0)].ended(), "who does not go is closed"
    finally:
        for tcp in sockets:
            tcp.sock.close()


# --- upstreams ---

class Connections:
    """An upstream's handler that answers over TCP with `timeout`, and notes what it was asked."""

    def __init__(self, timeout):
        self.timeout, self.asked = timeout, []

    def __call__(self, query, tcp):
        self.asked.append([bytes(option.data) for option in query.options if int(option.otype) == KEEPALIVE])
        response = answer(query, "A 192.0.2.1")
        if tcp:
            response.use_edns(0, options=[dns.edns.GenericOption(KEEPALIVE, struct.pack("!H", self.timeout))])
        return response


def forwarding(nodes, upstream, *options):
    lines = "".join(f"        {option}\n" for option in options)
    return nodes.start(f". {{\n    forward . {upstream.address} {{\n{lines}    }}\n}}\n")


def test_upstreams_are_asked_over_streams_only(nodes):
    handler = Connections(600)
    with Upstream(handler) as upstream:
        node = forwarding(nodes, upstream)
        assert answers(node, "a.example.") == answers(node, "b.example.", tcp=True) == ["192.0.2.1"]
        assert [tcp for _, tcp in upstream.queries] == [False, True]
        assert handler.asked[0] == [] and handler.asked[-1] == [b""]


@pytest.mark.parametrize("timeout, stays", [(600, True), (0, False)])
def test_a_connection_that_an_upstream_wants_closed_is_not_used_again(nodes, timeout, stays):
    with Upstream(Connections(timeout)) as upstream:
        node = forwarding(nodes, upstream, "force_tcp")
        for i in range(5):
            assert answers(node, f"n{i}.example.") == ["192.0.2.1"]
        # Another one is opened as well where the upstream, a thread of ours, is late.
        assert 1 <= upstream.connections < 4 if stays else upstream.connections >= 5
        if not stays:
            wait_until(lambda: node.connected_ports()[upstream.port] == 0, 5, "the connections to close")


def test_a_connection_is_closed_before_the_upstream_would(nodes):
    with Upstream(Connections(10)) as upstream:
        upstream.idle = 3600
        node = forwarding(nodes, upstream, "force_tcp", "expire 1h")
        assert answers(node, "a.example.") == ["192.0.2.1"]
        wait_until(lambda: node.connected_ports()[upstream.port] == 0, 10, "the connection to close")
        before = upstream.connections
        assert answers(node, "b.example.") == ["192.0.2.1"] and upstream.connections > before
