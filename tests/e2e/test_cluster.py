"""The cluster names itself: what N nodes with one Corefile do together."""

import json
import random
import signal
import time

import pytest

from corefiles import SHORT_LEASE, corefile
from dns_client import answers, ask, assert_nxdomain, wait_gone, wait_resolves
from harness.processes import TIME_FACTOR, assert_takes_less, wait_until


def names(count, pattern="worker{}.tf.local."):
    return {pattern.format(i) for i in range(1, count + 1)}


def assert_everybody_knows(nodes, etcd):
    """Each node answers, for each name, what etcd holds for it, over UDP and TCP."""
    for name, value in etcd.names().items():
        for node in nodes:
            for family, rdtype in (("ipv4", "A"), ("ipv6", "AAAA")):
                expected = [value[family]] if family in value else []
                wait_until(lambda: answers(node, name, rdtype) == expected, 5,
                           lambda: f"{name} {rdtype} at {node.name} to be {expected}: {answers(node, name, rdtype)}")
                assert answers(node, name, rdtype, tcp=True) == expected


# --- the three scenarios of the Go plugin's own integration test ---

def test_five_nodes_look_each_other_up(etcd, nodes):
    cluster = nodes.start_cluster(corefile(etcd.endpoint, limit=5, options=["address 192.0.2.7 2001:db8::7"]), 5, etcd)
    assert set(etcd.names()) == names(5)
    for node in cluster:
        for name in names(5):
            wait_resolves([node], name, "192.0.2.7")
            assert answers(node, name, "AAAA") == ["2001:db8::7"]
            assert answers(node, name, "A", tcp=True) == ["192.0.2.7"]
            assert answers(node, name, "AAAA", tcp=True) == ["2001:db8::7"]


def test_a_fifth_node_comes_later(etcd, nodes):
    text = corefile(etcd.endpoint, limit=5, options=["address 192.0.2.7 2001:db8::7"])
    cluster = nodes.start_cluster(text, 4, etcd)
    assert set(etcd.names()) == names(4)
    for node in cluster:
        wait_resolves([node], "worker4.tf.local.", "192.0.2.7")
        assert_nxdomain(ask(node, "worker5.tf.local."), "tf.local.")
        assert_nxdomain(ask(node, "worker5.tf.local.", "AAAA"), "tf.local.")
    fifth = nodes.start(text)
    assert fifth.wait_owns(etcd) == "worker5.tf.local."
    wait_resolves([*cluster, fifth], "worker5.tf.local.", "192.0.2.7")
    wait_resolves([*cluster, fifth], "worker5.tf.local.", "2001:db8::7", "AAAA")


def test_a_dead_nodes_slot_is_taken_over(etcd, nodes):
    text = corefile(etcd.endpoint, limit=5)
    cluster = []
    for i in range(1, 5):  # one after the other: node i is worker i
        node = nodes.start(text)
        assert node.wait_owns(etcd) == f"worker{i}.tf.local."
        cluster.append(node)
    second = cluster.pop(1)
    second.kill()
    # The name is not given back: it lives as long as its lease.
    assert "worker2.tf.local." in etcd.names()
    wait_until(lambda: "worker2.tf.local." not in etcd.names(), 10, "worker2's lease to end")
    wait_gone(cluster, "worker2.tf.local.")

    newcomer = nodes.start(text)
    assert newcomer.wait_owns(etcd) == "worker2.tf.local."
    second.start()
    assert second.wait_owns(etcd) == "worker5.tf.local."
    assert set(etcd.names()) == names(5)
    assert_everybody_knows([*cluster, newcomer, second], etcd)


# --- coming and going ---

def test_sigterm_frees_the_name_at_once_and_leaves_nothing(etcd, nodes):
    cluster = nodes.start_cluster(corefile(etcd.endpoint, lease=20, options=["address 192.0.2.7"]), 3, etcd)
    first = next(node for node in cluster if node.owned_name(etcd) == "worker1.tf.local.")
    others = [node for node in cluster if node is not first]
    wait_resolves(others, "worker1.tf.local.", "192.0.2.7")

    def attempt(number):
        if number:
            assert first.start().wait_owns(etcd) == "worker1.tf.local."
            wait_resolves(others, "worker1.tf.local.", "192.0.2.7")
        begin = time.monotonic()
        first.signal(15)
        wait_gone(others, "worker1.tf.local.")
        took = time.monotonic() - begin
        assert first.exit_code(6) == 0
        return took
    assert_takes_less(1, attempt)

    for node in others:
        assert node.terminate() == 0
    assert etcd.pairs() == {}  # the generation that was noted last, and a beat, may stay
    assert etcd.leases() == []


def test_the_freed_name_goes_to_the_next_node(etcd, nodes):
    text = corefile(etcd.endpoint, lease=20)
    first, second = nodes.start(text), nodes.make(text)
    assert first.wait_owns(etcd) == "worker1.tf.local."
    assert second.start().wait_owns(etcd) == "worker2.tf.local."
    assert first.terminate() == 0
    third = nodes.start(text)
    assert third.wait_owns(etcd) == "worker1.tf.local."


@pytest.mark.serial
def test_fifty_nodes_started_at_once(etcd, nodes):
    text = corefile(etcd.endpoint, limit=50, lease=20, options=["address 192.0.2.7 2001:db8::7"])
    crowd = [nodes.make(text).launch() for _ in range(50)]
    wait_until(lambda: len(etcd.names()) >= 50, 60, lambda: f"50 names; there are {sorted(etcd.names())}", interval=0.1)
    held = etcd.names()
    assert set(held) == names(50)
    assert {value["port"] for value in held.values()} == {str(node.port) for node in crowd}, "each node holds one name"
    assert len({pair["lease"] for pair in etcd.pairs().values()}) == 50
    assert len({value["id"] for value in held.values()}) == 50
    assert set(etcd.pairs()) == {name.encode() for name in names(50)}, "no ticket is left"

    for node in crowd:
        node.wait_answers()
    wait_resolves(crowd, "worker50.tf.local.", "192.0.2.7")
    for node in crowd:
        for name in names(50):
            wait_resolves([node], name, "192.0.2.7")

    for node in crowd:
        node.signal(15)
    for node in crowd:
        assert node.exit_code(10) == 0
    assert etcd.pairs() == {}
    assert etcd.leases() == []


def test_nodes_that_all_wait_for_etcd(stopped_etcd, nodes):
    crowd = [nodes.start(corefile(stopped_etcd.endpoint, limit=20, lease=20)) for _ in range(20)]
    stopped_etcd.start()
    for node in crowd:
        node.wait_owns(stopped_etcd, timeout=20)
    assert set(stopped_etcd.names()) == names(20)
    assert set(stopped_etcd.pairs()) == {name.encode() for name in names(20)}, "no ticket is left"


def test_nodes_that_come_and_go_at_random(etcd, nodes):
    """Whatever happens on the way: in the end every node has one name, no two have the same, and nothing is left over."""
    random_ = random.Random(7)
    text = corefile(etcd.endpoint, limit=12, lease=2, options=["address 192.0.2.7", "when-full exit"])
    alive = []
    for _ in range(40):
        action = random_.random()
        if len(alive) < 4 or (action < 0.5 and len(alive) < 12):
            alive.append(nodes.make(text).launch())
        else:
            victim = alive.pop(random_.randrange(len(alive)))
            victim.signal(signal.SIGKILL if action < 0.75 else signal.SIGTERM)
        time.sleep(random_.random() * 0.15)
        held = [value["port"] for value in etcd.names().values()]
        assert len(held) == len(set(held)), "no node holds two names"
    # A slot of the killed stays taken for its lease; a newcomer that found none free has given up, which is right.
    wait_until(lambda: {value["port"] for value in etcd.names().values()} == {str(node.port) for node in alive if node.running()}
               and all(not key.startswith(b"/") for key in etcd.pairs()), 15, lambda: f"quiet: {etcd.pairs()}", interval=0.05)
    running = [node for node in alive if node.running()]
    for node in alive:
        if node not in running:
            assert "Could not have more than 12 nodes" in node.err(), node.logs()
    for name in etcd.names():
        wait_resolves(running, name, "192.0.2.7")
    assert len(etcd.leases()) == len(running)


def test_more_nodes_than_slots_started_at_once(etcd, nodes):
    text = corefile(etcd.endpoint, limit=4, options=["when-full exit"])
    crowd = [nodes.make(text).launch() for _ in range(7)]
    wait_until(lambda: sum(node.running() for node in crowd) == 4, 20, "three nodes to give up", interval=0.05)
    for node in crowd:
        if not node.running():
            assert node.exit_code(1) == 1
            assert "Could not have more than 4 nodes in your cluster." in node.err()
    wait_until(lambda: set(etcd.names()) == names(4), 10, lambda: f"four names; there are {sorted(etcd.names())}")
    assert len(etcd.pairs()) == 4
    assert len(etcd.leases()) == 4


def test_the_limit_refuses_the_sixth(etcd, nodes):
    text = corefile(etcd.endpoint, limit=5, lease=20, options=["when-full exit"])
    nodes.start_cluster(text, 5, etcd)
    sixth = nodes.make(text).launch()
    assert sixth.exit_code(10) == 1
    assert "Could not have more than 5 nodes in your cluster." in sixth.err()
    assert set(etcd.pairs()) == {name.encode() for name in names(5)}, "the ticket is gone"
    assert len(etcd.leases()) == 5, "the lease is gone"


def test_a_name_taken_by_hand_is_left_alone(etcd, nodes):
    etcd.ctl("put", "worker1.tf.local.", '{"ipv4":"198.51.100.1"}')
    etcd.ctl("put", "worker3.tf.local.", "not even a record")
    text = corefile(etcd.endpoint)
    cluster = nodes.start_cluster(text, 2, etcd)
    assert set(etcd.names()) == {"worker2.tf.local.", "worker4.tf.local."}
    wait_resolves(cluster, "worker1.tf.local.", "198.51.100.1")
    assert etcd.pairs()[b"worker3.tf.local."]["value"] == b"not even a record"


def test_default_limit_and_lease(etcd, nodes):
    text = """. {
    idetcd {
        endpoint %s
        pattern worker{{.ID}}.tf.local.
    }
}
""" % etcd.endpoint
    cluster = nodes.start_cluster(text, 10, etcd)
    eleventh = nodes.start(text)
    wait_until(lambda: "Could not have more than 10 nodes in your cluster." in eleventh.out(), 10, eleventh.logs)
    lease = etcd.pairs()[b"worker1.tf.local."]["lease"]
    assert etcd.granted_ttl(lease) == 20
    assert len(cluster) == 10


# --- what is in etcd ---

def test_key_and_value_are_the_go_plugins_and_who_has_which_slot(etcd, nodes):
    text = corefile(etcd.endpoint, options=["address 192.0.2.7 2001:db8::7"])
    node = nodes.start(text)
    node.wait_owns(etcd)
    pair = etcd.pairs()[b"worker1.tf.local."]
    value = json.loads(pair["value"])
    assert list(etcd.pairs()) == [b"worker1.tf.local."]
    assert len(value.pop("id")) == 36
    assert value == {"ipv4": "192.0.2.7", "ipv6": "2001:db8::7", "port": str(node.port), "slot": 1}
    assert etcd.granted_ttl(pair["lease"]) == SHORT_LEASE


def test_absent_families_are_omitted(etcd, nodes):
    node = nodes.start(corefile(etcd.endpoint, options=["address 192.0.2.7"]))
    node.wait_owns(etcd)
    value = etcd.names()["worker1.tf.local."]
    assert value["ipv4"] == "192.0.2.7" and "ipv6" not in value
    other = nodes.start(corefile(etcd.endpoint, options=["address 2001:db8::7"]))
    other.wait_owns(etcd)
    value = etcd.names()["worker2.tf.local."]
    assert value["ipv6"] == "2001:db8::7" and "ipv4" not in value
    wait_resolves([node], "worker2.tf.local.", "2001:db8::7", "AAAA")
    assert answers(node, "worker2.tf.local.", "A") == []


def test_a_kept_lease_rewrites_nothing(etcd, nodes):
    node = nodes.start(corefile(etcd.endpoint, lease=2))
    node.wait_owns(etcd)
    before = etcd.pairs()
    time.sleep(5)  # what must not happen has no event to wait for
    assert etcd.pairs() == before, "the lease is kept alive, not replaced"
    assert len(etcd.leases()) == 1


def test_a_go_plugins_node_is_seen_and_left_alone(etcd, nodes):
    """Both may be in one cluster while it is migrated: the same keys, no "id"."""
    lease = etcd.ctl("lease", "grant", "60").split()[1]
    etcd.ctl("put", "worker1.tf.local.", '{"ipv4":"192.0.2.21","ipv6":"2001:db8::21","port":"53"}', f"--lease={lease}")
    node = nodes.start(corefile(etcd.endpoint))
    assert node.wait_owns(etcd) == "worker2.tf.local."
    wait_resolves([node], "worker1.tf.local.", "192.0.2.21")
    wait_resolves([node], "worker1.tf.local.", "2001:db8::21", "AAAA")


# --- patterns ---

@pytest.mark.parametrize("pattern, first, third", [
    ('"worker{{ .ID }}.tf.local."', "worker1.tf.local.", "worker3.tf.local."),
    ('"node{{printf \\"%03d\\" .ID}}.tf.local."', "node001.tf.local.", "node003.tf.local."),
    ('node{{printf "%03d" .ID}}.tf.local.', "node001.tf.local.", "node003.tf.local."),
    ("{{.ID}}.tf.local.", "1.tf.local.", "3.tf.local."),
    ("1{{.ID}}{{.ID}}0.tf.local.", "1110.tf.local.", "1330.tf.local."),
    ('r{{ printf "%o" .ID }}-{{printf "%04X" .ID}}.TF.local.', "r1-0001.tf.local.", "r3-0003.tf.local."),
    ("worker{{.ID}}.rack7.tf.local", "worker1.rack7.tf.local.", "worker3.rack7.tf.local."),
])
def test_patterns(etcd, nodes, pattern, first, third):
    cluster = nodes.start_cluster(corefile(etcd.endpoint, pattern, options=["address 192.0.2.7"]), 3, etcd)
    assert first in etcd.names() and third in etcd.names()
    wait_resolves(cluster, first, "192.0.2.7")
    wait_resolves(cluster, third, "192.0.2.7")


@pytest.mark.serial
@pytest.mark.parametrize("limit", [1_000_000, 2_147_483_647])
def test_a_large_limit_costs_neither_time_nor_memory(etcd, nodes, limit):
    """The time is the best of five: how fast the node can be, whatever else the machine does."""
    small = nodes.start(corefile(etcd.endpoint, "few{{.ID}}.tf.local.", limit=1))
    small.wait_owns(etcd)
    times, memory = [], []
    for _ in range(5):
        node = nodes.make(corefile(etcd.endpoint, limit=limit))
        began = time.monotonic()
        node.launch()
        wait_until(node.answers, 10, lambda: f"{node.name} to answer\n{node.logs()}", interval=0.001)
        times.append(time.monotonic() - began)
        assert node.wait_owns(etcd) == "worker1.tf.local."
        memory.append(node.peak_memory())
        assert node.terminate() == 0
    assert min(times) < 0.1 * TIME_FACTOR, times
    assert min(memory) < small.peak_memory() + (4 << 20), (memory, small.peak_memory())


def test_keys_that_are_no_names_of_the_pattern_take_no_slots(etcd, nodes):
    """Of a billion slots the first thousand are held; what only looks like them holds none."""
    value = '{"ipv4":"192.0.2.9"}'
    etcd.put_many({f"worker{number}.tf.local.": value for number in range(1, 1001)})
    etcd.put_many({f"worker{text}.tf.local.": value for text in ("", "0", "01001", "1001-x", "-1001", "1000000001", "a")})
    etcd.put_many({"Worker1001.tf.local.": value, "worker1001.tf.local": value, "worker1001.": value})
    cluster = nodes.start_cluster(corefile(etcd.endpoint, limit=1_000_000_000, options=["address 192.0.2.7"]), 2, etcd)
    wait_resolves(cluster, "worker1001.tf.local.", "192.0.2.7")
    wait_resolves(cluster, "worker1002.tf.local.", "192.0.2.7")


def test_two_patterns_in_one_etcd_do_not_meet(etcd, nodes):
    workers = nodes.start_cluster(corefile(etcd.endpoint, limit=2, options=["address 192.0.2.1"]), 2, etcd)
    servers = nodes.start_cluster(
        corefile(etcd.endpoint, "ps{{.ID}}.tf.local.", limit=2, options=["address 192.0.2.2"]), 2, etcd)
    assert set(etcd.names()) == names(2) | names(2, "ps{}.tf.local.")
    for name, address in (("worker2.tf.local.", "192.0.2.1"), ("ps2.tf.local.", "192.0.2.2")):
        wait_resolves([*workers, *servers], name, address)


def test_one_process_may_hold_two_names(etcd, nodes):
    block = """{zone} {{
    idetcd {{
        endpoint {endpoint}
        pattern {pattern}
        lease 3s
        address 192.0.2.7
    }}
}}
"""
    text = (block.format(zone="tf.local", endpoint=etcd.endpoint, pattern="worker{{.ID}}.tf.local.")
            + block.format(zone="db.local", endpoint=etcd.endpoint, pattern="db{{.ID}}.db.local."))
    node = nodes.start(text)
    wait_until(lambda: set(etcd.names()) == {"worker1.tf.local.", "db1.db.local."}, 10, lambda: f"both: {etcd.pairs()}")
    wait_resolves([node], "worker1.tf.local.", "192.0.2.7")
    wait_resolves([node], "db1.db.local.", "192.0.2.7")
    assert node.terminate() == 0
    assert etcd.pairs() == {} and etcd.leases() == []


def test_a_block_with_two_ports_is_one_node(etcd, nodes, free_port):
    second = free_port()
    text = corefile(etcd.endpoint, options=["address 192.0.2.7"]).replace(". {", f"tf.local tf.local:{second} {{", 1)
    node = nodes.start(text)
    wait_resolves([node], "worker1.tf.local.", "192.0.2.7")
    assert answers(node, "worker1.tf.local.", port=second) == ["192.0.2.7"]
    assert len(etcd.pairs()) == 1 and len(etcd.leases()) == 1


def test_observe_serves_and_claims_nothing(etcd, nodes):
    node = nodes.start(corefile(etcd.endpoint))
    node.wait_owns(etcd)
    observer = nodes.start(corefile(etcd.endpoint, options=["observe"]))
    address = etcd.names()["worker1.tf.local."].get("ipv4")
    wait_until(lambda: answers(observer, "worker1.tf.local.") == ([address] if address else []), 5, "the observer to see worker1")
    assert set(etcd.pairs()) == {b"worker1.tf.local."} and len(etcd.leases()) == 1
    assert observer.terminate() == 0
    assert set(etcd.pairs()) == {b"worker1.tf.local."}
