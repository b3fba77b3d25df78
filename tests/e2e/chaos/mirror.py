"""Every node's table is etcd's. Pure functions: what a table of keys and values means in DNS, and whether answers fit."""

import bisect
import ipaddress
import itertools
import json
import re

NXDOMAIN, NODATA, REFUSED = "NXDOMAIN", "NODATA", "REFUSED"
_MAX_VALUE = 4096
_KEY = re.compile(r"([a-z0-9_-]{1,63}\.)+")


class _Object(list):
    """A JSON object: its pairs, in order."""


def record_of(key, value):
    """What a key and its value say: {"A": address or None, "AAAA": likewise}; None: they are no record.

    Written from the format's description, not from the server's code: a JSON object whose field names have no case and
    of which the last of two counts, as Go reads it; addresses are strings, other fields mean nothing; 4 KiB at most."""
    if not _KEY.fullmatch(key) or len(value.encode(errors="surrogateescape")) > _MAX_VALUE:
        return None
    try:
        document = json.loads(value, object_pairs_hook=_Object)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, _Object):
        return None
    fields = {name.lower(): content for name, content in document}
    for name in ("ipv4", "ipv6", "port", "id"):
        if not isinstance(fields.get(name, ""), str):
            return None
    try:
        ipv4, ipv6 = fields.get("ipv4", ""), fields.get("ipv6", "")
        return {"A": str(ipaddress.IPv4Address(ipv4)) if ipv4 else None,
                "AAAA": str(ipaddress.IPv6Address(ipv6)) if ipv6 else None}
    except ValueError:
        return None


def expected(pairs, names, zone):
    """(name, type) -> what a node must answer, for each of `names`; `pairs` are etcd's keys and values."""
    records = {key: record_of(key, value) for key, value in pairs.items()}
    records = {key: record for key, record in records.items() if record is not None}
    inner = {zone}  # names that exist because something below them does
    for key in records:
        labels = key.split(".")
        inner.update(".".join(labels[depth:]) for depth in range(1, len(labels) - 1))
    table = {}
    for name in names:
        in_zone = name == zone or name.endswith("." + zone)
        for rdtype in ("A", "AAAA"):
            if name in records:
                table[name, rdtype] = records[name][rdtype] or NODATA
            elif in_zone:
                table[name, rdtype] = NODATA if name in inner else NXDOMAIN
            else:
                table[name, rdtype] = REFUSED
    return table


def differences(node, wanted, got):
    """Both: (name, type) -> answer."""
    return [f"{node}: {name} {rdtype} is {got.get((name, rdtype))}, by etcd {answer}"
            for (name, rdtype), answer in sorted(wanted.items()) if got.get((name, rdtype)) != answer]


def too_old(shown, writes, lease):
    """Fresh answers that were not true for longer than a lease, and the age of the oldest one. `shown`: (owner, number) -> when
    that was last asked for and not marked as stale; `writes`: (number, when etcd had confirmed it), in the order of the numbers."""
    numbers = [number for number, _ in writes]
    ended = list(itertools.accumulate((confirmed for _, confirmed in reversed(writes)), min))[::-1]
    problems, oldest = [], 0
    for (owner, number), sent in shown.items():
        next_one = bisect.bisect_right(numbers, number)
        if next_one == len(numbers):
            continue
        age = sent - ended[next_one]
        oldest = max(oldest, age)
        if age > lease:
            problems.append(f"{owner} showed number {number} as fresh, asked at {sent:.3f}; it had ended {age:.3f} s before")
    return problems, oldest


class Ascending:
    """A key that counts up, as one incarnation shows it: what is older never replaces what is newer."""

    def __init__(self, owner):
        self.owner = owner
        self.highest = -1

    def see(self, number):
        """A problem, or None. REQUIRES: answers come in the order in which they were given."""
        if number < self.highest:
            return f"{self.owner} went back from number {self.highest} to {number}"
        self.highest = number
        return None
