"""What a node takes for the present is the present. A member that answers and applies nothing is left, a process that
stood still says no old name for a current one, and a machine that stood still claims nothing before it has asked."""

import socket
import time

import dns.message
import pytest

from corefiles import corefile
from dns_client import EDE_STALE_ANSWER, answers, ask, extended_errors, wait_resolves
from harness.clock import Clocks
from harness.etcd import EtcdCluster
from harness.frozen_disk import FreezableDisk
from harness.node import binary
from harness.processes import TIME_FACTOR, wait_until
from harness.proxy import TcpProxy, WatchLoss
from identity import Interrogator, queries, name_in
from test_ownership import wait_tells

LEASE = 8  # seconds


@pytest.fixture
def disk():
    disk = FreezableDisk()
    yield disk
    disk.close()


@pytest.fixture
def frozen_cluster(directory, disk):
    """Three members; the disk of the first can be frozen."""
    cluster = EtcdCluster(directory, 3)
    disk.give_to(cluster.members[0])
    yield cluster.start()
    disk.thaw()
    cluster.close()


def move_leader(cluster, to):
    """etcd elects any member: here `to` leads."""
    status = {member.name: member.call("maintenance/status") for member in cluster.members}
    wanted = status[to.name]["header"]["member_id"]
    leader = status[to.name]["leader"]
    if leader == wanted:
        return
    leading = next(member for member in cluster.members if status[member.name]["header"]["member_id"] == leader)
    leading.ctl("move-leader", f"{int(wanted):x}")
    wait_until(lambda: to.call("maintenance/status")["leader"] == wanted, 10, f"{to.name} to lead")


@pytest.mark.parametrize("role", ["follower", "leader"])
def test_a_member_with_a_frozen_disk(frozen_cluster, disk, nodes, role):
    """It answers and applies nothing. Who watches there knows of the change in time, or says that it does not: within
    the lease time no old answer is given for a current one, and no node gives as its own a name that another has."""
    frozen, healthy, third = frozen_cluster.members
    move_leader(frozen_cluster, frozen if role == "leader" else healthy)
    healthy.put("db.tf.local.", '{"ipv4":"198.51.100.1"}')
    others = f"{healthy.endpoint} {third.endpoint}"
    node = nodes.start(corefile(f"{frozen.endpoint} {others}", lease=LEASE, options=["address 192.0.2.1"]))
    assert node.wait_owns(healthy) == "worker1.tf.local."
    stuck = nodes.start(corefile(frozen.endpoint, lease=LEASE, options=["observe"]))  # has nowhere else to go
    wait_tells(node, "worker1.tf.local.", "192.0.2.1")
    wait_resolves([node, stuck], "db.tf.local.", "198.51.100.1")

    disk.freeze()
    began = time.monotonic()
    deadline = began + LEASE * TIME_FACTOR
    wait_until(healthy.healthy, 15, "the others to go on")
    healthy.put("db.tf.local.", '{"ipv4":"198.51.100.2"}')
    healthy.delete("worker1.tf.local.")
    taker = nodes.start(corefile(others, lease=LEASE, options=["address 192.0.2.2"]))

    def is_current_or_says_otherwise(which):
        response = ask(which, "db.tf.local.", use_edns=0)
        return "198.51.100.1" not in str(response.answer) or EDE_STALE_ANSWER in extended_errors(response)

    wait_until(lambda: is_current_or_says_otherwise(node) and is_current_or_says_otherwise(stuck),
               deadline - time.monotonic(), lambda: f"no old answer any more\n{node.logs()}\n{stuck.logs()}")
    owner = taker.wait_owns(healthy)
    with Interrogator(node, "192.0.2.1") as asked, Interrogator(taker, "192.0.2.2") as other:
        wait_resolves([node], "db.tf.local.", "198.51.100.2", timeout=LEASE)
        node.wait_owns(healthy, timeout=20)
        after = time.monotonic()
        time.sleep(2)  # what must not happen has no event to wait for
    assert node.owned_name(healthy) != owner
    both = asked.claims(since=max(after, deadline)) & other.claims(since=max(after, deadline))
    assert both <= {None}, both
    assert extended_errors(ask(stuck, "db.tf.local.", use_edns=0)) == [EDE_STALE_ANSWER]

    disk.thaw()
    wait_resolves([stuck], "db.tf.local.", "198.51.100.2", timeout=30)
    wait_until(lambda: extended_errors(ask(stuck, "db.tf.local.", use_edns=0)) == [], 30, stuck.logs)


def test_a_watch_that_says_nothing(etcd, nodes):
    """Reads and keepalives are answered, events are not sent: the node does not know whether its key is still there."""
    loss = WatchLoss()
    with TcpProxy(etcd.client_port, on_response=loss.filter) as proxy:
        node = nodes.start(corefile(proxy.endpoint, lease=3, options=["address 192.0.2.7", "reconcile 1h"]))
        node.wait_owns(etcd)
        wait_tells(node, "worker1.tf.local.")
        etcd.put("db.tf.local.", '{"ipv4":"198.51.100.1"}')
        wait_resolves([node], "db.tf.local.", "198.51.100.1")
        loss.losing = True
        began = time.monotonic()
        etcd.delete("worker1.tf.local.")
        wait_tells(node, None, timeout=4)
        wait_until(lambda: extended_errors(ask(node, "db.tf.local.", use_edns=0)) == [EDE_STALE_ANSWER], 4, node.logs)
        assert time.monotonic() - began < 8 * TIME_FACTOR
        loss.losing = False
        wait_tells(node, "worker1.tf.local.", timeout=20)
        wait_until(lambda: extended_errors(ask(node, "db.tf.local.", use_edns=0)) == [], 10, node.logs)


def test_a_quiet_cluster_writes_nothing(etcd, nodes):
    """What is confirmed costs reads; a write only where others write outside the names, and one for all nodes."""
    cluster = nodes.start_cluster(corefile(etcd.endpoint, lease=5, options=["address 192.0.2.7"]), 3, etcd)
    wait_resolves(cluster, "worker3.tf.local.", "192.0.2.7")
    wait_until(lambda: _at_rest(etcd, 5.5), 40, "no write any more", interval=0.01)
    revision = etcd.revision()
    etcd.call("kv/put", key="L290aGVycw==", value="eA==")  # /others
    time.sleep(11 * TIME_FACTOR)  # what must not happen has no event to wait for
    assert revision + 2 <= etcd.revision() <= revision + 4, "one beat, seldom two"
    for node in cluster:
        assert "stale" not in node.out() and "away" not in node.out(), node.logs()
        assert extended_errors(ask(node, "worker1.tf.local.", use_edns=0)) == []


def _at_rest(etcd, seconds):
    revision = etcd.revision()
    time.sleep(seconds * TIME_FACTOR)  # what must not happen has no event to wait for
    return etcd.revision() == revision


def test_paused_beyond_the_lease_and_cut_off(etcd, nodes):
    """The names of others, too: what was fresh when the process was stopped is not so when it wakes, and the first
    answer, to a question from before, says so."""
    with TcpProxy(etcd.client_port) as proxy:
        sleeper = nodes.start(corefile(proxy.endpoint, lease=2, options=["address 192.0.2.1"]))
        etcd.put("db.tf.local.", '{"ipv4":"198.51.100.1"}')
        wait_resolves([sleeper], "db.tf.local.", "198.51.100.1")
        for _ in range(5):
            sleeper.pause()
            proxy.cut()
            time.sleep(2.5)  # the length of the fault
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                sock.connect(("127.0.0.1", sleeper.port))
                sock.settimeout(10 * TIME_FACTOR)
                asked = [dns.message.make_query("db.tf.local.", "A", use_edns=0) for _ in range(40)]
                for query in asked:
                    sock.send(query.to_wire())
                sleeper.resume()
                for _ in asked:
                    assert extended_errors(dns.message.from_wire(sock.recv(65535))) == [EDE_STALE_ANSWER]
            proxy.restore()
            wait_until(lambda: extended_errors(ask(sleeper, "db.tf.local.", use_edns=0)) == [], 20, sleeper.logs)


# --- the machine stands still ---

@pytest.fixture
def clocks(directory):
    clocks = Clocks(directory)
    yield clocks
    clocks.close()


def first_words(node, address):
    """What the node says of itself in answer to questions that lay there while it was stopped."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("127.0.0.1", node.port))
        sock.settimeout(10 * TIME_FACTOR)
        asked = [query for _ in range(10) for query in queries(address).values()]
        for query in asked:
            sock.send(query.to_wire())
        node.resume()
        return {name_in(dns.message.from_wire(sock.recv(65535))) for _ in asked}


@pytest.mark.skipif("asan" in binary() or "tsan" in binary(), reason="a sanitizer wants to be the first library")
def test_a_virtual_machine_is_paused(etcd, nodes, clocks, directory):
    """CLOCK_BOOTTIME stands still with it, the wall clock is set on: no ownership before it is confirmed, while names
    and answers stay, and the program of on-claim is run for nothing that was not so."""
    log = f"{directory}/hook"
    hook = f"on-claim sh -c \"echo $IDETCD_EVENT >> {log}\""
    with TcpProxy(etcd.client_port) as proxy:
        text = corefile(proxy.endpoint, lease=30, options=["address 192.0.2.7", hook])
        node = nodes.make(text).launch(env=clocks.env).wait_answers()
        node.wait_owns(etcd)
        wait_tells(node, "worker1.tf.local.")
        before = etcd.pairs()[b"worker1.tf.local."]
        for round_number in (1, 2):
            node.pause()
            proxy.silence()
            time.sleep(3)  # the length of the fault
            clocks.set(boot=-3 * round_number)
            assert first_words(node, "192.0.2.7") == {None}
            assert extended_errors(ask(node, "worker1.tf.local.", use_edns=0)) == []
            assert answers(node, "worker1.tf.local.") == ["192.0.2.7"]
            proxy.listen()
            wait_tells(node, "worker1.tf.local.")
        assert etcd.pairs()[b"worker1.tf.local."] == before
        node.wait_logged("this machine has stood still", times=2)
    with open(log, encoding="utf-8") as file:
        assert file.read() == "claim\n"


@pytest.mark.skipif("asan" in binary() or "tsan" in binary(), reason="a sanitizer wants to be the first library")
def test_a_virtual_machine_is_paused_for_longer_than_the_lease(etcd, nodes, clocks):
    """Another has the name when it goes on, and no clock that counts leases has seen the pause."""
    sleeper = nodes.make(corefile(etcd.endpoint, lease=3, options=["address 192.0.2.1"])).launch(env=clocks.env).wait_answers()
    assert sleeper.wait_owns(etcd) == "worker1.tf.local."
    wait_tells(sleeper, "worker1.tf.local.", "192.0.2.1")
    sleeper.pause()
    began = time.monotonic()
    wait_until(lambda: not etcd.names(), 15, "the sleeper's lease to end", interval=0.05)
    other = nodes.start(corefile(etcd.endpoint, lease=3, options=["address 192.0.2.2"]))
    assert other.wait_owns(etcd) == "worker1.tf.local."
    clocks.set(boot=-(time.monotonic() - began))
    with Interrogator(sleeper, "192.0.2.1") as interrogator:
        assert first_words(sleeper, "192.0.2.1") == {None}
        assert sleeper.wait_owns(etcd, timeout=15) == "worker2.tf.local."
        wait_tells(sleeper, "worker2.tf.local.", "192.0.2.1")
    assert interrogator.claims() <= {None, "worker2.tf.local"}


def test_another_copy_of_this_process_has_its_lease(etcd, nodes):
    """Two copies that were resumed from one snapshot of memory: the one that finds a foreign incarnation under its lease
    stops at once, lets the lease be, and becomes another node."""
    node = nodes.start(corefile(etcd.endpoint, lease=20, options=["address 192.0.2.7"]))
    node.wait_owns(etcd)
    wait_tells(node, "worker1.tf.local.")
    pairs = etcd.pairs(internal=True)
    key = next(key for key in pairs if key.startswith(b"/idetcd/incarnation/"))
    assert pairs[key]["lease"] == pairs[b"worker1.tf.local."]["lease"]
    etcd.ctl("put", f"--lease={pairs[key]['lease']:x}", key.decode(), "the other copy's")
    wait_tells(node, "worker2.tf.local.")
    assert b"worker1.tf.local." in etcd.pairs(), "it is the other copy's"
    node.wait_logged("another copy of this process has its lease", times=1)
    assert len(etcd.leases()) in (1, 2), "not revoked; no process keeps it alive"
