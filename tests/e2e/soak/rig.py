"""The world of a soak: its processes, and their end."""

import dataclasses
import os
import signal
import threading

from chaos.proxy import Links
from corefiles import corefile
from harness import ports
from harness.dns_servers import Knot, Nsd
from harness.etcd import EtcdMember
from harness.node import Node
from harness.processes import prepare_child

from . import judge, program, world

PATTERN = f"worker{{{{.ID}}}}.{world.ZONE}"
LEASE = 3  # seconds
OTHERS = 3  # nodes that come and go
MARKER = "marker.hosts.example."  # whose address says which Corefile is in use

# All that has a bound reaches it in the first seconds: caches are small, and while upstreams are silent `room` questions wait.
# Memory that is in use for the first time later would look like a leak; memory that is free again hides one until that has
# filled it.
_COREFILE = """. {{
    bind 127.0.0.1
    workers 2
    errors
    rrl {flooded} {{
        responses-per-second 20
        nxdomains-per-second 20
        errors-per-second 20
        max-table-size 1000
    }}
    loadbalance
    idetcd {{
        endpoint {endpoint}
        limit {limit}
        pattern {pattern}
        lease {lease}s
        reconcile 5s
        address 192.0.2.1
    }}
    hosts {hosts} {{
        {marker} {marker_name}
        fallthrough
    }}
    cache {{
        success {capacity}
        denial {capacity}
        prefetch 3 1m 20%
    }}
    forward {bad_zone} 127.0.0.1:{bad} {{
        expire {expire}
    }}
    forward {flooded} {good} {{
        max_concurrent 100
        expire {expire}
    }}
    forward . {good} {{
        max_concurrent {room}
        expire {expire}
    }}
}}
{more}"""


@dataclasses.dataclass
class Settings:
    """What reloads change."""

    generation: int = 1
    capacity: int = 400
    expire: str = "2s"
    more: str = ""

    @property
    def marker(self):
        return f"10.77.{self.generation >> 8 & 255}.{self.generation & 255}"


class Log:
    """What a node has logged, read bit by bit: it may be long."""

    REFUSAL = "Restart failed"

    def __init__(self, node):
        self._places = {path: 0 for path in (node.out_path, node.err_path)}
        self._refusals = 0
        self._forbidden = []

    def refusals(self):
        """How many Corefiles it has refused."""
        self._read()
        return self._refusals

    def forbidden(self):
        """Lines that no run may have."""
        self._read()
        return self._forbidden

    def _read(self):
        for path, place in self._places.items():
            if os.path.exists(path):
                with open(path, "rb") as file:
                    file.seek(place)
                    new = file.read()
                whole = new[:new.rfind(b"\n") + 1]
                self._places[path] += len(whole)
                text = whole.decode(errors="replace")
                self._refusals += text.count(self.REFUSAL)
                self._forbidden += judge.forbidden_lines(text)


class Rig:
    """Context manager. `rate`: of the load. `environment`: of the node under test, beside that of all processes."""

    def __init__(self, directory, rate, environment=None):
        self.directory = directory
        # More than one silent upstream of two makes wait, less than both.
        self.room = rate
        self.environment = environment or {}
        self.settings = Settings()
        self._ports = [ports.free_port() for _ in range(5)]
        link, nsd_port, knot_port, self.bad_port, self.spare_port = self._ports
        self.etcd = EtcdMember(directory)
        self.link = link
        self.links = self.bad = None
        self._bad_ready = threading.Event()
        zones = {zone: world.zone_text(zone) for zone in (world.UPSTREAM_ZONE, world.FLOODED_ZONE)}
        self.upstreams = [Nsd(directory, nsd_port, zones), Knot(directory, knot_port, zones)]
        self.hosts = os.path.join(directory, "hosts")
        with open(self.hosts, "w", encoding="ascii") as file:
            file.write("192.0.2.80 file.hosts.example\n")
        self.node = Node("node", directory, "")
        self.log = Log(self.node)
        self.others = [Node(f"other{number}", directory,
                            corefile(self.etcd.endpoint, PATTERN, OTHERS + 1, LEASE, [f"address 192.0.2.{number + 1}"], ["errors"]))
                       for number in range(1, OTHERS + 1)]

    def start(self):
        self.etcd.start()
        self.links = Links({self.link: self.etcd.client_port}, os.path.join(self.directory, "proxy.err"), prepare_child)
        self.etcd.put_many({name: f'{{"ipv4":"{address}"}}' for name, address in map(world.steady, range(world.STEADY))})
        for upstream in self.upstreams:
            upstream.launch()
        self.bad = program.Program("bad_upstream", self.directory, {"port": self.bad_port}, lambda _: self._bad_ready.set())
        assert self._bad_ready.wait(30), "the bad upstream has not started"
        self.write_corefile(self.settings)
        self.node.start(env=self.environment)
        for other in self.others:
            other.launch()
        for node in [self.node, *self.others]:
            node.wait_answers()
            node.wait_owns(self.etcd)

    def write_corefile(self, settings, text=None):
        """`text`: in place of what the settings mean."""
        with open(self.node.corefile_path, "w", encoding="utf-8") as file:
            file.write(text or self.corefile(settings))

    def corefile(self, settings):
        return _COREFILE.format(
            capacity=settings.capacity, expire=settings.expire,
            marker=settings.marker, marker_name=MARKER, more=settings.more, flooded=world.FLOODED_ZONE, hosts=self.hosts,
            endpoint=f"http://127.0.0.1:{self.link}", limit=OTHERS + 1, pattern=PATTERN, lease=LEASE, bad_zone=world.BAD_ZONE,
            room=self.room, bad=self.bad_port, good=" ".join(f"127.0.0.1:{upstream.port}" for upstream in self.upstreams))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for node in [self.node, *self.others]:
            node.close()
        for upstream in self.upstreams:
            if upstream.running():
                upstream.signal_all(signal.SIGCONT)
            upstream.kill()
        if self.bad:
            self.bad.close()
        if self.links:
            self.links.close()
        self.etcd.close()
        for port in self._ports:
            ports.release(port)
