"""Limits on the rate of responses: what a flood over UDP gets, and who is spared."""

import dns.edns
import dns.flags
import dns.message

from dns_client import RawUdp, exchange, make_query, rcode
from harness.upstreams import Upstream

COOKIE = 10
CLIENT = bytes(range(8))


def configured(*options, handler="whoami"):
    lines = "".join(f"        {option}\n" for option in options)
    return f". {{\n    rrl {{\n{lines}    }}\n    {handler}\n}}\n"


def flood(node, name, count, **options):
    """What `count` queries at once get, before an answer that nobody limits: empty ones with TC, and all others."""
    slipped = whole = 0
    with RawUdp(node.port) as udp:
        query = make_query(name, **options)
        for _ in range(count):
            udp.send(query.to_wire())
        udp.sock.settimeout(1)  # the length of a silence that is meant: what was dropped does not come
        try:
            while True:
                data = udp.receive()
                response = dns.message.from_wire(data)
                if response.flags & dns.flags.TC:
                    slipped += 1
                    assert not response.answer and len(data) <= len(query.to_wire()) + 28
                else:
                    whole += 1
        except TimeoutError:
            return whole, slipped


def test_a_flood_is_answered_by_the_allowance_and_each_second_slips(nodes):
    node = nodes.start(configured("responses-per-second 5", "errors-per-second 2"))
    whole, slipped = flood(node, "a.example.", 45)
    assert 5 <= whole <= 10 and (45 - whole) // 2 - 1 <= slipped <= (45 - whole + 1) // 2
    assert exchange(node, make_query("b.example.")).additional, "another name"
    assert exchange(node, make_query("a.example."), tcp=True).additional, "TCP is not limited"
    refused, slipped = flood(node, "a.example.", 20, rdclass="CH")
    assert 2 <= refused <= 4 and slipped >= 7, "all errors together"


def test_a_good_cookie_is_not_limited(nodes):
    node = nodes.start(configured("responses-per-second 2", "slip-ratio 1"))

    def ask(server=b""):
        return exchange(node, make_query("a.example.", use_edns=0, options=[dns.edns.GenericOption(COOKIE, CLIENT + server)]))
    flood(node, "a.example.", 40)
    limited = ask()
    assert limited.flags & dns.flags.TC and not limited.additional
    server = bytes(limited.options[0].data)[8:]
    for _ in range(20):
        assert not ask(server).flags & dns.flags.TC, "the empty answer has brought a cookie, too"


def test_answers_that_come_late_are_limited_too(nodes):
    with Upstream() as upstream:
        node = nodes.start(configured("responses-per-second 3", "slip-ratio 0", handler=f"forward . {upstream.address}"))
        whole, slipped = flood(node, "a.example.", 30)
        assert whole <= 6 and slipped == 0


def test_requests(nodes):
    node = nodes.start(configured("requests-per-second 10"))
    with RawUdp(node.port) as udp:
        for i in range(60):
            udp.send(make_query(f"n{i}.example.").to_wire())
        udp.sock.settimeout(1)  # as above
        count = 0
        try:
            while udp.receive():
                count += 1
        except TimeoutError:
            pass
    assert 8 <= count <= 20, "less what was asked until the node answered"
    assert rcode(exchange(node, make_query("n.example."), tcp=True)) == "NOERROR"


def test_report_only(nodes):
    node = nodes.start(configured("responses-per-second 1", "report-only"))
    assert flood(node, "a.example.", 40) == (40, 0)
