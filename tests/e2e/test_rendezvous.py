"""idetcd_rendezvous (src/rendezvous): processes with PyTorch's interface agree on rounds and ranks by the names of their nodes.

PyTorch is not in Debian: torch_interface/torch stands for it, with the interface as it is published, and
torch_interface/agent.py for its agent."""

import asyncio
import concurrent.futures
import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import socket
import sys
import threading

import pytest

from corefiles import corefile
from harness import ports
from harness.node import ROOT, Node
from harness.processes import Process, wait_until

INTERFACE = os.path.join(ROOT, "tests", "e2e", "torch_interface")
PACKAGE = os.path.join(ROOT, "src", "rendezvous")
sys.path.insert(0, PACKAGE)
from idetcd_rendezvous import barrier, node  # behind the path  pylint: disable=wrong-import-position


def installed(directory):
    """Where Python finds it as a package that is installed."""
    place = os.path.join(directory, "dist-packages")
    about = os.path.join(place, "idetcd_rendezvous-1.0.0.dist-info")
    os.makedirs(about)
    os.symlink(os.path.join(PACKAGE, "idetcd_rendezvous"), os.path.join(place, "idetcd_rendezvous"))
    shutil.copy(os.path.join(PACKAGE, "entry_points.txt"), about)
    with open(os.path.join(about, "METADATA"), "w", encoding="ascii") as file:
        file.write("Metadata-Version: 2.1\nName: idetcd-rendezvous\nVersion: 1.0.0\n")
    return place


class Agent(Process):
    """Of a node; its output is a line a round."""

    def __init__(self, number, job, node):
        super().__init__(f"agent{number}", job.directory)
        self.node = node
        conf = [f"socket={node.socket_path()}", "addresses=1", "last_call_timeout=1", f"keep_alive_interval={job.keep_alive}", "join_timeout=60", *job.conf]
        self.spawn([sys.executable, "-B", os.path.join(INTERFACE, "agent.py"), str(job.least), str(job.most), str(job.port), *conf],
                   env={"PYTHONPATH": f"{INTERFACE}:{job.place}"})

    def lines(self):
        return [json.loads(line) for line in self.out().splitlines()]

    def rounds(self):
        return [(line["rank"], line["world"], line["master"]) for line in self.lines() if "rank" in line]

    def rounds_generation(self):
        """Of the members in its last round, which it has logged."""
        return int(re.findall(r"a round, of generation (\d+): rank", self.err())[-1])

    def wait_round(self, *expected, number=None):
        """Until its last round is this one: rank, how many, the address of the first. `number`: and it is the so manieth."""
        wait_until(lambda: self.rounds()[-1:] == [expected] and number in (None, len(self.rounds())), 30,
                   lambda: f"{self.name}: {expected}, {number}; {self.out()}\n{self.err()}\n{self.node.logs(30)}")


class Job:
    def __init__(self, directory, etcd, nodes):
        self.directory = directory
        self.etcd = etcd
        self.nodes = nodes
        self.place = installed(directory)
        self.port = ports.free_port()
        self.least = self.most = 5
        self.limit = 5
        self.keep_alive = 1  # seconds; three of them without a sign of life are the end
        self.conf = []
        self.agents = []

    def node(self, *options):
        number = len(self.nodes.nodes) + 1
        text = corefile(self.etcd.endpoint, limit=self.limit, options=[f"address {address_of(number)}", *options])
        node = self.nodes.start(text)
        wait_until(lambda: os.path.exists(node.socket_path()), 10, node.logs)
        return node

    def agent(self, node):
        self.agents.append(Agent(len(self.agents) + 1, self, node))
        return self.agents[-1]

    def close(self):
        for agent in self.agents:
            agent.kill()
        ports.release(self.port)


def address_of(number):
    return f"127.0.77.{number}"


@pytest.fixture
def job(directory, etcd, nodes):
    job = Job(directory, etcd, nodes)
    yield job
    job.close()


def started(job, count):
    """So many nodes, named in their order, with their agents, which begin in another one."""
    nodes = []
    for _ in range(count):
        nodes.append(job.node())
        nodes[-1].wait_owns(job.etcd)
    agents = {node.name: job.agent(node) for node in reversed(nodes)}
    return [agents[node.name] for node in nodes]


def test_a_spare_takes_the_place_of_the_dead(job):
    job.keep_alive = 5  # the end of a process is its connection's
    agents = started(job, 5)
    spare = job.agent(job.node())
    for rank, agent in enumerate(agents):
        agent.wait_round(rank, 5, address_of(1))
    assert agents[4].lines()[0]["ranks"] == "0 1 2 3 4"
    before = agents[0].rounds_generation()
    dead = agents.pop(2)
    dead.node.kill()
    dead.kill()
    spare.wait_round(2, 5, address_of(1))
    for rank, agent in zip((0, 1, 3, 4), agents):
        agent.wait_round(rank, 5, address_of(1), number=2)
    assert len({agent.rounds_generation() for agent in [*agents, spare]}) == 1 and agents[0].rounds_generation() > before
    # The end of one is the end of all.
    agents[1].signal(signal.SIGUSR1)
    for agent in [*agents, spare]:
        assert agent.exit_code(20) == 0
        assert agent.lines()[-1] == {"ended": True} and not any("error" in line for line in agent.lines())


def test_the_number_of_members_varies(job):
    """Between the least and the most; who comes late is let in while there is room."""
    job.least, job.most = 2, 4
    agents = started(job, 3)
    for rank, agent in enumerate(agents):
        agent.wait_round(rank, 3, address_of(1))
    late = job.agent(job.node())
    for rank, agent in enumerate([*agents, late]):
        agent.wait_round(rank, 4, address_of(1))
    spare = job.agent(job.node())
    wait_until(lambda: Node.connected_ports(spare)[job.port], 20, spare.err)
    # The first, which hosts the rendezvous and the store, dies; its node lives, and keeps the name.
    agents[0].kill()
    for rank, agent in enumerate([agents[1], agents[2], late, spare]):
        agent.wait_round(rank, 4, address_of(2))
    # A process that has stopped is as good as dead.
    agents[2].pause()
    agents[1].wait_round(0, 3, address_of(2))
    agents[2].signal(signal.SIGKILL)


def test_ranks_by_place(job):
    job.least = job.most = 3
    job.conf = ["order=topology"]
    agents = []
    for place in ("z1/b", "z1/a", "z0/c"):
        path = os.path.join(job.directory, place.replace("/", "-"))
        with open(path, "w", encoding="ascii") as file:
            file.write(f"{place}\n")
        node = job.node(f"topology file {path}")
        node.wait_owns(job.etcd)
        agents.append(job.agent(node))
    for rank, agent in zip((2, 1, 0), agents):
        agent.wait_round(rank, 3, address_of(3))


def test_who_waits_in_vain_says_why(job):
    job.least = job.most = 2
    job.conf = ["join_timeout=8"]
    [alone] = started(job, 1)
    assert alone.exit_code(40) == 0
    assert alone.lines()[0]["error"] == "RendezvousTimeoutError" and "less than 2 members" in alone.lines()[0]["text"]


def test_a_drained_node_leaves_the_job(job):
    job.least, job.most = 1, 2
    agents = started(job, 2)
    for rank, agent in enumerate(agents):
        agent.wait_round(rank, 2, address_of(1))
    assert agents[0].node.control("/v1/drain", "POST")[0] == 200
    agents[1].wait_round(0, 1, address_of(2))
    assert agents[0].node.control("/v1/undrain", "POST")[0] == 200
    for rank, agent in enumerate(agents):
        agent.wait_round(rank, 2, address_of(1))


class Barriers:
    """Without idetcd and etcd, whose answers are made here."""

    def __init__(self, port, count, sizes=None):
        self.port = port
        self.members = [node.Member(i, f"worker{i}", f"uuid{i}", (), f"127.0.78.{i}", f"worker{i}") for i in range(1, count + 1)]
        self.knows = {each: self.members for each in self.members}
        self.pool = concurrent.futures.ThreadPoolExecutor()
        self.all = [barrier.Barrier(lambda each=each: node.Roster(tuple(self.knows[each]), each, 7),
                                    barrier.Settings("job", *(sizes or {}).get(each.id, (2, 2)), port, last_call=1, keep_alive=1))
                    for each in self.members]

    def join(self, index, timeout=30):
        return self.pool.submit(self.all[index].next_round, timeout, lambda current: current.world_size)

    def states(self):
        return [said["state"] for _, said in asyncio.run(self.all[0].probe(self.members))]

    def connected(self, *messages):
        """A connection to the first, which has said this."""
        connection = socket.create_connection((self.members[0].address, self.port), 30)
        with contextlib.suppress(ConnectionError):  # it is refused before all has been said
            for message in messages:
                connection.sendall(message)
        return connection

    def close(self):
        for each in self.all:
            each.stop()
        self.pool.shutdown()


def answer(connection):
    """Up to the end."""
    said = b""
    with connection, contextlib.suppress(ConnectionError):
        while more := connection.recv(4096):
            said += more
    return said


def hello(**other):
    return json.dumps({"op": "hello", "run": "job", "members": [2, 2], "id": 1, "name": "worker1", "node": "uuid1", **other}).encode() + b"\n"


def expect_round(joined, rank):
    found, value = joined.result()
    assert (found.rank, found.names, found.generation, value) == (rank, ("worker1", "worker2"), 7, 2)


def test_two_hosts_become_one(free_port):
    """Each has begun before it knew of the other."""
    with contextlib.closing(Barriers(free_port(), 2)) as barriers:
        barriers.knows = {each: [each] for each in barriers.members}
        rounds = [barriers.join(index) for index in (0, 1)]
        wait_until(lambda: barriers.states() == ["gathering"] * 2, 10, "two hosts")
        barriers.knows = {each: barriers.members for each in barriers.members}
        for rank, joined in enumerate(rounds):
            expect_round(joined, rank)


def test_strangers_do_no_harm(free_port, monkeypatch):
    """Neither to the wait for a round nor to one that runs."""
    monkeypatch.setattr(barrier, "_PATIENCE", 60)
    with contextlib.closing(Barriers(free_port(), 3)) as barriers, socket.socket() as foreign:
        # Another program at the third machine's port.
        foreign.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        foreign.bind((barriers.members[2].address, barriers.port))
        foreign.listen()

        def talk_nonsense():
            with contextlib.suppress(OSError):  # the test has ended
                for said in itertools.cycle((b"[]\n", b"5\n", b"SSH-2.0\n", b"")):
                    with foreign.accept()[0] as connection, contextlib.suppress(ConnectionError):
                        connection.sendall(said)

        threading.Thread(target=talk_nonsense, daemon=True).start()
        rounds = [barriers.join(0)]
        wait_until(lambda: barriers.states() == ["gathering"], 10, "a host")

        def attack():
            for said in (b"GET / HTTP/1.1\r\n\r\n", b"\0\xff\n", b"[]\n", b"[" * 60_000 + b"\n", b"x" * 200_000, hello(id=1e999), hello(id=None),
                         hello(run="another"), hello(name="worker9"), hello(node="uuid2"), hello(name=[])):
                assert b"welcome" not in answer(barriers.connected(said)), said
            silent = [barriers.connected() for _ in range(3 * barrier._STRANGERS)]  # pylint: disable=protected-access
            for connection in silent[:2 * barrier._STRANGERS]:  # pylint: disable=protected-access
                assert answer(connection) == b""
            assert barriers.states()[0] in ("gathering", "round")
            for connection in silent:
                connection.close()

        attack()
        rounds.append(barriers.join(1))
        for rank, joined in enumerate(rounds):
            expect_round(joined, rank)
        attack()
        assert [each.waiting() for each in barriers.all[:2]] == [0, 0] and barriers.states()[0] == "round"


def test_all_say_the_same_number(free_port):
    with contextlib.closing(Barriers(free_port(), 2, {2: (1, 4)})) as barriers:
        first = barriers.join(0, timeout=5)
        wait_until(lambda: barriers.states() == ["gathering"], 10, "a host")
        with pytest.raises(barrier.TimedOut, match="a round here has 2:2 members"):
            barriers.join(1, timeout=4).result()
        with pytest.raises(barrier.TimedOut, match="with less than 2 members"):
            first.result()
