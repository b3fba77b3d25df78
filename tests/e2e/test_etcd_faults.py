"""etcd comes late, goes away, stalls, comes back: serving never waits for it."""

import threading
import time

import pytest

from corefiles import corefile
from dns_client import (EDE_NOT_READY, EDE_STALE_ANSWER, answers, ask, extended_errors, rcode, resolves, wait_gone,
                        wait_resolves)
from harness.processes import wait_until


class Questioner:
    """Asks one name over and over from another thread; `bad` collects what was not the expected answer."""

    def __init__(self, node, name, address):
        self.node, self.name, self.address = node, name, address
        self.asked, self.bad = 0, []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        while not self._end.wait(0.005):
            try:
                answer = answers(self.node, self.name)
            except Exception as error:  # pylint: disable=broad-except
                answer = repr(error)
            self.asked += 1
            if answer != [self.address]:
                self.bad.append(answer)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()


def test_etcd_starts_after_the_nodes(stopped_etcd, nodes):
    text = corefile(stopped_etcd.endpoint, options=["address 192.0.2.7"])
    cluster = [nodes.start(text) for _ in range(3)]
    for node in cluster:
        for tcp in (False, True):
            # Unknown is not non-existent.
            response = ask(node, "worker1.tf.local.", tcp=tcp, use_edns=0)
            assert rcode(response) == "SERVFAIL"
            assert extended_errors(response) == [EDE_NOT_READY]
            assert rcode(ask(node, "worker1.tf.local.", tcp=tcp)) == "SERVFAIL"
            assert rcode(ask(node, "example.org.", tcp=tcp)) == "REFUSED"
    stopped_etcd.start()
    for node in cluster:
        node.wait_owns(stopped_etcd, timeout=20)
    assert set(stopped_etcd.names()) == {f"worker{i}.tf.local." for i in (1, 2, 3)}
    wait_resolves(cluster, "worker3.tf.local.", "192.0.2.7")
    response = ask(cluster[0], "worker3.tf.local.", use_edns=0)
    assert extended_errors(response) == []


def test_sigterm_before_etcd_was_ever_there(stopped_etcd, nodes):
    node = nodes.start(corefile(stopped_etcd.endpoint))
    assert node.terminate(timeout=6) == 0


def test_sigterm_while_etcd_is_paused(etcd, nodes):
    node = nodes.start(corefile(etcd.endpoint))
    node.wait_owns(etcd)
    etcd.pause()
    assert node.terminate(timeout=7) == 0, "the drain is bounded"
    etcd.resume()


def test_etcd_restarted(etcd, nodes):
    text = corefile(etcd.endpoint, lease=20, options=["address 192.0.2.7"])
    cluster = nodes.start_cluster(text, 2, etcd)
    before = etcd.pairs()
    wait_resolves(cluster, "worker1.tf.local.", "192.0.2.7")
    with Questioner(cluster[0], "worker1.tf.local.", "192.0.2.7") as questioner:
        etcd.kill()
        wait_until(lambda: questioner.asked > 50, 10, "fifty answers without etcd")
        etcd.start()
        etcd.put("extra.tf.local.", '{"ipv4":"198.51.100.1"}')
        wait_resolves(cluster, "extra.tf.local.", "198.51.100.1", timeout=15)
    assert questioner.bad == []
    etcd.delete("extra.tf.local.")
    assert etcd.pairs() == before, "the slots are kept"


def test_etcd_is_away_for_longer_than_the_lease(etcd, nodes):
    text = corefile(etcd.endpoint, lease=2, options=["address 192.0.2.7"])
    cluster = nodes.start_cluster(text, 2, etcd)
    wait_resolves(cluster, "worker2.tf.local.", "192.0.2.7")
    with Questioner(cluster[0], "worker2.tf.local.", "192.0.2.7") as questioner:
        etcd.pause()
        # What was known is still answered, and said to be old.
        for node in cluster:
            wait_until(lambda n=node: extended_errors(ask(n, "worker2.tf.local.", use_edns=0)) == [EDE_STALE_ANSWER], 10,
                       lambda n=node: f"a stale answer\n{n.logs()}", interval=0.05)
    assert questioner.bad == []
    etcd.resume()
    for node in cluster:
        node.wait_owns(etcd, timeout=20)
        wait_until(lambda n=node: extended_errors(ask(n, "worker2.tf.local.", use_edns=0)) == [], 15, "a fresh answer",
                   interval=0.05)
    assert set(etcd.names()) == {"worker1.tf.local.", "worker2.tf.local."}


def test_a_short_pause_of_etcd_is_not_noticed(etcd, nodes):
    node = nodes.start(corefile(etcd.endpoint, lease=10, options=["address 192.0.2.7"]))
    node.wait_owns(etcd)
    wait_resolves([node], "worker1.tf.local.", "192.0.2.7")
    before = etcd.pairs()
    with Questioner(node, "worker1.tf.local.", "192.0.2.7") as questioner:
        etcd.pause()
        wait_until(lambda: questioner.asked > 100, 10, "a hundred answers")
        etcd.resume()
        etcd.put("extra.tf.local.", '{"ipv4":"198.51.100.1"}')
        wait_resolves([node], "extra.tf.local.", "198.51.100.1")
    assert questioner.bad == []
    etcd.delete("extra.tf.local.")
    assert etcd.pairs() == before


def test_a_node_that_slept_over_its_lease_takes_another_name_if_it_must(etcd, nodes):
    text = corefile(etcd.endpoint, lease=2, limit=3, options=["address 192.0.2.7"])
    sleeper = nodes.start(text)
    assert sleeper.wait_owns(etcd) == "worker1.tf.local."
    sleeper.pause()
    wait_until(lambda: not etcd.names(), 10, "the sleeper's lease to end", interval=0.05)
    other = nodes.start(text)
    assert other.wait_owns(etcd) == "worker1.tf.local."
    sleeper.resume()
    assert sleeper.wait_owns(etcd, timeout=15) == "worker2.tf.local."
    assert other.owned_name(etcd) == "worker1.tf.local."


def test_a_node_that_slept_over_its_lease_gets_its_name_back_if_it_is_free(etcd, nodes):
    sleeper = nodes.start(corefile(etcd.endpoint, lease=2, options=["address 192.0.2.7"]))
    assert sleeper.wait_owns(etcd) == "worker1.tf.local."
    sleeper.pause()
    wait_until(lambda: not etcd.names(), 10, "the sleeper's lease to end", interval=0.05)
    sleeper.resume()
    assert sleeper.wait_owns(etcd, timeout=15) == "worker1.tf.local."
    wait_resolves([sleeper], "worker1.tf.local.", "192.0.2.7")


def test_a_lease_revoked_by_an_operator(etcd, nodes):
    cluster = nodes.start_cluster(corefile(etcd.endpoint, lease=20, options=["address 192.0.2.7"]), 2, etcd)
    pair = etcd.pairs()[b"worker1.tf.local."]
    etcd.ctl("lease", "revoke", f"{pair['lease']:x}")
    wait_until(lambda: len(etcd.names()) == 2, 10, lambda: f"two names again: {etcd.pairs()}")
    after = etcd.pairs()
    assert after[b"worker1.tf.local."]["lease"] != pair["lease"]
    assert after[b"worker1.tf.local."]["create_revision"] > pair["create_revision"]
    assert set(after) == {b"worker1.tf.local.", b"worker2.tf.local."}
    wait_resolves(cluster, "worker1.tf.local.", "192.0.2.7")


def test_etcd_has_no_space_left(stopped_etcd, nodes):
    """Slots are kept, as keepalives need no space; a newcomer gets none, and serves the names of the others."""
    stopped_etcd.start(["--quota-backend-bytes", str(4 << 20)])
    etcd = stopped_etcd
    text = corefile(etcd.endpoint, lease=2, options=["address 192.0.2.7"])
    node = nodes.start(text)
    node.wait_owns(etcd)
    filled = False
    for i in range(20):
        try:
            etcd.put(f"/fill/{i}", "x" * (1 << 20))
        except AssertionError:
            filled = True
            break
    assert filled
    before = etcd.pairs()[b"worker1.tf.local."]
    newcomer = nodes.start(text)
    wait_resolves([newcomer], "worker1.tf.local.", "192.0.2.7")
    time.sleep(4)  # two leases
    assert etcd.pairs()[b"worker1.tf.local."] == before
    assert newcomer.running() and newcomer.owned_name(etcd) is None
    assert answers(node, "worker1.tf.local.") == ["192.0.2.7"]
    etcd.ctl("del", "--prefix", "/fill/")
    etcd.compact()
    etcd.ctl("defrag")
    etcd.ctl("alarm", "disarm")
    assert newcomer.wait_owns(etcd, timeout=30) == "worker2.tf.local."


def test_compacted_while_the_node_was_away(etcd, nodes):
    node = nodes.start(corefile(etcd.endpoint, lease=20, options=["address 192.0.2.7"]))
    node.wait_owns(etcd)
    etcd.put("old.tf.local.", '{"ipv4":"198.51.100.1"}')
    wait_resolves([node], "old.tf.local.", "198.51.100.1")
    node.pause()
    etcd.delete("old.tf.local.")
    etcd.put("new.tf.local.", '{"ipv4":"198.51.100.2"}')
    for i in range(20):
        etcd.put("busy.tf.local.", f'{{"ipv4":"198.51.100.{i}"}}')
    etcd.stop()  # cuts the watch, so that it has to be resumed from a revision that is compacted
    etcd.start()
    etcd.compact()
    node.resume()
    wait_resolves([node], "new.tf.local.", "198.51.100.2", timeout=15)
    wait_gone([node], "old.tf.local.")
    assert node.owned_name(etcd) == "worker1.tf.local."


@pytest.mark.parametrize("dead", ["http://127.0.0.1:{}", "127.0.0.1:{}", "http://[::1]:{}"])
def test_the_first_of_several_endpoints_is_dead(etcd, nodes, free_port, dead):
    endpoints = f"{dead.format(free_port())} {etcd.endpoint}"
    node = nodes.start(corefile(endpoints, options=["address 192.0.2.7"]))
    assert node.wait_owns(etcd, timeout=15) == "worker1.tf.local."
    wait_resolves([node], "worker1.tf.local.", "192.0.2.7")


@pytest.mark.parametrize("form", ["http://127.0.0.1:{}", "127.0.0.1:{}", "http://localhost:{}", "localhost:{}", "http://127.0.0.1:{}/"])
def test_forms_of_endpoints(etcd, nodes, form):
    node = nodes.start(corefile(form.format(etcd.client_port)))
    assert node.wait_owns(etcd) == "worker1.tf.local."


def test_each_member_of_three_dies_in_turn(etcd_cluster, nodes):
    """So the one that is used dies too: no DNS error, the slots are kept, and changes go on arriving."""
    text = corefile(etcd_cluster.endpoints, lease=20, options=["address 192.0.2.7"])
    first = etcd_cluster.members[0]
    cluster = nodes.start_cluster(text, 2, first)
    wait_resolves(cluster, "worker2.tf.local.", "192.0.2.7")
    before = {name: pair["create_revision"] for name, pair in first.pairs().items()}
    with Questioner(cluster[0], "worker2.tf.local.", "192.0.2.7") as questioner:
        for round_, victim in enumerate(etcd_cluster.members):
            survivor = etcd_cluster.members[(round_ + 1) % 3]
            victim.kill()
            wait_until(survivor.healthy, 15, "the two others to have a leader", interval=0.05)
            survivor.put(f"extra{round_}.tf.local.", '{"ipv4":"198.51.100.1"}')
            wait_resolves(cluster, f"extra{round_}.tf.local.", "198.51.100.1", timeout=15)
            victim.start()
    assert questioner.bad == []
    after = {name: pair["create_revision"] for name, pair in first.pairs().items() if b"worker" in name}
    assert after == before, "the slots are kept"


def test_starts_with_one_of_three_members_down(etcd_cluster, nodes):
    etcd_cluster.members[0].kill()
    survivor = etcd_cluster.members[1]
    wait_until(survivor.healthy, 15, "the two others to have a leader", interval=0.05)
    node = nodes.start(corefile(etcd_cluster.endpoints, options=["address 192.0.2.7"]))
    assert node.wait_owns(survivor, timeout=20) == "worker1.tf.local."
    wait_until(lambda: resolves(node, "worker1.tf.local.", "192.0.2.7"), 5, "worker1 to resolve")


def test_a_new_empty_etcd_in_the_place_of_the_old(etcd, nodes):
    """Its revisions begin again: a full resync, and the names are claimed anew."""
    cluster = nodes.start_cluster(corefile(etcd.endpoint, lease=3, options=["address 192.0.2.7"]), 2, etcd)
    for i in range(30):
        etcd.put("old.tf.local.", f'{{"ipv4":"198.51.100.{i}"}}')
    wait_resolves(cluster, "old.tf.local.", "198.51.100.29")
    etcd.kill()
    etcd.wipe()
    etcd.start()
    for node in cluster:
        node.wait_owns(etcd, timeout=20)
    wait_gone(cluster, "old.tf.local.", timeout=10)
    wait_resolves(cluster, "worker2.tf.local.", "192.0.2.7")
    etcd.put("old.tf.local.", '{"ipv4":"198.51.100.77"}')
    wait_resolves(cluster, "old.tf.local.", "198.51.100.77")
