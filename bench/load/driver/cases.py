"""The cases. What is measured comes first, how it is done after it."""

import collections
import json
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import time

import servers
from harness.processes import wait_until
from lab import LOAD_CORE
from servers import Echo, EchoDual, EchoSoa, Idetcd, IdetcdAnyAddress, IdetcdTwoWorkers, Knot, Nsd, Unbound

# many: the size of the large data set.
Settings = collections.namedtuple("Settings", "rounds seconds many puts")
FULL = Settings(rounds=5, seconds=2.0, many=1_000_000, puts=1000)
QUICK = Settings(rounds=3, seconds=0.5, many=100_000, puts=200)

# 192 queries under way: three batches, and no more than fit a receive buffer of the size that the kernel gives to a server
# that may not ask for more.
FLOOD = ("--sockets", "8", "--window", "24")
A_QUERIES = FLOOD
MIXED_QUERIES = (*FLOOD, "--edns", "--aaaa", "50")
RANDOM_NAMES = (*FLOOD, "--nxdomain", "100")
ONE_AT_A_TIME = ("--sockets", "1", "--window", "1")


def list_cases():
    return [
        Rate("1,000 names, A", A_QUERIES, Echo, [Idetcd, IdetcdAnyAddress, Knot, Nsd, Unbound], target=0.95,
             unbound_in_quick=True),
        Rate("NXDOMAIN, random names", RANDOM_NAMES, EchoSoa, [Idetcd, Knot, Nsd], target=0.90),
        Latency("one query at a time", ONE_AT_A_TIME, Echo, [Idetcd, Knot, Nsd, Unbound], target=1.10),
        TcpRate("TCP, 1,000 names", [Idetcd, Knot, Nsd], target=0.80),
        TwoWorkers("two workers on two cores, load on both", in_quick=False),
        PutLatency("put to visible", target=5),
        Rate("1,000 names, EDNS, half AAAA", MIXED_QUERIES, EchoDual, [Idetcd, Knot, Nsd, Unbound], ipv6=True, target=0.93),
        Rate("many names, A, uniformly random", A_QUERIES, Echo, [Idetcd, Knot, Nsd, Unbound], many=True, target=0.90),
        Memory("memory a name", [Idetcd, Knot, Nsd], target=130),
        TimeToReady("all keys to ready", target=3),
        LookUpsBesideWriter("look-ups beside 100,000 changes a second", target=0.90),
        Instructions("instructions of a hit", target=450),
    ]


class Case:
    in_quick = True
    many = False
    ipv6 = False
    unit = ""
    group = ""

    def __init__(self, name, target=None, in_quick=True):
        self.name = name
        self.target = target  # for idetcd
        self.in_quick = in_quick

    def dataset(self, lab, settings):
        return lab.dataset(settings.many if self.many else 1000, self.ipv6)

    def run(self, lab, settings):
        dataset = self.dataset(lab, settings)
        return {"name": self.title(dataset), "kind": type(self).__name__, "target": self.target,
                "rows": self.rows(lab, settings, dataset)}

    def title(self, dataset):
        return self.name.replace("many names", f"{dataset.names:,} names")


class Rate(Case):
    """Answers a second, each run after one of the echo."""

    def __init__(self, name, queries, echo, kinds, many=False, ipv6=False, unbound_in_quick=False, **options):
        super().__init__(name, **options)
        self.unbound_in_quick = unbound_in_quick  # to fill its cache takes a while
        self.queries, self.echo, self.kinds = queries, echo, kinds
        self.many, self.ipv6 = many, ipv6

    def rows(self, lab, settings, dataset):
        echo = dataset.server(self.echo)
        kinds = [kind for kind in self.kinds if kind is not Unbound or settings is not QUICK or self.unbound_in_quick]
        peers = [server for server in map(dataset.server, kinds) if server]
        echo_runs, runs = [], {peer: [] for peer in peers}
        for number in range(settings.rounds):
            for peer in peers:
                echo_runs.append(self.measure(lab, settings, dataset, echo, number))
                result = self.measure(lab, settings, dataset, peer, number)
                result["ratio"] = self.ratio(result, echo_runs[-1])
                result["cpu_ratio"] = echo_runs[-1]["cpu_us"] / max(result["cpu_us"], 0.001)
                runs[peer].append(result)
        rows = [summarize("echo", echo_runs, echo.memory())]
        return rows + [summarize(peer.name, runs[peer], peer.memory()) for peer in peers]

    def measure(self, lab, settings, dataset, server, number):
        return lab.load(server, "--seconds", settings.seconds, "--names", dataset.names, "--seed", number + 1, *self.queries)

    @staticmethod
    def ratio(result, echo):
        return result["rate"] / echo["rate"]


class Latency(Rate):
    """The median of one query at a time; its ratio to the echo's, so less is better."""

    @staticmethod
    def ratio(result, echo):
        return result["p50_us"] / echo["p50_us"]


class TcpRate(Case):
    """dnsperf -m tcp; the ratio is to NSD's run before it."""

    def __init__(self, name, kinds, **options):
        super().__init__(name, **options)
        self.kinds = kinds

    def rows(self, lab, settings, dataset):
        reference = dataset.server(Nsd)
        if not shutil.which("dnsperf") or not reference:
            lab.missing.add("dnsperf")
            return []
        peers = [server for server in map(dataset.server, self.kinds) if server and server is not reference]
        reference_runs, runs = [], {peer: [] for peer in peers}
        for _ in range(settings.rounds):
            for peer in peers:
                reference_runs.append(self.measure(lab, settings, reference))
                result = self.measure(lab, settings, peer)
                result["ratio"] = result["rate"] / reference_runs[-1]["rate"]
                runs[peer].append(result)
        return [summarize(reference.name, reference_runs)] + [summarize(peer.name, runs[peer]) for peer in peers]

    @staticmethod
    def measure(lab, settings, server):
        path = os.path.join(server.directory, "queries")
        if not os.path.exists(path):
            with open(path, "w", encoding="ascii") as file:
                file.writelines(f"worker{number}.{servers.ZONE} A\n" for number in range(1, server.dataset.names + 1))
        seconds = max(1, round(settings.seconds))
        before = servers.cpu_time(server.pid)
        done = subprocess.run(["taskset", "-c", str(LOAD_CORE), "dnsperf", "-m", "tcp", "-s", "127.0.0.1", "-p",
                               str(server.port), "-d", path, "-l", str(seconds), "-c", "8", "-q", "512"],
                              capture_output=True, text=True, check=True)
        spent = servers.cpu_time(server.pid) - before
        output = done.stdout
        answered = int(re.search(r"Queries completed:\s+(\d+)", output).group(1))
        lost = int(re.search(r"Queries lost:\s+(\d+)", output).group(1))
        right = re.search(r"NOERROR (\d+)", output)
        return {"rate": float(re.search(r"Queries per second:\s+([\d.]+)", output).group(1)), "answered": answered,
                "lost": lost, "wrong": answered - (int(right.group(1)) if right else 0),
                "cpu_us": spent / 1000 / max(answered, 1)}


class TwoWorkers(Case):
    """Two cores for server and load together: what a second loop brings where it has no core of its own."""

    def rows(self, lab, settings, dataset):
        runs = {kind: [] for kind in (Idetcd, IdetcdTwoWorkers)}
        both = "0,1"
        for number in range(settings.rounds):
            for kind, results in runs.items():
                server = dataset.server(kind)
                subprocess.run(["taskset", "-a", "-c", "-p", both, str(server.pid)], capture_output=True, check=True)
                # One load process a core, as clients of a busy machine would be.
                results.append(self.measure(lab, settings, server, number))
        back = ["taskset", "-a", "-c", "-p", Idetcd.core, str(dataset.server(Idetcd).pid)]
        subprocess.run(back, capture_output=True, check=True)
        for one, two in zip(*runs.values()):
            two["ratio"] = two["rate"] / one["rate"]
        return [summarize("idetcd, 1 worker", runs[Idetcd]), summarize("idetcd, 2 workers", runs[IdetcdTwoWorkers])]

    @staticmethod
    def measure(lab, settings, server, number):
        loads = [subprocess.Popen(
            ["taskset", "-c", "0,1", lab.program("load"), "--port", str(server.port), "--pid", str(server.pid), "--json",
             "--seconds", str(settings.seconds), "--sockets", "16", "--seed", str(number * 2 + i)],
            stdout=subprocess.PIPE, text=True) for i in range(2)]
        results = [json.loads(load.communicate()[0]) for load in loads]
        total = dict(results[0])
        for field in ("rate", "answered", "wrong", "lost", "late"):
            total[field] = sum(result[field] for result in results)
        total["cpu_us"] = results[0]["cpu_us"] * results[0]["answered"] / max(total["answered"], 1)
        return total


class PutLatency(Case):
    """From etcd's answer to a put to the moment when every client gets the new address, in ms."""

    def rows(self, lab, settings, dataset):
        rows = []
        for kind in (Idetcd, IdetcdTwoWorkers) if settings is FULL else (Idetcd,):
            server = dataset.server(kind)
            output = lab.tool("put_latency", "--endpoint", dataset.etcd.endpoint, "--port", server.port, "--puts",
                              settings.puts, "--json", check=False)
            result = json.loads(output)
            rows.append({"server": server.name, "value": result["p99_ms"], "unit": "ms, p99",
                         "note": f"p50 {result['p50_ms']} ms, at most {result['max_ms']} ms, {result['never']} of "
                                 f"{result['puts']} never"})
        return rows


class Memory(Case):
    """Resident octets a name: with all names, less an empty server's."""
    many = True

    def __init__(self, name, kinds, **options):
        super().__init__(name, **options)
        self.kinds = kinds

    def rows(self, lab, settings, dataset):
        full = {}
        for kind in self.kinds:
            if server := dataset.server(kind):
                full[kind] = server.memory()
        rows = []
        with Empty(lab) as empty:
            for kind, octets in full.items():
                server = empty.server(kind)
                rows.append({"server": server.name, "value": (octets - server.memory()) / dataset.names,
                             "unit": "octets a name",
                             "note": f"{octets / 1e6:.1f} MB, empty {server.memory() / 1e6:.1f} MB"})
        return rows


class Empty:
    """A data set of one name, beside the current one."""

    def __init__(self, lab):
        self.lab = lab

    def __enter__(self):
        from lab import Dataset
        self.dataset = Dataset(self.lab, 1, False)
        return self.dataset

    def __exit__(self, *_):
        self.dataset.close()
        shutil.rmtree(self.dataset.directory, ignore_errors=True)


class TimeToReady(Case):
    """From the start of the process to the first answer that knows what is not there, as a multiple of the time in which
    etcdctl reads all keys; neither is bound to a core."""
    many = True

    def rows(self, lab, settings, dataset):
        ratios, readings, seconds, peaks = [], [], [], []
        for _ in range(min(settings.rounds, 3)):
            readings.append(self.time_to_read(dataset))
            server = Idetcd(dataset)
            server.core = "0,1"
            seconds.append(self.time_to_ready(server))
            peaks.append(server.peak_memory() / 1e6)
            server.close()
            ratios.append(seconds[-1] / readings[-1])
        return [{"server": "idetcd", "value": statistics.median(ratios), "unit": "× etcdctl get",
                 "note": f"{dataset.names:,} keys in {statistics.median(seconds):.2f} s (etcdctl {statistics.median(readings):.2f} s), at most "
                         f"{max(peaks):.0f} MB resident meanwhile"}]

    @staticmethod
    def time_to_read(dataset):
        start = time.monotonic()
        subprocess.run(["etcdctl", "--endpoints", dataset.etcd.endpoint, "--command-timeout=120s", "get", "--prefix", ""],
                       stdout=subprocess.DEVNULL, check=True, env={**os.environ, "ETCDCTL_API": "3"})
        return time.monotonic() - start

    @staticmethod
    def time_to_ready(server):
        server.prepare()
        start = time.monotonic()
        server.process.spawn(["taskset", "-c", server.core, *server.argv()])
        wait_until(server.ready, 300, "idetcd to be ready", interval=0.002)
        return time.monotonic() - start


class LookUpsBesideWriter(Case):
    """bench/micro: the table alone, in memory; the ratio is to the same look-ups without a writer."""

    def rows(self, lab, settings, dataset):
        rows = []
        for table in ("idetcd", "urcu", "mutex") if settings is FULL else ("idetcd",):
            with tempfile.NamedTemporaryFile(suffix=".json") as output:
                subprocess.run([lab.program("table_bench"), f"--benchmark_filter=LookUpBesideWriter<{table}>",
                                f"--benchmark_repetitions={settings.rounds}", f"--benchmark_min_time={settings.seconds / 2}",
                                "--benchmark_enable_random_interleaving=true",
                                f"--benchmark_out={output.name}", "--benchmark_out_format=json"],
                               capture_output=True, check=True)
                runs = json.load(output)["benchmarks"]
            rates = {changes: statistics.median(run["items_per_second"] for run in runs if run["run_type"] == "iteration"
                                                and f"changes:{changes}/" in run["name"]) for changes in (0, 100000)}
            rows.append({"server": table, "value": rates[100000] / rates[0], "unit": "× without",
                         "note": f"{rates[0] / 1e6:.1f} M look-ups/s without, {rates[100000] / 1e6:.1f} M beside"})
        return rows


class Instructions(Case):
    """callgrind over UdpService::serveBatch: user-space instructions a query, from recvmmsg to sendmmsg."""

    def rows(self, lab, settings, dataset):
        if not shutil.which("valgrind"):
            lab.missing.add("valgrind")
            return []
        rows = []
        for name, options in (("A, no EDNS", []), ("A, EDNS", ["--edns"]), ("NXDOMAIN", ["--nxdomain"]),
                              ("A, no bind", ["--wildcard"]),
                              ("A, from the cache", ["--cached"])):
            rows.append({"server": name, "value": self.count(lab, options), "unit": "instructions", "note": ""})
        return rows

    @staticmethod
    def count(lab, options):
        done = subprocess.run(
            ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no",
             "--toggle-collect=idetcd::server::UdpService::serveBatch()", lab.program("hit_instructions"), *options],
            capture_output=True, text=True, check=True)
        return int(re.search(r"Collected : (\d+)", done.stderr).group(1)) / int(done.stdout)


def summarize(name, runs, memory=None):
    """Medians, and how far the runs lie apart."""
    row = {"server": name, "runs": runs, "memory": memory}
    for field in ("rate", "ratio", "cpu_us", "cpu_ratio", "p50_us", "p99_us", "p999_us", "server_busy"):
        values = [run[field] for run in runs if field in run]
        if values:
            row[field] = statistics.median(values)
            row[f"{field}_spread"] = (min(values), max(values))
    for field in ("wrong", "lost"):
        row[field] = sum(run[field] for run in runs)
    return row


CASES = list_cases()
