"""A cluster under random faults; and that the judges of it can say no."""

import contextlib
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import pytest

from chaos import mirror, ownership, partitions, prober, runs
from chaos.ownership import Change, HookRun, Interval, Moments, OPERATOR, Sightings, Tenure, Touch
from chaos.proxy import Links
from harness import ports
from harness.node import ROOT
from harness.processes import Process, TIME_FACTOR, ended, prepare_child, wait_until

CHAOS = [sys.executable, "-B", os.path.join(ROOT, "tools", "chaos")]


# --- the runs ---

def assert_held(verdict, seed, directory):
    for line in verdict.facts:
        print(line)
    if verdict.problems:
        with open(os.path.join(directory, "events"), encoding="utf-8") as file:
            print(file.read())
    assert not verdict.problems, f"tools/chaos --seed {seed}:\n" + "\n".join(verdict.problems)


def test_a_name_belongs_to_one_node_at_a_time(directory):
    seed = random.SystemRandom().randrange(2 ** 32)
    verdict = runs.run_ownership(directory, 60, seed)
    assert_held(verdict, seed, directory)
    # It was a storm, and it was watched.
    assert len(verdict.intervals) > 30 and sum(interval.answers for interval in verdict.intervals) > 3000
    with open(os.path.join(directory, "intervals"), encoding="utf-8") as file:
        assert sum(" token " in line for line in file) == len(verdict.intervals)


def test_every_nodes_table_is_that_of_etcd(directory):
    seed = random.SystemRandom().randrange(2 ** 32)
    assert_held(runs.run_mirror(directory, 30, seed), seed, directory)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs network namespaces")
def test_machines_that_reach_each_other_at_random_found_one_cluster(directory):
    seed = random.SystemRandom().randrange(2 ** 32)
    assert_held(partitions.run_partitions(directory, 45, seed), seed, directory)


# --- tools/chaos ---

def command_lines():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
            yield file.read().replace("\0", " ")


def test_the_tool_keeps_what_it_is_asked_to_keep(directory):
    place = os.path.join(directory, "kept")
    result = subprocess.run([*CHAOS, "--minutes", "0.05", "--seed", "7", "--nodes", "3", "--keep", place], check=False,
                            capture_output=True, text=True, timeout=120 * TIME_FACTOR)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "seed 7\n" in result.stdout and result.stdout.count("  held, in ") == (3 if os.geteuid() == 0 else 2)
    with open(os.path.join(place, "ownership", "intervals"), encoding="utf-8") as file:
        assert {line.split()[0] for line in file} == {f"worker{number}.tf.local." for number in (1, 2, 3)}
    again = subprocess.run([*CHAOS, "--keep", place], check=False, capture_output=True, text=True, timeout=60)
    assert again.returncode == 1 and "File exists" in again.stderr


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 128 + signal.SIGTERM)])
def test_the_tool_leaves_nothing_behind(directory, number, code):
    temporary = os.path.join(directory, "tmp")
    os.mkdir(temporary)
    tool = Process("chaos", directory)
    tool.spawn([*CHAOS, "--nodes", "3", "--only", "ownership"], env={"TMPDIR": temporary})
    try:
        wait_until(lambda: not tool.running() or "3 nodes, 3 names" in tool.out(), 60, tool.logs)
        assert tool.running(), tool.logs()
        children = tool.children()
        assert 4 <= len(children) <= 7, "three nodes, three members, the proxy, but for those that a fault has killed"
        tool.signal(number)
        assert tool.exit_code(30) == code, tool.logs()
    finally:
        tool.kill()
    wait_until(lambda: all(ended(pid) for pid in children), 10, lambda: [pid for pid in children if not ended(pid)])
    # A child that was being started is not among them, and is ended by the kernel soon after the tool.
    left = lambda: [command for command in command_lines() if temporary in command]
    wait_until(lambda: not left(), 10, left)
    assert os.listdir(temporary) == []


@pytest.mark.parametrize("arguments", [["--minutes", "0"], ["--nodes", "1"], ["--only", "x"], ["--lease", "1"], ["--members", "2"], ["x"]])
def test_the_tool_refuses(arguments):
    result = subprocess.run([*CHAOS, *arguments], check=False, capture_output=True, text=True, timeout=30)
    assert result.returncode == 2 and "usage: tools/chaos" in result.stderr


# --- the judges of ownership ---

W1 = "worker1."


def moments(*writes):
    found = Moments()
    for write in writes:
        found.add(*write)
    return found.settle()


# Revision n was made between n - 0.1 and n.
EXACT = moments(*((number, number - 0.1, number) for number in range(1, 100)))


def sightings(owner, *spans, name=W1):
    seen = Sightings(owner, name)
    for sent, received in spans:
        seen.add(sent, received)
    return seen


def test_moments_of_revisions():
    found = moments((10, 1.0, 1.5), (20, 2.0, 9.0), (30, 3.0, 3.5))
    assert (found.earliest(9), found.latest(9)) == (float("-inf"), 1.5)
    assert (found.earliest(10), found.latest(10)) == (1.0, 1.5)
    assert (found.earliest(15), found.latest(15)) == (1.0, 3.5), "20 was made before 30, which was confirmed first"
    assert (found.earliest(29), found.latest(29)) == (2.0, 3.5)
    assert (found.earliest(31), found.latest(31)) == (3.0, float("inf"))


def test_tenures():
    spans = ownership.tenures([
        Change(W1, 40), Change(W1, 10, "a", 10), Change(W1, 20, "a", 10), Change(W1, 30, "b", 10), Change(W1, 50, "b", 50),
        Change("worker2.", 11, "c", 11)])
    assert spans == {W1: [Tenure(W1, "a", 10, 10, 30), Tenure(W1, "b", 10, 30, 40), Tenure(W1, "b", 50, 50, None)],
                     "worker2.": [Tenure("worker2.", "c", 11, 11, None)]}


HISTORY = {W1: [Tenure(W1, "a", 10, 10, 20), Tenure(W1, "b", 30, 30, 40), Tenure(W1, "a", 50, 50, None)]}


@pytest.mark.parametrize("owner, span", [
    ("a", (8.0, 9.8)),     # before etcd can have given it
    ("a", (20.01, 20.5)),  # the key was gone
    ("a", (20.01, 49.8)),  # the same, and not yet a's again
    ("b", (20.0, 29.8)),
    ("c", (15.0, 16.0)),   # never had it
])
def test_a_false_claim_is_found(owner, span):
    intervals, problems = ownership.attribute([sightings(owner, span)], HISTORY, EXACT)
    assert intervals == [] and len(problems) == 1 and f"{owner} said that worker1. is its own" in problems[0]


def test_what_may_have_been_true_is_no_false_claim():
    seen = [sightings("a", (8.0, 9.9), (12.0, 12.1), (20.0, 29.0), (49.0, 60.0), (70.0, 71.0)), sightings("b", (29.0, 31.0), (40.0, 50.0))]
    intervals, problems = ownership.attribute(seen, HISTORY, EXACT)
    assert problems == []
    assert [(i.tenure.token, i.first_received, i.last_sent, i.answers) for i in intervals] == [
        (10, 9.9, 20.0, 3), (50, 60.0, 70.0, 2), (30, 31.0, 40.0, 2)]


def test_who_speaks_on_when_an_operator_has_ended_its_tenure():
    def problems_of(touch, sent):
        seen = [sightings("a", (12.0, 12.1), (sent, sent + 0.1)), sightings("b", (30.0, 30.1))]
        intervals, problems = ownership.attribute(seen, HISTORY, EXACT, [touch], lease=15)
        assert [(i.tenure.owner, i.last_sent) for i in intervals] == [("a", 12.0), ("b", 30.0)]
        return problems
    assert problems_of(Touch(W1, 19.5, 20), 34.9) == [], "its watch may not have shown it yet, though b has the name"
    assert problems_of(Touch(W1, 19.5, None), 34.9) == [], "this may have ended it"
    assert len(problems_of(Touch(W1, 19.5, 20), 35.1)) == 1, "longer than a lease"
    assert len(problems_of(Touch(W1, 19.5, 19), 21.0)) == 1, "that was another write"
    assert len(problems_of(Touch(W1, 9.0, None), 21.0)) == 1, "that cannot have been so late"
    assert len(problems_of(Touch(W1, 20.5, None), 21.0)) == 1, "nor this so early"
    assert len(problems_of(Touch("worker2.", 19.5, 20), 21.0)) == 1, "another name"


def test_an_answer_that_may_be_from_after_an_operators_deletion_is_no_overlap():
    history = {W1: [Tenure(W1, "a", 10, 10, 20), Tenure(W1, "b", 21, 21, None)]}
    seldom = moments((9, 8.9, 9.0), (19, 19.0, 19.1), (22, 20.9, 21.0))  # 20 was made between 19.0 and 21.0
    seen = [sightings("a", (12.0, 12.1), (18.0, 18.1), (20.5, 20.6)), sightings("b", (20.3, 20.4))]

    def problems_of(touches):
        intervals, problems = ownership.attribute(seen, history, seldom, touches, lease=3)
        return problems + ownership.overlaps(intervals)
    assert problems_of([Touch(W1, 19.5, 20)]) == []
    assert len(problems_of([])) == 1, "a lease has no such excuse"


def test_leases_that_leak():
    assert ownership.leaked({1, 2}, {1, 2, 3}) == []
    assert len(ownership.leaked({1, 2, 17}, {1, 2})) == 1


def test_when_programs_ran():
    history = {W1: [Tenure(W1, "a", 10, 10, 20), Tenure(W1, "b", 20, 20, None)]}

    def problems_of(loss, claim, ends):
        lines = [HookRun("a", "claim", W1, 10, 10.1), HookRun("a", "loss", W1, 10, loss), HookRun("b", "claim", W1, 20, claim)]
        return ownership.hook_times(lines, history, EXACT, ends)
    assert problems_of(19.5, 20.1, {"a": 19.4}) == []
    assert len(problems_of(20.3, 20.1, {"a": 19.4})) == 1, "the next owner was told first"
    assert problems_of(20.5, 20.1, {"a": 19.4}) == [], "it took longer than is waited for"
    assert problems_of(20.3, 20.1, {}) == [], "no orderly end"
    assert problems_of(20.8, 20.1, {"a": 20.5}) == [], "it was lost before"
    assert len(problems_of(19.5, 19.8, {})) == 1, "told before etcd can have had it"


def interval(owner, token, first_received, last_sent, begin=None):
    return Interval(Tenure(W1, owner, token, begin or token, None), first_received, last_sent, 2)


def test_an_overlap_is_found():
    assert ownership.overlaps([interval("a", 10, 1.0, 5.0), interval("b", 20, 5.0, 9.0)]) == []
    problems = ownership.overlaps([interval("b", 20, 4.99, 9.0), interval("a", 10, 1.0, 5.0)])
    assert len(problems) == 1 and "token 10 a" in problems[0] and "token 20 b" in problems[0]
    # Not only between neighbours, and also under one token that was taken back.
    assert len(ownership.overlaps([interval("a", 10, 1, 50), interval("b", 20, 30, 35), interval("c", 30, 40, 61)])) == 2
    assert len(ownership.overlaps([interval("a", 10, 1, 5), interval("b", 10, 4, 6, begin=12)])) == 1


def test_the_runs_of_on_claim():
    def problems_of(*lines):
        return ownership.hook_problems([HookRun("a", *line) for line in lines], HISTORY)
    assert problems_of(("claim", W1, 10), ("loss", W1, 10), ("claim", W1, 10), ("loss", W1, 10), ("claim", W1, 50)) == []
    assert len(problems_of(("claim", W1, 10), ("claim", W1, 50))) == 1, "no loss between"
    assert len(problems_of(("claim", W1, 30))) == 1, "b's token"
    assert len(problems_of(("claim", "worker2.", 10))) == 1, "another slot's"
    assert len(problems_of(("claim", W1, 50), ("loss", W1, 50), ("claim", W1, 10))) == 1, "a token that falls"
    assert len(problems_of(("loss", W1, 10))) == 1, "never claimed"
    assert len(problems_of(("claim", W1, 10), ("loss", W1, 50))) == 1, "not what was claimed"


def test_tokens_that_fall():
    assert ownership.falling_tokens(HISTORY) == []
    assert len(ownership.falling_tokens({W1: [Tenure(W1, "a", 10, 10, 20), Tenure(W1, "b", 9, 30, None)]})) == 1
    by_hand = [Tenure(W1, "a", 10, 10, 20), Tenure(W1, OPERATOR, 10, 20, 30)]
    assert ownership.falling_tokens({W1: [*by_hand, Tenure(W1, "b", 40, 40, None)]}) == []
    assert len(ownership.falling_tokens({W1: [*by_hand, Tenure(W1, "b", 10, 40, None)]})) == 1


def test_dense_names():
    def render(number):
        return f"worker{number}."
    assert ownership.not_dense(["worker2.", "worker1."], 2, render) == []
    assert ownership.not_dense(["worker3.", "worker1."], 2, render) == ["no node has worker2.", "a node has worker3."]
    assert ownership.not_dense(["worker1.", "worker1."], 2, render) == ["no node has worker2.", "2 nodes have worker1."]
    assert ownership.not_dense(["worker4.", "worker1."], 2, render, limit=4) == []
    assert ownership.not_dense(["worker5.", "worker1."], 2, render, limit=4) == ["a node has worker5."]
    assert ownership.not_dense(["worker1."], 2, render, limit=4) == ["1 names of 2 nodes"]


class Machine:
    """Has a name in DNS, and files one after the other, of which the last stays."""

    def __init__(self, *files):
        self.owner = "node1.1"
        self.address = "127.7.0.1"
        self.files = list(files)

    def identity(self):
        return self.files.pop(0) if len(self.files) > 1 else self.files[0]


def test_the_identity_file_may_come_later_than_the_name():
    witness = runs.Witness()
    witness.observe("node1.1", 0, 1.0, 1.1, response(prober.TXT, b"\x07worker1"))
    right = {"IDETCD_NAME": "worker1.", "IDETCD_IPV4": "127.7.0.1"}
    assert runs.await_identities([Machine(None), Machine(right), Machine({}, {}, right)], witness) == []
    for wrong in ({}, {**right, "IDETCD_NAME": "worker2."}, {**right, "IDETCD_IPV4": "127.7.0.2"}):
        problems = runs.await_identities([Machine(wrong), Machine(right)], witness, within=0.05)
        assert len(problems) == 1 and "node1.1 says that it is worker1., its identity file says" in problems[0]


# --- the judges of partitions ---

def claims(*seen):
    """Of (owner, name, sent, received)."""
    found = partitions.Claims()
    for one in seen:
        found.add(*one)
    return found


def test_two_owners_in_a_partition_are_found():
    def problems(*of_b):
        return claims(("a", W1, 1.0, 1.1), ("a", W1, 1.5, 1.6), *of_b, ("a", W1, 2.0, 2.1), ("a", None, 2.5, 2.6)).double_owners()
    assert problems() == []
    assert problems(("b", W1, 2.05, 2.2)) == [], "a may have lost it right after its last answer"
    assert problems(("b", W1, 0.8, 1.05), ("b", None, 1.2, 1.3)) == [], "b may have lost it right before a's first answer"
    assert len(problems(("b", W1, 1.7, 1.8))) == 1
    assert len(problems(("b", W1, 0.5, 0.6), ("b", W1, 1.2, 1.3))) == 1
    assert claims(("a", W1, 1.0, 1.1), ("b", W1, 2.0, 2.1), ("a", W1, 3.0, 3.1)).double_owners() == [], "a may have lost it for a while"


def test_outdated_answers_are_found():
    spans = claims(*(("b", W1, 10 + step / 2, 10.1 + step / 2) for step in range(20))).spans
    assert partitions.outdated([partitions.Answer("c", W1, "b", 15.0)], spans, lease=3) == []
    assert partitions.outdated([partitions.Answer("c", W1, "a", 14.0)], spans, lease=3) == [], "a lease and a second"
    assert len(partitions.outdated([partitions.Answer("c", W1, "a", 14.2)], spans, lease=3)) == 1


def test_a_second_founding_is_found():
    class Machine:
        name = "machine2"

        def __init__(self, *lines):
            self.out = lambda: "".join(f"[INFO] peers: {line}\n" for line in lines)
    one, other = "a member of the cluster 1a, number 1", "a member of the cluster 2b, number 1"
    assert partitions.foundings([Machine(one), Machine(one)]) == []
    assert len(partitions.foundings([Machine(one), Machine(other)])) == 1
    assert len(partitions.foundings([Machine(one, "the cluster 1a dissolves"), Machine(one)])) == 1


# --- the judges of mirrors ---

@pytest.mark.parametrize("value, record", [
    ('{"ipv4":"192.0.2.1"}', ("192.0.2.1", None)),
    ('{"IPv4":"192.0.2.1","ipv6":"2001:DB8::0"}', ("192.0.2.1", "2001:db8::")),
    ('{"ipv4":"192.0.2.1","ipv4":"192.0.2.2","x":[{"ipv6":1}]}', ("192.0.2.2", None)),
    ("{}", (None, None)), ('{"ipv4":""}', (None, None)),
])
def test_values_that_are_records(value, record):
    assert mirror.record_of("a.tf.local.", value) == dict(zip(("A", "AAAA"), record))


@pytest.mark.parametrize("value", runs.Writer.INVALID, ids=lambda value: repr(value[:40]))
def test_values_that_are_none(value):
    assert mirror.record_of("a.tf.local.", value) is None


def test_what_a_table_means():
    pairs = {"a.tf.local.": '{"ipv4":"192.0.2.1"}', "x.y.tf.local.": "{}", "bad.tf.local.": "x", "b.test.": '{"ipv6":"::1"}'}
    names = ["a.tf.local.", "x.y.tf.local.", "y.tf.local.", "bad.tf.local.", "tf.local.", "b.test.", "c.test."]
    wanted = mirror.expected(pairs, names, "tf.local.")
    assert [(wanted[name, "A"], wanted[name, "AAAA"]) for name in names] == [
        ("192.0.2.1", "NODATA"), ("NODATA", "NODATA"), ("NODATA", "NODATA"), ("NXDOMAIN", "NXDOMAIN"), ("NODATA", "NODATA"),
        ("NODATA", "::1"), ("REFUSED", "REFUSED")]
    assert mirror.differences("n", wanted, dict(wanted)) == []
    assert len(mirror.differences("n", wanted, {**wanted, ("a.tf.local.", "A"): "192.0.2.2"})) == 1
    assert len(mirror.differences("n", wanted, {key: answer for key, answer in wanted.items() if key[0] != "c.test."})) == 2


def test_what_is_shown_as_fresh():
    writes = [(1, 10.0), (2, 11.0), (5, 15.0), (6, 14.5)]
    problems, oldest = mirror.too_old({("n", 1): 13.9, ("n", 2): 17.4, ("n", 6): 99.0}, writes, lease=3)
    assert problems == [] and oldest == pytest.approx(2.9)
    assert len(mirror.too_old({("n", 1): 14.1}, writes, lease=3)[0]) == 1
    assert len(mirror.too_old({("n", 3): 17.6}, writes, lease=3)[0]) == 1, "a number whose write was not confirmed"
    stale = struct.pack("!BHHIH", 0, prober.OPT, 1232, 0, 6) + struct.pack("!3H", prober.EDE, 2, prober.STALE_ANSWER)
    answer = response(prober.A, socket.inet_aton(runs.counter_address(7)))
    looker = runs.Onlooker()
    looker.observe("n", 0, 1.0, 1.1, answer)
    looker.observe("n", 0, 2.0, 2.1, answer[:10] + b"\0\1" + answer[12:] + stale)
    assert looker.shown == {("n", 7): 1.0}


def response(rdtype, rdata, rcode=0):
    return (struct.pack("!6H", 7, 0x8000 | rcode, 1, 1 if rdata else 0, 0, 0) + prober.wire_name(runs.COUNTER) + struct.pack("!2H", rdtype, 1) +
            (b"\xc0\x0c" + struct.pack("!2HIH", rdtype, 1, 5, len(rdata)) + rdata if rdata else b""))


def test_an_onlooker_notices():
    def counted(*numbers):
        looker = runs.Onlooker()
        for number in numbers:
            looker.observe("n", 0, 1.0, 1.1, response(prober.A, socket.inet_aton(runs.counter_address(number))))
        return looker.problems
    assert counted(1, 1, 300, 70000) == []
    assert counted(5, 300, 299) == ["n went back from number 300 to 299"]
    looker = runs.Onlooker()
    looker.set_back(1.05)
    for number in (300, 200, 201):  # asked before and answered after
        looker.observe("n", 0, 1.0, 1.1, response(prober.A, socket.inet_aton(runs.counter_address(number))))
    assert looker.problems == []
    looker.observe("n", 0, 1.2, 1.3, response(prober.A, socket.inet_aton(runs.counter_address(199))))
    assert looker.problems == ["n went back from number 201 to 199"], "once only"
    assert ("n", 199) not in looker.shown, "its age is not known any more"
    looker = runs.Onlooker()
    last = len(runs.STEADY)
    for number in (1, last):  # a node that knows one name may still have to read the rest
        looker.observe("n", number, 1.0, 1.1, response(prober.A, b"", rcode=2))
        looker.observe("n", number, 1.0, 1.1, response(prober.A, socket.inet_aton(runs.STEADY_ADDRESS)))
    assert looker.problems == []
    looker.observe("n", 1, 1.0, 1.1, response(prober.A, b"", rcode=2))
    looker.observe("n", 1, 1.0, 1.1, response(prober.A, b"", rcode=3))
    looker.observe("n", 2, 1.0, 1.1, response(prober.A, socket.inet_aton("192.0.2.1")))
    assert [problem.split(" for ")[0] for problem in looker.problems] == ["n said SERVFAIL", "n said NXDOMAIN", "n said 192.0.2.1"]


def test_the_name_in_an_answer():
    text = b"\x10worker1.tf.local"
    assert prober.own_name(response(prober.TXT, text)) == "worker1.tf.local."
    assert prober.own_name(response(prober.TXT, b"", rcode=5)) is None
    opt = b"\0" + struct.pack("!HHIH", prober.OPT, 1232, 0, 26) + struct.pack("!2H", 10, 2) + b"xx" + struct.pack("!2H", prober.NSID, 16) + text[1:]
    refused = response(prober.A, b"", rcode=5)
    assert prober.own_name(refused[:10] + b"\0\1" + refused[12:] + opt) == "worker1.tf.local."


# --- the links ---

@pytest.fixture
def link(directory, free_port):
    """(Links, port): behind the link is a server that echoes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        def serve():
            while True:
                try:
                    sock, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=echo, args=(sock,), daemon=True).start()

        def echo(sock):
            with sock, contextlib.suppress(ConnectionResetError):
                while data := sock.recv(100):
                    sock.sendall(data)
        threading.Thread(target=serve, daemon=True).start()
        port = free_port()
        links = Links({port: server.getsockname()[1]}, os.path.join(directory, "proxy.err"), prepare_child)
        yield links, port
        links.close()
        server.shutdown(socket.SHUT_RDWR)
    with open(os.path.join(directory, "proxy.err"), encoding="utf-8") as file:
        assert file.read() == ""


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=5 * TIME_FACTOR)


def assert_silent(sock):
    sock.settimeout(0.1)
    with pytest.raises(TimeoutError):
        sock.recv(100)
    sock.settimeout(5 * TIME_FACTOR)


@pytest.mark.parametrize("hold", [["up"], ["down"], ["up", "down"]])
def test_a_black_hole_keeps_what_it_is_sent(link, hold):
    links, port = link
    with connect(port) as before:
        before.sendall(b"1")
        assert before.recv(100) == b"1"
        links.set([port], hold=hold)
        with connect(port) as during:
            before.sendall(b"2")
            during.sendall(b"3")
            assert_silent(before)
            assert_silent(during)
            links.set([port])
            assert (before.recv(100), during.recv(100)) == (b"2", b"3")


def test_a_cut_link_resets_and_refuses(link):
    links, port = link
    with connect(port) as before:
        before.sendall(b"1")
        assert before.recv(100) == b"1"
        links.set([port], cut=True)
        with pytest.raises(ConnectionResetError):
            before.recv(100)
        with pytest.raises(ConnectionError), connect(port) as during:
            during.sendall(b"2")
            during.recv(100)
        links.set([port])
        with connect(port) as after:
            after.sendall(b"3")
            assert after.recv(100) == b"3"


@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_slow_link_keeps_the_order(link, direction):
    links, port = link
    with connect(port) as sock:
        sock.sendall(b"0")
        assert sock.recv(1) == b"0", "connected to the end"
        links.set([port], **{direction: 0.5})
        begin = time.monotonic()
        sock.sendall(b"1")
        time.sleep(0.25)  # so that the two are received apart
        links.set([port])
        sock.sendall(b"2")
        assert sock.recv(1, socket.MSG_WAITALL) + sock.recv(1) == b"12"
        assert time.monotonic() - begin >= 0.5
        sock.shutdown(socket.SHUT_WR)
        assert sock.recv(1) == b""


def test_links_to_nothing_end(directory, free_port):
    port, nothing = free_port(), free_port()
    links = Links({port: nothing}, os.path.join(directory, "proxy.err"), prepare_child)
    try:
        with pytest.raises(ConnectionResetError), connect(port) as sock:
            sock.recv(1)
    finally:
        links.close()
    assert ports.is_free(port)
