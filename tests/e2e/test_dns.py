"""What the answers say: sections, flags, EDNS, case, transports. One server, asked only."""

import socket
import struct

import dns.edns
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset
import pytest

from corefiles import corefile
from dns_client import (RawTcp, RawUdp, answers, ask, assert_nodata, assert_nxdomain, assert_soa_in_authority, exchange, header,
                        make_query, question, rcode, wait_resolves)
from harness.processes import wait_until
from harness.upstreams import Upstream, answer

TRANSPORTS = pytest.mark.parametrize("tcp", [False, True], ids=["udp", "tcp"])
FAMILIES = pytest.mark.parametrize("host", ["127.0.0.1", "::1"])


@pytest.fixture(scope="module")
def node(shared_etcd, shared_nodes):
    shared_etcd.put("four.tf.local.", '{"ipv4":"198.51.100.4"}')
    shared_etcd.put("six.tf.local.", '{"ipv6":"2001:db8::6"}')
    shared_etcd.put("deep.below.tf.local.", '{"ipv4":"198.51.100.5"}')
    shared_etcd.put(LONGEST, '{"ipv4":"198.51.100.255"}')
    node = shared_nodes.start(corefile(shared_etcd.endpoint, lease=20, options=["address 192.0.2.7 2001:db8::7"]))
    node.wait_owns(shared_etcd)
    wait_resolves([node], "worker1.tf.local.", "192.0.2.7")
    return node


# 255 bytes on the wire: three labels of 63, one of 52, "tf", "local" and the root.
LONGEST = ".".join(["a" * 63, "b" * 63, "c" * 63, "d" * 52, "tf", "local"]) + "."


@TRANSPORTS
@FAMILIES
def test_a_and_aaaa(node, host, tcp):
    for rdtype, address in (("A", "192.0.2.7"), ("AAAA", "2001:db8::7")):
        response = ask(node, "worker1.tf.local.", rdtype, tcp=tcp, host=host)
        assert rcode(response) == "NOERROR"
        assert response.flags & dns.flags.AA and response.flags & dns.flags.QR
        assert not response.flags & (dns.flags.RA | dns.flags.TC | dns.flags.AD)
        assert len(response.answer) == 1 and not response.authority and not response.additional
        rrset = response.answer[0]
        assert rrset.name.to_text() == "worker1.tf.local."
        assert rrset.ttl == 5, "the default of `ttl`, not the lease"
        assert [rdata.to_text() for rdata in rrset] == [address]


@TRANSPORTS
def test_nodata(node, tcp):
    for name, rdtype in (("four.tf.local.", "AAAA"), ("six.tf.local.", "A"), ("worker1.tf.local.", "SRV"),
                         ("worker1.tf.local.", "MX"), ("worker1.tf.local.", "SOA"), ("worker1.tf.local.", "NS"),
                         ("worker1.tf.local.", "CNAME"), ("worker1.tf.local.", "TYPE65280"), ("worker1.tf.local.", "HTTPS"),
                         ("below.tf.local.", "A"), ("below.tf.local.", "NS"), ("tf.local.", "A"), ("tf.local.", "TXT")):
        response = ask(node, name, rdtype, tcp=tcp)
        assert_nodata(response, "tf.local.")
        assert not response.flags & dns.flags.TC


@TRANSPORTS
def test_nxdomain(node, tcp):
    for name in ("worker2.tf.local.", "nobody.tf.local.", "x.worker1.tf.local.", "x.below.tf.local.", "a.b.c.d.tf.local.",
                 "worker.tf.local.", "worker11.tf.local.", "worker01.tf.local.", "*.tf.local."):
        for rdtype in ("A", "AAAA", "SOA", "TXT"):
            assert_nxdomain(ask(node, name, rdtype, tcp=tcp), "tf.local.")


def test_soa_at_the_apex(node):
    response = ask(node, "tf.local.", "SOA")
    assert rcode(response) == "NOERROR" and response.flags & dns.flags.AA
    (rrset,) = response.answer
    assert rrset.name.to_text() == "tf.local." and len(rrset) == 1
    soa = rrset[0]
    assert soa.mname.is_subdomain(dns.name.from_text("tf.local."))
    assert soa.refresh > 0 and soa.retry > 0 and soa.expire > 0 and 0 < soa.minimum <= 60


def test_the_soa_is_one_and_the_same(node):
    in_answer = ask(node, "tf.local.", "SOA").answer[0][0]
    negative = ask(node, "nobody.tf.local.").authority[0][0]
    assert in_answer == negative


def test_ds_of_the_apex_is_the_parents_to_answer(shared_etcd, nodes):
    """A validating resolver behind the node would else take the zone's own unsigned denial for a forgery."""
    ds = "12345 13 2 " + "ab" * 32
    hosts = "hosts /dev/null tf.local {\n 10.7.7.7 printer.tf.local\n }"  # which knows nothing of the apex
    with Upstream(lambda query, tcp: answer(query, f"DS {ds}") if query.question[0].rdtype == dns.rdatatype.DS
                  else answer(query, rcode=dns.rcode.NXDOMAIN)) as upstream:
        forwards = f"forward . {upstream.address}"
        same_block = corefile(shared_etcd.endpoint, options=["observe"], directives=[forwards])
        other_block = corefile(shared_etcd.endpoint, options=["observe"]).replace(". {", "tf.local {", 1) + f". {{\n {forwards}\n}}\n"
        with_hosts = corefile(shared_etcd.endpoint, options=["observe"], directives=[hosts, forwards])
        for text in (same_block, other_block, with_hosts):
            node = nodes.start(text)
            for tcp in (False, True):
                assert answers(node, "tf.local.", "DS", tcp=tcp) == [ds.lower()]
            node.terminate()
    for directives in ([], [hosts]):
        alone = nodes.start(corefile(shared_etcd.endpoint, options=["observe"], directives=directives))
        wait_until(lambda: rcode(ask(alone, "tf.local.", "TXT")) == "NOERROR", 5, "the names")
        assert_nodata(ask(alone, "tf.local.", "DS"), "tf.local.")
        alone.terminate()


def test_ds_is_the_parents_to_answer_where_an_alias_leads_to_it_too(shared_etcd, nodes):
    """Of the apex, and of a name of `hosts`; and a name that must not be asked for elsewhere is denied as it is directly."""
    ds = "12345 13 2 " + "ab" * 32
    targets = {"apex.alias.": "tf.local.", "host.alias.": "printer.lan.", "special.alias.": "foo.invalid."}

    def respond(query, tcp):
        name = query.question[0].name.to_text()
        return answer(query, *([f"CNAME {targets[name]}"] if name in targets else []), *(
            [f"DS {ds}"] if query.question[0].rdtype == dns.rdatatype.DS and name in targets.values() else []))
    with Upstream(respond) as upstream:
        node = nodes.start(corefile(shared_etcd.endpoint, options=["observe"], directives=[
            "hosts /dev/null {\n 10.7.7.7 printer.lan\n fallthrough\n }", "cache", f"forward . {upstream.address}"]))
        for _ in range(2):
            for alias in ("apex.alias.", "host.alias."):
                assert answers(node, alias, "DS") == sorted([ds.lower(), targets[alias]])
            response = ask(node, "special.alias.")
            assert rcode(response) == rcode(ask(node, "foo.invalid.")) == "NXDOMAIN"
            assert response.authority[0].rdtype == dns.rdatatype.SOA
        assert "foo.invalid." not in upstream.names()


def test_ns_at_the_apex_leads_to_the_node(node):
    response = ask(node, "tf.local.", "NS")
    assert rcode(response) == "NOERROR" and response.flags & dns.flags.AA
    (rrset,) = response.answer
    assert rrset.name.to_text() == "tf.local." and len(rrset) >= 1
    target = rrset[0].target
    assert target == ask(node, "tf.local.", "SOA").answer[0][0].mname
    assert answers(node, target.to_text(), "A") == ["192.0.2.7"]
    assert answers(node, target.to_text(), "AAAA") == ["2001:db8::7"]


@TRANSPORTS
def test_refused_outside(node, tcp):
    for name in ("example.org.", "local.", ".", "tf.local.example.", "xtf.local.", "f.local.", "worker1.tf.localx.",
                 "1.0.0.127.in-addr.arpa."):
        for rdtype in ("A", "SOA", "NS", "PTR"):
            response = ask(node, name, rdtype, tcp=tcp)
            assert rcode(response) == "REFUSED", (name, rdtype)
            assert not response.answer and not response.authority and not response.flags & dns.flags.AA


# --- the question ---

@TRANSPORTS
@pytest.mark.parametrize("name", ["WORKER1.TF.LOCAL.", "WoRkEr1.tF.lOcAl.", "worker1.TF.local.", "NoBoDy.Tf.LoCaL.", "EXAMPLE.Org."])
def test_the_question_comes_back_as_it_was_asked(node, name, tcp):
    response = ask(node, name, tcp=tcp)
    assert response.question[0].name.to_text() == name
    if "1" in name:
        assert [rdata.to_text() for rdata in response.answer[0]] == ["192.0.2.7"]


def test_only_ascii_letters_fold(node):
    # '{' is '[' + 0x20 and '@' is '`' - 0x20; bytes over 0x7f have no case.
    for label in (b"worker\x11", b"WORKER\x11", b"wor[er1", b"worker1\xe9"):
        name = dns.name.Name([label, b"tf", b"local", b""])
        response = exchange(node, make_query(name))
        assert_nxdomain(response, "tf.local.")
        assert response.question[0].name.labels == name.labels


@pytest.mark.parametrize("label", [b"a\0b", b"a.b", b"\xff\xfe", b" ", b"\\", b'"', b"\x7f", b"*", b"-"])
def test_odd_octets_in_a_label(node, label):
    name = dns.name.Name([label, b"tf", b"local", b""])
    response = exchange(node, make_query(name))
    assert_nxdomain(response, "tf.local.")
    assert response.question[0].name.labels == name.labels


def test_a_dot_inside_a_label_is_not_a_separator(node):
    name = dns.name.Name([b"worker1.tf", b"local", b""])
    assert rcode(exchange(node, make_query(name))) == "REFUSED"


@TRANSPORTS
def test_the_longest_name(node, tcp):
    assert len(dns.name.from_text(LONGEST).to_wire()) == 255
    assert answers(node, LONGEST, tcp=tcp) == ["198.51.100.255"]
    assert_nodata(ask(node, LONGEST, "AAAA", tcp=tcp), "tf.local.")
    assert_nxdomain(ask(node, "x" + LONGEST[1:], tcp=tcp), "tf.local.")


@pytest.mark.parametrize("flags", [0, dns.flags.RD, dns.flags.CD, dns.flags.RD | dns.flags.CD | dns.flags.AD])
def test_flags(node, flags):
    query = make_query("worker1.tf.local.")
    query.flags = flags
    response = exchange(node, query)
    assert rcode(response) == "NOERROR"
    assert bool(response.flags & dns.flags.RD) == bool(flags & dns.flags.RD)
    assert bool(response.flags & dns.flags.CD) == bool(flags & dns.flags.CD)
    assert not response.flags & dns.flags.AD, "nothing here is validated"
    assert response.flags & dns.flags.AA


def test_every_id_comes_back(node):
    for query_id in (0, 1, 255, 256, 65535):
        query = make_query("worker1.tf.local.")
        query.id = query_id
        assert exchange(node, query).id == query_id


# --- EDNS ---

@TRANSPORTS
def test_no_opt_in_none_out(node, tcp):
    for name in ("worker1.tf.local.", "nobody.tf.local.", "example.org."):
        assert ask(node, name, tcp=tcp).edns == -1


@TRANSPORTS
@pytest.mark.parametrize("name", ["worker1.tf.local.", "nobody.tf.local.", "tf.local.", "example.org."])
@pytest.mark.parametrize("do", [False, True], ids=["do=0", "do=1"])
def test_opt_in_opt_out(node, name, do, tcp):
    response = ask(node, name, tcp=tcp, use_edns=0, want_dnssec=do, payload=4096)
    assert response.edns == 0
    assert bool(response.ednsflags & dns.flags.DO) == do
    assert response.ednsflags & 0x7FFF == 0
    assert 512 <= response.payload <= 4096


@pytest.mark.parametrize("payload", [0, 1, 511, 512, 513, 1232, 65535])
def test_payload_sizes(node, payload):
    response = ask(node, "worker1.tf.local.", use_edns=0, payload=payload)
    assert rcode(response) == "NOERROR" and len(response.answer) == 1
    assert not response.flags & dns.flags.TC


@TRANSPORTS
@pytest.mark.parametrize("version", [1, 2, 255])
def test_badvers(node, version, tcp):
    query = make_query("worker1.tf.local.", use_edns=0)
    query.ednsflags |= version << 16
    response = exchange(node, query, tcp=tcp)
    assert response.rcode() == dns.rcode.BADVERS
    assert response.edns == 0, "the highest version that we speak"
    assert not response.answer and not response.authority


def test_unknown_options_and_flags_are_ignored_and_not_echoed(node):
    options = [dns.edns.GenericOption(65001, b"x" * 100), dns.edns.GenericOption(3, b""), dns.edns.GenericOption(26946, b"")]
    response = ask(node, "worker1.tf.local.", use_edns=0, ednsflags=0x7FFF, options=options)
    assert rcode(response) == "NOERROR" and len(response.answer) == 1
    assert all(int(option.otype) not in (65001, 26946) for option in response.options)
    assert response.ednsflags & 0x7FFF == 0


@pytest.mark.parametrize("version, option_count", [(0, 100), (0, 250)])
def test_hundreds_of_options(node, version, option_count):
    options = [dns.edns.GenericOption(65001, b"")] * option_count
    response = ask(node, "worker1.tf.local.", use_edns=version, options=options)
    assert rcode(response) in ("NOERROR", "FORMERR")
    assert len(response.to_wire()) < 512


# --- classes, types and opcodes ---

@TRANSPORTS
@pytest.mark.parametrize("name", ["version.bind.", "version.server.", "worker1.tf.local."])
def test_class_chaos(node, name, tcp):
    response = ask(node, name, "TXT", tcp=tcp, rdclass="CH")
    assert rcode(response) == "REFUSED" and not response.answer


@pytest.mark.parametrize("rdclass", ["HS", "CLASS0", "CLASS2", "CLASS65280", "NONE"])
def test_other_classes(node, rdclass):
    response = ask(node, "worker1.tf.local.", "A", rdclass=rdclass)
    assert rcode(response) in ("REFUSED", "FORMERR", "NOTIMP") and not response.answer


def test_any_is_minimal(node):
    response = ask(node, "worker1.tf.local.", "ANY")
    assert rcode(response) == "NOERROR"
    assert len(response.answer) == 1, "RFC 8482: one RRset"
    assert_nxdomain(ask(node, "nobody.tf.local.", "ANY"), "tf.local.")


@TRANSPORTS
def test_axfr_is_refused(node, tcp):
    # dnspython reads a transfer differently: ask for it as an ordinary question.
    query = make_query("tf.local.", "AXFR")
    response = exchange(node, query, tcp=tcp)
    assert rcode(response) == "REFUSED" and not response.answer


def test_ixfr_is_refused(node):
    query = make_query("tf.local.", "IXFR")
    query.authority = [dns.rrset.from_text("tf.local.", 0, "IN", "SOA", "a.tf.local. b.tf.local. 1 2 3 4 5")]
    assert rcode(exchange(node, query)) == "REFUSED"


@pytest.mark.parametrize("transport", [RawUdp, RawTcp])
@pytest.mark.parametrize("opcode", [1, 2, 3, 4, 5, 6, 15])
def test_other_opcodes(node, opcode, transport):
    with transport(node.port) as raw:  # some of them dnspython knows as little as the server does
        data = raw.ask(header(0x1234, opcode << 11) + question("worker1.tf.local."))
    query_id, flags, _, answer_count, *_ = struct.unpack("!6H", data[:12])
    assert query_id == 0x1234 and flags >> 15 == 1 and answer_count == 0
    assert flags >> 11 & 15 == opcode
    assert flags & 15 == dns.rcode.NOTIMP


# --- addresses ---

def test_a_wildcard_socket_answers_from_the_address_that_was_asked(node):
    for host in ("127.0.0.2", "127.1.2.3"):
        assert answers(node, "worker1.tf.local.", host=host) == ["192.0.2.7"]
        assert answers(node, "worker1.tf.local.", host=host, tcp=True) == ["192.0.2.7"]


@pytest.mark.parametrize("source, host", [
    ("127.0.0.1", "127.0.0.1"), ("127.0.0.5", "127.0.0.1"), ("127.0.0.1", "127.0.0.2"), ("127.0.0.5", "127.0.0.5"),
    ("::1", "::1"),
])
def test_whoever_asks_a_wildcard_socket_hears_from_the_address_he_asked(node, source, host):
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(5)
        sock.bind((source, 0))
        sock.connect((host, node.port))  # so that it takes no answer from elsewhere
        query = make_query("worker1.tf.local.")
        sock.send(query.to_wire())
        assert query.is_response(dns.message.from_wire(sock.recv(4096)))


def test_many_clients_at_once(node):
    sockets = []
    try:
        for i in range(300):
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sock.settimeout(5)
            sock.connect(("127.0.0.1", node.port))
            sockets.append(sock)
        queries = [make_query("worker1.tf.local.") for _ in sockets]
        for sock, query in zip(sockets, queries):
            sock.send(query.to_wire())
        for sock, query in zip(sockets, queries):
            response = dns.message.from_wire(sock.recv(4096))
            assert query.is_response(response) and len(response.answer) == 1
    finally:
        for sock in sockets:
            sock.close()


def test_the_ttl_option(shared_etcd, nodes):
    node = nodes.start(corefile(shared_etcd.endpoint, options=["ttl 42s", "observe"]))
    wait_resolves([node], "four.tf.local.", "198.51.100.4")
    assert ask(node, "four.tf.local.").answer[0].ttl == 42


def test_fallthrough_gives_missing_names_to_the_next(shared_etcd, nodes):
    plain = nodes.start(corefile(shared_etcd.endpoint, options=["observe"], directives=["whoami"]))
    through = nodes.start(corefile(shared_etcd.endpoint, options=["observe", "fallthrough"], directives=["whoami"]))
    some = nodes.start(corefile(shared_etcd.endpoint, options=["observe", "fallthrough sub.tf.local"], directives=["whoami"]))
    for node in (plain, through, some):
        wait_resolves([node], "four.tf.local.", "198.51.100.4")
        assert_nodata(ask(node, "four.tf.local.", "AAAA"), "tf.local.")
        whoami = ask(node, "example.org.")
        assert rcode(whoami) == "NOERROR" and whoami.additional, "what is not ours goes on to the next"
    assert_nxdomain(ask(plain, "nobody.tf.local."), "tf.local.")
    response = ask(through, "nobody.tf.local.")
    assert rcode(response) == "NOERROR" and response.additional
    assert_nxdomain(ask(some, "nobody.tf.local."), "tf.local.")
    response = ask(some, "nobody.sub.tf.local.")
    assert rcode(response) == "NOERROR" and response.additional


@pytest.mark.parametrize("beside", ["", "prometheus 127.0.0.1:{port}", "log"])
def test_names_above_those_of_another_block_exist(shared_etcd, nodes, free_port, beside):
    """A block whose zone is below the cluster's. NXDOMAIN above it would hide its names from a resolver with RFC 8020."""
    shared_etcd.put("four.tf.local.", '{"ipv4":"198.51.100.4"}')
    node = nodes.start(corefile(shared_etcd.endpoint, options=["observe"], directives=[beside.format(port=free_port())]) +
                       "a.b.tf.local {\n hosts {\n 192.0.2.9 x.y.a.b.tf.local\n }\n}\n")
    wait_resolves([node], "four.tf.local.", "198.51.100.4")
    for tcp in (False, True):
        for edns in (False, 0):
            asked = {"tcp": tcp, "use_edns": edns}
            assert answers(node, "x.y.a.b.tf.local.", **asked) == ["192.0.2.9"]
            for rdtype in ("A", "TXT"):
                assert_nodata(ask(node, "b.tf.local.", rdtype, **asked), "tf.local.")
            for other in ("c.tf.local.", "c.b.tf.local.", "xb.tf.local."):
                assert_nxdomain(ask(node, other, **asked), "tf.local.")


def test_a_pattern_without_a_fixed_zone(shared_etcd, nodes):
    """`{{.ID}}.` has the root as its zone: authoritative for the names it holds, and for nothing else."""
    node = nodes.start(corefile(shared_etcd.endpoint, "n{{.ID}}.", options=["address 192.0.2.9"]))
    wait_resolves([node], "n1.", "192.0.2.9")
    assert rcode(ask(node, "example.org.")) == "REFUSED"


def test_the_negative_answer_of_a_long_zone(shared_etcd, nodes):
    labels = ["n{{.ID}}", "x" * 60, "y" * 60, "z" * 60, "w" * 40]
    node = nodes.start(corefile(shared_etcd.endpoint, ".".join(labels) + ".", limit=9, options=["address 192.0.2.9"]))
    zone = ".".join(labels[1:]) + "."
    wait_resolves([node], f"n1.{zone}", "192.0.2.9")
    for tcp in (False, True):
        response = ask(node, f"n2.{zone}", tcp=tcp)
        assert rcode(response) == "NXDOMAIN"
        if not response.flags & dns.flags.TC:
            assert_soa_in_authority(response, zone)
