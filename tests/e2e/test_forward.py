"""Forwarding: the real server before upstreams of the tests' own."""

import concurrent.futures
import contextlib
import os
import resource
import signal
import socket
import statistics
import struct
import subprocess
import threading
import time

import dns.edns
import dns.flags
import dns.message
import dns.name
import dns.query
import dns.rcode
import dns.rdatatype
import dns.rrset
import pytest

from corefiles import corefile
from dns_client import RawTcp, RawUdp, answers, ask, exchange, extended_errors, make_query, rcode, resolves, wait_resolves
from harness.node import binary
from harness.processes import TIME_FACTOR, wait_until
from harness.upstreams import SO_TIMESTAMPNS, Upstream, answer, make_certificate, server_context

NOT_AUTHORITATIVE, NO_REACHABLE_AUTHORITY, NETWORK_ERROR, SYNTHESIZED = 20, 22, 23, 29


@pytest.fixture
def upstreams():
    """A function that starts one."""
    running = []

    def start(handler=None, **options):
        running.append(Upstream(handler, **options).start())
        return running[-1]

    yield start
    for upstream in running:
        upstream.close()


def forward(*targets, options=(), directives=(), zone="."):
    block = "".join(f"        {option}\n" for option in options)
    rest = "".join(f"    {directive}\n" for directive in directives)
    return f". {{\n    errors\n    forward {zone} {' '.join(map(str, targets))} {{\n{block}    }}\n{rest}}}\n"


def address_of_ours(query, tcp):
    is_a = query.question[0].rdtype == dns.rdatatype.A
    return answer(query, *(["A 127.0.0.1"] if is_a else []))


def a(number):
    return lambda query, tcp: answer(query, f"A 192.0.2.{number}")


# --- what the client sees ---

@pytest.mark.parametrize("tcp", [False, True], ids=["udp", "tcp"])
def test_an_answer_comes_through(upstreams, nodes, tcp):
    upstream = upstreams()
    node = nodes.start(forward(upstream.address))
    response = ask(node, "WwW.example.ORG.", tcp=tcp)
    assert rcode(response) == "NOERROR"
    assert response.flags & dns.flags.RA and not response.flags & (dns.flags.AA | dns.flags.TC)
    assert response.question[0].name.to_text() == "WwW.example.ORG."
    (rrset,) = response.answer
    assert [rdata.to_text() for rdata in rrset] == ["192.0.2.1"] and rrset.ttl == 60
    assert upstream.queries[-1][1] == tcp, "who asks over TCP is asked for over TCP"


def test_client_options_stay_here(upstreams, nodes):
    upstream = upstreams()
    node = nodes.start(forward(upstream.address))
    query = make_query("www.example.org.", use_edns=0, payload=4096, want_dnssec=True,
                       options=[dns.edns.ECSOption("198.51.100.0"), dns.edns.GenericOption(65001, b"secret")])
    query.flags |= dns.flags.CD
    response = exchange(node, query)
    assert rcode(response) == "NOERROR" and response.edns == 0 and response.ednsflags & dns.flags.DO
    asked = upstream.queries[-1][0]
    assert asked.edns == 0 and not asked.options and asked.payload == 1232
    assert asked.ednsflags & dns.flags.DO and asked.flags & dns.flags.CD and asked.flags & dns.flags.RD
    assert ask(node, "www.example.org.").edns == -1, "who sends no OPT gets none"


def test_upstream_truncation_is_not_the_clients(upstreams, nodes):
    def handler(query, tcp):
        response = answer(query, *(f"A 10.0.0.{i}" for i in range(100)))
        if not tcp:
            response.answer.clear()
            response.flags |= dns.flags.TC
        return response

    node = nodes.start(forward(upstreams(handler).address))
    assert len(answers(node, "www.example.org.", tcp=True)) == 100
    response = ask(node, "www.example.org.", use_edns=0, payload=1232)
    assert response.flags & dns.flags.TC, "1,600 bytes do not fit a datagram"
    assert len(answers(node, "www.example.org.", use_edns=0, payload=4096, tcp=True)) == 100


def test_servers_that_are_not_there(upstreams, nodes, free_port):
    node = nodes.start(forward(f"127.0.0.1:{free_port()}"))
    response = ask(node, "www.example.org.", use_edns=0)
    assert rcode(response) == "SERVFAIL" and extended_errors(response) == [NETWORK_ERROR]
    node.wait_logged("[ERROR] plugin/errors: 2 www.example.org. A: ")
    node.wait_logged("Connection refused")


def test_a_black_hole_ends_within_five_seconds(upstreams, nodes):
    silent = upstreams(lambda query, tcp: None)
    node = nodes.start(forward(silent.address))

    def seconds(name):
        start = time.monotonic()
        response = exchange(node, make_query(name, use_edns=0), timeout=20 * TIME_FACTOR)
        assert rcode(response) == "SERVFAIL" and extended_errors(response) == [NO_REACHABLE_AUTHORITY]
        return time.monotonic() - start
    # It takes 4.5 s, and this machine may be busy once.
    assert any(seconds(f"n{i}.example.org.") < 5 * TIME_FACTOR for i in range(3))


class Flood:
    """Queries for different names, from so many sockets that what one gets fits its buffer however late it is read. When
    each was sent and answered is taken from the kernel, since a busy machine runs us late too."""

    PER_SOCKET = 100  # a default buffer holds 277 datagrams

    def __init__(self, node):
        self.node = node
        self.sockets = []
        self.sent = {}
        self.answers = {}  # number -> (packet, seconds after the query)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for sock in self.sockets:
            sock.close()

    def send(self, count):
        template = make_query("n00000.example.org.", use_edns=0).to_wire()
        mark = struct.pack("!H", 0xffff) + make_query("localhost.").to_wire()[2:]
        for first in range(0, count, self.PER_SOCKET):
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.sockets.append(sock)
            sock.connect(("127.0.0.1", self.node.port))
            sock.settimeout(8 * TIME_FACTOR)
            sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            for i in range(first, min(first + self.PER_SOCKET, count)):
                self.sent[i] = time.time()
                sock.send(struct.pack("!H", i) + template[2:].replace(b"n00000", b"n%05d" % i))
            sock.send(mark)  # once it is answered, the node has read all before
            while self._take(sock) != 0xffff:
                pass

    def receive(self):
        for sock in self.sockets:
            first = self.sockets.index(sock) * self.PER_SOCKET
            while any(i not in self.answers for i in range(first, min(first + self.PER_SOCKET, len(self.sent)))):
                self._take(sock)

    def _take(self, sock):
        packet, ((_, _, stamp),), _, _ = sock.recvmsg(4096, 64)
        (number,) = struct.unpack("!H", packet[:2])
        if number != 0xffff:
            seconds, nanoseconds = struct.unpack("=qq", stamp)
            self.answers[number] = (packet, seconds + nanoseconds / 1e9 - self.sent[number])
        return number


@pytest.mark.serial
def test_ten_thousand_in_a_black_hole(nodes, etcd):
    """Every client hears SERVFAIL and why within five seconds, memory stays bounded, and the cluster's names do not wait."""
    silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)  # it is never read
    silent.bind(("127.0.0.1", 0))
    node = nodes.start(corefile(etcd.endpoint, directives=[f"forward . 127.0.0.1:{silent.getsockname()[1]}"],
                                options=["address 192.0.2.7"]))
    node.wait_owns(etcd)
    wait_resolves([node], "worker1.tf.local.", "192.0.2.7")
    count = min(10000, resource.getrlimit(resource.RLIMIT_NOFILE)[1] // 2)
    before = resident_kilobytes(node)

    def usual_time():
        took = []
        for _ in range(200):
            start = time.monotonic()
            assert resolves(node, "worker1.tf.local.", "192.0.2.7")
            took.append(time.monotonic() - start)
        return statistics.median(took)
    idle = usual_time()
    with Flood(node) as flood:
        flood.send(count)
        busy = usual_time()
        grown = resident_kilobytes(node) - before
        flood.receive()
    silent.close()
    assert busy < 2 * idle + 0.05, f"{busy * 1e3:.1f} ms, {idle * 1e3:.1f} ms before"
    for packet, _ in flood.answers.values():
        assert packet[3] & 0xF == dns.rcode.SERVFAIL
        assert packet[-6:-2] == struct.pack("!HH", 15, 2), "an Extended DNS Error"
    slowest = max(seconds for _, seconds in flood.answers.values())
    assert slowest < 5 * TIME_FACTOR
    assert grown < count * 6, "kilobytes"


def resident_kilobytes(node):
    with open(f"/proc/{node.pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


# --- hostile upstreams ---

def forged(query, **changes):
    response = answer(query, "A 203.0.113.66")
    for name, value in changes.items():
        setattr(response, name, value)
    return response


def test_lies_are_waited_out(upstreams, nodes):
    """Up to three of them are; test_spoofing has those that are more."""
    def handler(query, tcp):
        other = dns.message.make_query("evil.example.", "A", use_edns=False)
        other.id = query.id
        return [b"", b"\0", os.urandom(200), query.to_wire(), forged(other), answer(query, "A 192.0.2.1")]

    upstream = upstreams(handler)
    for i in range(3):
        node = nodes.start(forward(upstream.address))  # it waits longest for a server that it does not know
        assert answers(node, f"{i}.example.org.") == ["192.0.2.1"]
    assert not any(tcp for _, tcp in upstream.queries)


def test_foreign_records_do_not_come_through(upstreams, nodes):
    def handler(query, tcp):
        response = answer(query, "A 192.0.2.1")
        response.answer.append(dns.rrset.from_text("bank.example.", 60, "IN", "A", "203.0.113.66"))
        response.additional.append(dns.rrset.from_text("bank.example.", 60, "IN", "A", "203.0.113.66"))
        return response

    node = nodes.start(forward(upstreams(handler).address))
    assert "203.0.113.66" not in ask(node, "www.example.org.").to_text()


def test_truncated_everywhere_is_a_failure(upstreams, nodes):
    def handler(query, tcp):
        response = answer(query)
        response.flags |= dns.flags.TC
        return response

    upstream = upstreams(handler)
    node = nodes.start(forward(upstream.address))
    assert rcode(ask(node, "www.example.org.")) == "SERVFAIL"
    assert len(upstream.names()) - upstream.names().count("ready.test.") <= 3


def test_identical_misses_become_one(upstreams, nodes):
    held = Held()
    upstream = upstreams(held)
    node = nodes.start(forward(upstream.address))
    query = make_query("same.example.org.").to_wire()
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(RawUdp(node.port)) for _ in range(50)]
        for client in clients:
            client.send(query)
        assert answers(node, "localhost.") == ["127.0.0.1"]  # by then the node has read them all
        held.free.set()
        for client in clients:
            assert dns.message.from_wire(client.receive()).answer[0][0].to_text() == "192.0.2.1"
    assert upstream.names().count("same.example.org.") == 1


# --- several servers ---

def test_one_dies_and_comes_back(upstreams, nodes):
    first, second = upstreams(a(1)), upstreams(a(2))
    node = nodes.start(forward(first.address, second.address,
                               options=["policy sequential", "max_fails 1", "health_check 50ms"]))
    assert answers(node, "a.example.org.") == ["192.0.2.1"]
    first.stop()
    assert answers(node, "b.example.org.") == ["192.0.2.2"]
    first.start()
    wait_until(lambda: answers(node, f"{time.monotonic_ns()}.example.org.") == ["192.0.2.1"], 5, "the first to be asked")
    node.wait_logged(f"{first.address} does not answer")
    node.wait_logged(f"{first.address} answers again")


def test_a_server_that_a_question_has_moved_on_from_has_failed_too(upstreams, nodes):
    """Then all are known to be down, and the next question fails at once."""
    silent = [upstreams(lambda query, tcp: None) for _ in range(2)]
    node = nodes.start(forward(*(server.address for server in silent),
                               options=["failfast_all_unhealthy_upstreams", "max_fails 1"]))

    def fail(name):
        begin = time.monotonic()
        assert rcode(exchange(node, make_query(name), timeout=20 * TIME_FACTOR)) == "SERVFAIL"
        return time.monotonic() - begin
    fail("first.example.org.")
    for server in silent:
        node.wait_logged(f"{server.address} does not answer")
    assert fail("second.example.org.") < 1.9 * TIME_FACTOR


def test_policies(upstreams, nodes):
    servers = [upstreams(a(i)) for i in (1, 2, 3)]
    node = nodes.start(forward(*(s.address for s in servers), options=["policy round_robin"]))
    rounds = []

    def in_turn():  # equals: who has been late once is asked less for a while
        rounds.append([answers(node, f"{len(rounds)}-{i}.example.org.")[0] for i in range(12)])
        return rounds[-1] == 4 * rounds[-1][:3] and len(set(rounds[-1])) == 3
    assert any(in_turn() for _ in range(10)), rounds


@pytest.mark.parametrize("policy", ["random", "round_robin", "sequential"])
@pytest.mark.parametrize("refusal", ["REFUSED", "SERVFAIL"])
def test_a_server_that_always_refuses(upstreams, nodes, policy, refusal):
    bad = upstreams(lambda query, tcp: answer(query, rcode=dns.rcode.from_text(refusal)))
    node = nodes.start(forward(bad.address, upstreams(a(2)).address, options=[f"policy {policy}"]))
    assert all(answers(node, f"{i}.example.org.") == ["192.0.2.2"] for i in range(100))
    assert 0 < len(bad.names()) < 50, "it is asked less, but not forgotten"


def test_failover_names_rcodes(upstreams, nodes):
    first = upstreams(lambda query, tcp: answer(query, rcode=dns.rcode.SERVFAIL))
    second = upstreams(lambda query, tcp: answer(query, rcode=dns.rcode.REFUSED))
    node = nodes.start(forward(first.address, second.address, options=["policy sequential"]))
    assert rcode(ask(node, "a.example.org.")) == "REFUSED", "the last answer"
    node = nodes.start(forward(first.address, second.address, options=["policy sequential", "failover REFUSED"]))
    assert rcode(ask(node, "a.example.org.")) == "SERVFAIL"


def test_a_lost_datagram_is_repeated(upstreams, nodes):
    heard = set()

    def handler(query, tcp):
        name = query.question[0].name
        if name.labels[0].startswith(b"lost") and name not in heard:
            heard.add(name)
            return None
        return answer(query, "A 192.0.2.1")

    upstream = upstreams(handler)
    node = nodes.start(forward(upstream.address))
    for i in range(30):
        answers(node, f"{i}.example.org.")
    assert answers(node, "lost.example.org.") == ["192.0.2.1"]
    assert upstream.repeated.count("lost.example.org.") >= 1
    assert upstream.names().count("lost.example.org.") == 1, "no second attempt, which is another datagram, and not over TCP"


def test_several_forwards_and_except(upstreams, nodes):
    world, corp, inner = upstreams(a(1)), upstreams(a(2)), upstreams(a(3))
    node = nodes.start(f""". {{
    forward . {world.address} {{
        except inner.example.org.
    }}
    forward corp.example.org. {corp.address}
}}
inner.example.org. {{
    forward . {inner.address}
}}
""")
    assert answers(node, "www.example.org.") == ["192.0.2.1"]
    assert answers(node, "www.inner.example.org.") == ["192.0.2.3"]


def test_next(upstreams, nodes):
    first = upstreams(lambda query, tcp: answer(query, rcode=dns.rcode.NXDOMAIN))
    second = upstreams(a(2))
    node = nodes.start(f""". {{
    forward . {first.address} {{
        next NXDOMAIN
    }}
    forward . {second.address}
}}
""")
    assert answers(node, "www.example.org.") == ["192.0.2.2"]


def test_next_on_nodata(upstreams, nodes):
    first = upstreams(lambda query, tcp: answer(query))
    second = upstreams(a(2))
    node = nodes.start(f""". {{
    forward . {first.address} {{
        next_on_nodata
    }}
    forward . {second.address}
}}
""")
    assert answers(node, "www.example.org.") == ["192.0.2.2"]


@pytest.mark.parametrize("scheme", ["", "tls://"], ids=["plain", "tls"])
def test_a_server_by_its_name(upstreams, nodes, directory, scheme):
    cert, key = make_certificate(directory, "DNS:dns.example")
    server = upstreams(a(7), tls=server_context(cert, key) if scheme else None)
    silent, resolver = upstreams(lambda query, tcp: None), upstreams(address_of_ours)
    options = [f"resolver {silent.address} {resolver.address}", f"tls {cert}"]
    node = nodes.start(forward(f"{scheme}dns.example:{server.port}", options=options))
    assert answers(node, "www.example.org.") == ["192.0.2.7"]
    assert set(resolver.names()) == {"dns.example."}


def test_a_server_whose_name_has_no_address_is_an_error(upstreams, directory):
    resolver = upstreams(lambda query, tcp: answer(query, rcode=dns.rcode.NXDOMAIN))
    path = os.path.join(directory, "Corefile")
    with open(path, "w", encoding="ascii") as file:
        file.write(forward("dns.example", options=[f"resolver {resolver.address}"]))
    ended = subprocess.run([binary(), "-conf", path, "-dns.port", "0"], capture_output=True, text=True,
                           timeout=30, check=False)
    assert ended.returncode == 1 and "plugin/forward: dns.example. has no address" in ended.stderr


def test_upstreams_are_offered_bufsize(upstreams, nodes):
    upstream = upstreams(a(1))
    for bufsize, offered in (("", 1232), ("bufsize 700", 700), ("bufsize 4096", 1232)):
        node = nodes.start(f""". {{
    {bufsize}
    forward . {upstream.address}
}}
""")
        assert answers(node, "www.example.org.") == ["192.0.2.1"]
        assert upstream.queries[-1][0].payload == offered


def test_max_concurrent(upstreams, nodes):
    upstream = upstreams()
    node = nodes.start(forward(upstream.address, options=["max_concurrent 2"]))
    upstream.handler = lambda query, tcp: None
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        def one(i):
            try:
                return rcode(exchange(node, make_query(f"{i}.example.org."), timeout=20 * TIME_FACTOR))
            except dns.exception.Timeout:
                return "timeout"
        results = list(pool.map(one, range(6)))
    assert sorted(results) == ["REFUSED"] * 4 + ["SERVFAIL"] * 2


# --- reload ---

class Held:
    """A handler whose answers wait until they are let go."""

    def __init__(self):
        self.arrived, self.free = threading.Event(), threading.Event()

    def __call__(self, query, tcp):
        self.arrived.set()
        self.free.wait(10 * TIME_FACTOR)
        return answer(query, "A 192.0.2.1")


def reload(node, text):
    with open(node.corefile_path, "w", encoding="utf-8") as file:
        file.write(text)
    done = node.out().count("Reloading complete")
    node.signal(signal.SIGHUP)
    wait_until(lambda: node.out().count("Reloading complete") > done, 5, node.logs)


@pytest.mark.parametrize("tcp", [False, True], ids=["udp", "tcp"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_reload_loses_no_question(upstreams, nodes, tcp, workers):
    held = Held()
    first, second = upstreams(held), upstreams(a(2))
    directives = [f"workers {workers}", "cache"]
    node = nodes.start(forward(first.address, directives=directives))
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(exchange, node, make_query("a.example.org."), tcp=tcp)
        assert held.arrived.wait(5 * TIME_FACTOR)
        for _ in range(2):
            reload(node, forward(second.address, directives=directives))
        assert answers(node, "b.example.org.", tcp=tcp) == ["192.0.2.2"], "new questions go to the new server"
        assert not waiting.done()
        held.free.set()
        assert waiting.result().answer[0][0].to_text() == "192.0.2.1"
    if workers == 1:
        assert answers(node, "a.example.org.") == ["192.0.2.1"], "the cache goes on, and has what came late"


def test_a_reload_looks_names_up_again(upstreams, nodes):
    """Inside the sandbox, beside the loops."""
    server, resolver = upstreams(a(7)), upstreams(address_of_ours)
    text = forward(f"dns.example:{server.port}", options=[f"resolver {resolver.address}"])
    node = nodes.start(text)
    before = len(resolver.queries)
    reload(node, text)
    assert len(resolver.queries) > before
    assert answers(node, "www.example.org.") == ["192.0.2.7"]


def test_an_address_that_a_reload_closes_is_free(upstreams, nodes, free_port):
    """Whatever is still to be answered there: the next reload may want it again."""
    held = Held()
    upstream, elsewhere = upstreams(held), free_port()
    node = nodes.start(forward(upstream.address))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.sendto(make_query("a.example.org.").to_wire(), ("127.0.0.1", node.port))
        assert held.arrived.wait(5 * TIME_FACTOR)
        reload(node, f".:{elsewhere} {{\n    whoami\n}}\n")
        reload(node, ". {\n    whoami\n}\n")
        assert rcode(ask(node, "b.example.org.")) == "NOERROR"
        held.free.set()


def test_the_end_does_not_wait_for_what_a_reload_left(upstreams, nodes):
    upstream, second = upstreams(), upstreams(a(2))
    node = nodes.start(forward(upstream.address, options=["max_fails 0"]))
    upstream.handler = lambda query, tcp: None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.sendto(make_query("a.example.org.").to_wire(), ("127.0.0.1", node.port))
        wait_until(lambda: "a.example.org." in upstream.names(), 5, "the question to be asked")
        reload(node, forward(second.address))
        assert node.terminate() == 0


# --- files, ourselves ---

def test_a_file_is_read_again(upstreams, nodes, directory):
    first, second = upstreams(a(1)), upstreams(a(2))
    path = os.path.join(directory, "resolv.conf")

    def write(*servers):
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write("search example.org\n" + "".join(f"nameserver {s}\n" for s in servers))
        os.rename(path + ".new", path)

    write(first.address)
    node = nodes.start(forward(path))
    assert answers(node, "a.example.org.") == ["192.0.2.1"]
    write(second.address)
    wait_until(lambda: answers(node, f"{time.monotonic_ns()}.example.org.") == ["192.0.2.2"], 8, "the new server")


def test_never_to_ourselves(upstreams, nodes, directory):
    upstream = upstreams()
    path = os.path.join(directory, "resolv.conf")
    node = nodes.make("")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"nameserver 127.0.0.1:{node.port}\nnameserver {upstream.address}\n")
    with open(node.corefile_path, "w", encoding="utf-8") as file:
        file.write(forward(path, options=["policy sequential"]))
    node.start()
    assert answers(node, "www.example.org.") == ["192.0.2.1"]
    node.wait_logged(f"127.0.0.1:{node.port} is this server itself")


NOBODY = "192.0.2.53"  # a server's address on the Internet; nothing is ever sent there
OF_SITES = ["foo.local.", "nas.home.arpa.", "1.0.0.10.in-addr.arpa.", "1.0.168.192.in-addr.arpa.",
            "1.0.20.172.in-addr.arpa.", "1.0.64.100.in-addr.arpa.", "x.d.f.ip6.arpa."]
OF_NOBODY = ["x.alt.", "x.invalid.", "x.onion.", "x.test.", "1.254.169.in-addr.arpa.", "2.0.0.127.in-addr.arpa.",
             "_dns.resolver.arpa."]


def assert_answered_here(node, name):
    response = ask(node, name, "PTR", use_edns=0)
    assert not response.answer and response.authority, name
    assert response.authority[0].ttl <= 60 or name.endswith(".127.in-addr.arpa."), "another Corefile may say otherwise"
    assert extended_errors(response) == [SYNTHESIZED], name


def test_special_names_do_not_leak(upstreams, nodes):
    upstream = upstreams()
    node = nodes.start(forward(upstream.address, NOBODY, options=["policy sequential"]))
    for name in OF_SITES + OF_NOBODY:
        assert_answered_here(node, name)
    assert answers(node, "localhost.") == answers(node, "foo.localhost.") == ["127.0.0.1"]
    assert answers(node, "localhost.", "AAAA") == ["::1"]
    assert answers(node, "1.0.0.127.in-addr.arpa.", "PTR") == ["localhost."]
    assert answers(node, "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.ip6.arpa.", "PTR") == ["localhost."]
    assert upstream.names() == []


def test_special_names_may_be_forwarded_by_name(upstreams, nodes):
    upstream = upstreams(lambda query, tcp: answer(query, "PTR host.example.org."))
    node = nodes.start(forward(upstream.address, NOBODY, zone="10.in-addr.arpa.", options=["policy sequential"]))
    assert answers(node, "1.0.0.10.in-addr.arpa.", "PTR") == ["host.example.org."]


def test_a_blocks_own_zone_counts_as_named(upstreams, nodes):
    upstream = upstreams(lambda query, tcp: answer(query, "PTR host.example.org."))
    servers = f"forward . {upstream.address} {NOBODY} {{\n policy sequential\n}}"
    node = nodes.start(f"corp.local 10.0.0.0/8 in-addr.arpa {{\n{servers}\n}}\n. {{\n{servers}\n}}\n")
    named = ["www.corp.local.", "1.0.0.10.in-addr.arpa.", "1.0.168.192.in-addr.arpa."]
    for name in named:
        assert answers(node, name, "PTR") == ["host.example.org."], name
    for name in ("www.local.", "x.d.f.ip6.arpa.", "2.0.0.127.in-addr.arpa."):
        assert_answered_here(node, name)
    assert upstream.names() == named


def test_private_servers_know_their_networks_names(upstreams, nodes):
    upstream = upstreams(lambda query, tcp: answer(query, "PTR host.example.org."))
    node = nodes.start(forward(upstream.address))
    for name in OF_SITES:
        assert answers(node, name, "PTR") == ["host.example.org."], name
    for name in OF_NOBODY:
        assert_answered_here(node, name)
    assert upstream.names() == OF_SITES


def test_the_private_servers_of_several_are_found(upstreams, nodes):
    """The first `forward` has a server on the Internet: its neighbour is asked, and `next` leads nowhere else."""
    world, site = upstreams(), upstreams(lambda query, tcp: answer(query, rcode=dns.rcode.NXDOMAIN))
    node = nodes.start(f""". {{
    forward . {world.address} {NOBODY}
    forward . {site.address} {{
        next NXDOMAIN
    }}
    forward . {world.address} {NOBODY}
}}
""")
    assert answers(node, "foo.local.") == "NXDOMAIN"
    assert site.names() == ["foo.local."] and world.names() == []


def test_servers_of_a_file_count_as_their_addresses(nodes, directory):
    path = os.path.join(directory, "resolv.conf")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"nameserver {NOBODY}\n")
    node = nodes.start(forward(path))
    assert_answered_here(node, "foo.local.")
    with open(path, "w", encoding="utf-8") as file:
        file.write("nameserver 127.255.0.53\n")  # no server is there either
    wait_until(lambda: answers(node, "foo.local.") == "SERVFAIL", 10, "a private server to be asked")
    for name in OF_NOBODY:
        assert_answered_here(node, name)


def test_without_recursion_only_what_is_known_here(upstreams, nodes, directory):
    upstream = upstreams()
    node = nodes.start(forward(upstream.address, directives=["hosts {\n 192.0.2.9 known.example.org\n fallthrough\n}"]))
    for name in ("www.example.org.", "foo.local."):
        query = make_query(name, use_edns=0)
        query.flags &= ~dns.flags.RD
        response = exchange(node, query)
        assert rcode(response) == "REFUSED" and extended_errors(response) == [NOT_AUTHORITATIVE], name
    for name, address in (("known.example.org.", "192.0.2.9"), ("localhost.", "127.0.0.1")):
        query = make_query(name)
        query.flags &= ~dns.flags.RD
        assert [r.to_text() for rrset in exchange(node, query).answer for r in rrset] == [address]
    assert upstream.names() == []


def ad_query(name="www.example.org."):
    query = make_query(name)
    query.flags |= dns.flags.AD
    return query


def validated(query, tcp):
    response = answer(query, "A 192.0.2.1")
    response.flags |= dns.flags.AD
    return response


@pytest.mark.parametrize("options, tcp, expected", [((), False, False), (["force_tcp"], False, False),
                                                    (["trust-ad"], False, True)])
def test_ad_in_plain_text_is_trusted_by_option(upstreams, nodes, options, tcp, expected):
    upstream = upstreams(validated)
    node = nodes.start(forward(upstream.address, options=options, directives=["cache"]))
    for _ in range(2):  # the second from the cache
        assert bool(exchange(node, ad_query(), tcp=tcp).flags & dns.flags.AD) == expected


def test_ad_over_tls_is_trusted(upstreams, nodes, directory):
    cert, key = make_certificate(directory, "IP:127.0.0.1")
    upstream = upstreams(validated, tls=server_context(cert, key))
    node = nodes.start(forward(f"tls://{upstream.address}", options=[f"tls {cert}"]))
    assert exchange(node, ad_query()).flags & dns.flags.AD


# --- aliases whose target the upstream leaves out ---

def aliases(targets):
    """An upstream that answers with one CNAME and no more, as an authoritative server does."""
    def handler(query, tcp):
        name = query.question[0].name.to_text().lower()
        target = targets[name]
        return answer(query, target if " " in target else f"CNAME {target}") if target else answer(query, rcode=dns.rcode.REFUSED)
    return handler


@pytest.mark.parametrize("tcp", [False, True], ids=["udp", "tcp"])
def test_the_target_of_an_alias_is_asked_for(upstreams, nodes, tcp):
    upstream = upstreams(aliases({"www.example.org.": "cdn.example.net.", "cdn.example.net.": "a.cdn.example.net.",
                                  "a.cdn.example.net.": "A 192.0.2.7"}))
    node = nodes.start(forward(upstream.address, directives=["cache"]))
    for _ in range(2):
        assert answers(node, "www.example.org.", tcp=tcp) == ["192.0.2.7", "a.cdn.example.net.", "cdn.example.net."]
    # On a connection what is answered late is asked for again.
    assert list(dict.fromkeys(upstream.names())) == ["www.example.org.", "cdn.example.net.", "a.cdn.example.net."]
    assert upstream.names().count("www.example.org.") == 1, "then it is cached"


def test_the_target_is_asked_of_those_who_serve_it(upstreams, nodes):
    corp = upstreams(aliases({"www.corp.example.": "cdn.example.net."}))
    world = upstreams(a(7))
    node = nodes.start(f". {{\n forward corp.example {corp.address}\n forward . {world.address}\n}}\n")
    assert answers(node, "www.corp.example.") == ["192.0.2.7", "cdn.example.net."]
    assert corp.names() == ["www.corp.example."] and world.names() == ["cdn.example.net."]


def test_a_target_that_is_refused_leaves_the_alias_uncached(upstreams, nodes):
    """By a server that has its own zones only."""
    upstream = upstreams(aliases({"www.example.org.": "cdn.example.net.", "cdn.example.net.": None}))
    node = nodes.start(forward(upstream.address, directives=["cache"]))
    for _ in range(2):
        assert answers(node, "www.example.org.") == ["cdn.example.net."]
    assert upstream.names().count("www.example.org.") == 2


@pytest.mark.parametrize("tcp", [False, True], ids=["udp", "tcp"])
def test_aliases_come_before_what_they_lead_to(upstreams, nodes, tcp):
    """glibc says "Name or service not known" where they come behind it."""
    def handler(query, tcp):
        response = answer(query)
        for text in ("c.example.net. 60 IN A 192.0.2.7", "b.example.net. 60 IN CNAME c.example.net.",
                     "www.example.org. 60 IN CNAME b.example.net."):
            owner, ttl, klass, rdtype, rdata = text.split(" ", 4)
            response.answer.append(dns.rrset.from_text(owner, int(ttl), klass, rdtype, rdata))
        return response
    upstream = upstreams(handler)
    node = nodes.start(forward(upstream.address, directives=["cache"]))
    for _ in range(2):
        response = ask(node, "www.example.org.", tcp=tcp)
        assert [rrset.name.to_text() for rrset in response.answer] == ["www.example.org.", "b.example.net.", "c.example.net."]
    assert upstream.names() == ["www.example.org."], "then it is cached"


@pytest.mark.parametrize("kind", ["CNAME", "DNAME"])
def test_two_aliases_of_one_name_are_no_answer(upstreams, nodes, kind):
    def two(query, tcp):
        response = answer(query, *(f"CNAME {label}.example.net." for label in ("ab" if kind == "CNAME" else "a")))
        if kind == "DNAME":
            response.answer[:0] = [dns.rrset.from_text("org.", 60, "IN", kind, f"{label}.net.") for label in "xy"]
        return response
    wrong, right = upstreams(two), upstreams(a(7))
    node = nodes.start(forward(wrong.address, right.address, options=["policy sequential"]))
    assert answers(node, "www.example.org.") == ["192.0.2.7"]
    alone = nodes.start(forward(wrong.address))
    for rdtype in ("A", "CNAME", "AAAA"):
        assert answers(alone, "www.example.org.", rdtype) == "SERVFAIL"


FORGED = "192.0.2.66"  # what the upstream says of every name that is not its own


def aliases_to(**targets):
    """An upstream that knows aliases, each named by one label below example.org, and gives all other names an address."""
    def handler(query, tcp):
        name = query.question[0].name.to_text().lower()
        target = targets.get(name.removesuffix(".example.org."))
        return answer(query, f"CNAME {target}" if target else f"A {FORGED}")
    return handler


@pytest.mark.parametrize("cache", ["cache", ""])
def test_an_alias_of_a_name_of_ours_is_answered_from_our_own_data(etcd, upstreams, nodes, cache):
    """Neither is the name told to the upstream, nor does the client get what that says of it."""
    upstream = upstreams(aliases_to(host="printer.lan.", node="worker5.tf.local.", none="worker6.tf.local.",
                                    other="www.corp.example."))
    corp = upstreams(a(9))
    hosts = "hosts {\n        10.20.0.5 printer.lan\n        fallthrough\n    }"
    text = corefile(etcd.endpoint, directives=[hosts, cache, f"forward . {upstream.address}"])
    node = nodes.start(text + f"corp.example {{\n    forward . {corp.address}\n}}\n")
    etcd.put("worker5.tf.local.", '{"ipv4":"10.20.0.7"}')
    wait_resolves([node], "worker5.tf.local.", "10.20.0.7")
    for _ in range(2):
        assert answers(node, "host.example.org.") == ["10.20.0.5", "printer.lan."]
        assert answers(node, "node.example.org.") == ["10.20.0.7", "worker5.tf.local."]
        assert answers(node, "none.example.org.") == "NXDOMAIN"
        assert answers(node, "other.example.org.") == ["192.0.2.9", "www.corp.example."], "of another block"
    etcd.put("worker5.tf.local.", '{"ipv4":"10.20.0.8"}')
    wait_resolves([node], "worker5.tf.local.", "10.20.0.8")
    assert answers(node, "node.example.org.") == ["10.20.0.8", "worker5.tf.local."], "as it is at the moment"
    assert set(upstream.names()) == {f"{name}.example.org." for name in ("host", "node", "none", "other")}


# What an alias may lead to here, and what this server says of it.
OWN_TARGETS = {
    "slot": ("worker5.tf.local.", "A", "10.20.0.7"),
    "entry": ("db.tf.local.", "A", "10.20.0.8"),
    "reverse": ("7.0.20.10.in-addr.arpa.", "PTR", "worker5.tf.local."),
    "hosts": ("printer.lan.", "A", "10.20.0.5"),
    "hosts-reverse": ("5.0.20.10.in-addr.arpa.", "PTR", "printer.lan."),
    "local": ("localhost.", "A", "127.0.0.1"),
}
OTHER_BLOCK = {"other": ("www.corp.example.", "A", "192.0.2.9")}
ALIAS_FORMS = ["alone", "second", "finished", "denied", "dname"]


def alias_in_form(form):
    """An upstream that has an alias KIND.example.org. of each target, and says of those what is not true: `finished` and
    `denied` in the same answer."""
    def handler(query, tcp):
        name, rdtype = query.question[0].name, query.question[0].rdtype
        forged = "PTR forged.example." if rdtype == dns.rdatatype.PTR else f"A {FORGED}"
        if name.labels[1:] == dns.name.from_text("example.net.").labels:
            return answer(query, f"CNAME {KINDS[name.labels[0].decode()][0]}")
        if not name.is_subdomain(EXAMPLE_ORG):
            return answer(query, forged)
        kind = name.labels[-4].decode()
        target = dns.name.from_text(KINDS[kind][0])
        if form == "second":
            return answer(query, f"CNAME {kind}.example.net.")
        response = answer(query, f"CNAME {target}")
        if form == "dname":
            response.answer.insert(0, dns.rrset.from_text(name.parent(), 60, "IN", "DNAME", target.parent().to_text()))
        if form in ("finished", "dname"):
            response.answer.append(dns.rrset.from_text(target, 60, "IN", *forged.split()))
        if form == "denied":
            response.set_rcode(dns.rcode.NXDOMAIN)
            response.authority.append(dns.rrset.from_text(".", 60, "IN", "SOA", "a. b. 1 1 1 1 60"))
        return response
    return handler


KINDS = OWN_TARGETS | OTHER_BLOCK
EXAMPLE_ORG = dns.name.from_text("example.org.")


@pytest.mark.parametrize("form", ALIAS_FORMS)
def test_an_alias_brings_our_own_data_and_only_to_clients_that_may_ask_for_its_target(etcd, upstreams, nodes, form):
    """Whatever the upstream says of the target; `acl` is asked of it too, for each client, and what one may have is not kept
    for the others."""
    rules = "{\n        allow net 127.0.0.2\n        block\n    }"
    upstream, corp = upstreams(alias_in_form(form)), upstreams(a(9))
    text = corefile(etcd.endpoint, directives=[
        f"acl tf.local lan localhost 10.0.0.0/8 {rules}", "hosts {\n        10.20.0.5 printer.lan\n        fallthrough\n    }",
        "local", "cache", f"forward . {upstream.address}"])
    node = nodes.start(text + f"corp.example {{\n    acl {rules}\n    forward . {corp.address}\n}}\n")
    for name in ("slot", "entry"):
        target, _, address = OWN_TARGETS[name]
        etcd.put(target, f'{{"ipv4":"{address}"}}')
        wait_until(lambda t=target, x=address: ask_from(node, "127.0.0.2", t) == (dns.rcode.NOERROR, [x]), 10, "the name")
    # What another block asks other servers for is not our own.
    for kind, (target, rdtype, data) in (KINDS if form in ("alone", "second") else OWN_TARGETS).items():
        label = dns.name.from_text(target).labels[0].decode()
        if form == "dname" and label == "localhost":
            continue  # the alias, localhost.NAME, is one itself
        alias = f"{label}.{kind}.example.org." if form == "dname" else f"{kind}.example.org."
        for _ in range(2):
            code, found = ask_from(node, "127.0.0.2", alias, rdtype)
            assert (code, found[-2:]) == (dns.rcode.NOERROR, [target, data]), kind
            code, found = ask_from(node, "127.0.0.1", alias, rdtype)
            assert code == dns.rcode.NOERROR and found[-1] == target, f"{kind}: {found}"


def ask_from(node, source, name, rdtype="A"):
    response = dns.query.udp(make_query(name, rdtype), "127.0.0.1", port=node.port, source=source, timeout=5 * TIME_FACTOR, ignore_unexpected=True)
    return response.rcode(), [rdata.to_text() for rrset in response.answer for rdata in rrset]


def test_an_alias_of_a_name_that_some_clients_may_ask_for_is_not_kept_for_others(upstreams, nodes):
    """Though the data are an upstream's, and wherever in the chain that name is. An alias of a name that whoever may ask for
    the alias may ask for too is kept."""
    upstream = upstreams(aliases({
        "www.example.org.": "db.secret.example.", "db.secret.example.": "A 192.0.2.7",
        "far.example.org.": "a.secret.example.", "a.secret.example.": "cdn.example.net.", "cdn.example.net.": "A 192.0.2.8",
        "open.example.org.": "cdn.example.net."}))
    node = nodes.start(". {\n acl secret.example {\n  allow net 127.0.0.2\n  block\n }\n acl {\n  allow net 127.0.0.0/8\n }\n"
                       f" cache\n forward . {upstream.address}\n}}\n")
    for _ in range(2):
        assert ask_from(node, "127.0.0.2", "www.example.org.")[1] == ["db.secret.example.", "192.0.2.7"]
        assert ask_from(node, "127.0.0.1", "www.example.org.")[1] == ["db.secret.example."]
        assert ask_from(node, "127.0.0.2", "far.example.org.")[1] == ["a.secret.example.", "cdn.example.net.", "192.0.2.8"]
        assert ask_from(node, "127.0.0.1", "far.example.org.")[1] == ["a.secret.example."]
        assert ask_from(node, "127.0.0.2", "open.example.org.")[1] == ["cdn.example.net.", "192.0.2.8"]
    assert upstream.names().count("open.example.org.") == 1, "then it is cached"


def aliases_of_secrets(query, tcp):
    """The target alone, or with what it leads to; hosts of services with their addresses."""
    name = query.question[0].name.to_text().lower()
    response = answer(query, *(["CNAME x.secret.example."] if name in ("al.example.", "full.example.") else
                               ["SRV 1 1 53 x.secret.example."] if name == "svc.example." else [f"A {FORGED}"]))
    if name == "full.example.":
        response.answer.append(dns.rrset.from_text("x.secret.example.", 600, "IN", "A", FORGED))
    if name == "svc.example.":
        response.additional.append(dns.rrset.from_text("x.secret.example.", 600, "IN", "A", FORGED))
    return response


@pytest.mark.parametrize("change", ["hosts", "etcd", "block", "acl"])
def test_what_is_cached_of_a_name_counts_no_more_when_it_becomes_ours(etcd, upstreams, nodes, directory, change):
    """Or is refused to this client, by a new `acl`: neither behind an alias, nor beside the answer to another question."""
    upstream, corp = upstreams(aliases_of_secrets), upstreams(a(9))
    hosts = os.path.join(directory, "hosts")
    with open(hosts, "w", encoding="ascii") as file:
        file.write("10.20.0.9 printer.lan\n")
    acl = "acl other.example {\n block net 127.0.0.2\n }"
    text = corefile(etcd.endpoint, directives=[acl, f"hosts {hosts} {{\n reload 100ms\n fallthrough\n }}", "cache",
                                               f"forward . {upstream.address}"])
    node = nodes.start(text)
    for name in ("al.example.", "full.example."):
        assert answers(node, name) == [FORGED, "x.secret.example."]
    assert [rrset[0].to_text() for rrset in ask(node, "svc.example.", "SRV").additional] == [FORGED]
    if change == "hosts":
        with open(hosts, "w", encoding="ascii") as file:
            file.write("10.20.0.5 x.secret.example\n")
    elif change == "etcd":
        etcd.put("x.secret.example.", '{"ipv4":"10.20.0.5"}')
    else:
        if change == "acl":
            text = text.replace("acl other.example", "acl secret.example")
        else:
            text += f"secret.example {{\n forward . {corp.address}\n}}\n"
        with open(node.corefile_path, "w", encoding="ascii") as file:
            file.write(text)
        node.signal(signal.SIGHUP)
    expected = {"block": ["192.0.2.9"], "acl": []}.get(change, ["10.20.0.5"])
    wait_until(lambda: ask_from(node, "127.0.0.2", "x.secret.example.")[1] == expected, 10, node.logs)
    for name in ("al.example.", "full.example."):
        assert ask_from(node, "127.0.0.2", name)[1] == ["x.secret.example.", *expected]
    service = dns.query.udp(make_query("svc.example.", "SRV"), "127.0.0.1", port=node.port, source="127.0.0.2", timeout=5 * TIME_FACTOR, ignore_unexpected=True)
    assert service.answer and not service.additional


def test_what_an_upstream_says_of_a_name_of_another_block_does_not_count(upstreams, nodes):
    """Though that block only asks others, and for whoever its `acl` refuses."""
    upstream, corp = upstreams(aliases_of_secrets), upstreams(a(9))
    node = nodes.start(f". {{\n cache\n forward . {upstream.address}\n}}\n"
                       f"secret.example {{\n acl {{\n block net 127.0.0.2\n }}\n forward . {corp.address}\n}}\n")
    for _ in range(2):
        assert ask_from(node, "127.0.0.1", "full.example.")[1] == ["x.secret.example.", "192.0.2.9"]
        assert ask_from(node, "127.0.0.2", "full.example.")[1] == ["x.secret.example."]
        assert not ask(node, "svc.example.", "SRV").additional


def test_aliases_of_one_name_of_another_block_are_answered_whole(upstreams, nodes):
    """However many of one client wait for that name: its limit is for those who ask for the name itself."""
    may_answer = threading.Event()

    def late(query, tcp):
        assert may_answer.wait(20 * TIME_FACTOR)
        return answer(query, *(f"A 192.0.2.{i}" for i in range(20)))
    labels = [f"n{i}" for i in range(5)]
    upstream, corp = upstreams(aliases_to(**{label: "www.corp.example." for label in labels})), upstreams(late)
    node = nodes.start(f". {{\n forward . {upstream.address}\n}}\ncorp.example {{\n forward . {corp.address}\n}}\n")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.connect(("127.0.0.1", node.port))
        client.settimeout(5 * TIME_FACTOR)
        for label in labels:
            client.send(make_query(f"{label}.example.org.", use_edns=0, payload=1232).to_wire())
            wait_until(lambda name=f"{label}.example.org.": name in upstream.names(), 10, "the alias to be asked for")
        wait_until(corp.names, 10, "its target to be asked for")
        may_answer.set()
        responses = [dns.message.from_wire(client.recv(4096)) for _ in labels]
    assert [(rcode(response), len(response.answer[-1])) for response in responses] == [("NOERROR", 20)] * len(labels)


def test_two_aliases_of_one_name_of_another_block_are_both_answered(upstreams, nodes):
    """Of one client, before the name itself is: neither question is taken for the other one, repeated."""
    may_answer = threading.Event()

    def late(query, tcp):
        assert may_answer.wait(20 * TIME_FACTOR)
        return a(9)(query, tcp)
    upstream, corp = upstreams(aliases_to(one="www.corp.example.", two="www.corp.example.")), upstreams(late)
    node = nodes.start(f". {{\n forward . {upstream.address}\n}}\ncorp.example {{\n forward . {corp.address}\n}}\n")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.connect(("127.0.0.1", node.port))
        client.settimeout(5 * TIME_FACTOR)
        names = {"one.example.org.", "two.example.org."}
        for name in names:
            client.send(make_query(name).to_wire())
            wait_until(lambda name=name: name in upstream.names(), 10, "the alias to be asked for")
        wait_until(corp.names, 10, "its target to be asked for")
        may_answer.set()
        responses = [dns.message.from_wire(client.recv(4096)) for _ in names]
    assert {response.question[0].name.to_text() for response in responses} == names
    assert all(response.answer[-1][0].to_text() == "192.0.2.9" for response in responses)


def test_aliases_between_blocks_end(upstreams, nodes):
    upstream = upstreams(aliases({"a.one.example.": "a.two.example.", "a.two.example.": "a.one.example."}))
    node = nodes.start("".join(f"{zone}.example {{\n forward . {upstream.address}\n}}\n" for zone in ("one", "two")))
    begin = time.monotonic()
    ask(node, "a.one.example.")
    assert time.monotonic() - begin < 5 * TIME_FACTOR and len(upstream.names()) < 12


def test_a_chain_of_aliases_without_end_fails(upstreams, nodes):
    chain = {f"{i}.example.org.": f"{i + 1}.example.org." for i in range(50)}
    upstream = upstreams(aliases({"a.example.org.": "b.example.org.", "b.example.org.": "a.example.org.", **chain}))
    node = nodes.start(forward(upstream.address))
    assert answers(node, "a.example.org.") == "SERVFAIL"
    assert upstream.names() == ["a.example.org.", "b.example.org."]
    assert answers(node, "0.example.org.") == "SERVFAIL"
    assert len(upstream.names()) < 2 + 12


def test_a_target_without_an_answer_is_given_up_in_time(upstreams, nodes):
    def handler(query, tcp):
        return answer(query, "CNAME dead.example.") if query.question[0].name.to_text() == "www.example.org." else None
    upstream = upstreams(handler)
    node = nodes.start(forward(upstream.address))
    response = exchange(node, make_query("www.example.org.", use_edns=0), timeout=10 * TIME_FACTOR)
    assert rcode(response) == "SERVFAIL" and extended_errors(response) == [NO_REACHABLE_AUTHORITY]


# --- DNS over TLS ---

def test_dns_over_tls(upstreams, nodes, directory):
    cert, key = make_certificate(directory, "IP:127.0.0.1")
    upstream = upstreams(tls=server_context(cert, key))
    node = nodes.start(forward(f"tls://{upstream.address}", options=[f"tls {cert}", "expire 100ms"]))
    for i in range(5):
        assert answers(node, f"{i}.example.org.") == ["192.0.2.1"]
    before = upstream.connections
    wait_until(lambda: not node.connected_ports()[upstream.port], 5, "`expire` to close the connection")
    assert answers(node, "b.example.org.") == ["192.0.2.1"]
    assert upstream.connections > before and upstream.resumed >= 1, "a new connection resumes the session"
    assert all(tcp for _, tcp in upstream.queries)


def test_queries_over_tls_are_padded(upstreams, nodes, directory):
    """RFC 8467: multiples of 128 bytes, whatever the name. What an upstream pads is not passed on."""
    padding = dns.edns.GenericOption(12, bytes(100))

    def handler(query, tcp):
        response = answer(query, "A 192.0.2.1")
        response.use_edns(0, options=[padding])
        return response

    cert, key = make_certificate(directory, "IP:127.0.0.1")
    upstream = upstreams(handler, tls=server_context(cert, key))
    node = nodes.start(forward(f"tls://{upstream.address}", options=[f"tls {cert}"]))
    for size in (1, 60, 63):
        name = ".".join(["a" * size] * 3) + ".example.org."
        assert not ask(node, name, use_edns=0).options
        query = upstream.queries[-1][0]
        assert len(query.to_wire()) in (128, 256) and [option.otype for option in query.options] == [11, 12]
    plain = upstreams(a(1))
    node = nodes.start(forward(plain.address, options=["force_tcp"]))
    answers(node, "www.example.org.")
    assert [option.otype for option in plain.queries[-1][0].options] == [11], "padding is for what is encrypted only"


def test_large_answers_over_tls(upstreams, nodes, directory):
    """Several TLS records, and many questions on one connection."""
    cert, key = make_certificate(directory, "IP:127.0.0.1")
    first = make_query("0.example.org.")
    whole = answer(first, *(f"A 10.1.{i // 256}.{i % 256}" for i in range(3000))).to_wire(max_size=65535)
    end = len(first.to_wire())

    def handler(query, tcp):  # made once: dnspython takes longer over eight of these than the server waits
        wire = query.to_wire()
        return wire[:2] + whole[2:12] + wire[12:end] + whole[end:]

    upstream = upstreams(handler, tls=server_context(cert, key))
    node = nodes.start(forward(f"tls://{upstream.address}", options=[f"tls {cert}"]))
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(RawTcp(node.port)) for _ in range(8)]
        for number, client in enumerate(clients):
            client.send_message(make_query(f"{number}.example.org.").to_wire())
        # Read only when all are there: while dnspython works on one, our upstream does not.
        received = [client.receive_message() for client in clients]
    for number, message in enumerate(map(dns.message.from_wire, received)):
        assert message.question[0].name.to_text() == f"{number}.example.org."
        assert sorted(map(str, message.answer[0])) == sorted(f"10.1.{i // 256}.{i % 256}" for i in range(3000))


def test_tls_server_name(upstreams, nodes, directory):
    cert, key = make_certificate(directory, "DNS:dns.example")
    upstream = upstreams(tls=server_context(cert, key))
    good = nodes.start(forward(f"tls://{upstream.address}", options=[f"tls {cert}", "tls_servername dns.example"]))
    assert answers(good, "www.example.org.") == ["192.0.2.1"]
    asked = len(upstream.queries)
    for options in ([f"tls {cert}", "tls_servername other.example"], [f"tls {cert}"], ["tls_servername dns.example"]):
        bad = nodes.start(forward(f"tls://{upstream.address}", options=options))
        assert rcode(ask(bad, "www.example.org.", use_edns=0)) == "SERVFAIL", options
        wait_until(lambda node=bad: "plugin/errors: 2 www.example.org. A: tls://" in node.out(), 5, "the reason")
    assert len(upstream.queries) == asked, "nothing was said to a server that has not proved who it is"


def test_each_tls_server_has_its_own_name(upstreams, nodes, directory):
    first_cert, first_key = make_certificate(directory, "DNS:first.example", name="first")
    second_cert, second_key = make_certificate(directory, "DNS:second.example", name="second")
    bundle = os.path.join(directory, "both.pem")
    with open(bundle, "w", encoding="ascii") as file:
        for path in (first_cert, second_cert):
            with open(path, encoding="ascii") as part:
                file.write(part.read())
    first = upstreams(a(1), tls=server_context(first_cert, first_key))
    second = upstreams(a(2), tls=server_context(second_cert, second_key))
    to = [f"tls://127.0.0.1%{name}.example:{server.port}" for name, server in (("first", first), ("second", second))]
    node = nodes.start(forward(*to, options=[f"tls {bundle}", "policy round_robin"]))
    assert {answers(node, f"{i}.example.org.")[0] for i in range(10)} == {"192.0.2.1", "192.0.2.2"}
    swapped = nodes.start(forward(f"tls://127.0.0.1%second.example:{first.port}", options=[f"tls {bundle}"]))
    asked = len(first.queries)
    assert rcode(ask(swapped, "www.example.org.")) == "SERVFAIL"
    assert len(first.queries) == asked, "nothing was said to a server of another name"


def test_tls_to_a_plain_server_is_never_plaintext(upstreams, nodes, directory):
    cert, _ = make_certificate(directory, "IP:127.0.0.1")
    upstream = upstreams()
    node = nodes.start(forward(f"tls://{upstream.address}", options=[f"tls {cert}"]))
    upstream.handler = lambda query, tcp: pytest.fail("plaintext")
    assert rcode(exchange(node, make_query("www.example.org."), timeout=8 * TIME_FACTOR)) == "SERVFAIL"
    assert not upstream.queries


def test_client_certificates(upstreams, nodes, directory):
    cert, key = make_certificate(directory, "IP:127.0.0.1")
    client_cert, client_key = make_certificate(directory, "DNS:client.example", "client")
    context = server_context(cert, key)
    context.load_verify_locations(client_cert)
    context.verify_mode = 2  # CERT_REQUIRED
    upstream = upstreams(tls=context)
    node = nodes.start(forward(f"tls://{upstream.address}", options=[f"tls {client_cert} {client_key} {cert}"]))
    assert answers(node, "www.example.org.") == ["192.0.2.1"]


# --- what the Corefile may not say ---

@pytest.mark.parametrize("line, message", [
    ("forward .", "Wrong argument count"),
    ("forward . no/where", "not an IP address, file or host name: 'no/where'"),
    ("forward . quic://192.0.2.1", "quic:// is not supported"),
    ("forward . 192.0.2.1 {\n policy best\n}", "unknown policy 'best'"),
    ("forward . 192.0.2.1 {\n next NOSUCH\n}", "NOSUCH is not a valid rcode"),
    ("forward . 192.0.2.1 {\n nosuch\n}", "unknown property 'nosuch'"),
    ("forward . " + " ".join(f"192.0.2.{i}" for i in range(1, 17)), "more than 15 TOs configured: 16"),
])
def test_refusals(nodes, line, message):
    node = nodes.make(f". {{\n{line}\n}}\n").launch()
    assert node.exit_code(5) == 1
    assert message in node.err()
