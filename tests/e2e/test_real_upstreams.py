"""Forwarding to servers that people run: Knot, and unbound over TLS."""

import concurrent.futures
import os
import shutil
import signal
import subprocess

import dns.flags
import dns.rcode
import pytest

from corefiles import corefile as cluster
from dns_client import answers, ask, patient, rcode, wait_resolves
from harness.dns_servers import Knot, Nsd, UnboundForwarder, write
from harness.processes import wait_until
from harness.upstreams import make_certificate

ZONE = """$TTL 300
@ SOA ns host 1 7200 900 1209600 60
@ NS ns
ns A 127.0.0.1
www A 192.0.2.80
www AAAA 2001:db8::80
alias CNAME www
*.wild A 192.0.2.7
""" + "".join(f"big A 10.0.{i // 250}.{i % 250}\n" for i in range(300)) + "".join(
    f"n{i} A 192.0.2.{i}\n" for i in range(200))


@pytest.fixture
def nsd(directory, free_port, launched):
    return launched(Nsd(directory, free_port(), {"net.example.": ZONE}))


def corefile(target, *options, directives=()):
    lines = "".join(f"        {option}\n" for option in options)
    return f". {{\n    errors\n{''.join(f'    {line}' for line in directives)}\n    forward . {target} {{\n{lines}    }}\n}}\n"


def wait_gets(node, name="www.net.example.", expected=("192.0.2.80",)):
    wait_until(patient(lambda: answers(node, name) == list(expected)), 20, node.logs, interval=0.1)


def signed(directory, zone, text):
    """The zone's text with signatures, and the file of its key, which a validator trusts."""
    def run(*command):
        return subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True).stdout.split()[-1]
    key = run("dnssec-keygen", "-q", "-a", "ECDSAP256SHA256", "-f", "KSK", zone)
    write(os.path.join(directory, "plain.zone"), text)
    run("dnssec-signzone", "-S", "-z", "-P", "-o", zone, "-f", "signed.zone", "plain.zone")
    with open(os.path.join(directory, "signed.zone"), encoding="ascii") as file:
        return file.read(), os.path.join(directory, f"{key}.key")


@pytest.mark.parametrize("separate", [False, True], ids=["one block", "a block of its own"])
def test_a_validator_finds_that_the_cluster_is_not_signed(etcd, directory, free_port, launched, nodes, separate):
    """The parent denies its DS, with a proof (RFC 4035 §3.1.4.1); else each of our names is a forgery to the validator."""
    zone, key = signed(directory, "net.example.", ZONE + "tf NS ns.tf\nns.tf A 127.0.0.1\n")
    nsd = launched(Nsd(directory, free_port(), {"net.example.": zone}))
    forward = f"forward . {nsd.host}:{nsd.port}"
    text = cluster(etcd.endpoint, "worker{{.ID}}.tf.net.example.", directives=[] if separate else ["cache", forward])
    if separate:
        text = text.replace(". {", "tf.net.example {", 1) + f". {{\n    cache\n    {forward}\n}}\n"
    node = nodes.start(text)
    unbound = launched(UnboundForwarder(directory, free_port(), "127.0.0.1", node.port, modules="validator iterator",
                                        options=[f'trust-anchor-file: "{key}"']))
    etcd.put("worker5.tf.net.example.", '{"ipv4":"10.20.0.7"}')
    wait_resolves([node], "worker5.tf.net.example.", "10.20.0.7")
    wait_gets(unbound)
    for name, expected in (("worker5.tf.net.example.", "NOERROR"), ("worker6.tf.net.example.", "NXDOMAIN")):
        response = ask(unbound, name, want_dnssec=True)
        assert (rcode(response), response.flags & dns.flags.AD) == (expected, 0), name
    assert ask(unbound, "www.net.example.", want_dnssec=True).flags & dns.flags.AD, "it does validate"


@pytest.mark.parametrize("force", [(), ("force_tcp",)], ids=["udp", "tcp"])
def test_knot(directory, free_port, launched, nodes, force):
    knot = launched(Knot(directory, free_port(), {"net.example.": ZONE}))
    node = nodes.start(corefile(f"{knot.host}:{knot.port}", "max_fails 1", "health_check 100ms", *force))
    wait_gets(node)
    assert answers(node, "www.net.example.", "AAAA") == ["2001:db8::80"]
    assert answers(node, "alias.net.example.") == ["192.0.2.80", "www.net.example."]
    assert answers(node, "some.thing.wild.net.example.") == ["192.0.2.7"]
    assert rcode(ask(node, "missing.net.example.")) == "NXDOMAIN"
    assert rcode(ask(node, "www.example.org.")) == "REFUSED"
    assert ask(node, "big.net.example.").flags & dns.flags.TC
    assert len(answers(node, "big.net.example.", tcp=True)) == 300
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert list(pool.map(lambda i: answers(node, f"n{i}.net.example."), range(200))) == [[f"192.0.2.{i}"] for i in range(200)]
    knot.kill()
    assert rcode(ask(node, "www.net.example.")) == "SERVFAIL"
    knot.launch()
    wait_gets(node)


class Tls:
    """unbound with a certificate of `subject`."""

    def __init__(self, directory, port, nsd, launched, subject="DNS:dns.example"):
        self.directory, self.port, self.nsd, self.launched = directory, port, nsd, launched
        self.certificate, self.key = make_certificate(directory, subject)
        self.unbound = None
        self.start()

    def start(self):
        self.unbound = self.launched(UnboundForwarder(self.directory, self.port, self.nsd.host, self.nsd.port,
                                                      tls=(self.certificate, self.key)))

    def restart(self):
        self.unbound.kill()
        self.unbound.launch()

    @property
    def target(self):
        return f"tls://127.0.0.1:{self.port}"

    def counted(self, name):
        return self.unbound.statistics()[name]


@pytest.fixture
def tls(directory, free_port, nsd, launched):
    return Tls(directory, free_port(), nsd, launched)


def test_tls(nodes, tls):
    node = nodes.start(corefile(tls.target, f"tls {tls.certificate}", "tls_servername dns.example"))
    wait_gets(node)
    assert answers(node, "alias.net.example.") == ["192.0.2.80", "www.net.example."]
    assert rcode(ask(node, "missing.net.example.")) == "NXDOMAIN"
    assert len(answers(node, "big.net.example.", tcp=True)) == 300, "over several TLS records"
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        assert list(pool.map(lambda i: answers(node, f"n{i}.net.example."), range(200))) == [[f"192.0.2.{i}"] for i in range(200)]
    assert tls.counted("total.num.queries") == tls.counted("num.query.tls"), "nothing but TLS"


def test_tls_sessions_are_resumed(nodes, tls):
    node = nodes.start(corefile(tls.target, f"tls {tls.certificate}", "tls_servername dns.example", "expire 50ms"))
    wait_gets(node)
    resumed = tls.counted("num.query.tls.resume")
    for i in range(5):
        # The connection is closed, the session is not.
        wait_until(lambda: not node.connected_ports()[tls.port], 5, "`expire` to close the connection")
        assert answers(node, f"n{i}.net.example.") == [f"192.0.2.{i}"]
    assert tls.counted("num.query.tls.resume") >= resumed + 5


@pytest.mark.parametrize("options", [["tls {certificate}", "tls_servername other.example"], ["tls {certificate}"],
                                     ["tls_servername dns.example"], ["tls {other}", "tls_servername dns.example"]],
                         ids=["another name", "by its address", "the system's CAs", "another CA"])
def test_who_is_not_who_he_should_be_is_told_nothing(directory, nodes, tls, options):
    other, _ = make_certificate(directory, "DNS:dns.example", "other")
    node = nodes.start(corefile(tls.target, *(option.format(certificate=tls.certificate, other=other) for option in options)))
    wait_until(lambda: os.path.exists(os.path.join(directory, "unbound.socket")), 10, tls.unbound.logs)
    assert rcode(ask(node, "www.net.example.")) == "SERVFAIL"
    wait_until(lambda: f"plugin/errors: 2 www.net.example. A: {tls.target}: " in node.out(), 5, node.logs)
    assert tls.counted("total.num.queries") == 0


def test_an_address_in_the_certificate(directory, free_port, nsd, launched, nodes):
    tls = Tls(directory, free_port(), nsd, launched, "IP:127.0.0.1")
    node = nodes.start(corefile(tls.target, f"tls {tls.certificate}"))
    wait_gets(node)


def test_a_server_that_restarts(nodes, tls):
    """Its connections and sessions are gone; a question costs a new connection, not a failure."""
    node = nodes.start(corefile(tls.target, f"tls {tls.certificate}", "tls_servername dns.example", "max_fails 1", "health_check 50ms"))
    wait_gets(node)
    tls.unbound.kill()
    assert rcode(ask(node, "n1.net.example.")) == "SERVFAIL"
    tls.unbound.launch()
    wait_gets(node, "n2.net.example.", ["192.0.2.2"])
    wait_until(lambda: f"{tls.target} answers again" in node.out(), 5, node.logs)


def test_new_certificates_come_with_a_reload(directory, nodes, tls):
    trusted = os.path.join(directory, "trusted.pem")
    shutil.copy(tls.certificate, trusted)
    node = nodes.start(corefile(tls.target, f"tls {trusted}", "tls_servername dns.example", "max_fails 0"))
    wait_gets(node)
    make_certificate(directory, "DNS:dns.example")  # another key, in the same files
    tls.restart()
    wait_until(lambda: os.path.exists(os.path.join(directory, "unbound.socket")), 10, tls.unbound.logs)
    wait_until(patient(lambda: rcode(ask(node, "n1.net.example.")) == "SERVFAIL" and "TLS: " in node.out()), 10, node.logs)

    # A file that is none changes nothing.
    with open(trusted, "w", encoding="ascii") as file:
        file.write("nonsense")
    node.signal(signal.SIGHUP)
    wait_until(lambda: "Restart failed: plugin/forward: " in node.out(), 5, node.logs)
    assert rcode(ask(node, "n1.net.example.")) == "SERVFAIL"

    shutil.copy(tls.certificate, trusted)
    node.signal(signal.SIGHUP)
    wait_until(lambda: "Reloading complete" in node.out(), 5, node.logs)
    wait_gets(node, "n2.net.example.", ["192.0.2.2"])
