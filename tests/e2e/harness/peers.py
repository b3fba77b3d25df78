"""Machines that found a cluster: they have idetcd and etcd's program, and no etcd that runs."""

import glob
import json
import os
import secrets
import ssl
import subprocess
import urllib.request

from . import ports
from .namespace import Namespace
from .processes import wait_until

COREFILE = """. {{
{directives}    idetcd {{
        pattern worker{{{{.ID}}}}.tf.local.
        limit {limit}
        lease {lease}s
        peers {peers}
        peers-port {port}
        expect {expect}
{options}    }}
}}
"""


class Machines:
    """Machine N. `made`: number -> node, the last one that was started."""

    def __init__(self, nodes, directory, expect, limit=None, lease=6):
        self.nodes = nodes
        self.directory = directory
        self.expect = expect
        self.limit = limit or expect
        self.lease = lease
        self.secret = self.secret_file("secret")
        self.made = {}

    def secret_file(self, name):
        path = os.path.join(self.directory, name)
        with open(path, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(16))
        os.chmod(path, 0o600)
        return path

    def state(self, number):
        return os.path.join(self.directory, f"state{number}")

    def copy_state(self, number, to):
        """As a disk image with which another machine starts."""
        copy = self.state(to)
        subprocess.run(["cp", "-a", self.state(number), copy], check=False)  # a file may have gone meanwhile
        for path in glob.glob(os.path.join(copy, "*.json")):
            with open(path, encoding="utf-8") as file:
                kept = json.load(file)
            with open(path, "w", encoding="utf-8") as file:
                json.dump({**kept, "machine": "of another machine"}, file)

    def etcds(self, number):
        """The process IDs of those that the machine runs."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
                    words = file.read().split("\0")
            except OSError:  # ended meanwhile
                continue
            if words[0].endswith("etcd") and any(self.state(number) + "/" in word for word in words):
                found.append(int(pid))
        return found

    def _make(self, number, host, options, secret, state, directives=(), **fields):
        options = [f"secret {secret or self.secret}", *([f"state {self.state(number)}"] if state else []), *options]
        node = self.nodes.make(COREFILE.format(
            limit=self.limit, lease=self.lease, expect=self.expect, options="".join(f"        {line}\n" for line in options),
            directives="".join(f"    {line}\n" for line in directives), **fields), name=f"machine{number}.{len(self.nodes.nodes)}")
        node.host = host
        self.made[number] = node
        return node


class Loopback(Machines):
    """Machine N is 127.0.0.N; those that are asked for are 127.0.0.2, 127.0.0.3, …, as many as found the cluster."""

    def __init__(self, nodes, directory, expect, limit=None, lease=6, peers=None):
        super().__init__(nodes, directory, expect, limit, lease)
        self.peers = peers or range(2, expect + 2)  # numbers of machines
        self.port = ports.free_ports(4)  # the last one is for metrics

    def start(self, number, *options, secret=None, state=True, peers=None, arguments=(), **launched):
        """Launches the machine, which need not have a name yet. `peers`: numbers of machines."""
        host = f"127.0.0.{number}"
        node = self._make(number, host, [f"address {host}", *options], secret, state, port=self.port,
                          directives=[f"bind {host}", f"prometheus {host}:{self.port + 3}"],
                          peers=" ".join(f"127.0.0.{n}" for n in peers or self.peers))
        node.arguments = [*node.arguments, *arguments]
        return node.launch(**launched)

    def data(self, number):
        """What the machine's etcd has, whatever the others have: its revision, and of each key that of the last change."""
        tls = os.path.join(self.state(number), f"peers-{self.port}", "tls")
        context = ssl.create_default_context(cafile=os.path.join(tls, "ca.pem"))
        context.load_cert_chain(os.path.join(tls, "certificate.pem"), os.path.join(tls, "key.pem"))
        everything = {"key": "AA==", "range_end": "AA==", "serializable": True}
        request = urllib.request.Request(f"https://127.0.0.{number}:{self.port + 1}/v3/kv/range", json.dumps(everything).encode())
        with urllib.request.urlopen(request, context=context, timeout=10) as reply:
            said = json.load(reply)
        return said["header"]["revision"], [(kv["key"], kv["mod_revision"]) for kv in said["kvs"]]

    def close(self):
        for port in range(self.port, self.port + 4):
            ports.release(port)


class Lan(Machines):
    """Machines with networks of their own on one switch: machine N is 10.77.0.N. Needs root."""

    NETWORK = "10.77.0"
    PEERS_PORT = 2390
    HUB = f"{NETWORK}.1"  # of the switch itself, for servers of a test

    def __init__(self, nodes, directory, expect=3, limit=4, **options):
        super().__init__(nodes, directory, expect, limit, **options)
        self.spaces = {}
        self.hub = self._space("hub")
        self.hub.run("ip", "link", "add", "bridge", "type", "bridge")
        self.hub.run("ip", "link", "set", "bridge", "up")
        self.hub.run("ip", "address", "add", f"{self.HUB}/24", "dev", "bridge")

    def _space(self, name):
        os.makedirs(os.path.join(self.directory, name))
        self.spaces[name] = Namespace(os.path.join(self.directory, name))
        return self.spaces[name]

    def space(self, number):
        """The machine's network and /etc; it is made when it is first asked for."""
        if f"machine{number}" in self.spaces:
            return self.spaces[f"machine{number}"]
        space = self._space(f"machine{number}")
        self.hub.run("ip", "link", "add", f"port{number}", "type", "veth", "peer", "name", "lan", "netns", str(space.holder.pid))
        self.hub.run("ip", "link", "set", f"port{number}", "master", "bridge", "up")
        space.run("ip", "link", "set", "lan", "up")
        self.address(number, 0, number)
        return space

    def start(self, number, *options, secret=None, state=True, peers=f"{NETWORK}.0/28"):
        """As Loopback.start(). `peers`: as in a Corefile."""
        node = self._make(number, f"{self.NETWORK}.{number}", options, secret, state, port=self.PEERS_PORT, peers=peers)
        return node.launch(prefix=self.space(number).prefix)

    def address(self, machine, before, now):
        """It gets another address, as from a DHCP server."""
        run_in = self.spaces[f"machine{machine}"].run
        if before:
            run_in("ip", "address", "del", f"{self.NETWORK}.{before}/24", "dev", "lan")
        run_in("ip", "address", "add", f"{self.NETWORK}.{now}/24", "dev", "lan")
        run_in("ip", "route", "add", "default", "via", self.HUB)

    def plug(self, number, state):
        self.hub.run("ip", "link", "set", f"port{number}", state)

    def close(self):
        for node in self.nodes.nodes:  # while they reach each other
            if node.running():
                node.terminate()
        for space in self.spaces.values():
            space.close()


def worker(number):
    return f"worker{number}.tf.local."


def cluster_of(node):
    """What it says over its control socket of its only cluster."""
    wait_until(lambda: os.path.exists(node.socket_path()), 10, lambda: f"{node.name} to have a control socket\n{node.logs()}")
    status, said = node.control("/v1/status")
    assert status == 200, said
    return said["clusters"][0]


def name_of(node):
    return cluster_of(node)["name"]


def wait_name(node, name=None, timeout=15):
    """Until it owns a name, and that one if it is given."""
    def condition():
        assert node.running(), f"{node.name} ended with {node.exit_code(1)}\n{node.logs()}"
        owned = name_of(node)
        return owned if owned and owned == (name or owned) else None
    return wait_until(condition, timeout, lambda: f"{node.name} to own {name or 'a name'}\n{node.logs(tail=200)}", interval=0.05)


def run(node, *arguments):
    """A subcommand: exit code, stdout, stderr."""
    done = subprocess.run([node.binary, *arguments], check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          timeout=180, env={**os.environ, "RUNTIME_DIRECTORY": node.runtime_directory})
    return done.returncode, done.stdout, done.stderr


def group_of(node):
    """What `idetcd peers` says. Right after its start the server does not know yet."""
    said = wait_until(lambda: json.loads(run(node, "peers", "--json")[1] or "{}").get("peers"), 10, node.logs)
    return said[0]


def voters_of(node, *counts):
    """Where those are that run the cluster's etcd, once they are so many and all answer; and who leads."""
    def condition():
        voters = group_of(node)["voters"]
        leaders = [voter for voter in voters if voter["leader"]]
        if len(voters) in counts and all(voter["healthy"] and not voter["learner"] for voter in voters) and len(leaders) == 1:
            return {voter["address"].rsplit(":", 1)[0] for voter in voters}, leaders[0]["address"].rsplit(":", 1)[0]
    return wait_until(condition, 40, lambda: f"{counts} voters at {node.name}\n{run(node, 'peers')[1]}\n{node.logs(tail=200)}", interval=0.1)
