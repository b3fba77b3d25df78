"""The cases of the rest of the world: names that come from an upstream, through the cache or past it.

CoreDNS, and NodeLocal DNSCache that is made of it, are not among the peers: Debian has no package of them."""

import pairs
import resolvers
from cases import FLOOD, Case, Rate
from lab import LOAD_CORE
from resolvers import (WORLD, Dnsdist, DnsdistBatched, Dnsmasq, EchoOfWorld, IdetcdIdle, IdetcdResolver, IdetcdStalled,
                       UnboundResolver, World)

RESOLVERS = [IdetcdResolver, UnboundResolver, Dnsmasq, Dnsdist]
WORLD_NAMES = 100_000
HOT_NAMES = 1000
SMALL_CACHE = WORLD_NAMES // 100


def list_cases():
    return [
        CachedRate("cached answers, 1,000 names", FLOOD, HOT_NAMES, target=0.92, gate=True),
        CachedRate("cached answers, 100,000 names, Zipf", (*FLOOD, "--select", "zipf"), WORLD_NAMES, target=0.85,
                   in_quick=False),
        CachedRate("30 % misses to a local upstream", (*FLOOD, "--misses", "30"), HOT_NAMES, in_quick=False),
        HitRatio("hit ratio on a Zipf trace, cache of 1 % of the names", in_quick=False),
        StalledUpstream("cluster names beside 10,000 misses of a silent upstream", target=1.2, in_quick=False),
    ]


class WorldCase(Case):
    group = "resolver"

    def dataset(self, lab, settings):
        return lab.dataset(World, WORLD_NAMES)


class CachedRate(WorldCase, Rate):
    """Answers a second, with all names of the case in every cache before it begins."""
    quick_kinds = (IdetcdResolver, UnboundResolver)

    def __init__(self, name, queries, names, **options):
        super().__init__(name, queries, EchoOfWorld, [*RESOLVERS, DnsdistBatched], **options)
        self.names = names

    def measure(self, lab, settings, dataset, server, reference):
        fill(lab, server, self.names)
        return lab.pairs(server, reference, self.ratio, settings.plan, "--zone", WORLD, "--names", self.names, *self.queries)


class HitRatio(WorldCase):
    """Of the same trace, the share that each answers without asking its upstream, whose queries are counted. Every cache
    has room for as many names: idetcd, dnsmasq and dnsdist are given a number of entries; unbound's caches are bounded in
    bytes, so those are sized by trial, until each holds that number of entries or a few more."""

    def rows(self, lab, settings, dataset):
        upstream = dataset.upstream()
        if not upstream:
            return []
        warm, asked = (50_000, 100_000) if settings.quick else (200_000, 400_000)
        rows = []
        for kind in RESOLVERS[:2] if settings.quick else RESOLVERS:
            server = self.small_server(lab, kind, dataset)
            if not server:
                continue
            before_warm = self.trace(lab, server, warm, seed=1)
            before = upstream.queries()
            result = self.trace(lab, server, asked, seed=2)
            misses = upstream.queries() - before
            note = f"{result['answered']:,} asked, {misses:,} forwarded"
            if kind is UnboundResolver:
                note += "; holds {:,} messages, {:,} RRsets".format(*server.cache_counts())
            rows.append({"server": server.name, "value": 100 * (1 - misses / result["answered"]), "unit": "% hits",
                         "note": note, "wrong": result["wrong"] + before_warm["wrong"]})
            server.close()
        return rows

    def small_server(self, lab, kind, dataset):
        if kind is UnboundResolver:
            return self.calibrated_unbound(lab, dataset)
        server = kind(dataset)
        server.cache_entries = SMALL_CACHE
        return server.start() if server.installed() else None

    @staticmethod
    def calibrated_unbound(lab, dataset):
        octets = [SMALL_CACHE * 300, SMALL_CACHE * 300]
        for _ in range(8):
            server = UnboundResolver(dataset)
            if not server.installed():
                return None
            server.message_cache, server.rrset_cache = octets
            server.start()
            fill(lab, server, 4 * SMALL_CACHE)
            counts = server.cache_counts()
            if all(SMALL_CACHE <= count <= SMALL_CACHE * 1.05 for count in counts):
                break
            server.close()
            octets = [round(size * SMALL_CACHE * 1.02 / count) for size, count in zip(octets, counts)]
        return server if server.running() else server.start()

    @staticmethod
    def trace(lab, server, queries, seed):
        return lab.load(server, "--zone", WORLD, "--names", WORLD_NAMES, "--select", "zipf", "--queries", queries, "--seed",
                        seed, "--warmup", 0, "--seconds", 120, "--sockets", 4, "--window", 4)


class StalledUpstream(WorldCase):
    """p99 of one query at a time for the cluster's names, beside 10,000 other questions that wait for an upstream which
    never answers, as a multiple of that of a second idetcd which has nothing else to do."""
    less_is_better = True

    def rows(self, lab, settings, dataset):
        server, idle = dataset.server(IdetcdStalled), dataset.server(IdetcdIdle)
        before = server.memory()
        found, rest = pairs.measure(
            ["taskset", "-c", LOAD_CORE, lab.program("stalled_upstream"), "--port", server.port, "--pid", server.pid,
             "--reference", idle.port, "--names", resolvers.CLUSTER_NAMES, "--zone", WORLD], pairs.by("p99_us"), settings.plan)
        row = pairs.summarize(server.name, found, pairs.by("p99_us"), "× idle, p99")
        stalled, quiet = rest[-1], pairs.of_slices([pair["reference"] for pair in found])
        row["note"] = (
            f"p99 {row['p99_us']:.0f} µs, idle {quiet['p99_us']:.0f} µs; p50 {row['p50_us']:.0f} and {quiet['p50_us']:.0f} µs; never "
            f"less than {stalled['in_flight']:,} stalled; of {stalled['asked']:,} all but "
            f"{stalled['asked'] - stalled['servfail_with_ede']} got SERVFAIL with an EDE, the slowest after "
            f"{stalled['slowest_s']:.2f} s; {(server.peak_memory() - before) / 1e6:.0f} MB more")
        return [{**row, "reference": "idle"}]


def fill(lab, server, names):
    """Has every name in the cache."""
    lab.load(server, "--zone", WORLD, "--names", names, "--select", "sequential", "--queries", names, "--window", "16",
             "--sockets", "4", "--warmup", "0", "--seconds", "120")
