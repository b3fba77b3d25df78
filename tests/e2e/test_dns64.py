"""dns64: addresses for IPv6-only clients, beside those that unbound makes, and of the cluster's own names."""

import ipaddress

import dns.edns
import dns.flags
import dns.name
import dns.query
import dns.rcode
import dns.rdatatype
import dns.reversename
import dns.rrset
import pytest

from corefiles import corefile
from dns_client import answers, ask, extended_errors, make_query, patient, rcode, wait_says
from harness.dns_servers import Nsd, UnboundForwarder
from harness.processes import TIME_FACTOR, wait_until
from harness.upstreams import Upstream, answer

HEAD = "$TTL 300\n@ SOA ns.net.example. host.net.example. 1 7200 900 1209600 60\n@ NS ns.net.example.\n"
ZONE = HEAD + """ns A 12.34.0.1
four A 12.34.0.4
four A 12.34.0.44
both A 12.34.0.5
both AAAA 2001:db8::5
six AAAA 2001:db8::6
text TXT "no address"
alias CNAME four
alias2 CNAME alias
aliastext CNAME text
gone CNAME nowhere
*.wild A 12.34.0.7
""" + "".join(f"big A 12.34.1.{i}\n" for i in range(40))
REVERSE = HEAD + "4.0 PTR four.net.example.\n44.0 PTR four.net.example.\n5.0 PTR both.net.example.\n"
NAMES = ["four", "both", "six", "text", "alias", "alias2", "aliastext", "gone", "missing", "a.wild", "ns"]


@pytest.fixture
def nsd(directory, free_port, launched):
    return launched(Nsd(directory, free_port(), {"net.example.": ZONE, "34.12.in-addr.arpa.": REVERSE}))


def start(nodes, upstream, dns64="dns64", directives="log\n cache"):
    return nodes.start(f". {{\n {directives}\n {dns64}\n forward . {upstream}\n}}\n")


def aaaa(node, name, **options):
    return answers(node, name, "AAAA", host="::1", **options)


def summary(response):
    """What a client makes of it: the rcode, and the answer's records."""
    return rcode(response), sorted((rrset.name.to_text(), dns.rdatatype.to_text(rrset.rdtype), rdata.to_text())
                                   for rrset in response.answer for rdata in rrset)


@pytest.mark.parametrize("prefix", ["64:ff9b::/96", "2001:db8:122:344::/64", "2001:db8::/32"])
def test_names_have_the_addresses_that_unbound_gives_them(directory, free_port, launched, nodes, nsd, prefix):
    unbound = launched(UnboundForwarder(directory, free_port(), nsd.host, nsd.port, modules="dns64 iterator",
                                        options=[f"dns64-prefix: {prefix}"]))
    node = start(nodes, f"{nsd.host}:{nsd.port}", f"dns64 {prefix}")
    for server in (node, unbound):
        wait_until(patient(lambda s=server: rcode(ask(s, "four.net.example.")) == "NOERROR"), 10, f"{server.name} to answer", interval=0.1)
    for again in (False, True):
        for name in NAMES:
            ours = summary(ask(node, f"{name}.net.example.", "AAAA", host="::1"))
            assert ours == summary(ask(unbound, f"{name}.net.example.", "AAAA")), (name, again)
    assert summary(ask(node, "four.net.example.", "AAAA", host="::1"))[1][0][1] == "AAAA"
    address = aaaa(node, "four.net.example.")[0]
    ours = ask(node, dns.reversename.from_address(address).to_text(), "PTR", host="::1")
    theirs = ask(unbound, dns.reversename.from_address(address).to_text(), "PTR")
    assert [rdata.to_text() for rdata in ours.answer[-1]] == [rdata.to_text() for rdata in theirs.answer[-1]] == ["four.net.example."]
    assert ours.answer[0].rdtype == dns.rdatatype.CNAME, "RFC 6147 §5.3.1"


@pytest.mark.parametrize("prefix", ["64:ff9b::/96", "2a01:db8:122:344::/64"])
def test_the_pointers_of_a_prefix_do_not_vanish_with_another_question(etcd, nodes, prefix):
    """Which the upstream answers with NXDOMAIN: another type, or a name above, as in a cache that takes it for all below."""
    with Upstream(lambda query, tcp: answer(query, rcode=dns.rcode.NXDOMAIN)) as upstream:
        node = nodes.start(corefile(etcd.endpoint, options=["address 5.6.7.8"], directives=[
            f"dns64 {prefix} {{\n allow_ipv4\n }}", f"forward . {upstream.address}"]))
        wait_until(lambda: ":" in aaaa(node, "worker1.tf.local.")[0], 10, node.logs)
        name = dns.reversename.from_address(aaaa(node, "worker1.tf.local.")[0])
        labels = name.to_text().split(".")
        names = [".".join(labels[i:]) for i in range(1, len(labels) - 3)]
        behind = nodes.start(f". {{\n forward . 127.0.0.1:{node.port}\n cache {{\n nxdomain_cut\n }}\n}}\n")
        for question in [(name, rdtype) for rdtype in ("TXT", "A", "AAAA", "DS", "ANY")] + [(above, "PTR") for above in names]:
            assert answers(behind, *question) == [], question
        assert "worker1.tf.local." in answers(behind, name, "PTR")
        assert answers(node, dns.reversename.from_address("2a01:db8:999::1"), "TXT") == "NXDOMAIN"
        assert answers(node, dns.reversename.from_address("2a01:db8:999::1").parent(), "TXT") == "NXDOMAIN"


def test_more_addresses_than_a_message_has_room_for(nodes):
    """2,400 A records fit, as many AAAA records do not: all that do are answered over TCP, and TC says that some are missing."""
    def respond(query, tcp):
        if query.question[0].rdtype == dns.rdatatype.A and tcp:
            return answer(query, *(f"A 12.1.{i // 256}.{i % 256}" for i in range(2400)))
        response = answer(query)
        response.flags |= dns.flags.TC if query.question[0].rdtype == dns.rdatatype.A else 0
        return response
    with Upstream(respond) as upstream:
        node = start(nodes, upstream.address)
        for _ in range(2):
            response = ask(node, "many.example.org.", "AAAA", host="::1")
            assert rcode(response) == "NOERROR" and response.flags & dns.flags.TC
            response = ask(node, "many.example.org.", "AAAA", host="::1", tcp=True, use_edns=0)
            assert rcode(response) == "NOERROR" and len(response.answer[0]) > 2300
            assert response.flags & dns.flags.TC
            assert response.edns == 0


@pytest.mark.parametrize("count, cut", [(2800, False), (2845, True)])
def test_more_pointers_than_a_message_has_room_for(nodes, count, cut):
    """They fit behind the name of the IPv4 address, but not behind that of the IPv6 address, with the CNAME in front."""
    v4 = "4.0.34.12.in-addr.arpa."
    pointers = dns.rrset.from_text_list(v4, 300, "IN", "PTR", [f"host{i:04}.many.example.org." for i in range(count)])

    def respond(query, tcp):
        if query.question[0].name != pointers.name:
            return answer(query, rcode=dns.rcode.NXDOMAIN)
        response = answer(query)
        response.answer = [pointers] if tcp else []
        response.flags |= 0 if tcp else dns.flags.TC
        return response
    with Upstream(respond) as upstream:
        node = start(nodes, upstream.address)
        assert len(ask(node, v4, "PTR", host="::1", tcp=True, use_edns=0).answer[0]) == count
        name = dns.reversename.from_address("64:ff9b::c22:4").to_text()
        for _ in range(2):
            response = ask(node, name, "PTR", host="::1")
            assert rcode(response) == "NOERROR" and response.flags & dns.flags.TC
            response = ask(node, name, "PTR", host="::1", tcp=True, use_edns=0)
            assert rcode(response) == "NOERROR" and bool(response.flags & dns.flags.TC) == cut
            assert response.answer[0].rdtype == dns.rdatatype.CNAME
            assert len(response.answer[1]) == count if not cut else count - 60 < len(response.answer[1]) < count


def test_the_cache_answers_both_questions(nodes):
    def respond(query, tcp):
        question = query.question[0]
        if question.rdtype == dns.rdatatype.A:
            return answer(query, "A 192.0.2.1")
        response = answer(query)
        response.authority.append(dns.rrset.from_text("example.org.", 300, "IN", "SOA", "ns. host. 1 2 3 4 30"))
        return response

    with Upstream(respond) as upstream:
        node = start(nodes, upstream.address)
        assert answers(node, "a.example.org.") == ["192.0.2.1"]
        for _ in range(3):
            response = ask(node, "a.example.org.", "AAAA", host="::1")
            assert [rdata.to_text() for rdata in response.answer[0]] == ["64:ff9b::c000:201"] and 25 <= response.answer[0].ttl <= 30
        assert upstream.names() == ["a.example.org."] * 2, "A by the first query, AAAA by the second, nothing since"
        assert aaaa(node, "b.example.org.") == ["64:ff9b::c000:201"]
        assert len(upstream.names()) == 4
        wait_until(lambda: node.out().count('"AAAA IN b.example.org.') == 1, 5, node.logs)
        assert '"A IN b.example.org.' not in node.out(), "one line, of the query that the client sent"
        assert answers(node, "b.example.org.", "AAAA") == [], "over IPv4 there is no translation"


def test_aliases_come_before_the_translated_addresses(nodes):
    """Also where the server gives them behind: glibc reads no other order."""
    def backwards(query, tcp):
        response = answer(query)
        records = ["b.example.org. CNAME c.example.org.", "a.example.org. CNAME b.example.org."]
        if query.question[0].rdtype == dns.rdatatype.A:
            records.insert(0, "c.example.org. A 192.0.2.1")
        else:
            response.authority.append(dns.rrset.from_text("example.org.", 300, "IN", "SOA", "ns. host. 1 2 3 4 30"))
        for owner, rdtype, rdata in map(str.split, records):
            response.answer.append(dns.rrset.from_text(owner, 60, "IN", rdtype, rdata))
        return response

    with Upstream(backwards) as upstream:
        node = start(nodes, upstream.address)
        for tcp in (False, True):
            found = ask(node, "a.example.org.", "AAAA", host="::1", tcp=tcp).answer
            assert [rrset.to_text().split(" ", 2)[0] for rrset in found] == ["a.example.org.", "b.example.org.", "c.example.org."]
            assert found[-1][0].to_text() == "64:ff9b::c000:201"


def test_acl_holds_for_the_names_and_types_that_are_asked_for(nodes, nsd):
    """A client that may not ask for the name of an IPv4 address, or for A, does not learn it from the IPv6 address either."""
    node = start(nodes, f"{nsd.host}:{nsd.port}", "dns64 2001:db8:64::/96 {\n allow_ipv4\n }\n"
                 " acl 12.34.0.0/16 {\n block net 127.0.0.2\n }\n acl four.net.example {\n block type A net 127.0.0.2\n }")
    name = dns.reversename.from_address("2001:db8:64::12.34.0.4").to_text()
    wait_until(patient(lambda: answers(node, name, "PTR") == ["4.0.34.12.in-addr.arpa.", "four.net.example."]), 10, node.logs)
    assert len(answers(node, "four.net.example.", "AAAA")) == 2
    for question in ((name, "PTR"), ("four.net.example.", "AAAA")):
        response = dns.query.udp(make_query(*question), "127.0.0.1", port=node.port, source="127.0.0.2", timeout=5 * TIME_FACTOR, ignore_unexpected=True)
        assert not response.answer


def test_over_ipv4_where_it_is_allowed(nodes, nsd):
    node = start(nodes, f"{nsd.host}:{nsd.port}", "dns64 {\n prefix 2001:db8:64::/96\n allow_ipv4\n }")
    wait_until(patient(lambda: answers(node, "a.wild.net.example.", "AAAA") == ["2001:db8:64::c22:7"]), 10, node.logs, interval=0.1)


def test_all_names_where_that_is_wanted(nodes, nsd):
    node = start(nodes, f"{nsd.host}:{nsd.port}", "dns64 {\n translate_all\n }")
    wait_until(patient(lambda: aaaa(node, "both.net.example.") == ["64:ff9b::c22:5"]), 10, node.logs, interval=0.1)
    assert aaaa(node, "six.net.example.") == ["2001:db8::6"]


def test_an_answer_that_is_too_large_for_udp(nodes, nsd):
    node = start(nodes, f"{nsd.host}:{nsd.port}")
    wait_until(patient(lambda: ask(node, "big.net.example.", "AAAA", host="::1").flags & dns.flags.TC), 10, node.logs, interval=0.1)
    found = aaaa(node, "big.net.example.", tcp=True)
    assert sorted(map(ipaddress.ip_address, found)) == [ipaddress.ip_address(f"64:ff9b::c22:1{i:02x}") for i in range(40)]


def test_a_client_that_validates_gets_what_the_server_says(nodes, nsd):
    node = start(nodes, f"{nsd.host}:{nsd.port}")
    wait_until(patient(lambda: isinstance(aaaa(node, "four.net.example."), list)), 10, node.logs, interval=0.1)
    both = {"want_dnssec": True, "flags": dns.flags.RD | dns.flags.CD}
    assert not ask(node, "four.net.example.", "AAAA", host="::1", **both).answer
    assert ask(node, "four.net.example.", "AAAA", host="::1", want_dnssec=True).answer


def test_a_server_that_fails_for_aaaa(nodes):
    def respond(query, tcp):
        if query.question[0].rdtype == dns.rdatatype.A:
            return answer(query, "A 192.0.2.1")
        return answer(query, rcode=dns.rcode.SERVFAIL)

    with Upstream(respond) as upstream:
        node = start(nodes, upstream.address)
        assert aaaa(node, "a.example.org.") == ["64:ff9b::c000:201"]


def test_the_prefix_can_be_found(nodes):
    """RFC 7050."""
    def respond(query, tcp):
        is_a = query.question[0].rdtype == dns.rdatatype.A
        return answer(query, *["A 192.0.0.170", "A 192.0.0.171"] if is_a else [])

    with Upstream(respond) as upstream:
        node = start(nodes, upstream.address)
        assert aaaa(node, "ipv4only.arpa.") == ["64:ff9b::c000:aa", "64:ff9b::c000:ab"]


def test_what_is_private_stays_so(nodes):
    """A translated address would lead there too. What a hosts file says is not withheld, and is translated."""
    def respond(query, tcp):
        is_a = query.question[0].rdtype == dns.rdatatype.A
        return answer(query, *["A 10.0.0.1"] if is_a else [])

    with Upstream(respond) as upstream:
        hosts = "cache\n private\n hosts {\n 10.1.2.3 printer.example.org\n fallthrough\n }"
        node = start(nodes, upstream.address, "dns64 2001:db8:64::/96", hosts)
        response = ask(node, "inner.example.org.", "AAAA", host="::1", use_edns=0)
        assert not response.answer and extended_errors(response) == [15]
        assert aaaa(node, "printer.example.org.") == ["2001:db8:64::a01:203"]
        plain = start(nodes, upstream.address, "dns64 2001:db8:64::/96", "cache")
        assert aaaa(plain, "inner.example.org.") == ["2001:db8:64::a00:1"]
        known = start(nodes, upstream.address, "dns64", "cache")
        assert aaaa(known, "inner.example.org.") == [], "RFC 6052 §3.1"


def test_names_of_the_cluster(nodes, etcd):
    """An IPv6-only client reaches a worker that has an IPv4 address only, by its name, and learns the name by its address."""
    node = nodes.start(corefile(etcd.endpoint, options=["address 192.0.2.14"], directives=["dns64 2001:db8:64::/96"]))
    node.wait_owns(etcd)
    etcd.put("db.tf.local.", '{"ipv4":"10.0.0.50"}')
    etcd.put("six.tf.local.", '{"ipv6":"2001:db8::6"}')
    wait_until(lambda: aaaa(node, "six.tf.local.") == ["2001:db8::6"], 5, node.logs)
    assert aaaa(node, "worker1.tf.local.") == ["2001:db8:64::c000:20e"]
    assert aaaa(node, "db.tf.local.") == ["2001:db8:64::a00:32"]
    assert aaaa(node, "nobody.tf.local.") == "NXDOMAIN"
    assert answers(node, "db.tf.local.", "AAAA") == []
    response = ask(node, "db.tf.local.", "AAAA", host="::1")
    assert response.flags & dns.flags.AA and not response.flags & dns.flags.RA and 0 < response.answer[0].ttl <= 60
    reverse = dns.reversename.from_address("2001:db8:64::a00:32").to_text()
    assert answers(node, reverse, "PTR", host="::1") == ["50.0.0.10.in-addr.arpa.", "db.tf.local."]


def test_a_late_answer_carries_the_nodes_name(nodes, etcd):
    """The name is claimed after the chain was made."""
    def handler(query, tcp):
        return answer(query, "A 12.34.0.4") if query.question[0].rdtype == dns.rdatatype.A else answer(query)
    with Upstream(handler) as upstream:
        node = nodes.start(corefile(etcd.endpoint, directives=["dns64 {\n allow_ipv4\n }", f"forward . {upstream.address}"]))
        wait_says(node, "worker1.tf.local.")
        response = ask(node, "www.example.org.", "AAAA", use_edns=0, options=[dns.edns.GenericOption(dns.edns.NSID, b"")])
        assert [rdata.to_text() for rdata in response.answer[0]] == ["64:ff9b::c22:4"]
        assert [option.data for option in response.options if option.otype == dns.edns.NSID] == [b"worker1.tf.local"]
