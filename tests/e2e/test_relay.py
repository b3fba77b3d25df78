"""Nodes that have the names of all from another node."""

import json
import signal

import pytest

from corefiles import corefile
from dns_client import wait_gone, wait_resolves
from harness import ports
from harness.metrics import Metrics
from harness.peers import cluster_of, run
from harness.processes import wait_until

COUNT = 8
RELAYS = b"/idetcd/relay/worker{{.ID}}.tf.local./"


class Cluster:
    """Every other node is a relay."""

    def __init__(self, etcd, nodes):
        self.etcd = etcd
        self.scrape_ports = {}
        self.nodes = []
        for _ in range(COUNT):
            port = ports.free_port()
            node = nodes.make(corefile(etcd.endpoint, limit=COUNT + 2, lease=20, options=["relay 2", "address 127.0.0.1"],
                                       directives=[f"prometheus 127.0.0.1:{port}"]))
            self.scrape_ports[node] = port
            self.nodes.append(node.launch())
        for node in self.nodes:
            node.wait_answers()
            node.wait_owns(etcd)

    def metric(self, node, name):
        return Metrics.of(self.scrape_ports[node]).sum(name)

    def number(self, node):
        return int(node.owned_name(self.etcd)[len("worker"):].partition(".")[0])

    def readers(self):
        return [node for node in self.nodes if node.running() and self.number(node) % 2 == 0]

    def relays(self):
        return [node for node in self.nodes if node.running() and self.number(node) % 2 == 1]

    def listed(self):
        """Key -> card."""
        return {key.decode(): json.loads(pair["value"]) for key, pair in self.etcd.pairs(internal=True).items()
                if key.startswith(RELAYS)}

    def move_to_relays(self):
        """A node looks for a relay when its watch is opened: by the connection that breaks."""
        wait_until(lambda: len(self.listed()) == COUNT // 2, 30, "the relays to be listed")
        self.etcd.kill()
        self.etcd.start()
        self.wait_relayed(self.readers())
        wait_until(lambda: sum(self.metric(node, "idetcd_relay_readers") for node in self.relays()) == COUNT // 2, 30,
                   "the relays to count their readers")

    def wait_relayed(self, readers):
        wait_until(lambda: all(self.metric(node, "idetcd_relayed") == 1 for node in readers), 60,
                   lambda: "all to have a relay\n" + "\n".join(node.logs(tail=20) for node in self.nodes))

    def show_change(self, nodes, name="extra.tf.local."):
        self.etcd.put(name, '{"ipv4":"198.51.100.1"}')
        wait_resolves(nodes, name, "198.51.100.1")
        self.etcd.delete(name)
        wait_gone(nodes, name)

    def close(self):
        for port in self.scrape_ports.values():
            ports.release(port)


@pytest.fixture
def cluster(etcd, nodes):
    made = Cluster(etcd, nodes)
    made.move_to_relays()
    yield made
    made.close()


def test_names_come_from_relays(cluster):
    assert {cluster.metric(node, "idetcd_relayed") for node in cluster.relays()} == {0}
    assert {cluster_of(node)["relay"] for node in cluster.relays()} == {None}
    places = {place for card in cluster.listed().values() for place in card["endpoints"]}
    for node in cluster.readers():
        assert cluster_of(node)["relay"] in places
        assert "the relay at https://127.0.0.1:" in run(node, "status")[1]
    cluster.show_change(cluster.nodes)
    left = {node: cluster.metric(node, "idetcd_max_descriptors") for node in cluster.nodes}
    assert max(left[node] for node in cluster.relays()) + 60 < min(left[node] for node in cluster.readers()), \
        "80 are for the connections of readers"
    for node in cluster.nodes:
        for number in range(1, COUNT + 1):
            wait_resolves([node], f"worker{number}.tf.local.", "127.0.0.1")


def test_a_relay_that_dies_costs_a_reconnect(cluster):
    victim = next(node for node in cluster.relays() if cluster.metric(node, "idetcd_relay_readers"))
    victim.kill()
    alive = [node for node in cluster.nodes if node is not victim]
    cluster.show_change(alive)
    assert {cluster.metric(node, "idetcd_names_fresh") for node in alive} == {1}
    assert {cluster.metric(node, "idetcd_snapshots_total") for node in alive} == {1}, "nothing is read anew"


def test_a_relay_that_stands_still_is_left(cluster):
    victim = next(node for node in cluster.relays() if cluster.metric(node, "idetcd_relay_readers"))
    victim.signal(signal.SIGSTOP)
    alive = [node for node in cluster.nodes if node is not victim]
    cluster.show_change(alive)
    victim.signal(signal.SIGCONT)


def test_a_reader_that_stands_still_holds_up_nobody(cluster):
    victim = cluster.readers()[0]
    victim.signal(signal.SIGSTOP)
    cluster.show_change([node for node in cluster.nodes if node is not victim])
    victim.signal(signal.SIGCONT)
    cluster.show_change([victim])


def test_a_wrong_token_is_refused(cluster):
    for key, card in cluster.listed().items():
        cluster.etcd.ctl("put", "--ignore-lease", key, json.dumps({**card, "secret": "0" * len(card["secret"])}))
    cluster.etcd.kill()
    cluster.etcd.start()
    wait_until(lambda: all(cluster.metric(node, "idetcd_relayed") == 0 for node in cluster.readers()), 60,
               "all to have their names from etcd")
    cluster.show_change(cluster.nodes)
    assert sum(cluster.metric(node, "idetcd_relay_refused_total") for node in cluster.relays()) > 0
    assert sum(node.logs().count("has not this relay's token") for node in cluster.relays()) > 0


def test_the_end_of_a_relay_leaves_no_key(cluster):
    victim = cluster.relays()[0]
    assert victim.terminate() == 0
    wait_until(lambda: len(cluster.listed()) == COUNT // 2 - 1, 30, "the relay to be listed no more")
    cluster.show_change([node for node in cluster.nodes if node is not victim])


def test_a_large_cluster_has_relays_by_itself(etcd, nodes):
    for number in range(4, 204):
        etcd.put(f"worker{number}.tf.local.", '{"ipv4":"192.0.2.1"}')

    def start(*options):
        node = nodes.make(corefile(etcd.endpoint, limit=300, options=["address 127.0.0.1", *options])).start()
        return node, node.wait_owns(etcd)

    first, name = start()
    assert name == "worker1.tf.local."
    first.wait_logged("this node serves all names to others, as a relay")
    second, _ = start()
    wait_until(lambda: cluster_of(second)["relay"], 30, second.logs)
    third, _ = start("relay 0")
    wait_resolves([first, second, third], "worker203.tf.local.", "192.0.2.1")
    assert cluster_of(third)["relay"] is None
