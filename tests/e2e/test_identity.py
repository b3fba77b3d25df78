"""A node tells its own name to whoever asks, and keeps it over a reload."""
import signal

import dns.edns
import dns.message
import dns.reversename
import pytest

from corefiles import corefile
from dns_client import answers, ask, exchange, rcode
from harness.processes import wait_until

TRANSPORTS = pytest.mark.parametrize("tcp", [False, True], ids=["udp", "tcp"])


@pytest.fixture(scope="module")
def node(shared_etcd, shared_nodes):
    node = shared_nodes.start(corefile(shared_etcd.endpoint, options=["address 192.0.2.7 2001:db8::7"]))
    node.wait_owns(shared_etcd)
    wait_until(lambda: answers(node, reverse("192.0.2.7"), "PTR") == ["worker1.tf.local."], 5, "the node to tell its name")
    return node


def reverse(address):
    return dns.reversename.from_address(address).to_text()


def rewrite(node, text):
    with open(node.corefile_path, "w", encoding="utf-8") as file:
        file.write(text)


@TRANSPORTS
@pytest.mark.parametrize("name", ["id.server.", "hostname.bind.", "ID.Server."])
def test_chaos(node, name, tcp):
    response = ask(node, name, "TXT", tcp=tcp, rdclass="CH")
    assert rcode(response) == "NOERROR"
    assert [record.strings for rrset in response.answer for record in rrset] == [(b"worker1.tf.local",)]


@TRANSPORTS
def test_nsid(node, tcp):
    for name in ("worker1.tf.local.", "nobody.tf.local.", "example.org."):  # an answer, a denial, a refusal
        query = dns.message.make_query(name, "A", use_edns=0, options=[dns.edns.GenericOption(dns.edns.NSID, b"")])
        response = exchange(node, query, tcp=tcp)
        options = [option for option in response.options if option.otype == dns.edns.NSID]
        assert [option.data for option in options] == [b"worker1.tf.local"], name


def test_no_nsid_unless_asked(node):
    query = dns.message.make_query("worker1.tf.local.", "A", use_edns=0)
    assert not exchange(node, query).options


@pytest.mark.parametrize("address", ["192.0.2.7", "2001:db8::7"])
def test_forward_and_reverse_agree(node, address):
    assert answers(node, reverse(address), "PTR") == ["worker1.tf.local."]
    family = "AAAA" if ":" in address else "A"
    assert answers(node, "worker1.tf.local.", family) == [address]


def test_an_observer_is_nobody(etcd, nodes):
    node = nodes.start(corefile(etcd.endpoint, options=["observe", "address 192.0.2.7"]))
    wait_until(lambda: rcode(ask(node, "worker1.tf.local.", "A")) == "NXDOMAIN", 5, "the first snapshot")
    assert rcode(ask(node, "id.server.", "TXT", rdclass="CH")) == "REFUSED"
    assert answers(node, reverse("192.0.2.7"), "PTR") == "REFUSED"


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1], ids=["HUP", "USR1"])
def test_a_reload_keeps_the_name(etcd, nodes, number):
    node = nodes.start(corefile(etcd.endpoint))
    assert node.wait_owns(etcd) == "worker1.tf.local."
    before = etcd.names()
    rewrite(node, corefile(etcd.endpoint, directives=["whoami"]))
    node.signal(number)
    wait_until(lambda: rcode(ask(node, "example.org.", "A")) == "NOERROR", 5, "whoami after the reload")
    assert etcd.names() == before
    wait_until(lambda: isinstance(answers(node, "worker1.tf.local.", "A"), list), 3, "the own name to resolve")


def test_a_bad_corefile_changes_nothing(etcd, nodes):
    node = nodes.start(corefile(etcd.endpoint))
    node.wait_owns(etcd)
    before = etcd.names()
    rewrite(node, ". {\n  nonsense\n}\n")
    node.signal(signal.SIGHUP)
    wait_until(lambda: "Unknown directive 'nonsense'" in node.logs(), 5, "the refusal in the log")
    assert node.running() and etcd.names() == before
    assert rcode(ask(node, "example.org.", "A")) == "REFUSED"
