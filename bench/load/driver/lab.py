"""Where the cases run: a directory, one etcd and one set of servers a data set, started when first asked for."""

import collections
import json
import os
import subprocess
import sys
import tempfile
import time

import pairs
from harness.etcd import EtcdMember

SERVER_CORE, LOAD_CORE = 0, 1

# plan: of the pairs. many: the size of the large data set. puts: how many are timed.
Settings = collections.namedtuple("Settings", "quick plan many puts")


class Dataset:
    """worker1 … workerN in etcd, with IPv6 addresses or without. Servers are kept until another data set is needed: two
    with a million names each would fight for the cache."""
    services = False  # each name has an SRV record, too: in zone files only

    def __init__(self, lab, names, ipv6):
        self.lab = lab
        self.names = names
        self.ipv6 = ipv6
        self.directory = tempfile.mkdtemp(prefix=f"{names}-{'dual' if ipv6 else 'v4'}-", dir=lab.directory)
        self.start_etcd()
        self.servers = {}

    def start_etcd(self):
        """With all names."""
        self.etcd = self.make_etcd()
        self.etcd.start(extra=["--quota-backend-bytes", str(8 << 30), "--max-txn-ops", "128"])
        self.lab.tool("etcd_fill", "--endpoint", self.etcd.endpoint, "--names", self.names, *(["--ipv6"] if self.ipv6 else []))

    def make_etcd(self):
        return EtcdMember(self.directory)

    def server(self, kind):
        """A running, warm server of this kind; None if it is not installed."""
        if kind not in self.servers:
            server = kind(self)
            self.servers[kind] = server
            if server.installed():
                server.start()
        server = self.servers[kind]
        return server if server.running() else None

    def close(self):
        for server in self.servers.values():
            server.close()
        self.etcd.close()


class Lab:
    def __init__(self, directory, build, settings):
        self.directory = directory
        self.build = build
        self.settings = settings
        self.dataset_key = None
        self.current = None
        self.missing = set()
        self.started = time.monotonic()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.current:
            self.current.close()

    def say(self, what):
        """How far the run is, for who waits."""
        print(f"[{time.monotonic() - self.started:4.0f} s] {what}", file=sys.stderr, flush=True)

    def dataset(self, kind, *arguments):
        """The data set of this kind (Dataset, or made of it), in place of the one before."""
        key = (kind, arguments)
        if self.dataset_key != key:
            if self.current:
                self.current.close()
            self.current = None
            self.current = kind(self, *arguments)
            self.dataset_key = key
        return self.current

    def program(self, name):
        return os.path.join(self.build, "bench", name)

    def tool(self, name, *arguments, core=LOAD_CORE, check=True):
        """Runs one of our programs on the load's core and returns what it printed."""
        argv = ["taskset", "-c", str(core), self.program(name), *map(str, arguments)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if check and done.returncode != 0:
            raise RuntimeError(f"{' '.join(argv)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def pairs(self, server, reference, ratio, plan, *arguments, core=LOAD_CORE):
        """Slices of the two in turn: pairs.py."""
        mine = ["--port", server.port, "--pid", server.pid, *server.load_arguments]
        other = ["--reference", reference.port, "--reference-pid", reference.pid,
                 *(argument.replace("--", "--reference-") for argument in reference.load_arguments)]
        return pairs.measure(["taskset", "-c", core, self.program("load"), *mine, *other, *arguments], ratio, plan)[0]

    def load(self, server, *arguments, core=LOAD_CORE):
        # 3 says that answers were wrong, which the result says too.
        output = self.tool("load", "--port", server.port, "--pid", server.pid, "--json", *server.load_arguments,
                           *arguments, core=core, check=False)
        return json.loads(output)
