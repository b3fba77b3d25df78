"""A name is a promise: whatever happens to etcd, to the key, to the way there or to this process, no two nodes say that
they are the same, a name is given up as soon as it is lost, and it is got back without a fight."""

import os
import random
import signal
import socket
import time

import dns.message
import pytest

from corefiles import corefile
from dns_client import answers, wait_gone, wait_resolves
from harness.clock import Clocks
from harness.node import binary
from harness.processes import TIME_FACTOR, wait_until
from harness.proxy import MessageLoss, TcpProxy
from identity import Interrogator, identity_file, name_in, queries, own_names
from test_etcd_faults import Questioner


def wait_tells(node, name, address="192.0.2.7", timeout=10):
    """Until the node says by every way that it is `name` (None: it has none)."""
    wait_until(lambda: set(own_names(node, address).values()) == {name.rstrip(".") if name else None}, timeout,
               lambda: f"{node.name} to be {name}: {own_names(node, address)}\n{node.logs()}")


# --- this process stands still ---

def test_paused_beyond_the_lease(etcd, nodes):
    """Another has the name when the node wakes: not even the first answer, to a question from before, claims it."""
    sleeper = nodes.start(corefile(etcd.endpoint, lease=2, options=["address 192.0.2.1"]))
    assert sleeper.wait_owns(etcd) == "worker1.tf.local."
    wait_tells(sleeper, "worker1.tf.local.", "192.0.2.1")
    sleeper.pause()
    wait_until(lambda: not etcd.names(), 10, "the sleeper's lease to end", interval=0.05)
    other = nodes.start(corefile(etcd.endpoint, lease=2, options=["address 192.0.2.2"]))
    assert other.wait_owns(etcd) == "worker1.tf.local."
    wait_tells(other, "worker1.tf.local.", "192.0.2.2")

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("127.0.0.1", sleeper.port))
        sock.settimeout(10 * TIME_FACTOR)
        asked = [query for _ in range(10) for query in queries("192.0.2.1").values()]
        for query in asked:
            sock.send(query.to_wire())
        with Interrogator(sleeper, "192.0.2.1") as interrogator, Interrogator(other, "192.0.2.2") as witness:
            sleeper.resume()
            waking = [name_in(dns.message.from_wire(sock.recv(65535))) for _ in asked]
            assert set(waking) == {None}
            assert sleeper.wait_owns(etcd, timeout=15) == "worker2.tf.local."
            wait_tells(sleeper, "worker2.tf.local.", "192.0.2.1")
        assert interrogator.claims() <= {None, "worker2.tf.local"}
        assert witness.claims() == {"worker1.tf.local"}
    assert other.owned_name(etcd) == "worker1.tf.local."


def test_paused_beyond_the_lease_and_the_name_is_still_free(etcd, nodes, directory):
    state = os.path.join(directory, "state")
    sleeper = nodes.start(corefile(etcd.endpoint, lease=2, options=["address 192.0.2.7", f"state {state}"]))
    assert sleeper.wait_owns(etcd) == "worker1.tf.local."
    wait_until(lambda: identity_file(state), 5, "the identity file")
    before = etcd.pairs()[b"worker1.tf.local."]["create_revision"]
    wait_until(lambda: identity_file(state).get("IDETCD_TOKEN") == str(before), 5, "the token")
    sleeper.pause()
    wait_until(lambda: not etcd.names(), 10, "the sleeper's lease to end", interval=0.05)
    sleeper.resume()
    assert sleeper.wait_owns(etcd, timeout=15) == "worker1.tf.local."
    wait_resolves([sleeper], "worker1.tf.local.", "192.0.2.7")
    after = etcd.pairs()[b"worker1.tf.local."]["create_revision"]
    assert after > before, "a higher token"
    wait_until(lambda: identity_file(state).get("IDETCD_TOKEN") == str(after), 5, "the new token in the identity file")


# --- what an operator does to the key and to the lease ---

def test_lease_revoked_by_an_operator(etcd, nodes):
    cluster = nodes.start_cluster(corefile(etcd.endpoint, lease=20, options=["address 192.0.2.7"]), 2, etcd)
    pair = etcd.pairs()[b"worker1.tf.local."]
    etcd.ctl("lease", "revoke", f"{pair['lease']:x}")
    wait_until(lambda: len(etcd.names()) == 2, 10, lambda: f"two names again: {etcd.pairs()}")
    after = etcd.pairs()
    assert after[b"worker1.tf.local."]["lease"] != pair["lease"]
    assert after[b"worker1.tf.local."]["create_revision"] > pair["create_revision"]
    assert set(after) == {b"worker1.tf.local.", b"worker2.tf.local."}
    wait_resolves(cluster, "worker1.tf.local.", "192.0.2.7")


@pytest.mark.parametrize("how", ["keepalive says TTL 0", "the key alone is gone"])
def test_the_loss_is_not_told_by_the_watch(etcd, nodes, how):
    """The event is lost on the way. A dead lease shows with the next keepalive; a key that is gone though the keepalive
    is fine with the next comparison."""
    loss = MessageLoss(b"worker1.tf.local.")
    reconcile = "1h" if how == "keepalive says TTL 0" else "2s"
    with TcpProxy(etcd.client_port, on_response=loss.filter) as proxy:
        node = nodes.start(corefile(proxy.endpoint, lease=3, options=["address 192.0.2.7", f"reconcile {reconcile}"]))
        node.wait_owns(etcd)
        wait_tells(node, "worker1.tf.local.")
        before = etcd.pairs()[b"worker1.tf.local."]
        loss.messages = 1
        if how == "keepalive says TTL 0":
            etcd.ctl("lease", "revoke", f"{before['lease']:x}")
        else:
            etcd.delete("worker1.tf.local.")
        wait_until(lambda: loss.lost == 1, 5, "the event to be lost")
        node.wait_owns(etcd, timeout=15)
        after = etcd.pairs()[b"worker1.tf.local."]
        assert after["create_revision"] > before["create_revision"]
        wait_tells(node, "worker1.tf.local.")
        lost = "lost worker1.tf.local.: " + ("etcd no longer knows its lease" if how == "keepalive says TTL 0" else "its key was deleted")
        node.wait_logged(lost, times=1)
        node.wait_logged("claimed again: worker1.tf.local.", times=1)
        assert len(etcd.leases()) == 1


def test_key_deleted_by_an_operator(etcd, nodes):
    """Not the owner at once, and one claim: with a pause before it, which grows when it happens again and again."""
    node = nodes.start(corefile(etcd.endpoint, lease=20, options=["address 192.0.2.7"]))
    node.wait_owns(etcd)
    wait_tells(node, "worker1.tf.local.")
    pauses = []
    with Interrogator(node, "192.0.2.7") as interrogator:
        for _ in range(4):
            before = etcd.pairs()[b"worker1.tf.local."]
            deleted = time.monotonic()  # the node may know of it before we do
            etcd.delete("worker1.tf.local.")
            revision = etcd.revision()
            node.wait_owns(etcd, timeout=15)
            pauses.append(time.monotonic() - deleted)
            wait_tells(node, "worker1.tf.local.")
            if len(pauses) > 2:  # half a second or more: a shorter one may pass while this process stands still
                assert None in interrogator.claims(since=deleted), "not the owner meanwhile"
            after = etcd.pairs()[b"worker1.tf.local."]
            assert after["create_revision"] > before["create_revision"] and after["lease"] != before["lease"]
            assert after["mod_revision"] - revision <= 4, "a ticket and a slot, and perhaps a beat and the generation between"
    assert interrogator.claims() == {"worker1.tf.local", None}
    node.wait_logged("lost worker1.tf.local.: its key was deleted", times=4)
    assert len(etcd.leases()) == 1, "the leases of before are given back"
    assert pauses[2] > 0.5 and pauses[3] > 1, pauses  # 1 s and 2 s, jittered by a half, after 0.25 s and 0.5 s


def test_key_overwritten_by_somebody_else(etcd, nodes):
    """It follows etcd, fights no write war, and takes another slot."""
    node = nodes.start(corefile(etcd.endpoint, lease=10, options=["address 192.0.2.7"]))
    assert node.wait_owns(etcd) == "worker1.tf.local."
    wait_tells(node, "worker1.tf.local.")
    with Interrogator(node, "192.0.2.7") as interrogator:
        etcd.ctl("put", "worker1.tf.local.", '{"ipv4":"198.51.100.66","port":"53"}')
        revision = etcd.revision()
        wait_resolves([node], "worker1.tf.local.", "198.51.100.66")
        wait_until(lambda: "worker1.tf.local" not in own_names(node, "192.0.2.7").values(), 2, node.logs)
        lost = time.monotonic()
        assert node.wait_owns(etcd, timeout=15) == "worker2.tf.local."
        wait_resolves([node], "worker2.tf.local.", "192.0.2.7")
        wait_tells(node, "worker2.tf.local.")
        time.sleep(3)  # a lease: what must not happen has no event to wait for
    pair, taken = (etcd.pairs()[key] for key in (b"worker1.tf.local.", b"worker2.tf.local."))
    assert pair["value"] == b'{"ipv4":"198.51.100.66","port":"53"}' and pair["version"] == 2 and pair["lease"] == 0
    assert taken["mod_revision"] - revision <= 4 and taken["version"] == 1, (
        "a ticket and a slot, and perhaps a beat and the generation between")
    told_since = interrogator.claims(since=lost)
    assert "worker1.tf.local" not in told_since, told_since
    node.wait_logged("lost worker1.tf.local.: its key was overwritten by somebody else", times=1)
    assert len(etcd.leases()) == 1


# --- the claim ---

@pytest.mark.parametrize("how", ["applied and unheard", "lost on the way", "answered too late"])
def test_claim_transaction_times_out(etcd, nodes, how):
    """However it went: one slot, one lease, and never two of either with a slot, also beside others that claim."""
    state = {"done": False}

    def make_filter():
        def on_request(octets):
            # Its own slot is named by the transaction that takes it, and by none before.
            if state["done"] or b"worker1.tf.local." not in octets:
                return octets
            state["done"] = True
            if how == "lost on the way":
                proxy.cut()
                return b""
            proxy.silence()
            return octets
        return on_request

    with TcpProxy(etcd.client_port, on_request=make_filter) as proxy:
        node = nodes.make(corefile(proxy.endpoint, lease=10, options=["address 192.0.2.7"])).launch()
        wait_until(lambda: state["done"], 15, "the claim to be sent")
        if how == "lost on the way":
            assert etcd.names() == {}
        else:
            wait_until(lambda: etcd.names(), 5, "the claim to be applied")
        assert set(own_names(node.wait_answers(), "192.0.2.7").values()) == {None}, "not before it is known"
        text = corefile(etcd.endpoint, lease=10, options=["address 192.0.2.8"])
        others = [nodes.make(text).launch() for _ in range(3)]
        for other in others:
            other.wait_owns(etcd)
        if how == "answered too late":
            time.sleep(7 * TIME_FACTOR)  # the length of the fault: a call takes at most 5 s
            proxy.listen()
        else:
            proxy.cut()
            proxy.restore()

        def at_rest():
            held = [value["port"] for value in etcd.names().values()]
            assert len(held) == len(set(held)), f"two slots: {etcd.pairs()}"
            return own_names(node, "192.0.2.7")["NSID"] and len(held) == 4 and len(etcd.pairs()) == 4
        wait_until(at_rest, 25, lambda: f"four names: {etcd.pairs()}\n{node.logs()}", interval=0.02)
        assert own_names(node, "192.0.2.7")["NSID"] + "." == node.owned_name(etcd)
        assert len(etcd.leases()) == 4
        assert set(etcd.names()) == {f"worker{i}.tf.local." for i in range(1, 5)}


def test_same_address_in_two_slots(etcd, nodes):
    """Both are served, each node says that the address is its own name, and both say that there is a doubt."""
    text = corefile(etcd.endpoint, options=["address 192.0.2.7 2001:db8::7"])
    cluster = nodes.start_cluster(text, 2, etcd)
    elsewhere = nodes.start(corefile(etcd.endpoint, options=["address 192.0.2.8"]))
    elsewhere.wait_owns(etcd)
    etcd.put("alias.tf.local.", '{"ipv4":"192.0.2.7"}')
    wait_resolves([*cluster, elsewhere], "alias.tf.local.", "192.0.2.7")
    for node in [*cluster, elsewhere]:
        for name in ("worker1.tf.local.", "worker2.tf.local."):
            wait_resolves([node], name, "192.0.2.7")
            assert answers(node, name, "AAAA") == ["2001:db8::7"]
    for node in cluster:
        own = node.owned_name(etcd)
        other = "worker2.tf.local." if own == "worker1.tf.local." else "worker1.tf.local."
        wait_tells(node, own)
        for _ in range(20):
            assert own_names(node, "192.0.2.7")["PTR"] + "." == own
            assert own_names(node, "2001:db8::7")["PTR"] + "." == own
        wait_until(lambda n=node, o=other: f"{o} has this node's address 192.0.2.7 too" in n.out(), 5, lambda n=node: n.logs())
        node.wait_logged("has this node's address", times=1)
    assert "has this node's address" not in elsewhere.out()


def test_slots_exhausted(etcd, nodes):
    """`when-full exit`: the Go plugin's error and exit; who only observes serves."""
    text = corefile(etcd.endpoint, limit=2, lease=20, options=["address 192.0.2.7", "when-full exit"])
    nodes.start_cluster(text, 2, etcd)
    before = etcd.pairs()
    refused = nodes.make(text).launch()
    assert refused.exit_code(10) == 1
    assert refused.err() == "plugin/idetcd: Could not have more than 2 nodes in your cluster.\n"
    observer = nodes.start(corefile(etcd.endpoint, limit=2, options=["observe", "address 192.0.2.9"]))
    wait_resolves([observer], "worker2.tf.local.", "192.0.2.7")
    assert set(own_names(observer, "192.0.2.9").values()) == {None}
    assert etcd.pairs() == before and len(etcd.leases()) == 2


def test_a_full_cluster_waits_in_order(etcd, nodes):
    """A node that finds no name serves, says so once, and takes the next name that becomes free: the oldest first, and at once."""
    def text(number):
        return corefile(etcd.endpoint, limit=2, lease=20, options=[f"address 192.0.2.{number}"])
    cluster = [nodes.start(text(number)) for number in (1, 2)]
    for node in cluster:
        node.wait_owns(etcd)
    waiting = []
    for number in (3, 4, 5):
        waiting.append(nodes.start(text(number)))
        wait_until(lambda n=number: len(etcd.pairs()) == n, 10, lambda: f"a ticket each: {etcd.pairs()}")
        wait_resolves([waiting[-1]], "worker1.tf.local.", "192.0.2.1")
        wait_until(lambda: "Could not have more than 2 nodes in your cluster." in waiting[-1].out(), 5, waiting[-1].logs)
        assert set(own_names(waiting[-1], f"192.0.2.{number}").values()) == {None}
    waiting[1].terminate()  # gives its place up
    wait_until(lambda: len(etcd.pairs()) == 4, 5, "its ticket to go")
    for going, next_one in ((cluster[1], waiting[0]), (cluster[0], waiting[2])):
        name = going.owned_name(etcd)
        assert going.terminate() == 0
        freed = time.monotonic()
        assert next_one.wait_owns(etcd) == name
        assert time.monotonic() - freed < 15, "and not when it asks now and then: a lease is 20 s"
        wait_tells(next_one, name, "192.0.2.3" if next_one is waiting[0] else "192.0.2.5")
    for node in (waiting[0], waiting[2]):
        node.wait_logged("Could not have more than", times=1)
    assert len(etcd.pairs()) == 2 and len(etcd.leases()) == 2


def test_who_cannot_use_what_is_free_holds_nobody_up(etcd, nodes):
    """The limit is raised on some nodes: those that wait with the old one stay behind, and have their turn below it."""
    def text(limit):
        return corefile(etcd.endpoint, limit=limit, lease=20, options=["address 192.0.2.7"])
    cluster = nodes.start_cluster(text(2), 2, etcd)
    low = []
    for number in (3, 4):
        low.append(nodes.start(text(2)))
        low[-1].wait_logged("Could not have more than 2 nodes in your cluster.")
        wait_until(lambda n=number: len(etcd.pairs()) == n, 10, lambda: f"a ticket each: {etcd.pairs()}")
    low[1].wait_logged("1 node waits before it.")
    high = [nodes.start(text(4)) for _ in range(2)]
    assert {node.wait_owns(etcd) for node in high} == {"worker3.tf.local.", "worker4.tf.local."}
    last = nodes.start(text(4))
    last.wait_logged("2 nodes wait before it.")

    # It stands still while it could take the next name: nobody passes it, and who waits for it says so.
    low[0].pause()
    assert cluster[0].terminate() == 0
    last.wait_logged("of the free names is left for this node: others wait longer (limit/node: 2/")
    low[0].resume()
    low[0].wait_owns(etcd)
    assert high[0].terminate() == 0
    last.wait_owns(etcd)  # before the one that cannot use it
    assert cluster[1].terminate() == 0
    low[1].wait_owns(etcd)
    assert len(etcd.pairs()) == 4 and len(etcd.leases()) == 4


def test_all_killed_and_back_in_a_full_cluster(etcd, nodes):
    """Without a state directory: every node serves while the old names are still taken, and has one of them after that."""
    text = corefile(etcd.endpoint, limit=6, lease=4, options=["address 192.0.2.7"])
    cluster = nodes.start_cluster(text, 6, etcd)
    before = {value["id"] for value in etcd.names().values()}
    for node in cluster:
        node.kill()
    for node in cluster:
        node.launch()
    for node in cluster:
        node.wait_answers()
        wait_resolves([node], "worker6.tf.local.", "192.0.2.7")
    def back():
        held = etcd.names().values()
        return (not before & {value["id"] for value in held} and {value["port"] for value in held} == {str(node.port) for node in cluster}
                and len(etcd.leases()) == 6)
    wait_until(back, 20, lambda: f"a name each: {etcd.pairs()}")
    assert set(etcd.names()) == {f"worker{number}.tf.local." for number in range(1, 7)}
    assert all(node.running() for node in cluster)


def test_an_own_value_without_the_lease_is_nobodys(etcd, nodes):
    node = nodes.start(corefile(etcd.endpoint, limit=2, options=["address 192.0.2.7"]))
    assert node.wait_owns(etcd) == "worker1.tf.local."
    wait_tells(node, "worker1.tf.local.")
    value = etcd.pairs()[b"worker1.tf.local."]["value"].decode()
    etcd.ctl("put", "worker1.tf.local.", value)
    wait_tells(node, "worker2.tf.local.")
    pair = etcd.pairs()[b"worker1.tf.local."]
    assert pair["value"].decode() == value and pair["lease"] == 0
    held = "worker1.tf.local. is held by a key without a lease"
    wait_until(lambda: held in node.out(), 5, node.logs)
    other = nodes.start(corefile(etcd.endpoint, limit=2, options=["address 192.0.2.8"]))
    wait_until(lambda: "Could not have more than 2 nodes in your cluster." in other.out(), 5, other.logs)
    line = next(line for line in other.out().splitlines() if "Could not have more" in line)
    assert "worker1.tf.local." in line and "worker2.tf.local." not in line, line
    etcd.delete("worker1.tf.local.")
    assert other.wait_owns(etcd) == "worker1.tf.local."
    assert node.owned_name(etcd) == "worker2.tf.local." and node.out().count(held) == 1


LAST = "h9999.tf.local."  # of these names, as etcd orders them


class SlowLine:
    """Lets so many bytes a second through."""

    def __init__(self, octets_per_second):
        self.rate = octets_per_second

    def filter(self):
        def passed_on(octets):
            time.sleep(len(octets) / self.rate)
            return octets
        return passed_on


def test_a_name_does_not_wait_for_the_first_snapshot(etcd, nodes, directory):
    """There are many names, and the line is slow: what a quorum has shown of the own key is enough until then. When the
    watch is there nothing changes; and a key that vanishes meanwhile is not this node's."""
    etcd.put_many({f"h{i}.tf.local.": '{"ipv4":"198.51.100.1"}' for i in range(40_000)})
    line = SlowLine(80_000)
    log = f"{directory}/hook"
    hook = f'on-claim sh -c "echo $IDETCD_EVENT >> {log}"'
    with TcpProxy(etcd.client_port, on_response=line.filter) as proxy, \
            TcpProxy(etcd.client_port, on_response=line.filter) as other_proxy:
        node = nodes.start(corefile(proxy.endpoint, lease=20, options=["address 192.0.2.7", hook]))
        robbed = nodes.start(corefile(other_proxy.endpoint, lease=20, options=["address 192.0.2.8"]))
        for which in (node, robbed):
            which.wait_owns(etcd)
            wait_tells(which, which.owned_name(etcd), "192.0.2.7" if which is node else "192.0.2.8")
            assert answers(which, LAST) == "SERVFAIL", "the snapshot is not there yet"
        name = node.owned_name(etcd).rstrip(".")
        with Interrogator(node, "192.0.2.7") as interrogator:
            etcd.delete(robbed.owned_name(etcd))
            wait_until(lambda: own_names(robbed, "192.0.2.8")["NSID"] is None, 10, robbed.logs)
            assert answers(robbed, LAST) == "SERVFAIL", "that took less than the snapshot"
            line.rate = 100_000_000
            wait_resolves([node, robbed], LAST, "198.51.100.1", timeout=20)
            wait_resolves([node], "worker1.tf.local.", "192.0.2.7" if name.startswith("worker1.") else "192.0.2.8")
            wait_tells(robbed, robbed.wait_owns(etcd), "192.0.2.8")
            time.sleep(1)  # what must not happen has no event to wait for
        assert {said for way, said, _, _ in interrogator.answers if way != "PTR"} == {name}
    with open(log, encoding="utf-8") as file:
        assert file.read() == "claim\n"


# --- end and return ---

def test_crash_and_quick_restart(etcd, nodes, directory):
    """With a state directory: the same name, under a higher token, long before the lease of before ends, whatever else is
    there and in whatever order they come."""
    def text(number):
        return corefile(etcd.endpoint, lease=60, options=[f"address 192.0.2.{number}", f"state {directory}/state{number}"])
    cluster = []
    for number in range(1, 5):
        cluster.append(nodes.start(text(number)))
        assert cluster[-1].wait_owns(etcd) == f"worker{number}.tf.local."
    observer = nodes.start(corefile(etcd.endpoint, options=["observe"]))
    before = etcd.pairs()
    for number in range(1, 5):
        wait_until(lambda n=number: identity_file(f"{directory}/state{n}"), 5, "the identity file")
        wait_resolves([observer], f"worker{number}.tf.local.", f"192.0.2.{number}")
    with Questioner(observer, "worker3.tf.local.", "192.0.2.3") as questioner:
        for node in cluster:
            node.kill()
        newcomer = nodes.start(corefile(etcd.endpoint, options=["address 192.0.2.9"]))
        assert newcomer.wait_owns(etcd) == "worker5.tf.local."
        order = list(cluster)
        random.Random(3).shuffle(order)
        for node in order:
            node.launch()
        for number, node in enumerate(cluster, 1):
            node.wait_answers()
            wait_tells(node, f"worker{number}.tf.local.", f"192.0.2.{number}", timeout=20)
    assert questioner.bad == [], "the name was there all the time"
    after = etcd.pairs()
    for key, pair in before.items():
        assert after[key]["token"] > pair["token"], "another process is another holder"
        assert after[key]["lease"] != pair["lease"], "not bound to the end of the old lease"
    assert set(after) - set(before) == {b"worker5.tf.local."}
    assert not [key for key in etcd.pairs(internal=True) if key.startswith(b"/idetcd/token/")], "the store was not set back"
    wait_until(lambda: len(etcd.leases()) <= 9, 5, "no lease but the old ones and the new ones")


def test_sigterm(etcd, nodes, directory):
    """The name is gone elsewhere while the rest of the end takes its time."""
    hook = 'on-claim sh -c "test $IDETCD_EVENT = claim || sleep 60"'
    cluster = nodes.start_cluster(corefile(etcd.endpoint, lease=60, options=["address 192.0.2.7", hook]), 2, etcd)
    going, staying = cluster
    name = going.owned_name(etcd)
    wait_resolves([staying], name, "192.0.2.7")
    going.signal(signal.SIGTERM)
    wait_gone([staying], name)
    assert going.running(), "before the program for the loss has ended"
    assert going.exit_code(15) == 0
    assert going.owned_name(etcd) is None and len(etcd.leases()) == 1


# --- the clock ---

@pytest.fixture
def wall_clock(directory):
    clocks = Clocks(directory)
    yield clocks
    clocks.close()


@pytest.mark.skipif("asan" in binary() or "tsan" in binary(), reason="a sanitizer wants to be the first library")
def test_our_clock_steps_by_an_hour(etcd, nodes, directory, wall_clock):
    """On and back: no lease, no deadline, no age of the data and no timer takes notice, not even of what was under way. A
    step on looks like a pause of the machine: the name is confirmed before it is said again, which changes nothing else;
    and when etcd goes and comes after that, all is as ever. That the node does see the other time shows in the file of
    names, which bears the date."""
    state = os.path.join(directory, "state")
    lease = 5
    text = corefile(etcd.endpoint, lease=lease, options=["address 192.0.2.7", f"state {state}"])
    node = nodes.make(text).launch(env=wall_clock.env).wait_answers()
    node.wait_owns(etcd)
    wait_tells(node, "worker1.tf.local.")
    before = etcd.pairs()[b"worker1.tf.local."]
    with Questioner(node, "worker1.tf.local.", "192.0.2.7") as questioner, Interrogator(node, "192.0.2.7") as interrogator:
        for step, seconds in enumerate((3600, -3600, 0, -3600)):
            wall_clock.set(seconds)
            time.sleep(1.2 * lease)  # more than a lease: what must not happen has no event to wait for
            etcd.put("extra.tf.local.", '{"ipv4":"198.51.100.%d"}' % step)
            wait_resolves([node], "extra.tf.local.", f"198.51.100.{step}")
    assert questioner.bad == [] and questioner.stale == []
    assert interrogator.claims() <= {"worker1.tf.local", None}
    assert node.out().count("confirming the name") <= 2, "the steps on, and no other"
    assert etcd.pairs()[b"worker1.tf.local."] == before
    said = [line for line in node.out().splitlines() if "[WARNING]" in line or "[ERROR]" in line]
    of_a_busy_machine = (" is away", " s to answer", "for the time being")
    assert not [line for line in said if not any(text in line for text in of_a_busy_machine)], node.logs()

    etcd.kill()
    wait_tells(node, None)
    wall_clock.set(-7200)
    etcd.start()
    node.wait_owns(etcd, timeout=15)
    wait_tells(node, "worker1.tf.local.", timeout=15)
    etcd.put("extra.tf.local.", '{"ipv4":"198.51.100.99"}')
    wait_resolves([node], "extra.tf.local.", "198.51.100.99", timeout=15)
    assert node.terminate() == 0  # and writes the names
    etcd.stop()
    again = nodes.start(text)
    wait_until(lambda: "names as they were known" in again.out(), 5, lambda: again.logs())
    age_seconds = int(again.out().split("names as they were known ")[1].split()[0])
    assert 7200 <= age_seconds < 7200 + 120, again.logs()
