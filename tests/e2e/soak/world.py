"""The names of a soak, and what each may be answered. Answers are texts as chaos.prober.address() gives them."""

import bisect
import itertools

from dns_client import header, opt, question

ZONE = "soak.internal."
UPSTREAM_ZONE = "up.example."  # of the good upstreams
FLOODED_ZONE = "flood.example."  # theirs too: what hostile clients ask for, and `rrl` limits
BAD_ZONE = "bad.example."

RD = 0x0100
SERVFAIL, NXDOMAIN = "SERVFAIL", "NXDOMAIN"
FAILURES = (SERVFAIL, "REFUSED")  # REFUSED: too many questions wait already

STEADY, CHURNED, HOSTS = 200, 64, 100  # how many names there are of each
WILDCARD_ADDRESS = "192.0.2.77"
BAD_ADDRESS = "192.0.2.88"
FORGED_ADDRESS = "203.0.113.66"  # no answer may ever have it

# The first label of a name in BAD_ZONE, up to the dash: whether its address can be had at all.
BAD_BEHAVIOURS = {"silent": False, "late": True, "servfail": False, "truncated": True, "garbage": False, "forged": True,
                  "half": False}


def steady(number):
    """A name that is in etcd all the time, and its address."""
    return f"s{number}.{ZONE}", f"198.51.100.{number}"


def churned(number):
    """A name that is put and deleted all the time, and its address."""
    return f"c{number}.{ZONE}", f"10.9.0.{number}"


def host(number):
    return f"h{number}.{UPSTREAM_ZONE}", f"10.20.0.{number}"


def zone_text(zone):
    """The zone of the good upstreams, in master file form. TTLs are short, so that cached answers end during a run."""
    lines = ["$TTL 30", f"@ SOA ns.{zone} admin.{zone} 1 7200 900 1209600 5", "@ NS ns.nowhere.example.",
             f"*.wild A {WILDCARD_ADDRESS}"]
    lines += [f"h{number} {2 + number % 20} A {host(number)[1]}" for number in range(HOSTS)]
    return "\n".join(lines) + "\n"


class Kind:
    """Queries of one purpose. `make(random)` gives a name and the answers that are right. One of FAILURES is no
    wrong answer for kinds of the good upstreams (`upstream`): these may be away."""

    def __init__(self, name, weight, make, upstream=False):
        self.name = name
        self.weight = weight
        self.make = make
        self.upstream = upstream
        # What needs no upstream is answered from memory: nothing excuses a delay.
        self.local = name in ("steady", "absent", "churned")


def _fresh(random, zone):
    return f"x{random.getrandbits(48):x}.{zone}"


def _steady(random):
    name, address = steady(random.randrange(STEADY))
    return name, {address}


def _churned(random):
    name, address = churned(random.randrange(CHURNED))
    return name, {address, NXDOMAIN}


def _host(random):
    name, address = host(random.randrange(HOSTS))
    return name, {address}


def _bad(random):
    behaviour = random.choice(list(BAD_BEHAVIOURS))
    answers = {SERVFAIL, BAD_ADDRESS} if BAD_BEHAVIOURS[behaviour] else {SERVFAIL}
    return f"{behaviour}-{random.getrandbits(48):x}.{BAD_ZONE}", answers


KINDS = [
    Kind("steady", 35, _steady),
    Kind("absent", 10, lambda random: (_fresh(random, ZONE), {NXDOMAIN})),
    Kind("churned", 10, _churned),
    Kind("hit", 28, _host, upstream=True),
    Kind("miss", 10, lambda random: (_fresh(random, f"wild.{UPSTREAM_ZONE}"), {WILDCARD_ADDRESS}), upstream=True),
    Kind("denied", 6, lambda random: (_fresh(random, UPSTREAM_ZONE), {NXDOMAIN}), upstream=True),
    Kind("bad", 1, _bad),
]
KIND = {kind.name: kind for kind in KINDS}
_WEIGHTS = list(itertools.accumulate(kind.weight for kind in KINDS))


def choose(random):
    """A kind, by weight."""
    return KINDS[bisect.bisect(_WEIGHTS, random.random() * _WEIGHTS[-1])]


def packet(name, edns, rdtype=1):
    """A query but for its ID, which are the first two bytes."""
    return header(0, RD, ar=1 if edns else 0)[2:] + question(name, rdtype) + (opt() if edns else b"")
