"""DNS cookies (RFC 7873, RFC 9018), with dig and dnspython as clients, and real servers as upstreams."""

import os
import re
import signal
import struct
import subprocess
import time

import dns.edns
import dns.exception
import dns.flags
import dns.message
import pytest

from corefiles import corefile
from dns_client import RawTcp, answers, exchange, make_query, rcode, wait_says
from harness.dns_servers import Knot, Named, Nsd
from harness.processes import TIME_FACTOR, wait_until
from harness.upstreams import Upstream, answer

COOKIE = 10
NSID = 3
CLIENT = bytes.fromhex("2464c4abcf10c957")
SECRET = "e5e973e5a6b2a43f48e7dc849e37bfcf"
OTHER_SECRET = "445536bcd2513298075a5d379663c962"

BOTH = pytest.mark.parametrize("tcp", [False, True], ids=["udp", "tcp"])
HOSTS = pytest.mark.parametrize("host", ["127.0.0.1", "::1"])


@pytest.fixture
def node(nodes, etcd, directory):
    """One that has every kind of answer."""
    hosts = os.path.join(directory, "hosts")
    with open(hosts, "w", encoding="ascii") as file:
        file.write("192.0.2.9 kept.example\n")
    with Upstream() as upstream:
        node = nodes.start(corefile(etcd.endpoint, pattern="worker{{.ID}}.tf.local.", directives=(
            f"hosts {hosts} kept.example", "cache", f"forward up.example {upstream.address}")))
        node.wait_owns(etcd)
        wait_until(lambda: isinstance(answers(node, "worker1.tf.local."), list), 10, node.logs)  # before: SERVFAIL
        wait_says(node, "worker1.tf.local.")
        yield node


def cookie_of(response):
    """The server cookie of the response, which must carry ours and none but one of RFC 9018."""
    options = [bytes(option.data) for option in response.options if int(option.otype) == COOKIE]
    assert len(options) == 1, response
    data = options[0]
    assert data[:8] == CLIENT and len(data) == 24 and data[8:12] == b"\1\0\0\0", data.hex()
    assert abs(struct.unpack("!I", data[12:16])[0] - time.time()) < 3700
    return data[8:]


def with_cookie(name, rdtype="A", server=b"", options=(), payload=1232, **more):
    cookie = dns.edns.GenericOption(COOKIE, CLIENT + server)
    return make_query(name, rdtype, use_edns=0, payload=payload, options=[*options, cookie], **more)


EVERY_ANSWER = [
    ("worker1.tf.local.", "A", {}, "NOERROR"),
    ("worker1.tf.local.", "MX", {}, "NOERROR"),
    ("worker9.tf.local.", "A", {}, "NXDOMAIN"),
    ("kept.example.", "A", {}, "NOERROR"),
    ("www.up.example.", "A", {}, "NOERROR"),  # late
    ("www.up.example.", "A", {}, "NOERROR"),  # from the cache
    ("other.example.", "A", {}, "REFUSED"),
    ("id.server.", "TXT", {"rdclass": "CH"}, "NOERROR"),
    ("worker1.tf.local.", "AXFR", {}, "REFUSED"),
    ("worker1.tf.local.", "TKEY", {}, "NOTIMP"),
]


@BOTH
@HOSTS
def test_every_response_to_a_cookie_carries_one(node, tcp, host):
    servers = set()
    for name, rdtype, more, expected in EVERY_ANSWER:
        for options in ([], [dns.edns.GenericOption(NSID, b"")]):
            response = exchange(node, with_cookie(name, rdtype, options=options, **more), tcp, host)
            assert rcode(response) == expected, response
            servers.add(cookie_of(response))
            has_nsid = any(int(option.otype) == NSID for option in response.options)
            assert has_nsid == bool(options) or rdtype in ("AXFR", "TKEY")
        plain = exchange(node, make_query(name, rdtype, use_edns=0, **more), tcp, host)
        assert not plain.options, "nobody has asked for it"
    server = max(servers)
    again = exchange(node, with_cookie("worker1.tf.local.", server=server), tcp, host)
    assert cookie_of(again) == server, "a young one stays"


def test_small_payloads(node):
    """RFC 6891 §6.2.3: below 512 counts as 512. The answer and the cookie are there, whatever else goes."""
    for payload in (0, 100, 512, 600):
        query = with_cookie("worker1.tf.local.", payload=payload, options=[dns.edns.GenericOption(NSID, b"")])
        response = exchange(node, query)
        cookie_of(response)
        assert response.answer and len(response.to_wire()) <= 512


def test_unreadable_cookies_are_format_errors(node):
    for size in (*range(0, 8), *range(9, 16), 41, 64):
        query = make_query("worker1.tf.local.", use_edns=0, options=[dns.edns.GenericOption(COOKIE, b"c" * size)])
        response = exchange(node, query)
        assert rcode(response) == "FORMERR" and not response.options, size


def test_a_query_for_a_cookie_alone(node):
    """RFC 7873 §5.4"""
    def ask(server):
        query = with_cookie(".", server=server)
        query.question.clear()
        with RawTcp(node.port) as tcp:
            return dns.message.from_wire(tcp.ask(query.to_wire()))
    first = ask(b"")
    assert rcode(first) == "NOERROR"
    assert rcode(ask(cookie_of(first))) == "NOERROR"
    bad = ask(bytes(16))
    assert rcode(bad) == "BADCOOKIE" and cookie_of(bad)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_dig(node, host):
    def dig(*options):
        command = ["dig", f"@{host}", "-p", str(node.port), "worker1.tf.local.", *options]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout
    output = dig("+cookie=2464c4abcf10c957")
    cookie = re.search("COOKIE: 2464c4abcf10c957([0-9a-f]{32}) [(]good[)]", output)
    assert cookie, output
    assert cookie[1] in dig(f"+cookie=2464c4abcf10c957{cookie[1]}", "+tcp")
    assert "(good)" in dig("+nsid", "+cookie", "+bufsize=512")
    assert "COOKIE" not in dig("+nocookie")


def configured(*options):
    return ". {\n    cookies {\n" + "".join(f"        {option}\n" for option in options) + "    }\n    whoami\n}\n"


def status(node, server=b"", tcp=False):
    response = exchange(node, with_cookie("any.example.", server=server), tcp)
    return rcode(response), cookie_of(response)


def reload(node, text):
    with open(node.corefile_path, "w", encoding="ascii") as file:
        file.write(text)
    before = (node.out() + node.err()).count("Reloading complete")
    node.signal(signal.SIGHUP)
    node.wait_logged("Reloading complete", before + 1)


def test_required_cookies(nodes):
    node = nodes.start(configured("require"))
    refused, server = status(node)
    assert refused == "BADCOOKIE"
    assert status(node, server) == ("NOERROR", server)
    assert status(node, bytes(16))[0] == "BADCOOKIE"
    assert status(node, bytes(16), tcp=True)[0] == "NOERROR"
    for options in ({}, {"use_edns": 0}):
        response = exchange(node, make_query("any.example.", **options))
        assert response.flags & dns.flags.TC and not response.additional
        assert not exchange(node, make_query("any.example.", **options), tcp=True).flags & dns.flags.TC


def test_a_reload_keeps_the_random_secret(nodes):
    node = nodes.start(configured("require"))
    server = status(node)[1]
    reload(node, configured("require"))
    assert status(node, server) == ("NOERROR", server)


def test_secrets_are_shared_and_replaced(nodes, directory):
    path = os.path.join(directory, "secret")

    def write(*secrets):
        with open(path, "w", encoding="ascii") as file:
            os.chmod(path, 0o600)
            file.write("".join(f"{secret}\n" for secret in secrets))
    write(SECRET)
    one = nodes.start(configured("require", f"secret_file {path}"))
    other = nodes.start(configured("require", f"secret {SECRET}"))
    server = status(one)[1]
    assert status(other, server) == ("NOERROR", server), "of another server with the same secret"
    write(OTHER_SECRET, SECRET)
    reload(one, configured("require", f"secret_file {path}"))
    accepted, renewed = status(one, server)
    assert accepted == "NOERROR" and renewed != server
    write(OTHER_SECRET)
    reload(one, configured("require", f"secret_file {path}"))
    assert status(one, server)[0] == "BADCOOKIE"
    assert status(one, renewed) == ("NOERROR", renewed)
    assert SECRET not in one.logs() and OTHER_SECRET not in one.logs()


def test_a_secret_that_everybody_can_read_is_refused(nodes, directory):
    path = os.path.join(directory, "secret")
    with open(path, "w", encoding="ascii") as file:
        file.write(SECRET)
    os.chmod(path, 0o644)
    text = configured(f"secret_file {path}")
    for arguments in ((), ("-validate",)):
        node = nodes.make(text, arguments=arguments).launch()
        assert node.exit_code(10) == 1
        assert "everybody may use it" in node.logs() and SECRET not in node.logs()


def test_off(nodes):
    node = nodes.start(". {\n    cookies off\n    whoami\n}\n")
    response = exchange(node, with_cookie("any.example."))
    assert rcode(response) == "NOERROR" and not response.options


# --- upstreams ---

ZONE = "$TTL 300\n@ SOA ns host 1 7200 900 1209600 60\n@ NS ns\nns A 127.0.0.1\n" + "".join(
    f"n{i} A 192.0.2.{i}\n" for i in range(200))


class KnotWithCookies(Knot):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        with open(self.config, "r+", encoding="ascii") as file:
            text = file.read()
            file.seek(0)
            file.write("mod-cookies:\n  - id: default\n    badcookie-slip: 1\n"
                       "template:\n  - id: default\n    global-module: mod-cookies/default\n" + text)


class NsdWithCookies(Nsd):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        with open(self.config, "r+", encoding="ascii") as file:
            text = file.read()
            file.seek(0)
            file.write(text.replace("server:\n", "server:\n    answer-cookie: yes\n", 1))


class Watched:
    """What goes to a real server and comes back over UDP, by an Upstream that asks it."""

    def __init__(self, server):
        self.server = server
        self.sent, self.got = [], []
        self.bad = set()  # of each question whose cookie was bad: its name, however often it was repeated

    def __call__(self, query, tcp):
        try:
            response = exchange(self.server, query, tcp, host=self.server.host)
        except (OSError, dns.exception.Timeout):
            return None  # a repetition, to a server that is replaced
        self.sent.append(cookies(query))
        self.got.append(cookies(response))
        if rcode(response) == "BADCOOKIE":
            self.bad.add(query.question[0].name)
        return response


def cookies(message):
    return next((bytes(option.data) for option in message.options if int(option.otype) == COOKIE), b"")


@pytest.mark.parametrize("kind", [KnotWithCookies, NsdWithCookies], ids=["knot", "nsd"])
def test_real_servers_take_our_cookies(directory, free_port, nodes, kind):
    server = kind(directory, free_port(), {"net.example.": ZONE})
    watched = Watched(server)

    def resolves_all(count):
        for i in range(count):
            assert answers(node, f"n{i}.net.example.") == [f"192.0.2.{i}"], node.logs()
    try:
        server.launch()
        wait_until(lambda: listens(server), 10, server.logs)
        with Upstream(watched) as relay:
            node = nodes.start(f". {{\n    errors\n    forward net.example {relay.address}\n}}\n")
            resolves_all(100)
            asks_again = int(kind is KnotWithCookies)  # NSD answers all the same, and renews it
            assert len(watched.sent) >= 100 and len(watched.bad) == asks_again
            assert watched.sent[-1] in watched.got[:-1] and len(watched.sent[-1]) == 24, "the server's cookie goes back to it"
            assert len({cookie[:8] for cookie in watched.sent if cookie}) == 1, "one client cookie for one server"
            server.kill()
            watched.got.clear()
            watched.bad.clear()
            server.launch()  # with another random secret
            wait_until(lambda: listens(server), 10, server.logs)
            resolves_all(50)
            assert len(watched.bad) == asks_again
            assert watched.sent[-1] in watched.got[:-1], "its new cookie, too"
    finally:
        server.kill()


def listens(server):
    try:
        exchange(server, make_query("net.example.", "SOA"), host=server.host, timeout=0.5 * TIME_FACTOR)
        return True
    except (OSError, dns.exception.Timeout):
        return False


def test_an_upstream_that_is_played_by_somebody_else(nodes):
    """Once a server has given a cookie, what comes without one over UDP is not believed."""
    server = bytes(range(16))

    def honest(query, tcp):
        response = answer(query, "A 192.0.2.1")
        if cookies(query):
            response.use_edns(0, options=[dns.edns.GenericOption(COOKIE, cookies(query)[:8] + server)])
        return response

    def spoofed(query, tcp):
        return honest(query, tcp) if tcp else [answer(query, "A 192.0.2.66"), honest(query, tcp)]
    with Upstream(honest) as upstream:
        node = nodes.start(f". {{\n    forward . {upstream.address}\n}}\n")
        for name in ("a.example.", "b.example.", "c.example."):
            assert answers(node, name) == ["192.0.2.1"]
        assert cookies(upstream.queries[-1][0])[8:] == server
        upstream.handler = spoofed
        for name in ("d.example.", "e.example."):
            assert answers(node, name) == ["192.0.2.1"]
        assert [tcp for _, tcp in upstream.queries].count(True) == 2


def test_no_cookies_for_upstreams_where_they_are_off(nodes):
    with Upstream() as upstream:
        node = nodes.start(f". {{\n    cookies off\n    forward . {upstream.address}\n}}\n")
        for name in ("a.example.", "b.example."):
            assert answers(node, name) == ["192.0.2.1"]
        assert not any(query.options for query, _ in upstream.queries)


# --- other people's clients and servers ---

def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout


def test_kdig(node):
    def kdig(*options):
        return run("kdig", "@127.0.0.1", "-p", str(node.port), "worker1.tf.local.", *options)
    first = re.search("; COOKIE: 2464C4ABCF10C957([0-9A-F]{32})", kdig("+cookie=2464c4abcf10c957"))
    assert first
    assert first[1] in kdig(f"+cookie=2464c4abcf10c957{first[1].lower()}", "+tcp"), "a good one stays"
    other = re.search("; COOKIE: 2464C4ABCF10C957([0-9A-F]{32})", kdig(f"+cookie=2464c4abcf10c957{'0' * 32}"))
    assert other and other[1] != "0" * 32


def test_kdig_where_cookies_are_required(nodes):
    """It asks again with the cookie that came with BADCOOKIE."""
    node = nodes.start(configured("require"))
    output = run("kdig", "@127.0.0.1", "-p", str(node.port), "any.example.", "+cookie", "+badcookie")
    assert "status: NOERROR" in output, output
    assert "status: NOERROR" in run("dig", "@127.0.0.1", "-p", str(node.port), "any.example.", "+cookie", "+badcookie")
    assert "status: BADCOOKIE" in run("dig", "@127.0.0.1", "-p", str(node.port), "any.example.", "+cookie", "+nobadcookie")


class NamedWithCookies(Named):
    """As an authoritative server that answers BADCOOKIE to who has none of its own."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options, more="require-server-cookie yes;")


def test_bind_takes_our_cookies_and_we_take_its(directory, free_port, nodes):
    server = NamedWithCookies(directory, free_port(), {"net.example.": ZONE})
    watched = Watched(server)
    try:
        server.launch()
        wait_until(lambda: listens(server), 10, server.logs)
        with Upstream(watched) as relay:
            node = nodes.start(f". {{\n    errors\n    forward net.example {relay.address}\n}}\n")
            for i in range(50):
                assert answers(node, f"n{i}.net.example.") == [f"192.0.2.{i}"], node.logs()
            assert len(watched.bad) <= 2, "one to the first query with a cookie, and one to that without"
            assert watched.sent[-1] in watched.got[:-1] and len(watched.sent[-1]) == 24
            output = run("delv", "@127.0.0.1", "-p", str(node.port), "-i", "n1.net.example.")
            assert re.search(r"n1\.net\.example\.\s+\d+\s+IN\s+A\s+192\.0\.2\.1\n", output), output
    finally:
        server.kill()
