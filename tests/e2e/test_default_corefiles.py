"""The Corefiles that Kubernetes, k3s, OpenShift and NodeLocal DNSCache ship, on the ports and addresses that they name, in
namespaces. Nothing of them is changed but the block of `kubernetes`, in whose place there is one of `idetcd`, and the
directory /etc/coredns, which is one of the test's own. The addresses of NodeLocal DNSCache are what its DaemonSet fills in."""

import os
import signal
import socket
import urllib.request

import pytest

from dns_client import TIMEOUT, answers, ask, rcode
from harness.etcd import EtcdMember
from harness.metrics import Metrics
from harness.namespace import Namespace
from harness.node import Node
from harness.processes import wait_until
from harness.upstreams import Upstream
from http_client import get

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces and port 53 need root")

KUBERNETES = """.:53 {
    errors
    health {
       lameduck 5s
    }
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }
    prometheus :9153
    forward . /etc/resolv.conf {
       max_concurrent 1000
    }
    cache 30
    loop
    reload
    loadbalance
}
"""

K3S = """.:53 {
    errors
    health
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
      pods insecure
      fallthrough in-addr.arpa ip6.arpa
    }
    hosts /etc/coredns/NodeHosts {
      ttl 60
      reload 15s
      fallthrough
    }
    prometheus :9153
    cache 30
    loop
    reload
    loadbalance
    import /etc/coredns/custom/*.override
    forward . /etc/resolv.conf
}
import /etc/coredns/custom/*.server
"""

OPENSHIFT = """.:5353 {
    bufsize 512
    errors
    log . {
        class error
    }
    health {
        lameduck 20s
    }
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
    }
    prometheus 127.0.0.1:9153
    forward . /etc/resolv.conf {
        policy sequential
    }
    cache 900 {
        denial 9984 30
    }
    reload
}
hostname.bind:5353 {
    chaos
}
"""

LOCAL, SERVICE, CLUSTER_DNS = "169.254.20.10", "10.96.0.10", "10.96.0.11"

NODE_LOCAL = f"""cluster.local:53 {{
    errors
    cache {{
            success 9984 30
            denial 9984 5
    }}
    reload
    loop
    bind {LOCAL} {SERVICE}
    forward . {CLUSTER_DNS} {{
            force_tcp
    }}
    prometheus :9253
    health {LOCAL}:8080
    }}
in-addr.arpa:53 {{
    errors
    cache 30
    reload
    loop
    bind {LOCAL} {SERVICE}
    forward . {CLUSTER_DNS} {{
            force_tcp
    }}
    prometheus :9253
    }}
ip6.arpa:53 {{
    errors
    cache 30
    reload
    loop
    bind {LOCAL} {SERVICE}
    forward . {CLUSTER_DNS} {{
            force_tcp
    }}
    prometheus :9253
    }}
.:53 {{
    errors
    cache 30
    reload
    loop
    bind {LOCAL} {SERVICE}
    forward . /etc/resolv.conf
    prometheus :9253
    }}
"""

IDETCD = """idetcd {
      endpoint %s
      pattern worker{{.ID}}.cluster.local.
      address 192.0.2.7
    }
"""
OUTSIDE, OWN = "192.0.2.53", "192.0.2.1"
NO_FILES = "warning: No files matching import glob pattern: "


def with_idetcd(text, endpoint):
    """The block of `kubernetes` replaced; all of it is indented by more than its first line."""
    before, _, rest = text.partition("kubernetes cluster.local")
    _, _, after = rest.partition("}\n")
    return before + IDETCD % endpoint + after


class Machine:
    """A namespace with an etcd, and in it the node; the resolver of its /etc/resolv.conf is in another one, since a node
    that listens on all addresses does not forward to one of them."""

    def __init__(self, directory):
        self.directory = directory
        self.closing = []
        self.node = None
        elsewhere = os.path.join(directory, "elsewhere")
        os.mkdir(elsewhere)
        self.namespace = self.kept(Namespace(directory, [f"{address}/32" for address in (LOCAL, SERVICE, CLUSTER_DNS)]))
        try:
            world = self.kept(Namespace(elsewhere))
            self.namespace.run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", str(world.holder.pid))
            for namespace, address in ((self.namespace, OWN), (world, OUTSIDE)):
                namespace.run("ip", "address", "add", f"{address}/24", "dev", "eth0")
                namespace.run("ip", "link", "set", "eth0", "up")
            with world.entered():
                self.kept(Upstream(host=OUTSIDE, port=53).start())
        except BaseException:
            self.close()
            raise

    def start(self, text, host="127.0.0.1", port=53):
        """Validated, then started. In the namespace's network."""
        self.namespace.write("resolv.conf", f"nameserver {OUTSIDE}\n")
        if "kubernetes cluster.local" in text:
            etcd = self.kept(EtcdMember(self.directory).start())
            text = with_idetcd(text, etcd.endpoint)
        self.node = self.kept(Node("node", self.directory, text, port=None))
        validated = self.namespace.attempt(self.node.binary, "-conf", self.node.corefile_path, "-validate")
        problems = [line for line in validated.stderr.splitlines() if not line.startswith(NO_FILES)]
        assert (validated.returncode, problems) == (0, [])
        self.node.launch(prefix=self.namespace.prefix)
        self.node.wait_answers(host=host, port=port)
        self.node.port = port
        return self.node

    def kept(self, closable):
        self.closing.append(closable)
        return closable

    def close(self):
        for closable in reversed(self.closing):
            closable.close()

    def wait_ready(self):
        def is_ready():
            return get(8181, "/ready")[0] == 200
        wait_until(is_ready, 20, lambda: f"the node to be ready: {get(8181, '/ready')}\n{self.node.logs()}")

    def end(self):
        """At once: `lameduck` would be waited for."""
        self.node.signal(signal.SIGQUIT)
        self.node.exit_code(10)
        assert "[ERROR]" not in self.node.out() and not self.node.err(), self.node.logs()


@pytest.fixture
def machine(directory):
    made = Machine(directory)
    try:
        with made.namespace.entered():
            yield made
    finally:
        made.close()


def test_kubernetes(machine):
    node = machine.start(KUBERNETES)
    machine.wait_ready()
    assert answers(node, "www.example.org.") == ["192.0.2.1"]
    assert answers(node, "worker1.cluster.local.") == ["192.0.2.7"]
    assert answers(node, "nobody.cluster.local.") == "NXDOMAIN"
    assert get(8080, "/health") == (200, "OK")
    metrics = Metrics.of(9153)
    assert metrics.sum("coredns_build_info") == 1
    assert metrics.sum("coredns_dns_requests_total", server="dns://:53") >= 3
    machine.end()


def test_k3s(machine):
    coredns = os.path.join(machine.directory, "coredns")
    os.makedirs(os.path.join(coredns, "custom"))

    def write(name, text):
        with open(os.path.join(coredns, name), "w", encoding="ascii") as file:
            file.write(text)

    write("NodeHosts", "192.0.2.21 k3s-server\n192.0.2.22 k3s-agent\n")
    write("custom/log.override", "log\n")
    write("custom/extra.server", "extra.example:53 {\n    hosts {\n        192.0.2.31 www.extra.example\n    }\n}\n")
    node = machine.start(K3S.replace("/etc/coredns", coredns))
    machine.wait_ready()
    assert answers(node, "k3s-agent.") == ["192.0.2.22"]
    assert ask(node, "k3s-server.").answer[0].ttl == 60
    assert answers(node, "www.extra.example.") == ["192.0.2.31"]
    assert answers(node, "www.example.org.") == ["192.0.2.1"]
    assert answers(node, "worker1.cluster.local.") == ["192.0.2.7"]
    node.wait_logged('"A IN www.example.org. udp')
    assert get(8080, "/health") == (200, "OK")
    assert Metrics.of(9153).sum("coredns_build_info") == 1
    machine.end()


def test_k3s_without_files_of_the_operator(machine):
    """The directory `custom` is empty: a glob that finds nothing is no error."""
    coredns = os.path.join(machine.directory, "coredns")
    os.makedirs(coredns)
    with open(os.path.join(coredns, "NodeHosts"), "w", encoding="ascii") as file:
        file.write("192.0.2.21 k3s-server\n")
    node = machine.start(K3S.replace("/etc/coredns", coredns))
    assert answers(node, "k3s-server.") == ["192.0.2.21"]
    machine.end()


def test_openshift(machine):
    node = machine.start(OPENSHIFT, port=5353)
    machine.wait_ready()
    assert answers(node, "www.example.org.") == ["192.0.2.1"]
    assert answers(node, "worker1.cluster.local.") == ["192.0.2.7"]
    response = ask(node, "hostname.bind.", "TXT", rdclass="CH")
    assert rcode(response) == "NOERROR"
    assert b"".join(response.answer[0][0].strings).decode() == socket.gethostname()
    assert get(8080, "/health") == (200, "OK")
    assert Metrics.of(9153).sum("coredns_build_info") == 1
    machine.end()


def test_node_local_dns_cache(machine):
    cluster = machine.kept(Upstream(host=CLUSTER_DNS, port=53).start())
    node = machine.start(NODE_LOCAL, host=LOCAL)
    for host in (LOCAL, SERVICE):
        for tcp in (False, True):
            assert answers(node, "kubernetes.default.svc.cluster.local.", host=host, tcp=tcp) == ["192.0.2.1"]
            assert answers(node, "www.example.org.", host=host, tcp=tcp) == ["192.0.2.1"]
            assert answers(node, "7.0.96.10.in-addr.arpa.", host=host, tcp=tcp) == ["192.0.2.1"], "whatever it is"
    asked = {str(query.question[0].name): tcp for query, tcp in cluster.queries}
    assert asked["kubernetes.default.svc.cluster.local."] and asked["7.0.96.10.in-addr.arpa."], "force_tcp"
    assert "www.example.org." not in asked
    with urllib.request.urlopen(f"http://{LOCAL}:8080/health", timeout=TIMEOUT) as response:
        assert response.read() == b"OK"
    assert Metrics.of(9253).sum("coredns_cache_hits_total") >= 3
    machine.end()
