"""A cluster that moves from `peers` to `endpoint`, or back: both stand in the Corefile meanwhile. Machine N is 127.0.0.N."""

import glob
import json
import os
import secrets
import signal

import pytest

from dns_client import answers, ask, extended_errors, rcode, wait_resolves
from harness import ports
from harness.background import Background
from harness.metrics import Metrics
from harness.peers import cluster_of, run, wait_name
from harness.processes import wait_until

pytestmark = pytest.mark.etcd  # that the machines run, too

COREFILE = """. {{
    bind 127.0.0.{number}
    prometheus 127.0.0.{number}:{metrics}
    idetcd {{
        pattern worker{{{{.ID}}}}.tf.local.
        limit 10
        lease {lease}s
        address 127.0.0.{number}
        state {state}
{options}    }}
}}
"""
PEERS, ENDPOINT = "peers", "endpoint"


class Machines:
    def __init__(self, nodes, directory, etcd, numbers, lease):
        self.nodes = nodes
        self.directory = directory
        self.etcd = etcd
        self.numbers = numbers
        self.lease = lease
        self.port = ports.free_ports(3)
        self.metrics = ports.free_port()
        self.secret = os.path.join(directory, "secret")
        with open(self.secret, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(16))
        self.made = {}

    def corefile(self, number, *stores):
        lines = {PEERS: [f"peers {' '.join(f'127.0.0.{n}' for n in self.numbers)}", f"peers-port {self.port}",
                         f"expect {len(self.numbers)}", f"secret {self.secret}"],
                 ENDPOINT: [f"endpoint {self.etcd.endpoint}"]}
        return COREFILE.format(number=number, state=self.state(number), metrics=self.metrics, lease=self.lease,
                               options="".join(f"        {line}\n" for store in stores for line in lines[store]))

    def state(self, number):
        return os.path.join(self.directory, f"state{number}")

    def start(self, number, *stores):
        node = self.nodes.make(self.corefile(number, *stores), name=f"machine{number}")
        node.host = f"127.0.0.{number}"
        node.number = number
        self.made[number] = node
        return node.launch()

    def start_all(self, *stores):
        for number in self.numbers:
            self.start(number, *stores)
        return {node: wait_name(node) for node in self.made.values()}

    def step(self, node, *stores):
        """Reloads its Corefile. What the control socket says is of the new one then, or what the log says of a refusal."""
        with open(node.corefile_path, "w", encoding="utf-8") as file:
            file.write(self.corefile(node.number, *stores))
        node.signal(signal.SIGHUP)

    def identity(self, node):
        try:
            with open(os.path.join(self.state(node.number), "identity"), encoding="ascii") as file:
                lines = dict(line.split("=", 1) for line in file.read().splitlines())
        except FileNotFoundError:
            return None
        return {key: value.strip("'") for key, value in lines.items()} or None

    def remembered_leases(self, node):
        [path] = glob.glob(os.path.join(self.state(node.number), "worker*.json"))
        with open(path, encoding="utf-8") as file:
            return [int(lease) for lease in json.load(file)["leases"]]

    def close(self):
        for port in (*range(self.port, self.port + 3), self.metrics):
            ports.release(port)


@pytest.fixture
def machines(nodes, directory, etcd):
    made = []

    def make(numbers=(2, 3, 4, 5, 6), lease=10):
        made.append(Machines(nodes, directory, etcd, numbers, lease))
        return made[-1]
    yield make
    for each in made:
        each.close()


def wait_state(node, timeout=40, **fields):
    def condition():
        said = cluster_of(node)
        return all(said[field] == value for field, value in fields.items())
    wait_until(condition, timeout, lambda: f"{node.name}: {fields}\n{cluster_of(node)}\n{node.logs(tail=200)}", interval=0.05)


class Watch(Background):
    """Asks each machine for each name five times a second, and reads what each says of itself."""

    def __init__(self, machines, names):
        super().__init__()
        self.machines = machines
        self.names = names
        self.rounds = 0
        self.tokens = dict.fromkeys(names, 0)
        self.wrong = []

    def _run(self):
        while not self._end.wait(0.2):
            self.rounds += 1
            for node in self.names:
                self._look(node)

    def rest(self):
        """Until it has looked at all of them in the present state."""
        seen = self.rounds
        wait_until(lambda: self.rounds >= seen + 2, 60, "all to have been asked")

    def _look(self, node):
        said = self.machines.identity(node)
        if said is not None:
            if said["IDETCD_NAME"] != self.names[node]:
                self.wrong.append(f"{node.name} is {said['IDETCD_NAME']}, and was {self.names[node]}")
            token = int(said["IDETCD_TOKEN"])
            if token < self.tokens[node]:
                self.wrong.append(f"{node.name} has the token {token}, and had {self.tokens[node]}")
            self.tokens[node] = token
        for other, name in self.names.items():
            response = ask(node, name, host=node.host)
            if rcode(response) != "NOERROR" or [str(one) for rrset in response.answer for one in rrset] != [other.host]:
                self.wrong.append(f"{node.name} says of {name}: {response}")


def begin(machines, source, target):
    """The first step at all machines, one after another; until each has its name in both stores."""
    for node in machines.made.values():
        machines.step(node, source, target)
    for node in machines.made.values():
        wait_state(node, moves_to=target, moved=True)


def finish(machines, target):
    for node in machines.made.values():
        machines.step(node, target)
    for node in machines.made.values():
        wait_state(node, moves_to=None)


def test_five_machines_move_to_an_etcd_and_back_under_their_names(machines):
    cluster = machines()
    names = cluster.start_all(PEERS)
    for node in names:
        for other, name in names.items():
            wait_resolves([node], name, other.host, host=node.host)
    with Watch(cluster, names) as watch:
        watch.rest()
        begin(cluster, PEERS, ENDPOINT)
        watch.rest()
        assert "moves to endpoint" in " ".join(run(cluster.made[2], "status")[1].split())
        finish(cluster, ENDPOINT)
        assert set(names.values()) <= set(cluster.etcd.names())
        for node, name in names.items():
            wait_name(node, name)
        watch.rest()
        begin(cluster, ENDPOINT, PEERS)
        watch.rest()
        finish(cluster, PEERS)
        watch.rest()
        wait_until(lambda: not set(names.values()) & set(cluster.etcd.names()), 20, "the names to have left the etcd")
        for node, name in names.items():
            wait_name(node, name)
    assert not watch.wrong, "\n".join(watch.wrong[:20])


def own_etcd(cluster, node):
    """The process that the machine runs with its data below `state`."""
    data = cluster.state(node.number).encode() + b"/"
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue  # it has ended
        if os.path.basename(words[0]) == b"etcd" and any(data in word for word in words):
            return int(path.split("/")[2])
    raise AssertionError("the machine runs no etcd")


@pytest.mark.parametrize("away", [PEERS, ENDPOINT])
def test_a_name_ends_in_time_when_either_store_is_away_and_comes_back(machines, away):
    cluster = machines((2,), lease=3)
    node = cluster.start(2, PEERS)
    name = wait_name(node)
    begin(cluster, PEERS, ENDPOINT)
    pid = own_etcd(cluster, node) if away == PEERS else cluster.etcd.process.pid
    os.kill(pid, signal.SIGSTOP)
    wait_state(node, name=None, timeout=10)
    wait_until(lambda: cluster.identity(node) is None, 5, "the identity to be empty")
    response = ask(node, name, host=node.host)
    assert [str(one) for rrset in response.answer for one in rrset] == [node.host]
    wait_until(lambda: extended_errors(ask(node, name, host=node.host, use_edns=0)) == [3], 10, "the answer to be marked as stale")
    os.kill(pid, signal.SIGCONT)
    wait_name(node, name)
    wait_until(lambda: not extended_errors(ask(node, name, host=node.host, use_edns=0)), 10, "the answer to be current")


def test_who_starts_meanwhile_has_a_name_in_both_stores(machines):
    cluster = machines((2,))
    old = cluster.start(2, ENDPOINT)
    assert wait_name(old) == "worker1.tf.local."
    begin(cluster, ENDPOINT, PEERS)
    late = cluster.start(3, ENDPOINT)  # one of the step before
    assert wait_name(late) == "worker2.tf.local."
    fresh = cluster.start(4, ENDPOINT, PEERS)
    assert wait_name(fresh) == "worker3.tf.local."
    wait_state(fresh, moved=True, moves_to=PEERS)
    for node in cluster.made.values():
        for other, name in ((old, "worker1.tf.local."), (late, "worker2.tf.local."), (fresh, "worker3.tf.local.")):
            wait_resolves([node], name, other.host, host=node.host)
    # The last step is too early, as long as one is behind.
    cluster.step(fresh, PEERS)
    fresh.wait_logged("1 of the names are not in the store of `peers` yet: worker2.tf.local.")
    wait_state(fresh, moved=True, moves_to=PEERS)
    cluster.step(late, ENDPOINT, PEERS)
    wait_state(late, moved=True, moves_to=PEERS)
    finish(cluster, PEERS)
    for node, name in ((old, "worker1.tf.local."), (late, "worker2.tf.local."), (fresh, "worker3.tf.local.")):
        wait_name(node, name)


def test_a_name_that_a_stranger_has_in_the_other_store_is_not_owned(machines):
    cluster = machines((2,))
    cluster.etcd.put("worker1.tf.local.", '{"ipv4":"192.0.2.99","id":"stranger"}')
    node = cluster.start(2, PEERS)
    wait_name(node, "worker1.tf.local.")
    cluster.step(node, PEERS, ENDPOINT)
    node.wait_logged("worker1.tf.local. is held by another node in the store that the cluster moves to: node stranger, addresses 192.0.2.99")
    wait_state(node, moves_to=ENDPOINT, moved=False, name="worker1.tf.local.")  # as before this step
    cluster.step(node, ENDPOINT)
    node.wait_logged("this node's name is not held in the store of `endpoint` yet")
    cluster.etcd.delete("worker1.tf.local.")
    wait_state(node, moved=True, name="worker1.tf.local.")


def test_a_move_that_is_given_up_leaves_the_names_where_they_were(machines):
    cluster = machines((2,))
    node = cluster.start(2, ENDPOINT)
    name = wait_name(node)
    begin(cluster, ENDPOINT, PEERS)
    token = wait_until(lambda: (cluster.identity(node) or {}).get("IDETCD_TOKEN"), 5, "the identity, whose token may have risen")
    seen = Metrics.of(cluster.metrics, host=node.host)
    assert seen.sum("idetcd_moving") == 1 and seen.sum("idetcd_moved") == 1
    assert seen.sum("idetcd_names", store="endpoint") == 1 and seen.sum("idetcd_names", store="peers") == 1
    with Watch(cluster, {node: name}) as watch:
        finish(cluster, ENDPOINT)
        wait_name(node, name)
    assert not watch.wrong, "\n".join(watch.wrong)
    after = wait_until(lambda: (cluster.identity(node) or {}).get("IDETCD_TOKEN"), 5, "the identity, which is written anew")
    assert int(after) >= int(token)
    assert answers(node, name, host=node.host) == [node.host]
    seen = Metrics.of(cluster.metrics, host=node.host)
    assert seen.sum("idetcd_moving") == 0 and seen.sum("idetcd_moved") == 0


def test_who_is_killed_after_the_move_takes_its_name_back(machines):
    """Long before its lease ends: the state knows the claim of the second store."""
    cluster = machines((2,), lease=120)
    node = cluster.start(2, PEERS)
    name = wait_name(node)
    begin(cluster, PEERS, ENDPOINT)
    finish(cluster, ENDPOINT)
    [before] = cluster.etcd.leases()
    wait_until(lambda: cluster.remembered_leases(node) == [before], 10, "the claim to be remembered")
    node.kill()
    node.launch().wait_answers(host=node.host)
    wait_name(node, name, timeout=40)
    wait_until(lambda: before not in cluster.etcd.leases(), 10, "the former lease to be given back")


@pytest.mark.parametrize("early", ["first", "second"])
def test_two_blocks_of_a_pattern_take_a_step_together(machines, early):
    cluster = machines((2,))
    node = cluster.start(2, ENDPOINT)
    name = wait_name(node)
    step, before = (ENDPOINT, PEERS), (ENDPOINT,)

    def reload(*of_blocks):
        first, second = (cluster.corefile(2, *stores) for stores in of_blocks)
        with open(node.corefile_path, "w", encoding="utf-8") as file:
            file.write(first + second.replace(". {", "other. {", 1).replace(f"    prometheus 127.0.0.2:{cluster.metrics}\n", ""))
        node.signal(signal.SIGHUP)
    reload(*((step, before) if early == "first" else (before, step)))
    node.wait_logged("two blocks with the pattern worker{{.ID}}.tf.local. differ")
    wait_state(node, moves_to=None, name=name)
    reload(step, step)
    wait_state(node, moves_to=PEERS, moved=True, name=name)


def test_a_step_that_is_none_is_refused(machines):
    cluster = machines((2,))
    node = cluster.start(2, ENDPOINT)
    name = wait_name(node)
    cluster.step(node, PEERS, ENDPOINT)
    node.wait_logged("a move begins with the option that the Corefile has already")
    wait_name(node, name)
