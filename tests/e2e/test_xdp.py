"""Names of the cluster that are answered in the kernel (XDP): by whom, and that the answer is the sockets', byte for byte.

Two servers with the same Corefile, but for `xdp`, watch one etcd on a machine of its own (harness/xdp.py). What the kernel is
to answer must come while the server stands still; what it has to leave alone must get the answer of the other server."""

import os
import socket
import struct

import dns.reversename
import pytest

import test_conformance
import test_hostile
from conftest import Nodes, managed
from dns_client import RawTcp, answers, header, opt, question, record, resolves, wire_name
from harness import xdp
from harness.mutations import Queries, body, without_id
from harness.processes import wait_until
from harness.xdp import (CLIENT4, CLIENT6, INTERFACE, LONGEST, LOOPBACK4, LOOPBACK6, METRICS, PLAIN_METRICS, PLAIN_PORT, PORT, SECOND4,
                         SECOND6, SERVER4, SERVER6, SOURCE_PORTS, Client, Site, Stream, Wire, frozen)

pytestmark = pytest.mark.skipif(xdp.unavailable() is not None, reason=str(xdp.unavailable()))

A, NS, SOA, PTR, MX, TXT, AAAA, SRV, HTTPS = 1, 2, 6, 12, 15, 16, 28, 33, 65
RD, CD, AD, DO = 0x0100, 0x0010, 0x0020, 0x8000
ID = 0x1234
OWN = "worker1.tf.local."
# Answered by the process alone, after all that was sent before.
BARRIER = header(0xfffe, RD, ar=1) + question(OWN) + opt(options=struct.pack("!2H", 65001, 0))
# The same for the kernel.
KERNEL_BARRIER = header(0xfffe, RD) + question(OWN)


def reverse(address):
    return dns.reversename.from_address(address).to_text()


def plain(name, rdtype=A, flags=RD):
    return header(ID, flags) + question(name, rdtype)


def edns(name, rdtype=A, flags=RD, **options):
    return header(ID, flags, ar=1) + question(name, rdtype) + opt(**options)


# What the kernel answers, as a Corefile without anything special has it.
ANSWERED = {
    "A": plain(OWN),
    "AAAA": plain(OWN, AAAA),
    "without RD": plain(OWN, flags=0),
    "CD": plain(OWN, flags=RD | CD),
    "AD": plain(OWN, flags=RD | AD),
    "every flag of a query": plain(OWN, flags=0x07f0),
    "upper case": plain(OWN.upper()),
    "mixed case": plain("wOrKeR1.Tf.LoCaL."),
    "the other family": plain("four.tf.local.", AAAA),
    "and the other one": plain("six.tf.local.", A),
    "IPv6 alone": plain("six.tf.local.", AAAA),
    "NODATA of TXT": plain(OWN, TXT),
    "NODATA of SOA": plain(OWN, SOA),
    "NODATA of NS": plain(OWN, NS),
    "NODATA of HTTPS": plain(OWN, HTTPS),
    "NODATA of an unknown type": plain(OWN, 1000),
    "NODATA of PTR": plain(OWN, PTR),
    "NODATA in mixed case": plain("FOUR.tf.LOCAL.", MX),
    "NXDOMAIN": plain("worker999.tf.local."),
    "NXDOMAIN in mixed case": plain("Nobody.TF.local."),
    "NXDOMAIN below a name": plain("below.worker1.tf.local."),
    "NXDOMAIN of many labels": plain(".".join("abcdefghij") + ".tf.local."),
    "NXDOMAIN of AAAA": plain("worker999.tf.local.", AAAA),
    "NXDOMAIN of SRV": plain("_etcd._tcp.tf.local.", SRV),
    "NXDOMAIN of a star": plain("*.tf.local."),
    "a name of several labels": plain("a.b.deep.tf.local."),
    "a label of 63 bytes": plain("l" * 63 + ".tf.local."),
    "a name of 255 bytes": plain(LONGEST),
    "a name of 255 bytes, AAAA": edns(LONGEST, AAAA),
    "a name of 255 bytes that is not there": plain("y" + LONGEST[1:]),
    "an underscore": plain("under_score.tf.local."),
    "PTR of IPv4": plain(reverse("10.1.0.1"), PTR),
    "PTR of IPv6": plain(reverse("2001:db8:1::1"), PTR),
    "PTR in upper case": plain(reverse("2001:db8:1::1f").upper(), PTR),
    "PTR of a name of one family": plain(reverse("10.2.0.1"), PTR),
    "PTR with EDNS": edns(reverse("10.1.0.2"), PTR),
    "EDNS": edns(OWN),
    "EDNS and AAAA": edns(OWN, AAAA),
    "EDNS and DO": header(ID, RD, ar=1) + question(OWN) + opt(flags=DO),
    "EDNS of 0 bytes": edns(OWN, payload=0),
    "EDNS of 512 bytes": edns(OWN, payload=512),
    "EDNS of 65535 bytes": edns(OWN, payload=65535),
    "EDNS and NXDOMAIN": edns("nobody.tf.local."),
    "EDNS and NODATA": edns(OWN, MX),
    "EDNS, DO and NXDOMAIN": header(ID, RD | CD, ar=1) + question("nobody.tf.local.") + opt(flags=DO),
    "EDNS with unknown flags": header(ID, RD, ar=1) + question(OWN) + opt(flags=0x7fff),
}

# What either may answer.
EITHER = {
    "the zone's name server": plain("ns.dns.tf.local."),
    "above it": plain("dns.tf.local."),
    "an empty non-terminal": plain("b.deep.tf.local."),
}

# What it leaves to the process, and the process answers.
PASSED = {
    "the zone itself": plain("tf.local.", SOA),
    "the zone's A": plain("tf.local."),
    "a name held outside": plain("far.example.org."),
    "a name outside": plain("www.example.org."),
    "a suffix that only looks like the zone": plain("worker1.xtf.local."),
    "the root": header(ID, RD) + b"\0\0\1\0\1",
    "PTR of two names": plain(reverse("10.2.0.9"), PTR),
    "PTR of a name that is long": plain(reverse("10.2.0.10"), PTR),
    "PTR of nobody": plain(reverse("10.9.9.9"), PTR),
    "TXT of an address": plain(reverse("10.1.0.1"), TXT),
    "ANY": plain(OWN, 255),
    "AXFR": plain("tf.local.", 252),
    "AXFR of a name": plain(OWN, 252),
    "IXFR": plain("tf.local.", 251),
    "MAILB": plain(OWN, 253),
    "TKEY": plain(OWN, 249),
    "type 0": plain(OWN, 0),
    "OPT as a question": plain(OWN, 41),
    "class CHAOS": header(ID, RD) + question(OWN, A, 3),
    "version.bind": header(ID, RD) + question("version.bind.", TXT, 3),
    "id.server": header(ID, RD) + question("id.server.", TXT, 3),
    "class ANY": header(ID, RD) + question(OWN, A, 255),
    "class NONE": header(ID, RD) + question(OWN, A, 254),
    "class 0": header(ID, RD) + question(OWN, A, 0),
    "NOTIFY": header(ID, 4 << 11) + question("tf.local.", SOA),
    "NOTIFY of a name": header(ID, 4 << 11) + question(OWN),
    "UPDATE": header(ID, 5 << 11) + question(OWN),
    "IQUERY": header(ID, 1 << 11) + question(OWN),
    "two questions": header(ID, RD, qd=2) + question(OWN) + question(OWN, AAAA),
    "no question": header(ID, RD, qd=0),
    "an answer": header(ID, RD, an=1) + question(OWN) + record(b"\xc0\x0c", A, 1, 0, b"\1\2\3\4"),
    "an authority": header(ID, RD, ns=1) + question(OWN) + record(b"\xc0\x0c", A, 1, 0, b"\1\2\3\4"),
    "an additional record that is no OPT": header(ID, RD, ar=1) + question(OWN) + record(b"\0", A, 1, 0, b""),
    "trailing bytes": plain(OWN) + b"trailing",
    "eleven trailing bytes": plain(OWN) + opt(),
    "a trailing byte behind EDNS": edns(OWN) + b"\0",
    "a compressed name": header(ID, RD) + b"\7worker1\xc0\x1e\0\1\0\1\2tf\5local\0",
    "a pointer": header(ID, RD) + b"\xc0\x0c\0\1\0\1",
    "half a question": plain(OWN)[:-2],
    "a header": header(ID, RD),
    "a label of 64 bytes": header(ID, RD) + b"\x40" + b"x" * 64 + wire_name("tf.local.") + b"\0\1\0\1",
    "a name of 256 bytes": plain("z" + LONGEST),
    "NSID": edns(OWN, options=struct.pack("!2H", 3, 0)),
    "a client subnet": edns(OWN, options=struct.pack("!4H", 8, 4, 1, 0)),
    "a cookie": edns(OWN, options=struct.pack("!2H", 10, 8) + bytes(8)),
    "a keepalive": edns(OWN, options=struct.pack("!2H", 11, 0)),
    "padding": edns(OWN, options=struct.pack("!2H", 12, 4) + bytes(4)),
    "an unknown option": edns(OWN, options=struct.pack("!2H", 65001, 3) + b"abc"),
    "half an option": edns(OWN, options=b"\0\x0a\0"),
    "EDNS version 1": edns(OWN, version=1),
    "an OPT that is not of the root": edns(OWN, owner=b"\1a\0"),
    "two OPT": header(ID, RD, ar=2) + question(OWN) + opt() + opt(),
    "ARCOUNT without a record": header(ID, RD, ar=1) + question(OWN),
    "an OPT that overruns": header(ID, RD, ar=1) + question(OWN) + opt(options=b"\0\x0a\0\0")[:-1],
    "TSIG": header(ID, RD, ar=1) + question(OWN) + record(
        wire_name("key."), 250, 255, 0, wire_name("hmac-sha256.") + b"\0" * 6 + b"\1\x2c" + b"\0\x20" + b"m" * 32 + b"\x12\x34" + b"\0\0" + b"\0\0"),
    "a long packet": plain(OWN) + bytes(1000),
    "4096 bytes": (plain(OWN) + bytes(4096))[:4096],
}

# Neither answers.
DROPPED = {
    "empty": b"",
    "a byte": b"\x12",
    "half a header": header(ID)[:11],
    "a response": header(ID, 0x8000 | RD) + question(OWN),
    "4097 bytes": (plain(OWN) + bytes(4097))[:4097],
}

# Where from and where to.
PATHS = {
    "IPv4 on lo": ("machine", LOOPBACK4),
    "another 127/8 on lo": ("machine", "127.1.2.3"),
    "IPv6 on lo": ("machine", LOOPBACK6),
    "the machine's own IPv4 address": ("machine", SERVER4),
    "the machine's own IPv6 address": ("machine", SERVER6),
    "IPv4 over veth": ("outside", SERVER4),
    "IPv6 over veth": ("outside", SERVER6),
    "another IPv4 address over veth": ("outside", SECOND4),
    "another IPv6 address over veth": ("outside", SECOND6),
}


class Pair:
    """The server with `xdp` and the one without. The machine's network is entered."""

    def __init__(self, site, nodes, name="xdp", interfaces=f"lo {INTERFACE}", watched="lo", **options):
        self.site = site
        self.watched = watched  # the interface on which the program is looked for
        self.texts = [xdp.block(site.etcd.endpoint, xdp=interfaces, **options),
                      xdp.block(site.etcd.endpoint, PLAIN_PORT, PLAIN_METRICS, **options)]
        self.node = site.start(nodes, self.texts[0], name)
        self.plain = site.start(nodes, self.texts[1], f"plain-{name}", port=PLAIN_PORT)
        self.wait_level()

    def wait_level(self, host=LOOPBACK4):
        """Both have all names, and the kernel answers with them."""
        self.kernel = xdp.kernel_of(self.site.machine, self.node, self.watched)
        for node in (self.node, self.plain):
            wait_until(lambda n=node: resolves(n, "far.example.org.", "10.2.0.11", host=host), 10, lambda n=node: n.logs())
        where, host = (self.site.machine, host) if self.watched == "lo" else (self.site.outside, SERVER4)
        with where.entered(), Client(host, source_port=0 if self.watched == "lo" else SOURCE_PORTS[0]) as client:
            def by_kernel():
                before = self.kernel.answered()
                return client.ask(plain(OWN)) and self.kernel.answered() > before
            wait_until(by_kernel, 10, lambda: f"the kernel to answer\n{self.node.logs()}")

    def close(self):
        self.kernel.close()


@pytest.fixture(scope="module")
def shared_site(tmp_path_factory):
    site = Site(str(tmp_path_factory.mktemp("site")))
    yield site
    site.close()


@pytest.fixture(scope="module")
def shared_pair(shared_site, tmp_path_factory, request):
    nodes = Nodes(str(tmp_path_factory.mktemp("pair")))
    for _ in managed(nodes, request):
        with shared_site.machine.entered():
            pair = Pair(shared_site, nodes)
        yield pair


@pytest.fixture
def pair(shared_pair):
    with shared_pair.site.machine.entered():
        yield shared_pair
        with Client(LOOPBACK4) as client:
            with shared_pair.kernel.counting(1, "after the test"):
                assert client.ask(plain(OWN)) == client.ask(plain(OWN), PLAIN_PORT), "it still answers"


@pytest.fixture
def site(directory):
    site = Site(directory)
    with site.machine.entered():
        yield site
    site.close()


def client_of(pair, path):
    where, host = PATHS[path]
    with getattr(pair.site, where).entered():
        return Client(host, source_port=SOURCE_PORTS[0] if where == "outside" else 0)


def texts(found):
    """For a comparison that can be read."""
    return {case: data.hex() if data else data for case, data in found.items()}


# --- what the kernel answers ---

@pytest.mark.parametrize("path", PATHS)
def test_answered_while_the_server_stands_still(pair, path):
    with client_of(pair, path) as client:
        assert_answers_alone(pair, client)


def assert_answers_alone(pair, client):
    expected = {case: client.ask(packet, PLAIN_PORT) for case, packet in ANSWERED.items()}
    assert all(expected.values())
    before = pair.kernel.answered()
    with frozen(pair.node):
        found = {case: client.ask(packet) for case, packet in ANSWERED.items()}
    assert texts(found) == texts(expected)
    assert pair.kernel.answered() - before == len(ANSWERED)


@pytest.mark.parametrize("mode", ["native", "generic"])
def test_answered_over_veth_in_and_behind_the_driver(site, nodes, mode):
    """In the driver there is room behind some frames and not behind others: they are answered all the same."""
    pair = Pair(site, nodes, interfaces=f"{INTERFACE} {{\n        {mode}\n    }}", watched=INTERFACE)
    bodies = sized_queries()
    for host in (SERVER4, SERVER6):
        with (site.outside.entered(), Client(host, source_port=SOURCE_PORTS[0]) as client, Stream(host, PLAIN_PORT) as other,
              Stream(host, PORT, SOURCE_PORTS[1]) as ours):
            assert_answers_alone(pair, client)
            ours.WINDOW = other.WINDOW = 64  # a veth's queue is short
            expected = other.responses(bodies, BARRIER[2:])
            with pair.kernel.counting(len(bodies) + -(-len(bodies) // ours.WINDOW)), frozen(pair.node):
                found = ours.responses(bodies, KERNEL_BARRIER[2:])
        assert [data.hex() for data in found] == [data.hex() for data in expected]
    assert pair.kernel.passed("room") == 0


@pytest.mark.parametrize("mode", ["native", "generic"])
def test_clients_whose_device_makes_no_checksums(site, nodes, mode):
    """A client on the same host leaves its checksum to a device, and what a program behind the driver sends keeps that mark: the
    next device that cannot do it completes what is there. Here it is a router's, between the client and the server."""
    pair = Pair(site, nodes, interfaces=f"{INTERFACE} {{\n        {mode}\n    }}", watched=INTERFACE)
    far = site.neighbour("far", "198.51.100.2", "2001:db8:9::2", "198.51.100.1", "2001:db8:9::1")
    cases = ["A", "AAAA", "NXDOMAIN", "NODATA of TXT", "PTR of IPv4", "EDNS"]
    for host in (SERVER4, SERVER6):
        with far.entered(), Client(host, source_port=SOURCE_PORTS[0]) as client:
            expected = {case: client.ask(ANSWERED[case], PLAIN_PORT) for case in cases}
            with pair.kernel.counting(len(cases)), frozen(pair.node):
                found = {case: client.ask(ANSWERED[case]) for case in cases}
        assert texts(found) == texts(expected) and all(expected.values())


def test_a_node_that_has_a_name(site, nodes):
    """Its sockets over TCP say what the kernel says; what is the node's own only it says."""
    text = xdp.block(site.etcd.endpoint, xdp="lo").replace("        observe\n", "")
    site.etcd.delete(OWN)
    node = site.start(nodes, text, "member")
    wait_until(lambda: resolves(node, OWN, SERVER4), 10, node.logs)
    kernel = xdp.kernel_of(site.machine, node)
    asked = [plain(name, rdtype) for name in (OWN, "four.tf.local.", "nobody.tf.local.", "ns.dns.tf.local.", "dns.tf.local.", "tf.local.")
             for rdtype in (A, AAAA, NS, SOA)] + [plain(reverse(SERVER4), PTR), plain(reverse("10.1.0.2"), PTR)]
    with Client(LOOPBACK4) as client, RawTcp(PORT) as tcp:
        wait_until(lambda: client.ask(plain(OWN)) and kernel.answered(), 5, node.logs)
        before = kernel.answered()
        for packet in asked:
            assert client.ask(packet) == tcp.ask(packet), packet
        assert kernel.answered() - before >= 13
        with kernel.counting(0):
            assert client.ask(plain(reverse(SERVER4), PTR)) == tcp.ask(plain(reverse(SERVER4), PTR)), "whose name it is at the moment"


def test_they_are_what_they_should_be(pair):
    """The other server is right too: the answers of some by themselves."""
    with frozen(pair.node):
        assert answers(pair.node, OWN) == ["10.1.0.1"]
        assert answers(pair.node, OWN, "AAAA") == ["2001:db8:1::1"]
        assert answers(pair.node, OWN, "MX") == []
        assert answers(pair.node, "worker999.tf.local.") == "NXDOMAIN"
        assert answers(pair.node, reverse("10.1.0.7"), "PTR") == ["worker7.tf.local."]
        assert answers(pair.node, reverse("2001:db8:1::7"), "PTR") == ["worker7.tf.local."]


def sized_queries():
    """Of 200 nodes, and of names of each length from the zone's to 255 bytes."""
    zone = wire_name("tf.local.")
    names = [wire_name(f"worker{n}.tf.local.") for n in range(1, 201)]
    for size in range(len(zone) + 2, 256):
        prefix, left = b"", size - len(zone)
        while left:
            piece = min(64, left) if left - min(64, left) != 1 else left - 2
            prefix += bytes([piece - 1]) + b"n" * (piece - 1)
            left -= piece
        names.append(prefix + zone)
    return [body(RD, rest=name + struct.pack("!2H", rdtype, 1)) for name in names for rdtype in (A, AAAA, TXT)]


def test_all_names_and_each_size_of_name(pair):
    bodies = sized_queries()
    compare(pair, "sizes", bodies, at_least=len(bodies), at_most=len(bodies))


@pytest.mark.parametrize("bind, hosts, others", [
    ("", [LOOPBACK4, "127.9.9.9", LOOPBACK6, SERVER4, SECOND4, SERVER6, SECOND6], []),
    (f"{LOOPBACK4} {SERVER4} {SECOND6}", [LOOPBACK4, SERVER4, SECOND6], ["127.9.9.9", LOOPBACK6, SECOND4, SERVER6]),
    (f"lo {INTERFACE}", [LOOPBACK4, LOOPBACK6, SERVER4, SECOND4, SERVER6, SECOND6], ["127.9.9.9"]),
    ("0.0.0.0 ::1", [LOOPBACK4, "127.9.9.9", SERVER4, SECOND4, LOOPBACK6], [SERVER6, SECOND6]),
], ids=["wildcard", "addresses", "interfaces", "a wildcard of one family"])
def test_where_the_server_listens_and_nowhere_else(site, nodes, bind, hosts, others):
    pair = Pair(site, nodes, bind=bind)
    with frozen(pair.node):
        for host in hosts:
            with Client(host) as client, pair.kernel.counting(2, host):
                for packet in (ANSWERED["A"], ANSWERED["EDNS and NXDOMAIN"]):
                    assert client.ask(packet, timeout=1) == client.ask(packet, PLAIN_PORT), host
    with pair.kernel.counting(0):
        for host in others:
            with Client(host) as client:
                client.sock.connect((host, PORT))
                client.sock.send(ANSWERED["A"])
                with pytest.raises(ConnectionRefusedError):
                    client.sock.recv(512)


def test_another_server_on_another_address_has_its_own_queries(site, nodes):
    """And on another port of the same address, which is what the server without `xdp` of all these tests is."""
    pair = Pair(site, nodes, bind=f"{LOOPBACK4} {SERVER4}")
    other = nodes.make(f". {{\n    bind {SECOND4} {SERVER6}\n    whoami\n}}\n", port=PORT)
    other.launch(prefix=site.machine.prefix).wait_answers(host=SECOND4)
    with pair.kernel.counting(0), frozen(pair.node):
        for host in (SECOND4, SERVER6):
            with Client(host) as client:
                response = client.ask(ANSWERED["A"])
                assert response[:2] == ANSWERED["A"][:2] and struct.unpack("!H", response[10:12])[0] == 2, "that of whoami"
    assert_left_to_the_stack(pair, CLIENT4, SERVER4, SECOND4)


@pytest.mark.parametrize("zone", ["other.test.", "sub.tf.local."], ids=["beside", "within"])
def test_several_zones_and_ports(site, nodes, zone):
    """Two blocks with a cluster each, one of them on another port too. Of a zone within another one the names are its own."""
    site.etcd.put_many({f"node1.{zone}": '{"ipv4":"10.3.0.1"}', f"node2.{zone}": '{"ipv4":"10.3.0.2","ipv6":"2001:db8:3::2"}'})
    blocks_ = []
    for port, more, shown, use in ((PORT, 54, METRICS, "xdp lo"), (PLAIN_PORT, 5354, PLAIN_METRICS, "")):
        one = xdp.idetcd(site.etcd.endpoint)
        two = one.replace("worker{{.ID}}.tf.local.", f"node{{{{.ID}}}}.{zone}")
        blocks_.append(f".:{port} {{\n    prometheus {LOOPBACK4}:{shown}\n    {one}\n    {use}\n}}\n"
                       f"{zone}:{port} {zone}:{more} {{\n    {two}\n    {use}\n}}\n")
    node = site.start(nodes, blocks_[0], "zones")
    plain_node = site.start(nodes, blocks_[1], "plain-zones", port=PLAIN_PORT)
    for server in (node, plain_node):
        for name, address in ((OWN, "10.1.0.1"), (f"node1.{zone}", "10.3.0.1")):
            wait_until(lambda s=server, n=name, a=address: resolves(s, n, a), 10, server.logs)
    kernel = xdp.kernel_of(site.machine, node)
    inner = [plain(name + zone, rdtype) for rdtype in (A, AAAA, TXT) for name in ("node1.", "node2.", "node3.", "")]
    outer = [plain(name, rdtype) for rdtype in (A, AAAA, TXT) for name in (OWN, "nobody.tf.local.", "SUB.tf.local.", "x.nosub.tf.local.")]
    with Client(LOOPBACK4) as client:
        def by_kernel():
            before = kernel.answered()
            return client.ask(inner[0]) and kernel.answered() > before
        wait_until(by_kernel, 10, node.logs)
        with kernel.counting(2 * 9, "of the inner zone, on both ports"):
            for packet in inner:
                assert client.ask(packet) == client.ask(packet, PLAIN_PORT), packet
                assert client.ask(packet, 54) == client.ask(packet, 5354), packet
        for packet in outer:
            assert client.ask(packet) == client.ask(packet, PLAIN_PORT), packet
        with kernel.counting(0):
            for packet in outer:
                assert client.ask(packet, 54) == client.ask(packet, 5354), packet
        with frozen(node):
            assert client.ask(inner[1], 54, timeout=1) == client.ask(inner[1], 5354)


# --- what it passes on ---

@pytest.mark.parametrize("path", ["IPv4 on lo", "IPv6 on lo", "IPv4 over veth", "IPv6 over veth"])
def test_passed_on(pair, path):
    with client_of(pair, path) as client:
        expected = {case: client.ask(packet, PLAIN_PORT) for case, packet in PASSED.items()}
        assert all(expected.values())
        found, by_kernel = {}, []
        for case, packet in PASSED.items():
            before = pair.kernel.answered()
            found[case] = client.ask(packet)
            if pair.kernel.answered() != before:
                by_kernel.append(case)
    assert texts(without_cookies(found)) == texts(without_cookies(expected))
    assert not by_kernel


def test_a_link_local_address(pair):
    """Each interface may have it: left to the process."""
    host = f"{xdp.LINK_LOCAL}%{INTERFACE}"
    with pair.site.outside.entered(), Client(host) as client, pair.kernel.counting(0):
        for case in ("A", "NXDOMAIN", "EDNS"):
            expected = client.ask(ANSWERED[case], PLAIN_PORT)
            assert expected and client.ask(ANSWERED[case]) == expected


@pytest.mark.parametrize("path", ["IPv4 on lo", "IPv6 over veth"])
@pytest.mark.parametrize("case", DROPPED)
def test_dropped(pair, case, path):
    with client_of(pair, path) as client, pair.kernel.counting(0):
        for port in (PORT, PLAIN_PORT):
            assert client.ask_barred(lambda p=port: client.send(DROPPED[case], p), BARRIER, port) == [], port


def without_cookies(found):
    """Each server makes its cookies with its own secret."""
    return {case: masked(data) for case, data in found.items()}


def masked(data):
    at = data.rfind(b"\0\x0a\0\x18") if data else -1
    return data if at < 0 else data[:at + 12] + data[at + 28:]


@pytest.mark.parametrize("host", [LOOPBACK4, LOOPBACK6, SERVER4])
def test_tcp(pair, host):
    for case in ("A", "NXDOMAIN", "EDNS", "PTR of IPv4"):
        with pair.kernel.counting(0), RawTcp(PORT, host) as tcp, RawTcp(PLAIN_PORT, host) as other:
            assert tcp.ask(ANSWERED[case]) == other.ask(ANSWERED[case])


# --- what is not a plain datagram ---

class Link:
    """Both ends of the veth, or of lo: frames that are sent, and the socket that their answers come to."""

    def __init__(self, pair, interface, source, target):
        site = pair.site
        self.source, self.target = source, target
        machine = site.machine if interface == "lo" else site.outside
        with machine.entered():
            mac = "00:00:00:00:00:00"
            self.wire = Wire(interface, mac if interface == "lo" else xdp.mac_of(site.outside),
                             mac if interface == "lo" else xdp.mac_of(site.machine))
            if target not in (LOOPBACK4, LOOPBACK6, SERVER4, SERVER6):
                site.outside.run("ip", "route", "replace", target, "via", SERVER6 if ":" in target else SERVER4)
            self.client = Client(target, source)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.wire.__exit__()
        self.client.__exit__()

    def packet(self, port, payload=ANSWERED["A"], **options):
        return xdp.packet(self.source, self.target, self.client.port, port, payload, **options)

    def exchange(self, make, port, barrier=BARRIER, **how):
        """What comes back for the packets that make(link, port) makes."""
        return self.client.ask_barred(lambda: self.wire.send(*make(self, port), **how), barrier, port)


LINKS = {
    "IPv4 on lo": ("lo", "127.0.0.1", "127.0.0.1"),
    "IPv6 on lo": ("lo", "::1", "::1"),
    "IPv4 over veth": (INTERFACE, CLIENT4, SERVER4),
    "IPv6 over veth": (INTERFACE, CLIENT6, SERVER6),
}


@pytest.fixture(params=LINKS)
def link(pair, request):
    with Link(pair, *LINKS[request.param]) as link:
        yield link


def is_v4(link):
    return ":" not in link.source


def damaged(right):
    return right ^ 0x5555


OPTION_LINE = bytes([1, 1, 1, 1])           # IPv4: no operations
EXTENSION = bytes([17, 0, 1, 4, 0, 0, 0, 0])  # IPv6: UDP follows; PadN

# How a query comes in -> (families, the packets, whether the kernel answers; None: nobody does)
FRAMES = {
    "as always": ("46", lambda link, port: [link.packet(port)], True),
    "with EDNS": ("46", lambda link, port: [link.packet(port, ANSWERED["EDNS and DO"])], True),
    "an odd number of bytes": ("46", lambda link, port: [link.packet(port, plain("worker10.tf.local."))], True),
    "without a UDP checksum": ("4", lambda link, port: [link.packet(port, check=0)], True),
    "another type of service": ("4", lambda link, port: [link.packet(port, tos=0xb8)], True),
    "another class and label": ("6", lambda link, port: [link.packet(port, traffic=0xb8, label=0x12345)], True),
    "the last hop": ("4", lambda link, port: [link.packet(port, ttl=1)], True),
    "fragments allowed": ("4", lambda link, port: [link.packet(port, flags=0)], True),
    "a damaged UDP checksum": ("46", lambda link, port: [link.packet(port, check=damaged)], None),
    "no UDP checksum": ("6", lambda link, port: [link.packet(port, check=0)], None),
    "a damaged IP checksum": ("4", lambda link, port: [xdp.ipv4(link.source, link.target, xdp.udp(
        link.source, link.target, link.client.port, port, ANSWERED["A"]), check=damaged)], None),
    "a flipped bit of the name": ("46", lambda link, port: [bytes(
        byte ^ (at == len(link.packet(port)) - 12) for at, byte in enumerate(link.packet(port)))], None),
    "IP options": ("4", lambda link, port: [link.packet(port, options=OPTION_LINE)], False),
    "forty bytes of IP options": ("4", lambda link, port: [link.packet(port, options=OPTION_LINE * 10)], False),
    "hop-by-hop options": ("6", lambda link, port: [extended(link, port, 0)], False),
    "destination options": ("6", lambda link, port: [extended(link, port, 60)], False),
    "two fragments": ("46", lambda link, port: fragmented(link, port, 32), False),
    "many fragments": ("46", lambda link, port: fragmented(link, port, 8), False),
    "fragments in another order": ("46", lambda link, port: fragmented(link, port, 16)[::-1], False),
    "a UDP length that is too long": ("46", lambda link, port: [with_length(link, port, 1)], None),
    "a UDP length that is too short": ("46", lambda link, port: [with_length(link, port, -1)], "same"),
    "bytes behind the IP packet": ("46", lambda link, port: [link.packet(port) + bytes(14)], "same"),
    "a packet that is cut off": ("46", lambda link, port: [link.packet(port)[:-3]], None),
    "from port 0": ("46", lambda link, port: [xdp.packet(link.source, link.target, 0, port, ANSWERED["A"])], None),
    "from a multicast address": ("46", lambda link, port: [spoofed(link, port, "224.0.0.1", "ff02::1")], None),
}


def test_what_seems_to_come_from_another_address_of_the_machine_is_left_to_the_stack(pair):
    """Which drops it over IPv4."""
    for client, target, source in ((CLIENT4, SERVER4, SECOND4), (CLIENT6, SERVER6, SECOND6)):
        assert_left_to_the_stack(pair, client, target, source)


def assert_left_to_the_stack(pair, client, target, source):
    with Link(pair, INTERFACE, client, target) as link:
        before = pair.kernel.answered()
        assert link.exchange(lambda l, port: [xdp.packet(source, l.target, l.client.port, port, ANSWERED["A"])], PORT) == []
        assert pair.kernel.answered() == before
        assert len(link.exchange(lambda l, port: [l.packet(port)], PORT)) == 1
        assert pair.kernel.answered() == before + 1


def extended(link, port, kind):
    return xdp.ipv6(link.source, link.target, EXTENSION + xdp.udp(link.source, link.target, link.client.port, port, ANSWERED["A"]), next_header=kind)


def fragmented(link, port, size):
    return xdp.fragments(link.source, link.target, link.client.port, port, ANSWERED["A"], size)


def with_length(link, port, more):
    data = ANSWERED["A"]
    datagram = xdp.udp(link.source, link.target, link.client.port, port, data, length=8 + len(data) + more)
    return xdp.ipv4(link.source, link.target, datagram) if is_v4(link) else xdp.ipv6(link.source, link.target, datagram)


def spoofed(link, port, four, six):
    source = four if is_v4(link) else six
    return xdp.packet(source, link.target, link.client.port, port, ANSWERED["A"])


@pytest.mark.parametrize("case", FRAMES)
def test_frames(pair, link, case):
    families, make, by_kernel = FRAMES[case]
    if ("4" if is_v4(link) else "6") not in families:
        return
    expected = link.exchange(make, PLAIN_PORT)
    before = pair.kernel.answered()
    assert [data.hex() for data in link.exchange(make, PORT)] == [data.hex() for data in expected]
    if by_kernel != "same":
        assert len(expected) == (by_kernel is not None)
        assert pair.kernel.answered() - before == (by_kernel is True)
    if by_kernel is True:
        with frozen(pair.node):
            assert link.exchange(make, PORT, KERNEL_BARRIER) == expected


@pytest.mark.parametrize("source, target", [(CLIENT4, SERVER4), (CLIENT6, SERVER6)], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("left_to_device", [False, True], ids=["its own checksum", "left to the device"])
def test_the_answers_headers(pair, source, target, left_to_device):
    """Checksums are right, so that hardware between the machines passes them on. A client on the same host leaves that of UDP to a
    device, and then the answer does, too."""
    kind = 0x0800 if "." in source else 0x86dd
    with Link(pair, INTERFACE, source, target) as link, pair.site.outside.entered():
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(kind)) as sniffer:
            sniffer.bind((INTERFACE, kind))
            sniffer.settimeout(3)
            with pair.site.machine.entered(), frozen(pair.node):
                if left_to_device:
                    with pair.site.outside.entered(), Client(target) as client:
                        response = client.ask(ANSWERED["A"])
                else:
                    [response] = link.exchange(lambda link, p: [link.packet(p)], PORT, KERNEL_BARRIER)
            packet = next(frame for frame in iter(lambda: sniffer.recv(2048), b"") if frame.endswith(response))[14:]
    if "." in source:
        assert xdp.checksum(packet[:20]) == 0 and packet[0] == 0x45 and packet[8] == 64
        datagram, addresses = packet[20:], packet[12:20]
    else:
        assert packet[:4] == b"\x60\0\0\0" and packet[6:8] == bytes([17, 64])
        datagram, addresses = packet[40:], packet[8:40]
    assert datagram[4:6] == struct.pack("!H", len(datagram)) and len(datagram) == 8 + len(response)
    pseudo = addresses + struct.pack("!2I", len(datagram), 17)
    if left_to_device:
        assert datagram[6:8] == struct.pack("!H", xdp.checksum(pseudo) ^ 0xffff)
    elif datagram[6:8] == b"\0\0":
        assert "." in source, "IPv6 has no UDP without a checksum"
    else:
        assert xdp.checksum(pseudo + datagram) == 0


def test_loopback_addresses_from_outside(pair):
    """127.0.0.1 and ::1 are no addresses of a machine on the net, whatever comes in for them."""
    with pair.kernel.counting(0):
        for interface, source, real, forged in ((INTERFACE, CLIENT4, SERVER4, LOOPBACK4), (INTERFACE, CLIENT6, SERVER6, LOOPBACK6)):
            with Link(pair, interface, source, real) as link:
                for port in (PORT, PLAIN_PORT):
                    to_loopback = lambda link, p: [xdp.packet(link.source, forged, link.client.port, p, ANSWERED["A"])]
                    from_loopback = lambda link, p: [xdp.packet(forged, link.target, link.client.port, p, ANSWERED["A"])]
                    assert link.exchange(to_loopback, port) == []
                    assert link.exchange(from_loopback, port) == []


def test_addresses_that_no_client_has(pair):
    """From the subnet as a whole, from the server itself, and to a mapped address: the stack drops them."""
    subnet = SERVER4.rpartition(".")[0]
    cases = [(CLIENT4, SERVER4, f"{subnet}.255", SERVER4), (CLIENT4, SERVER4, f"{subnet}.0", SERVER4), (CLIENT4, SERVER4, SERVER4, SERVER4),
             (CLIENT6, SERVER6, SERVER6, SERVER6), (CLIENT6, SERVER6, CLIENT6, f"::ffff:{SERVER4}"), (CLIENT6, SERVER6, f"::ffff:{CLIENT4}", SERVER6)]
    with pair.kernel.counting(0):
        for real_source, real_target, source, target in cases:
            with Link(pair, INTERFACE, real_source, real_target) as link:
                for port in (PORT, PLAIN_PORT):
                    assert link.exchange(lambda link, p: [xdp.packet(source, target, link.client.port, p, ANSWERED["A"])], port) == []


def test_broadcast_on_lo(pair):
    with Client("127.255.255.255") as client, pair.kernel.counting(0):
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        for port in (PORT, PLAIN_PORT):
            assert client.ask(ANSWERED["A"], port, timeout=0.3) is None


@pytest.mark.parametrize("source, address", [(CLIENT4, "203.0.113.1"), (CLIENT6, "2001:db8:5::1")], ids=["IPv4", "IPv6"])
def test_an_address_of_another_interface(pair, source, address):
    """The stack answers there, whatever way the query has come: a VLAN's tag may have been taken off. This machine's own
    programs are answered by the kernel."""
    machine = pair.site.machine
    machine.run("ip", "address", "add", f"{address}/{128 if ':' in address else 32}", "dev", "lo")
    try:
        with Client(address) as client:
            # The first question may be lost: an address is not used at once.
            expected = wait_until(lambda: client.ask(ANSWERED["A"], PLAIN_PORT), 30, pair.node.logs)
            def is_there():
                before = pair.kernel.answered()
                return client.ask(ANSWERED["A"]) == expected and pair.kernel.answered() > before
            wait_until(is_there, 5, pair.node.logs)
        with pair.kernel.counting(0), Link(pair, INTERFACE, source, address) as link:
            assert link.exchange(lambda link, p: [link.packet(p)], PORT) == [expected]
    finally:
        machine.run("ip", "address", "delete", f"{address}/{128 if ':' in address else 32}", "dev", "lo")


def test_frames_for_another_machine(pair):
    """A bridge or a mirror port brings frames that are for others' addresses of hardware."""
    with Link(pair, INTERFACE, CLIENT4, SERVER4) as link:
        link.wire.head = bytes.fromhex("020000000099") + link.wire.head[6:]
        for port in (PORT, PLAIN_PORT):
            with pair.kernel.counting(0):
                assert link.exchange(lambda link, p: [link.packet(p)], port) == []


@pytest.mark.parametrize("target", [(CLIENT4, SERVER4), (CLIENT6, SERVER6)], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("number, is_answered", [(5, False), (0, True)], ids=["VLAN 5", "VLAN 0"])
def test_tags_beside_the_frame(pair, target, number, is_answered):
    """As network cards that take tags off do it, and VLAN devices of other machines on one host. The addresses of VLANs are of
    another interface: test_an_address_of_another_interface."""
    outside = pair.site.outside
    program = xdp.tagger(pair.site.directory, number)
    outside.run("tc", "qdisc", "add", "dev", INTERFACE, "clsact")
    try:
        outside.run("tc", "filter", "add", "dev", INTERFACE, "egress", "bpf", "da", "obj", program, "sec", "tc")
        with Link(pair, INTERFACE, *target) as link:
            def send(link, port):
                link.wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, xdp.TAGGED)
                return [link.packet(port)]
            found = [link.exchange(send, port) for port in (PORT, PLAIN_PORT)]
            assert found[0] == found[1] and len(found[0]) == is_answered
    finally:
        outside.run("tc", "qdisc", "delete", "dev", INTERFACE, "clsact")


@pytest.mark.parametrize("target", [(CLIENT4, SERVER4), (CLIENT6, SERVER6)], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("tag, is_answered", [(5, False), (0, True), (0xe000, True)], ids=["VLAN 5", "VLAN 0", "a priority"])
def test_tagged_frames(pair, target, tag, is_answered):
    """A tag with number 0 is only a priority, which the stack takes for none; of another VLAN the machine knows nothing."""
    with pair.kernel.counting(0), Link(pair, INTERFACE, *target) as link:
        found = [link.exchange(lambda link, p: [link.packet(p)], port, vlan=tag) for port in (PORT, PLAIN_PORT)]
        assert found[0] == found[1] and len(found[0]) == is_answered


# --- blocks whose other directives must see the query ---

# Lines of the block -> whether the kernel may answer in it. Ports begin with 60, and with 6060 at the server without `xdp`.
BLOCKS = {
    "errors": True,
    "cache": True,
    "whoami": True,
    "forward . 127.0.0.1:9": True,
    "nsid": True,
    "bufsize 1232": True,
    "minimal": True,
    "loadbalance": True,
    "chaos CoreDNS-1.0 someone": True,
    "hosts {\n        192.0.2.99 worker1.tf.local hosted.tf.local\n    }": True,
    "log": False,
    "acl {\n        block net 10.0.0.0/8\n    }": False,
    "acl {\n        filter type AAAA\n    }": False,
    "rrl {\n        responses-per-second 1000000\n    }": False,
    "cookies {\n        require\n    }": False,
    "local": None,
    "any": None,  # it is about a type that the kernel never answers
    "dns64": None,
    "dns64 {\n        translate_all\n    }": None,
    "zonelimit tf.local 1": None,
    "debug": None,
}


@pytest.fixture(scope="module")
def blocks(tmp_path_factory, request):
    """One server with a block for each, and the other one."""
    site = Site(str(tmp_path_factory.mktemp("blocks-site")))
    nodes = Nodes(str(tmp_path_factory.mktemp("blocks")))
    for _ in managed(nodes, request):
        with site.machine.entered():
            blocks_ = ["", ""]
            for number, lines in enumerate(BLOCKS):
                blocks_[0] += xdp.block(site.etcd.endpoint, 60 + number, None, xdp="lo", lines=[lines])
                blocks_[1] += xdp.block(site.etcd.endpoint, 6060 + number, None, lines=[lines])
            node = site.start(nodes, blocks_[0], "blocks", port=60)
            other = site.start(nodes, blocks_[1], "plain-blocks", port=6060)
            for server in (node, other):
                wait_until(lambda s=server: resolves(s, OWN, "10.1.0.1"), 10, server.logs)
            kernel = xdp.kernel_of(site.machine, node)
            wait_until(lambda: resolves(node, OWN, "10.1.0.1") and kernel.answered(), 10, node.logs)
        yield site, node, kernel
        kernel.close()
    site.close()


@pytest.mark.parametrize("lines", BLOCKS)
def test_blocks(blocks, lines):
    site, node, kernel = blocks
    number = list(BLOCKS).index(lines)
    asked = {**ANSWERED, **EITHER, **PASSED}

    with site.machine.entered(), Client(LOOPBACK4) as client:
        expected = {case: client.ask(packet, 6060 + number) for case, packet in asked.items()}
        before = kernel.answered()
        found = {case: client.ask(packet, 60 + number) for case, packet in asked.items()}
        by_kernel = kernel.answered() - before
        assert texts(without_cookies(found)) == texts(without_cookies(expected))
        if BLOCKS[lines] is not None:
            assert bool(by_kernel) == BLOCKS[lines], f"the kernel answers {by_kernel} of {len(asked)}"
        if lines == "log":
            wait_until(lambda: node.out().count(f" {OWN} ") >= 20, 10, "each query to be logged")  # by a thread of its own


def test_rates_are_limited(site, nodes):
    """No query gets by the limit."""
    node = site.start(nodes, xdp.block(site.etcd.endpoint, xdp="lo", lines=["rrl {\n        responses-per-second 5\n    }"]), "limited")
    wait_until(lambda: resolves(node, OWN, "10.1.0.1", tcp=True), 10, node.logs)  # without a limit
    with Client(LOOPBACK4) as client, xdp.kernel_of(site.machine, node).counting(0):
        for _ in range(100):
            client.send(plain(OWN))
        found = []
        while data := client.receive(0.5):  # the length of a silence that is meant
            found.append(data)
    assert sum(data[2] & 2 == 0 for data in found) <= 15, "few whole answers; the others say TC, or are left out"


@pytest.mark.parametrize("where", ["", " sub.tf.local"])
def test_fallthrough_leaves_what_is_not_there_to_others(site, nodes, where):
    lines = ["hosts {\n        192.0.2.99 hosted.tf.local x.sub.tf.local\n    }"]
    options = {"options": [f"fallthrough{where}"], "lines": lines}
    pair = Pair(site, nodes, **options)
    asked = {name: plain(name) for name in ("hosted.tf.local.", "x.sub.tf.local.", "nobody.tf.local.", "y.sub.tf.local.")}
    with Client(LOOPBACK4) as client:
        expected = {name: client.ask(packet, PLAIN_PORT) for name, packet in asked.items()}
        assert texts({name: client.ask(packet) for name, packet in asked.items()}) == texts(expected)
        assert (expected["x.sub.tf.local."][3] & 15, expected["x.sub.tf.local."][7]) == (0, 1), "hosts has it"
        with pair.kernel.counting(0, rcode="NXDOMAIN"):
            for name in ("x.sub.tf.local.", "y.sub.tf.local."):
                client.ask(plain(name))
        with frozen(pair.node):
            assert client.ask(plain(OWN), timeout=1) == client.ask(plain(OWN), PLAIN_PORT), "what is there is answered nevertheless"


# --- the same of everything ---

def compare(pair, kind, bodies, at_least, at_most=None, host=LOOPBACK4):
    """Both servers' answers, and those of the kernel alone, which are no others; how many of `bodies` the kernel has answered."""
    with Stream(host, PLAIN_PORT) as other, Stream(host, PORT) as ours:
        expected = other.responses(bodies, BARRIER[2:])
        before = pair.kernel.answered()
        found = ours.responses(bodies, BARRIER[2:])
        counted = pair.kernel.answered() - before
        with frozen(pair.node):
            alone = ours.responses(bodies, KERNEL_BARRIER[2:])
        # What was left to it meanwhile is answered now.
        with Client(host) as client:
            client.ask(BARRIER)
    differences = [(index, sent, one, two, three) for index, (sent, one, two, three) in enumerate(zip(bodies, expected, found, alone))
                   if (two != one and masked(two) != masked(one)) or (three and masked(three) != masked(one))]
    assert not differences, f"{kind}: {len(differences)} of {len(bodies)} differ\n" + "\n".join(
        f"#{index} query  {sent.hex()}\n  socket {one.hex()}\n  xdp    {two.hex()}\n  kernel {three.hex()}"
        for index, sent, one, two, three in differences[:5])
    by_kernel = sum(map(bool, alone))
    assert by_kernel == counted, f"{kind}: the kernel counts {counted}, and has answered {by_kernel}"
    share = by_kernel / len(bodies)
    print(f"{kind}: {len(bodies)} queries, {sum(map(bool, expected))} answered, {by_kernel} ({share:.1%}) by the kernel")
    assert by_kernel >= at_least, f"{kind}: the kernel has answered {by_kernel} of {len(bodies)}"
    assert at_most is None or by_kernel <= at_most
    return by_kernel


def conformance_queries():
    import dns.message  # pylint: disable=import-outside-toplevel
    for flags, version, ednsflags, options in test_conformance.CASES.values():
        for name, rdtype in test_conformance.QUESTIONS:
            query = dns.message.make_query(name, rdtype)
            query.flags = flags
            if version is not None:
                query.use_edns(version, ednsflags, 1232, options=options)
            yield query.to_wire()
    for opcode in range(16):
        yield header(7, opcode << 11, qd=0)
        yield header(7, opcode << 11) + question(OWN)
    for count in (0, 1, 2, 3, 0xffff):
        for questions in (question(OWN) * 2, question(OWN), question(OWN) + question("www.up.example."), b""):
            yield header(9, qd=count) + questions
    for name in ("tf.local.", OWN, "a.nowhere.example."):
        yield header(9, ar=1) + question(name, 48) + opt(512, flags=DO)


def hostile_queries():
    whole = [packet for packet, _ in test_hostile.TABLE.values()] + list(test_hostile.DROPPED.values())
    yield from whole
    for packet in whole:
        yield from (packet[:end] for end in range(2, min(len(packet), 400)))
    yield header(ID, ar=1) + question(OWN) + opt(options=struct.pack("!2H", 65001, 0) * 1000)
    for length in [*range(0, 42), 255]:
        yield header(ID, ar=1) + question(OWN) + opt(options=struct.pack("!2H", 10, length) + b"c" * length)
    for size in (12, 13, 511, 512, 513, 1231, 1232, 1233, 1500, 4095, 4096, 4097, 9000, 65507):
        yield (header(ID) + question(OWN) + bytes(size))[:size]
    packet, previous = header(ID, ar=60) + question(OWN), 12
    for _ in range(60):
        previous, packet = len(packet), packet + record(b"\1x" + struct.pack("!H", 0xC000 | previous), 16, 1, 0, b"")
    yield packet


def test_the_queries_of_other_tests(pair):
    compare(pair, "conformance", without_id(conformance_queries()), at_least=15)
    compare(pair, "hostile", without_id(hostile_queries()), at_least=2)
    compare(pair, "ours", without_id([*ANSWERED.values(), *EITHER.values(), *PASSED.values(), *DROPPED.values()]),
            at_least=len(ANSWERED), at_most=len(ANSWERED) + len(EITHER))


# Kind -> (how many, the least share that the kernel answers)
MUTATIONS = {
    "plain": (40_000, 0.7),
    "cases": (20_000, 0.9),
    "pointing": (20_000, 0.5),
    "flipped": (40_000, 0.15),
    "cut": (15_000, 0),
    "inserted": (25_000, 0.03),
    "fields": (30_000, 0.1),
    "edges": (30_000, 0.3),
    "noise": (10_000, 0),
}


def queries(seed):
    names = list(xdp.values())
    addresses = [f"10.1.0.{n}" for n in range(1, 60)] + [f"2001:db8:1::{n:x}" for n in range(1, 60)] + ["10.2.0.9", "10.2.0.10", "10.9.9.9"]
    return Queries(seed, "tf.local.", [name for name in names if name.endswith(".tf.local.")], [reverse(address) for address in addresses],
                   ["far.example.org.", "www.example.org.", "local.", "tf.", "worker1.tf.locale.", "worker1.t.f.local."])


@pytest.mark.parametrize("kind", MUTATIONS)
def test_mutated_queries(pair, kind):
    """230,000 in all."""
    count, share = MUTATIONS[kind]
    seed = int(os.environ.get("IDETCD_TEST_SEED", "14"))
    source = queries(f"{kind} {seed}")
    bodies = [getattr(source, kind)() for _ in range(count)]
    compare(pair, kind, bodies, at_least=share * count)


@pytest.mark.parametrize("host", [LOOPBACK6, SERVER4])
def test_mutated_queries_of_another_way(pair, host):
    source = queries("another way")
    bodies = [getattr(source, kind)() for kind in MUTATIONS for _ in range(500)]
    compare(pair, f"all kinds to {host}", bodies, at_least=0.2 * len(bodies), host=host)


def test_mutations_over_veth(pair):
    source = queries("veth")
    bodies = [getattr(source, kind)() for kind in MUTATIONS for _ in range(500)]
    with pair.site.outside.entered(), Stream(SERVER4, PLAIN_PORT) as other, Stream(SERVER4, PORT) as ours:
        # The veth's queue is as long as what it may hold: smaller windows.
        other.WINDOW = ours.WINDOW = 64
        expected = other.responses(bodies, BARRIER[2:])
        before = pair.kernel.answered()
        found = ours.responses(bodies, BARRIER[2:])
    assert [masked(data).hex() for data in found] == [masked(data).hex() for data in expected]
    assert pair.kernel.answered() - before >= 0.1 * len(bodies)
