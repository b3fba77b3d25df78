"""private: no addresses of the own network from upstreams."""

import dns.rdatatype
import dns.rrset
import pytest

from dns_client import answers, ask, extended_errors, patient, rcode
from harness.dns_servers import Dnsmasq, UnboundForwarder
from harness.processes import wait_until
from harness.upstreams import Upstream, answer

BLOCKED = 15
RECORDS = {
    "home.example.org.": {"A": ["A 192.168.1.1"], "AAAA": ["AAAA ::ffff:192.168.1.1"],
                          "HTTPS": ["HTTPS 1 . alpn=h2 ipv4hint=192.168.1.1"]},
    "world.example.org.": {"A": ["A 192.0.2.1"], "AAAA": ["AAAA 2001:db8::1"],
                           "HTTPS": ["HTTPS 1 . alpn=h2 ipv4hint=192.0.2.1"]},
    "nas.corp.example.org.": {"A": ["A 10.0.0.7"]},
    "black.example.org.": {"A": ["A 127.0.0.1"]},
    "alias.example.org.": {"A": ["CNAME home.example.org."]},  # and no more: the server is no full resolver
    "alias.corp.example.org.": {"A": ["CNAME nas.corp.example.org."]},
}


def respond(query, tcp):
    question = query.question[0]
    records = RECORDS.get(question.name.to_text(), {})
    return answer(query, *records.get(dns.rdatatype.to_text(question.rdtype), []))


@pytest.fixture
def upstream():
    with Upstream(respond) as running:
        yield running


def start(nodes, upstream, private="private", directives="errors\n cache"):
    return nodes.start(f". {{\n {directives}\n {private}\n forward . {upstream.address}\n}}\n")


def assert_withheld(node, name, rdtype="A"):
    response = ask(node, name, rdtype, use_edns=0)
    assert rcode(response) == "NOERROR" and not response.answer and not response.additional, response
    assert extended_errors(response) == [BLOCKED]


def test_without_it_every_address_comes_through(nodes, upstream):
    node = start(nodes, upstream, private="")
    assert answers(node, "home.example.org.") == ["192.168.1.1"]


@pytest.mark.parametrize("rdtype", ["A", "AAAA", "HTTPS"])
def test_a_private_address_is_withheld_from_the_upstream_and_from_the_cache(nodes, upstream, rdtype):
    node = start(nodes, upstream)
    for _ in range(3):
        assert_withheld(node, "home.example.org.", rdtype)
    assert upstream.names() == ["home.example.org."], "the cache has answered since"
    assert len(answers(node, "world.example.org.", rdtype)) == 1
    node.wait_logged(f"home.example.org. {rdtype}: withheld: it has a private address")


def test_at_the_end_of_a_chain_that_is_followed(nodes, upstream):
    node = start(nodes, upstream)
    for _ in range(2):
        assert_withheld(node, "alias.example.org.")
    assert upstream.names() == ["alias.example.org.", "home.example.org."]


def test_names_that_may_have_them(nodes, upstream):
    node = start(nodes, upstream, "private {\n allow corp.example.org\n allow_loopback\n }")
    assert answers(node, "nas.corp.example.org.") == ["10.0.0.7"]
    assert answers(node, "alias.corp.example.org.") == ["10.0.0.7", "nas.corp.example.org."]
    assert answers(node, "black.example.org.") == ["127.0.0.1"]
    assert_withheld(node, "home.example.org.")


def test_hosts_have_the_addresses_that_they_have(nodes, upstream):
    node = start(nodes, upstream, "private\n hosts {\n 10.1.2.3 printer.example.org\n fallthrough\n }")
    assert answers(node, "printer.example.org.") == ["10.1.2.3"]
    assert_withheld(node, "home.example.org.")


def test_an_answer_that_is_fetched_anew_is_withheld_too(nodes, upstream):
    """What was harmless when it was asked for first, as a rebinding attack is."""
    addresses = ["192.0.2.9"]
    upstream.handler = lambda query, tcp: answer(query, f"A {addresses[0]}", ttl=1)
    node = start(nodes, upstream, directives="cache {\n success 100 60 1\n serve_stale 1h\n }")
    assert answers(node, "turn.example.org.") == ["192.0.2.9"]
    addresses[0] = "10.0.0.1"
    wait_until(lambda: answers(node, "turn.example.org.") == [], 10, "the address to be withheld")
    assert_withheld(node, "turn.example.org.")


# Name, then what private, dnsmasq and unbound leave of the answer. With names within corp.example.org allowed.
WHOLE = ["10.0.0.7", "nas.corp.example.org."]
BESIDE_OTHERS = [
    ("world.example.org.", ["12.34.0.1"], ["12.34.0.1"], ["12.34.0.1"]),
    ("home.example.org.", [], [], []),
    ("black.example.org.", [], [], []),
    ("mixed.example.org.", [], [], ["12.34.0.1"]),  # unbound takes out one record
    ("nas.corp.example.org.", ["10.0.0.7"], ["10.0.0.7"], ["10.0.0.7"]),
    ("in.example.org.", [], [], WHOLE),  # an alias; unbound goes by the owner of the record
    ("out.corp.example.org.", ["192.168.1.1", "home.example.org."], ["192.168.1.1", "home.example.org."], ["home.example.org."]),
]


def respond_with_whole_chains(query, tcp):
    targets = {"in.example.org.": "nas.corp.example.org.", "out.corp.example.org.": "home.example.org."}
    name = query.question[0].name.to_text()
    if name == "mixed.example.org.":
        return answer(query, "A 12.34.0.1", "A 10.0.0.1")
    if name == "world.example.org.":
        return answer(query, "A 12.34.0.1")  # dnsmasq counts 192.0.2.0/24 as private
    if name not in targets:
        return respond(query, tcp)
    response = answer(query, f"CNAME {targets[name]}")
    for record in RECORDS[targets[name]]["A"]:
        response.answer.append(dns.rrset.from_text(targets[name], 60, "IN", *record.split(" ")))
    return response


def test_beside_dnsmasq_and_unbound(nodes, upstream, directory, free_port):
    """The table in the directive's README.md."""
    upstream.handler = respond_with_whole_chains
    node = start(nodes, upstream, "private {\n allow corp.example.org\n }")
    dnsmasq = Dnsmasq(directory, free_port(), upstream.address,
                      options=["--stop-dns-rebind", "--rebind-domain-ok=/corp.example.org/"])
    networks = [f"private-address: {network}" for network in ("10.0.0.0/8", "127.0.0.0/8", "192.168.0.0/16")]
    unbound = UnboundForwarder(directory, free_port(), upstream.host, upstream.port,
                               options=[*networks, 'private-domain: "corp.example.org"'])
    try:
        for server in (dnsmasq, unbound):
            server.launch()
            wait_until(patient(lambda s=server: answers(s, "world.example.org.") == ["12.34.0.1"]), 20, server.logs, interval=0.1)
        for name, *expected in BESIDE_OTHERS:
            assert [answers(server, name) for server in (node, dnsmasq, unbound)] == expected, name
    finally:
        dnsmasq.kill()
        unbound.kill()
