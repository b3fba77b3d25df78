"""`tls` and `credentials`: what reaches etcd, what does not, and what a node does meanwhile."""

import os
import socket
import time

import pytest

from corefiles import corefile
from dns_client import (EDE_NOT_READY, EDE_STALE_ANSWER, answers, ask, extended_errors, rcode, said_name, wait_resolves,
                        wait_says)
from harness import ports
from harness.background import Background
from harness.processes import TIME_FACTOR, wait_until
from harness.proxy import TcpProxy
from harness.secure_etcd import Authority, GuardedEtcd, SecureEtcd, install
from test_etcd_faults import Questioner

WORKER1, WORKER2 = "worker1.tf.local.", "worker2.tf.local."


def text(endpoint, *options, lease=20):
    return corefile(endpoint, lease=lease, options=["address 192.0.2.7", *options])


def assert_not_ready(node):
    response = ask(node, WORKER1, use_edns=0)
    assert rcode(response) == "SERVFAIL" and extended_errors(response) == [EDE_NOT_READY], response
    assert said_name(node) is None


# --- TLS ---

class Files:
    """The files that the Corefile names; what they hold is replaced as an operator would."""

    def __init__(self, directory):
        self.ca, self.certificate, self.key = (os.path.join(directory, f"client.{name}") for name in ("ca", "pem", "key"))

    def trust(self, authority):
        install(authority.certificate, self.ca)

    def show(self, authority):
        certificate, key = authority.issue()
        install(certificate, self.certificate)
        install(key, self.key)

    @property
    def server_only(self):
        return f"tls {self.ca}"

    @property
    def both(self):
        return f"tls {self.certificate} {self.key} {self.ca}"


@pytest.fixture
def authority(directory):
    return Authority(directory)


@pytest.fixture
def stranger(directory):
    return Authority(directory, "stranger")


@pytest.fixture
def files(directory, authority):
    made = Files(directory)
    made.trust(authority)
    return made


@pytest.fixture
def secure(directory, authority):
    """A function: an etcd, with or without demands on its clients; started."""
    members = []

    def start(clients=False):
        members.append(SecureEtcd(directory, authority, clients))
        return members[-1].start()

    yield start
    for member in members:
        member.close()


def test_a_server_of_our_authority(secure, files, nodes):
    etcd = secure()
    cluster = nodes.start_cluster(text(etcd.endpoint, files.server_only), 2, etcd)
    wait_resolves(cluster, WORKER2, "192.0.2.7")
    # Without a scheme it is no less than TLS.
    third = nodes.start(text(etcd.endpoint.replace("https://", ""), files.server_only))
    third.wait_owns(etcd)
    etcd.put("db.tf.local.", '{"ipv4":"198.51.100.1"}')
    wait_resolves([*cluster, third], "db.tf.local.", "198.51.100.1")
    for node in (*cluster, third):
        assert node.terminate() == 0
    assert etcd.names() == {} and etcd.leases() == []


def test_a_client_certificate(secure, files, nodes, authority, stranger):
    etcd = secure(clients=True)
    files.show(authority)
    node = nodes.start(text(etcd.endpoint, files.both))
    wait_says(node, WORKER1)
    without = nodes.start(text(etcd.endpoint, files.server_only))
    without.wait_logged("is away")
    assert_not_ready(without)
    files.show(stranger)  # which the server does not know
    wrong = nodes.start(text(etcd.endpoint, files.both))
    wrong.wait_logged("is away")
    assert_not_ready(wrong)
    assert said_name(node) == WORKER1 and set(etcd.names()) == {WORKER1}
    files.show(authority)
    wait_says(wrong, WORKER2, timeout=20)
    assert_not_ready(without)


def test_a_server_of_another_authority_is_refused(secure, files, nodes, stranger, authority):
    etcd = secure()
    files.trust(stranger)
    node = nodes.start(text(etcd.endpoint, files.server_only))
    node.wait_logged("certificate verify failed")
    assert_not_ready(node)
    assert etcd.pairs() == {}
    files.trust(authority)
    wait_says(node, WORKER1, timeout=20)


def test_the_server_changes_its_authority(secure, files, nodes, stranger):
    """The operator replaces the file; the node is not restarted."""
    etcd = secure()
    node = nodes.start(text(etcd.endpoint, files.server_only))
    wait_says(node, WORKER1)
    before = etcd.pairs()[WORKER1.encode()]
    etcd.stop()
    etcd.certify(stranger)
    etcd.start()
    node.wait_logged("certificate verify failed")
    assert answers(node, WORKER1) == ["192.0.2.7"], "as last known"
    files.trust(stranger)
    etcd.put("db.tf.local.", '{"ipv4":"198.51.100.1"}')
    wait_resolves([node], "db.tf.local.", "198.51.100.1", timeout=20)
    wait_says(node, WORKER1)
    assert etcd.pairs()[WORKER1.encode()] == before, "the slot is kept"


def test_the_client_certificate_is_replaced(secure, files, nodes, authority, stranger):
    etcd = secure(clients=True)
    files.show(authority)
    node = nodes.start(text(etcd.endpoint, files.both))
    wait_says(node, WORKER1)
    before = etcd.pairs()[WORKER1.encode()]
    files.show(stranger)
    files.trust(stranger)
    etcd.stop()
    etcd.certify(stranger)
    etcd.start()
    etcd.put("db.tf.local.", '{"ipv4":"198.51.100.1"}')
    wait_resolves([node], "db.tf.local.", "198.51.100.1", timeout=20)
    wait_says(node, WORKER1)
    assert etcd.pairs()[WORKER1.encode()] == before
    assert node.terminate() == 0 and etcd.pairs().keys() == {b"db.tf.local."}


def test_a_bad_file_in_the_place_of_a_good_one_changes_nothing(secure, files, nodes):
    etcd = secure()
    node = nodes.start(text(etcd.endpoint, files.server_only))
    wait_says(node, WORKER1)
    with open(files.ca, "w", encoding="ascii") as file:
        file.write("-----BEGIN CERTIFICATE-----\nrubbish\n")
    etcd.stop()  # so that it has to connect anew
    etcd.start()
    etcd.put("db.tf.local.", '{"ipv4":"198.51.100.1"}')
    wait_resolves([node], "db.tf.local.", "198.51.100.1", timeout=20)
    wait_says(node, WORKER1)
    node.wait_logged("TLS certificates that cannot be used")
    node.wait_logged(files.ca)


def test_a_stranger_in_etcds_place(secure, files, nodes, authority, stranger):
    """The names grow old and the own name is no longer given, until our files are for the new authority; and never is a word
    spoken in the clear, which a proxy has an eye on."""
    etcd = secure(clients=True)
    files.show(authority)
    etcd.put("db.tf.local.", '{"ipv4":"198.51.100.1"}')
    with TcpProxy(etcd.client_port) as proxy:
        node = nodes.start(text(proxy.endpoint.replace("http:", "https:"), files.both, lease=3))
        wait_says(node, WORKER1)
        wait_resolves([node], "db.tf.local.", "198.51.100.1")
        with Questioner(node, "db.tf.local.", "198.51.100.1") as questioner:
            etcd.stop()
            etcd.certify(stranger)
            etcd.start()
            wait_until(lambda: questioner.stale, 15, node.logs)
            wait_says(node, None)
            connections = len(proxy.first_octets)
            wait_until(lambda: len(proxy.first_octets) > connections + 1, 15, "further attempts")
            files.trust(stranger)
            files.show(stranger)
            etcd.put("other.tf.local.", '{"ipv4":"198.51.100.2"}')
            wait_resolves([node], "other.tf.local.", "198.51.100.2", timeout=20)
        assert questioner.bad == []
        wait_until(lambda: extended_errors(ask(node, "db.tf.local.", use_edns=0)) == [], 10, node.logs)
        wait_says(node, WORKER1, timeout=20)
        assert node.terminate() == 0
        # A handshake record (RFC 8446 §5.1) is what every connection begins with.
        assert {octets[:2] for octets in proxy.first_octets} == {b"\x16\x03"}


@pytest.mark.parametrize("what", ["missing", "rubbish", "key of another"])
def test_a_bad_file_at_the_start(secure, files, nodes, authority, what):
    etcd = secure()
    files.show(authority)
    if what == "missing":
        os.remove(files.key)
    elif what == "rubbish":
        with open(files.certificate, "w", encoding="ascii") as file:
            file.write("rubbish")
    else:
        install(authority.issue()[1], files.key)
    node = nodes.make(text(etcd.endpoint, files.both)).launch()
    assert node.exit_code(10) == 1
    assert "plugin/idetcd: " in node.err() and "client." in node.err() and node.err().count("\n") == 1, node.err()
    assert etcd.pairs() == {}


class Eavesdropper(Background):
    """A TCP port without TLS: what do clients say first?"""

    def __init__(self):
        super().__init__()
        self.port = ports.free_port()
        self.heard = []
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._listener.settimeout(0.05)

    def _run(self):
        while not self._end.is_set():
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            with connection:
                connection.settimeout(5)
                try:
                    self.heard.append(connection.recv(65536))
                    # As a server that knows HTTP/2 in plain text only.
                    connection.sendall(b"\0\0\0\x04\0\0\0\0\0")
                    self.heard.append(connection.recv(65536))
                except OSError:
                    pass

    def __exit__(self, *exception):
        super().__exit__(*exception)
        self._listener.close()
        ports.release(self.port)


@pytest.mark.parametrize("endpoint", ["https://127.0.0.1:{}", "127.0.0.1:{}"])
def test_never_plain_text(files, nodes, endpoint):
    """Not even to a server that would like it, and not with a password at hand."""
    with Eavesdropper() as listener:
        node = nodes.start(text(endpoint.format(listener.port), files.server_only, "credentials idetcd secret"))
        wait_until(lambda: len([octets for octets in listener.heard if octets]) >= 3, 20, lambda: f"{listener.heard}\n{node.logs()}")
        assert_not_ready(node)
        for octets in listener.heard:
            assert not octets or octets[0] in (0x15, 0x16) and octets[1] == 3, octets  # a TLS handshake, or its alert
            assert b"PRI *" not in octets and b"secret" not in octets and b"worker" not in octets
    assert "secret" not in node.logs()


# --- users ---

USER = "idetcd", "the node's password"
CREDENTIALS = f'credentials {USER[0]} "{USER[1]}"'
NAMES, QUEUE = ("0", ""), ("/idetcd/", "/idetcd0")


@pytest.fixture
def guarded(directory):
    member = GuardedEtcd(directory)
    member.start().guard()
    yield member
    member.close()


def test_a_user_with_what_a_node_needs(guarded, nodes):
    """The names, and the queue beside them; nothing else."""
    guarded.add_user(*USER, ("readwrite", *NAMES), ("readwrite", *QUEUE))
    cluster = [nodes.start(text(guarded.endpoint, CREDENTIALS, lease=6)) for _ in range(2)]
    assert sorted(node.wait_owns(guarded) for node in cluster) == [WORKER1, WORKER2]
    guarded.put("db.tf.local.", '{"ipv4":"198.51.100.1"}')
    wait_resolves(cluster, "db.tf.local.", "198.51.100.1")
    before = {name: pair for name, pair in guarded.pairs().items() if b"worker" in name}
    time.sleep(7 * TIME_FACTOR)  # past the lease: what must not happen has no event to wait for
    assert {name: pair for name, pair in guarded.pairs().items() if b"worker" in name} == before
    for node in cluster:
        assert "etcd fails" not in node.logs() and "etcd refuses" not in node.logs()
        assert USER[1] not in node.logs()
        assert node.terminate() == 0
    assert guarded.pairs().keys() == {b"db.tf.local."} and guarded.leases() == []


def test_auth_token_expired(directory, nodes):
    """A token that ended is renewed: the name is kept over several of them, and changes arrive. The same when etcd, which
    forgets all tokens when it starts again, does so."""
    etcd = GuardedEtcd(directory)
    try:
        etcd.start(["--auth-token-ttl", "1"]).guard()
        etcd.add_user(*USER, ("readwrite", *NAMES), ("readwrite", *QUEUE))
        node = nodes.start(text(etcd.endpoint, CREDENTIALS, "reconcile 2s", lease=20))
        wait_says(node, WORKER1)
        wait_resolves([node], WORKER1, "192.0.2.7")
        before = etcd.pairs()[WORKER1.encode()]
        with Questioner(node, WORKER1, "192.0.2.7") as questioner:
            # etcd looks for expired tokens once a second, and the node asks it something about every two.
            time.sleep(8)  # the length of the fault: several tokens
            etcd.put("db.tf.local.", '{"ipv4":"198.51.100.1"}')
            wait_resolves([node], "db.tf.local.", "198.51.100.1")
            etcd.kill()
            etcd.start(["--auth-token-ttl", "1"])
            etcd.put("db.tf.local.", '{"ipv4":"198.51.100.2"}')
            wait_resolves([node], "db.tf.local.", "198.51.100.2", timeout=15)
        assert questioner.bad == [] and questioner.stale == []
        assert etcd.pairs()[WORKER1.encode()] == before
        assert "[ERROR]" not in node.out(), node.logs()
        newcomer = nodes.start(text(etcd.endpoint, CREDENTIALS, lease=9))
        wait_says(newcomer, WORKER2)
        for one in (newcomer, node):
            assert one.terminate() == 0
        assert etcd.names() == {}, "given back, with whatever token"
    finally:
        etcd.close()


def test_a_wrong_password(guarded, nodes):
    """One line, no hammering, and no restart when the password is set right."""
    guarded.add_user(*USER, ("readwrite", *NAMES), ("readwrite", *QUEUE))
    node = nodes.start(text(guarded.endpoint, f"credentials {USER[0]} wrong-password"))
    unknown = nodes.start(text(guarded.endpoint, "credentials nobody wrong-password"))
    without = nodes.start(text(guarded.endpoint))
    for one, line in ((node, "etcd refuses user 'idetcd'"), (unknown, "etcd refuses user 'nobody'"), (without, "etcd fails")):
        one.wait_logged(line)
    time.sleep(2 * TIME_FACTOR)  # what must not happen has no event to wait for
    for one in (node, unknown):
        assert_not_ready(one)
        one.wait_logged("etcd refuses user", times=1)
        assert "wrong-password" not in one.logs()
    assert_not_ready(without)
    guarded.ctl("user", "passwd", USER[0], "--interactive=false", input_bytes=b"wrong-password\n")
    wait_says(node, WORKER1, timeout=45)
    node.wait_logged("etcd accepts user 'idetcd'")


def test_a_user_who_may_only_read_serves_and_claims_nothing(guarded, nodes):
    guarded.add_user(*USER, ("read", *NAMES), ("read", *QUEUE))
    guarded.put("db.tf.local.", '{"ipv4":"198.51.100.1"}')
    node = nodes.start(text(guarded.endpoint, CREDENTIALS))
    observer = nodes.start(text(guarded.endpoint, CREDENTIALS, "observe"))
    wait_resolves([node, observer], "db.tf.local.", "198.51.100.1")
    node.wait_logged("etcd fails while claiming a name: ")
    node.wait_logged("permission denied")
    assert answers(node, WORKER1) == "NXDOMAIN", "that it does not exist is known"
    assert said_name(node) is None and guarded.names() == {}
    assert "etcd fails" not in observer.logs()
    guarded.grant(USER[0], "readwrite", *NAMES)
    guarded.grant(USER[0], "readwrite", *QUEUE)
    wait_says(node, WORKER1, timeout=45)
    node.wait_logged("etcd fails while claiming", times=1)
    assert guarded.leases() and len(guarded.leases()) == 1, "no lease of the attempts is left"


def test_a_user_who_may_write_no_names_but_the_patterns(guarded, nodes):
    """No beat can be written for the nodes: what etcd says of its progress is taken, and all stays fresh."""
    guarded.add_user(*USER, ("read", *NAMES), ("readwrite", "worker", "workes"), ("readwrite", *QUEUE))
    guarded.put("db.tf.local.", '{"ipv4":"198.51.100.1"}')
    node = nodes.start(text(guarded.endpoint, CREDENTIALS, lease=5))
    wait_says(node, WORKER1)
    for number in range(60):  # several leases
        guarded.put(f"/others/{number}", "x")
        time.sleep(0.2)
        assert extended_errors(ask(node, "db.tf.local.", use_edns=0)) == [], node.logs()
        assert said_name(node) == WORKER1
    assert b"0/idetcd/beat" not in guarded.pairs(internal=True)


def test_a_user_who_may_nothing(guarded, nodes):
    guarded.add_user(*USER)
    node = nodes.start(text(guarded.endpoint, CREDENTIALS))
    node.wait_logged("etcd fails while reading the names: ")
    assert_not_ready(node)
    guarded.grant(USER[0], "readwrite", *NAMES)
    guarded.grant(USER[0], "readwrite", *QUEUE)
    wait_says(node, WORKER1, timeout=45)


def test_a_permission_that_is_taken_away(guarded, nodes):
    """What is known is served on, and said to be old; when the permission is back, all is well again."""
    guarded.add_user(*USER, ("readwrite", *NAMES), ("readwrite", *QUEUE))
    guarded.put("db.tf.local.", '{"ipv4":"198.51.100.1"}')
    node = nodes.start(text(guarded.endpoint, CREDENTIALS, lease=2))
    wait_says(node, WORKER1)
    wait_resolves([node], "db.tf.local.", "198.51.100.1")
    guarded.revoke(USER[0], *NAMES)
    guarded.stop()  # a watch that was allowed once is asked for again
    guarded.start()
    wait_until(lambda: extended_errors(ask(node, "db.tf.local.", use_edns=0)) == [EDE_STALE_ANSWER], 20, node.logs, interval=0.05)
    assert answers(node, "db.tf.local.") == ["198.51.100.1"]
    node.wait_logged("permission denied")
    assert said_name(node) is None, "nothing shows that the key is still there"
    guarded.grant(USER[0], "readwrite", *NAMES)
    wait_until(lambda: extended_errors(ask(node, "db.tf.local.", use_edns=0)) == [], 30, node.logs, interval=0.05)
    wait_says(node, WORKER1, timeout=45)
    assert set(guarded.names()) == {WORKER1}


def test_credentials_for_an_etcd_that_asks_for_none(etcd, nodes):
    node = nodes.start(text(etcd.endpoint, CREDENTIALS))
    wait_says(node, WORKER1)
    node.wait_logged("etcd has authentication switched off: going on without")
