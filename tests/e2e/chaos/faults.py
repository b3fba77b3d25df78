"""Which fault hits which process, when: all from one seed. What a seed decides is the order, not the moment: processes take
the time they take."""

import heapq
import itertools
import os
import signal
import time

from .operators import Operator
from .rig import ELECTION_SECONDS, slot_name
from .store import now

KILLED = -signal.SIGKILL


class Storm:
    """run() in the thread that started the processes. A fault holds what it befalls until its end, so no two befall
    the same; several are under way at once.

    A leader of etcd is stopped for less than an election takes, unless `stop_leaders`. etcd before 3.4.30 and 3.5.11
    breaks its promise otherwise (https://github.com/etcd-io/etcd/issues/15247): a leader that was stopped for longer
    goes on with having leases revoked that have been kept alive through its successor, and no client can know."""

    MEAN_PAUSE = 0.25  # seconds between two faults
    MAX_SICK_LINKS = 0.4  # share of the nodes
    MAX_SICK_NODES = 0.4

    def __init__(self, rig, random, say, stop_leaders=False, operator=None, on_set_back=None):
        self.rig = rig
        self.on_set_back = on_set_back  # None: etcd is never set back to a backup
        self._backup = None
        self.operator = operator  # None: nobody touches names
        self.ends = {}  # incarnation -> when it got SIGTERM, of those that then ended in an orderly way
        self.stop_leaders = stop_leaders
        self.random = random
        self.say = say
        self.problems = []
        self.counts = {}
        self._busy = set()
        self._ends = []  # heap of (when, number, function)
        self._number = itertools.count()
        self._calm = False
        self._kinds = [
            (6, "stop", self._stop_node),
            (5, "kill", self._kill_node),
            (1, "terminate", self._terminate_node),
            (6, "hold", self._hold_link),
            (3, "cut", self._cut_link),
            (2, "delay", self._delay_link),
            (0.4, "hold all", self._hold_all_links),
            (3, "late", self._late_link),
            (1.5, "stop etcd", self._stop_member),
            (0.7, "kill etcd", self._kill_member),
            (1, "lag etcd", self._lag_member),
        ]
        # In a store that was set back a key of before a node's own claim passes for its own remnant, and a copy may have put it.
        if on_set_back:
            self._kinds += [(1, "back up", self._back_up), (1, "set back", self._set_back)]
        else:
            self._kinds.append((1, "copy state", self._copy_state))
        if operator:
            self._kinds += [
                (0.7, "delete", lambda: self._operate("deletes", Operator.delete)),
                (0.7, "revoke", lambda: self._operate("revokes the lease of", Operator.revoke)),
                (0.7, "overwrite", self._overwrite),
                (1.5, "compact", self._compact),
            ]

    def run(self, seconds):
        self._calm = False
        end = now() + seconds
        due = now()
        while now() < end:
            self._end_due()
            self._supervise()
            if now() >= due:
                self._begin_one()
                due = now() + self.random.expovariate(1 / self.MEAN_PAUSE)
            time.sleep(0.01)

    def heal(self):
        """Every fault ends now. What has to start again is started by idle()."""
        self.say("all faults end")
        self._calm = True
        ends, self._ends = sorted(self._ends, key=lambda end: end[:2]), []
        for _, _, function in ends:
            function()

    def idle(self):
        """As time passes without new faults: what ended is started again."""
        self._end_due()
        self._supervise()

    # --- the machinery ---

    def _begin_one(self):
        kinds = [kind for _, _, kind in self._kinds]
        weights = [weight for weight, _, _ in self._kinds]
        names = {kind: name for _, name, kind in self._kinds}
        kind = self.random.choices(kinds, weights)[0]
        if kind():
            self.counts[names[kind]] = self.counts.get(names[kind], 0) + 1

    def _ends_later(self, function, seconds):
        heapq.heappush(self._ends, (now() + seconds, next(self._number), function))

    def _end_due(self):
        while self._ends and self._ends[0][0] <= now():
            heapq.heappop(self._ends)[2]()

    def _take(self, what):
        self._busy.add(what)

    def _give(self, what):
        self._busy.discard(what)

    def _duration(self):
        """A moment; less than a lease; more than a lease."""
        lease = self.rig.lease
        low, high = self.random.choice([(0.05, 0.5), (0.5, lease), (0.8 * lease, 1.3 * lease), (lease, 2.5 * lease)])
        return self.random.uniform(low, high)

    def _free(self, kind, things, max_share=1.0):
        """One of them, with which nothing of this kind is going on; None if there are enough such already."""
        busy = [thing for thing in things if (kind, thing) in self._busy]
        if len(busy) >= max_share * len(things):
            return None
        return self.random.choice([thing for thing in things if (kind, thing) not in self._busy])

    # --- nodes ---

    def _supervise(self):
        """As systemd would: what ended by itself starts again. Only one reason to end is a good one."""
        for machine in self.rig.machines:
            if ("process", machine) in self._busy or machine.node.running():
                continue
            code = machine.node.exit_code(1)
            machine.ended()
            if code == 1 and machine.refused():
                self.say(f"{machine.owner} found no name free")
            else:
                self.problems.append(f"{machine.owner} ended with {code}\n{machine.node.logs()}")
            self._take(("process", machine))
            self._ends_later(lambda machine=machine: self._start(machine), self.random.uniform(0.2, 0.8))

    def _free_machine(self):
        return self._free("process", self.rig.machines, self.MAX_SICK_NODES)

    def _start(self, machine):
        machine.launch()
        self._give(("process", machine))
        self.say(f"{machine.owner} starts")

    def _stop_node(self):
        machine, seconds = self._free_machine(), self._duration()
        if not machine or not machine.node.running():
            return False
        self._take(("process", machine))
        machine.node.signal(signal.SIGSTOP)
        self.say(f"{machine.owner} is stopped for {seconds:.2f} s")

        def end():
            machine.node.resume()
            self._give(("process", machine))
            self.say(f"{machine.owner} goes on")
        self._ends_later(end, seconds)
        return True

    def _kill_node(self):
        machine = self._free_machine()
        seconds = self.random.choice([0, self.random.uniform(0, 1), self._duration()])
        if not machine or not machine.node.running():
            return False
        self._take(("process", machine))
        machine.node.kill()
        machine.ended()
        self.say(f"{machine.owner} is killed, for {seconds:.2f} s")
        self._ends_later(lambda: self._start(machine), seconds)
        return True

    def _terminate_node(self):
        machine, seconds = self._free_machine(), self.random.uniform(0, 2)
        if not machine or not machine.node.handles(signal.SIGTERM):
            return False
        self._take(("process", machine))
        asked = now()
        machine.node.signal(signal.SIGTERM)
        self.say(f"{machine.owner} gets SIGTERM")
        deadline = now() + 20

        def end():
            if machine.node.running():
                if now() < deadline:
                    return self._ends_later(end, 0.1)
                self.problems.append(f"{machine.owner} has not ended 20 s after SIGTERM\n{machine.node.logs()}")
                machine.node.kill()
            code = machine.node.exit_code(1)
            if code not in (0, KILLED) and not (code == 1 and machine.refused()):
                self.problems.append(f"{machine.owner} ended with {code} on SIGTERM\n{machine.node.logs()}")
            if code == 0:
                self.ends[machine.owner] = asked
            machine.ended()
            self._start(machine)
        self._ends_later(end, seconds)
        return True

    def _copy_state(self):
        """A machine comes back from the image of another one, which runs."""
        machine = self._free_machine()
        others = [other for other in self.rig.machines if other.state and other is not machine and other.node.running()]
        if not machine or not machine.state or not others or not machine.node.running():
            return False
        other, seconds = self.random.choice(others), self.random.uniform(0, 1)
        self._take(("process", machine))
        machine.node.kill()
        machine.ended()
        machine.copy_state(other)
        self.say(f"{machine.owner} is killed, and gets a copy of {other.owner}'s state")
        self._ends_later(lambda: self._start(machine), seconds)
        return True

    # --- operators ---

    def _some_slot(self):
        return slot_name(self.random.randint(1, len(self.rig.machines)))

    def _operate(self, what, work):
        name = self._some_slot()
        self.say(f"an operator {what} {name}")
        self.operator.ask_for(work, name)
        return True

    def _overwrite(self):
        name, under_its_lease, seconds = self._some_slot(), self.random.random() < 0.5, self._duration()
        self.say(f"an operator overwrites {name}{' under its lease' if under_its_lease else f' for {seconds:.2f} s'}")
        self.operator.ask_for(Operator.overwrite, name, under_its_lease)
        self._ends_later(lambda: self.operator.ask_for(Operator.clear, name), seconds)
        return True

    def _compact(self):
        self.say("an operator compacts all that was before")
        self.operator.ask_for(Operator.compact)
        return True

    # --- links ---

    def _sick_link(self, what, **state):
        machine, seconds = self._free("links", self.rig.machines, self.MAX_SICK_LINKS), self._duration()
        if not machine:
            return False
        count = min(self.random.choice([1, 2, 3, 3, 3]), len(machine.links))
        chosen = sorted(self.random.sample(range(len(machine.links)), count))
        ports = [machine.links[index] for index in chosen]
        self._take(("links", machine))
        self.rig.links.set(ports, **state)
        names = " ".join(self.rig.etcd.members[index].name for index in chosen)
        self.say(f"{machine.name} {what} {names} for {seconds:.2f} s")

        def end():
            self.rig.links.set(ports)
            self._give(("links", machine))
            self.say(f"{machine.name} reaches {names} again")
        self._ends_later(end, seconds)
        return True

    def _hold_link(self):
        hold = self.random.choice([["up"], ["down"], ["up", "down"], ["up", "down"]])
        return self._sick_link(f"and a black hole ({' and '.join(hold)}) towards", hold=hold)

    def _cut_link(self):
        return self._sick_link("is cut off from", cut=True)

    def _delay_link(self):
        delay, direction = self.random.uniform(0.02, 0.4), self.random.choice(["up", "down"])
        return self._sick_link(f"needs {delay * 1000:.0f} ms {direction} for", **{direction: delay})

    def _late_link(self):
        """A node gets the answers to its keepalives late, and then none: one that counted its lease from an answer would
        have the name for longer than etcd gives it."""
        machine = self._free("links", self.rig.machines, self.MAX_SICK_LINKS)
        if not machine:
            return False
        lease = self.rig.lease
        delay = self.random.uniform(0.6, 0.95) * lease / 5  # which is what a keepalive may take
        late, alone = self.random.uniform(0.5, 1) * lease, self.random.uniform(1, 2) * lease
        self._take(("links", machine))
        self.rig.links.set(machine.links, down=delay)
        self.say(f"{machine.name} hears all {delay * 1000:.0f} ms late for {late:.2f} s, then is alone for {alone:.2f} s")

        def leave():
            if self._calm:
                return end()
            self.rig.links.set(machine.links, hold=["up", "down"])
            return self._ends_later(end, alone)

        def end():
            self.rig.links.set(machine.links)
            self._give(("links", machine))
            self.say(f"{machine.name} is not alone any more")
        self._ends_later(leave, late)
        return True

    def _hold_all_links(self):
        """etcd is away for every node, as if it were stopped, but that its clock goes on."""
        machines = [machine for machine in self.rig.machines if ("links", machine) not in self._busy]
        seconds = self._duration()
        if len(machines) < len(self.rig.machines) / 2:
            return False
        ports = [port for machine in machines for port in machine.links]
        self._busy.update(("links", machine) for machine in machines)
        self.rig.links.set(ports, hold=["up", "down"])
        self.say(f"a black hole between all nodes and etcd for {seconds:.2f} s")

        def end():
            self.rig.links.set(ports)
            self._busy.difference_update(("links", machine) for machine in machines)
            self.say("etcd can be reached again")
        self._ends_later(end, seconds)
        return True

    # --- etcd ---

    def _free_member(self):
        """Mostly one at a time, so that there is a majority; now and then two. Every other time the leader."""
        members = self.rig.etcd.members
        sick = [member for member in members if ("etcd", member) in self._busy]
        if len(sick) >= min(2, len(members)) or (sick and self.random.random() < 0.85):
            return None
        leader = self.rig.leader(members) if self.random.random() < 0.5 else None
        if leader and leader not in sick:
            return leader
        return self.random.choice([member for member in members if member not in sick])

    def _stop_member(self):
        member, seconds = self._free_member(), self._duration()
        if not member:
            return False
        member.process.signal(signal.SIGSTOP)
        if not self.stop_leaders and not self._led_by_another(member):
            seconds = min(seconds, 0.4 * ELECTION_SECONDS)
        self._take(("etcd", member))
        self.say(f"{member.name} is stopped for {seconds:.2f} s")

        def end():
            member.resume()
            self._give(("etcd", member))
            self.say(f"{member.name} goes on")
        self._ends_later(end, seconds)
        return True

    def _lag_member(self):
        """It hears late of what the others have agreed upon, but soon enough to have no election for it."""
        members = [member for member in self.rig.etcd.members if ("lag", member) not in self._busy]
        if len(members) <= len(self.rig.etcd.members) // 2 or len(self.rig.etcd.members) == 1:
            return False
        member, seconds = self.random.choice(members), self._duration()
        delay = self.random.uniform(0.05, 0.4) * ELECTION_SECONDS
        link = self.rig.peer_links[member]
        self._take(("lag", member))
        self.rig.links.set([link], up=delay)
        self.say(f"{member.name} hears from the others {delay * 1000:.0f} ms late for {seconds:.2f} s")

        def end():
            self.rig.links.set([link])
            self._give(("lag", member))
            self.say(f"{member.name} hears from the others in time")
        self._ends_later(end, seconds)
        return True

    def _all_members_well(self):
        return not any(("etcd", member) in self._busy for member in self.rig.etcd.members)

    def _back_up(self):
        if self._backup or not self._all_members_well():
            return False
        self._backup = os.path.join(self.rig.directory, "backup")
        self.rig.etcd.members[0].ctl("snapshot", "save", self._backup)
        self.say("a backup is taken")
        return True

    def _set_back(self):
        """Once, and as another cluster, which all see. (Of one that has the same ID, and has come as far again before a node is
        back, that node learns some seconds later.)"""
        if not self._backup or not self.on_set_back or not self._all_members_well():
            return False
        seconds = self._duration()
        self.say(f"etcd ends, and is set back to the backup, for {seconds:.2f} s")
        self.on_set_back(now())
        self.on_set_back = None
        for member in self.rig.etcd.members:
            self._take(("etcd", member))
            member.kill()
        for member in self.rig.etcd.members:
            self.rig.restore_member(member, self._backup)

        def end():
            for member in self.rig.etcd.members:
                self.rig.launch_member(member)
                self._give(("etcd", member))
            self.say("etcd is back")
        self._ends_later(end, seconds)
        return True

    def _led_by_another(self, member):
        """Else no other member could ever lead."""
        if len(self.rig.etcd.members) == 1:
            return True
        leader = self.rig.leader([other for other in self.rig.etcd.members if other is not member])
        return leader is not None

    def _kill_member(self):
        member, seconds = self._free_member(), self._duration()
        if not member:
            return False
        self._take(("etcd", member))
        member.kill()
        self.say(f"{member.name} is killed, for {seconds:.2f} s")

        def end():
            self.rig.launch_member(member)
            self._give(("etcd", member))
            self.say(f"{member.name} starts")
        self._ends_later(end, seconds)
        return True
