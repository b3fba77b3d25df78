"""One idetcd process."""

import collections
import http.client
import json
import os
import random
import re
import signal
import socket
import struct

from . import ports
from .processes import TIME_FACTOR, Process, wait_until

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


def binary():
    """The server under test: IDETCD_BINARY, so that a sanitizer build can be put through the same tests."""
    return os.environ.get("IDETCD_BINARY") or os.path.join(ROOT, "build", "release", "idetcd")


# Suppresses reports of the sanitizers on libraries that were not built with them; of no meaning to other builds.
SANITIZERS = {
    "LSAN_OPTIONS": f"suppressions={ROOT}/tests/lsan.supp:print_suppressions=0",
    "TSAN_OPTIONS": f"ignore_noninstrumented_modules=1 suppressions={ROOT}/tests/tsan.supp",
}


class Node(Process):
    """`corefile` is written to <directory>/<name>.Corefile; a port of its own is passed as -dns.port unless port=None."""

    def __init__(self, name, directory, corefile, port=0, arguments=()):
        super().__init__(name, directory)
        self.owns_port = port == 0
        self.port = ports.free_port() if port == 0 else port
        self.corefile_path = os.path.join(directory, f"{name}.Corefile")
        self.arguments = list(arguments)
        self.binary = binary()
        # Of this node alone: some live in namespaces, and have the same port.
        self.runtime_directory = os.path.join(directory, f"{name}.run")
        with open(self.corefile_path, "w", encoding="utf-8") as file:
            file.write(corefile)

    def launch(self, env=None, **spawn_options):
        port = ["-dns.port", str(self.port)] if self.port else []
        conf = ["-conf", self.corefile_path] if self.corefile_path else []
        self.spawn([self.binary, *conf, *port, *self.arguments], env={**SANITIZERS, "RUNTIME_DIRECTORY": self.runtime_directory, **(env or {})},
                   **spawn_options)
        return self

    def answers(self, host="127.0.0.1", port=None):
        """Whether anything at all comes back from the DNS port over UDP."""
        query_id = random.randrange(65536)
        # id, flags, one question: "ready.test. A IN"
        query = struct.pack("!6H", query_id, 0, 1, 0, 0, 0) + b"\5ready\4test\0" + struct.pack("!2H", 1, 1)
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(2 * TIME_FACTOR)
            try:
                sock.connect((host, port or self.port))
                sock.send(query)
                return struct.unpack("!H", sock.recv(4096)[:2])[0] == query_id
            except OSError:
                return False

    def wait_answers(self, **where):
        def condition():
            assert self.running(), f"{self.name} ended with {self.exit_code(1)}\n{self.logs()}"
            return self.answers(**where)
        wait_until(condition, 10, lambda: f"{self.name} to answer DNS\n{self.logs()}")
        return self

    def start(self, **spawn_options):
        return self.launch(**spawn_options).wait_answers()

    def wait_logged(self, text, times=None, timeout=10):
        """Until it has logged `text`: a line is written a moment after what it reports. `times`: so often, and until now no
        oftener."""
        def count():
            return (self.out() + self.err()).count(text)
        wait_until(lambda: count() >= (times or 1), timeout,
                   lambda: f"{self.name} to log '{text}'; {count()} times now\n{self.logs(tail=200)}")
        assert times is None or count() == times, self.logs(tail=1000)

    def socket_path(self):
        """Where the subcommands reach it."""
        return os.path.join(self.runtime_directory, f"{self.port}.sock")

    def control(self, path, method="GET", timeout=30):
        """Status and JSON of a request at its control socket. Names are answered a moment before that has its paths (503
        without JSON)."""
        def exchange():
            client = http.client.HTTPConnection("localhost", timeout=timeout)
            client.sock = socket.socket(socket.AF_UNIX)
            try:
                client.sock.settimeout(timeout)
                client.sock.connect(self.socket_path())
                client.request(method, path)
                response = client.getresponse()
                body = response.read()
                return body != b"Service Unavailable\n" and (response.status, json.loads(body))
            finally:
                client.close()
        return wait_until(exchange, 10, lambda: f"{self.name} to have control paths\n{self.logs()}")

    def connected_ports(self):
        """Port at the other end -> how many established TCP connections."""
        inodes = set()
        for descriptor in os.listdir(f"/proc/{self.pid}/fd"):
            try:
                match = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(f"/proc/{self.pid}/fd/{descriptor}"))
            except OSError:  # closed meanwhile
                continue
            if match:
                inodes.add(match[1])
        found = collections.Counter()
        for table in ("tcp", "tcp6"):
            with open(f"/proc/{self.pid}/net/{table}", encoding="ascii") as file:
                for fields in map(str.split, file.readlines()[1:]):
                    if fields[3] == "01" and fields[9] in inodes:
                        found[int(fields[2].rsplit(":", 1)[1], 16)] += 1
        return found

    def peak_memory(self):
        """The most that it has had resident, in bytes."""
        with open(f"/proc/{self.pid}/status", encoding="ascii") as file:
            return 1024 * int(next(line for line in file if line.startswith("VmHWM:")).split()[1])

    def owned_name(self, etcd):
        """The name that this node holds in etcd, known by its port; None if it holds none."""
        names = [name for name, value in etcd.names().items() if value.get("port") == str(self.port)]
        assert len(names) <= 1, f"{self.name} holds several names: {names}"
        return names[0] if names else None

    def wait_owns(self, etcd, timeout=10):
        def condition():
            assert self.running(), f"{self.name} ended with {self.exit_code(1)}\n{self.logs()}"
            return self.owned_name(etcd)
        return wait_until(condition, timeout, lambda: f"{self.name} to own a name\n{self.logs()}", interval=0.02)

    def terminate(self, timeout=8):
        self.signal(signal.SIGTERM)
        return self.exit_code(timeout)

    def close(self):
        self.kill()
        if self.owns_port and self.port:
            ports.release(self.port)


class Nodes:
    """Starts nodes and ends them."""

    def __init__(self, directory):
        self.directory = directory
        self.nodes = []

    def make(self, text, name=None, **options):
        node = Node(name or f"node{len(self.nodes) + 1}", self.directory, text, **options)
        self.nodes.append(node)
        return node

    def start(self, text, name=None, **options):
        """Launched, and its DNS port answers."""
        return self.make(text, name, **options).start()

    def start_cluster(self, text, count, etcd):
        """`count` nodes with the same Corefile, all started at once; waits until each owns a name."""
        nodes = [self.make(text).launch() for _ in range(count)]
        for node in nodes:
            node.wait_answers()
            node.wait_owns(etcd)
        return nodes

    def close(self):
        """Returns what went wrong: nodes that are still running must end well after SIGTERM."""
        problems = []
        running = [node for node in self.nodes if node.running()]
        for node in running:
            node.resume()
            node.signal(15)
        for node in running:
            try:
                code = node.exit_code(10)
                if code != 0:
                    problems.append(f"{node.name} ended with {code} on SIGTERM")
            except AssertionError as error:
                problems.append(str(error).splitlines()[0])
        for node in self.nodes:
            for mark in ("AddressSanitizer", "ThreadSanitizer", "LeakSanitizer", "runtime error:", "terminate called"):
                if mark in node.err():
                    problems.append(f"{node.name}: {mark}")
            node.close()
        return problems
