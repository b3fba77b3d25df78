"""`transfer` and `tsig`: copies of zones for others, BIND, NSD and Knot among them, and signed queries."""

import base64
import os
import re
import signal
import socket
import struct
import subprocess
import threading
import time

import dns.flags
import dns.message
import dns.name
import dns.opcode
import dns.query
import dns.rcode
import dns.rdatatype
import dns.rrset
import dns.tsig
import dns.versioned
import dns.xfr
import dns.zone
import pytest

from corefiles import corefile
from dns_client import answers, ask, exchange, make_query, patient, rcode, resolves
from harness.dns_servers import Knot, Named, Nsd
from harness.metrics import Metrics
from harness.processes import TIME_FACTOR, wait_until

ZONE = "tf.local."
SOON = 20 * TIME_FACTOR  # seconds; a time-out, not a delay
APEX = "$TTL 300\n@ SOA ns hostmaster {serial} 3600 600 86400 60\n@ NS ns\nns A 192.0.2.53\n"
RECORDS = ("www A 192.0.2.1\nwww AAAA 2001:db8::1\nmail MX 10 www\nalias CNAME www\n*.wild TXT \"a text\"\nsub NS ns.sub\n"
           "ns.sub A 192.0.2.2\n_x._tcp SRV 1 2 3 www\nold DNAME new\nx TYPE65280 \\# 2 abcd\n")
SECRET = base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()
KEY = "transfer.key."
TSIG = f" tsig {{\n  secret {KEY} {SECRET}\n  require AXFR IXFR\n }}\n"


def zone(serial, records=RECORDS):
    return APEX.format(serial=serial) + records


def write(directory, name, text):
    path = os.path.join(directory, name)
    with open(path + ".new", "w", encoding="ascii") as file:
        file.write(text)
    os.replace(path + ".new", path)
    return path


def block(path, *directives):
    return f"example {{\n file {path} {{\n  reload 100ms\n }}\n" + "".join(f" {line}\n" for line in directives) + "}\n"


def serving(nodes, directory, *directives, records=RECORDS):
    return nodes.start(block(write(directory, "db", zone(1, records)), *directives))


def transferred(node, name="example.", **options):
    """The zone as a set of lines."""
    received = dns.zone.from_xfr(dns.query.xfr("127.0.0.1", name, port=node.port, relativize=False, lifetime=300, **options),
                                 relativize=False, check_origin=False)
    return {f"{owner} {rdataset.ttl} {dns.rdatatype.to_text(rdataset.rdtype)} {rdata}"
            for owner, rdataset in received.iterate_rdatasets() for rdata in rdataset}


def keyring(name=KEY, secret=SECRET, algorithm="hmac-sha256"):
    return {dns.name.from_text(name): dns.tsig.Key(name, secret, algorithm)}


def signed(query, name=KEY, secret=SECRET, algorithm="hmac-sha256", fudge=300):
    query.use_tsig(keyring(name, secret, algorithm), fudge=fudge)
    return query


def exchange_raw(node, wire):
    with socket.create_connection(("127.0.0.1", node.port), timeout=30) as sock:
        sock.sendall(struct.pack("!H", len(wire)) + wire)
        size = struct.unpack("!H", sock.recv(2, socket.MSG_WAITALL))[0]
        return sock.recv(size, socket.MSG_WAITALL)


def ixfr(serial, name="example."):
    query = make_query(name, "IXFR")
    query.authority = [dns.rrset.from_text(name, 0, "IN", "SOA", f"a. b. {serial} 2 3 4 5")]
    return query


def test_a_zone_is_transferred_whole(nodes, directory, free_port):
    port = free_port()
    node = serving(nodes, directory, "transfer {\n  to *\n }", f"prometheus 127.0.0.1:{port}")
    reference = dns.zone.from_text(zone(1), "example.", relativize=False)
    assert transferred(node) == {f"{owner} {rdataset.ttl} {dns.rdatatype.to_text(rdataset.rdtype)} {rdata}"
                                 for owner, rdataset in reference.iterate_rdatasets() for rdata in rdataset}
    output = dug(node, "+onesoa")
    assert output.count("\tSOA\t") == 1 and "XFR size: 14 records" in output, output
    output = subprocess.run(["kdig", "@127.0.0.1", "-p", str(node.port), "example", "AXFR"], check=True, capture_output=True, text=True).stdout
    assert "14 records" in output, output
    wait_until(lambda: Metrics.of(port).sum("idetcd_transfers_total") == 3, SOON, "three transfers to be counted")
    node.wait_logged("transfer of example. to 127.0.0.1: serial 1, 14 records, ", times=3)


def test_an_ixfr_is_the_soa_or_all(nodes, directory):
    node = serving(nodes, directory, "transfer {\n  to 127.0.0.0/8\n }")
    for serial in (1, 2):
        current = exchange(node, ixfr(serial), tcp=True)
        assert [rrset.to_text() for rrset in current.answer] == ["example. 300 IN SOA ns.example. hostmaster.example. 1 3600 600 86400 60"]
    over_udp = exchange(node, ixfr(0))
    assert len(over_udp.answer) == 1 and over_udp.answer[0].rdtype == dns.rdatatype.SOA
    received = list(dns.query.xfr("127.0.0.1", "example.", rdtype="IXFR", serial=0, port=node.port))
    assert sum(len(rrset) for message in received for rrset in message.answer) == 14
    assert rcode(exchange(node, make_query("example.", "IXFR"), tcp=True)) == "FORMERR"


def content(copy):
    """Of a zone of dnspython's, as lines."""
    return {f"{owner} {rdataset.ttl} {dns.rdatatype.to_text(rdataset.rdtype)} {rdata}"
            for owner, rdataset in copy.iterate_rdatasets() for rdata in rdataset}


def fetch(node, copy, **options):
    """Brings a copy up to date: by all of the zone where it is empty, else by IXFR."""
    query, _ = dns.xfr.make_query(copy, **options)
    dns.query.inbound_xfr("127.0.0.1", copy, port=node.port, query=query, lifetime=300)


def renew(node, directory, serial, records):
    write(directory, "db", zone(serial, records))
    wait_until(lambda: f" {serial} 3600" in answers(node, "example.", "SOA")[0], SOON, node.logs)


def test_changes_are_sent_alone(nodes, directory, free_port):
    port = free_port()
    node = serving(nodes, directory, "transfer {\n  to *\n }", f"prometheus 127.0.0.1:{port}")
    copies = [dns.versioned.Zone("example.", relativize=False) for _ in range(4)]
    versions = [RECORDS, RECORDS.replace("192.0.2.1\n", "192.0.2.7\n").replace("old DNAME new\n", ""),
                RECORDS + "www 300 A 192.0.2.8\nnew TXT x\n", RECORDS.replace("mail MX", "mail 60 MX")]
    for serial, records in enumerate(versions, 1):
        if serial > 1:
            renew(node, directory, serial, records)
        for copy in copies[:serial]:  # each is one step behind, or begins
            fetch(node, copy)
            assert content(copy) == transferred(node)
    late = dns.versioned.Zone("example.", relativize=False)
    fetch(node, late)
    renew(node, directory, 5, RECORDS + "a A 192.0.2.1\n")
    node.signal(signal.SIGHUP)
    node.wait_logged("Reloading complete")
    renew(node, directory, 6, RECORDS + "b A 192.0.2.1\n")
    fetch(node, late)
    assert content(late) == transferred(node), "two steps at once, with a reload of the Corefile between them"
    node.wait_logged("transfer of example. since serial 4 to 127.0.0.1: serial 6, ")
    assert Metrics.of(port).sum("idetcd_transfers_incremental_total") == 3 + 2 + 1 + 1
    output = subprocess.run(["dig", "@127.0.0.1", "-p", str(node.port), "example", "IXFR=5", "+short"], check=True, capture_output=True, text=True).stdout
    assert [line.split()[2] for line in output.splitlines() if "hostmaster" in line] == ["6", "5", "6", "6"], output
    assert len(output.splitlines()) == 6, output


def test_changes_of_more_than_one_message_are_signed(nodes, directory):
    node = serving(nodes, directory, TSIG.strip(), "transfer {\n  to *\n }", records=MEDIUM)
    copy = dns.versioned.Zone("example.", relativize=False)
    fetch(node, copy, keyring=keyring())
    renew(node, directory, 2, MEDIUM.replace("host12", "other12").replace("host13", "other13"))
    fetch(node, copy, keyring=keyring())
    node.wait_logged("transfer of example. since serial 1 to 127.0.0.1: serial 2, 4448 records, ")
    assert content(copy) == transferred(node, keyring=keyring())


def test_who_may_have_a_zone(nodes, directory):
    node = serving(nodes, directory, "transfer {\n  to 192.0.2.1 2001:db8::/32\n }")
    assert rcode(exchange(node, make_query("example.", "AXFR"), tcp=True)) == "REFUSED"
    assert rcode(exchange(node, ixfr(0), tcp=True)) == "REFUSED"
    other = serving(nodes, directory, "transfer {\n  to 127.0.0.1\n }")
    assert rcode(exchange(other, make_query("www.example.", "AXFR"), tcp=True)) == "NOTAUTH"
    assert rcode(exchange(other, make_query("elsewhere.", "AXFR"), tcp=True)) == "REFUSED"
    assert rcode(exchange(other, make_query("example.", "AXFR"))) == "FORMERR"


@pytest.fixture
def locked(nodes, directory):
    return serving(nodes, directory, TSIG.strip(), "transfer {\n  to *\n }")


def test_a_signed_transfer(locked):
    assert rcode(exchange(locked, make_query("example.", "AXFR"), tcp=True)) == "REFUSED"
    assert len(transferred(locked, keyring=keyring())) == 13
    for command in (["dig", "-y", f"hmac-sha256:{KEY}:{SECRET}"], ["kdig", "-y", f"hmac-sha256:{KEY}:{SECRET}"]):
        output = subprocess.run([*command, "@127.0.0.1", "-p", str(locked.port), "example", "AXFR"], check=True, capture_output=True, text=True).stdout
        assert "192.0.2.1" in output and "BADSIG" not in output and "rror" not in output and "WARNING" not in output, output


@pytest.mark.parametrize("tcp", [False, True])
def test_any_signed_query_has_a_signed_answer(locked, tcp):
    for name, rdtype in (("www.example.", "A"), ("none.example.", "A"), ("example.", "ANY")):
        response = exchange(locked, signed(make_query(name, rdtype)), tcp=tcp)
        assert response.had_tsig, response
    assert not exchange(locked, make_query("www.example.")).had_tsig


@pytest.mark.parametrize("algorithm", ["hmac-sha1", "hmac-sha224", "hmac-sha256", "hmac-sha384", "hmac-sha512"])
def test_each_algorithm(nodes, directory, algorithm):
    write(directory, "keys", f'key "{KEY}" {{\n\talgorithm {algorithm};\n\tsecret "{SECRET}";\n}};\n')
    node = serving(nodes, directory, f"tsig {{\n  secrets {directory}/keys\n  require all\n }}")
    response = exchange(node, signed(make_query("www.example."), algorithm=algorithm))
    assert response.had_tsig and rcode(response) == "NOERROR"
    assert rcode(ask(node, "www.example.")) == "REFUSED"


def tsig_of(wire):
    """The rcode, and of the TSIG record the error, the MAC and other data, without a look at whether it is right."""
    size = len(wire)
    position = wire.rindex(b"\x00\x00\xfa\x00\xff\x00\x00\x00\x00") + 11
    assert position < size
    position = wire.index(b"\x00", position) + 1 + 8
    mac_size = struct.unpack("!H", wire[position:position + 2])[0]
    mac = wire[position + 2:position + 2 + mac_size]
    error, other_size = struct.unpack("!2H", wire[position + 4 + mac_size:position + 8 + mac_size])
    return wire[3] & 15, error, mac, wire[size - other_size:] if other_size else b""


def test_what_is_wrong_with_a_signature_is_said(locked, monkeypatch):
    good = signed(make_query("www.example.")).to_wire()
    assert tsig_of(exchange_raw(locked, good))[:2] == (0, 0)
    assert tsig_of(exchange_raw(locked, signed(make_query("www.example."), name="other.key.").to_wire()))[:3] == (9, 17, b"")
    other_secret = base64.b64encode(b"another").decode()
    assert tsig_of(exchange_raw(locked, signed(make_query("www.example."), secret=other_secret).to_wire()))[:3] == (9, 16, b"")
    assert tsig_of(exchange_raw(locked, signed(make_query("www.example."), algorithm="hmac-sha512").to_wire()))[:3] == (9, 17, b"")
    real = time.time
    for offset in (-1000, 1000):
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda offset=offset: real() + offset)
            late = signed(make_query("www.example.")).to_wire()
        code, error, mac, other = tsig_of(exchange_raw(locked, late))
        assert (code, error, len(mac)) == (9, 18, 32)
        assert abs(int.from_bytes(other, "big") - real()) < 60, "the server's time"


def test_a_mac_that_is_cut_short_is_refused(locked):
    wire = signed(make_query("www.example.")).to_wire()
    rdata = wire.rindex(b"\x0bhmac-sha256\x00")
    for size, expected in ((31, (9, 22)), (16, (9, 22)), (15, (1, None)), (0, (1, None))):
        cut = bytearray(wire)
        mac = rdata + 13 + 8
        del cut[mac + 2 + size:mac + 2 + 32]
        cut[mac:mac + 2] = struct.pack("!H", size)
        cut[rdata - 2:rdata] = struct.pack("!H", 61 - 32 + size)
        response = exchange_raw(locked, bytes(cut))
        code = (response[3] & 15, None) if expected[1] is None else tsig_of(response)[:2]
        assert code == expected, size


def test_a_forwarded_answer_is_signed_too(nodes, directory):
    upstream = serving(nodes, directory)
    node = nodes.start(f"example {{\n{TSIG} forward . 127.0.0.1:{upstream.port}\n}}\n")
    for tcp in (False, True):
        response = exchange(node, signed(make_query("www.example.")), tcp=tcp)
        assert response.had_tsig and rcode(response) == "NOERROR" and response.answer, response


def test_an_alias_does_not_lead_around_a_signature(nodes, directory):
    """Neither from another block, nor from where the zone asks for none."""
    locked = write(directory, "locked", zone(1))
    other = write(directory, "other", zone(1, "alias CNAME www.example.\n"))
    node = nodes.start(f"example {{\n tsig {{\n  secret {KEY} {SECRET}\n  require all\n }}\n file {locked}\n}}\n"
                       f"other {{\n file {other}\n}}\n"
                       f"x.example y.test {{\n tsig x.example {{\n  secret {KEY} {SECRET}\n  require all\n }}\n"
                       f" file {write(directory, 'x', zone(1))} x.example\n"
                       f" file {write(directory, 'y', zone(1, 'alias CNAME www.x.example.' + chr(10)))} y.test\n}}\n")
    assert answers(node, "alias.other.") == ["www.example."]
    assert answers(node, "alias.y.test.") == ["www.x.example."]
    response = exchange(node, signed(make_query("alias.y.test.")))
    assert response.had_tsig and "192.0.2.1" in str(response)


LARGE = "".join(f"host{number} A 192.0.{number // 256 % 256}.{number % 256}\n" for number in range(100_000))
MEDIUM = LARGE[:LARGE.index("host20000 ")]  # for dnspython, which takes half a minute for the large one


def dug(node, *options):
    """A transfer as dig prints it."""
    return subprocess.run(["dig", *options, "@127.0.0.1", "-p", str(node.port), "example", "AXFR"], check=True, capture_output=True, text=True).stdout


def test_a_large_zone(nodes, directory):
    node = serving(nodes, directory, TSIG.strip(), "transfer {\n  to *\n }", records=LARGE)
    output = dug(node, "-y", f"hmac-sha256:{KEY}:{SECRET}")
    assert "XFR size: 100004 records" in output, output[-500:]
    assert "host99999.example." in output and "WARNING" not in output


def test_who_does_not_read_costs_no_one_else_anything(nodes, directory, free_port):
    port = free_port()
    node = serving(nodes, directory, "transfer {\n  to *\n }", "timeouts {\n  write 5s\n }", f"prometheus 127.0.0.1:{port}", records=LARGE)
    wire = make_query("example.", "AXFR").to_wire()
    stalled = []
    for _ in range(8):
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", node.port))
        sock.sendall(struct.pack("!H", len(wire)) + wire)
        stalled.append(sock)
    assert resolves(node, "host7.example.", "192.0.0.7")
    assert resolves(node, "host7.example.", "192.0.0.7", tcp=True)
    assert "XFR size: 100004 records" in dug(node), "a client that reads"
    wait_until(lambda: Metrics.of(port).sum("idetcd_tcp_stalled_total") == len(stalled), SOON, "the connections to be ended")
    assert Metrics.of(port).sum("idetcd_transfers_total") == 1
    for sock in stalled:
        sock.close()


def pipelined(node, count):
    wire = make_query("example.", "AXFR").to_wire()
    sock = socket.create_connection(("127.0.0.1", node.port), timeout=SOON)
    sock.sendall(count * (struct.pack("!H", len(wire)) + wire))
    return sock


def test_one_connection_does_not_take_all_places(nodes, directory):
    node = serving(nodes, directory, "transfer {\n  to *\n }", records=LARGE)
    with pipelined(node, 100) as sock:
        sock.recv(1)
        assert "XFR size: 100004 records" in dug(node)


def test_transfers_of_one_connection_wait_for_each_other(nodes, directory):
    node = serving(nodes, directory, "transfer {\n  to *\n }")
    with pipelined(node, 100) as sock, sock.makefile("rb") as received:
        for _ in range(100):
            message = dns.message.from_wire(received.read(struct.unpack("!H", received.read(2))[0]), one_rr_per_rrset=True)
            assert rcode(message) == "NOERROR" and len(message.answer) == 14


class NotifySink:
    """A secondary that takes NOTIFY, and answers if it is to."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.answers = True
        self.seen = []
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while True:
            try:
                wire, client = self.socket.recvfrom(4096)
            except OSError:
                return
            if not wire:
                return
            message = dns.message.from_wire(wire, keyring=keyring())
            self.seen.append(message)
            if self.answers:
                response = dns.message.make_response(message)
                self.socket.sendto(response.to_wire(), client)

    def close(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"", ("127.0.0.1", self.port))
        self.thread.join()
        self.socket.close()


@pytest.fixture
def sink():
    made = NotifySink()
    yield made
    made.close()


def test_changes_are_told(nodes, directory, sink):
    node = serving(nodes, directory, TSIG.strip(), f"transfer {{\n  to 127.0.0.1:{sink.port}\n  tsig-key {KEY}\n }}")
    wait_until(lambda: sink.seen, SOON, "NOTIFY at the start")
    notify = sink.seen[0]
    assert notify.opcode() == dns.opcode.NOTIFY and notify.had_tsig and notify.flags & dns.flags.AA
    assert notify.question[0].to_text() == "example. IN SOA"
    sink.answers = False
    told = len(sink.seen)
    write(directory, "db", zone(2))
    wait_until(lambda: len(sink.seen) >= told + 2, SOON, "NOTIFY again and again without an answer")
    sink.answers = True
    count = len(sink.seen)
    wait_until(lambda: len(sink.seen) > count, SOON, "NOTIFY once more")
    assert node.running()


# --- the cluster's zone ---


def secondary_named(directory, port, primary, name=ZONE):
    return Named(directory, port, {}, name="secondary", more="notify no;", statements=(
        f'zone "{name}" {{ type secondary; primaries port {primary} {{ 127.0.0.1; }}; file "{directory}/secondary.zone"; masterfile-format text; }};\n'))


def secondary_nsd(directory, port, primary, name=ZONE):
    return Nsd(directory, port, {}, name="secondary", statements=(
        f'zone:\n    name: "{name}"\n    zonefile: "{directory}/secondary.zone"\n    request-xfr: 127.0.0.1@{primary} NOKEY\n'
        f'    allow-notify: 127.0.0.1 NOKEY\n'))


def secondary_knot(directory, port, primary, name=ZONE):
    return Knot(directory, port, {}, name="secondary", statements=(
        f"remote:\n  - id: primary\n    address: 127.0.0.1@{primary}\nacl:\n  - id: notify\n    address: 127.0.0.1\n    action: notify\n"
        f'zone:\n  - domain: {name}\n    master: primary\n    acl: notify\n    file: "{directory}/secondary.zone"\n    zonefile-sync: -1\n'))


SECONDARIES = {"named": secondary_named, "nsd": secondary_nsd, "knot": secondary_knot}


@pytest.mark.parametrize("program", SECONDARIES)
def test_a_secondary_has_the_changes_alone(nodes, directory, free_port, launched, program):
    port, metrics = free_port(), free_port()
    node = serving(nodes, directory, f"transfer {{\n  to 127.0.0.1:{port}\n }}", f"prometheus 127.0.0.1:{metrics}")
    secondary = launched(SECONDARIES[program](directory, port, node.port, "example."))
    wait_until(patient(lambda: answers(secondary, "www.example.") == ["192.0.2.1"]), SOON, secondary.logs)
    versions = [RECORDS.replace("192.0.2.1\n", "192.0.2.7\n").replace("mail MX 10 www\n", ""), RECORDS + "www A 192.0.2.8\nnew TXT x\n",
                RECORDS.replace("www A ", "www 60 A ")]
    names = (("www.example.", "A"), ("mail.example.", "MX"), ("new.example.", "TXT"), ("example.", "SOA"))
    for serial, records in enumerate(versions, 2):
        renew(node, directory, serial, records)
        for name, rdtype in names:
            wait_until(patient(lambda n=name, t=rdtype: told(secondary, n, t) == told(node, n, t)), SOON,
                       lambda n=name, t=rdtype: (told(secondary, n, t), told(node, n, t), secondary.logs()))
    values = Metrics.of(metrics)
    assert values.sum("idetcd_transfers_total") == 1, node.logs()
    assert values.sum("idetcd_transfers_incremental_total") == len(versions), node.logs()
    if program == "named":
        assert os.path.exists(f"{directory}/secondary.zone.jnl"), "the journal of what was transferred by IXFR"
    if program == "knot":
        wait_until(lambda: len(re.findall("IXFR, incoming, .*finished", secondary.err())) == len(versions), SOON, secondary.logs)


def told(server, name, rdtype):
    """The rcode, and each record with its TTL."""
    response = ask(server, name, rdtype)
    return rcode(response), sorted(line for rrset in response.answer for line in rrset.to_text().splitlines())


def said(server, name, rdtype="A"):
    """Without the generation, which no transfer has."""
    return [re.sub(r' "generation=\d+"$', "", text) for text in answers(server, name, rdtype)]


@pytest.mark.parametrize("program", SECONDARIES)
def test_a_secondary_follows_a_claimed_name(etcd, nodes, directory, free_port, launched, program):
    port, metrics = free_port(), free_port()
    # In the zone's own block: the others' names are not the cluster's.
    first = nodes.start(corefile(etcd.endpoint, options=["address 192.0.2.1", "service http tcp 8080"],
                                 directives=[f"transfer {ZONE} {{\n to 127.0.0.1:{port}\n }}", f"prometheus 127.0.0.1:{metrics}"]))
    first.wait_owns(etcd)
    secondary = launched(SECONDARIES[program](directory, port, first.port))
    wait_until(patient(lambda: said(secondary, f"worker1.{ZONE}") == ["192.0.2.1"]), SOON, secondary.logs)
    other = nodes.start(corefile(etcd.endpoint, options=["address 192.0.2.2", "service http tcp 8081"]))
    other.wait_owns(etcd)
    wait_until(patient(lambda: said(secondary, f"worker2.{ZONE}") == ["192.0.2.2"]), SOON, secondary.logs)
    for name, rdtype in ((f"all.{ZONE}", "A"), (f"_http._tcp.{ZONE}", "SRV"), (f"worker1.{ZONE}", "TXT"), (ZONE, "NS"), (ZONE, "SOA"),
                         (f"worker2.{ZONE}", "A")):
        wait_until(patient(lambda n=name, t=rdtype: sorted(said(secondary, n, t)) == sorted(said(first, n, t))), SOON,
                   lambda n=name, t=rdtype: (n, t, said(secondary, n, t), said(first, n, t)))
    other.terminate()
    wait_until(patient(lambda: rcode(ask(secondary, f"worker2.{ZONE}")) == "NXDOMAIN"), SOON, secondary.logs)
    for name, rdtype in ((f"all.{ZONE}", "A"), (f"_http._tcp.{ZONE}", "SRV")):
        assert said(secondary, name, rdtype) == said(first, name, rdtype)
    values = Metrics.of(metrics)
    assert values.sum("idetcd_transfers_total") == 1, first.logs()
    assert values.sum("idetcd_transfers_incremental_total") >= 2, first.logs()


def test_changes_of_the_clusters_zone(etcd, nodes):
    first = nodes.start(corefile(etcd.endpoint, options=["address 192.0.2.1", "service http tcp 8080"], directives=[f"transfer {ZONE} {{\n to *\n }}"]))
    first.wait_owns(etcd)
    copy = dns.versioned.Zone(ZONE, relativize=False)

    def is_followed():
        fetch(first, copy)
        return content(copy) == transferred(first, ZONE)

    wait_until(is_followed, SOON, first.logs)
    others = []
    for number in (2, 3, 4):
        # The last two have one address, which `all` has once.
        others.append(nodes.start(corefile(etcd.endpoint, options=[f"address 192.0.2.{min(number, 3)}", "service http tcp 8080"])))
        others[-1].wait_owns(etcd)
        wait_until(lambda n=number: resolves(first, f"worker{n}.{ZONE}", f"192.0.2.{min(n, 3)}"), SOON, first.logs)
        wait_until(is_followed, SOON, first.logs)
    for number, other in zip((4, 3, 2), reversed(others)):
        other.terminate()
        wait_until(lambda n=number: rcode(ask(first, f"worker{n}.{ZONE}")) == "NXDOMAIN", SOON, first.logs)
        wait_until(is_followed, SOON, first.logs)
    wait_until(lambda: len(re.findall(r"transfer of tf\.local\. since serial \d+ to ", first.logs(tail=1000))) >= 6, SOON, first.logs)


def test_the_clusters_zone_before_it_is_known(nodes, stopped_etcd):
    node = nodes.start(corefile(stopped_etcd.endpoint, directives=[f"transfer {ZONE} {{\n to *\n }}"]))
    assert rcode(exchange(node, make_query(ZONE, "AXFR"), tcp=True)) == "SERVFAIL"
