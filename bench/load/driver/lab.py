"""Where the cases run: a directory, one etcd and one set of servers a data set, started when first asked for."""

import json
import os
import subprocess
import tempfile

from harness.etcd import EtcdMember

SERVER_CORE, LOAD_CORE = 0, 1


class Dataset:
    """worker1 … workerN in etcd, with IPv6 addresses or without. Servers are kept until another data set is needed: two
    with a million names each would fight for the cache."""

    def __init__(self, lab, names, ipv6):
        self.lab = lab
        self.names = names
        self.ipv6 = ipv6
        self.directory = tempfile.mkdtemp(prefix=f"{names}-{'dual' if ipv6 else 'v4'}-", dir=lab.directory)
        self.etcd = EtcdMember(self.directory)
        self.etcd.start(extra=["--quota-backend-bytes", str(8 << 30), "--max-txn-ops", "128"])
        lab.tool("etcd_fill", "--endpoint", self.etcd.endpoint, "--names", names, *(["--ipv6"] if ipv6 else []))
        self.servers = {}

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

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.current:
            self.current.close()

    def dataset(self, names, ipv6=False):
        if self.dataset_key != (names, ipv6):
            if self.current:
                self.current.close()
            self.current = None
            self.current = Dataset(self, names, ipv6)
            self.dataset_key = (names, ipv6)
        return self.current

    def world(self, names):
        """Names of the rest of the world, in front of which the resolvers stand."""
        from resolvers import World
        key = ("world", names)
        if self.dataset_key != key:
            if self.current:
                self.current.close()
            self.current = None
            self.current = World(self, names)
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

    def load(self, server, *arguments, core=LOAD_CORE):
        # 3 says that answers were wrong, which the result says too.
        output = self.tool("load", "--port", server.port, "--pid", server.pid, "--json", *server.load_arguments,
                           *arguments, core=core, check=False)
        return json.loads(output)
