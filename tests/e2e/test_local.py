"""`local`, `chaos` and `debug`: what a node says of itself and of its machine."""

import signal
import socket
import subprocess

from corefiles import corefile
from dns_client import answers, ask, rcode, said_name, wait_says
from harness.metrics import Metrics
from harness.upstreams import Upstream


def dig(node, *words):
    command = ["dig", "@127.0.0.1", "-p", str(node.port), "+short", "+tries=3", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.splitlines()


def said(node, name):
    """The texts of class CH, or the rcode."""
    response = ask(node, name, "TXT", rdclass="CH")
    if rcode(response) != "NOERROR":
        return rcode(response)
    return sorted(b"".join(rdata.strings).decode() for rrset in response.answer for rdata in rrset)


# --- local ---

def test_local_names_are_answered_and_go_nowhere(nodes, free_port):
    port = free_port()
    with Upstream() as upstream:
        text = f". {{\n    local\n    prometheus 127.0.0.1:{port}\n    cache\n    forward . {upstream.address}\n}}\n"
        node = nodes.start(text)
        for name in ("localhost.", "LOCALHOST.", "localhost.example.org.", "a.localhost."):
            assert answers(node, name) == ["127.0.0.1"]
            assert answers(node, name, "AAAA") == ["::1"]
            assert answers(node, name, "MX") == []
        assert dig(node, "-x", "127.0.0.1") == ["localhost."]
        assert dig(node, "127.in-addr.arpa", "SOA") == ["localhost. root.localhost. 1 0 0 0 604800"]
        assert answers(node, "255.in-addr.arpa.", "NS") == ["localhost."]
        assert answers(node, "7.0.in-addr.arpa.", "PTR") == "NXDOMAIN"
        asked = [str(query.question[0].name) for query, _ in upstream.queries]
        assert not [name for name in asked if "localhost" in name or name.endswith(".in-addr.arpa.")], asked
        assert answers(node, "example.org.") == ["192.0.2.1"], "everything else goes on"
        assert Metrics.of(port).sum("coredns_local_localhost_requests_total") == 6


def test_local_is_before_the_names_of_the_cluster(nodes, etcd):
    etcd.put("localhost.tf.local.", '{"ipv4":"192.0.2.9"}')
    node = nodes.start(corefile(etcd.endpoint, directives=["local"]))
    wait_says(node, "worker1.tf.local.")
    assert answers(node, "localhost.tf.local.") == ["127.0.0.1"]


# --- chaos ---

def test_chaos_says_version_authors_and_host(nodes):
    version = subprocess.run([nodes.make("").binary, "-version"], capture_output=True, text=True, check=True).stdout.split()[0]
    node = nodes.start("hostname.bind {\n    chaos\n}\nbind {\n    chaos\n}\n. {\n    whoami\n}\n")
    assert said(node, "hostname.bind.") == [socket.gethostname()]
    assert said(node, "version.bind.") == [version]
    assert len(said(node, "authors.bind.")) == 1
    assert said(node, "version.server.") == "REFUSED", "a block without it"
    assert dig(node, "CH", "TXT", "version.bind") == [f'"{version}"']


def test_chaos_texts(nodes):
    node = nodes.start(". {\n    chaos v3 \"Miek Gieben\" Bob\n    whoami\n}\n")
    assert said(node, "version.bind.") == said(node, "VERSION.server.") == ["v3"]
    assert said(node, "authors.bind.") == ["Bob", "Miek Gieben"]
    assert said(node, "id.server.") == said(node, "hostname.bind.") == [socket.gethostname()]
    assert said(node, "other.bind.") == "REFUSED"
    nsid = nodes.start(". {\n    chaos\n    nsid rack 7\n    whoami\n}\n")
    assert said(nsid, "id.server.") == ["rack 7"]
    assert said(nsid, "version.bind.")[0].startswith("idetcd-")


def test_chaos_does_not_change_who_owns_a_name(nodes, etcd):
    """The node's name while it is owned, and not the host's before that."""
    first = nodes.start(corefile(etcd.endpoint, limit=1, directives=["chaos v1"]))
    wait_says(first, "worker1.tf.local.")
    second = nodes.start(corefile(etcd.endpoint, limit=1, directives=["chaos v1"]))
    second.wait_logged("Could not have more than 1 nodes")
    assert said_name(second) is None and said_name(second, "hostname.bind.") is None
    assert said(first, "version.bind.") == said(second, "version.bind.") == ["v1"]


# --- debug ---

def test_debug_lines_come_and_go_with_a_reload(nodes):
    text = ". {{\n    {}\n    local\n    whoami\n}}\n"

    def reload(directive):
        with open(node.corefile_path, "w", encoding="utf-8") as file:
            file.write(text.format(directive))
        before = node.out().count("Reloading complete")
        node.signal(signal.SIGUSR1)
        node.wait_logged("Reloading complete", before + 1)

    node = nodes.start(text.format(""))
    ask(node, "localhost.before.example.")
    reload("debug")
    ask(node, "LOCALHOST.with.example.", "AAAA")
    line = '[DEBUG] plugin/local: Intercepting localhost query for "localhost.with.example." AAAA, from 127.0.0.1'
    node.wait_logged(line, 1)
    reload("")
    ask(node, "localhost.after.example.")
    reload("debug")
    ask(node, "localhost.again.example.")
    node.wait_logged("localhost.again.example.", 1)
    assert node.out().count("[DEBUG]") == 2, "lines are in order, so none of the others is missing because it is late"
