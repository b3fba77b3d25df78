"""One node under everything at once; and that the judges of it can say no."""

import collections
import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time

import dns.exception
import dns.message
import dns.rcode
import pytest

from harness.node import ROOT
from harness.processes import Process, TIME_FACTOR, ended, wait_until
from harness.upstreams import Upstream, answer
from soak import bad_upstream, gauges, hostile, judge, load, runs, world
from soak.gauges import Sample
from soak.judge import Bounds

NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="reads what a process holds that keeps its keys out of core dumps")
SOAK = [sys.executable, "-B", os.path.join(ROOT, "tools", "soak")]
def new_seed():
    return random.SystemRandom().randrange(2 ** 32)


# --- the run ---

def show(verdict, directory):
    for line in verdict.table + verdict.facts:
        print(line)
    with open(os.path.join(directory, "events"), encoding="utf-8") as file:
        print(file.read())


@NEEDS_ROOT
@pytest.mark.serial
def test_a_node_bears_everything_at_once(directory):
    seed = new_seed()
    verdict = runs.run(directory, 55, seed)
    show(verdict, directory)
    assert not verdict.problems, f"tools/soak --seed {seed}:\n" + "\n".join(verdict.problems)
    facts = "\n".join(verdict.facts)
    # It was a storm, and it was watched.
    counts = {what: int(count) for count, what in re.findall(r"(\d+) ([a-z ]+)", facts)}
    assert counts["queries"] > 20000 and counts["mutations"] > 5000 and counts["flood"] > 5000 and counts["connections"] > 200
    assert counts["both upstreams stopped"] >= 1 and counts["reload"] + counts["broken reload"] >= 3, facts
    assert "memory: " in facts and len(verdict.table) > 8


@pytest.fixture
def leak(directory):
    library = os.path.join(directory, "leak.so")
    source = os.path.join(ROOT, "tests", "e2e", "harness", "leak.c")
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return {"LD_PRELOAD": library}


@NEEDS_ROOT
def test_a_leak_of_200_bytes_a_query_is_found(directory, leak):
    """Whatever else a busy machine does to the answers."""
    verdict = runs.run(directory, 60, new_seed(), environment=leak)
    show(verdict, directory)
    found = {problem.partition(" ")[0]: problem for problem in verdict.problems}
    assert {"descriptors", "memory"} <= set(found), verdict.problems
    descriptors, memory = found["descriptors"], found["memory"]
    assert re.search(r"; new: .*\b\d+ /dev/zero", descriptors), descriptors
    # 200 bytes for each datagram, and those of hostile clients do not count as queries.
    assert int(re.search(r"(\d+) bytes a query", memory)[1]) > 120, memory


# --- tools/soak ---

@NEEDS_ROOT
@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 128 + signal.SIGTERM)])
def test_the_tool_leaves_nothing_behind(directory, number, code):
    temporary = os.path.join(directory, "tmp")
    os.mkdir(temporary)
    tool = Process("soak", directory)
    tool.spawn([*SOAK, "--rate", "100"], env={"TMPDIR": temporary})
    try:
        wait_until(lambda: not tool.running() or "nsd and knot are stopped" in tool.out(), 60, tool.logs)
        assert tool.running(), tool.logs()
        children = []

        def complete():  # the weather ends a process at any time, and starts it again
            children[:] = tool.children()
            return len(children) == 11
        wait_until(complete, 60,
                   "etcd, its link, two upstreams and the bad one, four nodes, the load and the hostile clients")
        tool.signal(number)
        assert tool.exit_code(30) == code, tool.logs()
    finally:
        tool.kill()
    # A child that was being started is ended by the kernel, which does so soon after the tool is gone.
    wait_until(lambda: all(ended(pid) for pid in children), 10, lambda: [pid for pid in children if not ended(pid)])
    assert os.listdir(temporary) == []


@NEEDS_ROOT
def test_a_node_that_dies(directory):
    tool = Process("soak", directory)
    tool.spawn([*SOAK, "--rate", "100", "--keep", os.path.join(directory, "kept")])
    try:
        wait_until(lambda: not tool.running() or "nsd and knot are stopped" in tool.out(), 60, tool.logs)
        os.kill(int(re.search(r"process ID (\d+)", tool.out())[1]), signal.SIGKILL)
        assert tool.exit_code(30) == 1, tool.logs()
    finally:
        tool.kill()
    assert "  VIOLATED: the node ended with -9" in tool.out(), tool.logs()


def test_the_tool_says_that_it_needs_root():
    as_nobody = ["setpriv", "--reuid", "65534", "--clear-groups"] if os.geteuid() == 0 else []
    result = subprocess.run([*as_nobody, *SOAK], check=False, capture_output=True, text=True, timeout=30)
    assert result.returncode == 1 and "only root may read" in result.stderr, result


@NEEDS_ROOT
def test_a_server_that_does_not_start(directory):
    result = subprocess.run([*SOAK, "--keep", os.path.join(directory, "kept")], check=False, capture_output=True, text=True,
                            timeout=60 * TIME_FACTOR, env={**os.environ, "IDETCD_BINARY": "/bin/false"})
    assert result.returncode == 1 and "VIOLATED: node ended with 1" in result.stdout, result.stdout + result.stderr
    assert result.stdout.splitlines()[-1].startswith("VIOLATED, in ")


@pytest.mark.parametrize("arguments", [["--minutes", "0.4"], ["--rate", "1"], ["--max-slope", "x"], ["x"]])
def test_the_tool_refuses(arguments):
    result = subprocess.run([*SOAK, *arguments], check=False, capture_output=True, text=True, timeout=30)
    assert result.returncode == 2 and "usage: tools/soak" in result.stderr


# --- the judge of memory ---

def samples(memory, seconds=300, descriptors=30):
    """One a second; memory(second) in KiB."""
    return [Sample(1000.0 + second, memory(second), 0, 0, descriptors, 5) for second in range(seconds)]


def noisy(slope, seed=1):
    """Grows by `slope` KiB a second, with bursts and some noise."""
    chance = random.Random(seed)
    return lambda second: 20000 + slope * second + chance.randrange(100) + (8000 if second % 17 < 2 else 0)


def test_the_slope_of_a_line():
    assert judge.theil_sen([(x, 3 * x + 1) for x in range(12)]) == (3, 3, 3)


def test_outliers_change_little():
    slope, low, high = judge.theil_sen([(x, 2 * x + (50 if x in (3, 9) else 0)) for x in range(12)])
    assert slope == 2 and low <= 2 <= high


def test_the_interval_holds_the_true_slope():
    chance = random.Random(3)
    held = 0
    for _ in range(400):
        _, low, high = judge.theil_sen([(x, 5 * x + chance.gauss(0, 20)) for x in range(12)])
        held += low <= 5 <= high
    assert 0.92 < held / 400 < 0.99


def test_memory_that_stays():
    facts, problems = judge.judge_memory(samples(noisy(0)), 2000, Bounds())
    assert problems == [] and facts[0].startswith("memory: ")


def test_memory_that_leaks():
    leak_per_second = 100 * 2000 / 1024
    _, problems = judge.judge_memory(samples(noisy(leak_per_second)), 2000, Bounds())
    assert len(problems) == 1 and re.search(r"(99|100|101) bytes a query", problems[0]), problems
    # Over a long time less shows, too: 2 bytes a query.
    assert judge.judge_memory(samples(noisy(leak_per_second / 50), 60), 2000, Bounds())[1] == []
    assert len(judge.judge_memory(samples(noisy(leak_per_second / 50), 3600), 2000, Bounds())[1]) == 1


def test_the_bound_of_the_command_line():
    assert judge.memory_bound(Bounds(kib_per_minute=7), 2000, 1) == 7
    assert len(judge.judge_memory(samples(noisy(0)), 2000, Bounds(kib_per_minute=-1e6))[1]) == 1


# --- the judge of descriptors ---

def test_descriptors():
    before, after = samples(lambda _: 0, 1)[0], samples(lambda _: 0, 1, descriptors=32)[0]
    new = collections.Counter({"udp open, port 53": 2})
    assert judge.judge_descriptors(before, before, collections.Counter(), Bounds())[1] == []
    assert judge.judge_descriptors(before, after, new, Bounds(descriptors=2))[1] == []
    assert judge.judge_descriptors(before, after, new, Bounds())[1] == [
        "descriptors at rest: 30 before, 32 afterwards; new: 2 udp open, port 53"]


def test_what_descriptors_are():
    pid = os.getpid()
    before = gauges.descriptors(pid)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("127.0.0.1", 0))
        assert set(gauges.descriptors(pid) - before) == {
            f"tcp listening, port {server.getsockname()[1]}", f"udp open, port {udp.getsockname()[1]}"}
        sample = gauges.take(pid)
        assert sample.descriptors >= 2 and sample.threads >= 1 and sample.rss > sample.anonymous > 0


def test_a_sample_sees_what_is_allocated():
    before = gauges.take(os.getpid())
    block = bytearray(os.urandom(1 << 20) * 32)
    assert 30 << 10 < gauges.take(os.getpid()).anonymous - before.anonymous < 40 << 10
    del block


# --- the judge of answers ---

UPSTREAM_KINDS = {"hit"}


def second(begin, stalled=0.0, wrong=(), **kinds):
    """`kinds`: what is not the rule, of 1,000 queries each, as in hit={"failed": 1}."""
    tallies = {}
    for kind in ("steady", "hit"):
        tally = dict.fromkeys(("asked", "right", "failed", "wrong", "unanswered"), 0) | kinds.get(kind, {})
        tally["right"] = 1000 - sum(tally.values())
        tallies[kind] = tally | {"asked": 1000}
    return {"begin": begin, "tallies": tallies, "local": [0.001, 0.002], "forwarded": [0.001, 0.004], "stalled": stalled,
            "wrong": list(wrong)}


def problems_of(seconds, troubled=lambda begin: False, waited=lambda begin, end: 0, wanted=2000):
    return judge.judge_answers(seconds, UPSTREAM_KINDS, troubled, waited, Bounds(), wanted)[1]


def good_seconds():
    return [second(begin) for begin in range(100)]


def test_good_answers():
    assert problems_of(good_seconds()) == []


def test_one_wrong_answer_is_too_many():
    assert problems_of([*good_seconds(), second(100, wrong=["x was answered y"], steady={"wrong": 1})]) == ["x was answered y"]
    assert problems_of([*good_seconds(), second(100, steady={"wrong": 3})]) == ["3 wrong answers in all"]


def test_unanswered_queries():
    few, many = second(100, steady={"unanswered": 300}), second(100, steady={"unanswered": 500})
    assert problems_of([*good_seconds(), few]) == []
    assert len(problems_of([*good_seconds(), many])) == 1


def test_failures_are_excused_while_there_is_no_upstream():
    bad = second(100, hit={"failed": 900})
    assert len(problems_of([*good_seconds(), bad])) == 1
    assert problems_of([*good_seconds(), bad], troubled=lambda begin: begin == 100) == []
    assert problems_of([*good_seconds(), bad], waited=lambda begin, end: 10 if begin == 100 else 0) == [], "nor a processor"


def test_a_stall():
    stalled = [*good_seconds(), second(100, stalled=2.5)]
    assert len(problems_of(stalled)) == 1
    assert problems_of(stalled, waited=judge.waiting([Sample(99.0, 0, 0, 0, 0, 0, 7.0), Sample(103.0, 0, 0, 0, 0, 0, 8.0)])) == []
    assert len(problems_of(stalled, waited=judge.waiting([Sample(9.0, 0, 0, 0, 0, 0, 7.0), Sample(13.0, 0, 0, 0, 0, 0, 8.0)]))) == 1
    mute = {**second(50), "tallies": {"steady": {"asked": 1000, "right": 0, "failed": 0, "wrong": 0, "unanswered": 1}}}
    assert problems_of([*good_seconds()[:50], mute, *good_seconds()[51:]])[0].startswith("stalled: 1 seconds")


def test_a_load_that_never_was():
    assert len(problems_of(good_seconds(), wanted=20000)) == 1 and len(problems_of([])) == 1


def test_lines_that_no_log_may_have():
    log = "[INFO] all is well\n==7==ERROR: AddressSanitizer: heap-use-after-free\nAssertion `x' failed.\n"
    assert len(judge.forbidden_lines(log)) == 2


def test_the_table():
    lines = judge.table(good_seconds(), [Sample(float(at), 100, 200, 300, 4, 5) for at in range(100)])
    assert len(lines) == 11 and lines[1].split()[:4] == ["0", "s", "2000", "100.000"]
    assert judge.table([], []) == []


# --- the load ---

def loaded(handler, queries=250, rate=300):
    """What the load finds of a server that does that with so many queries."""
    found = []
    with Upstream(handler) as server:
        end = time.monotonic() + 60 * TIME_FACTOR
        load.Load(server.port, rate, 1, found.append).run(lambda: len(server.queries) >= queries or time.monotonic() > end)
    total = collections.Counter()
    for line in found:
        for kind, tally in line["tallies"].items():
            for field, count in tally.items():
                total[field] += count
                total[kind, field] += count
    return total, [text for line in found for text in line["wrong"]], found


def right_answer(query, _tcp):
    """As the node and its upstreams would."""
    name = query.question[0].name.to_text()
    for kind, count in ((world.steady, world.STEADY), (world.churned, world.CHURNED), (world.host, world.HOSTS)):
        for number in range(count):
            if kind(number)[0] == name:
                return answer(query, f"A {kind(number)[1]}")
    if name.endswith(f".wild.{world.UPSTREAM_ZONE}"):
        return answer(query, f"A {world.WILDCARD_ADDRESS}")
    return answer(query, rcode=dns.rcode.SERVFAIL if name.endswith(world.BAD_ZONE) else dns.rcode.NXDOMAIN)


def test_the_load_knows_what_is_right():
    total, wrong, found = loaded(right_answer)
    assert wrong == [] and total["asked"] == total["right"] > 200
    assert all(total[kind.name, "asked"] for kind in world.KINDS if kind.weight >= 5), "each kind has its turn"
    assert any(line["local"] for line in found) and any(line["forwarded"] for line in found)


def test_the_load_knows_what_is_wrong():
    total, wrong, _ = loaded(lambda query, tcp: answer(query, f"A {world.FORGED_ADDRESS}"))
    assert total["asked"] == total["wrong"] > 200
    assert len(wrong) == load.MAX_WRONG and all(f"was answered {world.FORGED_ADDRESS}, not " in text for text in wrong)


@pytest.mark.parametrize("rcode", world.FAILURES)
def test_the_load_knows_who_may_fail(rcode):
    total, _, _ = loaded(lambda query, tcp: answer(query, rcode=dns.rcode.from_text(rcode)))
    for kind in world.KINDS:
        bad = "right" if rcode == world.SERVFAIL else "wrong"
        expected = "failed" if kind.upstream else bad if kind.name == "bad" else "wrong"
        assert total[kind.name, expected] == total[kind.name, "asked"], kind.name


def test_the_load_notices_silence_and_delay(monkeypatch):
    monkeypatch.setattr(load, "PATIENCE", 0.5)
    total, _, _ = loaded(lambda query, tcp: None)
    assert total["unanswered"] == total["asked"] > 200

    def late(query, tcp):
        time.sleep(0.3)  # the length of the stall
        return right_answer(query, tcp)
    monkeypatch.setattr(load, "PATIENCE", 60)
    _, _, found = loaded(late, 4, rate=20)
    assert max(line["stalled"] for line in found) > 0.2


def test_an_answer_to_another_question_is_wrong():
    query = load.Query(random.Random(1))
    message = b"\0\7" + query.packet
    assert load.judge(query, message).endswith("which is no response")
    other = message[:13] + bytes([message[13] ^ 1]) + message[14:]
    assert load.judge(query, other[:2] + b"\x81\x80" + other[4:]).endswith("which answers another question")
    cut = message[:2] + b"\x81\x80\0\1\0\1\0\0\0\0" + message[12:12 + message[12:].index(b"\0") + 5] + b"\xc0\x0c\0"
    assert load.judge(query, cut).endswith("which is malformed")


# --- the bad upstream, and the hostile clients ---

@pytest.mark.parametrize("behaviour", world.BAD_BEHAVIOURS)
def test_what_the_bad_upstream_does(behaviour):
    query = b"\0\7" + world.packet(f"{behaviour}-1.{world.BAD_ZONE}", True)
    _, packets = bad_upstream.replies(query, False)
    good = bad_upstream.reply(query, world.BAD_ADDRESS)
    assert dns.message.from_wire(good).answer[0][0].to_text() == world.BAD_ADDRESS
    over_tcp = bad_upstream.replies(query, True)[1]
    assert (good in packets or good in over_tcp) == world.BAD_BEHAVIOURS[behaviour]
    check = b"\0\7" + world.packet("ns.", False)
    assert bad_upstream.replies(check, False) == (0, [bad_upstream.reply(check, world.BAD_ADDRESS)])


def test_mutations_are_not_all_the_same():
    chance, packets = random.Random(1), list(hostile.seeds())
    assert len({hostile.mutated(chance, packet)[2:] for packet in packets for _ in range(20)}) > 100
    assert min(len(hostile.mutated(chance, packet)) for packet in packets for _ in range(200)) < 12
    for make in (hostile.flood_query, hostile.odd_query):
        with contextlib.suppress(dns.exception.DNSException):  # options may be nonsense: that is their purpose
            assert dns.message.from_wire(make(chance)).question
