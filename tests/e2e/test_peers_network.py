"""Machines that found a cluster on a network that is bad: each has one of its own, on one switch."""

import itertools
import os
import selectors
import signal
import socket
import struct
import time

import dns.rcode
import dns.rdatatype
import pytest

from dns_client import ask, rcode
from harness import xdp
from harness.background import Background
from harness.peers import Lan, group_of, name_of, voters_of, wait_name, worker
from harness.processes import assert_takes_less, wait_until
from harness.upstreams import Upstream, answer

pytestmark = pytest.mark.etcd  # that the machines run

# Of what a machine receives. BPF's helper 7 is get_prandom_u32, 1 is XDP_DROP, 2 XDP_PASS.
LOSES_30_PERCENT = "((unsigned (*)(void))7)() % 100 < 30 ? 1 : 2"


def wait_one_cluster(nodes, timeout=15):
    """Until all are members of one; its identity."""
    def condition():
        found = {group_of(node)["cluster"] for node in nodes}
        return found.pop() if len(found) == 1 else None
    return wait_until(condition, timeout, lambda: "\n".join(node.logs() for node in nodes), interval=0.1)


def test_30_percent_loss(lan, directory):
    """They found, join and keep their names. What is claimed meanwhile takes its time: voters that lose each other's heartbeats
    change their leader every few seconds, which a lease has to outlast, too."""
    reason = xdp.unavailable()
    if reason:
        pytest.skip(reason)
    cluster = lan(expect=3, limit=4, lease=60)
    numbers = (2, 3, 4, 5)
    program = xdp.compiled(directory, "loss", LOSES_30_PERCENT)

    def lose(wanted):
        for number in numbers:
            cluster.space(number).run("ip", "link", "set", "dev", "lan", "xdpgeneric", *(["obj", program, "sec", "xdp"] if wanted else ["off"]))
    lose(True)
    for number in numbers[:3]:
        cluster.start(number)
    founded = wait_one_cluster(cluster.made.values())
    lose(False)
    names = {number: wait_name(node) for number, node in cluster.made.items()}
    assert set(names.values()) == {worker(n) for n in (1, 2, 3)}
    for number in names:
        wait_until(lambda n=number: known(cluster, n, names.values()), 10, cluster.made[number].logs)
    lose(True)
    late = cluster.start(5)
    until = time.monotonic() + 20
    while time.monotonic() < until:
        for number, name in names.items():
            node = cluster.made[number]
            assert name_of(node) in (name, None) and known(cluster, number, names.values()), node.logs(tail=200)
    assert wait_one_cluster(cluster.made.values()) == founded
    lose(False)
    for number, name in names.items():
        wait_name(cluster.made[number], name)
    wait_name(late, worker(4))


@pytest.mark.parametrize("number", (2, 5), ids=("votes", "stands by"))
def test_a_machine_that_is_cut_off_ends_within_2_s(lan, number):
    """Though it can give nothing back."""
    cluster = lan(expect=3, lease=20)
    for founder in (2, 3, 4):
        cluster.start(founder)
    for node in cluster.made.values():
        wait_name(node)
    voters_of(cluster.made[2], 3)
    wait_name(cluster.start(5), worker(4))
    name = name_of(cluster.made[number])

    def attempt(again):
        if again:
            cluster.plug(number, "up")
            wait_name(cluster.start(number), name)
        cluster.plug(number, "down")
        begin = time.monotonic()
        assert cluster.made[number].terminate() == 0
        return time.monotonic() - begin
    assert_takes_less(3.5, attempt)


def known(cluster, number, names):
    """Whether the machine answers for all of them."""
    with cluster.space(number).entered():
        found = [ask(cluster.made[number], name) for name in names]
    return all(rcode(response) == "NOERROR" and response.answer for response in found)


def test_an_etcd_that_cannot_be_started_at_the_founding_is_started_later(lan):
    """The second of three voters waits 3 s for the etcd of the first, which does not come. Meanwhile its files are gone, and are to be written anew."""
    cluster = lan(expect=3)
    nodes = [cluster.start(2, "address 10.77.0.2", "etcd-program /bin/false"), *(cluster.start(n, f"address 10.77.0.{n}") for n in (3, 4))]
    files = os.path.join(cluster.state(3), f"peers-{cluster.PEERS_PORT}", "tls")
    wait_until(lambda: os.path.exists(os.path.join(files, "certificate.pem")), 20, nodes[1].logs, interval=0.01)
    nodes[1].signal(signal.SIGSTOP)
    os.rename(files, files + ".away")
    with open(files, "wb"):
        pass
    cluster.space(3).run("ip", "address", "add", "10.77.0.33/24", "dev", "lan")
    nodes[1].signal(signal.SIGCONT)
    nodes[1].wait_logged("etcd cannot be started")
    os.remove(files)
    os.rename(files + ".away", files)
    assert {wait_name(node) for node in nodes} == {worker(n) for n in (1, 2, 3)}


class Rendezvous(Upstream):
    """The DNS server of a Lan: what it says of any name is what `says` returns, addresses or an rcode; None: silence."""

    def __init__(self, cluster):
        super().__init__(self._reply, host=cluster.HUB, port=53)
        self.cluster = cluster
        self.says = lambda: None
        self.said = 0

    def _reply(self, query, tcp):
        says = self.says()
        self.said += 1
        if says is None:
            return None
        if not isinstance(says, list):
            return answer(query, rcode=says)
        is_a = query.question[0].rdtype == dns.rdatatype.A
        return answer(query, *(f"A {one}" for one in says if is_a))

    def start(self):
        with self.cluster.hub.entered():
            return super().start()

    def start_machine(self, number, **options):
        space = self.cluster.space(number)
        space.write("resolv.conf", f"nameserver {self.host}\noptions timeout:1 attempts:1\n")
        space.write("nsswitch.conf", "hosts: dns\n")
        return self.cluster.start(number, peers="nodes.test", **options)


class Mirror(Background):
    """A stranger: sends each datagram back to where it came from, and takes connections to which it says nothing."""

    def __init__(self, space, host, port):
        super().__init__()
        self.heard = set()
        self.count = 0
        self.port = port
        with space.entered():
            self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self._tcp = socket.create_server((host, port))
        self._udp.bind((host, port))

    def _run(self):
        with self._udp, self._tcp, selectors.DefaultSelector() as selector:
            selector.register(self._udp, selectors.EVENT_READ)
            while not self._end.is_set():
                if selector.select(0.1):
                    data, sender = self._udp.recvfrom(65535)
                    self.heard.add(sender[0])
                    self.count += 1
                    self._send_back(data, sender)

    def _send_back(self, data, sender):
        self._udp.sendto(data, sender)


class Forger(Mirror):
    """Sends it back as if it came from another machine."""

    def __init__(self, space, host, port, source):
        super().__init__(space, host, port)
        self._source = source
        with space.entered():
            self._raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)

    def _send_back(self, data, sender):
        udp = struct.pack("!4H", self.port, sender[1], 8 + len(data), 0) + data
        ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, socket.IPPROTO_UDP, 0, socket.inet_aton(self._source),
                         socket.inet_aton(sender[0]))
        self._raw.sendto(ip + udp, sender)

    def _run(self):
        with self._raw:
            super()._run()


def address(number):
    return f"{Lan.NETWORK}.{number}"


def test_a_strangers_hello(lan):
    """It has no secret, and repeats what others say, in the name of a member: the machine that asks it finds the member all the same."""
    cluster = lan(expect=2, limit=3)
    member, other, late, stranger = 2, 3, 4, 20
    for number in (member, other):
        cluster.start(number, peers=f"{address(member)} {address(other)}")
    founded = wait_one_cluster(cluster.made.values())
    mac = cluster.space(member).run("ip", "-brief", "link", "show", "lan").split()[2]
    cluster.space(late).run("ip", "neighbor", "add", address(member), "lladdr", mac, "dev", "lan")  # what is sent there now is lost, and waits for no ARP
    cluster.plug(member, "down")
    with Forger(cluster.space(stranger), address(stranger), cluster.PEERS_PORT, source=address(member)) as forger:
        node = cluster.start(late, peers=f"{address(stranger)} {address(member)}")
        wait_until(lambda: forger.count >= 3, 15, node.logs)
        cluster.plug(member, "up")
        assert wait_one_cluster([node], timeout=20) == founded
        assert {wait_name(one) for one in cluster.made.values()} == {worker(n) for n in (1, 2, 3)}


def test_a_rendezvous_name_that_lies(lan):
    """It leads to a stranger, to nobody, and to the machines of another secret; then to those, and the right ones."""
    cluster = lan(expect=3, limit=4)
    ours, theirs, stranger = (2, 3, 4), (8, 9), 20
    lies = [address(stranger), address(99), "192.0.2.1", *map(address, theirs)]
    with Rendezvous(cluster) as name, Mirror(cluster.space(stranger), address(stranger), cluster.PEERS_PORT) as mirror:
        name.says = lambda: lies
        another = cluster.secret_file("another")
        for number in theirs:
            name.start_machine(number, secret=another)
        their_cluster = wait_one_cluster([cluster.made[number] for number in theirs])
        nodes = [name.start_machine(number) for number in ours]
        wait_until(lambda: mirror.heard >= set(map(address, ours)), 30, lambda: mirror.heard)
        for node in nodes:
            wait_until(lambda n=node: n.out().count("1 of 2 machines seen") >= 2, 15, node.logs)  # it says so every 10 s
            assert not group_of(node)["cluster"]
        name.says = lambda: lies + [address(number) for number in ours]
        founded = wait_one_cluster(nodes, timeout=20)
        assert founded != their_cluster
        nodes.append(name.start_machine(5))
        assert {wait_name(node) for node in nodes} == {worker(n) for n in (1, 2, 3, 4)}
        assert wait_one_cluster(nodes) == founded
        assert wait_one_cluster([cluster.made[number] for number in theirs]) == their_cluster
        assert {wait_name(cluster.made[number]) for number in theirs} == {worker(1), worker(2)}


def test_a_rendezvous_name_that_is_late(lan):
    """No answer, then SERVFAIL, then one address at a time, with a stranger's among them."""
    cluster = lan(expect=3)
    numbers = (2, 3, 4)
    with Rendezvous(cluster) as name:
        nodes = [name.start_machine(number) for number in numbers]
        for node in nodes:
            node.wait_logged("nodes.test has no address: ")
        assert nodes[0].terminate() == 0  # while it is being looked up
        nodes[0] = name.start_machine(numbers[0])
        said = name.said
        name.says = lambda: dns.rcode.SERVFAIL
        wait_until(lambda: name.said > said + 3 * len(nodes), 30, "all to have asked again")
        assert not any(group_of(node)["cluster"] for node in nodes)
        turn = itertools.cycle([20, *numbers])
        name.says = lambda: [address(next(turn))]
        wait_one_cluster(nodes, timeout=60)
        assert {wait_name(node) for node in nodes} == {worker(n) for n in (1, 2, 3)}
