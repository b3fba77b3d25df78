"""Forwarding over HTTPS (RFC 8484): to unbound, to BIND, and to what is no DNS server at all."""

import concurrent.futures
import contextlib
import os
import socket
import threading

import pytest

from dns_client import answers, ask, patient, rcode
from harness.dns_servers import Named, Nsd, UnboundForwarder
from harness.metrics import Metrics
from harness.processes import Process, wait_until
from harness.upstreams import Upstream, make_certificate, server_context

ZONE = """$TTL 300
@ SOA ns host 1 7200 900 1209600 60
@ NS ns
ns A 127.0.0.1
www A 192.0.2.80
""" + "".join(f"big A 10.0.{i // 250}.{i % 250}\n" for i in range(300)) + "".join(
    f"n{i} A 192.0.2.{i}\n" for i in range(200))


def corefile(*targets, options=(), directives=()):
    lines = "".join(f"        {option}\n" for option in options)
    rest = "".join(f"    {directive}\n" for directive in directives)
    return f". {{\n    errors\n{rest}    forward . {' '.join(targets)} {{\n{lines}    }}\n}}\n"


class Unbound:
    """In front of a server that has the zone; HTTPS only."""

    def __init__(self, directory, free_port, launched, subject="DNS:dns.example"):
        nsd = launched(Nsd(directory, free_port(), {"net.example.": ZONE}))
        self.certificate, key = make_certificate(directory, subject)
        self.server = launched(UnboundForwarder(directory, free_port(), nsd.host, nsd.port, https=(self.certificate, key)))
        self.target = f"https://127.0.0.1:{self.server.port}"
        self.ready = os.path.join(directory, "unbound.socket")

    def counted(self, name):
        return self.server.statistics()[name]


class Bind:
    """An authoritative server; HTTPS on a port beside that for plain text."""

    def __init__(self, directory, free_port, launched):
        self.certificate, key = make_certificate(directory, "DNS:dns.example")
        self.port = free_port()
        self.server = launched(Named(
            directory, free_port(), {"net.example.": ZONE},
            more=f"listen-on port {self.port} tls doh-tls http doh {{ 127.0.0.1; }}; max-records-per-type 0;",
            statements=f"""tls doh-tls {{ cert-file "{self.certificate}"; key-file "{key}"; }};
http doh {{ endpoints {{ "/dns-query"; }}; }};
"""))
        self.target = f"https://127.0.0.1:{self.port}"


@pytest.fixture
def unbound(directory, free_port, launched):
    return Unbound(directory, free_port, launched)


@pytest.fixture
def plain():
    with Upstream() as upstream:
        yield upstream


def wait_gets(node, name="www.net.example.", expected=("192.0.2.80",)):
    wait_until(patient(lambda: answers(node, name) == list(expected)), 20, node.logs, interval=0.1)


def check_server(node):
    wait_gets(node)
    assert rcode(ask(node, "missing.net.example.")) == "NXDOMAIN"
    assert len(answers(node, "big.net.example.", tcp=True)) == 300
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        assert list(pool.map(lambda i: answers(node, f"n{i}.net.example."), range(200))) == [[f"192.0.2.{i}"] for i in range(200)]


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_unbound(nodes, unbound, method):
    node = nodes.start(corefile(unbound.target, options=[f"tls {unbound.certificate}", "tls_servername dns.example",
                                                         f"doh_method {method}"]))
    check_server(node)
    assert unbound.counted("num.query.https") == unbound.counted("total.num.queries"), "nothing but HTTPS"


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_bind(directory, free_port, launched, nodes, method):
    bind = Bind(directory, free_port, launched)
    node = nodes.start(corefile(bind.target, options=[f"tls {bind.certificate}", "tls_servername dns.example",
                                                      f"doh_method {method}"]))
    check_server(node)


def test_questions_share_connections(nodes, unbound, free_port):
    port = free_port()
    node = nodes.start(corefile(unbound.target.replace("127.0.0.1", "127.0.0.1%dns.example"),
                                options=[f"tls {unbound.certificate}"], directives=[f"prometheus 127.0.0.1:{port}"]))
    wait_gets(node)
    for i in range(100):
        assert answers(node, f"n{i}.net.example.") == [f"192.0.2.{i}"]
    metrics = Metrics.of(port)
    assert metrics.sum("coredns_proxy_conn_cache_hits_total", proto="https") >= 90
    assert metrics.sum("coredns_proxy_conn_cache_misses_total", proto="https") <= 20


@pytest.mark.parametrize("options", [["tls {certificate}", "tls_servername other.example"], ["tls {certificate}"],
                                     ["tls_servername dns.example"]], ids=["another name", "by its address", "the system's CAs"])
def test_who_is_not_who_he_should_be_is_told_nothing(nodes, unbound, options):
    node = nodes.start(corefile(unbound.target, options=[option.format(certificate=unbound.certificate) for option in options]))
    wait_until(lambda: os.path.exists(unbound.ready), 20, unbound.server.logs)
    assert rcode(ask(node, "www.net.example.")) == "SERVFAIL"
    wait_until(lambda: f"plugin/errors: 2 www.net.example. A: {unbound.target}: TLS: " in node.out(), 10, node.logs)
    assert unbound.counted("total.num.queries") == 0


def test_a_server_that_restarts(nodes, unbound):
    node = nodes.start(corefile(unbound.target, options=[f"tls {unbound.certificate}", "tls_servername dns.example",
                                                         "max_fails 1", "health_check 50ms"]))
    wait_gets(node)
    unbound.server.kill()
    assert rcode(ask(node, "n1.net.example.")) == "SERVFAIL"
    wait_until(lambda: f"{unbound.target} does not answer" in node.out(), 10, node.logs)
    unbound.server.launch()
    wait_until(lambda: f"{unbound.target} answers again" in node.out(), 20, node.logs)
    wait_gets(node, "n2.net.example.", ["192.0.2.2"])


# --- servers that are none ---

class Nghttpd(Process):
    """A web server with HTTP/2, and one page."""

    def __init__(self, directory, port, certificate, key):
        super().__init__("nghttpd", directory)
        self.port = port
        self.pages = os.path.join(directory, "pages")
        os.mkdir(self.pages)
        self.files = [key, certificate]

    def add_page(self, name):
        with open(os.path.join(self.pages, name), "w", encoding="ascii") as file:
            file.write("This is no DNS message at all.")

    def launch(self, **spawn_options):
        return self.spawn(["nghttpd", "-v", "-a", "127.0.0.1", "-d", self.pages, str(self.port), *self.files], **spawn_options)


@pytest.fixture
def web(directory, free_port, launched):
    certificate, key = make_certificate(directory, "IP:127.0.0.1")
    server = launched(Nghttpd(directory, free_port(), certificate, key))

    def accepts():
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", server.port), 5):
            return True
        return False
    wait_until(accepts, 20, server.logs)
    server.certificate = certificate
    return server


@pytest.mark.parametrize("page, reason", [(None, "HTTP status 404"), ("dns-query", "HTTP: no application/dns-message")])
def test_a_web_server_is_passed_over(nodes, plain, web, page, reason):
    if page:
        web.add_page(page)
    target = f"https://127.0.0.1:{web.port}"
    options = [f"tls {web.certificate}", "doh_method GET", "policy sequential", "max_fails 1", "health_check 10s"]
    alone = nodes.start(corefile(target, options=options))
    assert rcode(ask(alone, "www.example.org.")) == "SERVFAIL"
    wait_until(lambda: f"plugin/errors: 2 www.example.org. A: {target}: {reason}" in alone.out(), 10, alone.logs)
    node = nodes.start(corefile(target, plain.address, options=options))
    assert answers(node, "www.example.org.") == ["192.0.2.1"]
    wait_until(lambda: f"{target} does not answer: {reason}" in node.out(), 10, node.logs)


class Stranger:
    """Accepts TLS with h2, calls `talk(connection)`, and reads until the client goes."""

    def __init__(self, certificate, key, talk):
        context = server_context(certificate, key)
        context.set_alpn_protocols(["h2"])
        self._context, self._talk = context, talk
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.protocols = []
        threading.Thread(target=self._run, daemon=True).start()

    def close(self):
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _run(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with contextlib.suppress(OSError), connection:
            connection.settimeout(20)
            with self._context.wrap_socket(connection, server_side=True) as tls:
                self.protocols.append(tls.selected_alpn_protocol())
                self._talk(tls)
                while tls.recv(65536):
                    pass


def endless(connection):
    connection.sendall(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))  # SETTINGS
    ping = bytes([0, 0, 8, 6, 0, 0, 0, 0, 0]) + bytes(8)
    for _ in range(1000):  # 17 MB, unless the client ends it
        connection.sendall(ping * 1000)


def silent(_):
    pass


def garbage(connection):
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(range(256)))


def goodbye(connection):
    """GOAWAY once there is a question: nothing was looked at."""
    connection.sendall(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
    connection.recv(65536)
    connection.sendall(bytes([0, 0, 8, 7, 0, 0, 0, 0, 0]) + bytes(8))


def gone(connection):
    connection.recv(65536)
    connection.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("talk", [silent, garbage, goodbye, gone, endless])
def test_strangers_are_passed_over(directory, nodes, plain, talk):
    certificate, key = make_certificate(directory, "IP:127.0.0.1")
    with contextlib.closing(Stranger(certificate, key, talk)) as stranger:
        node = nodes.start(corefile(f"https://127.0.0.1:{stranger.port}", plain.address,
                                    options=[f"tls {certificate}", "policy sequential", "max_fails 1", "health_check 100ms",
                                             "read_timeout 500ms"]))
        for i in range(5):
            assert answers(node, f"{i}.example.org.") == ["192.0.2.1"]
        wait_until(lambda: f"https://127.0.0.1:{stranger.port} does not answer" in node.out(), 10, node.logs)
        assert set(stranger.protocols) == {"h2"}
        assert node.running()


def test_a_server_without_tls_is_told_nothing(directory, nodes):
    certificate, _ = make_certificate(directory, "IP:127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as listener, concurrent.futures.ThreadPoolExecutor(1) as pool:
        node = nodes.start(corefile(f"https://127.0.0.1:{listener.getsockname()[1]}", options=[f"tls {certificate}"]))
        response = pool.submit(ask, node, "www.example.org.")
        listener.settimeout(20)
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(20)
            said = connection.recv(65536)
        assert rcode(response.result()) == "SERVFAIL"
    tls_handshake = 22
    assert said[0] == tls_handshake and b"example" not in said
