"""A machine whose only resolver is the server under test, and an etcd that is known by its name: nothing waits for what
waits for it. Each test has a machine of its own (harness/namespace.py): resolv.conf says 127.0.0.1 and nothing else."""

import os
import socket

import dns.query
import dns.rcode
import dns.rrset
import pytest

from conftest import Nodes, managed
from corefiles import corefile
from dns_client import answers, make_query, rcode
from harness.etcd import EtcdMember
from harness.namespace import Namespace, inside
from harness.processes import TIME_FACTOR, wait_until
from harness.upstreams import Upstream, answer, make_certificate

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces and port 53 need root")

UPSTREAM_PORT = 5300
ETCD_NAME = "etcd.internal."
OWN_ADDRESS = "192.0.2.11"
NOBODY = "127.0.0.9"  # where no etcd listens
SOON = 15

COREFILE = """.:53 {{
    errors {{
        consolidate 1s .*
    }}
    idetcd {{
        endpoint {endpoint}
        pattern worker{{{{.ID}}}}.tf.local.
        address {address}
        lease 5s
        {options}
    }}
    hosts {{
        127.0.0.1 listed.tf.local
        fallthrough
    }}
    cache {{
        denial 1000 1800 1
        success 1000 3600 1
        servfail 1s
    }}
    forward . 127.0.0.1:{upstream}
}}
"""


class World:
    """The upstream: names with an IPv4 address, NXDOMAIN for all others, and nothing at all when it is silent."""

    def __init__(self):
        self.addresses = {}
        self.silent = False

    def __call__(self, query, tcp):
        if self.silent:
            return None
        question = query.question[0]
        address = self.addresses.get(question.name.to_text().lower())
        response = answer(query, *([f"A {address}"] if address and question.rdtype == 1 else []), ttl=1,
                          rcode=dns.rcode.NOERROR if address else dns.rcode.NXDOMAIN)
        if not response.answer:
            response.authority.append(dns.rrset.from_text(".", 1, "IN", "SOA", "ns. host. 1 7200 900 1209600 1"))
        return response


class Machine:
    def __init__(self, directory, nodes):
        self.directory = directory
        self.nodes = nodes
        self.namespace = Namespace(directory, [f"{OWN_ADDRESS}/24"])
        self.namespace.write("nsswitch.conf", "hosts: files dns\n")
        self.namespace.write("resolv.conf", "nameserver 127.0.0.1\n")
        self.etcd = EtcdMember(directory)
        self.world = World()
        self.upstream = Upstream(self.world, port=UPSTREAM_PORT)

    def boot(self, host=ETCD_NAME, scheme="http", options=""):
        endpoint = f"{scheme}://{host.rstrip('.')}:{self.etcd.client_port}"
        self.node = self.nodes.make(COREFILE.format(endpoint=endpoint, address=OWN_ADDRESS, upstream=UPSTREAM_PORT, options=options),
                                    port=None)
        self.node.launch(prefix=self.namespace.prefix).wait_answers(port=53)
        return self.node

    def ask(self, name):
        """With more patience than an upstream's silence takes."""
        return dns.query.udp(make_query(name), "127.0.0.1", port=53, timeout=8 * TIME_FACTOR)

    def has_name(self):
        return rcode(self.ask("worker1.tf.local.")) == "NOERROR"

    def wait_name(self, seconds=SOON):
        wait_until(self.has_name, seconds, lambda: f"the node to have a name\n{self.node.logs()}", interval=0.1)
        assert answers(self.node, "worker1.tf.local.", port=53) == [OWN_ADDRESS]

    def asked_for(self, name):
        return self.upstream.names().count(name)

    def close(self):
        self.upstream.close()
        self.etcd.close()


@pytest.fixture
def machine(directory, request):
    nodes = Nodes(directory)
    machine = Machine(directory, nodes)
    with inside(machine):
        yield from (machine for _ in managed(nodes, request))


# --- where the name may be known ---

def test_in_etc_hosts(machine):
    """And no upstream at all."""
    machine.etcd.start()
    machine.namespace.write("hosts", f"127.0.0.1 {ETCD_NAME.rstrip('.')}\n")
    machine.boot()
    machine.wait_name()


def test_to_the_upstream(machine):
    machine.etcd.start()
    machine.world.addresses[ETCD_NAME] = "127.0.0.1"
    machine.upstream.start()
    machine.boot()
    machine.wait_name()
    assert machine.asked_for(ETCD_NAME)


def test_in_the_clusters_own_zone(machine):
    """What the zone is read from cannot wait for the zone, nor is it a mistake to ask the upstream for it."""
    machine.etcd.start()
    machine.world.addresses["etcd.tf.local."] = "127.0.0.1"
    machine.upstream.start()
    machine.boot("etcd.tf.local.")
    machine.wait_name()
    assert answers(machine.node, "etcd.tf.local.", port=53) == ["127.0.0.1"]
    assert rcode(machine.ask("etcd2.tf.local.")) == "NXDOMAIN"
    assert not machine.asked_for("etcd2.tf.local.")


def test_in_the_clusters_own_zone_by_hosts(machine):
    machine.etcd.start()
    machine.boot("listed.tf.local.")
    machine.wait_name()


def test_by_its_short_name(machine):
    machine.etcd.start()
    machine.namespace.write("resolv.conf", "nameserver 127.0.0.1\nsearch tf.local\n")
    machine.world.addresses["etcd.tf.local."] = "127.0.0.1"
    machine.upstream.start()
    machine.boot("etcd")
    machine.wait_name()


def test_with_tls(machine):
    """The certificate is for the name, whatever address it has."""
    certificate, key = make_certificate(machine.directory, f"DNS:{ETCD_NAME.rstrip('.')}")
    url = f"https://127.0.0.1:{machine.etcd.client_port}"
    machine.etcd.launch(["--listen-client-urls", url, "--advertise-client-urls", url, "--cert-file", certificate, "--key-file", key])
    machine.world.addresses[ETCD_NAME] = "127.0.0.1"
    machine.upstream.start()
    machine.boot(scheme="https", options=f"tls {certificate}")
    machine.wait_name()


# --- what comes late ---

def test_nobody_knows_it_yet(machine):
    machine.etcd.start()
    machine.upstream.start()
    machine.boot()
    wait_until(lambda: machine.asked_for(ETCD_NAME) > 2, SOON, "the name to be looked up, and looked up again")
    assert rcode(machine.ask("www.example.org.")) == "NXDOMAIN", "the world does not wait for etcd"
    assert rcode(machine.ask("worker1.tf.local.")) == "SERVFAIL"
    machine.world.addresses[ETCD_NAME] = "127.0.0.1"
    machine.wait_name()


@pytest.mark.parametrize("how", ["refuses", "is silent"])
def test_an_upstream_that_comes_late(machine, how):
    machine.etcd.start()
    machine.world.addresses[ETCD_NAME] = "127.0.0.1"
    machine.world.silent = True
    if how == "is silent":
        machine.upstream.start()
    machine.boot()
    assert rcode(machine.ask(ETCD_NAME)) == "SERVFAIL"
    wait_until(lambda: "is away" in machine.node.out(), SOON, "the first look-up to fail")
    machine.world.silent = False
    if how == "refuses":
        machine.upstream.start()
    machine.wait_name()


def test_an_etcd_that_moves(machine):
    machine.world.addresses[ETCD_NAME] = NOBODY
    machine.upstream.start()
    machine.boot()
    wait_until(lambda: "is away" in machine.node.out(), SOON, "the first connection to fail")
    machine.etcd.start()
    machine.world.addresses[ETCD_NAME] = "127.0.0.1"
    machine.wait_name()


# --- neither depends on the other ---

@pytest.mark.parametrize("how", ["refuses", "is silent"])
def test_a_dead_upstream_is_nothing_to_the_cluster(machine, how):
    machine.etcd.start()
    machine.world.silent = True
    if how == "is silent":
        machine.upstream.start()
    machine.boot("127.0.0.1")
    machine.wait_name()
    assert rcode(machine.ask("www.example.org.")) == "SERVFAIL"
    assert machine.has_name()


def test_a_dead_etcd_is_nothing_to_the_world(machine):
    machine.world.addresses["www.example.org."] = "192.0.2.80"
    machine.upstream.start()
    machine.boot("127.0.0.1")
    assert answers(machine.node, "www.example.org.", port=53) == ["192.0.2.80"]
    assert rcode(machine.ask("worker1.tf.local.")) == "SERVFAIL"
    machine.etcd.start()
    machine.wait_name()


def test_an_etcd_that_the_hosts_file_names_is_not_looked_up(directory, nodes):
    """A resolver that is silent holds nobody up: it is asked for neither family."""
    namespace = Namespace(directory)
    try:
        namespace.write("resolv.conf", "nameserver 127.0.0.9\n")
        namespace.write("nsswitch.conf", "hosts: files dns\n")
        namespace.write("hosts", "127.0.0.1 localhost etcd.internal\n")
        with namespace.entered(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
            silent.bind(("127.0.0.9", 53))
            etcd = EtcdMember(directory)
            try:
                etcd.start()
                node = nodes.make(corefile(etcd.endpoint.replace("127.0.0.1", "etcd.internal")))
                node.launch(prefix=namespace.prefix)
                node.wait_logged("claimed worker1", timeout=30)
                silent.setblocking(False)
                with pytest.raises(BlockingIOError):
                    silent.recv(512)
                assert node.terminate() == 0
            finally:
                etcd.close()
    finally:
        namespace.close()
