"""10,000 mixed queries, the same ones through idetcd and through unbound, both forwarding to the same NSD: a program
must not be able to find out which of the two its resolv.conf names, but for what DIFFERENCES lists with its reason."""

import collections

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import pytest

from harness import example_zone, pipeline
from harness.dns_servers import Nsd, UnboundForwarder
from harness.processes import wait_until

COUNT = 10_000
SEED = 20240229
# So many late answers to one question of one client are as large as the client takes; more are kept small (README).
FULL_ANSWERS = 2

COREFILE = """. {{
    cache {{
        success 20000
        denial 20000
    }}
    forward . 127.0.0.1:{upstream}
}}
"""


class View:
    """What a client sees of one response: the header, EDNS, and the sections without order or TTL."""

    def __init__(self, wire):
        message = dns.message.from_wire(wire)
        self.rcode = dns.rcode.to_text(message.rcode())
        self.flags = dns.flags.to_text(message.flags)
        self.edns = (message.edns, message.ednsflags & dns.flags.DO)
        self.truncated = bool(message.flags & dns.flags.TC)
        # What is in a truncated message does not matter: it is asked for again.
        self.answer = frozenset() if self.truncated else _rrsets(message.answer)
        self.others = frozenset() if self.truncated else (_rrsets(message.authority), _rrsets(message.additional))
        self.ttls = {} if self.truncated else _ttls(message)

    def outside(self):
        """What must be the same from both."""
        return self.rcode, self.flags, self.edns, self.answer

    def __str__(self):
        records = "; ".join(sorted(f"{name} {dns.rdatatype.to_text(rdtype)} {len(data)}" for name, rdtype, _, data in self.answer))
        return f"{self.rcode} [{self.flags}] edns {self.edns} answer {{{records}}}"


def _rrsets(section):
    return frozenset((rrset.name, rrset.rdtype, rrset.covers, frozenset(rrset)) for rrset in section)


def _ttls(message):
    return {(number, rrset.name, rrset.rdtype, rrset.covers): rrset.ttl
            for number, section in enumerate((message.answer, message.authority, message.additional)) for rrset in section}


Case = collections.namedtuple("Case", "query over_tcp ours theirs")


# (name, whether it explains a Case, reason). What fits none is a failure.
DIFFERENCES = [
    ("an alias that leads out of the upstream's zones",
     lambda case: (case.query.question[0].name == dns.name.from_text(f"away.{example_zone.ORIGIN}")
                   and case.theirs.rcode == "SERVFAIL" and case.ours.rcode == "NOERROR"
                   and [rdtype for _, rdtype, _, _ in case.ours.answer if rdtype != dns.rdatatype.RRSIG]
                   == [dns.rdatatype.CNAME]),
     "unbound follows the alias itself, and fails when the upstream refuses the target. A forwarder leaves aliases to "
     "its upstream, which is a recursive one; before an authoritative one it passes on what that says."),
    ("ANY",
     lambda case: (case.query.question[0].rdtype == dns.rdatatype.ANY and case.ours.rcode == case.theirs.rcode
                   and bool(case.ours.answer) and bool(case.theirs.answer)),
     "NSD gives one RRset of several (RFC 8482 section 4.1) and we pass that on; unbound puts together what is in its "
     "cache. Either is a correct answer."),
]


class Views(dict):
    """Octets after the ID -> View: most answers are given more than once."""

    def of(self, wire):
        view = self.get(wire[2:])
        if view is None:
            view = self[wire[2:]] = View(wire)
        return view


def over_udp(packets, port):
    """As pipeline.over_udp, from so many sockets, one after the other, that none asks a question too often."""
    asked = collections.Counter()
    rounds = collections.defaultdict(list)
    for index, packet in enumerate(packets):
        question = bytes(packet[12:packet.index(0, 12) + 5]).lower()
        rounds[asked[question] // FULL_ANSWERS].append(index)
        asked[question] += 1
    responses = [None] * len(packets)
    for indexes in rounds.values():
        for index, response in zip(indexes, pipeline.over_udp([packets[index] for index in indexes], port)):
            responses[index] = response
    return responses


class Side:
    """All queries' responses from one server: over UDP, and over TCP where that was truncated."""

    def __init__(self, packets, port):
        self.udp = over_udp(packets, port)
        truncated = [index for index, response in enumerate(self.udp) if response[2] & 0x02]
        self.tcp = dict(zip(truncated, pipeline.over_tcp([packets[index] for index in truncated], port)))


@pytest.fixture
def nsd(directory, free_port):
    server = Nsd(directory, free_port(),
                 {example_zone.ORIGIN: example_zone.forward_zone(), example_zone.REVERSE: example_zone.reverse_zone()})
    server.launch()
    yield server
    server.kill()


@pytest.fixture
def unbound(directory, free_port, nsd):
    server = UnboundForwarder(directory, free_port(), nsd.host, nsd.port)
    server.launch()
    yield server
    server.kill()


def wait_serves(server, qname):
    query = dns.message.make_query(qname, "SOA").to_wire()

    def condition():
        assert server.running(), server.logs()
        try:
            return dns.message.from_wire(pipeline.over_udp([query], server.port)[0]).answer
        except OSError:
            return False
    wait_until(condition, 15, lambda: f"{server.name} to serve {qname}\n{server.logs()}")


def test_as_unbound_does(nsd, unbound, nodes):
    node = nodes.start(COREFILE.format(upstream=nsd.port))
    for server in (nsd, unbound):
        wait_serves(server, example_zone.ORIGIN)
        wait_serves(server, example_zone.REVERSE)
    queries = example_zone.queries(COUNT, SEED)
    packets = [query.to_wire() for query in queries]

    cold = Side(packets, node.port)
    warm = Side(packets, node.port)
    theirs = Side(packets, unbound.port)

    problems = collections.defaultdict(list)
    explained = collections.Counter()
    views = Views()
    for index, query in enumerate(queries):
        end = 12 + len(query.question[0].name.to_wire()) + 4
        assert cold.udp[index][12:end] == packets[index][12:end], f"the question's octets change: {query.question[0]}"
        compare_with_ourselves(query, views.of(cold.udp[index]), views.of(warm.udp[index]), problems)
        if index in cold.tcp and index in warm.tcp:
            compare_with_ourselves(query, views.of(cold.tcp[index]), views.of(warm.tcp[index]), problems)
        compare(Case(query, False, views.of(cold.udp[index]), views.of(theirs.udp[index])), problems, explained)
        if index in cold.tcp and index in theirs.tcp:
            compare(Case(query, True, views.of(cold.tcp[index]), views.of(theirs.tcp[index])), problems, explained)
    assert not problems, report(problems)
    for name, _, _ in DIFFERENCES:
        assert explained[name], f"`{name}` is a difference no more: take it off the list"
    assert len(cold.tcp) > COUNT / 100, "too few truncated answers to prove anything"


def compare(case, problems, explained):
    if case.ours.outside() == case.theirs.outside():
        return
    for name, applies, _ in DIFFERENCES:
        if applies(case):
            explained[name] += 1
            return
    parts = ("rcode", "flags", "edns", "answer")
    differing = [part for part, a, b in zip(parts, case.ours.outside(), case.theirs.outside()) if a != b]
    problems["differs from unbound in " + ", ".join(differing)].append(
        f"{describe(case.query)}{' over TCP' if case.over_tcp else ''}\n      ours   {case.ours}\n      theirs {case.theirs}")


def compare_with_ourselves(query, cold, warm, problems):
    """From the cache as from upstream, all sections of it, and no TTL longer than it was."""
    if (cold.outside(), cold.others) != (warm.outside(), warm.others):
        problems["cached differs from cold"].append(f"{describe(query)}\n      cold   {cold}\n      cached {warm}")
    elif any(ttl > cold.ttls[key] for key, ttl in warm.ttls.items()):
        problems["a TTL grew"].append(describe(query))


def describe(query):
    edns = f" edns {query.payload}{' do' if query.ednsflags else ''}" if query.edns >= 0 else ""
    return f"{query.question[0].to_text()}{edns} [{dns.flags.to_text(query.flags)}]"


def report(problems, each=6):
    lines = []
    for kind, cases in problems.items():
        lines.append(f"{kind}: {len(cases)}")
        lines += [f"    {case}" for case in cases[:each]]
    return "\n".join(lines)
