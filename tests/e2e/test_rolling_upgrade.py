"""Nodes of the release before and of this one in one cluster, upgraded and rolled back one by one, by real binaries of
both. The cluster is as full as it may be: a slot that is not given back, or not taken, shows at once."""

import collections
import os
import threading
import time
from dataclasses import dataclass, field

import pytest

from chaos.ownership import Change, tenures
from chaos.prober import A, CHAOS, TXT, Prober, address, own_name, question
from chaos.store import Store, now
from corefiles import corefile
from dns_client import wait_resolves
from harness import earlier
from harness.node import binary
from harness.processes import TIME_FACTOR

EACH = 10
COUNT = 2 * EACH
# From the end of one process to the name of the next: far below the lease, which would be waited out otherwise.
ONE_CLAIM = 5 * TIME_FACTOR
LEASE = 30

pytestmark = pytest.mark.serial


def worker(number):
    return f"worker{number}.tf.local."


# What every node is asked in turn: a name of the cluster, or (None) what it calls itself, which must be seen often.
ASKED = [name for number in range(1, COUNT + 1, 4) for name in (None, *map(worker, range(number, number + 4)))]
QUESTIONS = [question(name, A) if name else question("id.server.", TXT, CHAOS) for name in ASKED]


@dataclass
class Machine:
    number: int
    node: object
    name: str = ""
    starts: int = 0

    @property
    def address(self):
        return f"192.0.2.{self.number}"

    @property
    def incarnation(self):
        return f"{self.node.name}/{self.starts}"


@dataclass
class Witness:
    """What every node was heard to say, all the time."""
    said: dict = field(default_factory=lambda: collections.defaultdict(list))  # (name, incarnation) -> [(sent, received)]
    missing: list = field(default_factory=list)  # (name, answer, incarnation, sent, received)
    away: dict = field(default_factory=lambda: collections.defaultdict(list))  # name -> [(from, to)]
    # A node that has just started may not have read the store yet: what it does not know then is not lost.
    ready: dict = field(default_factory=dict)  # incarnation -> when it knew all
    answers: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def observe(self, owner, number, sent, received, packet):
        with self.lock:
            self.answers += 1
            if ASKED[number] is None:
                name = own_name(packet) if packet[3] & 0xF == 0 else None
                if name:
                    self.said[name, owner].append((sent, received))
            elif not address(packet).startswith("192.0.2."):
                self.missing.append((ASKED[number], address(packet), owner, sent, received))

    def shared(self):
        """Pairs of incarnations that were certainly both called by one name at one moment."""
        spans = collections.defaultdict(list)
        for (name, owner), seen in self.said.items():
            spans[name].append((min(received for _, received in seen), max(sent for sent, _ in seen), owner))
        return [(name, one, other) for name, owners in spans.items() for i, one in enumerate(owners)
                for other in owners[i + 1:] if one[0] < other[1] and other[0] < one[1]]

    def lost(self):
        """Answers without the name's address, though its node was not being replaced and the node asked was up to date."""
        return [miss for miss in self.missing
                if self.ready.get(miss[2], float("inf")) < miss[3]
                and not any(begin <= miss[4] and miss[3] <= end for begin, end in self.away[miss[0]])]


def start(machine, program, etcd, prober, witness):
    machine.starts += 1
    machine.node.binary = program
    machine.node.start()
    prober.attach(machine.incarnation, machine.node.port)
    return machine.node.wait_owns(etcd, ONE_CLAIM)


def all_known(machine, machines):
    for other in machines:
        wait_resolves([machine.node], other.name, other.address, timeout=10)


def replace(machine, program, machines, etcd, prober, witness):
    """Stops the machine's server and starts the other one in its place. Returns how long the name had no owner."""
    begin = now()
    prober.detach(machine.incarnation)
    assert machine.node.terminate() == 0, machine.node.logs()
    ended = time.monotonic()
    name = start(machine, program, etcd, prober, witness)
    took = time.monotonic() - ended
    assert name == machine.name, f"{machine.node.name} was {machine.name}, is {name}\n{machine.node.logs()}"
    wait_resolves([other.node for other in machines], machine.name, machine.address, timeout=10)
    all_known(machine, machines)
    witness.away[machine.name].append((begin, now()))
    witness.ready[machine.incarnation] = now()
    return took


def test_a_cluster_is_upgraded_and_rolled_back_node_by_node(etcd, nodes, directory):
    before, this = earlier.binary(), binary()
    assert os.path.realpath(before) != os.path.realpath(this)
    witness = Witness()
    prober = Prober(QUESTIONS, witness.observe)
    machines = []
    for number in range(1, COUNT + 1):
        options = [f"address 192.0.2.{number}"]
        if number % 2:  # the files of one release are read by the other
            options.append(f"state {directory}/state{number}")
        machines.append(Machine(number, nodes.make(corefile(etcd.endpoint, limit=COUNT, lease=LEASE, options=options))))
    prober.start()
    try:
        for machine in machines:
            machine.name = start(machine, before if machine.number <= EACH else this, etcd, prober, witness)
        assert sorted(machine.name for machine in machines) == sorted(worker(number) for number in range(1, COUNT + 1))
        for machine in machines:
            all_known(machine, machines)
            witness.ready[machine.incarnation] = now()
        gaps = [(machine.name, program, replace(machine, program, machines, etcd, prober, witness))
                for program, some in ((this, machines[:EACH]), (before, machines)) for machine in some]
        gaps += [(machine.name, this, replace(machine, this, machines, etcd, prober, witness)) for machine in machines[EACH:]]
    finally:
        prober.stop()
    print(f"{witness.answers} answers; a name without owner for at most {max(gap for _, _, gap in gaps):.2f} s")
    assert witness.answers > 1000
    assert not witness.shared()
    assert not witness.lost()[:10]
    assert max(gap for _, _, gap in gaps) < ONE_CLAIM
    assert not taken_away(etcd)


def taken_away(etcd):
    """Tenures of a slot that ended by another node's put, by etcd's own history."""
    store = Store([etcd.client_port], timeout=30)
    store.put("end", "{}")
    revision = etcd.revision()
    changes = []
    for key, value, create_revision, mod_revision in store.history(revision):
        if key.startswith("worker"):
            port = None if value is None else value.partition('"port":"')[2].partition('"')[0]
            changes.append(Change(key, mod_revision, port, create_revision))
    return [(one, other) for slot in tenures(changes).values() for one, other in zip(slot, slot[1:])
            if one.end == other.begin]
