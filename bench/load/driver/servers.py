"""The servers: each with its fastest settings for one thread, without logging, answering for tf.local. on a loopback
port of its own, on the server's core."""

import os
import shutil
import socket
import struct
import subprocess
import urllib.request

from harness import ports
from harness.processes import Process, wait_until

ZONE = "tf.local."


class Server:
    name = ""
    executable = None
    user = None
    core = "0"
    load_arguments = ()

    def __init__(self, dataset):
        self.dataset = dataset
        self.lab = dataset.lab
        self.port = ports.free_port()
        self.directory = os.path.join(dataset.directory, f"{self.name.replace(' ', '-')}-{self.port}")
        os.mkdir(self.directory)
        self.process = Process("server", self.directory)

    # --- what a kind of server says of itself ---

    def argv(self):
        raise NotImplementedError

    def prepare(self):
        """Writes its files."""

    def warm(self):
        """Brings it to its steady state."""

    def answers_right(self):
        """The last name is there: all is loaded."""
        return ask(self.port, f"worker{self.dataset.names}.{ZONE}")

    # --- the same for all ---

    def path(self):
        return shutil.which(self.executable, path=os.environ["PATH"] + ":/usr/sbin:/sbin")

    def installed(self):
        if self.executable is None or self.path():
            return True
        self.lab.missing.add(self.executable)
        return False

    def start(self):
        self.prepare()
        self.process.spawn(["taskset", "-c", self.core, *self.argv()])

        def ready():
            assert self.process.running(), f"{self.name} ended\n{self.process.logs()}"
            return self.answers_right()

        wait_until(ready, 300, lambda: f"{self.name} to answer\n{self.process.logs()}")
        self.warm()
        return self

    @property
    def pid(self):
        return self.process.pid

    def running(self):
        return self.process.running()

    def memory(self):
        """Resident bytes, of all its processes."""
        return sum(status(pid, "VmRSS") for pid in [self.pid, *children(self.pid)])

    def peak_memory(self):
        return status(self.pid, "VmHWM")

    def close(self):
        if self.process.running():
            self.process.signal(15)
            try:
                self.process.exit_code(10)
            except AssertionError:
                self.process.kill()
        ports.release(self.port)

    def write(self, name, text):
        path = os.path.join(self.directory, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def write_zone(self):
        dual, path = self.dataset.ipv6, os.path.join(self.directory, "zone")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"$ORIGIN {ZONE}\n$TTL 3600\n@ IN SOA ns.dns hostmaster 1 7200 1800 86400 5\n@ IN NS ns.dns\n"
                       "ns.dns IN A 127.0.0.1\n")
            for number in range(1, self.dataset.names + 1):
                a, b, c = number >> 16, number >> 8 & 255, number & 255
                file.write(f"worker{number} IN A 10.{a}.{b}.{c}\n")
                if self.dataset.services:
                    file.write(f"worker{number} IN SRV 0 0 80 worker{number}\n")
                if dual:
                    file.write(f"worker{number} IN AAAA fd00::{a:x}:{b << 8 | c:x}\n")
        return path


class Echo(Server):
    name = "echo"
    pad = 16  # an answer's length: what is behind the question
    load_arguments = ("--echo",)

    def argv(self):
        return [self.lab.program("echo"), "--port", str(self.port), "--pad", str(self.pad)]

    def answers_right(self):
        return ask(self.port, ZONE, echo=True)


class EchoTwin(Echo):
    """Another one: its ratio is 1, and whatever is measured instead is the error of the measuring."""
    name = "the same again"


class EchoDual(Echo):
    """Half A, half AAAA; the OPT is in the query."""
    pad = 22


class EchoSoa(Echo):
    """As long as a denial with its SOA."""
    pad = 68


class EchoSrv(Echo):
    """As long as an SRV record of a name with four digits, whose target's address is behind it."""
    pad = 56


class Idetcd(Server):
    name = "idetcd"
    bind = "bind 127.0.0.1"
    workers = 1
    directive = ""

    def argv(self):
        return [os.path.join(self.lab.build, "idetcd"), "-conf", os.path.join(self.directory, "Corefile"),
                "-dns.port", str(self.port), "-quiet"]

    def prepare(self):
        self.write("Corefile", f"""{ZONE} {{
    {self.bind}
    workers {self.workers}
    {self.directive}
    idetcd {{
        endpoint {self.dataset.etcd.endpoint}
        pattern worker{{{{.ID}}}}.{ZONE}
        observe
    }}
}}
""")

    def answers_right(self):
        # The last name is not the last key.
        return super().answers_right() and self.ready()

    def ready(self):
        """The first snapshot is loaded: a name that is not there is denied, no longer unknown."""
        return ask(self.port, f"nobody.{ZONE}", rcode=3)


class IdetcdAnyAddress(Idetcd):
    name = "idetcd, no bind"
    bind = ""


class IdetcdMetered(Idetcd):
    name = "idetcd with prometheus"

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.metrics_port = ports.free_port()
        self.directive = f"prometheus 127.0.0.1:{self.metrics_port}"

    def scrape(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=5) as response:
            return response.read()

    def close(self):
        super().close()
        ports.release(self.metrics_port)


class IdetcdScraped(IdetcdMetered):
    name = "idetcd, scraped once a second"


class IdetcdTwoWorkers(Idetcd):
    name = "idetcd, 2 workers"
    workers = 2
    core = "0,1"


class IdetcdZone(Idetcd):
    name = "idetcd, zone file"

    def prepare(self):
        self.write("Corefile", f"""{ZONE} {{
    {self.bind}
    transfer {{
        to *
    }}
    file {self.write_zone()} {{
        reload 0
    }}
}}
""")


class Nsd(Server):
    name = "NSD"
    executable = "nsd"

    def argv(self):
        return [self.path(), "-d", "-c", os.path.join(self.directory, "nsd.conf")]

    def prepare(self):
        zone = self.write_zone()
        self.write("nsd.conf", f"""server:
    ip-address: 127.0.0.1@{self.port}
    server-count: 1
    reuseport: no
    send-buffer-size: 4194304
    receive-buffer-size: 4194304
    tcp-count: 1000
    username: ""
    chroot: ""
    zonesdir: "{self.directory}"
    database: ""
    zonelistfile: "{self.directory}/zone.list"
    xfrdfile: "{self.directory}/xfrd.state"
    xfrdir: "{self.directory}"
    pidfile: ""
    logfile: "{self.directory}/nsd.log"
    verbosity: 0
    minimal-responses: yes
    rrl-ratelimit: 0
remote-control:
    control-enable: no
zone:
    name: {ZONE}
    zonefile: {zone}
    provide-xfr: 127.0.0.1 NOKEY
""")

    def start(self):
        super().start()
        # The process that answers is a child of the one that was started.
        self.worker = max([self.process.pid, *children(self.process.pid)], key=answering_time(self))
        return self

    @property
    def pid(self):
        return getattr(self, "worker", self.process.pid)

    def memory(self):
        # They share the zone's pages: counted once, as the answering process has them.
        return status(self.pid, "VmRSS")


class Knot(Server):
    name = "Knot DNS"
    executable = "knotd"

    def argv(self):
        return [self.path(), "-c", os.path.join(self.directory, "knot.conf")]

    def prepare(self):
        zone = self.write_zone()
        self.write("knot.conf", f"""server:
    rundir: "{self.directory}"
    listen: 127.0.0.1@{self.port}
    udp-workers: 1
    tcp-workers: 1
    background-workers: 1
    socket-affinity: off
    tcp-reuseport: off
log:
  - target: stderr
    any: error
database:
    storage: "{self.directory}"
acl:
  - id: secondaries
    address: 127.0.0.1
    action: transfer
zone:
  - domain: {ZONE}
    acl: secondaries
    storage: "{self.directory}"
    file: "{zone}"
    zonefile-sync: -1
    journal-content: none
""")


def unbound_server(port, directory, message_cache=1 << 30, rrset_cache=1 << 30):
    """The `server:` clause of every unbound that is measured; the caches in bytes, since it knows no other bound."""
    return f"""server:
    interface: 127.0.0.1
    port: {port}
    num-threads: 1
    so-reuseport: no
    so-rcvbuf: 4m
    so-sndbuf: 4m
    msg-cache-slabs: 1
    rrset-cache-slabs: 1
    msg-cache-size: {message_cache}
    rrset-cache-size: {rrset_cache}
    num-queries-per-thread: 4096
    outgoing-range: 8192
    access-control: 127.0.0.0/8 allow
    do-daemonize: no
    username: ""
    chroot: ""
    directory: "{directory}"
    pidfile: ""
    use-syslog: no
    verbosity: 0
    do-not-query-localhost: no
    module-config: "iterator"
    minimal-responses: yes
"""


class Unbound(Server):
    """A cache: the names come from NSD once, and from memory then."""
    name = "unbound (cache)"
    executable = "unbound"

    def installed(self):
        return super().installed() and bool(self.dataset.server(Nsd))

    def argv(self):
        return [self.path(), "-d", "-c", os.path.join(self.directory, "unbound.conf")]

    def prepare(self):
        upstream = self.dataset.server(Nsd).port
        self.write("unbound.conf", unbound_server(self.port, self.directory) + f"""\
    local-zone: "{ZONE}" nodefault
    local-zone: "local." nodefault
stub-zone:
    name: {ZONE}
    stub-addr: 127.0.0.1@{upstream}
remote-control:
    control-enable: no
""")

    def warm(self):
        for aaaa in (0, 100) if self.dataset.ipv6 else (0,):
            self.lab.load(self, "--names", self.dataset.names, "--select", "sequential", "--queries", self.dataset.names,
                          "--window", "32", "--sockets", "4", "--warmup", "0", "--seconds", "120", "--aaaa", aaaa)


# --- processes and packets ---

def ask(port, name, rcode=0, echo=False):
    """Whether the answer to one A query is what it must be."""
    wire = b"".join(bytes([len(label)]) + label.encode() for label in name.rstrip(".").split(".")) + b"\0"
    query = struct.pack("!6H", 4711, 0x100, 1, 0, 0, 0) + wire + struct.pack("!2H", 1, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(0.5)
        try:
            sock.connect(("127.0.0.1", port))
            sock.send(query)
            answer = sock.recv(4096)
        except OSError:
            return False
    if echo:
        return answer[4:len(query)] == query[4:]
    return answer[3] & 15 == rcode and (rcode != 0 or answer[6:8] == b"\0\1")


def children(pid):
    """All processes below this one."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            below = [int(child) for child in file.read().split()]
    except OSError:
        return []
    return below + [grandchild for child in below for grandchild in children(child)]


def status(pid, field):
    """A field of /proc/PID/status that counts memory, in bytes."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        for line in file:
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    return 0


def cpu_time(pid):
    """Nanoseconds, of all its threads."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as file:
            total += int(file.read().split()[0])
    return total


def answering_time(server):
    """How much longer each process has run after a few thousand queries: a key for max()."""
    family = [server.process.pid, *children(server.process.pid)]
    before = {pid: cpu_time(pid) for pid in family}
    subprocess.run([server.lab.program("load"), "--port", str(server.port), "--seconds", "0.2", "--names",
                    str(server.dataset.names)], stdout=subprocess.DEVNULL, check=False)
    return lambda pid: cpu_time(pid) - before.get(pid, 0)
