"""The run. It returns a SoakVerdict and leaves no process and no port behind, however it ends."""

import contextlib
import dataclasses
import json
import os
import random
import signal
import time

from chaos.runs import Diary
from chaos.store import now
from dns_client import RawTcp, RawUdp, answers, header, question
from harness.processes import TIME_FACTOR, wait_until

from . import gauges, judge, program, world
from .rig import Rig
from .weather import Churn, Weather

RATE = 2000  # queries a second
REST_WITHIN = 20.0  # seconds until a server that nobody asks has closed what was open
HEALED_WITHIN = 60.0
SETTLED_SECONDS = 4
WARM_UP_CONNECTIONS = 20


class SoakVerdict:
    def __init__(self):
        self.facts = []
        self.problems = []
        self.table = []

    def add(self, judgement):
        facts, problems = judgement
        self.facts += facts
        self.problems += problems


class Recorder:
    """What the programs print."""

    def __init__(self):
        self.seconds = []
        self.hostile = {}


def run(directory, seconds, seed, rate=RATE, bounds=None, environment=None, out=None):
    """`seconds` of everything at once. `environment`: of the node under test."""
    verdict, say, recorder = SoakVerdict(), Diary(directory, out), Recorder()
    try:
        with Rig(directory, rate, environment) as rig:
            rig.start()
            say(f"the node under test has process ID {rig.node.pid} and port {rig.node.port}")
            _run(rig, seconds, seed, rate, bounds or judge.Bounds(), say, verdict, recorder)
    except AssertionError as error:
        verdict.problems.append(str(error))
    finally:
        say.close()
    return verdict


def _run(rig, seconds, seed, rate, bounds, say, verdict, recorder):
    chance = random.Random(seed)
    weather = Weather(rig, chance, say)
    churn = Churn(rig.etcd.client_port, random.Random(chance.random()))
    _await_right_answers(rig)
    _warm_up(rig)
    before, open_before = gauges.take(rig.node.pid), gauges.descriptors(rig.node.pid)
    with gauges.Gauges(rig.node.pid) as meter:
        span = _storm(rig, seconds, rate, chance, weather, churn, recorder, verdict)
        if rig.node.running():
            say("at rest")
            verdict.add(_judge_rest(rig, before, open_before, bounds))
        else:
            verdict.problems.append(f"the node ended with {rig.node.exit_code(1)}\n{rig.node.logs()}")
    _keep(rig.directory, recorder, meter)
    _judge(recorder, meter, weather, churn, span, rate, bounds, verdict)


def _storm(rig, seconds, rate, chance, weather, churn, recorder, verdict):
    """Everything at once. Returns from when to when; afterwards all is well again, and nobody asks."""
    programs = _start_programs(rig, rate, chance, recorder)
    try:
        churn.start()
        weather.run(seconds)
        end = now()
        weather.heal()
        for part in reversed(programs):
            code = part.finish(30)
            if code != 0:
                verdict.problems.append(f"{part.name} ended with {code}: see {part.name}.err")
    finally:
        for part in programs:
            part.close()
        churn.stop()
    return end - seconds, end


def _start_programs(rig, rate, chance, recorder):
    port = rig.node.port
    return [
        program.Program("load", rig.directory, {"port": port, "rate": rate, "seed": chance.getrandbits(32)},
                        recorder.seconds.append),
        program.Program("hostile", rig.directory, {"port": port, "seed": chance.getrandbits(32)}, recorder.hostile.update)]


def _await_right_answers(rig):
    """Of one name of each kind, and the node has a name again."""
    rig.node.wait_owns(rig.etcd, HEALED_WITHIN)
    for name, address in (world.steady(0), world.host(0)):
        wait_until(lambda name=name, address=address: answers(rig.node, name) == [address], HEALED_WITHIN,
                   f"{name} to be {address}", interval=0.1)


def _warm_up(rig):
    """What a loop opens once, with its first connections and questions, is open. The kernel spreads clients over the loops."""
    with contextlib.ExitStack() as connections:
        for number in range(WARM_UP_CONNECTIONS):
            tcp = connections.enter_context(RawTcp(rig.node.port))
            tcp.ask(header(number) + question(world.steady(0)[0]))
    for number in range(WARM_UP_CONNECTIONS):
        with RawUdp(rig.node.port) as udp:
            udp.ask(header(number, world.RD) + question(f"warm{number}.{world.UPSTREAM_ZONE}"))
    _await_settled(rig)


def _await_settled(rig):
    """Until as many descriptors are open for so long as none that is idle stays open."""
    counts = []

    def settled():
        counts.append(gauges.take(rig.node.pid).descriptors)
        return len(counts) > SETTLED_SECONDS and len(set(counts[-SETTLED_SECONDS:])) == 1
    wait_until(settled, REST_WITHIN, lambda: f"the node to rest; descriptors: {counts}", interval=1)


def _await_rest(rig, before, bounds):
    """A sample once nothing is open that was not open before, or the last one within REST_WITHIN."""
    deadline = now() + REST_WITHIN * TIME_FACTOR
    while True:
        sample = gauges.take(rig.node.pid)
        if sample.descriptors <= before.descriptors + bounds.descriptors or now() > deadline:
            return sample
        time.sleep(0.2)


def _judge_rest(rig, before, open_before, bounds):
    """(facts, problems), and all nodes have ended."""
    _await_right_answers(rig)
    after = _await_rest(rig, before, bounds)
    new = gauges.descriptors(rig.node.pid) - open_before
    facts, problems = judge.judge_descriptors(before, after, new, bounds)
    return facts, _end(rig) + problems


def _end(rig):
    """All nodes, in an orderly way. Returns what went wrong."""
    problems = []
    for node in [rig.node, *rig.others]:
        if node.running():
            node.signal(signal.SIGTERM)
            code = node.exit_code(20)
            if code != 0:
                problems.append(f"{node.name} ended with {code} on SIGTERM\n{node.logs()}")
    return problems + rig.log.forbidden()


def _keep(directory, recorder, meter):
    for name, lines in (("seconds", recorder.seconds), ("samples", map(dataclasses.asdict, meter.samples))):
        with open(os.path.join(directory, f"{name}.jsonl"), "w", encoding="utf-8") as file:
            file.writelines(f"{json.dumps(line)}\n" for line in lines)


def _judge(recorder, meter, weather, churn, span, rate, bounds, verdict):
    begin, end = span
    upstream_kinds = {kind.name for kind in world.KINDS if kind.upstream}
    verdict.add(judge.judge_answers(
        recorder.seconds, upstream_kinds, weather.troubled, judge.waiting(meter.samples), bounds, rate))
    verdict.problems += weather.problems
    # The first half fills caches and finds the sizes of buffers.
    judged = [sample for sample in meter.samples if begin + (end - begin) / 2 <= sample.at <= end]
    during = [second for second in recorder.seconds if begin + (end - begin) / 2 <= second["begin"] <= end]
    if len(judged) >= judge.BUCKETS:
        asked = sum(tally["asked"] for second in during for tally in second["tallies"].values())
        verdict.add(judge.judge_memory(judged, asked / max(1, len(during)), bounds))
    else:
        verdict.facts.append(f"memory: {len(judged)} samples are too few to judge")
    verdict.facts += [
        f"{churn.done} writes to etcd; " + ", ".join(f"{count} {name}" for name, count in sorted(weather.counts.items())),
        "hostile: " + ", ".join(f"{count} {name}" for name, count in recorder.hostile.items())]
    verdict.table = judge.table(recorder.seconds, meter.samples)
