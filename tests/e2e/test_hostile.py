"""Malformed packets over UDP: what is answered how, what is dropped, and that nothing hurts the server.

A drop is shown without waiting: the packet is followed by a good question from the same socket, and the first thing that
comes back answers that one."""

import random
import socket
import struct

import dns.message
import dns.rcode
import pytest

from dns_client import RawTcp, RawUdp, answers, header, opt, question, record, wire_name
from hostile_node import NAME, node, still_answers  # noqa: F401 (fixtures)

pytestmark = pytest.mark.hostile

FORMERR, SERVFAIL, NOTIMP, REFUSED, NOTAUTH = 1, 2, 4, 5, 9
BADKEY = 17
QUESTION = question(NAME)
QR, AA, TC, RD = 0x8000, 0x0400, 0x0200, 0x0100


def response_code(data, query_id):
    got_id, flags = struct.unpack("!2H", data[:4])
    assert got_id == query_id, "the ID is echoed"
    assert flags & QR
    assert len(data) >= 12
    return flags & 15


DROPPED = {
    "empty": b"",
    "one byte": b"\x12",
    "eleven bytes": header(0x1234)[:11],
    "a response": header(0x1234, QR) + QUESTION,
    "a bare response header": header(0x1234, QR, qd=0),
    "a malformed response": header(0x1234, QR) + b"\xff",
    "a response with another opcode": header(0x1234, QR | 5 << 11) + QUESTION,
}


@pytest.mark.parametrize("case", DROPPED)
def test_dropped(node, case):
    with RawUdp(node.port) as udp:
        udp.send(DROPPED[case])
        assert response_code(udp.ask(header(0x5678) + QUESTION), 0x5678) == 0


ID = 0x1234
TABLE = {
    "a bare header, QDCOUNT 0": (header(ID, qd=0), FORMERR),
    "QDCOUNT 0 and an OPT": (header(ID, qd=0, ar=1) + opt(), FORMERR),
    "QDCOUNT 2": (header(ID, qd=2) + QUESTION + QUESTION, FORMERR),
    "QDCOUNT 65535": (header(ID, qd=65535) + QUESTION, FORMERR),
    "a bare header, QDCOUNT 1": (header(ID), FORMERR),
    "no room for the type": (header(ID) + wire_name(NAME), FORMERR),
    "half a type": (header(ID) + QUESTION[:-3], FORMERR),
    "half a class": (header(ID) + QUESTION[:-1], FORMERR),
    "a name without its end": (header(ID) + b"\7worker1\2tf", FORMERR),
    "a label that overruns": (header(ID) + b"\x3fworker1", FORMERR),
    "a name of 256 bytes": (header(ID) + question("a" * 63 + "." + "b" * 63 + "." + "c" * 63 + "." + "d" * 62 + "."), FORMERR),
    "a name of 300 bytes": (header(ID) + question(("x" * 59 + ".") * 5), FORMERR),
    "a name of a thousand labels": (header(ID) + b"\1x" * 1000 + b"\0\0\1\0\1", FORMERR),
    "label type 01": (header(ID) + b"\x41a\0" + b"\0\1\0\1", FORMERR),
    "label type 10": (header(ID) + b"\x81a\0" + b"\0\1\0\1", FORMERR),
    "a pointer to itself": (header(ID) + b"\xc0\x0c" + b"\0\1\0\1", FORMERR),
    "a pointer forward": (header(ID) + b"\xc0\x12" + b"\0\1\0\1" + wire_name(NAME), FORMERR),
    "a pointer into the header": (header(ID) + b"\1a\xc0\x00" + b"\0\1\0\1", FORMERR),
    "a pointer past the end": (header(ID) + b"\xff\xff" + b"\0\1\0\1", FORMERR),
    "half a pointer": (header(ID) + b"\1a\xc0", FORMERR),
    "two pointers in a ring": (header(ID) + b"\1a\xc0\x0c" + b"\0\1\0\1", FORMERR),
    "ARCOUNT without a record": (header(ID, ar=1) + QUESTION, FORMERR),
    "ANCOUNT without a record": (header(ID, an=1) + QUESTION, FORMERR),
    "a truncated record": (header(ID, ar=1) + QUESTION + record(b"\0", 16, 1, 0, b"abc")[:-1], FORMERR),
    "RDLENGTH that overruns": (header(ID, ar=1) + QUESTION + b"\0" + struct.pack("!2HIH", 16, 1, 0, 9) + b"abc", FORMERR),
    "a record's name overruns": (header(ID, ar=1) + QUESTION + b"\x3fabc", FORMERR),
    "two OPT": (header(ID, ar=2) + QUESTION + opt() + opt(), FORMERR),
    "an OPT whose owner is not the root": (header(ID, ar=1) + QUESTION + opt(owner=b"\1a\0"), FORMERR),
    "an option that overruns": (header(ID, ar=1) + QUESTION + opt(options=struct.pack("!2H", 10, 8) + b"1234"), FORMERR),
    "half an option": (header(ID, ar=1) + QUESTION + opt(options=b"\0\x0a\0"), FORMERR),
    "an OPT that overruns": (header(ID, ar=1) + QUESTION + opt(options=b"\0\x0a\0\0")[:-1], FORMERR),
    "EDNS version 1": (header(ID, ar=1) + QUESTION + opt(version=1), 0),  # BADVERS is 16: its low bits are 0
    "type 0": (header(ID) + question(NAME, 0), (FORMERR, NOTIMP)),
    "OPT as a question": (header(ID) + question(NAME, 41), (FORMERR, NOTIMP)),
    "TKEY as a question": (header(ID) + question(NAME, 249), (FORMERR, NOTIMP)),
    "TSIG as a question": (header(ID) + question(NAME, 250), (FORMERR, NOTIMP)),
    "AXFR": (header(ID) + question("tf.local.", 252), REFUSED),
    "IXFR": (header(ID) + question("tf.local.", 251), REFUSED),
    "class CHAOS": (header(ID) + question("version.bind.", 16, 3), REFUSED),
    "class NONE": (header(ID) + question(NAME, 1, 254), (REFUSED, FORMERR, NOTIMP)),
    "IQUERY": (header(ID, 1 << 11, qd=0, an=1) + record(b"\0", 1, 1, 0, b"\1\2\3\4"), NOTIMP),
    "STATUS": (header(ID, 2 << 11, qd=0), NOTIMP),
    "NOTIFY": (header(ID, 4 << 11) + question("tf.local.", 6), NOTIMP),
    "UPDATE": (header(ID, 5 << 11) + question("tf.local.", 6), NOTIMP),
    "opcode 15 and nothing else": (header(ID, 15 << 11, qd=0), NOTIMP),
    "a query with answers and authority": (
        header(ID, an=1, ns=1) + QUESTION + record(b"\xc0\x0c", 1, 1, 0, b"\1\2\3\4") * 2, (0, FORMERR)),
    "trailing bytes": (header(ID) + QUESTION + b"trailing", (0, FORMERR)),
    "every flag set but QR": (header(ID, 0x07F0) + QUESTION, 0),
    "a TSIG of nobody": (
        header(ID, ar=1) + QUESTION + record(
            wire_name("key."), 250, 255, 0,
            wire_name("hmac-sha256.") + b"\0" * 6 + b"\1\x2c" + b"\0\x20" + b"m" * 32 + b"\x12\x34" + b"\0\0" + b"\0\0"), NOTAUTH),
}


@pytest.mark.parametrize("transport", ["udp", "udp6", "tcp"])
@pytest.mark.parametrize("case", TABLE)
def test_answered(node, case, transport):
    packet, expected = TABLE[case]
    if transport == "tcp":
        with RawTcp(node.port) as tcp:
            tcp.send_message(packet)
            data = tcp.receive_message()
            assert data is not None, "answered before the connection is closed, if it is"
    else:
        with RawUdp(node.port, "::1" if transport == "udp6" else "127.0.0.1") as udp:
            data = udp.ask(packet)
    assert response_code(data, ID) in (expected if isinstance(expected, tuple) else (expected,))
    assert len(data) <= max(len(packet), 512)
    counts = struct.unpack("!4H", data[4:12])
    if response_code(data, ID) not in (0, 3):
        assert counts[1] == 0, "no answer"
    if case == "a TSIG of nobody":
        assert counts[3] == 1 and data[-4:] == struct.pack("!2H", BADKEY, 0), "RFC 8945 §5.2: unsigned, error BADKEY"
    elif "opcode 15" not in case:  # dnspython knows neither
        dns.message.from_wire(data, ignore_trailing=False)  # whatever it says, it is well-formed


@pytest.mark.parametrize("case", [case for case, (packet, _) in TABLE.items() if len(packet) < 400])
def test_every_prefix_is_survived(node, case):
    packet, _ = TABLE[case]
    with RawUdp(node.port) as udp:
        for end in range(len(packet)):
            udp.send(packet[:end])
            if end % 50 == 49:  # read as we go, so that neither queue overflows
                drain_until(udp, 0x7777)
        drain_until(udp, 0x7777)


def drain_until(udp, query_id):
    """Sends a good question and reads until its answer: everything sent before has been seen by then."""
    udp.send(header(query_id) + QUESTION)
    for _ in range(1000):
        data = udp.receive()
        if struct.unpack("!H", data[:2])[0] == query_id:
            return
    raise AssertionError("the good question got no answer")


def test_options_hundreds_of_times(node):
    options = struct.pack("!2H", 65001, 0) * 1000
    with RawUdp(node.port) as udp:
        data = udp.ask(header(ID, ar=1) + QUESTION + opt(options=options))
        assert response_code(data, ID) in (0, FORMERR)
        assert len(data) < 512


def test_cookies_of_any_length_get_an_answer(node):
    with RawUdp(node.port) as udp:
        for length in [*range(0, 42), 255]:
            data = udp.ask(header(ID, ar=1) + QUESTION + opt(options=struct.pack("!2H", 10, length) + b"c" * length))
            assert response_code(data, ID) in (0, FORMERR), length


def test_a_chain_of_pointers(node):
    # Each record's owner points at the one before: work must not grow with the square of the length.
    packet = header(ID, ar=60) + QUESTION
    previous = 12
    for _ in range(60):
        here = len(packet)
        packet += record(b"\1x" + struct.pack("!H", 0xC000 | previous), 16, 1, 0, b"")
        previous = here
    with RawUdp(node.port) as udp:
        assert response_code(udp.ask(packet), ID) in (0, FORMERR)


def test_packets_of_every_size(node):
    with RawUdp(node.port) as udp:
        for size in (12, 13, 511, 512, 513, 1231, 1232, 1233, 1500, 4095, 4096, 4097, 9000, 65507):
            udp.send((header(ID) + QUESTION + b"\0" * size)[:size])
            drain_until(udp, 0x7777)


def test_random_packets(node):
    random_ = random.Random(1)
    with RawUdp(node.port) as udp:
        for i in range(3000):
            udp.send(random_.randbytes(random_.randrange(0, 600)))
            if i % 50 == 49:
                drain_until(udp, 0x7777)


def test_mutated_packets(node):
    random_ = random.Random(2)
    seeds = [packet for packet, _ in TABLE.values()] + [header(ID) + QUESTION, header(ID, ar=1) + QUESTION + opt()]
    with RawUdp(node.port) as udp:
        for i in range(6000):
            packet = bytearray(random_.choice(seeds))
            for _ in range(random_.randrange(1, 6)):
                position = random_.randrange(len(packet))
                action = random_.randrange(4)
                if action == 0:
                    packet[position] = random_.randrange(256)
                elif action == 1:
                    packet[position] ^= 1 << random_.randrange(8)
                elif action == 2:
                    del packet[position:position + random_.randrange(1, 8)]
                else:
                    packet[position:position] = random_.randbytes(random_.randrange(1, 8))
                if not packet:
                    packet = bytearray(1)
            udp.send(bytes(packet))
            if i % 50 == 49:
                drain_until(udp, 0x7777)


def test_a_thousand_questions_without_reading(node):
    """The client's buffer overflows; the server's business goes on."""
    with RawUdp(node.port) as udp:
        for _ in range(5000):
            udp.send(header(ID) + QUESTION)


def test_a_client_that_is_gone(node):
    """Answers to closed ports come back as ICMP errors: they must not disturb other clients."""
    for _ in range(200):
        with RawUdp(node.port) as udp:
            udp.send(header(ID) + QUESTION)
    with RawUdp(node.port) as udp:  # whose port may be one of theirs: let their late answers come first
        drain_until(udp, 0x7777)


def test_source_port_zero(node):
    try:
        sock = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)
    except PermissionError:
        pytest.skip("a raw socket needs root")
    packet = header(ID) + QUESTION
    with sock:
        sock.sendto(struct.pack("!4H", 0, node.port, 8 + len(packet), 0) + packet, ("127.0.0.1", 0))
