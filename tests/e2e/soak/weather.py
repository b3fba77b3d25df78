"""What happens when: nodes that come and go, reloads, faults. All of it from one seed, which decides the order; processes
take the time they take."""

import heapq
import itertools
import math
import signal
import time

import dns.exception

from chaos.store import Helper, Store, now
from dns_client import exchange, make_query
from harness.processes import TIME_FACTOR

from . import world
from .rig import MARKER, Settings

RELOADED_WITHIN = 15.0  # seconds
ENDED_WITHIN = 20.0
# After all upstreams were away: each is asked whether it is back twice a second, and clients wait for 5 s.
UPSTREAMS_BACK_AFTER = 6.0
UPSTREAM_NOTICED_AFTER = 1.5
LONGEST_OUTAGE = 3.0

# The last but one asks for what needs a restart.
_BROKEN = [". {\n    frob\n}\n", ". {\n    cache 0\n    forward . nowhere.example\n}\n", ". {\n",
           ". {\n    bind 127.0.0.1\n    workers 3\n    whoami\n}\n", "\0\1\2"]


class Churn(Helper):
    """Puts and deletes the names that may be there or not."""

    def __init__(self, port, chance, per_second=40):
        super().__init__(1 / per_second, self._write)
        self._store = Store([port])
        self._chance = chance
        self.done = 0

    def _write(self):
        name, address = world.churned(self._chance.randrange(world.CHURNED))
        if self._chance.random() < 0.4:
            self._store.delete(name)
        else:
            self._store.put(name, f'{{"ipv4":"{address}"}}')
        self.done += 1


class Weather:
    """run() in the thread that started the processes. What is disturbed is left alone until it has recovered."""

    MEAN_PAUSE = 0.7  # seconds between two events

    def __init__(self, rig, chance, say):
        self.rig = rig
        self.chance = chance
        self.say = say
        self.problems = []
        self.counts = {}
        self.without_upstream = []  # (begin, end): when no good upstream could be reached
        self._busy = set()
        self._ends = []  # heap of (when, number, function)
        self._number = itertools.count()
        self._generation = 1
        self._kinds = [
            (5, "reload", self._reload), (3, "broken reload", self._reload_broken),
            (3, "node killed", self._kill_other), (3, "node ended", self._end_other),
            (2, "etcd stopped", self._stop_etcd), (1, "etcd killed", self._kill_etcd),
            (2, "link cut", lambda: self._sick_link("is cut", cut=True)),
            (2, "link held", lambda: self._sick_link("is a black hole", hold=["up", "down"])),
            (1, "link slow", lambda: self._sick_link("is slow", up=0.1, down=0.1)),
            (3, "upstream killed", self._kill_upstream), (2, "upstream stopped", self._stop_upstream),
            (1, "both upstreams stopped", self._stop_upstreams),
        ]

    def run(self, seconds):
        """REQUIRES: more than LONGEST_OUTAGE."""
        end = due = now()
        end += seconds
        # The longest outage is the first: what memory is in use at most is in use before growth is looked for.
        self._stop_upstreams(LONGEST_OUTAGE)
        self.counts["both upstreams stopped"] = 1
        while now() < end and self.rig.node.running():
            self._end_due()
            self._watch_nodes()
            if now() >= due:
                self._begin_one()
                due = now() + self.chance.expovariate(1 / self.MEAN_PAUSE)
            time.sleep(0.01)

    def heal(self):
        """Everything that was disturbed is as before, in the end."""
        self.say("all faults end")
        while self._ends and self.rig.node.running():
            ends, self._ends = sorted(self._ends, key=lambda end: end[:2]), []
            for _, _, function in ends:  # some of them only look, and want to look again
                function()
            time.sleep(0.05)

    def troubled(self, second):
        """Whether it may be that in the second from there on no good upstream could be reached."""
        return any(begin - 1 < second + 1 and second < end + UPSTREAMS_BACK_AFTER
                   for begin, end in self.without_upstream)

    # --- the machinery ---

    def _begin_one(self):
        _, name, begin = self.chance.choices(self._kinds, [weight for weight, _, _ in self._kinds])[0]
        if begin():
            self.counts[name] = self.counts.get(name, 0) + 1

    def _end_due(self):
        while self._ends and self._ends[0][0] <= now():
            heapq.heappop(self._ends)[2]()

    def _later(self, seconds, function):
        heapq.heappush(self._ends, (now() + seconds, next(self._number), function))

    def _take(self, thing):
        """Whether it was free."""
        if thing in self._busy:
            return False
        self._busy.add(thing)
        return True

    def _during(self, thing, seconds, text, end):
        """`thing` was taken; end() makes it free."""
        self.say(f"{text} for {seconds:.1f} s")

        def finish():
            end()
            self._busy.discard(thing)
        self._later(seconds, finish)
        return True

    # --- other nodes ---

    def _watch_nodes(self):
        for other in self.rig.others:
            if not other.running() and other not in self._busy:
                self.problems.append(f"{other.name} ended with {other.exit_code(1)}\n{other.logs(20)}")
                other.launch()

    def _kill_other(self):
        other = self.chance.choice(self.rig.others)
        if not self._take(other):
            return False
        other.kill()
        self.say(f"{other.name} is killed")
        self._start_later(other, self.chance.uniform(0, 4))
        return True

    def _end_other(self):
        other = self.chance.choice(self.rig.others)
        if not other.handles(signal.SIGTERM) or not self._take(other):
            return False
        other.signal(signal.SIGTERM)

        self.say(f"{other.name} gets SIGTERM")
        self._await_end(other, now() + ENDED_WITHIN * TIME_FACTOR)
        return True

    def _await_end(self, other, deadline):
        """Gives its lease back first, which may take a while where etcd is away."""
        if other.running() and now() <= deadline:
            return self._later(0.1, lambda: self._await_end(other, deadline))
        if other.running():
            self.problems.append(f"{other.name} has not ended within {ENDED_WITHIN:g} s after SIGTERM\n{other.logs(20)}")
            other.kill()
        elif other.exit_code(1) != 0:
            self.problems.append(f"{other.name} ended with {other.exit_code(1)} on SIGTERM\n{other.logs(20)}")
        return self._start_later(other, self.chance.uniform(0, 2))

    def _start_later(self, other, seconds):
        def start():
            other.launch()
            self._busy.discard(other)
        self._later(seconds, start)

    # --- reloads ---

    def _reload(self):
        """There and back: what another configuration needs meanwhile is given back."""
        if not self._take("reload"):
            return False
        self._generation += 1
        changed = Settings(self._generation, capacity=self.chance.choice([100, 400, 800]),
                           expire=self.chance.choice(["100ms", "2s", "10s"]), more=self._more())
        self._send_reload(changed, lambda: self._later(self.chance.uniform(0.2, 1), self._reload_back))
        return True

    def _reload_back(self):
        self._generation += 1
        self._send_reload(Settings(self._generation), lambda: self._busy.discard("reload"))

    def _more(self):
        return self.chance.choice(["", "extra.example {\n    whoami\n}\n",
                                   f".:{self.rig.spare_port} {{\n    bind 127.0.0.1\n    whoami\n}}\n"])

    def _send_reload(self, settings, then):
        number = self.chance.choice([signal.SIGHUP, signal.SIGUSR1])
        self.rig.write_corefile(settings)
        self.rig.settings = settings
        self.rig.node.signal(number)
        blocks = "two blocks" if settings.more else "one block"
        self.say(f"{number.name}: generation {settings.generation}, cache {settings.capacity}, expire {settings.expire}, {blocks}")
        self._await_marker(settings, now() + RELOADED_WITHIN * TIME_FACTOR, then)

    def _await_marker(self, settings, deadline, then):
        """Polls: the load goes on, and so do other events."""
        if says(self.rig.node, MARKER, settings.marker):
            then()
        elif now() > deadline:
            self.problems.append(f"the reload to generation {settings.generation} has had no effect\n{self.rig.node.logs(20)}")
            then()
        else:
            self._later(0.05, lambda: self._await_marker(settings, deadline, then))

    def _reload_broken(self):
        if not self._take("reload"):
            return False
        text = self.chance.choice(_BROKEN)
        before = self.rig.log.refusals()
        self.rig.write_corefile(None, text)
        self.rig.node.signal(signal.SIGHUP)
        self.say(f"SIGHUP with the Corefile {text!r}")
        self._await_refusal(before, now() + RELOADED_WITHIN * TIME_FACTOR)
        return True

    def _await_refusal(self, before, deadline):
        refused = self.rig.log.refusals() > before
        kept = refused and says(self.rig.node, MARKER, self.rig.settings.marker)
        if not kept and now() <= deadline:
            return self._later(0.1, lambda: self._await_refusal(before, deadline))
        if not kept:
            what = "has changed something" if refused else "was not refused"
            self.problems.append(f"a broken Corefile {what}\n{self.rig.node.logs(20)}")
        self.rig.write_corefile(self.rig.settings)
        return self._busy.discard("reload")

    # --- etcd ---

    def _stop_etcd(self):
        if not self._take("etcd"):
            return False
        self.rig.etcd.process.signal(signal.SIGSTOP)
        return self._during("etcd", self.chance.uniform(0.2, 6), "etcd is stopped", self.rig.etcd.resume)

    def _kill_etcd(self):
        if not self._take("etcd"):
            return False
        self.rig.etcd.kill()
        return self._during("etcd", self.chance.uniform(0.2, 5), "etcd is killed", self.rig.etcd.launch)

    def _sick_link(self, text, **state):
        if not self._take("link"):
            return False
        self.rig.links.set([self.rig.link], **state)
        return self._during("link", self.chance.uniform(0.2, 6), f"the link to etcd {text}",
                            lambda: self.rig.links.set([self.rig.link]))

    # --- upstreams ---

    def _kill_upstream(self):
        if not self._take("upstreams"):
            return False
        upstream, seconds = self.chance.choice(self.rig.upstreams), self.chance.uniform(0.2, 4)
        upstream.kill()
        self.say(f"{upstream.name} is killed for {seconds:.1f} s")

        def start():
            upstream.launch()
            self._await_upstream(upstream, now() + 10 * TIME_FACTOR)
        self._later(seconds, start)
        return True

    def _await_upstream(self, upstream, deadline):
        if says(upstream, *world.host(1)):
            self._leave_upstreams()
        elif now() > deadline:
            self.problems.append(f"{upstream.name}, an upstream, does not come back\n{upstream.logs(20)}")
        else:
            self._later(0.05, lambda: self._await_upstream(upstream, deadline))

    def _leave_upstreams(self):
        """Once the node may have noticed that they are back."""
        self._later(UPSTREAM_NOTICED_AFTER, lambda: self._busy.discard("upstreams"))

    def _stop_upstream(self):
        return self._stop([self.chance.choice(self.rig.upstreams)])

    def _stop_upstreams(self, seconds=None):
        outage = [now(), math.inf]
        if not self._stop(self.rig.upstreams, seconds, lambda: outage.__setitem__(1, now())):
            return False
        self.without_upstream.append(outage)
        return True

    def _stop(self, upstreams, seconds=None, ended=lambda: None):
        if not self._take("upstreams"):
            return False
        seconds = seconds or self.chance.uniform(0.2, 0.7 * LONGEST_OUTAGE)
        for upstream in upstreams:
            upstream.signal_all(signal.SIGSTOP)
        names = " and ".join(upstream.name for upstream in upstreams)
        self.say(f"{names} {'are' if len(upstreams) > 1 else 'is'} stopped for {seconds:.1f} s")

        def go_on():
            for upstream in upstreams:
                upstream.signal_all(signal.SIGCONT)
            ended()
            self._leave_upstreams()
        self._later(seconds, go_on)
        return True


def says(server, name, address):
    """Whether the one answer is that address, within a moment."""
    try:
        response = exchange(server, make_query(name), timeout=0.5)
    except (OSError, dns.exception.DNSException):
        return False
    return [rdata.to_text() for rrset in response.answer for rdata in rrset] == [address]
