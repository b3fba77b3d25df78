"""The datapath as clients see it: several loops on one port, floods, and answers that leave no client out."""

import os
import random
import socket
import struct
import subprocess
import threading
import time

import pytest

from corefiles import corefile
from dns_client import RawTcp, RawUdp, answers, header, question, wait_gone
from harness.processes import TIME_FACTOR, wait_until

NAMES = 300


def name(number):
    return f"host{number}.tf.local."


def address(number):
    return f"10.1.{number >> 8}.{number & 255}"


def query(query_id, number, edns=False):
    packet = header(query_id, 0x100, ar=1 if edns else 0) + question(name(number))
    return packet + (b"\0" + struct.pack("!HHIH", 41, 1232, 0, 0) if edns else b"")


def is_answer(packet, query_id, number):
    """NOERROR, one record, and the address that belongs to the name."""
    expected = socket.inet_aton(address(number))
    end = 12 + len(question(name(number)))
    return (packet[:2] == struct.pack("!H", query_id) and packet[3] & 15 == 0 and packet[6:8] == b"\0\1"
            and packet[12:end] == question(name(number)) and packet[end + 12:end + 16] == expected)


@pytest.fixture(scope="module")
def filled_etcd(shared_etcd):
    shared_etcd.put_many({name(n): f'{{"ipv4":"{address(n)}"}}' for n in range(1, NAMES + 1)})
    return shared_etcd


def start(nodes, etcd, workers):
    node = nodes.start(corefile(etcd.endpoint, options=["observe"], directives=[f"workers {workers}"]))
    wait_gone([node], "nobody.tf.local.")  # what is not there is not known to be so before all is read
    return node


@pytest.fixture(scope="module", params=[1, 2, 4], ids=lambda workers: f"{workers}-workers")
def node(request, shared_nodes, filled_etcd):
    return start(shared_nodes, filled_etcd, request.param)


def test_every_client_is_answered(node):
    """A hundred ports, which the kernel spreads over the loops; each gets the right answers, over UDP and over TCP."""
    for client in range(100):
        number = 1 + client % NAMES
        with RawUdp(node.port) as udp:
            assert is_answer(udp.ask(query(client, number, edns=client % 2 == 0)), client, number)
    for client in range(20):
        with RawTcp(node.port) as tcp:
            tcp.send_message(query(client, 1 + client))
            assert is_answer(tcp.receive_message(), client, 1 + client)


def test_a_burst_is_answered_whole(node):
    """More than one batch at once, from one port: nothing lost, nothing mixed up."""
    with RawUdp(node.port) as udp:
        for round_number in range(5):
            numbers = random.sample(range(1, NAMES + 1), 150)
            for number in numbers:
                udp.send(query(number, number, edns=number % 3 == 0))
            seen = set()
            for _ in numbers:
                packet = udp.receive()
                number = struct.unpack("!H", packet[:2])[0]
                assert is_answer(packet, number, number)
                seen.add(number)
            assert seen == set(numbers), round_number


def test_junk_among_queries_changes_nothing(node):
    with RawUdp(node.port) as udp:
        for number in range(1, 101):
            udp.send(os.urandom(random.randrange(0, 12)))  # shorter than a header
            udp.send(query(number, number)[:2] + b"\x80" + query(number, number)[3:])  # a response
            udp.send(query(number, number))
        for number in range(1, 101):
            assert is_answer(udp.receive(), number, number)


def test_every_loop_sees_a_change(node, filled_etcd):
    """A put is visible from every port soon after it."""
    changed = f"changed{node.port}.tf.local."
    with_ports = [RawUdp(node.port) for _ in range(16)]
    try:
        for value in range(1, 20):
            filled_etcd.put(changed, f'{{"ipv4":"10.9.9.{value}"}}')
            expected = socket.inet_aton(f"10.9.9.{value}")
            packet = header(value, 0x100) + question(changed)
            deadline = time.monotonic() + 10 * TIME_FACTOR
            for udp in with_ports:
                while udp.ask(packet)[-4:] != expected:
                    assert time.monotonic() < deadline, f"value {value} is not seen by every loop"
    finally:
        for udp in with_ports:
            udp.sock.close()
        filled_etcd.delete(changed)


def test_each_worker_has_sockets_of_its_own(node):
    """The kernel has as many sockets on the port as there are loops."""
    listed = subprocess.run(["ss", "-Hulnp", f"sport = :{node.port}"], capture_output=True, text=True, check=True).stdout
    with open(node.corefile_path, encoding="utf-8") as file:
        workers = int(file.read().partition("workers ")[2].split()[0])
    v4 = [line for line in listed.splitlines() if f"0.0.0.0:{node.port}" in line]
    assert len(v4) == workers, listed


class Flood(threading.Thread):
    """Sends as fast as it can, reads nothing."""

    def __init__(self, port):
        super().__init__()
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        self.sock.connect(("127.0.0.1", port))
        self.stopping = False
        self.sent = 0

    def run(self):
        packets = [query(number, number) for number in range(1, NAMES + 1)]
        while not self.stopping:
            for packet in packets:
                self.sock.send(packet)
            self.sent += len(packets)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stopping = True
        self.join()
        self.sock.close()


def unread_bytes(port):
    """What waits in the receive buffers of the UDP sockets of this port."""
    with open("/proc/net/udp", encoding="ascii") as table:
        sockets = [line.split() for line in table.readlines()[1:]]
    return sum(int(fields[4].partition(":")[2], 16) for fields in sockets if int(fields[1].partition(":")[2], 16) == port)


def test_a_flood_over_udp_does_not_starve_tcp_or_changes(node, filled_etcd):
    """The batches of a wake-up are bounded: TCP, the watch and other clients get their turn while it lasts."""
    changed = f"flooded{node.port}.tf.local."
    with Flood(node.port) as flood:
        for query_id in range(50):
            with RawTcp(node.port) as tcp:
                tcp.send_message(query(query_id, 7))
                assert is_answer(tcp.receive_message(), query_id, 7)
        filled_etcd.put(changed, '{"ipv4":"10.9.9.1"}')
        wait_until(lambda: answers(node, changed, tcp=True) == ["10.9.9.1"], 5, f"{changed} under the flood")
    assert flood.sent > 0
    filled_etcd.delete(changed)
    # What the flood has left in the socket's buffer leaves no room for another datagram until it is served.
    wait_until(lambda: unread_bytes(node.port) == 0, 10, "the rest of the flood to be served")
    assert answers(node, name(1)) == [address(1)]


def test_a_flood_over_tcp_does_not_starve_udp(node):
    """A client that pipelines without end and reads: others are answered meanwhile."""
    stop = threading.Event()

    def pipeline():
        data = b"".join(struct.pack("!H", len(query(n, 1))) + query(n, 1) for n in range(200))
        with RawTcp(node.port) as tcp:
            tcp.sock.setblocking(True)
            reader = threading.Thread(target=lambda: [None for _ in iter(lambda: tcp.sock.recv(65536), b"")])
            reader.start()
            while not stop.is_set():
                tcp.send(data)
            tcp.sock.shutdown(socket.SHUT_WR)
            reader.join()

    thread = threading.Thread(target=pipeline)
    thread.start()
    try:
        with RawUdp(node.port) as udp:
            for number in range(1, 200):
                assert is_answer(udp.ask(query(number, number)), number, number)
    finally:
        stop.set()
        thread.join()
