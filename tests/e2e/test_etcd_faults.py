"""etcd comes late, goes away, stalls, loses or forgets something, comes back: serving never waits for it, nothing is
denied out of ignorance, and all is repaired without an empty moment. What becomes of the own name meanwhile is in
test_ownership.py, etcd's own guards (TLS, passwords) in test_etcd_security.py."""

import json
import os
import shutil
import time

import pytest

from corefiles import corefile
from dns_client import (EDE_NOT_READY, EDE_STALE_ANSWER, answers, ask, extended_errors, rcode, resolves, wait_gone,
                        wait_resolves)
from harness.background import Background
from harness.etcd import EtcdCluster, EtcdMember
from harness.metrics import Metrics
from harness.namespace import Namespace
from harness.processes import Process, TIME_FACTOR, assert_takes_less, wait_until
from harness.proxy import MessageLoss, TcpProxy
from identity import Interrogator, identity_file, own_names


class Questioner(Background):
    """Asks one name over and over from another thread; `bad` collects what was not the expected answer, `stale` when an
    answer was marked as stale."""

    def __init__(self, node, name, address):
        super().__init__()
        self.node, self.name, self.address = node, name, address
        self.asked, self.bad, self.stale = 0, [], []

    def _run(self):
        while not self._end.wait(0.005):
            try:
                response = ask(self.node, self.name, use_edns=0)
                answer = [rdata.to_text() for rrset in response.answer for rdata in rrset] or rcode(response)
                if extended_errors(response) == [EDE_STALE_ANSWER]:
                    self.stale.append(time.monotonic())
            except Exception as error:  # pylint: disable=broad-except
                answer = repr(error)
            self.asked += 1
            if answer != [self.address]:
                self.bad.append(answer)


def test_etcd_down_at_start(stopped_etcd, nodes):
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
        assert set(own_names(node, "192.0.2.7").values()) == {None}
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

    def attempt(number):
        if number:
            node.start()
        node.wait_owns(etcd, timeout=30)
        etcd.pause()
        begin = time.monotonic()
        assert node.terminate() == 0
        took = time.monotonic() - begin
        etcd.resume()
        return took
    assert_takes_less(3.5, attempt)  # 2 s, in which the name cannot be given back


def test_etcd_killed_and_restarted(etcd, nodes):
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
    for node in cluster:
        assert "read all names again" not in node.out(), "the watch goes on where it was"
        assert "lost worker" not in node.out()


def test_etcd_is_away_for_long(etcd, nodes):
    """However long: when it is back, each node has its name again and knows the others within seconds."""
    cluster = [nodes.start(corefile(etcd.endpoint, lease=4, options=[f"address 192.0.2.{number}"])) for number in range(1, 9)]
    for node in cluster:
        node.wait_owns(etcd)
    etcd.kill()
    time.sleep(15)  # the length of the fault: until pauses are as long as they get
    etcd.start()
    back = time.monotonic()
    etcd.put("news.tf.local.", '{"ipv4":"198.51.100.1"}')
    for node in cluster:
        wait_resolves([node], "news.tf.local.", "198.51.100.1", timeout=10)
        node.wait_owns(etcd)
    assert time.monotonic() - back < 12 * TIME_FACTOR, "it takes one or two"


def test_etcd_paused_for_a_second(etcd, nodes):
    node = nodes.start(corefile(etcd.endpoint, lease=20, options=["address 192.0.2.7"]))
    node.wait_owns(etcd)
    wait_resolves([node], "worker1.tf.local.", "192.0.2.7")
    wait_until(lambda: set(own_names(node, "192.0.2.7").values()) == {"worker1.tf.local"}, 10, node.logs)
    before = etcd.pairs()
    with Questioner(node, "worker1.tf.local.", "192.0.2.7") as questioner, Interrogator(node, "192.0.2.7") as interrogator:
        paused = time.monotonic()
        etcd.pause()
        time.sleep(1)  # the length of the fault
        etcd.resume()
        etcd.put("extra.tf.local.", '{"ipv4":"198.51.100.1"}')
        wait_resolves([node], "extra.tf.local.", "198.51.100.1")
        took = time.monotonic() - paused
    assert questioner.bad == [] and questioner.stale == []
    assert interrogator.claims() == {"worker1.tf.local"}
    etcd.delete("extra.tf.local.")
    assert etcd.pairs() == before
    # On a busy machine etcd may stand still for longer: after 3 s that is said.
    assert took > 2.5 or "[WARNING]" not in node.out(), node.logs()
    assert "[ERROR]" not in node.out(), node.logs()


def test_etcd_paused_for_longer_than_the_lease(etcd, nodes, directory):
    """The data are served, marked as old after the lease time; at the deadline the node ceases to own its name, in every
    way in which it answers, whether or not anything wakes it."""
    lease = 3
    state, events = os.path.join(directory, "state"), os.path.join(directory, "events")
    own = ["address 192.0.2.7", f"state {state}", f"on-claim sh -c \"echo $IDETCD_EVENT $IDETCD_NAME >>{events}\""]
    node = nodes.start(corefile(etcd.endpoint, lease=lease, options=own))
    node.wait_owns(etcd)
    other = nodes.start(corefile(etcd.endpoint, lease=lease, options=["address 192.0.2.8"]))
    other.wait_owns(etcd)
    wait_resolves([node, other], "worker2.tf.local.", "192.0.2.8")
    wait_until(lambda: identity_file(state).get("IDETCD_NAME") == "worker1.tf.local.", 5, "the identity file")
    with Questioner(node, "worker2.tf.local.", "192.0.2.8") as questioner, Interrogator(node, "192.0.2.7") as interrogator:
        wait_until(lambda: interrogator.answers, 5, "a first question")
        etcd.pause()
        paused = time.monotonic()
        for n in (node, other):
            wait_until(lambda n=n: extended_errors(ask(n, "worker2.tf.local.", use_edns=0)) == [EDE_STALE_ANSWER], 15,
                       lambda n=n: f"a stale answer\n{n.logs()}", interval=0.05)
        wait_until(lambda: interrogator.ways(paused + lease) == {"NSID", "CH TXT", "PTR"}, 10, "each question after the deadline")
        wait_until(lambda: identity_file(state) == {}, 5, "the identity file to be empty")
        assert interrogator.claims(until=paused) == {"worker1.tf.local"}
        # Whatever was confirmed last was asked for before etcd stopped.
        assert interrogator.claims(since=paused + lease) == {None}
        assert questioner.stale and min(questioner.stale) > paused, "not before etcd is missed"
        assert questioner.bad == []
        etcd.resume()  # and may have ended the leases: then the names are gone for a moment
        for n in (node, other):
            n.wait_owns(etcd, timeout=20)
            wait_until(lambda n=n: extended_errors(ask(n, "worker2.tf.local.", use_edns=0)) == [], 15, "a fresh answer",
                       interval=0.05)
            wait_resolves([n], "worker2.tf.local.", "192.0.2.8")
        wait_until(lambda: set(own_names(node, "192.0.2.7").values()) == {"worker1.tf.local"}, 15, "the name again")
    wait_until(lambda: node.owned_name(etcd) == "worker1.tf.local." and other.owned_name(etcd) == "worker2.tf.local.", 15,
               other.logs)  # etcd ends a lease only when it looks
    wait_until(lambda: identity_file(state).get("IDETCD_NAME") == "worker1.tf.local.", 5, "the identity file again")

    def hooks():
        with open(events, encoding="ascii") as file:
            return file.read().splitlines()
    wait_until(lambda: len(hooks()) >= 3, 5, lambda: f"the program to have run three times: {hooks()}")
    assert hooks()[:3] == [f"{what} worker1.tf.local." for what in ("claim", "loss", "claim")]
    node.wait_logged("names are stale")
    node.wait_logged("names are current again")


def test_etcd_paused_for_much_longer_than_the_lease(etcd, nodes):
    """Every node claims the name again that it had, with a higher token, and once."""
    lease = 5
    text = corefile(etcd.endpoint, lease=lease, options=["address 192.0.2.7"])
    cluster = nodes.start_cluster(text, 5, etcd)
    before, had = etcd.pairs(), {node: node.owned_name(etcd) for node in cluster}
    etcd.pause()
    time.sleep(3 * lease)  # the length of the fault
    etcd.resume()

    def settled():
        pairs = etcd.pairs()
        return set(pairs) == set(before) and all(pairs[key]["create_revision"] > before[key]["create_revision"] for key in pairs)
    wait_until(settled, 20, lambda: f"every name with a new token: {before}, {etcd.pairs()}", interval=0.05)
    after = etcd.pairs()
    for node in cluster:
        name = had[node]
        assert node.owned_name(etcd) == name, "the name that it had"
        wait_until(lambda n=node: own_names(n, "192.0.2.7")["NSID"] == had[n].rstrip("."), 10, "the node to take it for its own")
        node.wait_logged("claimed again: ", times=1)
    time.sleep(lease)  # what must not happen has no event to wait for
    assert etcd.pairs() == after


def test_no_space_alarm(stopped_etcd, nodes):
    """Slots are kept, as keepalives need no space; a newcomer gets none, and serves the names of the others."""
    stopped_etcd.start(["--quota-backend-bytes", str(4 << 20)])
    etcd = stopped_etcd
    text = corefile(etcd.endpoint, lease=4, options=["address 192.0.2.7"])
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
    time.sleep(6)  # more than a lease: what must not happen has no event to wait for
    assert own_names(node, "192.0.2.7")["NSID"] == "worker1.tf.local"
    newcomer.wait_logged("etcd fails while claiming a name", times=1)
    assert etcd.pairs()[b"worker1.tf.local."] == before
    assert newcomer.running() and newcomer.owned_name(etcd) is None
    assert answers(node, "worker1.tf.local.") == ["192.0.2.7"]
    etcd.ctl("del", "--prefix", "/fill/")
    etcd.compact()
    etcd.ctl("defrag")
    etcd.ctl("alarm", "disarm")
    assert newcomer.wait_owns(etcd, timeout=30) == "worker2.tf.local."


def test_compacted_past_our_revision(etcd, nodes):
    """The place where the watch would go on is gone: everything is read again, and nothing is ever missing meanwhile."""
    with TcpProxy(etcd.client_port) as proxy:
        node = nodes.start(corefile(proxy.endpoint, lease=20, options=["address 192.0.2.7"]))
        node.wait_owns(etcd)
        etcd.put_many({f"host{i}.tf.local.": f'{{"ipv4":"10.0.{i // 256}.{i % 256}"}}' for i in range(500)})
        etcd.put("old.tf.local.", '{"ipv4":"198.51.100.1"}')
        wait_resolves([node], "old.tf.local.", "198.51.100.1")
        before = etcd.pairs()[b"worker1.tf.local."]
        with Questioner(node, "host250.tf.local.", "10.0.0.250") as questioner, Questioner(node, "worker1.tf.local.", "192.0.2.7") as own:
            for round_ in range(3):
                proxy.cut()
                etcd.delete("old.tf.local.")
                etcd.put("new.tf.local.", f'{{"ipv4":"198.51.100.2{round_}"}}')
                for i in range(20):
                    etcd.put("busy.tf.local.", f'{{"ipv4":"198.51.100.{i}"}}')
                etcd.compact()
                proxy.restore()
                wait_resolves([node], "new.tf.local.", f"198.51.100.2{round_}", timeout=15)
                wait_gone([node], "old.tf.local.")
                etcd.put("old.tf.local.", '{"ipv4":"198.51.100.1"}')
                wait_resolves([node], "old.tf.local.", "198.51.100.1")
        assert questioner.asked > 20 and questioner.bad == [] and own.bad == []
        assert etcd.pairs()[b"worker1.tf.local."] == before, "the slot is kept"
        node.wait_logged("etcd has compacted what came after revision", times=3)
        node.wait_logged("read all names again", times=3)


def test_a_watch_event_lost_by_the_server(etcd, nodes):
    """As some releases of etcd do: the message is taken out of etcd's stream, which goes on as if it had never been."""
    loss = MessageLoss(b"lost")
    with TcpProxy(etcd.client_port, on_response=loss.filter) as proxy:
        node = nodes.start(corefile(proxy.endpoint, lease=20, options=["address 192.0.2.7", "reconcile 3s"]))
        node.wait_owns(etcd)
        for name in ("lost-change", "lost-delete"):
            etcd.put(f"{name}.tf.local.", '{"ipv4":"198.51.100.1"}')
            wait_resolves([node], f"{name}.tf.local.", "198.51.100.1")
        begin = loss.lost
        loss.messages = 3
        etcd.put("lost-put.tf.local.", '{"ipv4":"198.51.100.2"}')
        etcd.put("lost-change.tf.local.", '{"ipv4":"198.51.100.3"}')
        etcd.delete("lost-delete.tf.local.")
        wait_until(lambda: loss.lost == begin + 3, 5, "three messages to be lost")
        etcd.put("seen.tf.local.", '{"ipv4":"198.51.100.4"}')
        wait_resolves([node], "seen.tf.local.", "198.51.100.4")
        wait_resolves([node], "lost-put.tf.local.", "198.51.100.2", timeout=15)
        wait_resolves([node], "lost-change.tf.local.", "198.51.100.3", timeout=15)
        wait_gone([node], "lost-delete.tf.local.", timeout=15)
        node.wait_logged("found by comparison", times=1)
        line = next(line for line in node.out().splitlines() if "found by comparison" in line)
        assert "the watch had lost 3 changes" in line, line
        assert {word for word in line.split() if word.startswith("lost-")} == {
            f"lost-{what}.tf.local." for what in ("put", "change", "delete")}
        assert node.out().count("found by comparison") == 1, "nothing else was missing"


@pytest.mark.parametrize("dead", ["http://127.0.0.1:{}", "127.0.0.1:{}", "http://[::1]:{}"])
def test_the_first_of_several_endpoints_is_dead(etcd, nodes, free_port, dead):
    endpoints = f"{dead.format(free_port())} {etcd.endpoint}"
    node = nodes.start(corefile(endpoints, options=["address 192.0.2.7"]))
    assert node.wait_owns(etcd, timeout=15) == "worker1.tf.local."
    wait_resolves([node], "worker1.tf.local.", "192.0.2.7")


def check_is_unused(node, metrics, endpoint, used):
    """Operators are told of the endpoint in all ways."""
    reason = "it is of another cluster"
    _, status = node.control("/v1/status")
    [cluster] = status["clusters"]
    assert (cluster["endpoints"], cluster["unused_endpoints"]) == ([used], [{"endpoint": endpoint, "reason": reason}])
    assert status["degraded"] == [f"worker{{{{.ID}}}}.tf.local.: endpoint {endpoint} is not used: {reason}"]
    address = endpoint.removeprefix("http://")
    assert Metrics.of(metrics).sum("idetcd_etcd_endpoint_unused", endpoint=address) == 1


def test_endpoints_of_two_clusters(etcd, nodes, directory, free_port):
    """Each node would ask one of them, and two would own one name."""
    stranger = EtcdMember(directory, "stranger")
    stranger.start()
    try:
        with TcpProxy(stranger.client_port) as proxy:
            metrics = free_port()
            text = corefile(f"{etcd.endpoint} {proxy.endpoint}")
            watched = corefile(f"{etcd.endpoint} {proxy.endpoint}", directives=[f"prometheus 127.0.0.1:{metrics}"])
            cluster = [nodes.start(watched), *(nodes.start(text) for _ in range(3))]
            wait_until(lambda: len(etcd.pairs()) == 4, 15,
                       lambda: f"{etcd.pairs()} {stranger.pairs()}\n{cluster[0].logs()}")
            assert not stranger.pairs()
            for node in cluster:
                node.wait_logged(f"etcd endpoint 127.0.0.1:{proxy.port} is of another cluster")
            assert len(proxy.first_octets) >= 4, "each has asked"
            wait_until(lambda: proxy.connections == 0, 10, "that nobody stays connected to it")
            check_is_unused(cluster[0], metrics, proxy.endpoint, etcd.endpoint)
    finally:
        stranger.close()


def test_an_etcd_that_is_far_away(etcd, nodes):
    """A name takes several requests within the lease, one after the other."""
    delay = 0.4

    def delayed(octets):
        time.sleep(delay)
        return octets

    with TcpProxy(etcd.client_port, on_response=lambda: delayed) as proxy:
        node = nodes.start(corefile(proxy.endpoint, lease=5, options=["address 192.0.2.7"]))
        node.wait_owns(etcd, timeout=30)
        wait_resolves([node], "worker1.tf.local.", "192.0.2.7", timeout=15)
        delay = 1.2
        node.wait_logged("a lease of 5 s is too short for that", timeout=30)


def test_an_endpoint_of_another_cluster_that_comes_later(stopped_etcd, nodes, directory):
    """Only the other one answers at the start; then all agree on the first one."""
    etcd, stranger = stopped_etcd, EtcdMember(directory, "stranger")
    stranger.start()
    try:
        node = nodes.start(corefile(f"{etcd.endpoint} {stranger.endpoint}"))
        wait_until(stranger.pairs, 15, node.logs)
        etcd.start()  # until it is known two nodes may own one name, in two clusters
        node.wait_logged(f"etcd endpoint 127.0.0.1:{stranger.client_port} is of another cluster", timeout=8)
        wait_until(etcd.pairs, 30, node.logs)
    finally:
        stranger.close()


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


def test_leader_change(etcd_cluster, nodes):
    """In order, as before an upgrade: nothing is noticed."""
    text = corefile(etcd_cluster.endpoints, lease=20, options=["address 192.0.2.7"])
    first = etcd_cluster.members[0]
    cluster = nodes.start_cluster(text, 2, first)
    wait_resolves(cluster, "worker2.tf.local.", "192.0.2.7")
    before = first.pairs()
    with Questioner(cluster[0], "worker2.tf.local.", "192.0.2.7") as questioner:
        for round_ in range(4):
            ids, leader = members_and_leader(etcd_cluster)
            successor = next(member for member in etcd_cluster.members if member is not leader)
            leader.ctl("move-leader", f"{ids[successor]:x}")
            wait_until(lambda: members_and_leader(etcd_cluster)[1] is successor, 10, "the successor to lead", interval=0.05)
            successor.put(f"extra{round_}.tf.local.", '{"ipv4":"198.51.100.1"}')
            wait_resolves(cluster, f"extra{round_}.tf.local.", "198.51.100.1", timeout=15)
    assert questioner.bad == [] and questioner.stale == []
    after = {key: pair for key, pair in first.pairs().items() if key.startswith(b"worker")}
    assert after == before, "the slots are kept"
    for node in cluster:
        assert "read all names again" not in node.out() and "lost worker" not in node.out()


def members_and_leader(cluster):
    """Member -> ID, and the member that leads (None while there is none)."""
    ids, leader_id = {}, 0
    for member in cluster.members:
        status = json.loads(member.ctl("endpoint", "status", "-w", "json"))[0]["Status"]
        ids[member] = int(status["header"]["member_id"])
        leader_id = int(status.get("leader", 0)) or leader_id
    return ids, next((member for member, id_ in ids.items() if id_ == leader_id), None)


def test_a_partitioned_member(directory, nodes):
    """The member that the node speaks to is cut off from the two others, and not from the node: it has the old data and
    no leader. The node leaves it, hears of what the majority writes, and never goes back to the old."""
    majority = Namespace(os.path.join(directory), ["127.1.1.1/8"])
    minority = None
    members = []
    try:
        os.mkdir(os.path.join(directory, "minority"))
        minority = Namespace(os.path.join(directory, "minority"))
        for link, network in (("peers", "10.1.0"), ("clients", "10.2.0")):
            majority.run("ip", "link", "add", link, "type", "veth", "peer", "name", link, "netns", str(minority.holder.pid))
            for namespace, host in ((majority, 1), (minority, 2)):
                namespace.run("ip", "address", "add", f"{network}.{host}/24", "dev", link)
                namespace.run("ip", "link", "set", link, "up")
        with majority.entered():
            cut_off = EtcdMember(directory, "etcd2", "10.2.0.2", "10.1.0.2", minority.prefix)
            members = [EtcdMember(directory, name, "127.0.0.1", "10.1.0.1") for name in ("etcd1", "etcd3")]
            members.append(cut_off)
            EtcdCluster(directory, members=members).start()
            survivor = members[0]
            survivor.put("host.tf.local.", '{"ipv4":"198.51.100.0"}')
            endpoints = " ".join(member.endpoint for member in [cut_off, *members[:2]])
            text = corefile(endpoints, lease=5, options=["address 192.0.2.7"])
            for _ in range(40):  # a node begins at a random endpoint
                node = nodes.start(text)
                node.wait_owns(survivor)
                if node.connected_ports()[cut_off.client_port] and not node.connected_ports()[survivor.client_port]:
                    break
                assert node.terminate() == 0
            wait_resolves([node], "host.tf.local.", "198.51.100.0")
            before = survivor.pairs()[b"worker1.tf.local."]
            with History(node, "host.tf.local.") as history, Interrogator(node, "192.0.2.7") as interrogator:
                majority.run("ip", "link", "set", "peers", "down")
                wait_until(survivor.healthy, 15, "the two others to have a leader", interval=0.05)
                survivor.put("host.tf.local.", '{"ipv4":"198.51.100.1"}')
                wait_resolves([node], "host.tf.local.", "198.51.100.1", timeout=20)
                majority.run("ip", "link", "set", "peers", "up")
                wait_until(cut_off.healthy, 30, "the third to be back", interval=0.05)
                survivor.put("host.tf.local.", '{"ipv4":"198.51.100.2"}')
                wait_until(lambda: history.distinct[-1] == "198.51.100.2", 20, lambda: f"the newest: {history.distinct}")
            assert history.distinct == [f"198.51.100.{i}" for i in range(3)], "each value once, in order"
            node.wait_logged(f"{cut_off.host}:{cut_off.client_port} is away: ")
            assert survivor.pairs()[b"worker1.tf.local."] == before, "the slot is kept"
            assert interrogator.claims() <= {"worker1.tf.local", None}
            assert node.terminate() == 0
    finally:
        for member in members:
            member.close()
        for namespace in (majority, minority):
            if namespace:
                namespace.close()


class History(Questioner):
    """What a name resolved to, one after the other."""

    def __init__(self, node, name):
        super().__init__(node, name, None)

    @property
    def distinct(self):
        values = [answer[0] if isinstance(answer, list) else answer for answer in self.bad]
        return [value for i, value in enumerate(values) if i == 0 or values[i - 1] != value]


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


@pytest.mark.parametrize("kind", ["its revisions are lower", "it is another cluster", "it has gone on since"])
def test_restored_backup(etcd, nodes, directory, kind):
    """etcd is put back to a snapshot of its data. The third kind is the hardest: nothing in etcd's answers shows it, for
    when the nodes are back the store is past the revision that they know."""
    with TcpProxy(etcd.client_port) as proxy:
        text = corefile(proxy.endpoint, lease=5, options=["address 192.0.2.7", "reconcile 2s"])
        first = nodes.start(text)
        first.wait_owns(etcd)
        etcd.put("kept.tf.local.", '{"ipv4":"198.51.100.1"}')
        etcd.put("changed.tf.local.", '{"ipv4":"198.51.100.2"}')
        etcd.put("deleted.tf.local.", '{"ipv4":"198.51.100.3"}')
        backup = os.path.join(directory, "backup.db")
        etcd.ctl("snapshot", "save", backup)
        # What comes now is forgotten.
        second = nodes.start(text)
        second.wait_owns(etcd)
        etcd.put("changed.tf.local.", '{"ipv4":"198.51.100.77"}')
        etcd.delete("deleted.tf.local.")
        etcd.put("forgotten.tf.local.", '{"ipv4":"198.51.100.4"}')
        cluster = [first, second]
        wait_resolves(cluster, "forgotten.tf.local.", "198.51.100.4")
        known = etcd.revision()

        with Questioner(first, "kept.tf.local.", "198.51.100.1") as questioner:
            proxy.cut()
            etcd.stop()
            restore(etcd, backup, "another" if kind == "it is another cluster" else "etcd-cluster")
            etcd.start()
            assert etcd.revision() < known
            if kind == "it has gone on since":
                while etcd.revision() < known + 5:
                    etcd.put("busy.tf.local.", '{"ipv4":"198.51.100.5"}')
            proxy.restore()
            for node in cluster:
                wait_resolves([node], "changed.tf.local.", "198.51.100.2", timeout=20)
                wait_resolves([node], "deleted.tf.local.", "198.51.100.3", timeout=20)
            wait_gone(cluster, "forgotten.tf.local.", timeout=20)
            for node in cluster:
                node.wait_owns(etcd, timeout=20)
            etcd.put("after.tf.local.", '{"ipv4":"198.51.100.6"}')
            wait_resolves(cluster, "after.tf.local.", "198.51.100.6", timeout=10)
        assert questioner.bad == []
        assert set(etcd.names()) == {"worker1.tf.local.", "worker2.tf.local."}
        for node in cluster:
            wait_until(lambda n=node: own_names(n, "192.0.2.7")["NSID"] == (n.owned_name(etcd) or "?").rstrip("."), 15,
                       lambda n=node: f"the node to own its name\n{n.logs()}")
        said = {"its revisions are lower": "revision went back from", "it is another cluster": "etcd is another cluster now",
                "it has gone on since": "etcd tells another history than before"}
        for node in cluster:
            node.wait_logged(said[kind])


def restore(etcd, backup, token):
    shutil.rmtree(etcd.data)
    etcd.ctl("snapshot", "restore", backup, "--data-dir", etcd.data, "--name", etcd.name, "--initial-cluster",
             etcd.initial_cluster, "--initial-advertise-peer-urls", etcd.peer_url, "--initial-cluster-token", token)


KEYS = int(os.environ.get("IDETCD_TEST_KEYS", "100000"))


@pytest.mark.serial
def test_a_multitude_of_keys(etcd, nodes):
    """A hundred thousand, or as many as IDETCD_TEST_KEYS says: read page by page while others write, in bounded memory,
    and no name is denied before the last page is there."""
    def address(i):
        return f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}"
    idle = nodes.start(corefile(etcd.endpoint, options=["observe"]))
    wait_until(lambda: rcode(ask(idle, "h0.tf.local.")) == "NXDOMAIN", 10, "the empty table")
    etcd.put_many({f"h{i}.tf.local.": f'{{"ipv4":"{address(i)}","port":"53"}}' for i in range(KEYS)})
    last = f"h{KEYS - 1}.tf.local."
    node = nodes.make(corefile(etcd.endpoint, options=["observe"])).launch()
    node.wait_answers()
    writes = 0
    while True:
        response = ask(node, f"h{KEYS}.tf.local.", use_edns=0)
        if rcode(response) == "NXDOMAIN":
            break
        assert rcode(response) == "SERVFAIL" and extended_errors(response) == [EDE_NOT_READY], response
        assert answers(node, last) in ("SERVFAIL", [address(KEYS - 1)]), "known or unknown, never denied"
        writes += 1
        etcd.put(f"h{writes}.tf.local.", '{"ipv4":"198.51.100.1"}')
    assert answers(node, last) == [address(KEYS - 1)], "nothing is denied before the last page is there"
    wait_resolves([idle], last, address(KEYS - 1), timeout=30)
    wait_resolves([node], f"h{writes or 1}.tf.local.", "198.51.100.1" if writes else address(1))
    for i in [*range(writes + 1, KEYS, KEYS // 200), KEYS - 1]:
        assert answers(node, f"h{i}.tf.local.") == [address(i)]
    assert answers(node, f"h{KEYS}.tf.local.") == "NXDOMAIN"
    for n in (node, idle):
        # A page or the messages of a watch come on top of the table, and are the same for any number of names.
        assert n.peak_memory() < (160 << 20) + 300 * KEYS, f"{n.peak_memory() >> 20} MiB"


@pytest.fixture
def grpc_proxy(directory, free_port):
    """A function that starts etcd's grpc-proxy in front of a member, and returns its endpoint."""
    started = []

    def start(member, *options):
        address = f"127.0.0.1:{free_port()}"
        started.append(Process("grpc-proxy", directory))
        started[-1].spawn(["etcd", "grpc-proxy", "start", "--endpoints", member.endpoint, "--listen-addr", address,
                           "--data-dir", os.path.join(directory, "proxy"), *options],
                          env={"ETCD_UNSUPPORTED_ARCH": os.uname().machine.replace("aarch64", "arm64")})
        wait_until(lambda: "started gRPC proxy" in started[-1].logs(), 20, started[-1].logs)
        return f"http://{address}"

    yield start
    for process in started:
        process.kill()


REFUSED_PROXY = "is etcd's grpc-proxy, which delays keepalives and says nothing of a watch's progress: it is not used"


def test_a_grpc_proxy_is_no_endpoint(etcd, nodes, grpc_proxy):
    proxy = grpc_proxy(etcd)
    alone = nodes.start(corefile(proxy))
    beside = [nodes.start(corefile(f"{proxy} {etcd.endpoint}")) for _ in range(3)]  # each begins with a random one
    for node in beside:
        node.wait_owns(etcd)
    for node in [alone, *beside]:
        node.wait_logged(REFUSED_PROXY, times=1)
    assert len(etcd.names()) == len(etcd.leases()) == len(beside), "nothing of the one without another endpoint"
    assert set(own_names(alone, "127.0.0.1").values()) == {None}


def test_a_grpc_proxy_that_passes_on_requests_for_members_is_known_by_a_shared_watch(etcd, nodes, grpc_proxy):
    text = corefile(grpc_proxy(etcd, "--advertise-client-url", ""))
    nodes.start(text).wait_owns(etcd)
    nodes.start(text).wait_logged(REFUSED_PROXY, times=1)
