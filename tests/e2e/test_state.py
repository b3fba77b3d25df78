"""What `state DIRECTORY` keeps over a restart: who the node is, what it was called, and the names it knew."""

import contextlib
import json
import os
import shutil
import signal
import struct
import subprocess
import time

import pytest

from corefiles import corefile
from dns_client import (EDE_NOT_READY, EDE_STALE_ANSWER, answers, ask, extended_errors, pointer, rcode, said_name, wait_gone,
                        wait_resolves, wait_says)
from harness import ports
from harness.metrics import Metrics
from harness.processes import TIME_FACTOR, wait_until
from harness.proxy import TcpProxy
from harness.small_disk import SmallDisk
from harness.state import State, contents
from test_cli import run

WORKER1, WORKER2, WORKER3 = (f"worker{number}.tf.local." for number in (1, 2, 3))


@pytest.fixture
def state(directory):
    return State(f"{directory}/state")


def with_state(etcd, state, lease=20, options=(), **more):
    return corefile(etcd.endpoint, lease=lease, options=[state.option, "address 192.0.2.7", *options], **more)


def wait_remembered(state, name):
    """From then on a crash costs the node nothing."""
    wait_until(lambda: state.has("json") and f'"{name}"' in contents(state.file("json")), 5, f"{name} in {state.path}")


def assert_stale(node, name, *addresses, rdtype="A"):
    for tcp in (False, True):
        response = ask(node, name, rdtype, tcp=tcp, use_edns=0)
        assert rcode(response) == "NOERROR", response
        assert [rdata.to_text() for rrset in response.answer for rdata in rrset] == list(addresses)
        assert extended_errors(response) == [EDE_STALE_ANSWER], response


def assert_unknown(node, name, rdtype="A"):
    for tcp in (False, True):
        response = ask(node, name, rdtype, tcp=tcp, use_edns=0)
        assert rcode(response) == "SERVFAIL", response
        assert extended_errors(response) == [EDE_NOT_READY], response


# --- a disk that is full ---

@pytest.fixture
def disk(nodes):
    if os.geteuid() != 0:
        pytest.skip("mounts")
    disk = SmallDisk()
    yield disk
    for node in nodes.nodes:
        node.kill()
    disk.close()


def test_a_node_that_starts_with_a_full_disk_is_remembered_once_there_is_room(etcd, nodes, disk):
    state = State(f"{disk.path}/state")
    disk.fill()
    node = nodes.start(with_state(etcd, state))
    wait_says(node, WORKER1)
    node.wait_logged("the state directory is not written: cannot write ")
    disk.make_room()
    wait_until(lambda: state.has("json") and f'"{WORKER1}"' in contents(state.file("json")), 15, node.logs)
    wait_until(lambda: f"'{WORKER1}'" in contents(state.file("env")), 15, node.logs)
    node.wait_logged("the files of the state directory are written again")
    uuid = json.loads(contents(state.file("json")))["uuid"]
    node.kill()
    node.start()
    wait_says(node, WORKER1, timeout=5)
    assert json.loads(contents(state.file("json")))["uuid"] == uuid and len(etcd.names()) == 1


def test_a_drain_that_is_not_written_says_so(etcd, nodes, disk):
    state = State(f"{disk.path}/state")
    node = nodes.start(with_state(etcd, state))
    wait_says(node, WORKER1)
    wait_remembered(state, WORKER1)
    wait_until(lambda: state.has("names"), 10, "the names to be saved")

    def says_so():
        disk.fill()  # to the end: the node may have replaced a file meanwhile, and may do so again
        code, out, err = run(node, "drain")
        assert (code, err) == (0, "")
        return "`state` cannot be written" in out
    wait_until(says_so, 15, node.logs)
    assert json.loads(run(node, "drain", "--json")[1])["nodes"][0] == {
        "pattern": "worker{{.ID}}.tf.local.", "name": WORKER1, "drained": True, "lasts": "process", "state_written": False}
    assert "`state` cannot be written" in run(node, "undrain")[1]
    disk.make_room()
    wait_until(lambda: json.loads(run(node, "drain", "--json")[1])["nodes"][0]["lasts"] == "state", 15, node.logs)
    node.kill()
    node.start()
    node.wait_logged("this node is drained, as before it was started")


# --- name and UUID ---

def test_a_crashed_node_has_its_name_back_before_its_lease_ends(etcd, nodes, state):
    first = nodes.start(with_state(etcd, State(state.path + "1")))
    wait_says(first, WORKER1)
    node = nodes.start(with_state(etcd, state))
    wait_says(node, WORKER2)
    wait_remembered(state, WORKER2)
    before = etcd.pairs()[WORKER2.encode()]
    for _ in range(3):
        node.kill()
        assert etcd.pairs()[WORKER2.encode()]["value"] == before["value"], "it was not given back"
        node.start()
        wait_says(node, WORKER2)
        after = etcd.pairs()[WORKER2.encode()]
        assert json.loads(after["value"])["id"] == json.loads(before["value"])["id"]
        assert after["create_revision"] == before["create_revision"], "no other node had it meanwhile"
        assert after["token"] > before["token"], "but another process is another holder"
        assert after["lease"] != before["lease"]
        wait_until(lambda: before["lease"] not in etcd.leases(), 10, "the old lease to be given back, with nothing attached")
        wait_until(lambda: str(after["lease"]) in contents(state.file("json")), 5, lambda: contents(state.file("json")))
        before = after
    assert etcd.pairs()[WORKER2.encode()] == before
    assert said_name(node) == WORKER2
    assert set(etcd.pairs()) == {WORKER1.encode(), WORKER2.encode()}, "no ticket is left"


def test_crashes_cost_no_lease_time_and_leave_no_lease(etcd, nodes, state):
    """At any moment: the claim that was under way when the process ended is known to the next one."""
    node = nodes.start(with_state(etcd, state, lease=3600))
    wait_says(node, WORKER1)
    for _ in range(4):
        node.kill()
        node.start()
        wait_says(node, WORKER1)
        wait_until(lambda: etcd.leases() == [etcd.pairs()[WORKER1.encode()]["lease"]], 10, lambda: f"{etcd.leases()}\n{node.logs()}")
    for milliseconds in (20, 50, 100, 150, 200, 30, 70, 120):
        node.kill()
        node.launch()
        time.sleep(milliseconds / 1000)  # the length of its life
    node.kill()
    node.start()
    wait_says(node, WORKER1, timeout=20)
    assert set(etcd.pairs()) == {WORKER1.encode()}, "what was left is gone, a ticket too"


def test_without_a_state_directory_a_crashed_node_is_a_new_one(etcd, nodes):
    node = nodes.start(corefile(etcd.endpoint, lease=20, options=["address 192.0.2.7"]))
    wait_says(node, WORKER1)
    node.kill()
    node.start()
    wait_says(node, WORKER2)


def test_after_a_long_absence_the_old_name_if_it_is_free(etcd, nodes, directory):
    states = [State(f"{directory}/state{number}") for number in (1, 2, 3)]
    cluster = [nodes.start(with_state(etcd, one)) for one in states[:1]]
    wait_says(cluster[0], WORKER1)
    cluster.append(nodes.start(with_state(etcd, states[1])))
    wait_says(cluster[1], WORKER2)
    uuids = {name: value["id"] for name, value in etcd.names().items()}
    for node in cluster:
        assert node.terminate() == 0
    assert etcd.names() == {}

    cluster[1].start()
    wait_says(cluster[1], WORKER2)
    assert etcd.names()[WORKER2]["id"] == uuids[WORKER2]
    newcomer = nodes.start(with_state(etcd, states[2]))
    wait_says(newcomer, WORKER1)
    cluster[0].start()
    wait_says(cluster[0], WORKER3)
    assert etcd.names()[WORKER3]["id"] == uuids[WORKER1], "the same node under another name"
    assert cluster[0].terminate() == 0
    assert newcomer.terminate() == 0
    cluster[0].start()
    wait_says(cluster[0], WORKER3)


def test_a_copied_state_directory_makes_two_nodes(etcd, nodes, state, directory):
    first = nodes.start(with_state(etcd, state, lease=6))
    wait_says(first, WORKER1)
    wait_remembered(state, WORKER1)
    copied = state.copy(f"{directory}/copy")
    second = nodes.start(with_state(etcd, copied, lease=6))
    # The copy waits for the end of the first one's lease, and finds that it is renewed: so it is another node.
    wait_until(lambda: {said_name(first), said_name(second)} == {WORKER1, WORKER2}, 15,
               lambda: f"a name each: {etcd.names()}\n{first.logs()}\n{second.logs()}")
    held = etcd.names()
    assert {held[name]["port"] for name in (WORKER1, WORKER2)} == {str(first.port), str(second.port)}
    assert held[WORKER1]["id"] != held[WORKER2]["id"]
    wait_until(lambda: "was its state directory copied?" in first.logs() + second.logs(), 5, "the log to say why")
    time.sleep(6 * TIME_FACTOR)  # a lease: what must not happen has no event to wait for
    assert etcd.names() == held
    for node, one in ((first, state), (second, copied)):
        wait_remembered(one, said_name(node))
        node.kill()
    for node in (first, second):
        node.start()
    wait_until(lambda: {said_name(first), said_name(second)} == {WORKER1, WORKER2}, 10, "the same two after a restart")
    again = etcd.names()
    assert {name: value["id"] for name, value in again.items()} == {name: value["id"] for name, value in held.items()}, \
        "and each has its own again"


@pytest.mark.parametrize("machine_id", ["same", "gone"])
def test_a_copied_state_while_the_first_node_is_cut_off(etcd, nodes, state, directory, machine_id):
    """The copy cannot know whether the first node lives, which takes the name for its own until its lease is over."""
    with TcpProxy(etcd.client_port) as proxy:
        first = nodes.start(corefile(proxy.endpoint, lease=4, options=[state.option, "address 192.0.2.7"]))
        wait_says(first, WORKER1)
        wait_remembered(state, WORKER1)
        token = etcd.pairs()[WORKER1.encode()]["token"]
        uuid = etcd.names()[WORKER1]["id"]
        copied = state.copy(f"{directory}/copy")
        if machine_id == "gone":
            with open(copied.file("json"), encoding="utf-8") as file:
                kept = json.load(file)
            del kept["machine"]
            with open(copied.file("json"), "w", encoding="utf-8") as file:
                json.dump(kept, file)
        proxy.cut()
        second = nodes.start(with_state(etcd, copied, lease=4))

        def both():
            said = said_name(second), said_name(first)  # this order: the first may cease in between, not begin
            assert None in said, said
            return said[0]

        assert wait_until(both, 20, lambda: f"the name again\n{second.logs()}", interval=0.01) == WORKER1
        assert etcd.pairs()[WORKER1.encode()]["token"] > token
        assert etcd.names()[WORKER1]["id"] == uuid
        assert "was its state directory copied?" not in second.logs()
        # The first comes back, and is another node.
        proxy.restore()
        wait_says(first, WORKER2, timeout=20)
        assert said_name(second) == WORKER1


def test_etcd_is_restored_from_a_backup_after_nodes_were_restarted(etcd, nodes, directory):
    """Every key of the backup hangs on the lease of a process that is gone: the names stay, and no line mentions copies."""
    def text(number):
        return corefile(etcd.endpoint, limit=4, lease=20, options=[f"state {directory}/state{number}", f"address 192.0.2.{number}"])
    cluster = []
    for number in range(1, 5):
        cluster.append(nodes.start(text(number)))
        wait_says(cluster[-1], f"worker{number}.tf.local.")
    etcd.stop()
    shutil.copytree(etcd.data, f"{directory}/backup")
    etcd.start()
    before = etcd.names()
    for number, node in enumerate(cluster, 1):
        wait_says(node, f"worker{number}.tf.local.", timeout=20)
        wait_remembered(State(f"{directory}/state{number}"), f"worker{number}.tf.local.")
        node.kill()
        node.start()
        wait_says(node, f"worker{number}.tf.local.")
    for number in range(30):
        etcd.put("busy.tf.local.", f'{{"ipv4":"198.51.100.{number}"}}')
    tokens = {key: pair["token"] for key, pair in etcd.pairs().items()}

    etcd.kill()
    shutil.rmtree(etcd.data)
    shutil.copytree(f"{directory}/backup", etcd.data)
    etcd.start()
    restored = time.monotonic()
    for number, node in enumerate(cluster, 1):
        name = f"worker{number}.tf.local."
        # The token first: until etcd is asked, the node may still say the name of its former claim.
        wait_until(lambda n=node, k=name.encode(): etcd.pairs()[k]["token"] > tokens[k] and said_name(n) is not None, 15,
                   lambda n=node: f"{n.name} to have its name again\n{n.logs()}")
        assert said_name(node) == name
        assert time.monotonic() - restored < 18
    assert etcd.names().keys() == before.keys()
    for node in cluster:
        assert "copied?" not in node.logs(tail=1000), node.logs()
        assert etcd.names()[said_name(node)]["id"] == before[said_name(node)]["id"]


def test_a_token_rises_over_a_restored_store_whoever_comes(etcd, nodes, directory):
    """The store went back below the tokens of before. Nodes that lived through it know of them, those that come when the
    former are gone do not; nor does a node that is back with what it remembers take another name for it."""
    def text(number, options=()):
        return corefile(etcd.endpoint, limit=2, lease=20, options=[f"address 192.0.2.{number}", *options])
    etcd.stop()
    shutil.copytree(etcd.data, f"{directory}/backup")
    etcd.start()
    for number in range(300):
        etcd.put("busy.tf.local.", f'{{"ipv4":"198.51.100.{number % 250}"}}')
    cluster = [nodes.start(text(number)) for number in (1, 2)]
    for node in cluster:
        node.wait_owns(etcd)
        wait_says(node, node.owned_name(etcd))
    tokens = {key: [pair["token"]] for key, pair in etcd.pairs().items() if key.startswith(b"worker")}

    def note():
        for key, pair in etcd.pairs().items():
            if key.startswith(b"worker") and pair["token"] != tokens[key][-1]:
                tokens[key].append(pair["token"])

    etcd.kill()
    shutil.rmtree(etcd.data)
    shutil.copytree(f"{directory}/backup", etcd.data)
    etcd.start()
    for node in cluster:
        node.wait_owns(etcd, timeout=20)
        wait_says(node, node.owned_name(etcd), timeout=20)
    note()
    remembering = State(f"{directory}/state")
    for node in cluster:
        assert node.terminate() == 0
    for options in ((), (remembering.option,)):
        newcomers = [nodes.start(text(9, options))]
        newcomers.append(nodes.start(text(8)))
        for node in newcomers:
            wait_says(node, node.wait_owns(etcd))
        note()
        if options:
            break
        for node in newcomers:
            assert node.terminate() == 0
    node = newcomers[0]
    name = node.owned_name(etcd)
    wait_remembered(remembering, name)
    node.kill()
    node.start()
    wait_says(node, name)
    note()
    assert {len(seen) for seen in tokens.values()} == {4, 5}, tokens
    for seen in tokens.values():
        assert seen == sorted(set(seen)), tokens
    # The store outgrows them.
    newest = max(seen[-1] for seen in tokens.values())
    while etcd.revision() <= newest:
        etcd.put("busy.tf.local.", '{"ipv4":"198.51.100.1"}')
    for node in newcomers:
        assert node.terminate() == 0
    last = nodes.start(text(7))
    wait_says(last, last.wait_owns(etcd))
    pair = etcd.pairs()[last.owned_name(etcd).encode()]
    assert pair["token"] == pair["create_revision"] > newest
    assert f"/idetcd/token/{last.owned_name(etcd)}".encode() not in etcd.pairs(internal=True)


# --- the directory ---

def test_systemds_state_directory_is_the_default(etcd, nodes, state, directory):
    text = corefile(etcd.endpoint, options=["address 192.0.2.7"])
    node = nodes.make(text).start(env={"STATE_DIRECTORY": f"{state.path}:{directory}/second"})
    wait_says(node, WORKER1)
    wait_until(lambda: "IDETCD_NAME='worker1.tf.local.'" in contents(f"{state.path}/identity"), 5, "the identity")
    assert not os.path.exists(f"{directory}/second")
    named = State(f"{directory}/named")
    other = nodes.make(with_state(etcd, named)).start(env={"STATE_DIRECTORY": f"{directory}/unused"})
    wait_says(other, WORKER2)
    assert named.has("json") and not os.path.exists(f"{directory}/unused")


def test_one_process_at_a_time(etcd, nodes, state):
    node = nodes.start(with_state(etcd, state))
    wait_says(node, WORKER1)
    identity = state.file("env")
    wait_until(lambda: contents(identity), 5, "the identity")
    before = contents(identity)
    second = nodes.make(with_state(etcd, state)).launch()
    assert second.exit_code(10) == 1
    assert f"state directory {state.path} is in use by another idetcd (process {node.pid})" in second.err()
    assert second.err().count("\n") == 1
    assert contents(identity) == before and said_name(node) == WORKER1
    # Another pattern has files of its own.
    third = nodes.start(corefile(etcd.endpoint, "ps{{.ID}}.tf.local.", options=[state.option, "address 192.0.2.7"]))
    wait_says(third, "ps1.tf.local.")
    assert len([name for name in os.listdir(state.path) if name.endswith(".lock")]) == 2


@pytest.mark.parametrize("make", ["a file", "below a file", "read-only"])
def test_a_directory_that_cannot_be_used_is_told_at_the_start(etcd, nodes, state, directory, make):
    prefix = ()
    path = state.path
    if make == "read-only":
        os.mkdir(path)
        prefix = in_mount("mount -t tmpfs -o ro none", path)
    else:
        with open(path, "w", encoding="ascii"):
            pass
        path += "/below" if make == "below a file" else ""
    node = nodes.make(with_state(etcd, State(path))).launch(prefix=prefix)
    assert node.exit_code(10) == 1
    assert f"state directory {path}" in node.err() and node.err().count("\n") == 1, node.err()
    assert etcd.pairs() == {}


def test_a_directory_of_somebody_else(etcd, nodes, state):
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    node = nodes.make("")
    node.corefile_path = None  # which that user could not read either
    node.arguments = ["-conf", "stdin"]
    node.launch(user=65534, stdin_text=with_state(etcd, state))
    assert node.exit_code(10) == 1
    assert f"state directory {state.path}: Permission denied" in node.err() and node.err().count("\n") == 1, node.err()
    assert etcd.pairs() == {}


def test_a_directory_that_is_removed_costs_nothing_but_the_files(etcd, nodes, state):
    node = nodes.start(with_state(etcd, state))
    wait_says(node, WORKER1)
    wait_until(lambda: contents(f"{state.path}/identity"), 5, "the identity")
    wait_until(lambda: state.has("names"), 10, "the names to be saved")  # the next time is half a minute away
    shutil.rmtree(state.path)
    etcd.put(WORKER1, '{"ipv4":"198.51.100.1"}')
    wait_says(node, WORKER2)
    wait_resolves([node], WORKER1, "198.51.100.1")
    wait_until(lambda: "No such file or directory" in node.logs(), 5, node.logs)
    assert node.terminate() == 0
    assert set(etcd.pairs()) == {WORKER1.encode()}, "the name is given back all the same"
    assert not os.path.exists(state.path)
    node.start()  # and begins again as a new node
    wait_says(node, WORKER2)


def in_mount(command, path):
    """Runs a program where `command` has mounted something at `path`, for it alone."""
    return ["unshare", "--mount", "sh", "-c", f'{command} "{path}" && exec "$@"', "sh"]


def test_a_full_disk_costs_nothing_but_the_files(etcd, nodes, state):
    """Room for the lock and the UUID, and for nothing later."""
    os.mkdir(state.path)
    node = nodes.make(with_state(etcd, state, options=['on-claim sh -c "exit 0"']))
    node.start(prefix=in_mount(f"mount -t tmpfs -o size={2 * os.sysconf('SC_PAGE_SIZE')} none", state.path))
    wait_says(node, WORKER1)
    wait_resolves([node], WORKER1, "192.0.2.7")
    wait_until(lambda: "No space left on device" in node.logs(), 5, "the log to say so")
    seen = f"/proc/{node.pid}/root{state.path}"
    assert contents(f"{seen}/identity") == "", "half a file, or an old one, would be worse than none"
    wait_until(lambda: not [name for name in os.listdir(seen) if name.endswith(".new")], 5, "what has no room to be removed")
    assert node.terminate() == 0
    assert etcd.pairs() == {}


@pytest.mark.parametrize("trouble, reason", [("read-only", "Read-only file system"), ("full", "No space left on device")])
def test_a_disk_that_fails_while_it_runs_costs_nothing_but_the_files(etcd, nodes, state, trouble, reason):
    """The name is lost and claimed again meanwhile. The log and a metric say that it is not written down."""
    os.mkdir(state.path)
    port = ports.free_port()
    def save_failures():
        return Metrics.of(port).sum("idetcd_save_failures_total")
    node = nodes.make(with_state(etcd, state, directives=[f"prometheus 127.0.0.1:{port}"]))
    node.start(prefix=in_mount("mount -t tmpfs -o size=1m none", state.path))
    wait_says(node, WORKER1)
    seen = f"/proc/{node.pid}/root{state.path}"
    wait_until(lambda: WORKER1 in contents(f"{seen}/identity"), 10, "the identity")
    if trouble == "full":
        with pytest.raises(OSError, match=reason), open(f"{seen}/ballast", "wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
    else:
        # Over it: the file system itself has a file that is open for writing, the lock.
        subprocess.run(["nsenter", f"--mount=/proc/{node.pid}/ns/mnt", "sh", "-c",
                        'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0"', state.path], check=True)
    before = save_failures()
    etcd.put(WORKER1, '{"ipv4":"198.51.100.1"}')
    wait_says(node, WORKER2)
    node.wait_logged(reason)
    wait_until(lambda: save_failures() > before, 5, "the metric to say so")
    wait_resolves([node], WORKER1, "198.51.100.1")
    assert trouble != "full" or WORKER1 not in contents(f"{seen}/identity"), "of what is lost the file is emptied without room"
    assert node.terminate() == 0
    assert set(etcd.pairs()) == {WORKER1.encode()}


def memory_group(name):
    """A cgroup and the file of its limit, of version 1 or 2; skips the test where none can be made."""
    for root, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = os.path.join(root, name)
        try:
            os.mkdir(group)
        except OSError:
            continue
        if os.path.exists(os.path.join(group, limit)):
            return group, os.path.join(group, limit)
        os.rmdir(group)
    pytest.skip("no memory cgroup can be made here")


def test_a_node_that_the_memory_limit_has_killed_has_its_name_again_at_once(etcd, nodes, state):
    """More names come than the limit of its cgroup has room for: the kernel kills the server. With room it takes its name back,
    long before its lease ends."""
    node = nodes.make(with_state(etcd, state, lease=60))
    group, limit = memory_group(f"idetcd-test-{os.getpid()}")
    try:
        def start():
            node.start(prefix=["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"])
        start()
        wait_says(node, WORKER1)
        wait_remembered(state, WORKER1)
        with open(f"/proc/{node.pid}/statm", encoding="ascii") as file:
            used = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        with open(limit, "w", encoding="ascii") as file:
            file.write(str(used + (2 << 20)))
        number = 0
        while node.running():
            assert number < 1_000_000, "the limit to be reached"
            etcd.put_many({f"n{i}.tf.local.": '{"ipv4":"192.0.2.1"}' for i in range(number, number + 5000)})
            number += 5000
        assert node.exit_code(10) == -signal.SIGKILL
        token = etcd.pairs()[WORKER1.encode()]["create_revision"]
        with open(limit, "w", encoding="ascii") as file:
            file.write(str(1 << 30))
        start()
        wait_says(node, WORKER1)
        assert etcd.pairs()[WORKER1.encode()]["create_revision"] == token, "the same key, taken back"
        wait_resolves([node], "n1.tf.local.", "192.0.2.1")
        assert node.terminate() == 0
    finally:
        node.kill()
        os.rmdir(group)


@pytest.mark.parametrize("garbage", [b"", b"{", b"\0" * 4096, b'{"pattern":"worker{{.ID}}.tf.local.","uuid":"../../x"}'],
                         ids=["empty", "cut off", "zeros", "a path"])
def test_a_corrupt_state_makes_a_new_node(etcd, nodes, state, garbage):
    node = nodes.start(with_state(etcd, state))
    wait_says(node, WORKER1)
    uuid = etcd.names()[WORKER1]["id"]
    assert node.terminate() == 0
    with open(state.file("json"), "wb") as file:
        file.write(garbage)
    node.start()
    wait_says(node, WORKER1)
    assert etcd.names()[WORKER1]["id"] not in ("", uuid)
    node.wait_logged("this node starts as a new one")
    assert node.terminate() == 0
    assert "uuid" in contents(state.file("json"))


# --- the names as last known ---

EXTRA = {"db.tf.local.": '{"ipv4":"198.51.100.1"}', "gone.tf.local.": '{"ipv4":"198.51.100.2","ipv6":"2001:db8::2"}',
         "deep.below.tf.local.": '{"ipv4":"198.51.100.3"}', "far.example.org.": '{"ipv4":"198.51.100.4"}'}


def known_and_crashed(etcd, nodes, state, **more):
    """A node that has saved its names, and is dead; etcd is down."""
    for name, value in EXTRA.items():
        etcd.put(name, value)
    node = nodes.start(with_state(etcd, state, **more))
    wait_says(node, WORKER1)
    # The first time the names are saved soon; the own one may have come too late for that.
    wait_until(lambda: state.saved(*EXTRA), 10, lambda: f"the names to be saved\n{node.logs()}")
    wait_remembered(state, WORKER1)
    node.kill()
    etcd.stop()
    return node


def test_etcd_is_down_at_the_start(etcd, nodes, state):
    node = known_and_crashed(etcd, nodes, state)
    node.start()
    assert_stale(node, "db.tf.local.", "198.51.100.1")
    assert_stale(node, "gone.tf.local.", "2001:db8::2", rdtype="AAAA")
    assert_stale(node, "db.tf.local.", rdtype="AAAA")  # NODATA: what is known of a name is known of all its types
    assert_stale(node, "far.example.org.", "198.51.100.4")
    for name in ("new.tf.local.", "worker9.tf.local.", "a.b.c.tf.local.", "below.tf.local.", "tf.local."):
        assert_unknown(node, name)  # never NXDOMAIN: etcd has not been asked
    assert_unknown(node, "new.tf.local.", "AAAA")
    assert rcode(ask(node, "tf.local.", "SOA")) == "NOERROR"
    assert rcode(ask(node, "other.example.org.")) == "REFUSED"
    assert said_name(node) is None and pointer(node, "192.0.2.7") == "REFUSED"
    wait_until(lambda: contents(state.file("env")) == "", 5, "the file to say that it has no name yet")
    node.wait_logged("names as they were known")

    etcd.start()
    etcd.put("new.tf.local.", '{"ipv4":"198.51.100.9"}')
    etcd.put("db.tf.local.", '{"ipv4":"198.51.100.8"}')
    etcd.delete("gone.tf.local.")
    wait_says(node, WORKER1)
    wait_resolves([node], "new.tf.local.", "198.51.100.9")
    wait_resolves([node], "db.tf.local.", "198.51.100.8")
    wait_gone([node], "gone.tf.local.")
    wait_gone([node], "worker9.tf.local.")
    assert extended_errors(ask(node, "db.tf.local.", use_edns=0)) == []
    assert rcode(ask(node, "below.tf.local.")) == "NOERROR"
    # Away again, it is stale as any other node is: then a denial is from etcd.
    assert node.terminate() == 0


def test_a_reload_with_another_pattern_goes_on_with_the_names_that_are_known(etcd, nodes, state):
    """etcd is away, and no file of the new pattern has them."""
    node = nodes.start(with_state(etcd, state))
    etcd.put("db.tf.local.", '{"ipv4":"192.0.2.50"}')
    wait_resolves([node], WORKER1, "192.0.2.7")
    wait_resolves([node], "db.tf.local.", "192.0.2.50")
    etcd.pause()
    with open(node.corefile_path, "w", encoding="utf-8") as file:
        file.write(corefile(etcd.endpoint, "ps{{.ID}}.tf.local.", lease=20, options=["address 192.0.2.7", state.option]))
    node.signal(signal.SIGHUP)
    node.wait_logged("Reloading complete")
    assert_stale(node, "db.tf.local.", "192.0.2.50")
    assert_stale(node, WORKER1, "192.0.2.7")
    assert_unknown(node, "other.tf.local.")
    etcd.resume()
    wait_says(node, "ps1.tf.local.", timeout=30)
    wait_until(lambda: extended_errors(ask(node, "db.tf.local.", "A", use_edns=0)) == [], 10, "a fresh answer")
    wait_gone([node], WORKER1)


def test_a_second_start_without_etcd_knows_no_less(etcd, nodes, state):
    node = known_and_crashed(etcd, nodes, state)
    for how in (node.kill, node.terminate):
        node.start()
        assert_stale(node, "db.tf.local.", "198.51.100.1")
        how()
    assert set(EXTRA) <= set(state.names())


def test_an_observer_answers_what_it_last_knew_too(etcd, nodes, state):
    etcd.put("db.tf.local.", EXTRA["db.tf.local."])
    node = nodes.start(with_state(etcd, state, options=["observe"]))
    wait_resolves([node], "db.tf.local.", "198.51.100.1")
    assert node.terminate() == 0, "which saves what is not saved yet"
    assert state.saved("db.tf.local.")
    etcd.stop()
    node.start()
    assert_stale(node, "db.tf.local.", "198.51.100.1")
    assert_unknown(node, WORKER1)


def cut_off(octets):
    return octets[:-1]


def half(octets):
    return octets[:len(octets) // 2]


def empty(_):
    return b""


def one_bit(octets):
    at = octets.index(bytes([198, 51, 100, 1]))
    return octets[:at] + bytes([octets[at] ^ 1]) + octets[at + 1:]


def longer(octets):
    return octets + b"\0"


def endless(octets):
    return octets[:8] + struct.pack("=Q", 1 << 62) + octets[16:]


@pytest.mark.parametrize("damage", [cut_off, half, empty, one_bit, longer, endless])
def test_a_damaged_file_is_refused_and_costs_nothing_else(etcd, nodes, state, damage):
    node = known_and_crashed(etcd, nodes, state)
    names = state.file("names")
    with open(names, "rb") as file:
        octets = file.read()
    with open(names, "wb") as file:
        file.write(damage(octets))
    node.start()
    for name in (*EXTRA, WORKER1, "new.tf.local."):
        if name.endswith("tf.local."):
            assert_unknown(node, name)
    node.wait_logged(names, times=1)
    etcd.start()
    wait_says(node, WORKER1)
    wait_resolves([node], "db.tf.local.", "198.51.100.1")
    wait_until(lambda: file_is_whole(state), 10, "a good file in its place")


def file_is_whole(state):
    with contextlib.suppress(AssertionError, IndexError, struct.error):
        return state.saved(*EXTRA)
    return False


def test_names_of_another_pattern_are_refused(etcd, nodes, state):
    node = known_and_crashed(etcd, nodes, state)
    other = nodes.make(corefile(etcd.endpoint, "ps{{.ID}}.tf.local.", options=[state.option, "address 192.0.2.7"])).start()
    assert_unknown(other, "db.tf.local.")  # the file is there, under a name of its own
    assert other.terminate() == 0
    locks = [name for name in os.listdir(state.path) if name.startswith("ps") and name.endswith(".lock")]
    shutil.copy(state.file("names"), os.path.join(state.path, locks[0].replace(".lock", ".names")))
    other.start()
    assert_unknown(other, "db.tf.local.")
    other.wait_logged("another pattern")
    assert not node.running()


def test_names_are_saved_whole_and_seldom(etcd, nodes, state):
    node = nodes.start(with_state(etcd, state))
    wait_says(node, WORKER1)
    wait_until(lambda: state.has("names"), 10, "the first save")
    path, versions = state.file("names"), set()
    deadline = time.monotonic() + 4
    count = 0
    while time.monotonic() < deadline:  # changes without an end, far more often than it may write
        count += 1
        etcd.put(f"n{count}.tf.local.", '{"ipv4":"198.51.100.1"}')
        versions.add((os.stat(path).st_ino, os.stat(path).st_mtime_ns))
        state.names()  # raises on a file that is not whole
    assert len(versions) <= 2, f"{count} changes"
    wait_resolves([node], f"n{count}.tf.local.", "198.51.100.1")
    assert node.terminate() == 0
    assert state.saved(f"n{count}.tf.local.", "n1.tf.local."), "and once more at the end"
    assert not [name for name in os.listdir(state.path) if name.endswith(".new")]
