"""A name belongs to one node at a time. Pure functions over what was observed, so that each can be shown to fail.

Three witnesses:
  - etcd's own history of a slot's key. Its revisions order everything. A *tenure* is the span of revisions in which the
    key carries one incarnation's value under one token: the key's create_revision, or what the value says if that is more.
  - answers of nodes. An answer that names a slot was given somewhere between the sending of its query and the receipt
    of the answer, and at that moment the node took the slot for its own.
  - what the on-claim programs of nodes were given: name and token.

When etcd made a revision is known within bounds too (Moments). Every check takes the bounds in favour of the server, so
whatever is reported has happened."""

import bisect
import collections
from array import array
from dataclasses import dataclass, field


class Moments:
    """When revisions were made, from writes of our own: each of known revision, sent and confirmed at known times."""

    def __init__(self):
        self._writes = []

    def add(self, revision, sent, confirmed):
        self._writes.append((revision, sent, confirmed))

    def settle(self):
        """REQUIRES: before earliest() and latest(); nothing is added afterwards."""
        self._writes.sort()
        self._revisions = [revision for revision, _, _ in self._writes]
        self._sent = list(_running(max, (sent for _, sent, _ in self._writes)))
        confirmed = _running(min, (confirmed for _, _, confirmed in reversed(self._writes)))
        self._confirmed = list(confirmed)[::-1]
        return self

    def earliest(self, revision):
        """The revision was not made before this: a write with a lower or the same one had not even been sent."""
        index = bisect.bisect_right(self._revisions, revision) - 1
        return self._sent[index] if index >= 0 else float("-inf")

    def latest(self, revision):
        """The revision was made by this time: a write with a higher or the same one was confirmed."""
        index = bisect.bisect_left(self._revisions, revision)
        return self._confirmed[index] if index < len(self._revisions) else float("inf")


def _running(choose, values):
    best = None
    for value in values:
        best = value if best is None else choose(best, value)
        yield best


@dataclass(frozen=True)
class Tenure:
    name: str
    owner: str  # the incarnation
    token: int
    begin: int  # the revision of the owner's first put
    end: int | None  # the revision that ended it, by deletion or by another owner's put; None: it lasts


OPERATOR = "operator"  # the owner of what was put by hand


@dataclass(frozen=True)
class Touch:
    """An operator's write that ends a tenure of this name, if there is one. `revision` None: it may have been done a while
    after it was sent, or never."""
    name: str
    sent: float
    revision: int | None
    UNKNOWN_FOR = 10  # seconds

    def ended(self, tenure, moments):
        if tenure.name != self.name or tenure.end is None:
            return False
        if self.revision is not None:
            return tenure.end == self.revision
        return self.sent <= moments.latest(tenure.end) and moments.earliest(tenure.end) <= self.sent + self.UNKNOWN_FOR


@dataclass(frozen=True)
class Change:
    """One event of a slot's key. `owner` None: a deletion."""
    name: str
    revision: int
    owner: str | None = None
    token: int = 0


def tenures(changes):
    """Slot -> its tenures, oldest first. A put by the same owner under the same token (a new lease, a new address)
    goes on with the tenure."""
    spans = collections.defaultdict(list)
    for change in sorted(changes, key=lambda change: change.revision):
        slot = spans[change.name]
        current = slot[-1] if slot and slot[-1].end is None else None
        if current and change.owner == current.owner and change.token == current.token:
            continue
        if current:
            slot[-1] = Tenure(current.name, current.owner, current.token, current.begin, change.revision)
        if change.owner is not None:
            slot.append(Tenure(change.name, change.owner, change.token, change.revision, None))
    return dict(spans)


@dataclass
class Sightings:
    """The answers in which one incarnation said that one slot is its own, in order."""
    owner: str
    name: str
    sent: array = field(default_factory=lambda: array("d"))
    received: array = field(default_factory=lambda: array("d"))

    def add(self, sent, received):
        self.sent.append(sent)
        self.received.append(received)


@dataclass
class Interval:
    """What of a tenure was seen from outside: the owner said "mine" from some moment before `first_received` to some
    moment after `last_sent`."""
    tenure: Tenure
    first_received: float
    last_sent: float
    answers: int

    def __str__(self):
        return (f"{self.tenure.name} token {self.tenure.token} {self.tenure.owner}: "
                f"{self.first_received:.3f} to {self.last_sent:.3f}, {self.answers} answers, "
                f"in etcd from revision {self.tenure.begin} to {self.tenure.end}")


def attribute(sightings, spans, moments, touches=(), lease=0):
    """Every answer to the tenure it was given under. Returns (intervals, problems).

    Of a tenure that an operator ended its owner may go on to speak until its watch shows that, a lease time at most: such
    answers belong to no interval. Nor do those that may be such, from the earliest moment of the end.
    An answer that fits several tenures of its owner counts for the newest. One that fits none is a false claim: the
    node said "mine" before it can have had the key, after the key was gone or another's, or without ever having had it."""
    intervals, problems = [], []
    for seen in sightings:
        own = [tenure for tenure in spans.get(seen.name, ()) if tenure.owner == seen.owner]
        bounds = [(moments.earliest(t.begin), float("inf") if t.end is None else moments.latest(t.end)) for t in own]
        touched = [any(touch.ended(tenure, moments) for touch in touches) for tenure in own]
        found = {}
        for sent, received in zip(seen.sent, seen.received):
            for tenure, (begin, end), excused in zip(reversed(own), reversed(bounds), reversed(touched)):
                if begin <= received and sent <= end + (lease if excused else 0):
                    break
            else:
                problems.append(_false_claim(seen, sent, received, own, bounds))
                continue
            if excused and sent > moments.earliest(tenure.end):
                continue
            interval = found.setdefault(tenure.begin, Interval(tenure, received, sent, 0))
            interval.first_received = min(interval.first_received, received)
            interval.last_sent = max(interval.last_sent, sent)
            interval.answers += 1
        intervals.extend(found[begin] for begin in sorted(found))
    return intervals, problems


def _false_claim(seen, sent, received, own, bounds):
    spans = ", ".join(f"token {t.token} from {begin:.3f} to {end:.3f}" for t, (begin, end) in zip(own, bounds))
    return (f"{seen.owner} said that {seen.name} is its own, asked at {sent:.3f} and answered at {received:.3f}; "
            f"etcd had it so: {spans or 'never'}")


def overlaps(intervals):
    """Pairs of owners who both said "mine" of one slot: the one with the older token still said it when the younger one had
    said it already."""
    problems = []
    slots = collections.defaultdict(list)
    for interval in intervals:
        slots[interval.tenure.name].append(interval)
    for slot in slots.values():
        slot.sort(key=lambda interval: interval.tenure.begin)
        last = None  # of all before, the one that spoke last
        for interval in slot:
            if last and last.last_sent > interval.first_received:
                problems.append(f"two owners at once: {last} and {interval}")
            if last is None or interval.last_sent > last.last_sent:
                last = interval
    return problems


@dataclass(frozen=True)
class HookRun:
    """One run of the on-claim program of one incarnation, in their order."""
    owner: str
    event: str
    name: str
    token: int
    at: float = 0.0  # it was under way then


def hook_problems(runs, spans):
    """Problems of the runs of one incarnation: claims and losses take turns, each of one name and token that the node
    really had in etcd, and the tokens of a slot only rise."""
    problems = []
    current = None
    highest = {}
    for line in runs:
        if line.event == "claim":
            if current:
                problems.append(f"{line} without the loss of {current.name} before it")
            current = line
            if not any(t.owner == line.owner and t.token == line.token for t in spans.get(line.name, ())):
                problems.append(f"{line}, but in etcd it never had that token")
            if line.token < highest.get(line.name, 0):
                problems.append(f"{line} after token {highest[line.name]} of the same slot")
            highest[line.name] = line.token
        elif line.event == "loss":
            if not current or (current.name, current.token) != (line.name, line.token):
                problems.append(f"{line} after {current}")
            current = None
        else:
            problems.append(f"{line}: neither claim nor loss")
    return problems


def falling_tokens(spans):
    """In etcd's own history each tenure of a slot has a higher token than the one before: no two holders share one."""
    problems = []
    for slot in spans.values():
        of_nodes = [tenure for tenure in slot if tenure.owner != OPERATOR]
        for older, younger in zip(of_nodes, of_nodes[1:]):
            if younger.token <= older.token:
                problems.append(f"{younger} has no higher token than {older} before it")
    return problems


HOOK_CLOCK = 0.02  # seconds: HookRun.at is rounded down to hundredths


def hook_times(runs, spans, moments, ends):
    """Problems of when programs ran. `runs`: of all incarnations; `ends`: incarnation -> when it got SIGTERM, of those that then
    ended in an orderly way. No program is told of a claim before etcd has it. At an orderly end the program has run for the
    loss before the name is given away, unless that takes more than a second."""
    problems = []
    claims = {(line.owner, line.name, line.token): line for line in reversed(runs) if line.event == "claim"}
    for line in runs:
        slot = spans.get(line.name, ())
        own = [t for t in slot if t.owner == line.owner and t.token == line.token]
        if not own:
            continue  # hook_problems() says so
        if line.event == "claim" and line.at + HOOK_CLOCK < moments.earliest(own[0].begin):
            problems.append(f"{line} before {moments.earliest(own[0].begin):.3f}, when etcd cannot have had it")
        asked = ends.get(line.owner)
        if line.event != "loss" or asked is None or not asked <= line.at <= asked + 1:
            continue
        if own[-1].end is None or moments.latest(own[-1].end) < asked:
            continue  # it was lost before
        for tenure in slot:
            claim = claims.get((tenure.owner, tenure.name, tenure.token))
            if tenure.begin >= own[-1].end and claim and claim.at + HOOK_CLOCK < line.at:
                problems.append(f"{claim} before {line}")
    return problems


def leaked(leases, held):
    """Leases that no living node's name is under."""
    return [f"lease {lease:x} is there, and no name is under it" for lease in sorted(leases - held)]


def not_dense(names, count, render, limit=None):
    """At rest `count` nodes have the first `count` names, each one; where `limit` is above, some names of as many."""
    wanted = {render(number) for number in range(1, (limit or count) + 1)}
    problems = [f"no node has {name}" for name in sorted(wanted - set(names))] if limit in (None, count) else []
    problems += [f"a node has {name}" for name in sorted(set(names) - wanted)]
    problems += [f"{number} nodes have {name}" for name, number in collections.Counter(names).items() if number > 1]
    return problems or ([] if len(names) == count else [f"{len(names)} names of {count} nodes"])
