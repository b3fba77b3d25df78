"""Small zones by seed, with wildcards, aliases, delegations and empty non-terminals in every combination, and the queries that tell servers
apart."""

import random

LABELS = ("a", "b", "c", "*")
TYPES = ("A", "TXT", "CNAME", "DNAME", "NS", "MX", "DS", "AAAA")


class RandomZone:
    """`text` in master file form, that every server takes; `queries`: pairs of a name and a type."""

    def __init__(self, origin, seed):
        self.origin = origin
        self.random = random.Random(seed)
        self.records = {}  # of each owner, without the apex
        for _ in range(self.random.randint(2, 9)):
            self._add(self._owner())
        self.text = self._text()
        self.queries = self._queries()

    def _owner(self):
        depth = self.random.choice((1, 1, 2, 2, 3))
        return ".".join([*(self.random.choice(LABELS) for _ in range(depth)), self.origin])

    def _name(self):
        """In the zone mostly, whether or not it is there."""
        if self.random.random() < 0.1:
            return "www.elsewhere."
        if self.records and self.random.random() < 0.4:
            return self.random.choice(sorted(self.records))
        return ".".join([*(self.random.choice(("a", "b", "c", "x")) for _ in range(self.random.choice((1, 2, 3)))), self.origin])

    def _add(self, owner):
        held = self.records.setdefault(owner, {})
        for _ in range(self.random.choice((1, 1, 2))):
            kind = self.random.choice(("A", "A", "TXT", "CNAME", "CNAME", "DNAME", "NS", "NS", "MX", "SRV"))
            alone = "CNAME" in held or (kind == "CNAME" and held)
            # Servers refuse these.
            both = {"NS", "DNAME"} <= {kind, *held} or (owner.startswith("*.") and kind in ("NS", "DNAME"))
            if alone or both or kind in held:
                continue
            held[kind] = self._data(kind)
            if kind == "NS" and self.random.random() < 0.3:
                held["DS"] = ["1 8 2 " + 64 * "0"]
            if kind == "NS" and self.random.random() < 0.6:
                for target in held["NS"]:
                    if target.endswith(self.origin) and not self.records.get(target, {}).keys() & {"CNAME", "NS"}:
                        self.records.setdefault(target, {})["A"] = ["192.0.2.77"]
        if not held:
            del self.records[owner]

    def _data(self, kind):
        if kind == "A":
            return [f"192.0.2.{self.random.randint(1, 250)}" for _ in range(self.random.choice((1, 1, 2)))]
        if kind == "TXT":
            return [f'"{self.random.randint(0, 99)}"']
        if kind == "MX":
            return [f"10 {self._name()}"]
        if kind == "SRV":
            return [f"1 2 3 {self._name()}"]
        if kind == "NS":
            return [self._name() for _ in range(self.random.choice((1, 2)))]
        return [self._name()]

    def _text(self):
        lines = ["$TTL 300", f"{self.origin} SOA ns.{self.origin} m.{self.origin} 1 3600 600 86400 60", f"{self.origin} NS ns.{self.origin}",
                 f"ns.{self.origin} A 192.0.2.53"]
        for owner, held in self.records.items():
            lines += [f"{owner} {kind} {data}" for kind, all_data in held.items() for data in dict.fromkeys(all_data)]
        return "\n".join(lines) + "\n"

    def _queries(self):
        names = {self.origin, f"ns.{self.origin}", f"x.{self.origin}", f"a.b.c.x.{self.origin}"}
        for owner in self.records:
            names |= {owner, f"x.{owner}", f"a.y.{owner}", f"*.{owner}", owner.replace("*", "q"), owner.partition(".")[2]}
            for held in self.records[owner].values():
                names |= {data.split()[-1] for data in held if data.endswith(self.origin)}
        names = sorted(name for name in names if name.endswith(self.origin) and len(name.split(".")) < 12)
        return [(name, rdtype) for name in names for rdtype in self.random.sample(TYPES, 4)]
