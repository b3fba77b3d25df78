"""zonelimit: a flood of random names of one zone leaves all others what they need."""

import concurrent.futures
import socket
import time

import dns.rcode
import dns.rrset
import pytest

from dns_client import RawUdp, answers, ask, exchange, extended_errors, make_query, rcode
from harness.processes import TIME_FACTOR, wait_until
from harness.upstreams import Upstream, answer

LIMIT = 200
FLOOD = 5000
ROOM = 1000  # of `max_concurrent`
VICTIM = ".victim.example."
FAILURE_TIME = 2  # seconds: no question is given up sooner


@pytest.fixture
def upstream():
    """Servers of one zone never answer."""
    with Upstream(lambda query, tcp: None if query.question[0].name.to_text().endswith(VICTIM) else answer(query, "A 192.0.2.1")) as running:
        yield running


def start(nodes, upstream, zonelimit):
    return nodes.start(f""". {{
    cache
    {zonelimit}
    forward . {upstream.address} {{
        max_concurrent {ROOM}
        max_fails 0
    }}
}}
""")


def forwarded(upstream):
    return len({name for name in upstream.names() if name.endswith(VICTIM)})


def flood(node, upstream):
    """FLOOD names, as fast as the node takes them: each is answered at once, or on its way to the upstream."""
    received = 0
    with RawUdp(node.port) as udp:
        udp.sock.settimeout(None)  # a timeout makes MSG_DONTWAIT wait

        def drain():
            nonlocal received
            try:
                while udp.sock.recv(65535, socket.MSG_DONTWAIT):
                    received += 1
            except BlockingIOError:
                pass
            return received

        for sent in range(FLOOD):
            udp.send(make_query(f"r{sent}{VICTIM}").to_wire())
            if sent % 50 == 49:
                wait_until(lambda s=sent: s + 1 - drain() - forwarded(upstream) <= 50, 20, "the node to take the flood", interval=0.002)


def look_up_others(node):
    """200 names of as many zones, at the same time as the flood is on its way."""
    def look_up(i):  # however late the upstream is, a thread of this busy process
        response = exchange(node, make_query(f"www.zone{i}.example."), timeout=10 * TIME_FACTOR)
        return [rdata.to_text() for rrset in response.answer for rdata in rrset] or rcode(response)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        return list(pool.map(look_up, range(200)))


def test_a_flood_of_one_zone_leaves_the_others_alone(nodes, upstream):
    node = start(nodes, upstream, f"zonelimit {LIMIT}")
    assert answers(node, "www.kept.example.") == ["192.0.2.1"]
    began = time.monotonic()
    flood(node, upstream)
    # At once, while those before it are on their way; later it would take the place of one that has been given up.
    refused = exchange(node, make_query(f"late{VICTIM}", use_edns=0), timeout=10 * TIME_FACTOR)
    assert rcode(refused) == "SERVFAIL" and extended_errors(refused) == [22]
    assert look_up_others(node) == [["192.0.2.1"]] * 200
    elapsed = time.monotonic() - began
    assert LIMIT <= forwarded(upstream) <= LIMIT * (1 + elapsed // FAILURE_TIME)


def test_without_it_a_flood_takes_all_the_room(nodes, upstream):
    node = start(nodes, upstream, "")
    flood(node, upstream)
    assert forwarded(upstream) >= ROOM


def test_names_of_the_zone_that_are_kept_are_answered(nodes, upstream):
    known = upstream.handler
    upstream.handler = lambda query, tcp: answer(query, "A 192.0.2.9")
    node = start(nodes, upstream, f"zonelimit {LIMIT}")
    assert answers(node, f"www{VICTIM}") == ["192.0.2.9"]
    upstream.handler = known
    flood(node, upstream)
    assert answers(node, f"www{VICTIM}") == ["192.0.2.9"]


def test_other_zones_below_one_suffix(nodes):
    """What a denial has said of a zone is known when its neighbour is flooded."""
    def respond(query, tcp):
        name = query.question[0].name.to_text()
        if name.endswith("shop.cloud.example."):
            return None
        response = answer(query, rcode=dns.rcode.NXDOMAIN)
        response.authority.append(dns.rrset.from_text("bank.cloud.example.", 300, "IN", "SOA", "ns. host. 1 2 3 4 300"))
        return response

    with Upstream(respond) as upstream:
        node = start(nodes, upstream, "zonelimit 10")
        assert rcode(ask(node, "no.bank.cloud.example.")) == "NXDOMAIN"
        with RawUdp(node.port) as udp:
            for i in range(10):
                udp.send(make_query(f"r{i}.shop.cloud.example.").to_wire())
            wait_until(lambda: sum(name.endswith("shop.cloud.example.") for name in upstream.names()) >= 10, 10, "the flood to be asked")
            assert rcode(ask(node, "r10.shop.cloud.example.")) == "SERVFAIL"
            assert rcode(ask(node, "www.bank.cloud.example.")) == "NXDOMAIN"
