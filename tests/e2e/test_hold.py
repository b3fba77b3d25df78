"""`hold`: a name waits for its node while that is away."""

import json
import time

import pytest

from corefiles import corefile
from harness.processes import wait_until
from harness.state import State
from test_cli import run

WORKER1 = "worker1.tf.local."
LEASE = 5


@pytest.fixture
def start(etcd, nodes, directory):
    def start(number, hold="1h"):
        text = corefile(etcd.endpoint, lease=LEASE, limit=2, options=[State(f"{directory}/state{number}").option,
                                                                     f"address 192.0.2.{number}", f"hold {hold}"])
        return nodes.start(text, f"node{number}")
    return start


def ended(etcd, node):
    """Killed, and its lease is over: a moment before that."""
    node.kill()
    before = []

    def is_over():
        now = time.monotonic()
        if WORKER1.encode() not in etcd.pairs():
            return True
        before[:] = [now]
        return False
    wait_until(is_over, 30, "the lease to end")
    return before[0]


def cluster(node):
    code, out, err = run(node, "members", "--json")
    assert code == 0, err
    return json.loads(out)["clusters"][0]


def two_and_a_spare(start, etcd, **options):
    first = start(1, **options)
    first.wait_owns(etcd)
    second = start(2, **options)
    second.wait_owns(etcd)
    spare = start(3, **options)
    spare.wait_logged("waits for the next name")
    return first, second, spare


def test_a_node_that_comes_back_has_its_name_though_another_waits(start, etcd):
    first, second, _ = two_and_a_spare(start, etcd)
    node_id = cluster(first)["slots"][0]["node"]
    for _ in range(2):  # the second reservation is the first one's successor
        ended(etcd, first)
        assert [slot["id"] for slot in cluster(second)["slots"]] == [2]
        reserved = cluster(second)["reserved"]
        assert [(slot["name"], slot["node"], slot["reserved"]) for slot in reserved] == [(WORKER1, node_id, True)]
        assert 3600 * 0.99 < reserved[0]["lease_left_seconds"] <= 3600 * 1.25
        assert "1 of the others wait" in run(second, "members")[1]
        assert run(second, "hostfile")[1].split() == ["worker2.tf.local"]
        first.start()
        assert first.wait_owns(etcd) == WORKER1
        assert cluster(first)["slots"][0]["node"] == node_id and cluster(first)["reserved"] == []
    wait_until(lambda: len(etcd.leases()) == 6, 30, lambda: f"{etcd.leases()}: one for each node, and for what each reserves")
    first.terminate()
    assert [slot["name"] for slot in cluster(second)["reserved"]] == [WORKER1], "at an orderly end too"


def test_an_operator_frees_a_reserved_name_at_once(start, etcd):
    first, second, spare = two_and_a_spare(start, etcd)
    ended(etcd, first)
    assert run(second, "release", "worker1.tf.local", "--yes", "worker1.tf.local")[0] == 0
    assert spare.wait_owns(etcd, timeout=30) == WORKER1
    # Of a node that lives, too: the one that waits has the name, since it waits longer.
    first.start()
    first.wait_logged("waits for the next name", times=1)
    assert run(second, "release", "worker1.tf.local", "--yes", "worker1.tf.local")[0] == 0
    assert first.wait_owns(etcd, timeout=30) == WORKER1


def test_a_reservation_ends(start, etcd):
    first, _, spare = two_and_a_spare(start, etcd, hold="6s")
    at = ended(etcd, first)
    assert spare.wait_owns(etcd, timeout=60) == WORKER1
    assert time.monotonic() - at >= 5.5
