"""A node that clients ask over HTTPS (RFC 8484): `https://` server blocks."""

import base64
import concurrent.futures
import os
import subprocess

import dns.message
import dns.rcode
import dns.rrset
import pytest

from dns_client import answers, ask, make_query, patient, rcode
from harness.metrics import Metrics
from harness.processes import wait_until
from harness.upstreams import Upstream, answer, make_certificate


class Web:
    """A node with `directives` over plain DNS and HTTPS."""

    def __init__(self, nodes, directory, free_port, directives="whoami"):
        self.directory = directory
        self.cert, self.key = make_certificate(directory, "DNS:dns.example")
        self.port, self.metrics_port = free_port(), free_port()
        self.node = nodes.start(f""". https://.:{self.port} {{
    tls {self.cert} {self.key}
    prometheus 127.0.0.1:{self.metrics_port}
    {directives}
}}
""")

    def curl(self, *arguments, path="/dns-query", source=None, check=True):
        """Status, header fields and body."""
        body, head = os.path.join(self.directory, "body"), os.path.join(self.directory, "head")
        ended = subprocess.run(
            ["curl", "--silent", "--show-error", "--http2", "--cacert", self.cert, "--resolve",
             f"dns.example:{self.port}:127.0.0.1", "--output", body, "--dump-header", head, "--max-time", "60",
             *(["--interface", source] if source else []), *arguments, f"https://dns.example:{self.port}{path}"],
            capture_output=True, text=True, check=False)
        if not check:
            return ended
        assert ended.returncode == 0, ended.stderr
        with open(head, encoding="ascii") as file:
            status, *fields = file.read().strip().splitlines()
        with open(body, "rb") as file:
            return status.split()[1], dict(field.split(": ", 1) for field in fields), file.read()

    def post(self, query, media_type="application/dns-message", **options):
        path = os.path.join(self.directory, "query")
        with open(path, "wb") as file:
            file.write(query)
        return self.curl("--header", f"content-type: {media_type}", "--data-binary", f"@{path}", **options)

    def counted(self, name, **labels):
        return Metrics.of(self.metrics_port).sum(name, **labels)


@pytest.fixture
def web(nodes, directory, free_port):
    return lambda *arguments, **options: Web(nodes, directory, free_port, *arguments, **options)


def get_path(query):
    return "/dns-query?dns=" + base64.urlsafe_b64encode(query).decode().rstrip("=")


@pytest.mark.parametrize("method", ["+https", "+https-get"])
def test_kdig(web, method):
    node = web()
    out = subprocess.run(["kdig", "@127.0.0.1", "-p", str(node.port), "+https=dns.example/dns-query", method,
                          f"+tls-ca={node.cert}", "+tls-hostname=dns.example", "a.example.", "A"],
                         capture_output=True, text=True, check=False, timeout=60)
    assert "status: NOERROR" in out.stdout and "HTTP/2" in out.stdout, out.stdout + out.stderr
    assert node.counted("coredns_dns_requests_total", server=f"https://:{node.port}", proto="tcp") == 1


def test_curl_by_both_methods(web):
    node = web()
    query = make_query("a.example.")
    query.id = 0x1234
    wire = query.to_wire()
    for status, fields, body in (node.post(wire), node.curl(path=get_path(wire))):
        assert status == "200"
        assert fields["content-type"] == "application/dns-message" and fields["content-length"] == str(len(body))
        response = dns.message.from_wire(body)
        assert query.is_response(response) and rcode(response) == "NOERROR"


def test_a_zone_of_many_messages_is_not_given_away_in_one(web, directory):
    path = os.path.join(directory, "zone")
    with open(path, "w", encoding="ascii") as file:
        file.write("$TTL 60\n@ SOA ns m 5 2 3 4 5\n@ NS ns\n$GENERATE 1-3000 n$ TXT some-text-that-fills-the-message\n")
    node = web(f"transfer {{\n to *\n }}\n file {path} example")
    response = dns.message.from_wire(node.post(dns.message.make_query("example.", "AXFR").to_wire())[2])
    assert rcode(response) == "REFUSED" and not response.answer
    older = dns.message.make_query("example.", "IXFR")
    older.authority.append(dns.rrset.from_text("example.", 60, "IN", "SOA", "ns.example. m.example. 3 2 3 4 5"))
    response = dns.message.from_wire(node.post(older.to_wire())[2])
    assert [rrset[0].serial for rrset in response.answer] == [5], "as over UDP"


def test_caches_learn_how_long(web):
    def handler(query, _):
        if query.question[0].name.to_text() == "a.example.":
            return answer(query, "A 192.0.2.7", ttl=123)
        response = answer(query, rcode=dns.rcode.NXDOMAIN)
        response.authority.append(dns.rrset.from_text("example.", 3600, "IN", "SOA", "ns. host. 1 2 3 4 77"))
        return response
    with Upstream(handler) as upstream:
        node = web(f"forward . {upstream.address}")
        for name, expected in (("a.example.", "max-age=123"), ("missing.example.", "max-age=77")):
            status, fields, _ = node.post(make_query(name).to_wire())
            assert (status, fields["cache-control"]) == ("200", expected)


def test_what_is_no_question(web):
    node = web()
    wire = make_query("a.example.").to_wire()
    assert node.curl(path="/")[0] == "404"
    assert node.curl()[0] == "400"
    assert node.curl(path="/dns-query?dns=AA!!")[0] == "400"
    status, fields, _ = node.curl("--request", "DELETE")
    assert status == "405" and fields["allow"] == "GET, POST"
    assert node.post(wire, "application/json")[0] == "415"
    assert node.post(b"short")[0] == "400"
    assert node.post(bytes(65536))[0] == "413"
    assert node.curl("--header", "x: " + "x" * 9000)[0] == "431"
    assert node.post(wire)[0] == "200"


def test_another_protocol_is_refused(web):
    node = web()
    ended = node.curl("--http1.1", check=False)
    assert ended.returncode != 0 and "alert" in ended.stderr, ended.stderr
    wait_until(lambda: node.counted("idetcd_tls_failures_total") == 1, 10, node.node.logs)


def test_acl_sees_the_client(web):
    node = web("acl {\n        block net 127.0.0.9\n        drop net 127.0.0.10\n    }\n    whoami")
    wire = make_query("a.example.").to_wire()
    assert rcode(dns.message.from_wire(node.post(wire, source="127.0.0.9")[2])) == "REFUSED"
    assert rcode(dns.message.from_wire(node.post(wire)[2])) == "NOERROR"
    dropped = node.post(wire, source="127.0.0.10", check=False)
    assert dropped.returncode == 92, "the request is reset, and not the connection: " + dropped.stderr


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_forward_asks_it(web, nodes, directory, method):
    """Many at a time, on few connections, and answers that are together longer than what HTTP/2 sends unasked."""
    zone = os.path.join(directory, "db.example")
    with open(zone, "w", encoding="ascii") as file:
        file.write("$TTL 300\n@ SOA ns host 1 2 3 4 5\n@ NS ns\n")
        file.writelines(f"* A 10.0.{i // 250}.{i % 250}\n" for i in range(300))
    node = web(f"file {zone} example.")
    front = nodes.start(f""". {{
    forward . https://127.0.0.1:{node.port} {{
        tls {node.cert}
        tls_servername dns.example
        doh_method {method}
    }}
}}
""")

    def is_answered(i):
        """In a while: on a busy machine the one that asks may give a question up."""
        return wait_until(patient(lambda: len(answers(front, f"n{i}.example.", tcp=True)) == 300), 60, front.logs)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert all(pool.map(is_answered, range(100)))
    assert node.counted("coredns_dns_requests_total", server=f"https://:{node.port}") >= 100
    assert node.counted("idetcd_tls_handshakes_total") <= 50


def test_both_beside_each_other(nodes, directory, free_port):
    cert, key = make_certificate(directory, "DNS:dns.example")
    dot, doh = free_port(), free_port()
    node = nodes.start(f""". tls://.:{dot} https://.:{doh} {{
    tls {cert} {key}
    whoami
}}
""")
    assert rcode(ask(node, "a.example.")) == "NOERROR"
    for port, more in ((dot, []), (doh, ["+https=dns.example/dns-query"])):
        out = subprocess.run(["kdig", "@127.0.0.1", "-p", str(port), *more, f"+tls-ca={cert}", "+tls-hostname=dns.example",
                              "a.example.", "A"], capture_output=True, text=True, check=False, timeout=60).stdout
        assert "status: NOERROR" in out, out
    assert f"tls://.:{dot}" in node.out() and f"https://.:{doh}" in node.out()
