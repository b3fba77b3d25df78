"""The cases of `xdp`: names that are answered inside the kernel, beside the same names behind sockets.

Each way to answer has a machine of its own, a network namespace, since a program on lo is met by all that passes there: the
servers behind sockets, idetcd with `xdp lo`, a bare XDP echo, and idetcd in the driver of a veth pair. The load asks from
within a machine over its lo, or from a machine of clients over a veth. Takes root and BPF."""

import json
import os
import shutil
import subprocess
import tempfile

import pairs
import servers
from cases import A_QUERIES, ONE_AT_A_TIME, Case, Latency, Rate
from harness import xdp
from harness.etcd import EtcdMember
from harness.namespace import Namespace
from harness.processes import Process, wait_until
from lab import LOAD_CORE, SERVER_CORE, Dataset
from servers import ZONE, Echo, Idetcd, Knot, Nsd

FEW = 1000


def list_cases():
    return [
        KernelLatency("in the kernel: one query at a time, on lo", ONE_AT_A_TIME, EchoOnLo,
                      [IdetcdInKernel, BareXdp, IdetcdOnLo, KnotOnLo, NsdOnLo], target=0.35, gate=True, in_quick=False),
        # Without steering the load's core does everything but what a server does behind its socket.
        KernelRate("in the kernel: 1,000 names, A, on lo", A_QUERIES, EchoOnLo,
                   [IdetcdInKernelSteered, IdetcdInKernel, BareXdp, IdetcdOnLo, KnotOnLo, NsdOnLo], target=1.25, gate=True,
                   in_quick=False),
        KernelRate("in the kernel: 1,000 names, A, over a veth pair", A_QUERIES, IdetcdOverVethSteered,
                   [IdetcdInDriverSteered, IdetcdInDriver, IdetcdOverVeth], target=2, gate=True, in_quick=False),
        BulkTcp("in the kernel: bulk TCP over lo beside it", in_quick=False),
        ManyNames("in the kernel: 100,000 names at random, as a ratio to 1,000 of them", names=100_000, target=0.9, gate=True,
                  in_quick=False),
        ManyNames("in the kernel: many names at random, as a ratio to 1,000 of them", many=True, target=0.9, in_quick=False),
        KernelMemory("in the kernel: memory a name", target=256, gate=True, in_quick=False),
    ]


# --- machines ---

class Machine:
    """A network namespace with `lo` and one end of a veth pair, whose other end the clients have."""

    def __init__(self, site, name, number):
        self.directory = os.path.join(site.directory, name)
        os.mkdir(self.directory)
        self.namespace = Namespace(self.directory)
        self.address, gateway = f"192.0.2.{4 * number + 1}", f"192.0.2.{4 * number + 2}"
        self.clients_end = f"to{number}"
        site.clients.run("ip", "link", "add", self.clients_end, "type", "veth", "peer", "name", xdp.INTERFACE, "netns",
                         str(self.namespace.holder.pid))
        for namespace, address, interface in ((self.namespace, self.address, xdp.INTERFACE),
                                              (site.clients, gateway, self.clients_end)):
            namespace.run("ip", "address", "add", f"{address}/30", "dev", interface)
            namespace.run("ip", "link", "set", interface, "up")
        self.namespace.run("ip", "route", "add", "default", "via", gateway)
        self.namespace.run("mount", "-t", "sysfs", "sysfs", "/sys")

    def steer(self, interface):
        """What comes in by the interface is received on the server's core, as on a machine of its own, not on the sender's."""
        self.set(f"{interface}/queues/rx-0/rps_cpus", f"{1 << SERVER_CORE:x}")

    def steer_driver(self, interface):
        """The same where the driver has a program: its queue gets a thread, on the server's core."""
        before = napi_threads()
        self.set(f"{interface}/threaded", "1")
        wait_until(lambda: napi_threads() - before, 5, "the thread of the interface")
        for thread in napi_threads() - before:
            os.sched_setaffinity(thread, {SERVER_CORE})

    def set(self, path, value):
        self.namespace.run("sh", "-c", f"echo {value} > /sys/class/net/{path}")


def napi_threads():
    """Of all machines."""
    found = set()
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{process}/comm", encoding="ascii", errors="replace") as file:
                if file.read().startswith("napi/"):
                    found.add(int(process))
        except FileNotFoundError:
            pass
    return found


class KernelSite(Dataset):
    """The machines, made when first asked for, one etcd beside the clients, and the servers."""
    ETCD = "198.51.100.1"

    def __init__(self, lab, names):
        self.machines = {}
        super().__init__(lab, names, ipv6=False)

    def start_etcd(self):
        directory = os.path.join(self.directory, "clients")
        os.mkdir(directory)
        self.clients = Namespace(directory, [f"{self.ETCD}/32"])
        with self.clients.entered():
            super().start_etcd()

    def make_etcd(self):
        return EtcdMember(self.directory, client_host=self.ETCD, peer_host=self.ETCD)

    def machine(self, name):
        if name not in self.machines:
            self.machines[name] = Machine(self, name, len(self.machines))
        return self.machines[name]

    def close(self):
        super().close()
        for machine in self.machines.values():
            machine.namespace.close()
        self.clients.close()


class Placed:
    """Mixed into a server: it runs in a machine, and is asked there or from the clients."""
    machine_name = "behind sockets"
    over_veth = False

    @property
    def machine(self):
        return self.dataset.machine(self.machine_name)

    @property
    def load_arguments(self):
        asked_from = self.dataset.clients if self.over_veth else self.machine.namespace
        address = self.machine.address if self.over_veth else xdp.LOOPBACK4
        return (*super().load_arguments, "--network", f"/proc/{asked_from.holder.pid}/ns/net", "--address", address)

    def start(self):
        with self.machine.namespace.entered():
            return super().start()


class EchoOnLo(Placed, Echo):
    pass


class KnotOnLo(Placed, Knot):
    pass


class NsdOnLo(Placed, Nsd):
    pass


class IdetcdOnLo(Placed, Idetcd):
    name = "idetcd, sockets"


class IdetcdOverVeth(IdetcdOnLo):
    name = "idetcd, sockets, unsteered"
    bind = ""
    over_veth = True


class IdetcdOverVethSteered(IdetcdOverVeth):
    name = "idetcd, sockets, steered"
    machine_name = "behind sockets, steered"

    def prepare(self):
        super().prepare()
        self.machine.steer(xdp.INTERFACE)


class IdetcdInKernel(Placed, Idetcd):
    name = "idetcd, xdp"
    machine_name = "program on lo"
    interface = "lo"
    mode = "generic"

    @property
    def directive(self):
        return f"""xdp {self.interface} {{
        {self.mode}
        required
        max_names {self.max_names}
    }}"""

    @property
    def max_names(self):
        return max(self.dataset.names + FEW, FEW)

    def warm(self):
        """The kernel answers."""
        def by_kernel():
            before = self.kernel.answered()
            self.lab.load(self, "--queries", 1, "--warmup", 0, "--window", 1, "--sockets", 1)
            return self.kernel.answered() > before
        self.kernel = xdp.kernel_of(self.machine.namespace, self.process, self.interface)
        wait_until(by_kernel, 60, "the kernel to answer")


class IdetcdInKernelSteered(IdetcdInKernel):
    name = "idetcd, xdp, steered"
    machine_name = "program on lo, steered"

    def prepare(self):
        super().prepare()
        self.machine.steer("lo")


class IdetcdInDriver(IdetcdInKernel):
    name = "idetcd, xdp native"
    machine_name = "program in the driver"
    interface = xdp.INTERFACE
    mode = "native"
    bind = ""
    over_veth = True

    def prepare(self):
        super().prepare()
        # A veth takes what its other end sends back from a program only if it has one itself.
        xdp.Site.attach(self.dataset.clients, self.machine.clients_end, xdp.compiled(self.directory, "pass", xdp.PASS))


class IdetcdInDriverSteered(IdetcdInDriver):
    name = "idetcd, xdp native, steered"
    machine_name = "program in the driver, steered"

    def warm(self):
        super().warm()
        self.machine.steer_driver(xdp.INTERFACE)


class BareXdp(Placed, Echo):
    """No process: a program that sends each query back, instead of a server."""
    name = "bare XDP echo"
    machine_name = "echo on lo"

    def argv(self):
        return ["sleep", "infinity"]

    def prepare(self):
        path = os.path.join(self.directory, "echo.o")
        source = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "xdp_echo.bpf.c")
        subprocess.run(["clang-14", "-O2", "-g", "-target", "bpf", "-mcpu=v3", f"-DPORT={self.port}", f"-DPAD={self.pad}",
                        f"-I/usr/include/{os.uname().machine}-linux-gnu", "-c", source, "-o", path], check=True)
        xdp.Site.attach(self.machine.namespace, "lo", path, "xdpgeneric")


# --- cases ---

class KernelCase(Case):
    group = "xdp"
    names = FEW

    def dataset(self, lab, settings):
        return lab.dataset(KernelSite, settings.many if self.many else self.names)

    def run(self, lab, settings):
        why = xdp.unavailable()
        if why:
            lab.missing.add(why)
            return {"case": self.name, "of": self.name, "kind": type(self).__name__, "rows": []}
        return super().run(lab, settings)

    def has_target(self, row):
        return row["server"].startswith("idetcd, xdp")


class KernelRate(KernelCase, Rate):
    def has_target(self, row):
        return super().has_target(row) and row["server"].endswith("steered")


class KernelLatency(KernelCase, Latency):
    pass


class ManyNames(KernelCase):
    """Random names of many, of which most are in no cache of the processor, beside 1,000 of them, which are."""

    def __init__(self, name, names=None, many=False, **options):
        super().__init__(name, **options)
        self.names, self.many = names, many

    def rows(self, lab, settings, dataset):
        server, ratio = dataset.server(IdetcdInKernel), pairs.by("rate")
        found = lab.pairs(server, server, ratio, settings.plan, *A_QUERIES, "--names", dataset.names, "--reference-names", FEW)
        reference = f"{FEW:,} names"
        return [{"server": reference, "unit": "answers/s", **pairs.of_slices([pair["reference"] for pair in found])},
                {**pairs.summarize(server.name, found, ratio, f"× {reference}, answers/s"), "reference": reference}]


class BulkTcp(KernelCase):
    """Connections of a second over lo, where a program is attached, and where none is, in turn; in large and in small writes."""
    PAIRS = 40
    WRITES = (131072, 1400)  # bytes

    def rows(self, lab, settings, dataset):
        if not shutil.which("iperf3"):
            lab.missing.add("iperf3")
            return []
        machines = [dataset.server(kind).machine for kind in (IdetcdInKernel, IdetcdOnLo)]
        return [self.row(machines, size) for size in self.WRITES]

    def row(self, machines, size):
        measured = [[self.rate(machine, size) for machine in machines] for _ in range(self.PAIRS)]
        ratios = [beside / without for beside, without in measured]
        beside, without = map(sorted, zip(*measured))
        return {"server": f"{IdetcdInKernel.name}, writes of {size:,} bytes", "reference": "without",
                "unit": "× without, bytes/s", **pairs.as_fields("ratio", ratios), "pairs": len(ratios),
                "ratios": [round(ratio, 4) for ratio in ratios],
                "note": f"medians {1e-6 * beside[len(beside) // 2]:,.0f} MB/s, without {1e-6 * without[len(without) // 2]:,.0f}; "
                        f"slowest connections {1e-6 * beside[0]:,.0f} and {1e-6 * without[0]:,.0f}; slower than half the median: "
                        f"{slow(beside)} and {slow(without)} of {len(ratios)}"}

    @staticmethod
    def rate(machine, size):
        """Bytes a second."""
        with machine.namespace.entered():
            server = Process("iperf3", tempfile.mkdtemp(dir=machine.directory))  # its output says when it listens
            server.spawn(["taskset", "-c", str(SERVER_CORE), "iperf3", "--server", "--one-off", "--forceflush", "--bind", xdp.LOOPBACK4])
            try:
                wait_until(lambda: "listening" in server.out(), 10, server.logs)
                done = subprocess.run(["taskset", "-c", str(LOAD_CORE), "iperf3", "--client", xdp.LOOPBACK4, "--time", "1", "--length",
                                       str(size), "--json"], capture_output=True, text=True, check=True)
            finally:
                server.kill()
        return json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"] / 8


def slow(rates):
    """How many. REQUIRES: ascending."""
    return sum(rate < rates[len(rates) // 2] / 2 for rate in rates)


class KernelMemory(KernelCase):
    """What the kernel has set aside for the maps of names and addresses, by as many as there may be."""
    many = True
    less_is_better = True

    def rows(self, lab, settings, dataset):
        server = dataset.server(IdetcdInKernel)
        size = server.kernel.memory()
        return [{"server": server.name, "value": size / server.max_names, "unit": "bytes a name",
                 "note": f"{size / 1e6:.1f} MB for {server.max_names:,} names"}]
