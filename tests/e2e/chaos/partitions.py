"""Machines that found a cluster, and reach each other at random: it is founded once, and a name belongs to one machine at a time.

Each round is a founding by machines that are blank, with its own partitions from before the founding on. More machines than
names: whoever is cut off for long enough loses its name to one that waits. Needs root."""

import collections
import os
import random
import re
import shutil
import subprocess
import time
from dataclasses import dataclass

from harness.node import Nodes
from harness.peers import Lan, name_of, worker
from harness.processes import wait_until

from . import prober
from .runs import CALM_WITHIN, Diary, ChaosVerdict
from .store import now

PARTITIONS = 20  # in a round
MEAN_SECONDS, MOST_SECONDS = 2.5, 10  # how long one lasts
LOOK_EVERY = 0.2  # seconds
FILES_WITHIN = 2  # seconds: a disk that others keep busy
_NOWHERE = "02:00:00:00:00:01"  # a MAC address that nobody has


# --- who reaches whom ---

def random_cut(chance, numbers):
    """(what it is, the ways that are shut): pairs of from and to."""
    ways = [(a, b) for a in numbers for b in numbers if a != b]
    kind = chance.choice(["groups", "groups", "islands", "links", "ways"])
    if kind == "groups":
        count = chance.choice([2, 2, 3])
        place = {number: chance.randrange(count) for number in numbers}
        return f"groups {list(place.values())}", {(a, b) for a, b in ways if place[a] != place[b]}
    if kind == "islands":  # of one machine each
        alone = set(chance.sample(numbers, chance.randint(1, len(numbers) // 2)))
        return f"alone {sorted(alone)}", {(a, b) for a, b in ways if a in alone or b in alone}
    share = chance.uniform(0.2, 0.7)
    if kind == "links":  # who reaches whom is not transitive
        shut = {(a, b) for a, b in ways if a < b and chance.random() < share}
        return f"{len(shut)} links", shut | {(b, a) for a, b in shut}
    shut = {way for way in ways if chance.random() < share}
    return f"{len(shut)} ways", shut


class Switch:
    """Shuts ways without a sign: what goes there has an address on the wire that nobody has."""

    def __init__(self, lan, numbers):
        self._lan = lan
        self._shut = {number: set() for number in numbers}

    def shut(self, ways):
        """These, and no others."""
        for number, before in self._shut.items():
            after = {to for sender, to in ways if sender == number}
            lines = [f"neigh replace {Lan.NETWORK}.{to} lladdr {_NOWHERE} dev lan nud permanent" for to in sorted(after - before)]
            lines += [f"neigh del {Lan.NETWORK}.{to} dev lan" for to in sorted(before - after)]
            if lines:
                with self._lan.space(number).entered():
                    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, check=True, capture_output=True)
            self._shut[number] = after


# --- what is seen ---

@dataclass
class Span:
    """The machine said from some moment before `first_received` until some moment after `last_sent` that the name is its own."""
    name: str
    owner: str
    first_received: float
    last_sent: float
    last_received: float


class Claims:
    """Takes in what machines say of themselves, for each in its order."""

    # Between two answers a name may have been lost and claimed again, if they lie further apart.
    MOST_BETWEEN = 1.0

    def __init__(self):
        self.spans = []
        self.answers = 0
        self.latest = {}  # owner -> name or None
        self._open = {}

    def add(self, owner, name, sent, received):
        self.answers += 1
        self.latest[owner] = name
        span = self._open.get(owner)
        if span and span.name == name and sent - span.last_received <= self.MOST_BETWEEN:
            span.last_sent, span.last_received = sent, received
            return
        self._open[owner] = Span(name, owner, received, sent, received) if name else None
        if name:
            self.spans.append(self._open[owner])

    def double_owners(self):
        problems = []
        by_name = collections.defaultdict(list)
        for span in sorted(self.spans, key=lambda span: span.first_received):
            for before in by_name[span.name]:
                if before.owner != span.owner and before.last_sent > span.first_received and span.last_sent > before.first_received:
                    problems.append(f"two owners at once: {before} and {span}")
            by_name[span.name].append(span)
        return problems


@dataclass
class Answer:
    """A machine said, and not that it is stale, that the name leads to this machine."""
    asked: str
    name: str
    owner: str
    sent: float


def outdated(answers, spans, lease):
    """Of a name that has had another owner for longer than a lease."""
    return [f"{answer} although {span.owner} has it since {span.first_received:.3f}" for answer in answers for span in spans
            if span.name == answer.name and span.owner != answer.owner
            and span.first_received + lease + 1 < answer.sent < span.last_sent]


class Observer:
    """Of one round: what DNS, the control socket and the files say."""

    def __init__(self, names, lease):
        self.dns, self.status = Claims(), Claims()
        self.fresh = []  # Answers
        self.files = []
        self._names = names
        self._lease = lease
        self._both = collections.Counter()  # (name, machines whose files say it) -> for how many looks
        self.questions = []
        for name in names:
            self.questions += [prober.question("id.server", prober.TXT, prober.CHAOS), prober.question(name, prober.A, edns=True)]

    def observe(self, owner, number, sent, received, packet):
        if number % 2 == 0:
            self.dns.add(owner, prober.own_name(packet), sent, received)
            return
        address = prober.address(packet)
        if address.startswith(Lan.NETWORK) and not prober.is_stale(packet):
            self.fresh.append(Answer(owner, self._names[number // 2], f"machine{address.rsplit('.', 1)[1]}", sent))

    def look(self, lan):
        held = collections.defaultdict(list)
        for number, node in lan.made.items():
            sent = now()
            if os.path.exists(node.socket_path()):
                self.status.add(f"machine{number}", name_of(node), sent, now())
            name = identity_name(lan, number)
            if name:
                held[name].append(number)
        both = {(name, tuple(numbers)) for name, numbers in held.items() if len(numbers) > 1}
        self._both = collections.Counter({pair: self._both[pair] + 1 for pair in both})
        self.files += [f"the identity files of machines {numbers} say {name}, for {FILES_WITHIN} s"
                       for (name, numbers), looks in self._both.items() if looks == int(FILES_WITHIN / LOOK_EVERY) + 1]

    def problems(self):
        return self.dns.double_owners() + self.status.double_owners() + self.files + outdated(self.fresh, self.dns.spans, self._lease)


def identity_name(lan, number):
    try:
        with open(os.path.join(lan.state(number), "identity"), encoding="ascii") as file:
            found = re.search(r"^IDETCD_NAME='?([^'\n]+)", file.read(), re.MULTILINE)
    except FileNotFoundError:
        return None
    return found and found[1]


# --- the run ---

def run_partitions(directory, seconds, seed, nodes=9, lease=3, out=None, **_):
    verdict, say, chance = ChaosVerdict(), Diary(directory, out), random.Random(seed)
    counts = collections.Counter()
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end and not verdict.problems:
            counts["foundings"] += 1
            place = os.path.join(directory, f"round{counts['foundings']}")
            os.mkdir(place)
            verdict.problems += _round(place, end, chance, nodes, lease, say, counts)
            if not verdict.problems:
                shutil.rmtree(place)
    except AssertionError as error:
        verdict.problems.append(str(error))
    finally:
        say.close()
    verdict.facts.append(", ".join(f"{count} {what}" for what, count in counts.items()))
    return verdict


def _round(directory, end, chance, count, lease, say, counts):
    numbers = list(range(2, count + 2))
    names = [worker(number) for number in range(1, count * 2 // 3 + 1)]
    observer = Observer(names, lease)
    nodes = Nodes(directory)
    lan = Lan(nodes, directory, expect=count, limit=len(names), lease=lease)
    asking = prober.Prober(observer.questions, observer.observe)
    try:
        for number in numbers:
            lan.space(number)
        switch = Switch(lan, numbers)
        asking.start()
        for partition in range(PARTITIONS):
            if partition and time.monotonic() > end:
                break
            what, ways = random_cut(chance, numbers)
            say(what)
            switch.shut(ways)
            counts["partitions"] += 1
            if partition == 0:
                _start(lan, numbers, asking, chance)
            _watch(lan, observer, chance)
            if chance.random() < 0.3:
                say("all reach all")
                switch.shut(())
                _watch(lan, observer, chance)
        switch.shut(())
        begin = now()
        wait_until(lambda: _is_calm(lan, observer, names), CALM_WITHIN, lambda: _standing(lan, observer), interval=LOOK_EVERY)
        say(f"{len(names)} names {now() - begin:.1f} s after the last partition")
    finally:
        if asking.is_alive():
            asking.stop()
        problems = nodes.close()
        lan.close()
    counts["answers"] += observer.dns.answers + len(observer.fresh)
    counts["spans of ownership"] += len(observer.dns.spans)
    counts["looks at status and files"] += observer.status.answers
    return problems + observer.problems() + foundings(nodes.nodes)


def _start(lan, numbers, asking, chance):
    for number in chance.sample(numbers, len(numbers)):
        node = lan.start(number, peers=" ".join(f"{Lan.NETWORK}.{other}" for other in numbers))
        with lan.space(number).entered():
            asking.attach(f"machine{number}", node.port)
        time.sleep(chance.uniform(0, 0.2))


def _watch(lan, observer, chance):
    until = time.monotonic() + min(chance.expovariate(1 / MEAN_SECONDS), MOST_SECONDS)
    while time.monotonic() < until:
        observer.look(lan)
        time.sleep(LOOK_EVERY)


def _is_calm(lan, observer, names):
    """Each name has one owner, and the files say the same."""
    observer.look(lan)
    said = observer.dns.latest
    return (sorted(filter(None, said.values())) == sorted(names)
            and all(identity_name(lan, number) == said.get(f"machine{number}") for number in lan.made))


def _standing(lan, observer):
    return f"{observer.dns.latest}, " + "\n".join(node.logs(tail=30) for node in lan.made.values())


def foundings(nodes):
    """What the logs say of a second one."""
    problems = []
    clusters = set()
    for node in nodes:
        log = node.out()
        clusters |= set(re.findall(r"a member of the cluster ([0-9a-f-]+)", log))
        problems += [f"{node.name}: {line}" for line in log.splitlines() if "dissolves" in line]
    return problems + ([] if len(clusters) == 1 else [f"{len(clusters)} clusters: {clusters}"])
