"""The file system stands still: hosts file, resolv.conf, Corefile and state directory. No client notices."""

import json
import os
import signal
import socket
import time

import pytest

from corefiles import corefile
from dns_client import answers, make_query, said_name, wait_resolves, wait_says
from harness.frozen_disk import FreezableDisk
from harness.peers import run
from harness.processes import TIME_FACTOR, wait_until
from harness.secure_etcd import Authority, SecureEtcd, install
from harness.stalled_disk import StalledDisk, available
from harness.upstreams import Upstream, answer

pytestmark = [pytest.mark.serial, pytest.mark.skipif(not available(), reason="needs root and /dev/fuse")]

STALL = 10  # seconds: far more than any answer may take
WORKER1 = "worker1.tf.local."
QUESTIONS = (WORKER1, "listed.example.", "elsewhere.example.")  # the cluster's, in the hosts file, forwarded


@pytest.fixture
def disk():
    disk = StalledDisk()
    yield disk
    disk.close()


@pytest.fixture
def upstream():
    upstream = Upstream(lambda query, tcp: answer(query, "A 192.0.2.30", ttl=0)).start()
    yield upstream
    upstream.close()


@pytest.fixture
def node(nodes, etcd, disk, upstream):
    """All its files are on the disk, but for its log."""
    write(disk, "hosts", "192.0.2.20 listed.example\n")
    write(disk, "resolv.conf", f"nameserver 127.0.0.1:{upstream.port}\n")
    text = corefile(etcd.endpoint, options=[f"state {disk.path}/state", "address 192.0.2.7"], directives=[
        f"hosts {disk.path}/hosts example. {{\n reload 100ms\n fallthrough\n }}", f"forward . {disk.path}/resolv.conf"])
    write(disk, "Corefile", text)
    node = nodes.make("")
    node.corefile_path = f"{disk.path}/Corefile"
    node.start()
    wait_says(node, WORKER1)
    wait_until(lambda: any(name.endswith(".names") for name in os.listdir(f"{disk.behind}/state")), 20, "the names to be saved")
    return node


def waits_for_a_disk(node):
    """Whether one of its threads waits for a frozen one, which no signal ends."""
    for thread in os.listdir(f"/proc/{node.pid}/task"):
        with open(f"/proc/{node.pid}/task/{thread}/wchan", encoding="ascii") as file:
            if file.read() == "percpu_rwsem_wait":
                return True
    return False


def test_a_slow_state_directory_is_named(nodes, etcd):
    """A reload with another pattern waits for it, and its operator would not know what for."""
    disk = FreezableDisk()
    try:
        text = corefile(etcd.endpoint, options=[f"state {disk.path}/state", "address 192.0.2.7"])
        node = nodes.start(text)
        wait_says(node, WORKER1)
        disk.freeze()
        with open(node.corefile_path, "w", encoding="ascii") as file:
            file.write(text.replace("worker{{.ID}}", "other{{.ID}}"))
        node.signal(signal.SIGHUP)
        wait_until(lambda: waits_for_a_disk(node), 20, "a write to wait")
        time.sleep(2)  # the length of the fault
        disk.thaw()
        node.wait_logged(f"state directory {disk.path}/state: a write has taken")
        wait_says(node, "other1.tf.local.")
    finally:
        disk.thaw()
        node.terminate()
        disk.close()


def test_a_disk_that_stands_still_is_named_while_it_does(nodes, etcd):
    """Of a disk that never comes back no write ends, which could say so."""
    disk = FreezableDisk()
    try:
        text = corefile(etcd.endpoint, options=[f"state {disk.path}/state", "address 192.0.2.7"])
        node = nodes.start(text)
        wait_says(node, WORKER1)
        disk.freeze()
        etcd.delete(WORKER1)  # which is a loss, and another claim: both are written
        node.wait_logged(f"state directory {disk.path}/state: a write still takes its time after 5 s", timeout=20)
        wait_says(node, WORKER1)
        with open(node.corefile_path, "w", encoding="ascii") as file:
            file.write(text.replace("worker{{.ID}}", "other{{.ID}}"))
        node.signal(signal.SIGHUP)
        node.wait_logged("The reload is under way for 5 s: it waits for a file or a host", timeout=20)
        disk.thaw()
        wait_says(node, "other1.tf.local.")
    finally:
        disk.thaw()
        node.terminate()
        disk.close()


def test_a_start_that_waits_for_the_disk_says_so(nodes, etcd, disk):
    """Nothing of the process runs on that could say it: it waits in the kernel, and has one thread."""
    node = nodes.make(corefile(etcd.endpoint, options=[f"state {disk.path}/state", "address 192.0.2.7"]))
    disk.stall()
    try:
        node.launch()
        node.wait_logged("The start is under way for 5 s: it waits for a file or a host", timeout=20)
    finally:
        disk.go_on()
    node.wait_answers()
    wait_says(node, WORKER1)


def test_a_release_waits_a_second_for_the_disk(node, etcd, disk):
    """The identity file cannot be emptied. Neither the command nor the next claim waits for longer, and the log says what stands still."""
    token = etcd.pairs()[WORKER1.encode()]["create_revision"]
    disk.stall()
    try:
        began = time.monotonic()
        code, _, err = run(node, "release", WORKER1, "--yes", WORKER1)
        assert code == 0 and time.monotonic() - began < 5 * TIME_FACTOR, err
        wait_until(lambda: etcd.pairs().get(WORKER1.encode(), {}).get("create_revision", token) > token, 10, node.logs)
        wait_says(node, WORKER1)
        node.wait_logged("a write still takes its time after 5 s", timeout=20)
    finally:
        disk.go_on()


def write(disk, name, text):
    """In place of the file, as seen from behind the disk: a disk that stands still does not hold it up."""
    with open(f"{disk.behind}/{name}.writing", "w", encoding="utf-8") as file:
        file.write(text)
    os.rename(f"{disk.behind}/{name}.writing", f"{disk.behind}/{name}")


def times(node, seconds):
    """How long each answer took, in seconds; every question is answered."""
    packets = [make_query(name).to_wire() for name in QUESTIONS]
    taken = []
    end = time.monotonic() + seconds
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("127.0.0.1", node.port))
        sock.settimeout(2 * STALL * TIME_FACTOR)
        while time.monotonic() < end:
            for packet in packets:
                begin = time.monotonic()
                sock.send(packet)
                response = sock.recv(4096)
                taken.append(time.monotonic() - begin)
                assert response[:2] == packet[:2] and response[3] & 15 == 0 and response[7], response
            time.sleep(0.001)  # leave room for others on the machine: how long one answer takes is what counts
    return sorted(taken)


def p99(taken):
    return taken[len(taken) * 99 // 100]


def publish(etcd, name, address):
    etcd.put(name, json.dumps({"ipv4": address}))


def pretend_much_to_do(node, etcd, disk):
    """All that makes a node read or write its files."""
    write(disk, "hosts", "192.0.2.21 listed.example\n")
    write(disk, "resolv.conf", open(f"{disk.behind}/resolv.conf", encoding="utf-8").read() + "# written again\n")
    publish(etcd, "worker9.tf.local.", "192.0.2.9")
    node.signal(signal.SIGHUP)


def test_who_asks_does_not_notice(node, etcd, disk):
    usual = times(node, STALL / 2)
    disk.stall()
    pretend_much_to_do(node, etcd, disk)
    stalled = times(node, STALL)
    for _ in range(3):
        node.signal(signal.SIGHUP)  # while the first one stands still
    stalled = sorted(stalled + times(node, 1))
    print(f"p99 {p99(usual) * 1e3:.2f} ms, {p99(stalled) * 1e3:.2f} ms while the disk stands still; "
          f"at most {usual[-1] * 1e3:.2f} and {stalled[-1] * 1e3:.2f} ms")
    assert p99(stalled) < 2 * p99(usual) + 0.005 * TIME_FACTOR
    assert stalled[-1] < max(0.4 * STALL, 2 * usual[-1]), "who waits for the disk waits until it goes on"
    assert "Reloading complete" not in node.out()
    wait_resolves([node], "worker9.tf.local.", "192.0.2.9")
    disk.go_on()
    node.wait_logged("Reloading complete", times=2)  # the one that stood still, and once for all that came meanwhile
    wait_resolves([node], "listed.example.", "192.0.2.21")
    assert answers(node, WORKER1) == ["192.0.2.7"]


def test_a_name_outlives_a_disk_that_holds_the_certificates(nodes, directory, disk):
    """They are looked at every second, and the lease has six."""
    authority = Authority(directory)
    install(authority.certificate, f"{disk.behind}/ca.pem")
    etcd = SecureEtcd(directory, authority)
    try:
        etcd.start()
        node = nodes.start(corefile(etcd.endpoint, lease=6, options=[f"tls {disk.path}/ca.pem", "address 192.0.2.7"]))
        wait_says(node, WORKER1)
        disk.stall()
        end = time.monotonic() + STALL
        while time.monotonic() < end:
            assert said_name(node) == WORKER1
            assert answers(node, WORKER1) == ["192.0.2.7"]
            time.sleep(0.05)  # for as long as the disk stands still, not for something to happen
        disk.go_on()
        assert node.out().count("claimed") == 1 and WORKER1 in etcd.names()
        assert node.terminate() == 0
    finally:
        etcd.close()


def test_its_end_does_not_wait_for_the_disk(node, etcd, disk):
    disk.stall()
    pretend_much_to_do(node, etcd, disk)
    times(node, 1)
    begin = time.monotonic()
    assert node.terminate(STALL * TIME_FACTOR) == 0
    assert time.monotonic() - begin < 6 * TIME_FACTOR
    assert WORKER1 not in etcd.names()


def test_it_quits_at_once(node, disk):
    disk.stall()
    node.signal(signal.SIGHUP)
    times(node, 1)
    begin = time.monotonic()
    node.signal(signal.SIGQUIT)
    assert node.exit_code(STALL * TIME_FACTOR) == 0
    assert time.monotonic() - begin < 2 * TIME_FACTOR
