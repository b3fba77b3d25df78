"""Limits on the rate of responses: what a flood over UDP gets, and who is spared."""

import os
import time

import dns.edns
import dns.flags
import dns.message

from dns_client import RawUdp, exchange, make_query, rcode
from harness.metrics import Metrics
from harness.processes import wait_until
from harness.upstreams import Upstream

COOKIE = 10
CLIENT = bytes(range(8))


def configured(*options, handler="whoami"):
    lines = "".join(f"        {option}\n" for option in options)
    return f". {{\n    rrl {{\n{lines}    }}\n    {handler}\n}}\n"


def flood(node, name, count, **options):
    """What `count` queries at once get: how many whole answers, how many empty ones with TC, and how many seconds the node
    had for them, each of which brings another allowance."""
    slipped = whole = 0
    with RawUdp(node.port) as udp:
        query = make_query(name, **options)
        last = make_query("last.example.")  # the first of its name: it is answered, and what was dropped before it does not come
        begin = time.monotonic()
        for _ in range(count):
            udp.send(query.to_wire())
        udp.send(last.to_wire())
        while True:
            data = udp.receive()
            if data[:2] == last.to_wire()[:2]:
                return whole, slipped, time.monotonic() - begin
            response = dns.message.from_wire(data)
            if response.flags & dns.flags.TC:
                slipped += 1
                assert not response.answer and len(data) <= len(query.to_wire()) + 28
            else:
                whole += 1


def test_a_flood_is_answered_by_the_allowance_and_each_second_slips(nodes):
    node = nodes.start(configured("responses-per-second 5", "errors-per-second 2"))
    whole, slipped, took = flood(node, "a.example.", 45)
    assert 5 <= whole <= 5 * (2 + took) and (45 - whole) // 2 - 1 <= slipped <= (45 - whole + 1) // 2
    assert exchange(node, make_query("b.example.")).additional, "another name"
    assert exchange(node, make_query("a.example."), tcp=True).additional, "TCP is not limited"
    refused, slipped, took = flood(node, "a.example.", 20, rdclass="CH")
    assert 2 <= refused <= 2 * (2 + took) and slipped >= (20 - refused) // 2 - 1, "all errors together"


def test_names_without_number_are_one(nodes, directory, free_port):
    """What a wildcard, or a DNAME, answers: else each random name has an account of its own."""
    path = os.path.join(directory, "zone")
    with open(path, "w", encoding="ascii") as file:
        file.write("$ORIGIN example.\n$TTL 60\n@ SOA ns m 1 2 3 4 5\n@ NS ns\n*.a A 192.0.2.1\n*.b CNAME x.a\n*.c CNAME c.elsewhere.\n"
                   "d DNAME e\n*.e A 192.0.2.1\n$GENERATE 0-6 f$ A 192.0.2.$\n")
    hosts = os.path.join(directory, "hosts")
    with open(hosts, "w", encoding="ascii") as file:
        file.write("192.0.2.1 *.h.example\n")
    node = nodes.start(configured("responses-per-second 3", "slip-ratio 0", handler=f"prometheus 127.0.0.1:{(port := free_port())}\n"
                                  f"    hosts {hosts} h.example\n    file {path} example"))
    for account, (names, rdtype) in enumerate((("r{0}.x{0}.a", "A"), ("r{0}.x{0}.a", "AAAA"), ("r{0}.x{0}.b", "A"), ("r{0}.x{0}.d", "A"), ("r{0}.h", "A"))):
        begin = time.monotonic()
        with RawUdp(node.port) as udp:
            for number in range(30):
                udp.send(make_query(f"{names.format(number)}.example.", rdtype).to_wire())
            last = make_query(f"f{account}.example.").to_wire()  # the first of its name
            udp.send(last)
            got = 0
            while udp.receive()[:2] != last[:2]:
                got += 1
        assert 1 <= got <= 3 * (2 + time.monotonic() - begin), names

    def dropped():
        return Metrics.of(port).sum("idetcd_rrl_dropped_total")
    before = dropped()
    with RawUdp(node.port) as udp:
        for number in range(150):
            udp.send(make_query(f"r{number}.c.example.").to_wire())
        wait_until(lambda: dropped() - before >= 60, 20, "answers that come late are counted, too")
    assert [str(exchange(node, make_query(f"f{number}.example.")).answer[0][0]) for number in (5, 6)] == ["192.0.2.5", "192.0.2.6"]


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
        whole, slipped, took = flood(node, "a.example.", 30)
        assert whole <= 3 * (2 + took) and slipped == 0


def test_requests(nodes):
    node = nodes.start(configured("requests-per-second 10"))
    with RawUdp(node.port) as udp:
        begin = time.monotonic()
        for i in range(60):
            udp.send(make_query(f"n{i}.example.").to_wire())
        udp.sock.settimeout(0.5)
        count = 0
        last = make_query("last.example.").to_wire()
        data = None
        while data is None or data[:2] != last[:2]:  # until the allowance is enough for this one, too
            try:
                data = udp.receive()
                count += 1
            except TimeoutError:
                udp.send(last)
        took = time.monotonic() - begin
    assert 2 <= count <= 10 * (2 + took), "less what was asked until the node answered"
    assert rcode(exchange(node, make_query("n.example."), tcp=True)) == "NOERROR"


def test_report_only(nodes):
    node = nodes.start(configured("responses-per-second 1", "report-only"))
    assert flood(node, "a.example.", 40)[:2] == (40, 0)
