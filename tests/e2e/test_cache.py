"""The cache as clients and upstreams see it: what is asked again, what is not, and what answers from memory look like."""

import time

import dns.edns
import dns.flags
import dns.rcode
import dns.rrset
import pytest

from dns_client import EDE_STALE_ANSWER, answers, ask, exchange, extended_errors, make_query, rcode
from harness.processes import TIME_FACTOR, wait_until
from harness.upstreams import Upstream, answer

EDE_STALE_NXDOMAIN = 19


class World:
    """An upstream that gives every name one address, says how often it was asked, and does what it is told to."""

    def __init__(self):
        self.ttl = 300
        self.records = ["A 192.0.2.1"]
        self.rcode = dns.rcode.NOERROR
        self.soa = None  # its minimum
        self.flags = 0
        self.silent = False
        self.server = Upstream(self._answer).start()

    def _answer(self, query, tcp):
        if self.silent:
            return None
        response = answer(query, *self.records, rcode=self.rcode, ttl=self.ttl)
        response.flags |= self.flags
        if self.soa is not None:
            response.authority.append(dns.rrset.from_text("example.org.", 3600, "IN", "SOA", f"ns. host. 1 2 3 4 {self.soa}"))
        return response

    def deny(self, code=dns.rcode.NXDOMAIN, soa=None):
        self.records, self.rcode, self.soa = [], code, soa

    def count(self, name="www.example.org."):
        return self.server.names().count(name)


@pytest.fixture
def world():
    world = World()
    yield world
    world.server.close()


@pytest.fixture
def start(world, nodes):
    """start(option...) -> a node with these options of `cache`; `line`: its arguments."""
    def make(*options, line="", directives=(), trust_ad=False):
        block = "".join(f"        {option}\n" for option in options)
        rest = "".join(f"    {directive}\n" for directive in directives)
        return nodes.start(f""". {{
    cache {line} {{
{block}    }}
{rest}    forward . {world.server.address} {{
        max_fails 0
        {"trust-ad" if trust_ad else ""}
    }}
}}
""")
    return make


def ttl(response, section="answer"):
    (rrset,) = getattr(response, section)
    return rrset.ttl


def wait_ttl_below(node, limit, name="www.example.org."):
    """Until a second has passed, as the cache counts them."""
    return wait_until(lambda: ttl(ask(node, name)) < limit and ttl(ask(node, name)), 5, "the TTL to be counted down", interval=0.05)


# --- time to live ---

def test_ttls_are_counted_down(start, world):
    node = start()
    assert ttl(ask(node, "www.example.org.")) == 300
    assert 290 < wait_ttl_below(node, 300) < 300
    assert world.count() == 1


def test_keepttl(start, world):
    node = start("keepttl")
    other = start()
    assert ttl(ask(node, "www.example.org.")) == ttl(ask(other, "www.example.org.")) == 300
    wait_ttl_below(other, 300)
    assert ttl(ask(node, "www.example.org.")) == 300


@pytest.mark.parametrize("sent, seen", [(1, 5), (7200, 3600), (2**31 - 1, 3600)])
def test_ttls_have_bounds(start, world, sent, seen):
    """And whoever asks first is told the same as who asks next."""
    world.ttl = sent
    node = start()
    assert [ttl(ask(node, "www.example.org.")) for _ in range(2)] == [seen, seen]
    assert world.count() == 1


@pytest.mark.parametrize("sent", [0, 2**31, 2**32 - 1], ids=["0", "top bit", "all bits"])
def test_a_ttl_of_zero_is_not_cached(start, world, sent):
    def handler(query, tcp):
        wire = bytearray(answer(query, "A 192.0.2.1").to_wire())
        at = wire.index(b"\xc0\x0c\x00\x01\x00\x01", 12) + 6
        wire[at:at + 4] = sent.to_bytes(4, "big")
        return bytes(wire)

    world.server.handler = handler
    node = start()
    assert [ttl(ask(node, "www.example.org.")) for _ in range(2)] == [0, 0]
    assert world.count() == 2


def test_the_corefiles_bounds(start, world):
    node = start("success 100 60 20", "denial 100 30 10")
    world.ttl = 3600
    assert ttl(ask(node, "a.example.org.")) == 60
    world.ttl = 1
    assert ttl(ask(node, "b.example.org.")) == 20
    world.deny(soa=3600)
    assert ttl(ask(node, "c.example.org."), "authority") == 30
    world.deny(soa=1)
    assert ttl(ask(node, "d.example.org."), "authority") == 10
    world.__dict__.update(records=["A 192.0.2.1"], rcode=0, soa=None, ttl=3600)
    assert ttl(ask(start(line="30"), "e.example.org.")) == 30


# --- what is one question ---

def test_do_and_cd_are_cached_apart(start, world):
    node = start()
    for _ in range(2):
        for do in (False, True):
            for cd in (0, dns.flags.CD):
                query = make_query("www.example.org.", use_edns=0 if do else False, want_dnssec=do)
                query.flags |= cd
                response = exchange(node, query)
                assert rcode(response) == "NOERROR" and response.flags & dns.flags.CD == cd
                assert bool(response.ednsflags & dns.flags.DO) == do
    assert world.count() == 4
    asked = {(bool(q.ednsflags & dns.flags.DO), bool(q.flags & dns.flags.CD)) for q, _ in world.server.queries[-4:]}
    assert len(asked) == 4


def test_edns_and_case_are_not(start, world):
    node = start()
    for name, options in (("www.example.org.", {}), ("WWW.Example.ORG.", {}), ("www.example.org.", {"use_edns": 0})):
        response = ask(node, name, **options)
        assert response.question[0].name.to_text() == name and len(response.answer) == 1
        assert response.edns == options.get("use_edns", -1)
    assert ask(node, "www.example.org.", tcp=True).answer
    assert world.count() == 1


def test_types_are(start, world):
    node = start()
    world.records = []
    world.soa = 60
    assert not ask(node, "www.example.org.", "AAAA").answer
    world.records, world.soa = ["A 192.0.2.1"], None
    assert ask(node, "www.example.org.").answer and not ask(node, "www.example.org.", "AAAA").answer
    assert world.count() == 2


def test_ad_is_for_those_who_know_it(start, world):
    world.flags = dns.flags.AD
    node = start(trust_ad=True)
    for _ in range(2):
        assert not ask(node, "www.example.org.").flags & dns.flags.AD
        query = make_query("www.example.org.")
        query.flags |= dns.flags.AD
        assert exchange(node, query).flags & dns.flags.AD
    assert world.count() == 1


def test_who_wants_no_recursion_neither_fills_nor_reads_the_cache(start, world):
    """Else anybody could see what others have asked for."""
    node = start()
    query = make_query("www.example.org.")
    query.flags &= ~dns.flags.RD
    assert rcode(exchange(node, query)) == "REFUSED" and world.count() == 0
    assert ask(node, "www.example.org.").answer
    for tcp in (False, True):
        response = exchange(node, query, tcp=tcp)
        assert rcode(response) == "REFUSED" and not response.answer
    assert world.count() == 1


# --- what is no answer ---

@pytest.mark.parametrize("code", [dns.rcode.NXDOMAIN, dns.rcode.NOERROR], ids=["nxdomain", "nodata"])
def test_denials(start, world, code):
    world.deny(code, soa=120)
    node = start()
    for _ in range(3):
        response = ask(node, "www.example.org.")
        assert response.rcode() == code and not response.answer
        assert 110 < ttl(response, "authority") <= 120, "the least of what the SOA says, though its TTL was an hour"
    assert world.count() == 1


@pytest.mark.parametrize("code", [dns.rcode.NXDOMAIN, dns.rcode.NOERROR], ids=["nxdomain", "nodata"])
def test_denials_without_soa_are_not_cached(start, world, code):
    world.deny(code)
    node = start()
    for _ in range(2):
        assert ask(node, "www.example.org.").rcode() == code
    assert world.count() == 2


@pytest.mark.parametrize("code", [dns.rcode.SERVFAIL, dns.rcode.REFUSED], ids=["servfail", "refused"])
def test_failures_are_cached_for_a_moment(start, world, code):
    world.deny(code)
    brief, never = start("servfail 1s"), start("servfail 0")
    for node, queries in ((brief, 1), (never, 3)):
        before = world.count()
        for _ in range(3):
            assert ask(node, "www.example.org.").rcode() == code
        assert world.count() == before + queries
    world.__dict__.update(records=["A 192.0.2.1"], rcode=0)
    wait_until(lambda: rcode(ask(brief, "www.example.org.")) == "NOERROR", 5, "the failure to be forgotten", interval=0.1)


def test_that_nobody_answers_is_cached(start, world):
    node = start("servfail 2s")
    world.server.stop()
    before = ask(node, "www.example.org.", use_edns=0)
    world.server.start()
    again = ask(node, "www.example.org.", use_edns=0)
    assert rcode(before) == rcode(again) == "SERVFAIL" and extended_errors(before) == extended_errors(again) == [23]
    assert world.count() == 0
    wait_until(lambda: rcode(ask(node, "www.example.org.")) == "NOERROR", 10, "the failure to be forgotten", interval=0.2)


def test_truncated_answers_are_never_cached(start, world):
    world.flags = dns.flags.TC
    node = start("servfail 0")
    assert rcode(ask(node, "www.example.org.")) == "SERVFAIL"
    world.flags = 0
    assert answers(node, "www.example.org.") == ["192.0.2.1"]


def test_what_the_corefile_does_not_want(start, world):
    node = start("disable success")
    assert [rcode(ask(node, "www.example.org.")) for _ in range(2)] == ["NOERROR"] * 2 and world.count() == 2
    world.deny(soa=60)
    assert [rcode(ask(node, "no.example.org.")) for _ in range(2)] == ["NXDOMAIN"] * 2 and world.count("no.example.org.") == 1
    node = start("disable denial", line="example.org")
    assert [rcode(ask(node, "never.example.org.")) for _ in range(2)] == ["NXDOMAIN"] * 2 and world.count("never.example.org.") == 2
    world.__dict__.update(records=["A 192.0.2.1"], rcode=0, soa=None)
    assert [rcode(ask(node, "in.example.org.")) for _ in range(2)] == ["NOERROR"] * 2 and world.count("in.example.org.") == 1
    assert [rcode(ask(node, "out.example.net.")) for _ in range(2)] == ["NOERROR"] * 2 and world.count("out.example.net.") == 2


# --- stale answers ---

def expire(node, name="www.example.org.", fresh=lambda response: not extended_errors(response)):
    """Until the cache has nothing fresh; what it says then."""
    def stale():
        response = dns.query.udp(make_query(name, use_edns=0), "127.0.0.1", port=node.port, timeout=8 * TIME_FACTOR)
        return None if fresh(response) else response
    return wait_until(stale, 10, "the answer to be old", interval=0.1)


SHORT = ("success 100 3600 1", "denial 100 3600 1", "servfail 1s")


@pytest.mark.parametrize("mode", ["", "1h immediate"])
def test_serve_stale(start, world, mode):
    world.ttl = 1
    node = start(f"serve_stale {mode}", *SHORT)
    assert answers(node, "www.example.org.") == ["192.0.2.1"]
    world.silent = True
    response = expire(node)
    assert rcode(response) == "NOERROR" and extended_errors(response) == [EDE_STALE_ANSWER]
    assert response.answer[0][0].to_text() == "192.0.2.1" and ttl(response) == 30
    wait_until(lambda: world.count() >= 2, 5, "it to be asked for again behind the client's back")
    world.records, world.ttl, world.silent = ["A 192.0.2.2"], 300, False
    wait_until(lambda: answers(node, "www.example.org.") == ["192.0.2.2"], 10, "the new answer", interval=0.1)


def test_serve_stale_denials(start, world):
    world.deny(soa=1)
    node = start("serve_stale", *SHORT)
    assert rcode(ask(node, "www.example.org.")) == "NXDOMAIN"
    world.silent = True
    response = expire(node)
    assert rcode(response) == "NXDOMAIN" and extended_errors(response) == [EDE_STALE_NXDOMAIN]


def test_serve_stale_verify(start, world):
    """The upstream first; what is old only if it does not answer, or fails."""
    world.ttl = 1
    node = start("serve_stale 1h verify", *SHORT)
    assert answers(node, "www.example.org.") == ["192.0.2.1"]
    world.records = ["A 192.0.2.2"]
    response = expire(node, fresh=lambda response: response.answer[0][0].to_text() == "192.0.2.1")
    assert not extended_errors(response), "not once the old one"
    world.deny(dns.rcode.SERVFAIL)
    response = expire(node)
    assert rcode(response) == "NOERROR" and extended_errors(response) == [EDE_STALE_ANSWER]
    assert response.answer[0][0].to_text() == "192.0.2.2"
    world.silent = True
    response = ask(node, "www.example.org.", use_edns=0)
    assert extended_errors(response) == [EDE_STALE_ANSWER], "before a client gives up"


@pytest.mark.parametrize("mode", ["immediate", "verify"])
@pytest.mark.parametrize("silent", [False, True], ids=["servfail", "silent"])
def test_a_failing_upstream_is_left_alone(start, world, mode, silent):
    """RFC 8767 section 5: what was asked for in vain is not asked for again by every client."""
    world.ttl = 1
    node = start(f"serve_stale 1h {mode}", *SHORT)
    assert answers(node, "www.example.org.") == ["192.0.2.1"]
    if silent:
        world.silent = True
    else:
        world.deny(dns.rcode.SERVFAIL)
    expire(node)
    wait_until(lambda: world.count() >= 2, 5, "the upstream to be asked again")
    before = world.count()
    slowest = 0
    for _ in range(200):
        begin = time.monotonic()
        response = ask(node, "www.example.org.", use_edns=0)
        slowest = max(slowest, time.monotonic() - begin)
        assert response.answer[0][0].to_text() == "192.0.2.1" and extended_errors(response) == [EDE_STALE_ANSWER]
    assert slowest < 1.5, "nobody waits for it"
    assert world.count() <= before + (2 if silent else 0), "the one question's own attempts"


def test_too_old_is_too_old(start, world):
    world.ttl = 1
    node = start("serve_stale 1s", *SHORT)
    none = start(*SHORT)
    for each in (node, none):
        assert answers(each, "www.example.org.") == ["192.0.2.1"]
    world.deny(dns.rcode.SERVFAIL)
    for each in (node, none):
        expire(each, fresh=lambda response: rcode(response) == "NOERROR")


# --- before they are old ---

def test_prefetch(start, world):
    world.ttl = 10
    node = start("prefetch 2 1m 90%")
    for _ in range(3):
        ask(node, "www.example.org.")
    assert world.count() == 1
    world.records = ["A 192.0.2.2"]
    wait_until(lambda: ttl(ask(node, "www.example.org.")) < 9 or world.count() > 1, 10, "a tenth of the TTL", interval=0.1)
    wait_until(lambda: answers(node, "www.example.org.") == ["192.0.2.2"], 5, "the next answer")
    assert world.count() == 2 and ttl(ask(node, "www.example.org.")) >= 8


# --- how much ---

def test_a_scan_leaves_the_hot_names(start, world):
    node = start("success 200")
    hot = [f"hot{i}.example.org." for i in range(50)]
    for _ in range(4):
        for name in hot:
            ask(node, name)
    for i in range(1000):
        ask(node, f"scan{i}.example.org.")
    asked = len(world.server.queries)
    for name in hot:
        assert answers(node, name) == ["192.0.2.1"]
    assert len(world.server.queries) - asked <= 2


# --- on the way out ---

def test_hop_by_hop_options_stay_here(start, world):
    node = start()
    options = [dns.edns.GenericOption(dns.edns.NSID, b""), dns.edns.GenericOption(10, b"8octets."), dns.edns.GenericOption(12, bytes(40)),
               dns.edns.GenericOption(11, b""), dns.edns.ECSOption("198.51.100.0"), dns.edns.GenericOption(65001, b"x")]
    for tcp in (False, True):
        query = make_query(f"tcp-{tcp}.example.org.", use_edns=0, payload=4096, options=options)
        assert rcode(exchange(node, query, tcp)) == "NOERROR"
        asked = world.server.queries[-1][0]
        assert asked.edns == 0 and not asked.options and asked.payload == 1232


def test_minimal(start, world):
    plain, minimal = start(), start(directives=["minimal"])
    world.soa = 60

    def sections(node):
        return [(len(response.answer), len(response.authority)) for response in (ask(node, "www.example.org.") for _ in range(2))]

    assert sections(plain) == [(1, 1)] * 2
    assert sections(minimal) == [(1, 0)] * 2
    world.deny(soa=60)
    response = ask(minimal, "no.example.org.")
    assert rcode(response) == "NXDOMAIN" and len(response.authority) == 1, "a denial needs its SOA"


def test_loadbalance(start, world):
    world.records = [f"A 192.0.2.{i}" for i in range(1, 5)]
    node = start(directives=["loadbalance"])
    firsts = {ask(node, "www.example.org.").answer[0][0].to_text() for _ in range(40)}
    assert firsts == {f"192.0.2.{i}" for i in range(1, 5)} and world.count() == 1
