"""A node that clients ask over TLS (RFC 7858): `tls://` server blocks."""

import concurrent.futures
import contextlib
import math
import os
import random
import re
import resource
import socket
import ssl
import struct
import subprocess
import threading

import dns.edns
import dns.message
import dns.query
import pytest

from dns_client import TIMEOUT, answers, ask, make_query, rcode
from harness.metrics import Metrics
from harness.node import binary
from harness.processes import TIME_FACTOR, wait_until
from harness.upstreams import Upstream, answer, make_certificate

PADDING = 12
BLOCK = 468  # RFC 8467 §4.1
IDLE = math.ceil(4 * TIME_FACTOR)  # seconds, in which a handshake ends on a busy machine too


class Secure:
    """A node with `directives` over plain DNS and TLS."""

    def __init__(self, nodes, directory, free_port, directives="whoami", auth=""):
        self.directory = directory
        self.cert, self.key = make_certificate(directory, "DNS:dns.example")
        self.port, self.metrics_port = free_port(), free_port()
        self.node = nodes.start(f""". tls://.:{self.port} {{
    tls {self.cert} {self.key} {auth}
    prometheus 127.0.0.1:{self.metrics_port}
    {directives}
}}
""")

    def context(self, cert=None):
        context = ssl.create_default_context(cafile=cert or self.cert)
        context.set_alpn_protocols(["dot"])
        return context

    def connect(self, context=None, session=None, source="127.0.0.1"):
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT, source_address=(source, 0))
        return (context or self.context()).wrap_socket(plain, server_hostname="dns.example", session=session)

    def ask(self, query, **where):
        with self.connect(**where) as sock:
            return exchange(sock, query)

    def plain(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT)

    def certificate(self):
        """That which a new connection shows."""
        return ssl.get_server_certificate(("127.0.0.1", self.port))

    def counted(self, name, **labels):
        return Metrics.of(self.metrics_port).sum(name, **labels)


def send(sock, *queries):
    sock.sendall(b"".join(struct.pack("!H", len(wire)) + wire for wire in (query.to_wire() for query in queries)))


def receive(sock):
    """One message; None at the end of the stream."""
    def read(count):
        data = b""
        while len(data) < count:
            data += (chunk := sock.recv(count - len(data)))
            if not chunk:
                return None
        return data
    head = read(2)
    return head and read(struct.unpack("!H", head)[0])


def exchange(sock, query):
    send(sock, query)
    response = dns.message.from_wire(receive(sock))
    assert query.is_response(response)
    return response


class ByHand:
    """A connection whose bytes on the wire the test has in hand: the first flight goes through `change`."""

    def __init__(self, node, change=lambda hello: hello):
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = node.context().wrap_bio(self.incoming, self.outgoing, server_hostname="dns.example")
        self.sock = node.plain()
        self.change = change
        self.until(self.tls.do_handshake)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def flush(self):
        if self.outgoing.pending:
            self.sock.sendall(self.change(self.outgoing.read()))
            self.change = lambda data: data

    def until(self, step):
        while True:
            with contextlib.suppress(ssl.SSLWantReadError):
                result = step()
                self.flush()
                return result
            self.flush()
            data = self.sock.recv(65536)
            assert data, "the connection is closed"
            self.incoming.write(data)

    def send(self, query):
        wire = query.to_wire()
        self.tls.write(struct.pack("!H", len(wire)) + wire)
        self.flush()

    def end(self):
        """Says that no more comes."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.unwrap()
        self.flush()


def is_over(sock):
    try:
        return sock.recv(1) == b""
    except (ConnectionResetError, ssl.SSLError):
        return True


@pytest.fixture
def secure(nodes, directory, free_port):
    return lambda *arguments, **options: Secure(nodes, directory, free_port, *arguments, **options)


def test_kdig(secure):
    node = secure()
    out = subprocess.run(["kdig", "@127.0.0.1", "-p", str(node.port), f"+tls-ca={node.cert}", "+tls-hostname=dns.example",
                          "a.example.", "A", "+padding"], capture_output=True, text=True, check=True, timeout=60).stdout
    assert "TLS session (TLS1.3)" in out and "status: NOERROR" in out and "127.0.0.1" in out, out
    assert re.search(rf"Received {BLOCK} B", out), out


def test_dnspython_and_what_is_counted(secure):
    node = secure()
    query = make_query("a.example.")
    response = dns.query.tls(query, "127.0.0.1", port=node.port, timeout=TIMEOUT, ssl_context=node.context(),
                             server_hostname="dns.example")
    assert rcode(response) == "NOERROR"
    assert response.additional[-1].name.to_text() == "_tcp.a.example.", "as over TCP"
    assert node.counted("coredns_dns_requests_total", server=f"tls://:{node.port}", proto="tcp") == 1
    assert node.counted("idetcd_tls_handshakes_total") == 1
    assert answers(node.node, "a.example.") == []
    assert node.counted("coredns_dns_requests_total", server=f"dns://:{node.node.port}", proto="udp") >= 1


def test_there_is_nothing_over_udp(secure):
    node = secure()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(TIMEOUT)
        sock.connect(("127.0.0.1", node.port))
        sock.send(make_query("a.example.").to_wire())
        with pytest.raises(ConnectionRefusedError):
            sock.recv(512)


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_versions(secure, version):
    node = secure()
    context = node.context()
    context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
    with node.connect(context) as sock:
        assert sock.selected_alpn_protocol() == "dot"
        assert rcode(exchange(sock, make_query("a.example."))) == "NOERROR"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_older_versions_and_other_protocols_are_refused(secure):
    node = secure()
    old = node.context()
    old.set_ciphers("ALL:@SECLEVEL=0")
    old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    other = node.context()
    other.set_alpn_protocols(["h2"])
    for context in (old, other):
        with pytest.raises(ssl.SSLError):
            node.connect(context)
    wait_until(lambda: node.counted("idetcd_tls_failures_total") == 2, 10, node.node.logs)


def test_a_pipeline_and_pieces(secure):
    node = secure()
    queries = [make_query(f"n{i}.example.") for i in range(1000)]
    with node.connect() as sock, concurrent.futures.ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send, sock, *queries)
        got = [dns.message.from_wire(receive(sock)) for _ in queries]
        sending.result()
        assert {response.id for response in got} == {query.id for query in queries}
        wire = make_query("a.example.").to_wire()
        for piece in struct.pack("!H", len(wire)) + wire:
            sock.sendall(bytes([piece]))
        assert receive(sock)[:2] == wire[:2]


def test_padding(secure):
    node = secure()
    with node.connect() as sock:
        for size in (0, 100):
            query = make_query("a.example.", use_edns=0, options=[dns.edns.GenericOption(PADDING, bytes(size))])
            send(sock, query)
            assert len(receive(sock)) == BLOCK
        send(sock, make_query("a.example.", use_edns=0))
        assert len(receive(sock)) < 100
    assert not ask(node.node, "a.example.", use_edns=0, options=[dns.edns.GenericOption(PADDING, b"")]).options


def test_late_answers(secure):
    """Those of an upstream, in whatever order they come, and padded too."""
    with Upstream(lambda query, tcp: answer(query, "A 192.0.2.7")) as upstream:
        node = secure(f"forward . {upstream.address}")
        queries = [make_query(f"n{i}.example.", use_edns=0, options=[dns.edns.GenericOption(PADDING, b"")])
                   for i in range(100)]
        with node.connect() as sock:
            send(sock, *queries)
            got = [receive(sock) for _ in queries]
    assert {len(wire) for wire in got} == {BLOCK}
    assert {dns.message.from_wire(wire).answer[0][0].to_text() for wire in got} == {"192.0.2.7"}


def test_acl_sees_the_client(secure):
    node = secure("acl {\n        block net 127.0.0.9\n    }\n    whoami")
    assert rcode(node.ask(make_query("a.example."), source="127.0.0.9")) == "REFUSED"
    assert rcode(node.ask(make_query("a.example."))) == "NOERROR"


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_sessions_are_resumed(secure, version):
    node = secure()
    context = node.context()
    context.maximum_version = ssl.TLSVersion[version]
    with node.connect(context) as first:
        exchange(first, make_query("a.example."))
        session = first.session
        assert not first.session_reused
    with node.connect(context, session=session) as second:
        assert second.session_reused
        assert rcode(exchange(second, make_query("a.example."))) == "NOERROR"


def replace(path, by):
    os.rename(by, path)


def test_a_new_certificate_counts_without_a_restart(secure):
    node = secure()
    old = node.certificate()
    with node.connect() as before:
        exchange(before, make_query("a.example."))
        new_cert, new_key = make_certificate(node.directory, "DNS:dns.example", name="new")
        with open(new_cert, encoding="ascii") as file:
            new = file.read()
        replace(node.cert, new_cert)
        replace(node.key, new_key)
        wait_until(lambda: node.certificate().split() == new.split(), 20, node.node.logs)
        assert old != new
        assert rcode(exchange(before, make_query("b.example."))) == "NOERROR", "a connection goes on"
    assert rcode(node.ask(make_query("a.example."))) == "NOERROR"
    node.node.wait_logged(" has changed, and counts for connections from now on")


def test_a_bad_certificate_leaves_the_one_before(secure):
    node = secure()
    old = node.certificate()
    with open(node.cert + ".new", "w", encoding="ascii") as file:
        file.write("This is no certificate.\n")
    replace(node.cert, node.cert + ".new")
    node.node.wait_logged(f"plugin/tls: {node.cert} has changed, but cannot be used: ")
    assert node.certificate() == old


@pytest.mark.parametrize("auth, without, foreign", [
    ("nocert", True, True), ("request", True, True), ("require", False, True), ("verify_if_given", True, False),
    ("require_and_verify", False, False)])
def test_client_certificates(secure, directory, auth, without, foreign):
    ca = make_certificate(directory, "DNS:client.example", name="client")  # signs itself
    other = make_certificate(directory, "DNS:other.example", name="other")
    node = secure(auth=f"{ca[0]} {{\n        client_auth {auth}\n    }}")

    def is_served(pair=None):
        context = node.context()
        if pair:
            context.load_cert_chain(*pair)
        try:
            return rcode(node.ask(make_query("a.example."), context=context)) == "NOERROR"
        except (ssl.SSLError, OSError, dns.exception.DNSException, TypeError):
            return False
    assert is_served(ca)
    assert is_served() == without
    assert is_served(other) == foreign


# --- what goes wrong ---

def refusal(directory, text):
    path = os.path.join(directory, "Corefile")
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
    ended = subprocess.run([binary(), "-validate", "-conf", path], capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 1
    return ended.stderr


def test_what_validate_says(directory):
    cert, key = make_certificate(directory, "DNS:a.example")
    other = make_certificate(directory, "DNS:a.example", name="other")[1]
    assert "tls://.:853 needs a certificate in its server block; write: tls CERT KEY" in refusal(directory, "tls://. {\n whoami\n}\n")
    assert "/nonexistent" in refusal(directory, f"tls://. {{\n tls {cert} /nonexistent\n}}\n")
    assert f"cannot use the key {other}" in refusal(directory, f"tls://. {{\n tls {cert} {other}\n}}\n")
    assert f"cannot read the certificate {key}" in refusal(directory, f"tls://. {{\n tls {key} {key}\n}}\n")
    assert "cannot serve dns://.:853 - port 853 is for tls://." in refusal(
        directory, f"tls://. {{\n tls {cert} {key}\n}}\n.:853 {{\n whoami\n}}\n")
    for scheme in ("grpc", "quic", "https3"):
        assert f"{scheme}:// is not supported, only dns://, tls:// and https:// are" in refusal(directory, f"{scheme}://. {{\n}}\n")


def test_what_is_no_handshake(secure):
    node = secure()
    query = make_query("a.example.").to_wire()
    hello = bytes.fromhex("16030100c8010000c4")  # the beginning of one, and then nothing that belongs there
    junk = [struct.pack("!H", len(query)) + query, b"GET / HTTP/1.1\r\n\r\n", random.Random(1).randbytes(1000), hello + bytes(1000), bytes(70000)]
    for each in junk:
        with node.plain() as sock:
            with contextlib.suppress(ConnectionError):
                sock.sendall(each)
                while sock.recv(4096):  # an alert, maybe
                    pass
    wait_until(lambda: node.counted("idetcd_tls_failures_total") == len(junk), 10, node.node.logs)
    assert rcode(node.ask(make_query("a.example."))) == "NOERROR"


def record(content):
    return b"\x16\x03\x01" + struct.pack("!H", len(content)) + content


def test_a_hello_in_pieces(secure):
    node = secure()

    def split(hello):
        return b"".join(record(hello[i:i + 50]) for i in range(5, len(hello), 50))
    with ByHand(node, split) as client:
        client.send(query := make_query("a.example."))
        assert client.until(lambda: client.tls.read(4096))[2:4] == query.to_wire()[:2]


HUGE = record(b"\x01\x01\xf0\x00" + bytes(32))  # announces 126,976 bytes, for which memory is not to be had
HELLO_WITHOUT_KEY = record(b"\x01\x00\x00\x4c" + b"\x03\x03" + bytes(32) + b"\x00" + bytes.fromhex(  # wants TLS 1.3
    "0002 1301 0100 0021 002b0003020304 000a00040002001d 000d00080006040308040401 003300020000".replace(" ", "")))


def test_a_hello_that_announces_too_much(secure):
    node = secure()
    with node.plain() as sock:
        sock.sendall(HUGE)
        assert is_over(sock)
    with node.plain() as sock:
        sock.sendall(record(b"\x01"))  # and then its length
        assert is_over(sock)
    with node.plain() as sock:
        sock.sendall(HELLO_WITHOUT_KEY)
        assert sock.recv(1) == b"\x16", "a HelloRetryRequest (RFC 8446 §4.1.4)"
        sock.sendall(HUGE)
        while sock.recv(4096):
            pass
    wait_until(lambda: node.counted("idetcd_tls_failures_total") == 3, 10, node.node.logs)
    assert rcode(node.ask(make_query("a.example."))) == "NOERROR"


def test_what_comes_behind_the_end_is_not_kept(secure):
    asked, release = threading.Event(), threading.Event()

    def late(query, tcp):
        asked.set()
        release.wait()
        return answer(query, "A 192.0.2.7")
    with Upstream(late) as upstream:
        try:
            node = secure(f"forward . {upstream.address}")
            before = node.node.peak_memory()
            with ByHand(node) as client:
                client.send(make_query("a.example."))
                assert asked.wait(TIMEOUT)
                client.end()
                client.sock.settimeout(1)
                with contextlib.suppress(OSError):  # it is not read, or the connection is over
                    client.sock.sendall(bytes(64 << 20))
                if "sanitize" not in binary():
                    assert node.node.peak_memory() - before < 32 << 20
        finally:
            release.set()
        assert rcode(node.ask(make_query("b.example."))) == "NOERROR"


def test_a_handshake_that_does_not_end(secure):
    node = secure(f"tcp {{\n        idle {IDLE:g}s\n    }}\n    whoami")
    hello = bytes.fromhex("16030100c8010000c40303")
    with node.plain() as silent, node.plain() as half, node.connect() as idle:
        half.sendall(hello)
        for sock in (silent, half, idle):
            sock.settimeout(5 * IDLE)
            assert is_over(sock)
    wait_until(lambda: node.counted("idetcd_tcp_timed_out_total") == 3, 10, node.node.logs)
    assert rcode(node.ask(make_query("a.example."))) == "NOERROR"


def test_a_client_that_does_not_read(secure):
    """Its answers wait within bounds, and then its connection ends; others are answered."""
    node = secure(f"tcp {{\n        idle {IDLE:g}s\n    }}\n    whoami")
    queries = [make_query("a.example.", use_edns=0, options=[dns.edns.GenericOption(PADDING, b"")])] * 1000
    before = node.node.peak_memory()
    with node.connect() as sock:
        sock.settimeout(1)
        with contextlib.suppress(OSError):
            for _ in range(200):
                send(sock, *queries)
        wait_until(lambda: node.counted("idetcd_tcp_stalled_total") == 1, 20, node.node.logs)
        assert rcode(node.ask(make_query("b.example."))) == "NOERROR"
    if "sanitize" not in binary() and TIME_FACTOR == 1:
        assert node.node.peak_memory() - before < 32 << 20


def test_a_thousand_connections(secure):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4096:
        pytest.skip("too few descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    node = secure("tcp {\n        idle 10m\n    }\n    whoami")
    context = node.context()
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(node.connect(context)) for _ in range(1000)]
        for sock in socks + socks:
            assert rcode(exchange(sock, make_query("a.example."))) == "NOERROR"
        assert node.counted("idetcd_tls_handshakes_total") == 1000
        assert answers(node.node, "a.example.") == []


def test_a_reload_keeps_connections_and_sessions(secure):
    node = secure()
    context = node.context()
    with node.connect(context) as sock:
        exchange(sock, make_query("a.example."))
        session = sock.session
        with open(node.node.corefile_path, encoding="ascii") as file:
            text = file.read()
        with open(node.node.corefile_path, "w", encoding="ascii") as file:
            file.write(text.replace("whoami", "any\n    whoami"))
        node.node.signal(10)
        node.node.wait_logged("Reloading complete")
        assert rcode(exchange(sock, make_query("b.example."))) == "NOERROR"
    with node.connect(context, session=session) as sock:
        assert sock.session_reused
        assert exchange(sock, make_query("b.example.", "ANY")).answer[0].ttl == 8482


def test_forward_asks_it(secure, nodes):
    node = secure()
    front = nodes.start(f""". {{
    forward . tls://127.0.0.1:{node.port} {{
        tls {node.cert}
        tls_servername dns.example
    }}
}}
""")
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert {rcode(response) for response in pool.map(lambda i: ask(front, f"n{i}.example."), range(200))} == {"NOERROR"}
    assert node.counted("coredns_dns_requests_total", proto="tcp", server=f"tls://:{node.port}") >= 200
