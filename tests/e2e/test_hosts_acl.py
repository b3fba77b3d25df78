"""hosts, acl, any, loadbalance and loop: what is answered, or refused, before any server is asked."""

import contextlib
import os
import socket
import struct
import threading

import dns.edns
import dns.exception
import dns.flags
import dns.message
import dns.query
import dns.rcode
import dns.rdatatype
import dns.rrset
import pytest

from dns_client import (TIMEOUT, RawTcp, RawUdp, answers, ask, exchange, extended_errors, header, make_query, opt, question,
                        rcode, record, wire_name)
from harness.processes import TIME_FACTOR, wait_until
from test_corefile import run, validate

EDE_BLOCKED = 15
EDE_FILTERED = 17
SOON = 20 * TIME_FACTOR  # seconds; a time-out, not a delay


class Upstream:
    """A server on UDP that answers with what `respond(message)` makes of a query: bytes, or None for silence."""

    def __init__(self, respond):
        self.respond = respond
        self.asked = []
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.bind(("127.0.0.1", 0))
        self.port = self.sock.getsockname()[1]
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self):
        while True:
            packet, client = self.sock.recvfrom(4096)
            if not packet:
                return
            query = dns.message.from_wire(packet)
            self.asked.append((query.question[0].name.to_text(), dns.rdatatype.to_text(query.question[0].rdtype)))
            response = self.respond(query)
            if response is not None:
                self.sock.sendto(response, client)

    def close(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"", ("127.0.0.1", self.port))
        self.thread.join()
        self.sock.close()


def answer_198(query):
    """Every name is 198.51.100.1, and has nothing else."""
    response = dns.message.make_response(query)
    if query.question[0].rdtype == dns.rdatatype.A:
        response.answer.append(dns.rrset.from_text(query.question[0].name, 60, "IN", "A", "198.51.100.1"))
    return response.to_wire()


@pytest.fixture
def upstream():
    """A function that starts one."""
    started = []

    def start(respond=answer_198):
        started.append(Upstream(respond))
        return started[-1]

    yield start
    for server in started:
        server.close()


def write_hosts(directory, text, name="hosts"):
    """In one step, as an editor does."""
    path = os.path.join(directory, name)
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".new", path)
    return path


# --- hosts ---

def test_hosts_answers_and_leaves_the_rest_to_forward(nodes, directory, upstream):
    world = upstream()
    path = write_hosts(directory, "192.0.2.1 Router.example gw\n192.0.2.2 gw # second\n2001:db8::1 gw\nbroken line\n")
    node = nodes.start(f""". {{
        hosts {path} {{
            192.0.2.7 inline.example
            ttl 77
            fallthrough
        }}
        forward . 127.0.0.1:{world.port}
    }}""")
    assert answers(node, "ROUTER.example.") == ["192.0.2.1"]
    assert answers(node, "gw.") == ["192.0.2.1", "192.0.2.2"]
    assert answers(node, "gw.", "AAAA") == ["2001:db8::1"]
    assert answers(node, "inline.example.") == ["192.0.2.7"]
    assert answers(node, "1.2.0.192.in-addr.arpa.", "PTR") == ["gw.", "router.example."]
    response = ask(node, "gw.", tcp=True)
    assert response.flags & dns.flags.AA and response.answer[0].ttl == 77
    nodata = ask(node, "router.example.", "AAAA")
    assert rcode(nodata) == "NOERROR" and not nodata.answer and nodata.flags & dns.flags.AA
    assert nodata.authority[0].rdtype == dns.rdatatype.SOA
    assert answers(node, "www.example.") == ["198.51.100.1"]
    asked = {name for name, _ in world.asked}
    assert asked.isdisjoint({"gw.", "router.example.", "inline.example.", "1.2.0.192.in-addr.arpa."}), asked


def test_hosts_leaves_types_that_it_has_not_to_forward_by_option(nodes, upstream):
    """Of a name that stays one that exists, though the upstream knows nothing of it."""
    def respond(query):
        response = dns.message.make_response(query)
        if query.question[0].name.to_text() == "www.example.":
            response.answer.append(dns.rrset.from_text("www.example.", 60, "IN", "TXT", "text"))
        else:
            response.set_rcode(dns.rcode.NXDOMAIN)
        return response.to_wire()
    world = upstream(respond)
    lines = "192.0.2.7 www.example only.example\n fallthrough\n"
    node = nodes.start(f". {{\n hosts /dev/null {{\n {lines} fallthrough_unsupported\n }}\n forward . 127.0.0.1:{world.port}\n}}\n")
    assert answers(node, "www.example.") == ["192.0.2.7"] and answers(node, "www.example.", "AAAA") == []
    assert answers(node, "www.example.", "TXT") == ['"text"']
    assert answers(node, "only.example.", "TXT") == []
    assert answers(node, "other.example.", "TXT") == "NXDOMAIN"
    assert ("www.example.", "AAAA") not in world.asked


def test_hosts_without_fallthrough_ends_here(nodes, directory, upstream):
    """As CoreDNS: SERVFAIL within the zones, PTR and other zones go on."""
    world = upstream()
    path = write_hosts(directory, "192.0.2.1 www.example.org other.test\n")
    node = nodes.start(f""". {{
        hosts {path} example.org
        forward . 127.0.0.1:{world.port}
    }}""")
    assert answers(node, "www.example.org.") == ["192.0.2.1"]
    assert answers(node, "no.example.org.") == "SERVFAIL"
    assert answers(node, "other.test.") != ["192.0.2.1"]
    assert answers(node, "www.example.net.") == ["198.51.100.1"]
    assert "no.example.org." not in {name for name, _ in world.asked}


def test_hosts_follows_its_file(nodes, directory):
    path = write_hosts(directory, "192.0.2.1 a\n")
    node = nodes.start(f""". {{
        hosts {path} {{
            reload 20ms
        }}
    }}""")
    assert answers(node, "a.") == ["192.0.2.1"]
    write_hosts(directory, "192.0.2.2 a\n")
    wait_until(lambda: answers(node, "a.") == ["192.0.2.2"], SOON, node.logs)
    os.remove(path)
    wait_until(lambda: "plugin/hosts" in node.logs() and path in node.logs(), SOON, node.logs)
    assert answers(node, "a.") == ["192.0.2.2"], "the last one that was good"
    write_hosts(directory, "192.0.2.3 a\n")
    wait_until(lambda: answers(node, "a.") == ["192.0.2.3"], SOON, node.logs)
    node.wait_logged("[WARNING] plugin/hosts", times=1)


def test_hosts_reload_0_reads_once(nodes, directory):
    path = write_hosts(directory, "192.0.2.1 a\n")
    node = nodes.start(f". {{\n hosts {path} {{\n reload 0\n no_reverse\n }}\n}}")
    watched = nodes.start(f". {{\n hosts {path} {{\n reload 10ms\n }}\n}}")
    write_hosts(directory, "192.0.2.2 a\n")
    wait_until(lambda: answers(watched, "a.") == ["192.0.2.2"], SOON, watched.logs)
    assert answers(node, "a.") == ["192.0.2.1"]
    assert answers(node, "1.2.0.192.in-addr.arpa.", "PTR") == "REFUSED", "no directive follows hosts"
    assert answers(watched, "2.2.0.192.in-addr.arpa.", "PTR") == ["a."]


def test_hosts_of_many_addresses_is_whole_over_tcp(nodes, directory):
    many = [f"192.0.2.{i}" for i in range(1, 200)]
    path = write_hosts(directory, "".join(f"{address} many\n" for address in many))
    node = nodes.start(f". {{\n hosts {path}\n}}")
    short = ask(node, "many.")
    assert short.flags & dns.flags.TC and not short.answer
    assert answers(node, "many.", tcp=True) == sorted(many)


def test_loadbalance_turns_the_addresses(nodes, directory):
    path = write_hosts(directory, "192.0.2.1 a\n192.0.2.2 a\n192.0.2.3 a\n")
    turning = nodes.start(f". {{\n hosts {path}\n loadbalance\n}}")
    fixed = nodes.start(f". {{\n hosts {path}\n}}")

    def first_addresses(node):
        firsts = set()
        for query_id in range(60):
            query = make_query("a.")
            query.id = query_id
            rrset = exchange(node, query).answer[0]
            assert len(rrset) == 3
            firsts.add(rrset[0].to_text())
        return firsts

    assert first_addresses(turning) == {"192.0.2.1", "192.0.2.2", "192.0.2.3"}
    assert first_addresses(fixed) == {"192.0.2.1"}


def test_a_missing_hosts_file_is_no_reason_not_to_start(nodes, directory):
    path = os.path.join(directory, "missing")
    node = nodes.start(f". {{\n hosts {path} {{\n 192.0.2.1 a\n reload 10ms\n }}\n}}")
    assert answers(node, "a.") == ["192.0.2.1"]
    wait_until(lambda: f"{path}: No such file or directory" in node.logs(), SOON, node.logs)
    write_hosts(directory, "192.0.2.2 b\n", "missing")
    wait_until(lambda: answers(node, "b.") == ["192.0.2.2"], SOON, node.logs)


# --- acl, any ---

def ask_from(source, node, name, rdtype="A", host="127.0.0.1"):
    query = dns.message.make_query(name, rdtype, use_edns=0)
    return dns.query.udp(query, host, port=node.port, timeout=TIMEOUT, source=source)


def test_acl_tells_clients_apart(nodes, directory):
    path = write_hosts(directory, "192.0.2.1 a\n192.0.2.1 www.secret\n2001:db8::1 a\n")
    many = " ".join(f"10.{i // 256}.{i % 256}.0/24" for i in range(5000))
    node = nodes.start(f""". {{
        acl secret {{
            allow net 127.0.0.9
            block
        }}
        acl {{
            block net {many}
            allow net 127.0.0.3
            block net 127.0.0.2/31
            filter type AAAA TXT net 127.0.0.4 ::1
            drop net 127.0.0.5
        }}
        hosts {path}
    }}""")
    for source in ("127.0.0.1", "127.0.0.3", "127.0.0.4", "127.0.0.9"):
        assert ask_from(source, node, "a.").answer[0][0].to_text() == "192.0.2.1", source
    blocked = ask_from("127.0.0.2", node, "a.")
    assert rcode(blocked) == "REFUSED" and extended_errors(blocked) == [EDE_BLOCKED]
    filtered = ask_from("127.0.0.4", node, "a.", "AAAA")
    assert rcode(filtered) == "NOERROR" and not filtered.answer and extended_errors(filtered) == [EDE_FILTERED]
    filtered = ask_from("::1", node, "a.", "AAAA", host="::1")
    assert not filtered.answer and extended_errors(filtered) == [EDE_FILTERED]
    assert rcode(ask_from("127.0.0.1", node, "WWW.secret.")) == "REFUSED"
    assert ask_from("127.0.0.9", node, "www.secret.").answer


def test_acl_drop_is_silence(nodes):
    node = nodes.start(". {\n acl {\n drop type TXT\n }\n whoami\n}")
    with RawUdp(node.port) as udp:
        udp.send(header(1) + question("a.", rdtype=16))
        udp.send(header(2) + question("a."))
        assert udp.receive()[:2] == b"\0\2", "the dropped query came first"
    with RawTcp(node.port) as tcp:
        tcp.send_message(header(1) + question("a.", rdtype=16))
        with contextlib.suppress(ConnectionError):
            tcp.send_message(header(2) + question("a."))
            message = tcp.receive_message()
            assert message is None or message[:2] == b"\0\2"
    assert answers(node, "a.") == []


NSID = struct.pack("!2H", dns.edns.NSID, 0)
# Everything that a client can send and a server would say something to.
KINDS = {
    "a": header(1) + question("a."),
    "nsid": header(1, ar=1) + question("a.") + opt(options=NSID),
    "chaos": header(1) + question("id.server.", 16, 3),
    "chaos version": header(1, ar=1) + question("version.bind.", 16, 3) + opt(options=NSID),
    "hesiod": header(1) + question("a.", 1, 4),
    "class any": header(1) + question("a.", 1, 255),
    "any": header(1) + question("a.", 255),
    "axfr": header(1) + question("a.", 252),
    "ixfr": header(1) + question("a.", 251),
    "type 0": header(1) + question("a.", 0),
    "type opt": header(1) + question("a.", 41),
    "tkey": header(1) + question("a.", 249),
    "notify": header(1, 4 << 11) + question("a.", 6),
    "update": header(1, 5 << 11) + question("a.", 6),
    "status": header(1, 2 << 11, qd=0),
    "opcode 15": header(1, 15 << 11) + question("a."),
    "badvers": header(1, ar=1) + question("a.") + opt(version=1, options=NSID),
    "tsig": header(1, ar=1) + question("a.") + record(wire_name("key."), 250, 255, 0, wire_name("hmac-sha256.") + bytes(16)),
    "two opts": header(1, ar=2) + question("a.") + opt() + opt(),
    "no question": header(1, qd=0),
    "two questions": header(1, qd=2) + question("a.") + question("b."),
    "cut short": header(1) + b"\3ab",
    "bad label": header(1) + b"\x80a\0\0\1\0\1",
    "another zone": header(1) + question("example.org."),
    "cookie only": header(1, qd=0, ar=1) + opt(options=struct.pack("!2H", 10, 8) + bytes(8)),
}
RULES = """
    acl {
        drop net 127.0.0.5
        block net 127.0.0.6
        filter net 127.0.0.7
    }
    any
    nsid i-am-this-node
"""


def from_source(source, kind, port):
    sock = socket.socket(socket.AF_INET, kind)
    sock.bind((source, 0))
    sock.settimeout(TIMEOUT)
    sock.connect(("127.0.0.1", port))
    return sock


def ask_over(kind, source, node, packet):
    """What comes back over UDP or TCP; over TCP b"" if the connection is closed without a word."""
    with from_source(source, kind, node.port) as sock:
        if kind == socket.SOCK_DGRAM:
            sock.send(packet)
            return sock.recv(4096)
        sock.sendall(struct.pack("!H", len(packet)) + packet)
        length = sock.recv(2, socket.MSG_WAITALL)
        return sock.recv(struct.unpack("!H", length)[0], socket.MSG_WAITALL) if length else b""


@pytest.fixture(scope="module", params=[".", "zone. a."], ids=["root", "zones"])
def guarded(request, shared_nodes):
    """A node whose rules name nets only: of the root, or of the only zones that there are."""
    return shared_nodes.start(f"{request.param} {{{RULES}    whoami\n}}")


def test_acl_dropped_nets_get_nothing_at_all(guarded):
    with from_source("127.0.0.5", socket.SOCK_DGRAM, guarded.port) as dropped:
        for packet in KINDS.values():
            dropped.send(packet)
        assert rcode(ask(guarded, "a.")) == "NOERROR", "who is not dropped; and all before it has been looked at"
        dropped.setblocking(False)
        with pytest.raises(BlockingIOError):
            dropped.recv(4096)
    for kind, packet in KINDS.items():
        assert ask_over(socket.SOCK_STREAM, "127.0.0.5", guarded, packet) == b"", kind


@pytest.mark.parametrize("transport", [socket.SOCK_DGRAM, socket.SOCK_STREAM], ids=["udp", "tcp"])
@pytest.mark.parametrize("kind", KINDS)
def test_acl_blocked_and_filtered_nets_learn_nothing(guarded, kind, transport):
    allowed = ask_over(transport, "127.0.0.1", guarded, KINDS[kind])
    for source, code, reason in (("127.0.0.6", 5, EDE_BLOCKED), ("127.0.0.7", 0, EDE_FILTERED)):
        response = ask_over(transport, source, guarded, KINDS[kind])
        assert len(response) >= 12 and response[:2] == KINDS[kind][:2]
        opcode = response[2] >> 3 & 15
        if code == 5 or opcode == 0:
            assert response[3] & 15 == code, kind
        else:
            assert response[3] == allowed[3], "no success for what was not done"
        assert response[6:10] == bytes(4), "no records"
        assert b"i-am-this-node" not in response
        if b"\0\0\x29\x04\xd0" in response and opcode == 0:
            assert struct.pack("!3H", 15, 2, reason) in response


def test_acl_of_a_zone_does_not_speak_for_another(nodes):
    """The root's block has no rules: only names of the zone are dropped, and what cannot be read is not among them."""
    node = nodes.start("zone. {\n acl {\n drop\n }\n whoami\n}\n. {\n whoami\n}\n")
    assert rcode(ask(node, "a.")) == "NOERROR"
    assert ask_over(socket.SOCK_DGRAM, "127.0.0.1", node, KINDS["cut short"])[3] & 15 == 1
    assert ask_over(socket.SOCK_STREAM, "127.0.0.1", node, header(1) + question("x.zone.", 252)) == b""
    assert ask_over(socket.SOCK_STREAM, "127.0.0.1", node, header(1) + question("x.", 252))[3] & 15 == 5


def test_any_is_one_short_record(nodes, directory):
    path = write_hosts(directory, "192.0.2.1 a\n192.0.2.2 a\n")
    node = nodes.start(f". {{\n any\n hosts {path}\n}}")
    response = ask(node, "a.", "ANY")
    assert [rdata.to_text() for rrset in response.answer for rdata in rrset] == ['"RFC8482" ""']
    assert response.answer[0].ttl == 8482
    assert answers(node, "a.") == ["192.0.2.1", "192.0.2.2"]


# --- loop ---

def loop_line(node):
    return [line for line in node.err().splitlines() if "Loop (" in line]


@pytest.mark.parametrize("kind", ("through another server", "to ourselves", "to a file that names us"))
def test_a_loop_ends_the_server(nodes, directory, upstream, free_port, kind):
    port = free_port()

    def relay(query):
        def pass_on():
            with contextlib.suppress(OSError, dns.exception.DNSException):
                dns.query.udp(query, "127.0.0.1", port=port, timeout=1)
        threading.Thread(target=pass_on).start()

    target = f"127.0.0.1:{port}"
    if kind == "through another server":
        target = f"127.0.0.1:{upstream(relay).port}"
    elif kind == "to a file that names us":
        port, target = 53, write_hosts(directory, "nameserver 127.0.0.77\n", "resolv.conf")
    node = nodes.make(f".:{port} {{\n bind 127.0.0.77 127.0.0.1\n loop\n forward . {target}\n}}", port=None).launch()
    assert node.exit_code(SOON) == 1, node.logs()
    lines = loop_line(node)
    assert len(lines) == 1 and "plugin/loop" in lines[0] and 'detected for zone ".", see ' in lines[0], node.logs()
    assert f":{port})" in lines[0]


def test_another_block_of_ours_is_no_loop(nodes, directory, free_port):
    path = write_hosts(directory, "192.0.2.1 a\n")
    inner, outer = free_port(), free_port()
    node = nodes.make(f".:{outer} {{\n loop\n forward . 127.0.0.1:{inner}\n}}\n.:{inner} {{\n hosts {path}\n whoami\n}}\n",
                      port=None).launch().wait_answers(port=outer)
    assert answers(node, "a.", port=outer) == ["192.0.2.1"]
    assert node.running() and not loop_line(node)


def test_an_upstream_that_answers_is_no_loop(nodes, upstream):
    world = upstream()
    node = nodes.start(f". {{\n loop\n forward . 127.0.0.1:{world.port}\n}}")
    wait_until(lambda: any(rdtype == "HINFO" for _, rdtype in world.asked), SOON, node.logs)
    probe = next(name for name, rdtype in world.asked if rdtype == "HINFO")
    assert len(probe) >= 64, "it cannot be guessed"
    for _ in range(5):
        ask(node, "1.2.3.loop.example.", "HINFO")
        ask(node, probe, "A")
    assert answers(node, "www.example.") == ["198.51.100.1"]
    assert node.running()


def test_one_echo_of_the_probe_is_no_loop(nodes, upstream, free_port):
    port = free_port()
    echoed = []

    def echo_once(query):
        if query.question[0].rdtype == dns.rdatatype.HINFO and not echoed:
            echoed.append(query)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                sock.sendto(query.to_wire(), ("127.0.0.1", port))
        return answer_198(query)

    world = upstream(echo_once)
    node = nodes.make(f".:{port} {{\n loop\n forward . 127.0.0.1:{world.port}\n}}", port=None).launch()
    wait_until(lambda: len({name for name, rdtype in world.asked if rdtype == "HINFO"}) == 2, SOON, node.logs)
    assert answers(node, "www.example.", port=port) == ["198.51.100.1"]
    assert node.running() and not loop_line(node)


# --- the Corefile ---

ACCEPTED = (
    "hosts",
    "hosts /etc/hosts example.org example.net",
    "hosts {\n 192.0.2.1 a b\n ::1 c\n ttl 1\n no_reverse\n reload 1m\n fallthrough a. b.\n }",
    "hosts {\n fallthrough\n }",
    "acl {\n block\n }",
    "acl {\n allow net 10.0.0.0/8 ::1\n filter type A AAAA net *\n drop type *\n }",
    "acl example.org {\n block type ANY net 192.0.2.1\n }\n acl {\n allow\n }",
    "any", "loop", "loadbalance", "loadbalance round_robin", "minimal",
)

REFUSED = {
    "hosts {\n ttl 0\n }": "ttl",
    "hosts {\n ttl 65536\n }": "ttl",
    "hosts {\n ttl 1s\n }": "ttl",
    "hosts {\n ttl\n }": "ttl",
    "hosts {\n reload soon\n }": "reload",
    "hosts {\n reload -1s\n }": "reload",
    "hosts {\n nonsense\n }": "unknown property 'nonsense'",
    "hosts {\n 192.0.2.300 a\n }": "192.0.2.300",
    "hosts /etc/hosts a..b": "a..b",
    "hosts\n hosts": "hosts",
    "acl {\n deny\n }": "deny",
    "acl {\n block 10.0.0.0/8\n }": "10.0.0.0/8",
    "acl {\n block net 10.0.0.0/33\n }": "illegal CIDR notation '10.0.0.0/33'",
    "acl {\n block net example.org\n }": "illegal CIDR notation 'example.org'",
    "acl {\n block type BOGUS\n }": "BOGUS",
    "acl {\n block type\n }": "type",
    "acl {\n allow net\n }": "net",
    "any much": "much",
    "loop forever": "forever",
    "loadbalance weighted": "weighted",
}


@pytest.mark.parametrize("directive", ACCEPTED)
def test_corefile_accepts(directory, directive):
    code, _, err = validate(directory, f". {{\n {directive}\n whoami\n}}\n")
    assert code == 0, err


@pytest.mark.parametrize("directive", REFUSED)
def test_corefile_refuses(directory, directive):
    code, _, err = run(directory, f". {{\n {directive}\n whoami\n}}\n")
    assert code == 1
    assert err.startswith("Corefile:") and " - Error during parsing: " in err, err
    assert REFUSED[directive] in err, err
