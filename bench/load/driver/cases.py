"""The cases. What is measured comes first, how it is done after it."""

import json
import os
import re
import shutil
import statistics
import subprocess
import threading
import time

import pairs
import servers
from harness.processes import wait_until
from lab import LOAD_CORE, SERVER_CORE, Dataset, Settings
from pairs import Plan
from servers import (Echo, EchoDual, EchoSoa, EchoTwin, Idetcd, IdetcdAnyAddress, IdetcdMetered, IdetcdScraped,
                     IdetcdTwoWorkers, IdetcdZone, Knot, Nsd, Unbound)

FULL = Settings(quick=False, plan=Plan(least=40, most=400, narrow=0.02, slice=100, settle=20), many=1_000_000, puts=1000)
QUICK = Settings(quick=True, plan=Plan(least=40, most=80, narrow=0.04, slice=50, settle=10), many=100_000, puts=200)

# 192 queries under way: three batches, and no more than fit a receive buffer of the size that the kernel gives to a server
# that may not ask for more.
FLOOD = ("--sockets", "8", "--window", "24")
A_QUERIES = FLOOD
MIXED_QUERIES = (*FLOOD, "--edns", "--aaaa", "50")
RANDOM_NAMES = (*FLOOD, "--nxdomain", "100")
ONE_AT_A_TIME = ("--sockets", "1", "--window", "1")
TCP_QUERIES = ("--tcp", "--sockets", "8", "--window", "64")
ANSWERS = "answers/s"


def list_cases():
    return [
        SelfCheck("the echo beside its twin", A_QUERIES, Echo, [EchoTwin], target=1, gate=True),
        Rate("1,000 names, A", A_QUERIES, Echo, [Idetcd, IdetcdAnyAddress, Knot, Nsd, Unbound], target=0.95, gate=True),
        Rate("NXDOMAIN, random names", RANDOM_NAMES, EchoSoa, [Idetcd, Knot, Nsd], target=0.90),
        Latency("one query at a time", ONE_AT_A_TIME, Echo, [Idetcd, Knot, Nsd, Unbound], target=1.10),
        Rate("TCP, 1,000 names", TCP_QUERIES, Nsd, [Idetcd, Knot], target=0.80),
        TwoWorkers("two workers on two cores, load on both", in_quick=False),
        PutLatency("put to visible", target=5),
        Rate("1,000 names, EDNS, half AAAA", MIXED_QUERIES, EchoDual, [Idetcd, Knot, Nsd, Unbound], ipv6=True, target=0.93),
        Rate("many names, A, uniformly random", A_QUERIES, Echo, [Idetcd, IdetcdZone, Knot, Nsd, Unbound], many=True, target=0.90,
             gate=True),
        Scraped("scraped once a second", A_QUERIES, IdetcdMetered, [IdetcdScraped], target=0.99, in_quick=False),
        Memory("memory a name", [Idetcd, IdetcdZone, Knot, Nsd], target=100, gate=True, in_quick=False),  # 1,000,000 names
        TimeToReady("all keys to ready", target=3),
        LookUpsBesideWriter("look-ups beside 100,000 changes a second", target=0.90),
        Instructions("instructions of a hit", target=450, gate=True),
        Allocations("allocations of a hit", target=0, gate=True),
    ]


class Case:
    """Its rows are what results.json has: `ratio` or `value`, with `low` and `high` where there are any, and `unit`."""
    in_quick = True
    many = False
    ipv6 = False
    group = ""
    less_is_better = False

    def __init__(self, name, target=None, gate=False, in_quick=True):
        self.name = name
        self.target = target  # for idetcd: at least so much, or at most
        self.gate = gate  # the run has failed if it is missed
        self.in_quick = in_quick

    def dataset(self, lab, settings):
        return lab.dataset(Dataset, settings.many if self.many else 1000, self.ipv6)

    def run(self, lab, settings):
        dataset = self.dataset(lab, settings)
        rows = self.rows(lab, settings, dataset)
        title = self.title(dataset)
        for row in rows:
            row["case"] = title
            if self.target is not None and self.has_target(row):
                row.update(target=self.target, less_is_better=self.less_is_better, gate=self.gate)
        return {"case": title, "of": self.name, "kind": type(self).__name__, "rows": rows}

    def has_target(self, row):
        return row["server"] == "idetcd"

    def title(self, dataset):
        return self.name.replace("many names", f"{dataset.names:,} names")


class Rate(Case):
    """Answers a second, beside a reference."""
    quick_kinds = (Idetcd, EchoTwin, Nsd)

    def __init__(self, name, queries, reference, kinds, many=False, ipv6=False, **options):
        super().__init__(name, **options)
        self.queries, self.reference, self.kinds = queries, reference, kinds
        self.many, self.ipv6 = many, ipv6

    def rows(self, lab, settings, dataset):
        reference = dataset.server(self.reference)
        if not reference:
            return []
        rows, of_reference = [], []
        for kind in self.kinds:
            if settings.quick and kind not in self.quick_kinds:
                continue
            server = dataset.server(kind)
            if not server:
                continue
            lab.say(server.name)
            found = self.measure(lab, settings, dataset, server, reference)
            of_reference += [pair["reference"] for pair in found]
            row = pairs.summarize(server.name, found, self.ratio, f"× {reference.name}, {self.measured()}")
            rows.append({**row, "reference": reference.name, "memory": server.memory()})
        return [{"server": reference.name, "unit": self.measured(), **pairs.of_slices(of_reference),
                 "memory": reference.memory()}, *rows] if rows else []

    def measure(self, lab, settings, dataset, server, reference):
        return lab.pairs(server, reference, self.ratio, settings.plan, "--names", dataset.names, *self.queries)

    def measured(self):
        return ANSWERS

    ratio = staticmethod(pairs.by("rate"))


class SelfCheck(Rate):
    """The error of the measuring itself: what must be 1 but for the memory that each of the two happens to have."""
    NEAR = 0.03

    def rows(self, lab, settings, dataset):
        rows = super().rows(lab, settings, dataset)
        rows[-1]["near"] = self.NEAR
        return rows

    def has_target(self, row):
        return "near" in row


class Scraped(Rate):
    """A scrape a second, beside the same server without. Each slice is as long as from one scrape to the next, so none is
    without; and the thread that answers it has no core of its own: its time is the server's (load.cc)."""
    PLAN = Plan(least=40, most=120, narrow=0.004, slice=1000, settle=50)

    def measure(self, lab, settings, dataset, server, reference):
        ended = threading.Event()

        def scrape():
            while not ended.wait(1):
                server.scrape()
        scraper = threading.Thread(target=scrape)
        scraper.start()
        try:
            return super().measure(lab, settings._replace(plan=self.PLAN), dataset, server, reference)
        finally:
            ended.set()
            scraper.join()

    def has_target(self, row):
        return row["server"] == IdetcdScraped.name


class Latency(Rate):
    """The median of one query at a time; its ratio to the echo's, so less is better."""
    less_is_better = True

    def measured(self):
        return "p50"

    ratio = staticmethod(pairs.by("p50_us"))


class TwoWorkers(Case):
    """Two cores for server and load together: what a second loop brings where it has no core of its own."""

    def rows(self, lab, settings, dataset):
        one, two = dataset.server(Idetcd), dataset.server(IdetcdTwoWorkers)
        self.bind(one, IdetcdTwoWorkers.core)
        try:
            # One thread of load a core, as clients of a busy machine would be.
            found = lab.pairs(two, one, pairs.by("rate"), settings.plan, "--names", dataset.names, "--sockets", 16,
                              "--threads", 2, core=IdetcdTwoWorkers.core)
        finally:
            self.bind(one, Idetcd.core)
        return [{"server": "idetcd, 1 worker", "unit": ANSWERS, **pairs.of_slices([pair["reference"] for pair in found])},
                {**pairs.summarize(two.name, found, pairs.by("rate"), "× 1 worker, answers/s"), "reference": "idetcd, 1 worker"}]

    @staticmethod
    def bind(server, cores):
        subprocess.run(["taskset", "-a", "-c", "-p", cores, str(server.pid)], capture_output=True, check=True)


class PutLatency(Case):
    """From etcd's answer to a put to the moment when every client gets the new address, in ms."""
    less_is_better = True

    def rows(self, lab, settings, dataset):
        rows = []
        for kind in (Idetcd,) if settings.quick else (Idetcd, IdetcdTwoWorkers):
            server = dataset.server(kind)
            output = lab.tool("put_latency", "--endpoint", dataset.etcd.endpoint, "--port", server.port, "--puts",
                              settings.puts, "--json", check=False)
            result = json.loads(output)
            rows.append({"server": server.name, "value": result["p99_ms"], "low": result["p99_low_ms"],
                         "high": result["p99_high_ms"], "unit": "ms, p99",
                         "note": f"p50 {result['p50_ms']} ms, at most {result['max_ms']} ms, {result['never']} of "
                                 f"{result['puts']} never"})
        return rows


class Memory(Case):
    """Resident bytes a name: with all names, less an empty server's."""
    many = True
    less_is_better = True

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
                             "unit": "bytes a name",
                             "note": f"{octets / 1e6:.1f} MB, empty {server.memory() / 1e6:.1f} MB"})
        return rows


class Empty:
    """A data set of one name, beside the current one."""

    def __init__(self, lab):
        self.lab = lab

    def __enter__(self):
        self.dataset = Dataset(self.lab, 1, False)
        return self.dataset

    def __exit__(self, *_):
        self.dataset.close()
        shutil.rmtree(self.dataset.directory, ignore_errors=True)


class TimeToReady(Case):
    """From the start of the process to the first answer that knows what is not there, as a multiple of the time in which
    etcdctl reads all keys; neither is bound to a core. Six pairs, each of seconds: as few as have an interval at all."""
    many = True
    less_is_better = True
    PAIRS = 6

    def rows(self, lab, settings, dataset):
        ratios, readings, seconds, peaks = [], [], [], []
        for _ in range(self.PAIRS):
            readings.append(self.time_to_read(dataset))
            server = Idetcd(dataset)
            server.core = f"{SERVER_CORE},{LOAD_CORE}"
            seconds.append(self.time_to_ready(server))
            peaks.append(server.peak_memory() / 1e6)
            server.close()
            ratios.append(seconds[-1] / readings[-1])
        interval = pairs.median_interval(ratios)
        return [{"server": "idetcd", "reference": "etcdctl get", "unit": "× etcdctl get, seconds",
                 **pairs.as_fields("ratio", ratios), "pairs": interval.count, "wide": interval.wide,
                 "ratios": [round(ratio, 4) for ratio in ratios],
                 "note": f"{dataset.names:,} keys in {statistics.median(seconds):.2f} s (etcdctl "
                         f"{statistics.median(readings):.2f} s), at most {max(peaks):.0f} MB resident meanwhile"}]

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
    """bench/micro/beside_writer: the table alone, in memory; the ratio is to the same look-ups without a writer."""

    def rows(self, lab, settings, dataset):
        rows = []
        for table in ("idetcd",) if settings.quick else ("idetcd", "urcu", "mutex"):
            found, _ = pairs.measure([lab.program("beside_writer"), "--table", table, "--core", SERVER_CORE, "--writer-core",
                                      LOAD_CORE], pairs.by("rate"), settings.plan)
            row = pairs.summarize(table, found, pairs.by("rate"), "× without changes, look-ups/s")
            without = statistics.median(pair["reference"]["rate"] for pair in found)
            rows.append({**row, "reference": "the same without changes",
                         "note": f"{without / 1e6:.1f} M look-ups/s without, {row['rate'] / 1e6:.1f} M beside"})
        return rows


class Instructions(Case):
    """callgrind over UdpService::serveBatch: user-space instructions a query, from recvmmsg to sendmmsg."""
    less_is_better = True

    def rows(self, lab, settings, dataset):
        if not shutil.which("valgrind"):
            lab.missing.add("valgrind")
            return []
        rows = []
        for name, options in HITS:
            rows.append({"server": "idetcd", "query": name, "value": self.count(lab, options), "unit": "instructions"})
        return rows

    def has_target(self, row):
        return row["query"] == PLAIN_HIT

    @staticmethod
    def count(lab, options):
        done = subprocess.run(
            ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no",
             "--toggle-collect=idetcd::server::UdpService::serveBatch()", lab.program("hit_instructions"), *options],
            capture_output=True, text=True, check=True)
        return int(re.search(r"Collected : (\d+)", done.stderr).group(1)) / int(done.stdout.split()[0])


class Allocations(Case):
    """Calls of malloc a query, in the loop, the server and the client together."""
    less_is_better = True

    def rows(self, lab, settings, dataset):
        rows = []
        for name, options in HITS:
            queries, allocations = map(int, lab.tool("hit_instructions", *options).split())
            rows.append({"server": "idetcd", "query": name, "value": allocations / queries, "unit": "allocations"})
        return rows


# Queries, and the options of hit_instructions that make them.
PLAIN_HIT = "A, no EDNS"
HITS = ((PLAIN_HIT, []), ("A, EDNS", ["--edns"]), ("NXDOMAIN", ["--nxdomain"]), ("A, no bind", ["--wildcard"]),
        ("A, from the cache", ["--cached"]),
        ("A behind a CNAME, from the cache", ["--cached", "--alias"]), ("A, with prometheus", ["--counted"]),
        ("A, from a zone file", ["--file"]))
