"""The two runs. Each returns a ChaosVerdict and leaves no process and no port behind, however it ends."""

import base64
import collections
import contextlib
import ipaddress
import json
import os
import random
import threading
import time

from harness.etcd import token_of
from harness.processes import TIME_FACTOR, wait_until

from . import mirror, ownership, prober
from .faults import Storm
from .operators import Operator
from .rig import PATTERN, Machine, Rig, ZONE, slot_name
from .store import Clock, Helper, Refused, Store, Unavailable, now

FILES_WITHIN = 10  # seconds: a disk that others keep busy
CALM_WITHIN = 90  # seconds: back-offs grow to 30 s, and are jittered by a half


class ChaosVerdict:
    def __init__(self):
        self.problems = []
        self.facts = []
        self.intervals = []


class Diary:
    """Lines with the time since the beginning, to the one who watches and to a file."""

    def __init__(self, directory, out):
        self._begin = now()
        self._out = out
        self._file = open(os.path.join(directory, "events"), "a", encoding="utf-8")

    def __call__(self, text):
        line = f"{now() - self._begin:8.3f}  {text}"
        print(line, file=self._file, flush=True)
        if self._out:
            print(line, file=self._out, flush=True)

    def close(self):
        print(f"moments are counted from {self._begin:.3f}", file=self._file)
        self._file.close()


# --- a name belongs to one node at a time ---

class Witness:
    """Takes the prober's answers in: who said "mine" of what, and when."""

    QUESTIONS = [prober.question("id.server", prober.TXT, prober.CHAOS),
                 prober.question("nobody.test", prober.A, nsid=True)]

    def __init__(self):
        self.sightings = {}  # (owner, name) -> Sightings
        self.answers = collections.Counter()
        self._latest = {}  # owner -> (name or None, sent)
        self._lock = threading.Lock()

    def observe(self, owner, _, sent, received, packet):
        name = prober.own_name(packet)
        with self._lock:
            self.answers[name is not None] += 1
            self._latest[owner] = (name, sent)
            if name is not None:
                seen = self.sightings.setdefault((owner, name), ownership.Sightings(owner, name))
                seen.add(sent, received)

    def says(self, owner, since):
        """The name in the newest answer, if that was asked for after `since`."""
        with self._lock:
            name, sent = self._latest.get(owner, (None, 0))
        return name if sent > since else None


def run_ownership(directory, seconds, seed, nodes=20, members=3, lease=3, stop_leaders=False, out=None):
    verdict, say, witness, chance = ChaosVerdict(), Diary(directory, out), Witness(), random.Random(seed)
    limit = nodes + chance.choice([0, 0, 3])
    try:
        with Rig(directory, nodes, members, lease, prober.Prober(witness.QUESTIONS, witness.observe), limit) as rig:
            clock, operator = Clock(rig.etcd_ports), Operator(rig.etcd_ports)
            clock.start()
            operator.start()
            try:
                rig.start()
                storm = Storm(rig, chance, say, stop_leaders, operator)
                _wait_dense(rig, storm, witness, nodes)
                say(f"{nodes} nodes, {nodes} names, limit {limit}")
                storm.run(seconds)
                storm.heal()
                begin = now()
                _wait_dense(rig, storm, witness, limit)
                say(f"{nodes} nodes, {nodes} names again")
                verdict.problems += await_leases_end(Store(rig.etcd_ports), lease)
                verdict.facts.append(f"dense again {now() - begin:.1f} s after the last fault")
                verdict.problems += storm.problems + await_identities(rig.machines, witness)
                verdict.problems += rig.terminate()
                operator.finish()
                _judge_ownership(rig, witness, clock, operator, storm.ends, verdict)
                verdict.facts.append(_faults(storm))
            finally:
                operator.stop()
                clock.stop()
    except AssertionError as error:
        verdict.problems.append(str(error))
    finally:
        say.close()
    with open(os.path.join(directory, "intervals"), "w", encoding="utf-8") as file:
        file.writelines(f"{interval}\n" for interval in verdict.intervals)
    return verdict


def _faults(storm):
    return "faults: " + ", ".join(f"{count} {name}" for name, count in sorted(storm.counts.items()))


def _owners(store):
    """Slot -> incarnation, as etcd has it now."""
    owners = {key: Machine.owner_of(json.loads(value)["ipv4"]) for key, (value, _) in store.pairs().items()
              if not key.startswith("/")}
    return {key: owner for key, owner in owners.items() if owner != ownership.OPERATOR}


def _wait_dense(rig, storm, witness, limit):
    """Every node says that it has what etcd says that it has, and the names are within the limit."""
    store = Store(rig.etcd_ports)
    problems = ["nothing was seen"]

    def dense():
        storm.idle()
        since = now()
        owners = _owners(store)
        problems[:] = ownership.not_dense(list(owners), len(rig.machines), slot_name, limit)
        if problems:
            return False
        for name, owner in owners.items():
            said = _await_answer(witness, owner, since)
            if said != name:
                problems.append(f"{owner} has {name} in etcd and says {said}")
        return not problems and owners == _owners(store)
    try:
        wait_until(dense, CALM_WITHIN, lambda: "; ".join(problems), interval=0.1)
    finally:
        store.close()


def _await_answer(witness, owner, since):
    for _ in range(50):
        said = witness.says(owner, since)
        if said:
            return said
        time.sleep(0.01)
    return None


def await_leases_end(store, lease):
    """At rest each lease is a living node's, but for those of processes that were killed, which end within their time.
    etcd looks for such twice a second, and gives all leases their time again when another member leads."""
    problems = []

    def ended():
        problems[:] = ownership.leaked(store.leases(), store.leases_of_names())
        return not problems
    try:
        with contextlib.suppress(AssertionError):
            wait_until(ended, lease + 2, "leases to end", interval=0.1)
        return problems
    finally:
        store.close()


def _identities_differ(machines, witness):
    problems = []
    for machine in machines:
        identity = machine.identity()
        if identity is None:
            continue
        said = witness.says(machine.owner, 0)
        if (identity.get("IDETCD_NAME"), identity.get("IDETCD_IPV4")) != (said, machine.address):
            problems.append(f"{machine.owner} says that it is {said}, its identity file says {identity}")
    return problems


def await_identities(machines, witness, within=FILES_WITHIN):
    """At rest the file says what DNS says, but a moment later: DNS does not wait for the disk. Returns where it does not."""
    problems = []

    def agree():
        problems[:] = _identities_differ(machines, witness)
        return not problems
    with contextlib.suppress(AssertionError):
        wait_until(agree, within, "files to be written")
    return problems


def _judge_ownership(rig, witness, clock, operator, ends, verdict):
    """REQUIRES: the nodes have ended."""
    rig.prober.stop()
    store = Store(rig.etcd_ports, timeout=10)
    # The generation outlives the nodes: it goes on rising for those that come.
    left = [key for key in store.pairs() if not key.startswith(("/chaos/", "/idetcd/generation/"))]
    if left:
        verdict.problems.append(f"all nodes have ended in an orderly way, and yet etcd holds {left}")
    store.close()
    clock.stop()
    moments = clock.moments.settle()

    changes = [ownership.Change(key, revision) if value is None
               else ownership.Change(key, revision, Machine.owner_of(json.loads(value)["ipv4"]), token_of(token, value))
               for key, value, token, revision in operator.changes if not key.startswith("/")]
    spans = ownership.tenures(changes)
    verdict.intervals, problems = ownership.attribute(witness.sightings.values(), spans, moments, operator.touches, rig.lease)
    verdict.problems += _few(problems)
    verdict.problems += _few(ownership.overlaps(verdict.intervals))
    verdict.problems += _few(ownership.falling_tokens(spans))
    all_runs = []
    for machine in rig.machines:
        for runs in machine.hook_runs().values():
            all_runs += runs
            verdict.problems += _few(ownership.hook_problems(runs, spans))
    claims = sum(line.event == "claim" for line in all_runs)
    verdict.problems += _few(ownership.hook_times(all_runs, spans, moments, ends))
    verdict.intervals.sort(key=lambda interval: interval.first_received)
    incarnations = sum(machine.incarnation for machine in rig.machines)
    verdict.facts += [
        f"{sum(witness.answers.values())} answers of {incarnations} incarnations, {witness.answers[True]} of them named a slot",
        f"{len(verdict.intervals)} intervals of ownership seen, {claims} claims passed to on-claim programs, "
        f"{sum(map(len, spans.values()))} tenures in etcd's history of {len(changes)} changes",
    ]


def _few(problems, most=10):
    return problems[:most] + ([f"... and {len(problems) - most} more like that"] if len(problems) > most else [])


# --- every node's table is etcd's ---

STEADY = [f"steady{number}.{ZONE}" for number in range(8)]
STEADY_ADDRESS = "203.0.113.7"
COUNTER = f"counter.{ZONE}"
MARKER = f"marker.{ZONE}"
ROUND = 15  # seconds from one rest to the next


def counter_address(number):
    return f"11.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


class Onlooker:
    """Takes the prober's answers in: steady names are always there, and a counter never goes back."""

    QUESTIONS = [prober.question(COUNTER, prober.A, edns=True)] + [prober.question(name, prober.A) for name in STEADY]

    def __init__(self):
        self.problems = []
        self.answers = 0
        self.numbers = set()
        self.shown = {}  # (owner, number) -> when it was last asked for, of answers that are not marked as stale
        self._known = set()  # owners that have read all names
        self._counters = {}
        self.set_back_at = float("inf")  # then etcd ended, to be set back
        self._set_back = set()  # owners that have gone back since, as each may once

    def observe(self, owner, number, sent, received, packet):
        self.answers += 1
        answer = prober.address(packet)
        if answer == "SERVFAIL" and owner not in self._known:
            return  # it does not know yet, and says so
        # A node answers for the names that it has read while it reads the rest, in the order of the keys.
        if number == len(STEADY):
            self._known.add(owner)
        if number:
            if answer != STEADY_ADDRESS:
                self.problems.append(f"{owner} said {answer} for {STEADY[number - 1]}, asked at {sent:.3f}")
        elif answer.startswith("11."):
            value = int.from_bytes(bytes(map(int, answer.split(".")[1:])), "big")
            self.numbers.add(value)
            # Numbers of before may show for a while, and that of the backup is the present again.
            if not prober.is_stale(packet) and sent < self.set_back_at:
                self.shown[owner, value] = sent
            counter = self._counters.setdefault(owner, mirror.Ascending(owner))
            if received >= self.set_back_at and value < counter.highest and owner not in self._set_back:
                self._set_back.add(owner)
                counter.highest = value
            problem = counter.see(value)
            if problem:
                self.problems.append(problem)
        else:
            self.problems.append(f"{owner} said {answer} for {COUNTER}, asked at {sent:.3f}")

    def set_back(self, at):
        self.set_back_at = at


class Counter(Helper):
    """Counts one key up. Conditional on its revision, so that a write that was delayed cannot turn it back."""

    def __init__(self, ports):
        super().__init__(0.02, self._step)
        self._store = Store(ports)
        self.number = 0
        self.writes = []  # (number, when etcd had confirmed it)
        self.put_first()

    def put_first(self):
        self._revision = self._store.put(COUNTER, self._value())

    def _value(self):
        return json.dumps({"ipv4": counter_address(self.number)})

    def _step(self):
        self.number += 1
        try:
            revision = self._store.replace(COUNTER, self._value(), self._revision)
        except Unavailable:
            revision = None
        if revision is None:
            value, self._revision = self._store.get(COUNTER)
            # Of a store that was set back the number is lower: none is written twice.
            self.number = max(self.number, int.from_bytes(bytes(map(int, json.loads(value)["ipv4"].split(".")[1:])), "big"))
        else:
            self._revision = revision
            self.writes.append((self.number, now()))


class Writer(Helper):
    """Puts, deletes, lets leases end, writes what is no record: at random, over a set of keys of its own."""

    INVALID = ["", "x", "[]", "null", '"text"', '{"ipv4":7}', '{"ipv4":"192.0.2.300"}', '{"ipv6":"192.0.2.1"}',
               '{"ipv4":"192.0.2.1"', '{"ipv4":"192.0.2.1"} x', '{"port":53,"ipv4":"192.0.2.1"}', "\x00{}", '{"ipv4":["192.0.2.1"]}',
               '{"ipv4":"192.0.2.1","pad":"' + "x" * 4096 + '"}']

    def __init__(self, ports, seed, number, count=80):
        super().__init__(0.004, self._step)
        self._store = Store(ports)
        self._random = random.Random(f"{seed} writer {number}")
        self._lease = (0, 0.0)  # ID, and until when it is used
        self.done = collections.Counter()
        self.names = [self._key(number, index) for index in range(count)]

    @staticmethod
    def _key(number, index):
        # Within the nodes' zone, below a name of it that may be there or not, and elsewhere.
        return (f"w{number}k{index}.{ZONE}", f"deep.w{number}k{index - 1}.{ZONE}", f"w{number}k{index}.elsewhere.test.")[
            index % 4 % 3]

    def _step(self):
        name = self._random.choice(self.names)
        action = self._random.choices(["put", "delete", "leased", "invalid", "revoke"], [50, 25, 20, 5, 0.5])[0]
        value = self._valid()
        if action == "put":
            self._store.put(name, value)
        elif action == "delete":
            self._store.delete(name)
        elif action == "invalid":
            self._store.put(name, self._random.choice(self.INVALID))
        else:
            self._use_lease(action, name, value)
        self.done[action] += 1

    def _use_lease(self, action, name, value):
        lease, until = self._lease
        if action == "revoke" and lease:
            self._lease = (0, 0)
            with contextlib.suppress(Refused):  # it has ended already
                self._store.call("lease/revoke", ID=str(lease))
            return
        if now() > until:
            lease = self._store.grant(1)
            self._lease = (lease, now() + 0.4)
        try:
            self._store.put(name, value, lease)
        except Refused:
            self._lease = (0, 0)

    def _valid(self):
        ipv4 = f"198.51.{self._random.randrange(256)}.{self._random.randrange(1, 255)}"
        ipv6 = f"2001:db8::{self._random.randrange(1, 0xFFFF):x}"
        return json.dumps(self._random.choice([{"ipv4": ipv4}, {"ipv6": ipv6}, {"ipv4": ipv4, "ipv6": ipv6, "port": "53"},
                                               {"IPv4": ipv4, "other": [1, {"ipv6": 7}]}, {}]))


class Compactor(Helper):
    """Every 100 ms nothing older than the present is left."""

    def __init__(self, ports):
        super().__init__(0.1, self._compact)
        self._store = Store(ports)
        self.done = 0

    def _compact(self):
        try:
            self._store.compact(self._store.put("/chaos/compactor", ""))
            self.done += 1
        except Refused:
            pass  # another client has compacted more: this one was applied before its answer was lost


def run_mirror(directory, seconds, seed, nodes=10, members=3, lease=3, stop_leaders=False, out=None):
    verdict, say, onlooker = ChaosVerdict(), Diary(directory, out), Onlooker()
    try:
        with Rig(directory, nodes, members, lease, prober.Prober(onlooker.QUESTIONS, onlooker.observe)) as rig:
            chance = random.Random(seed)
            storm = Storm(rig, chance, say, stop_leaders, on_set_back=onlooker.set_back if chance.random() < 0.5 else None)
            _run_mirror(rig, storm, seconds, seed, verdict, onlooker)
    except AssertionError as error:
        verdict.problems.append(str(error))
    finally:
        say.close()
    verdict.problems += _few(onlooker.problems)
    return verdict


def _run_mirror(rig, storm, seconds, seed, verdict, onlooker):
    store = Store(rig.etcd_ports)
    for name in STEADY:
        store.put(name, json.dumps({"ipv4": STEADY_ADDRESS}))
    helpers = [Counter(rig.etcd_ports), Compactor(rig.etcd_ports)]
    writers = [Writer(rig.etcd_ports, seed, number) for number in range(3)]
    helpers += writers
    rig.start()
    names = [name for writer in writers for name in writer.names]
    slowest = 0
    try:
        for helper in helpers:
            helper.start()
        # Several times: what a watch has lost is repaired after a minute.
        rounds = max(1, round(seconds / ROUND))
        for _ in range(rounds):
            storm.run(seconds / rounds)
            storm.heal()
            with contextlib.ExitStack() as pauses:
                for helper in helpers:
                    pauses.enter_context(helper.paused())
                begin = now()
                _wait_rest(rig, storm, store)
                slowest = max(slowest, now() - begin)
                verdict.problems += _few(_compare(rig, storm, names, verdict.facts))
    finally:
        for helper in helpers:
            helper.stop()
    verdict.facts.append(f"at rest {rounds} times, {slowest:.1f} s after the last write at most")
    verdict.problems += storm.problems
    verdict.problems += rig.terminate()
    rig.prober.stop()
    writes = [write for write in helpers[0].writes if write[1] < onlooker.set_back_at]
    problems, oldest = mirror.too_old(onlooker.shown, writes, rig.lease)
    verdict.problems += _few(problems)
    verdict.facts.append(f"what was shown as fresh had ended {oldest:.2f} s before at most")
    done = sum((writer.done for writer in writers), collections.Counter())
    verdict.facts += [
        "writes: " + ", ".join(f"{count} {action}" for action, count in done.items()) + f"; {helpers[1].done} compactions",
        f"{onlooker.answers} answers of {sum(machine.incarnation for machine in rig.machines)} incarnations, "
        f"which showed {len(onlooker.numbers)} of {helpers[0].number} numbers", _faults(storm)]
    for machine in rig.machines:
        lost = sum("the watch had lost" in line for line in machine.node.logs(10 ** 9).splitlines())
        if lost:
            verdict.facts.append(f"{machine.name} repaired its table {lost} times")
    store.close()


def _wait_rest(rig, storm, store):
    """The writers' leases have ended, all nodes run, and a last write has come to each of them."""
    def leases_ended():
        storm.idle()
        # From "0" on: nodes have leased keys of another kind below "/".
        reply = store.insist("kv/range", key="MA==", range_end="AA==", keys_only=True)
        leased = [kv for kv in reply.get("kvs", ()) if int(kv.get("lease", 0))]
        return len(leased) == len(rig.machines) and all(machine.node.running() for machine in rig.machines)
    wait_until(leases_ended, CALM_WITHIN, "the writers' leases to end, and each node to have a name", interval=0.1)
    revision = store.put(MARKER, "")
    marker = f"2001:db8::{revision >> 16:x}:{revision & 0xffff:x}"
    store.put(MARKER, json.dumps({"ipv6": marker}))
    marker = str(ipaddress.IPv6Address(marker))
    def knows(machine):
        storm.idle()  # a node that found no name free has ended, and starts again
        return _ask(machine, MARKER, "AAAA") == marker
    for machine in rig.machines:
        wait_until(lambda machine=machine: knows(machine), CALM_WITHIN,
                   lambda machine=machine: f"{machine.name} to know of the last write\n{machine.node.logs()}", interval=0.02)


def _ask(machine, name, rdtype):
    with prober.SingleQueryClient(machine.node.port) as asker:
        return asker.ask(prober.question(name, getattr(prober, rdtype)))


# etcd 3.4.23 may send a reader that stood still an older change after a newer one. Until it does, the node cannot know.
NOTICED_WITHIN = 5
DISORDER = "the watch is not to be trusted: etcd has sent a change after a later one"


def _compare(rig, storm, names, facts):
    """What every node says of every name, with etcdctl as the judge. Names of nodes may still change hands: what is
    compared must be the same before and after."""
    names = names + STEADY + [COUNTER, MARKER, f"never.{ZONE}", f"w0k0.{ZONE}x.", ZONE]
    names += [slot_name(number) for number in range(1, len(rig.machines) + 3)]
    for _ in range(10):
        before = _etcdctl_get(rig)
        wanted = mirror.expected({key: value for key, (value, _) in before.items()}, names, ZONE)
        problems, all_answer = [], True
        for machine in rig.machines:
            got = _ask_all(machine, wanted)
            all_answer = all_answer and None not in got.values()
            differences = mirror.differences(machine.owner, wanted, got)
            if differences and _notices_disorder(machine, wanted):
                facts.append(f"{machine.owner} noticed a change that etcd had sent after a later one: {differences[0]}")
            else:
                problems += differences
        # A node that found no name free has ended: it starts again, and is asked again.
        if _etcdctl_get(rig) == before and all_answer:
            return problems
        storm.idle()
        time.sleep(0.5)
    raise AssertionError("the names of the nodes do not come to rest")


def _ask_all(machine, wanted):
    with prober.SingleQueryClient(machine.node.port) as asker:
        return {(name, rdtype): asker.ask(prober.question(name, getattr(prober, rdtype))) for name, rdtype in wanted}


def _notices_disorder(machine, wanted):
    """Whether the node's table is right within NOTICED_WITHIN, since it has found out that etcd's changes came in no order."""
    def has_mended():
        return not mirror.differences(machine.owner, wanted, _ask_all(machine, wanted)) and DISORDER in machine.node.logs(10 ** 9)
    with contextlib.suppress(AssertionError):
        wait_until(has_mended, NOTICED_WITHIN, "the table to be right", interval=0.1)
        return True
    return False


def _etcdctl_get(rig):
    """Key -> (value, mod_revision) of what nodes mirror."""
    reply = json.loads(rig.etcd.members[0].ctl("get", "0", "--from-key", "-w", "json"))
    return {base64.b64decode(kv["key"]).decode(errors="surrogateescape"):
            (base64.b64decode(kv.get("value", "")).decode(errors="surrogateescape"), kv["mod_revision"])
            for kv in reply.get("kvs", ())}
