"""etcd's own guards: passwords with tokens that end, permissions that are taken away, certificates that change."""

import os
import shutil

import pytest

from corefiles import corefile
from dns_client import EDE_STALE_ANSWER, ask, extended_errors, wait_resolves
from harness.certificates import Authority
from harness.etcd import SecureEtcdMember
from harness.processes import wait_until
from harness.proxy import TcpProxy
from identity import told
from test_etcd_faults import Questioner


def is_stale(node, name="worker1.tf.local."):
    return extended_errors(ask(node, name, use_edns=0)) == [EDE_STALE_ANSWER]


def wait_stale(node, stale, timeout=15):
    wait_until(lambda: is_stale(node) == stale, timeout, lambda: f"{'stale' if stale else 'fresh'} answers\n{node.logs()}",
               interval=0.05)


def put(etcd, name, last_octet):
    etcd.put(f"{name}.tf.local.", f'{{"ipv4":"198.51.100.{last_octet}"}}')
    return f"{name}.tf.local.", f"198.51.100.{last_octet}"


# --- passwords ---

@pytest.fixture
def guarded(directory):
    """User "node" may do what a node does. Tokens end a second after their last use."""
    member = SecureEtcdMember(directory, ["--auth-token-ttl", "1"])
    member.start()
    for command in ("user add root:root", "user grant-role root root", "role add nodes", "user add node:secret",
                    "user grant-role node nodes"):
        member.ctl(*command.split())
    grant(member)
    member.ctl("auth", "enable")
    member.ctl_arguments = ["--user", "root:root"]
    yield member
    member.close()


def grant(member):
    member.ctl("role", "grant-permission", "--from-key", "nodes", "readwrite", "0")
    member.ctl("role", "grant-permission", "--prefix", "nodes", "readwrite", "/idetcd/")


def test_auth_token_expired(guarded, nodes):
    """A token that ended is renewed: the name is kept over many of them, and changes arrive. The same when etcd, which
    forgets all tokens when it starts again, does so."""
    options = ["address 192.0.2.7", "credentials node secret", "reconcile 2s"]
    node = nodes.start(corefile(guarded.endpoint, lease=9, options=options))
    assert node.wait_owns(guarded) == "worker1.tf.local."
    wait_resolves([node], "worker1.tf.local.", "192.0.2.7")
    before = guarded.pairs()[b"worker1.tf.local."]
    with Questioner(node, "worker1.tf.local.", "192.0.2.7") as questioner:
        # etcd looks for expired tokens once a second; the node asks it something about every two.
        wait_until(lambda: questioner.asked > 500, 30, "many answers")
        wait_resolves([node], *put(guarded, "extra", 1))
        guarded.kill()
        guarded.start()
        wait_resolves([node], *put(guarded, "extra", 2), timeout=15)
    assert questioner.bad == [] and questioner.stale == []
    assert guarded.pairs()[b"worker1.tf.local."] == before
    assert "[ERROR]" not in node.out(), node.logs()
    newcomer = nodes.start(corefile(guarded.endpoint, lease=9, options=["address 192.0.2.8", "credentials node secret"]))
    assert newcomer.wait_owns(guarded) == "worker2.tf.local."
    assert newcomer.terminate() == 0
    wait_until(lambda: set(guarded.names()) == {"worker1.tf.local."}, 5, "the newcomer's name to be given back")


def test_permission_revoked(guarded, nodes):
    """Last known names, marked as old; the error once; the name again when the permission is there again."""
    node = nodes.start(corefile(guarded.endpoint, lease=3, options=["address 192.0.2.7", "credentials node secret"]))
    node.wait_owns(guarded)
    wait_resolves([node], *put(guarded, "extra", 1))
    with Questioner(node, "extra.tf.local.", "198.51.100.1") as questioner:
        guarded.ctl("role", "revoke-permission", "--from-key", "nodes", "0")
        guarded.kill()  # a watch that is open goes on; a new one is refused
        guarded.start()
        put(guarded, "unheard", 1)
        wait_stale(node, True)
        wait_until(lambda: set(told(node, "192.0.2.7").values()) == {None}, 10, "not to be the owner of what it cannot see")
        wait_until(lambda: "permission denied" in node.out(), 10, lambda: node.logs())
        newcomer = nodes.start(corefile(guarded.endpoint, lease=3, options=["address 192.0.2.8", "credentials node secret"]))
        wait_until(lambda: "permission denied" in newcomer.out(), 10, lambda: newcomer.logs())
        assert questioner.bad == []
        for n in (node, newcomer):
            errors = [line for line in n.out().splitlines() if "[ERROR]" in line]
            assert errors and len(errors) == len(set(errors)), "each once"
            assert n.running()
        guarded.ctl("role", "grant-permission", "--from-key", "nodes", "readwrite", "0")
        wait_resolves([node], "unheard.tf.local.", "198.51.100.1", timeout=20)
        wait_stale(node, False)
    assert questioner.bad == []
    wait_until(lambda: told(node, "192.0.2.7")["NSID"], 20, "a name again")
    newcomer.wait_owns(guarded, timeout=30)
    assert set(guarded.names()) == {"worker1.tf.local.", "worker2.tf.local."}


def test_a_wrong_password(guarded, nodes):
    node = nodes.start(corefile(guarded.endpoint, lease=3, options=["address 192.0.2.7", "credentials node wrong"]))
    wait_until(lambda: "[ERROR]" in node.out() or "[WARNING]" in node.out(), 10, "it to be told")
    assert "wrong" not in node.out().replace("wrong password", ""), "a password is not for the log"
    assert node.running() and guarded.names() == {}
    guarded.ctl("user", "passwd", "node", "--interactive=false", input_bytes=b"wrong\n")
    assert node.wait_owns(guarded, timeout=45) == "worker1.tf.local."


# --- TLS ---

class Files:
    """What a node reads: its certificate and key, and the authority that it trusts."""

    def __init__(self, directory):
        self.paths = [os.path.join(directory, name) for name in ("node.pem", "node.key", "ca.pem")]
        self.option = "tls " + " ".join(self.paths)

    def write(self, authority, name="node"):
        for source, path in zip([*authority.issue(name), authority.certificate], self.paths):
            shutil.copy(source, path + ".new")
            os.rename(path + ".new", path)

    def spoil(self):
        for path in self.paths:
            with open(path + ".new", "w", encoding="ascii") as file:
                file.write("-----BEGIN CERTIFICATE-----\nnonsense\n")
            os.rename(path + ".new", path)


class TlsEtcd(SecureEtcdMember):
    """Wants clients with a certificate of the same authority as its own."""

    def __init__(self, directory, authority):
        super().__init__(directory, scheme="https")
        self.use(authority)

    def use(self, authority):
        certificate, key = authority.issue("etcd")
        client, client_key = authority.issue("operator")
        self.arguments = ["--cert-file", certificate, "--key-file", key, "--client-cert-auth", "--trusted-ca-file",
                          authority.certificate]
        self.ctl_arguments = ["--cacert", authority.certificate, "--cert", client, "--key", client_key]


@pytest.fixture
def authority(directory):
    return Authority(directory, "first")


@pytest.fixture
def tls_etcd(directory, authority):
    member = TlsEtcd(directory, authority)
    yield member.start()
    member.close()


def test_tls_certificates_rotated(tls_etcd, authority, nodes, directory):
    """Both sides go over to another authority, without a restart of the node, and the slot is kept."""
    files = Files(directory)
    files.write(authority)
    node = nodes.start(corefile(tls_etcd.endpoint, lease=20, options=["address 192.0.2.7", files.option]))
    assert node.wait_owns(tls_etcd) == "worker1.tf.local."
    wait_resolves([node], *put(tls_etcd, "extra", 1))
    before = tls_etcd.pairs()[b"worker1.tf.local."]
    second = Authority(directory, "second")
    with Questioner(node, "worker1.tf.local.", "192.0.2.7") as questioner:
        files.write(second)
        wait_resolves([node], *put(tls_etcd, "extra", 2))  # by the connection that there is
        tls_etcd.kill()
        tls_etcd.use(second)
        tls_etcd.start()
        wait_resolves([node], *put(tls_etcd, "extra", 3), timeout=15)
    assert questioner.bad == [] and questioner.stale == []
    assert tls_etcd.pairs()[b"worker1.tf.local."] == before, "the slot is kept"
    assert node.terminate() == 0
    assert tls_etcd.names() == {}


def test_tls_certificates_gone_bad(tls_etcd, authority, nodes, directory):
    """Files that are no certificates are not taken over; an etcd with the certificate of a stranger is not spoken to.
    The names grow old, the name is not told, and never is a word spoken in the clear."""
    files = Files(directory)
    files.write(authority)
    with TcpProxy(tls_etcd.client_port) as proxy:
        endpoint = proxy.endpoint.replace("http:", "https:")
        node = nodes.start(corefile(endpoint, lease=3, options=["address 192.0.2.7", files.option]))
        assert node.wait_owns(tls_etcd) == "worker1.tf.local."
        wait_resolves([node], *put(tls_etcd, "extra", 1))
        with Questioner(node, "extra.tf.local.", "198.51.100.1") as questioner:
            files.spoil()
            tls_etcd.kill()
            tls_etcd.start()  # the next connection: what was read before is still good
            wait_resolves([node], *put(tls_etcd, "other", 2), timeout=15)
            wait_stale(node, False)
            assert "[WARNING]" in node.out() or "[ERROR]" in node.out(), "the bad files are told"

            stranger = Authority(directory, "stranger")
            tls_etcd.kill()
            tls_etcd.use(stranger)
            tls_etcd.start()
            wait_stale(node, True)
            wait_until(lambda: set(told(node, "192.0.2.7").values()) == {None}, 10, "the name to be told no more")
            connections = len(proxy.first_octets)
            wait_until(lambda: len(proxy.first_octets) > connections, 15, "another attempt")
            assert questioner.bad == []
            files.write(stranger)
            wait_resolves([node], *put(tls_etcd, "other", 3), timeout=20)
            wait_stale(node, False)
        assert questioner.bad == []
        node.wait_owns(tls_etcd, timeout=20)
        assert node.terminate() == 0
        # A handshake record of TLS 1.x (RFC 8446 §5.1) is what every connection begins with.
        assert {octets[:2] for octets in proxy.first_octets} == {b"\x16\x03"}
