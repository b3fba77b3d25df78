"""The cache as clients and upstreams see it: what is asked again, what is not, and what answers from memory look like."""

import os
import signal
import time

import dns.edns
import dns.flags
import dns.rcode
import dns.rrset
import pytest

from dns_client import EDE_STALE_ANSWER, answers, ask, exchange, extended_errors, make_query, patient, rcode
from harness.dns_servers import Knot
from harness.processes import TIME_FACTOR, wait_until
from harness.upstreams import Upstream, answer

EDE_STALE_NXDOMAIN = 19
EDE_SYNTHESIZED = 29


class World:
    """An upstream that gives every name one address, says how often it was asked, and does what the test wants."""

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
    def make(*options, line="", directives=(), trust_ad=False, max_fails=0):
        block = "".join(f"        {option}\n" for option in options)
        rest = "".join(f"    {directive}\n" for directive in directives)
        return nodes.start(f""". {{
    cache {line} {{
{block}    }}
{rest}    forward . {world.server.address} {{
        max_fails {max_fails}
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
    """And the first client gets the same as the next one."""
    world.ttl = sent
    node = start("keepttl")  # else a second may pass between the two
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
    assert world.count() >= 2


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
    asked = []
    for _ in range(2):
        for do in (False, True):
            for cd in (0, dns.flags.CD):
                query = make_query("www.example.org.", use_edns=0 if do else False, want_dnssec=do)
                query.flags |= cd
                response = exchange(node, query)
                assert rcode(response) == "NOERROR" and response.flags & dns.flags.CD == cd
                assert bool(response.ednsflags & dns.flags.DO) == do
        asked.append(world.count())
    # A question that the upstream is slow to answer may be repeated.
    assert asked[0] == asked[1] >= 4
    assert len({(bool(q.ednsflags & dns.flags.DO), bool(q.flags & dns.flags.CD)) for q, _ in world.server.queries}) == 4


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
    """Else any client could see what others have asked for."""
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
    brief, never = start("servfail 5s"), start("servfail 0")
    for node, queries in ((brief, 1), (never, 3)):
        before = world.count()
        for _ in range(3):
            assert ask(node, "www.example.org.").rcode() == code
        assert world.count() == before + queries
    world.__dict__.update(records=["A 192.0.2.1"], rcode=0)
    wait_until(lambda: rcode(ask(brief, "www.example.org.")) == "NOERROR", 20, "the failure to be forgotten", interval=0.1)


def test_that_nobody_answers_is_cached(start, world):
    node = start("servfail 10s")
    world.server.stop()
    before = ask(node, "www.example.org.", use_edns=0)
    world.server.start()
    again = ask(node, "www.example.org.", use_edns=0)
    assert rcode(before) == rcode(again) == "SERVFAIL" and extended_errors(before) == extended_errors(again) == [23]
    assert world.count() == 0
    wait_until(lambda: rcode(ask(node, "www.example.org.")) == "NOERROR", 20, "the failure to be forgotten", interval=0.2)


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
        response = exchange(node, make_query(name, use_edns=0), timeout=8 * TIME_FACTOR)
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
    """RFC 8767 section 5: a question that failed is not asked again by every client."""
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
    took = []
    for _ in range(200):
        begin = time.monotonic()
        response = ask(node, "www.example.org.", use_edns=0)
        took.append(time.monotonic() - begin)
        assert response.answer[0][0].to_text() == "192.0.2.1" and extended_errors(response) == [EDE_STALE_ANSWER]
    assert sorted(took)[-20] < 1.5, "no client waits for it, but some for the machine"
    assert world.count() <= before + (2 if silent else 0), "the one question's own attempts"


@pytest.mark.parametrize("max_fails", [0, 2])
def test_a_silent_upstream_is_not_waited_for_name_by_name(start, world, max_fails):
    """Who asks for one name after the other waits for the first, and little for those behind it."""
    world.ttl = 1
    node = start("serve_stale 1h verify", *SHORT, max_fails=max_fails)
    names = [f"{i}.example.org." for i in range(20)]
    for name in names:
        assert answers(node, name) == ["192.0.2.1"]
    wait_until(lambda: answers(node, "late.example.org.") and world.count("late.example.org.") >= 3, 5, "all to be old", interval=0.1)
    world.silent = True
    begin = time.monotonic()
    for name in names:
        response = ask(node, name, use_edns=0)
        assert response.answer[0][0].to_text() == "192.0.2.1" and extended_errors(response) == [EDE_STALE_ANSWER]
    assert time.monotonic() - begin < 10 * TIME_FACTOR
    world.silent = False
    world.records = ["A 192.0.2.2"]
    wait_until(lambda: answers(node, "late.example.org.") == ["192.0.2.2"], 2, "an upstream that is there again to be believed first")


def test_the_times_of_serve_stale(start, world):
    """TIMEOUT, STALE_TTL and RECHECK of `verify`."""
    world.ttl = 1
    node = start("serve_stale 1h verify 300ms 7s 1s", *SHORT)
    assert answers(node, "www.example.org.") == ["192.0.2.1"]
    world.silent = True
    response = expire(node)
    assert ttl(response) == 7 and extended_errors(response) == [EDE_STALE_ANSWER]
    took = []
    while not took or took[-1] >= 1.7 and len(took) < 3:  # of three a busy machine may be late with some
        address = f"192.0.2.{2 + len(took)}"
        world.silent, world.records = False, [f"A {address}"]
        # The question that is on its way may have to end first: 4.5 s.
        wait_until(lambda a=address: answers(node, "www.example.org.") == [a], 10, "the upstream to be asked again", interval=0.1)
        world.silent = True
        begin = time.monotonic()
        wait_until(lambda: ttl(ask(node, "www.example.org.", use_edns=0)) == 7, 5, "the answer to be old again", interval=0.1)
        took.append(time.monotonic() - begin)
    assert took[-1] < 1.7, f"not the usual 1.8 s beside the second for which it was fresh: {took}"


@pytest.mark.parametrize("mode", ["immediate", "verify"])
@pytest.mark.parametrize("code", [dns.rcode.NXDOMAIN, dns.rcode.NOERROR], ids=["nxdomain", "nodata"])
def test_prefer_positive(start, world, mode, code):
    """An answer that is old rather than a denial that is not."""
    world.ttl = 1
    node = start(f"serve_stale 1h {mode} {'1s ' if mode == 'verify' else ''}7s 0", "serve_stale_policy prefer_positive", *SHORT)
    assert answers(node, "www.example.org.") == ["192.0.2.1"]
    world.deny(code, soa=60)
    def is_old():
        response = expire(node)
        return response.answer[0][0].to_text() == "192.0.2.1" and ttl(response) == 7
    assert is_old()
    asked = world.count()
    wait_until(lambda: is_old() and world.count() > asked + 1, 10, "the upstream to be asked again")
    assert is_old()
    world.records, world.rcode, world.soa = ["A 192.0.2.2"], dns.rcode.NOERROR, None
    wait_until(lambda: answers(node, "www.example.org.") == ["192.0.2.2"], 10, "the new answer", interval=0.1)


def test_disabled_zones(start, world):
    node = start("disable success example.org", "disable denial example.net")
    for name, kept in (("www.example.org.", False), ("www.example.net.", True)):
        for _ in range(3):
            assert answers(node, name) == ["192.0.2.1"]
        assert world.count(name) == (1 if kept else 3)


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


@pytest.mark.parametrize("code", [dns.rcode.FORMERR, dns.rcode.SERVFAIL, dns.rcode.NOTIMP, dns.rcode.REFUSED, dns.rcode.NOTAUTH])
def test_a_failure_is_cached_whatever_its_rcode(start, world, code):
    node = start("servfail 5m")
    world.deny(code)
    assert rcode(ask(node, "www.example.org.")) == dns.rcode.to_text(code)
    asked = world.count()
    for _ in range(10):
        assert rcode(ask(node, "www.example.org.")) == dns.rcode.to_text(code)
    assert world.count() == asked


# --- how much ---

def reload(node, before, after):
    """With `after` in the place of `before` in the Corefile."""
    with open(node.corefile_path, encoding="ascii") as file:
        text = file.read()
    assert before in text
    with open(node.corefile_path, "w", encoding="ascii") as file:
        file.write(text.replace(before, after))
    done = node.out().count("Reloading complete")
    node.signal(signal.SIGHUP)
    node.wait_logged("Reloading complete", done + 1)


def count_kept(node, world, names):
    """How many of the names are answered without the upstream."""
    for name in names:
        assert answers(node, name) == ["192.0.2.1"]
    return sum(world.count(name) == 1 for name in names)


def test_a_reload_keeps_what_is_cached(start, world):
    node = start("success 1000 3600 1", directives=["workers 2"])
    names = [f"n{i}.example.org." for i in range(20)]

    def all_have_all():
        # Each worker has a cache, and which one is asked is the kernel's choice.
        for name in names:
            ask(node, name)
        return all(world.count(name) == 2 for name in names)

    wait_until(all_have_all, 10, "both caches to have all names")
    asked = [world.count(name) for name in names]
    for before, after in (("    workers 2\n", "    workers 2\n    errors\n"),  # other directives
                          ("success 1000 3600 1", "success 2000 100 1"),  # other options
                          ("max_fails 0", "max_fails 3"),  # another upstream
                          ("    errors\n", "    private 10.0.0.0/8\n")):
        kept = before != "    errors\n"
        reload(node, before, after)
        for _ in range(10):
            for name in names:
                assert answers(node, name) == ["192.0.2.1"]
        assert ([world.count(name) for name in names] == asked) == kept, "what was not filtered is not kept"


def test_a_broken_reload_changes_nothing_of_the_cache(start, world):
    node = start("success 1000 3600 1")
    names = [f"n{i}.example.org." for i in range(5)]
    assert count_kept(node, world, names) == 5
    with open(node.corefile_path, encoding="ascii") as file:
        text = file.read()
    with open(node.corefile_path, "w", encoding="ascii") as file:
        # Found only once the caches have been made: the second block's address is nobody's here.
        file.write(text.replace("success 1000 3600 1", "success 1 10 1") + "b.org {\n    bind 192.0.2.77\n    whoami\n}\n")
    node.signal(signal.SIGHUP)
    node.wait_logged("Restart failed", 1)
    assert count_kept(node, world, names) == 5
    names.append("other.example.org.")
    assert count_kept(node, world, names) == 6, "the capacity is what it was"
    with open(node.corefile_path, "w", encoding="ascii") as file:
        # For which there is a new cache.
        file.write(text.replace("    cache", "    private\n    cache") + "b.org {\n    bind 192.0.2.77\n    whoami\n}\n")
    node.signal(signal.SIGHUP)
    node.wait_logged("Restart failed", 2)
    with open(node.corefile_path, "w", encoding="ascii") as file:
        file.write(text)
    reload(node, "max_fails 0", "max_fails 3")
    assert count_kept(node, world, names) == 6, "the next reload goes on with what was in use"


def test_blocks_with_the_same_keys_do_not_share_what_is_cached(nodes):
    """Views: what one learns is not for the clients of the other, before and after a reload."""
    def view(address):
        return Upstream(lambda query, tcp: answer(query, f"A {address}"))
    with view("192.0.2.1") as one, view("192.0.2.2") as other:
        text = (f". {{\n bind 127.0.0.1\n cache\n forward . {one.address}\n}}\n"
                f". {{\n bind 127.0.0.2\n cache\n forward . {other.address}\n}}\n")
        node = nodes.start(text)
        def ask_both():
            assert answers(node, "view.example.org.") == ["192.0.2.1"]
            assert answers(node, "view.example.org.", host="127.0.0.2") == ["192.0.2.2"]
            return [server.names().count("view.example.org.") for server in (one, other)]

        asked = ask_both()
        reload(node, " cache\n", " cache\n errors\n")
        assert ask_both() == asked, "each was kept"


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
        assert asked.edns == 0 and asked.payload == 1232
        # A cookie is the node's own (RFC 7873 §5.1), and so is the wish to keep its connection (RFC 7828 §3.2.1).
        own = {10, 11} if tcp else {10}
        assert not [option for option in asked.options if option.otype not in own or option.data.startswith(b"8octets.")]


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


# --- NXDOMAIN cut (RFC 8020) ---

def test_a_name_that_does_not_exist_stands_for_all_below_it(start, world):
    world.deny(soa=300)
    node = start("nxdomain_cut")
    plain = start()
    assert rcode(ask(node, "no.example.org.")) == "NXDOMAIN"
    for name, rdtype in (("a.no.example.org.", "A"), ("b.a.NO.example.org.", "AAAA"), ("no.example.org.", "MX")):
        response = ask(node, name, rdtype, use_edns=0)
        assert rcode(response) == "NXDOMAIN" and extended_errors(response) == [EDE_SYNTHESIZED]
        assert [rrset.name.to_text() for rrset in response.authority] == ["example.org."] and 290 < ttl(response, "authority") <= 300
    assert world.server.names() == ["no.example.org."]
    assert rcode(ask(node, "other.example.org.")) == "NXDOMAIN"
    assert world.count("other.example.org.") == 1
    for name in ("no.example.org.", "a.no.example.org."):
        assert rcode(ask(plain, name)) == "NXDOMAIN"
    assert world.count("a.no.example.org.") == 1, "off by default"


def test_a_denial_behind_a_cname_says_nothing_of_names_below_the_alias(start, world):
    def handler(query, tcp):
        response = answer(query, "CNAME gone.example.org.", rcode=dns.rcode.NXDOMAIN)
        response.authority.append(dns.rrset.from_text("example.org.", 300, "IN", "SOA", "ns. host. 1 2 3 4 300"))
        return response

    world.server.handler = handler
    node = start("nxdomain_cut")
    assert rcode(ask(node, "alias.example.org.")) == "NXDOMAIN"
    world.server.handler = world._answer
    assert answers(node, "a.alias.example.org.") == ["192.0.2.1"]


def test_what_one_server_denies_says_nothing_of_another_servers_zone(nodes, world):
    """A zone that only its own servers know."""
    world.deny(soa=300)
    with Upstream() as inner:
        node = nodes.start(f"""example.org {{
    cache {{
        nxdomain_cut
    }}
    forward lab.corp.example.org {inner.address}
    forward . {world.server.address}
}}
""")
        assert rcode(ask(node, "corp.example.org.")) == "NXDOMAIN"
        assert rcode(ask(node, "a.corp.example.org.")) == "NXDOMAIN"
        assert answers(node, "a.lab.corp.example.org.") == ["192.0.2.1"]
    assert world.server.names() == ["corp.example.org."]


def test_a_name_that_exists_ends_the_cut(start, world):
    world.deny(soa=1)
    node = start("nxdomain_cut", "denial 100 2 1")
    assert rcode(ask(node, "no.example.org.")) == rcode(ask(node, "a.no.example.org.")) == "NXDOMAIN"
    world.records, world.rcode, world.soa = ["A 192.0.2.1"], dns.rcode.NOERROR, None
    wait_until(lambda: answers(node, "a.no.example.org.") == ["192.0.2.1"], 5, "its TTL to be over", interval=0.05)


def test_a_cut_is_what_the_zones_own_server_says(directory, free_port, nodes):
    """Each answer from a cut is that of Knot but for AA and what counts down: names, SOA, with DO and without."""
    zone = "@ 300 SOA ns.net.example. host.net.example. 1 7200 900 1209600 60\n@ 300 NS ns\nns A 127.0.0.1\nwww 300 A 192.0.2.80\n"
    knot = Knot(directory, free_port(), {"net.example.": zone})
    knot.launch()
    try:
        node = nodes.start(f". {{\n cache {{\n nxdomain_cut\n }}\n forward . {knot.host}:{knot.port}\n}}\n")
        wait_until(patient(lambda: rcode(ask(node, "no.net.example.")) == "NXDOMAIN"), 10, node.logs, interval=0.1)
        assert rcode(ask(node, "no.net.example.", want_dnssec=True)) == "NXDOMAIN"
        for dnssec in (False, True):
            for name in ("a.no.net.example.", "x.y.z.no.net.example."):
                ours = ask(node, name, want_dnssec=dnssec)
                theirs = ask(knot, name, want_dnssec=dnssec)
                assert rcode(ours) == rcode(theirs) == "NXDOMAIN"
                assert [(r.name, r.rdtype, list(r)) for r in ours.authority] == [(r.name, r.rdtype, list(r)) for r in theirs.authority]
                assert not ours.answer and not ours.flags & dns.flags.AA
                assert extended_errors(ours) == ([EDE_SYNTHESIZED] if dnssec else [])
        assert answers(node, "www.net.example.") == ["192.0.2.80"]
    finally:
        knot.kill()


# --- over a restart ---

def persistent(start, directory, *options, **more):
    return start(f"persist {os.path.join(directory, 'kept')}", *options, **more)


def restarted(node, kill=False):
    """Another process with the same Corefile on the same port."""
    if kill:
        node.signal(signal.SIGKILL)
        node.exit_code(10)
    else:
        assert node.terminate() == 0
    return node.start()


def wait_loaded(node):
    wait_until(lambda: "answers of" in node.out(), 10, node.logs)


NAMES = [f"n{i}.example.org." for i in range(2000)]


def test_a_restart_keeps_what_is_cached(start, world, directory):
    world.ttl = 300
    node = persistent(start, directory, "success 10000")
    for name in NAMES:
        ask(node, name)
    world.deny(soa=200)
    ask(node, "not.example.org.")
    world.records, world.rcode, world.soa = ["A 192.0.2.9"], dns.rcode.NOERROR, None
    asked = len(world.server.names())
    wait_ttl_below(node, 300, NAMES[0])
    node = restarted(node)
    wait_loaded(node)
    assert ttl(ask(node, NAMES[0])) < 300, "it has gone on"
    for name in NAMES:
        assert answers(node, name) == ["192.0.2.1"], name
    denial = ask(node, "not.example.org.")
    assert rcode(denial) == "NXDOMAIN" and ttl(denial, "authority") <= 200
    assert len(world.server.names()) == asked, "nothing was asked again"


def test_what_has_ended_meanwhile_is_not_kept(start, world, directory):
    world.ttl = 5
    node = persistent(start, directory)
    ask(node, "www.example.org.")
    assert node.terminate() == 0
    time.sleep(6)  # the TTL ends while no process runs
    node.start()
    wait_loaded(node)
    assert answers(node, "www.example.org.") == ["192.0.2.1"]
    assert world.count() == 2


def test_a_killed_process_has_written_what_it_had(start, world, directory):
    node = persistent(start, directory)
    ask(node, "www.example.org.")
    kept = os.path.join(directory, "kept")
    wait_until(lambda: os.path.isdir(kept) and [file for file in os.listdir(kept) if not file.endswith(".new")], 40,
               node.logs)
    node = restarted(node, kill=True)
    wait_loaded(node)
    assert answers(node, "www.example.org.") == ["192.0.2.1"]
    assert world.count() == 1


@pytest.mark.parametrize("change", ["private", "other networks", "upstream"])
def test_answers_that_were_kept_by_other_rules_are_asked_for_again(start, world, directory, change):
    """What `private` would have withheld, or what another upstream says, is not given out after a restart."""
    world.records = ["A 10.0.0.5"]
    before = ["private {\n network 192.168.0.0/16\n }"] if change == "other networks" else []
    node = persistent(start, directory, directives=before)
    assert answers(node, "www.example.org.") == ["10.0.0.5"]
    assert node.terminate() == 0
    with open(node.corefile_path, encoding="ascii") as file:
        text = file.read()
    other = World()
    changes = {"private": ("    forward", "    private\n    forward"),
               "other networks": ("network 192.168.0.0/16", "network 10.0.0.0/8"),
               "upstream": (world.server.address, other.server.address)}
    with open(node.corefile_path, "w", encoding="ascii") as file:
        file.write(text.replace(*changes[change]))
    try:
        node.start()
        node.wait_logged("it was kept with another private or forward; the cache begins empty")
        assert answers(node, "www.example.org.") == (["192.0.2.1"] if change == "upstream" else [])
        assert world.count() + other.count() == 2
    finally:
        other.server.close()


def test_what_is_cached_can_be_read_by_the_server_only(start, world, directory):
    before = os.umask(0o022)
    try:
        node = persistent(start, directory)
    finally:
        os.umask(before)
    ask(node, "www.example.org.")
    assert node.terminate() == 0
    kept = os.path.join(directory, "kept")
    (path,) = [os.path.join(kept, name) for name in os.listdir(kept)]
    assert [oct(os.stat(what).st_mode & 0o777) for what in (kept, path)] == ["0o700", "0o600"]


@pytest.mark.parametrize("damage", ["cut", "changed", "other", "empty"])
def test_a_damaged_file_is_not_believed(start, world, directory, damage):
    node = persistent(start, directory)
    ask(node, "www.example.org.")
    assert node.terminate() == 0
    kept = os.path.join(directory, "kept")
    (path,) = [os.path.join(kept, name) for name in os.listdir(kept)]
    with open(path, "rb") as file:
        content = bytearray(file.read())
    if damage == "cut":
        content = content[:-3]
    elif damage == "changed":
        content[len(content) // 2] ^= 1
    elif damage == "other":
        content[:8] = b"idetcdN1"
    else:
        content = b""
    with open(path, "wb") as file:
        file.write(content)
    node.start()
    node.wait_logged("the cache begins empty")
    assert answers(node, "www.example.org.") == ["192.0.2.1"]
    assert world.count() == 2
