"""A node gives its own name to every client that asks, and keeps it over a reload."""
import os
import signal
import socket

import dns.edns
import dns.message
import dns.reversename
import pytest

from corefiles import corefile
from dns_client import answers, ask, exchange, pointer, rcode, said_name, wait_gone, wait_resolves, wait_says
from harness.processes import wait_until
from harness.state import contents

TRANSPORTS = pytest.mark.parametrize("tcp", [False, True], ids=["udp", "tcp"])


@pytest.fixture(scope="module")
def node(shared_etcd, shared_nodes):
    node = shared_nodes.start(corefile(shared_etcd.endpoint, options=["address 192.0.2.7 2001:db8::7"]))
    node.wait_owns(shared_etcd)
    wait_until(lambda: answers(node, reverse("192.0.2.7"), "PTR") == ["worker1.tf.local."], 5, "the node to give its name")
    return node


def reverse(address):
    return dns.reversename.from_address(address).to_text()


def rewrite(node, text):
    """At once: a reload that is still under way reads the old file or the new one, never half of it."""
    with open(node.corefile_path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(node.corefile_path + ".new", node.corefile_path)


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


def test_a_reload_with_another_pattern_gives_the_name_back(etcd, nodes, directory):
    options = ["address 192.0.2.7", f"state {directory}/state",
               f'on-claim sh -c "echo $IDETCD_EVENT $IDETCD_NAME >> {directory}/events"']
    node = nodes.start(corefile(etcd.endpoint, lease=20, options=options))
    wait_says(node, "worker1.tf.local.")
    other = nodes.start(corefile(etcd.endpoint, lease=20, options=["address 192.0.2.8"]))
    wait_says(other, "worker2.tf.local.")
    wait_resolves([other], "worker1.tf.local.", "192.0.2.7")
    uuid = etcd.names()["worker1.tf.local."]["id"]

    def wait_told(count):
        """A program that does not keep up is not told of what is over."""
        wait_until(lambda: contents(f"{directory}/events").count("\n") == count, 5, lambda: contents(f"{directory}/events"))
    wait_told(1)
    rewrite(node, corefile(etcd.endpoint, "ps{{.ID}}.tf.local.", lease=20, options=options))
    node.signal(signal.SIGHUP)
    wait_says(node, "ps1.tf.local.")
    wait_gone([node, other], "worker1.tf.local.")
    wait_until(lambda: set(etcd.pairs()) == {b"ps1.tf.local.", b"worker2.tf.local."}, 5, lambda: etcd.pairs())
    wait_until(lambda: len(etcd.leases()) == 2, 5, "the old lease to be given back")
    assert pointer(node, "192.0.2.7") == ["ps1.tf.local."]
    wait_told(3)
    # And back again: the same node as before under the old pattern.
    rewrite(node, corefile(etcd.endpoint, lease=20, options=options))
    node.signal(signal.SIGUSR1)
    wait_says(node, "worker1.tf.local.")
    wait_until(lambda: set(etcd.names()) == {"worker1.tf.local.", "worker2.tf.local."}, 5, etcd.names)
    assert etcd.names()["worker1.tf.local."]["id"] == uuid
    wait_told(5)
    assert node.terminate() == 0
    events = contents(f"{directory}/events").splitlines()
    for name, claims in (("worker1", 2), ("ps1", 1)):  # each in order; the one may be given back while the other is taken
        assert [line.split()[0] for line in events if name in line] == ["claim", "loss"] * claims, events
    assert len(events) == 6


def test_a_reload_right_after_another_waits_for_the_name_to_be_given_back(etcd, nodes, directory):
    """etcd stalls, so that it takes its time; whatever comes meanwhile, the last file counts."""
    options = ["address 192.0.2.7", f"state {directory}/state"]
    node = nodes.start(corefile(etcd.endpoint, lease=20, options=options))
    wait_says(node, "worker1.tf.local.")
    etcd.pause()
    for pattern in ("ps{{.ID}}.tf.local.", "db{{.ID}}.tf.local.", "worker{{.ID}}.tf.local."):
        rewrite(node, corefile(etcd.endpoint, pattern, lease=20, options=options))
        before = node.logs().count("SIGHUP: Reloading")
        node.signal(signal.SIGHUP)
        wait_until(lambda: node.logs().count("SIGHUP: Reloading") > before, 5, node.logs)
        assert rcode(ask(node, "example.org.")) == "REFUSED", "it answers meanwhile"
    wait_until(lambda: node.logs().count("Reloading complete") >= 2, 15, node.logs)
    etcd.resume()
    wait_says(node, "worker1.tf.local.", timeout=20)
    wait_until(lambda: set(etcd.pairs()) == {b"worker1.tf.local."}, 30, lambda: etcd.pairs())
    assert "Restart failed" not in node.logs()


def test_a_reload_keeps_the_name_whatever_else_changes(etcd, nodes):
    """What needs a restart waits for one, and the log says so."""
    node = nodes.start(corefile(etcd.endpoint, lease=20, options=["address 192.0.2.7"]))
    wait_says(node, "worker1.tf.local.")
    before = etcd.pairs()
    for number, options in enumerate((["address 192.0.2.8"], ["address 192.0.2.7", "observe"], ["address 192.0.2.7", "ttl 9s"]), 1):
        rewrite(node, corefile(etcd.endpoint, lease=20, options=options))
        node.signal(signal.SIGHUP)
        wait_until(lambda n=number: node.logs().count("Reloading complete") == n, 5, node.logs)
        node.wait_logged("only 'fallthrough' changes without a restart", times=number)
        assert said_name(node) == "worker1.tf.local." and answers(node, "worker1.tf.local.") == ["192.0.2.7"]
    rewrite(node, corefile(etcd.endpoint, lease=20, options=["address 192.0.2.7", "fallthrough"], directives=["whoami"]))
    node.signal(signal.SIGHUP)
    wait_until(lambda: rcode(ask(node, "nobody.tf.local.")) == "NOERROR", 5, "whoami to answer for what does not exist")
    node.wait_logged("only 'fallthrough'", times=3)
    assert etcd.pairs() == before and len(etcd.leases()) == 1


def said_at_once(node):
    """What it says of itself in every way, and where that name leads to. None: while it was asked it began to say
    something else."""
    query = dns.message.make_query("example.org.", "A", use_edns=0, options=[dns.edns.GenericOption(dns.edns.NSID, b"")])
    nsid = lambda: next((option.data.decode() + "." for option in exchange(node, query).options if option.otype == dns.edns.NSID), None)
    before = nsid()
    said = [said_name(node, name) for name in ("id.server.", "hostname.bind.")]
    said += [None if found == "REFUSED" else found[0] for found in (pointer(node, "192.0.2.7"), pointer(node, "2001:db8::7"))]
    leads = (answers(node, before), answers(node, before, "AAAA")) if before else None
    return None if nsid() != before else (before, said, leads)


def test_every_way_of_asking_agrees_at_every_moment(etcd, nodes, directory):
    """The name is taken away by force, deleted, given back late: whenever it says a name at all, all ways say that one,
    and it leads to this node."""
    node = nodes.start(corefile(etcd.endpoint, lease=8, options=["address 192.0.2.7 2001:db8::7", f"state {directory}/state"]))
    seen, identity = [], f"{directory}/state/identity"

    def until(wanted, after=0, timeout=30):
        """It says `wanted`, and etcd has it under a token higher than `after`, which is returned."""
        token = lambda: etcd.pairs().get((wanted or "").encode(), {}).get("token", 0)

        def condition():
            told = said_at_once(node)
            if told is None:
                return False
            name, said, leads = told
            assert said == [name] * 4, told
            assert name is None or leads == (["192.0.2.7"], ["2001:db8::7"]), told
            if not seen or seen[-1] != name:
                seen.append(name)
            return name == wanted and (wanted is None or token() > after)
        wait_until(condition, timeout, lambda: f"{wanted} after {seen}\n{node.logs()}", interval=0)
        wait_until(lambda: contents(identity).partition("\n")[0] == (f"IDETCD_NAME='{wanted}'" if wanted else ""), 5,
                   lambda: f"the file to say so too: {contents(identity)}")
        return token() if wanted else 0

    until("worker1.tf.local.")
    etcd.put("worker1.tf.local.", '{"ipv4":"198.51.100.1"}')
    last = until("worker2.tf.local.")
    etcd.delete("worker2.tf.local.")
    last = until("worker2.tf.local.", after=last)
    etcd.ctl("lease", "revoke", f"{etcd.pairs()[b'worker2.tf.local.']['lease']:x}")
    until("worker2.tf.local.", after=last)
    etcd.pause()
    until(None)
    etcd.resume()
    until("worker2.tf.local.", timeout=30)
    assert set(seen) == {None, "worker1.tf.local.", "worker2.tf.local."}


def test_an_observer_of_a_full_cluster_serves(etcd, nodes):
    text = corefile(etcd.endpoint, limit=2, lease=20, options=["address 192.0.2.7", "when-full exit"])
    cluster = nodes.start_cluster(text, 2, etcd)
    before = etcd.pairs()
    refused = nodes.make(text).launch()
    assert refused.exit_code(10) == 1
    for node in cluster:  # the others confirm what they know, by writing
        node.pause()
    revision = etcd.revision()
    observer = nodes.start(corefile(etcd.endpoint, limit=2, options=["address 192.0.2.8", "observe"]))
    wait_resolves([observer], "worker2.tf.local.", "192.0.2.7")
    assert rcode(ask(observer, "worker3.tf.local.")) == "NXDOMAIN"
    assert said_name(observer) is None and pointer(observer, "192.0.2.8") == "REFUSED"
    assert etcd.pairs() == before and len(etcd.leases()) == 2
    assert observer.terminate() == 0
    assert etcd.revision() == revision, "it never wrote anything"
    for node in cluster:
        node.resume()


def test_a_reload_that_is_refused_changes_no_file(etcd, nodes, directory, free_port):
    """Its pattern is another one, and then an address is taken."""
    state = f"{directory}/state"
    options = ["address 192.0.2.7", f"state {state}"]
    node = nodes.start(corefile(etcd.endpoint, options=options))
    wait_says(node, "worker1.tf.local.")
    wait_until(lambda: "worker1" in contents(f"{state}/identity"), 5, "the identity")
    # The names are saved now and then, whatever happens.
    files = lambda: {name: contents(f"{state}/{name}") for name in os.listdir(state) if ".names" not in name}
    before = files()
    with socket.create_server(("127.0.0.1", free_port())) as taken:
        other = f"example.org:{taken.getsockname()[1]} {{\n bind 127.0.0.1\n whoami\n}}\n"
        rewrite(node, corefile(etcd.endpoint, "ps{{.ID}}.tf.local.", options=options) + other)
        node.signal(signal.SIGHUP)
        node.wait_logged("Restart failed: ")
    # What was taken for the new pattern, its lock, is given back behind the line of the log.
    wait_until(lambda: files() == before, 10, lambda: f"{before}\nnow {files()}")
    assert said_name(node) == "worker1.tf.local."


def test_the_identity_follows_the_number_of_patterns(etcd, nodes, directory):
    state = f"{directory}/state"
    block = lambda pattern, zone: corefile(etcd.endpoint, pattern, options=["address 192.0.2.7", f"state {state}"]).replace(
        ". {", f"{zone} {{", 1)
    one, two = block("worker{{.ID}}.tf.local.", "tf.local"), block("db{{.ID}}.db.local.", "db.local")
    node = nodes.start(one + two)
    wait_until(lambda: {b"worker1.tf.local.", b"db1.db.local."} <= set(etcd.pairs()), 10, node.logs)
    assert not os.path.lexists(f"{state}/identity")
    for text, said in ((one, "worker1.tf.local."), (one + two, ""), (one, "worker1.tf.local.")):
        rewrite(node, text)
        node.signal(signal.SIGHUP)
        wait_until(lambda: (said in contents(f"{state}/identity")) if said else not os.path.lexists(f"{state}/identity"),
                   10, lambda: f"{said!r}\n{node.logs()}")


def test_a_bad_corefile_changes_nothing(etcd, nodes):
    node = nodes.start(corefile(etcd.endpoint))
    node.wait_owns(etcd)
    before = etcd.names()
    rewrite(node, ". {\n  nonsense\n}\n")
    node.signal(signal.SIGHUP)
    wait_until(lambda: "Unknown directive 'nonsense'" in node.logs(), 5, "the refusal in the log")
    assert node.running() and etcd.names() == before
    assert rcode(ask(node, "example.org.", "A")) == "REFUSED"
