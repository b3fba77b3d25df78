"""What RFCs ask of a server and of a forwarder, and which test holds each. This file has RFC 8906 §8 and what has no place
elsewhere.

RFC 7766, DNS over TCP
  §5    a server listens on TCP too                     test_dns: every test with `tcp`
  §5    TC is followed over TCP                         test_forward: test_upstream_truncation_is_not_the_clients
  §6.1  connections are reused, by clients and ours     test_tcp: test_one_after_the_other_on_one_connection;
                                                        test_keepalive: test_a_connection_that_an_upstream_wants_closed…
  §6.2.1.1, §7  pipelined queries; out of order         test_tcp: test_a_thousand_pipelined; here: test_a_slow_answer…
  §6.2.2  limits for each client, much above its need   test_tcp_limits: test_no_more_than_max_per_client
  §6.2.3  idle time-outs of seconds, less under load    test_tcp_limits: test_the_idle_timeout_is_configured;
                                                        test_keepalive: test_when_there_are_too_many…
  §6.2.4  a client's end of stream is not the end       test_tcp: test_half_close
  §7    a response is matched by ID and question        test_spoofing, tests/unit/resolver/forward_hostile_test.cc
  §8    length and message in one segment               here: test_length_and_message_leave_together
RFC 7828, edns-tcp-keepalive                            test_keepalive
RFC 8020, NXDOMAIN cut                                  test_cache
RFC 8914, extended DNS errors
  §2    one INFO-CODE, text of UTF-8, in any response   here: test_extended_errors…
  §3    a forwarder passes on what an upstream said     test_forward, tests/unit/upstream
  §4    each code means what the RFC says               here: test_extended_errors…
RFC 9210, operation of DNS over TCP
  §4.1  connections are admitted by policy              test_tcp_limits
  §4.2  overall, for each client, idle time             test_tcp_limits, test_descriptors
  §4.3  the server may close; clients reset nothing     test_tcp: test_idle_and_trickling_connections_are_closed
RFC 9619, one question at most                          here: test_more_than_one_question…; test_hostile: test_answered
"""

import socket
import struct
import threading

import dns.edns
import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import pytest

from corefiles import corefile
from dns_client import RawTcp, RawUdp, exchange, extended_errors, header, make_query, question, rcode, wait_resolves
from harness.processes import TIME_FACTOR
from harness.upstreams import Upstream, answer

OWN = "worker1.tf.local."
ZONE = "tf.local."
FORWARDED = "www.up.example."


def upstream_answer(query, tcp):
    name = query.question[0].name.to_text().lower()
    if name.startswith("fails."):
        return answer(query, rcode=dns.rcode.SERVFAIL)
    return answer(query, "A 192.0.2.1") if query.question[0].rdtype == dns.rdatatype.A else answer(query)


@pytest.fixture(scope="module")
def node(shared_etcd, shared_nodes):
    with Upstream(upstream_answer) as upstream:
        node = shared_nodes.start(corefile(shared_etcd.endpoint, pattern="worker{{.ID}}.tf.local.", options=["address 192.0.2.7"],
                                           directives=["cache", f"forward up.example {upstream.address}"]))
        node.wait_owns(shared_etcd)
        wait_resolves([node], OWN, "192.0.2.7")
        yield node


# --- RFC 8906 §8: what is sent, and what must come ---

UNKNOWN_OPTION = dns.edns.GenericOption(100, b"")
SEVERAL_OPTIONS = [dns.edns.GenericOption(code, data) for code, data in
                   [(3, b""), (8, b"\0\1\0\0"), (9, b""), (10, bytes(8)), (11, b""), (UNKNOWN_OPTION.otype, b"")]]
Z = 0x0040  # of the header; of EDNS likewise, as any unknown flag

# Name of the case -> (flags, EDNS version or None, EDNS flags, options)
RD = dns.flags.RD
CASES = {
    "8.1.1 plain": (0, None, 0, []),
    "8.1.3.1 CD": (dns.flags.CD, None, 0, []),
    "8.1.3.1 AD": (dns.flags.AD, None, 0, []),
    "8.1.3.2 reserved bit": (Z, None, 0, []),
    "8.1.3.3 RD": (RD, None, 0, []),
    "8.2.1 EDNS": (0, 0, 0, []),
    "8.2.2 EDNS version 1": (0, 1, 0, []),
    "8.2.3 unknown option": (0, 0, 0, [UNKNOWN_OPTION]),
    "8.2.4 unknown flag": (0, 0, Z, []),
    "8.2.5 version 1, unknown flag": (0, 1, Z, []),
    "8.2.6 version 1, unknown option": (0, 1, 0, [UNKNOWN_OPTION]),
    "8.2.8 DO": (0, 0, dns.flags.DO, []),
    "8.2.9 version 1, DO": (0, 1, dns.flags.DO, []),
    "8.2.10 several options": (0, 0, 0, SEVERAL_OPTIONS),
}
QUESTIONS = [(ZONE, "SOA"), (OWN, "A"), (OWN, "TYPE1000"), (FORWARDED, "A"), (FORWARDED, "TYPE1000")]


@pytest.mark.parametrize("tcp", [False, True], ids=["udp", "tcp"])
@pytest.mark.parametrize("name, rdtype", QUESTIONS)
@pytest.mark.parametrize("case", CASES)
def test_rfc_8906(node, case, name, rdtype, tcp):
    flags, version, ednsflags, options = CASES[case]
    query = dns.message.make_query(name, rdtype)
    query.flags = flags
    if version is not None:
        query.use_edns(version, ednsflags, 1232, options=options)
    response = exchange(node, query, tcp)
    assert response.flags & dns.flags.QR and response.flags & RD == flags & RD
    assert not response.flags & (Z | dns.flags.TC)
    assert response.question == query.question
    if version is None:
        assert response.edns == -1, "no OPT record where none was asked with"
    else:
        assert response.edns == 0 and response.ednsflags & 0xFFFF == ednsflags & dns.flags.DO
        assert not {int(option.otype) for option in response.options} & {8, 9, int(UNKNOWN_OPTION.otype)}
    if version == 1:
        assert rcode(response) == "BADVERS" and not response.answer
        assert not response.options
    elif name == FORWARDED and not flags & RD:
        assert rcode(response) == "REFUSED" and not response.answer, "RD=0: an answer would show what others have asked"
    else:
        assert rcode(response) == "NOERROR"
        assert bool(response.answer) == (rdtype != "TYPE1000")
        assert bool(response.flags & dns.flags.AA) == (name != FORWARDED)


@pytest.mark.parametrize("opcode", [1, 2, 3, 6, 15])
@pytest.mark.parametrize("kind", [RawUdp, RawTcp])
def test_rfc_8906_unknown_opcodes(node, opcode, kind):
    """§8.1.4: a header and nothing else."""
    with kind(node.port) as client:
        response = client.ask(header(7, opcode << 11, qd=0))
    assert response == header(7, 0x8000 | opcode << 11 | dns.rcode.NOTIMP, qd=0)


@pytest.mark.parametrize("name", [ZONE, OWN, "a.nowhere.example."])
def test_rfc_8906_small_responses(node, name):
    """§8.2.7: a response that would be larger than 512 bytes is not sent over UDP to who takes no more."""
    response = exchange(node, make_query(name, "DNSKEY", use_edns=0, payload=512, want_dnssec=True))
    assert len(response.to_wire()) <= 512 and response.edns == 0


# --- RFC 9619 ---

@pytest.mark.parametrize("kind", [RawUdp, RawTcp])
@pytest.mark.parametrize("count", [2, 3, 0xFFFF])
def test_more_than_one_question_is_a_format_error(node, kind, count):
    """Whether they are there or only counted, and whatever they ask."""
    for questions in (question(OWN) * 2, question(OWN), question(OWN) + question(FORWARDED), b""):
        with kind(node.port) as client:
            response = client.ask(header(9, qd=count) + questions)
        assert response[:2] == b"\0\x09" and response[3] & 15 == 1, "FORMERR"
        assert struct.unpack("!4H", response[4:12]) == (0, 0, 0, 0) and len(response) == 12


# --- RFC 7766 ---

def framed(query_id, name):
    packet = header(query_id, RD) + question(name)
    return struct.pack("!H", len(packet)) + packet


def test_a_slow_answer_holds_up_no_other(nodes):
    """§6.2.1.1, §7: queries of one connection are answered as they are ready."""
    others_are_answered = threading.Event()

    def slow_answer(query, tcp):
        assert others_are_answered.wait(5 * TIME_FACTOR)
        return upstream_answer(query, tcp)

    with Upstream(upstream_answer) as fast, Upstream(slow_answer) as slow:
        node = nodes.start(f". {{\n    forward slow.example {slow.address}\n    forward up.example {fast.address}\n}}\n")
        with RawTcp(node.port) as tcp:
            tcp.send(framed(1, "a.slow.example.") + framed(2, "a.up.example.") + framed(3, "b.up.example."))
            assert sorted(tcp.receive_message()[:2] for _ in range(2)) == [b"\0\2", b"\0\3"]
            others_are_answered.set()
            assert tcp.receive_message()[:2] == b"\0\1"


def test_length_and_message_leave_together(node):
    """§8: one segment, so that one read has both."""
    with RawTcp(node.port) as tcp:
        for query_id, name in ((1, OWN), (2, FORWARDED)):
            tcp.send(framed(query_id, name))
            data = tcp.sock.recv(65535)
            assert len(data) == 2 + struct.unpack("!H", data[:2])[0]


def test_length_and_message_leave_together_for_upstreams(nodes):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        node = nodes.start(f". {{\n    forward . 127.0.0.1:{listener.getsockname()[1]} {{\n        force_tcp\n    }}\n}}\n")
        with RawUdp(node.port) as udp:
            udp.send(header(1, RD) + question("a.example."))
            connection, _ = listener.accept()
            with connection:
                data = connection.recv(65535)
                assert len(data) == 2 + struct.unpack("!H", data[:2])[0]


# --- RFC 8914 ---

def test_extended_errors_mean_what_they_say(node):
    """§4: each code that is sent, at what it is for."""
    def codes(name, rdtype="A", flags=RD, **more):
        query = make_query(name, rdtype, use_edns=0, **more)
        query.flags = flags
        response = exchange(node, query)
        return rcode(response), extended_errors(response)
    assert codes(OWN) == ("NOERROR", []) and codes("worker9.tf.local.") == ("NXDOMAIN", [])
    assert codes(FORWARDED, flags=0) == ("REFUSED", [20]), "Not Authoritative (§4.21): RD is clear"
    assert codes("fails.up.example.") == ("SERVFAIL", []), "it is the upstream's, which has said no more"
