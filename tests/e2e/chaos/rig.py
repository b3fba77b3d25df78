"""One etcd member or three, nodes, and a link of its own between each two of them."""

import contextlib
import os
import shutil

from corefiles import corefile
from harness import ports
from harness.etcd import EtcdCluster
from harness.node import Node
from harness.processes import prepare_child

from .ownership import HookRun, OPERATOR
from .proxy import Links
from .store import Refused, Store, Unavailable

PATTERN = "worker{{.ID}}.tf.local."
ZONE = "tf.local."
FULL = "Could not have more than"

# etcd's own defaults, so that a busy machine does not change leaders all the time.
ELECTION_SECONDS = 1.0
_ETCD_OPTIONS = ["--heartbeat-interval", "100", "--election-timeout", f"{ELECTION_SECONDS * 1000:.0f}"]

# Appends a line to the file that is its argument, at once and whole; with the time since the machine's start, in hundredths.
_HOOK = """#!/bin/sh
read -r at _ </proc/uptime
echo "$IDETCD_EVENT $IDETCD_NAME $IDETCD_TOKEN $at" >>"$1"
"""


def slot_name(number):
    return PATTERN.replace("{{.ID}}", str(number))


class Machine:
    """A node over its restarts. Each start is an incarnation, known to all by the address that it publishes."""

    def __init__(self, rig, number):
        self.rig = rig
        self.number = number
        self.name = f"node{number}"
        self.incarnation = 0
        self.links = [ports.free_port() for _ in rig.etcd.members]
        # Half of them remember who they were.
        self.state = os.path.join(rig.directory, f"{self.name}.state") if number % 2 else None
        self.node = Node(self.name, rig.directory, "")
        self._log_begins = 0

    @property
    def owner(self):
        return f"{self.name}.{self.incarnation}"

    @property
    def address(self):
        return f"10.{self.number}.{self.incarnation >> 8}.{self.incarnation & 255}"

    @staticmethod
    def owner_of(address):
        """The incarnation that published it, or OPERATOR."""
        first, number, high, low = (int(part) for part in address.split("."))
        if first != 10:
            return OPERATOR
        return f"node{number}.{high << 8 | low}"

    def hook_path(self, owner):
        return os.path.join(self.rig.directory, f"{owner}.hook")

    def launch(self):
        self.incarnation += 1
        options = [f"address {self.address}", f"on-claim {self.rig.hook} {self.hook_path(self.owner)}"]
        if self.state:
            options.append(f"state {self.state}")
        text = corefile(" ".join(f"http://127.0.0.1:{port}" for port in self.links), PATTERN, self.rig.limit,
                        self.rig.lease, options, ["errors"])
        with open(self.node.corefile_path, "w", encoding="utf-8") as file:
            file.write(text)
        self._log_begins = len(self.node.out()) + len(self.node.err())
        self.node.launch()
        self.rig.prober.attach(self.owner, self.node.port)

    def ended(self):
        """After the end of the process: nothing is asked of it any more."""
        self.rig.prober.detach(self.owner)

    def refused(self):
        """Whether this incarnation ended since no name was free."""
        return FULL in (self.node.out() + self.node.err())[self._log_begins:]

    def hook_runs(self):
        """Owner -> the runs of its on-claim program."""
        runs = {}
        for incarnation in range(1, self.incarnation + 1):
            owner = f"{self.name}.{incarnation}"
            try:
                with open(self.hook_path(owner), encoding="ascii") as file:
                    lines = [line.split() for line in file]
            except FileNotFoundError:
                lines = []
            runs[owner] = [HookRun(owner, event, name, int(token), float(at)) for event, name, token, at in lines]
        return runs

    def identity(self):
        """What the identity file says; None without a state directory."""
        if not self.state:
            return None
        with open(os.path.join(self.state, "identity"), encoding="ascii") as file:
            pairs = [line.rstrip("\n").split("=", 1) for line in file]
        return {name: value.strip("'") for name, value in pairs}

    def copy_state(self, other):
        """As in the image of another machine. REQUIRES: both have a state, and this one does not run."""
        shutil.rmtree(self.state, ignore_errors=True)
        with contextlib.suppress(shutil.Error):  # files come and go meanwhile
            shutil.copytree(other.state, self.state)

    def close(self):
        self.node.close()
        for port in self.links:
            ports.release(port)


class Rig:
    """Context manager. REQUIRES: `prober` is not started yet; the rig ends it."""

    def __init__(self, directory, nodes, members, lease, prober, limit=None):
        self.directory = directory
        self.lease = lease
        self.limit = limit or nodes
        self.prober = prober
        self.hook = os.path.join(directory, "hook")
        with open(self.hook, "w", encoding="ascii") as file:
            file.write(_HOOK)
        os.chmod(self.hook, 0o700)
        self.links = None
        self.etcd = EtcdCluster(directory, members)
        # The messages of other members to a member.
        self.peer_links = {member: ports.free_port() for member in self.etcd.members}
        initial_cluster = ",".join(f"{member.name}={self._peer_url(member)}" for member in self.etcd.members)
        for member in self.etcd.members:
            member.initial_cluster = initial_cluster
        self.machines = []
        try:
            self.machines.extend(Machine(self, number) for number in range(1, nodes + 1))
            targets = {port: member.client_port for machine in self.machines
                       for port, member in zip(machine.links, self.etcd.members)}
            targets.update((port, member.peer_port) for member, port in self.peer_links.items())
            self.links = Links(targets, os.path.join(directory, "proxy.err"), prepare_child)
            for member in self.etcd.members:
                self.launch_member(member)
            for member in self.etcd.members:
                member.wait_healthy()
        except BaseException:
            self.close()
            raise

    @property
    def etcd_ports(self):
        return [member.client_port for member in self.etcd.members]

    def start(self):
        self.prober.start()
        for machine in self.machines:
            machine.launch()
        for machine in self.machines:
            machine.node.wait_answers()

    def _peer_url(self, member):
        return f"http://127.0.0.1:{self.peer_links[member]}"

    def launch_member(self, member):
        member.launch([*_ETCD_OPTIONS, "--initial-advertise-peer-urls", self._peer_url(member)])

    def restore_member(self, member, backup):
        """As of another cluster. REQUIRES: it has ended."""
        shutil.rmtree(member.data)
        member.ctl("snapshot", "restore", backup, "--data-dir", member.data, "--name", member.name,
                   "--initial-cluster", member.initial_cluster, "--initial-advertise-peer-urls", self._peer_url(member),
                   "--initial-cluster-token", "set-back")

    @staticmethod
    def leader(members):
        """The one of them that leads, or None."""
        for member in members:
            store = Store([member.client_port], timeout=0.3)
            try:
                status = store.call("maintenance/status")
            except (Unavailable, Refused):
                continue
            finally:
                store.close()
            leader = status.get("leader")
            if leader and leader == status["header"]["member_id"]:
                return member
        return None

    def terminate(self):
        """All nodes, in an orderly way. Returns what went wrong."""
        problems = []
        for machine in self.machines:
            machine.node.signal(15)
        for machine in self.machines:
            code = machine.node.exit_code(15)
            if code != 0:
                problems.append(f"{machine.owner} ended with {code} on SIGTERM")
            machine.ended()
        return problems

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for machine in self.machines:
            machine.close()
        if self.prober.is_alive():
            self.prober.stop()
        if self.links:
            self.links.close()
        self.etcd.close()
        for port in self.peer_links.values():
            ports.release(port)
