"""The generation of the membership: a number that is the same on every node, and rises with each change."""

import json
import re
import shutil

import pytest

from corefiles import corefile
from dns_client import ask
from harness.go_plugin import GoPlugin
from harness.metrics import Metrics
from harness.processes import wait_until
from harness.state import State, contents
from test_cli import background, run  # noqa: F401

LEASE = 5
KEY = b"/idetcd/generation/worker{{.ID}}.tf.local."


@pytest.fixture
def start(etcd, nodes, directory):
    """A function that starts the node of a number; with the same state as before, if it had one."""
    def start(number, limit=4, options=(), directives=()):
        state = State(f"{directory}/state{number}")
        return nodes.start(corefile(etcd.endpoint, lease=LEASE, limit=limit, directives=directives,
                                    options=[state.option, f"address 192.0.2.{number}", *options]), f"node{number}")
    return start


def cluster(node, command="members"):
    code, out, err = run(node, command, "--json")
    assert code == 0, err
    return json.loads(out)["clusters"][0]


def roster(node):
    """The generation, and who has which name. Nothing while etcd does not answer."""
    code, out, _ = run(node, "members", "--json")
    if code != 0:
        return None, []
    said = json.loads(out)["clusters"][0]
    return said["generation"], [(slot["id"], slot["node"]) for slot in said["slots"]]


def agreed(nodes, ids, above):
    """The generation of the roster with these IDs, when all say it."""
    def look():
        said = [roster(node) for node in nodes]
        generation, members = said[0]
        if any(each != said[0] for each in said) or [slot for slot, _ in members] != ids or generation is None:
            return None
        return generation if generation > above else None
    return wait_until(look, 30, f"all nodes to have one generation above {above}, of {ids}")


def test_it_rises_with_each_change_and_is_the_same_for_all(start, etcd):
    first, second = start(1), start(2)
    two = agreed([first, second], [1, 2], 0)
    third = start(3)
    three = agreed([first, second, third], [1, 2, 3], two)
    third.kill()
    lost = agreed([first, second], [1, 2], three)
    late = start(4)  # takes the name that has become free
    spare = agreed([first, second, late], [1, 2, 3], lost)
    assert run(first, "drain")[0] == 0
    drained = agreed([first, second, late], [1, 2, 3], spare)
    assert run(first, "undrain")[0] == 0
    back = agreed([first, second, late], [1, 2, 3], drained)
    first.terminate()
    agreed([second, late], [2, 3], back)


def test_who_comes_later_knows_what_has_gone(start, etcd):
    """No name that is left shows it: it stands in the store. All others end, so that nobody tells it."""
    first, second = start(1), start(2)
    two = agreed([first, second], [1, 2], 0)
    second.terminate()
    gone = agreed([first], [1], two)
    wait_until(lambda: KEY in etcd.pairs(internal=True), 10, "the generation to be noted")
    assert int(etcd.pairs(internal=True)[KEY]["value"].split()[0]) == gone
    assert agreed([first, start(3, options=["observe"])], [1], two) == gone


def test_renewals_of_the_go_plugin_are_no_changes(start, etcd):
    node = start(1)
    one = agreed([node], [1], 0)
    with GoPlugin(etcd, lease=LEASE, ipv4="192.0.2.22", port="53") as go:
        go.start()
        two = agreed([node], [1, 2], one)
        wait_until(lambda: len(go.leases) > 2, 30, "the Go node to renew its name")
        assert agreed([node], [1, 2], one) == two
    agreed([node], [1], two)


def test_it_is_shown_everywhere(start, etcd, directory, free_port):
    port = free_port()
    log = f"{directory}/claims"
    node = start(1, options=[f'on-claim sh -c "echo $IDETCD_EVENT $IDETCD_GENERATION >> {log}"'],
                 directives=[f"prometheus 127.0.0.1:{port}"])
    other = start(2)
    generation = agreed([node, other], [1, 2], 0)
    assert cluster(node, "status")["generation"] == generation
    assert re.search(rf"2 of 4 names are held, generation {generation}\n", run(node, "members")[1])
    (text,) = ask(node, "worker2.tf.local.", "TXT").answer
    assert f'"generation={generation}"' in text[0].to_text()
    assert Metrics.of(port).sum("idetcd_generation") == generation
    identity = f"{directory}/state1/identity"
    wait_until(lambda: f"IDETCD_GENERATION='{generation}'" in contents(identity), 10, "the identity file to follow")
    claimed = wait_until(lambda: contents(log), 10, node.logs).split()
    assert claimed[0] == "claim" and 0 < int(claimed[1]) < generation, "it was alone then"
    code, out, err = run(node, "exec", "--", "/bin/sh", "-c", "echo $IDETCD_GENERATION")
    assert (code, out, err) == (0, f"{generation}\n", "")


def lines(process):
    """What it has printed: (generation, IDs)."""
    return [(said["clusters"][0]["generation"], [slot["id"] for slot in said["clusters"][0]["slots"]])
            for said in map(json.loads, re.findall(r"^\{.*\}$", process.out(), re.MULTILINE))]


def test_a_watch_prints_each_roster(start, etcd, background):  # noqa: F811
    node = start(1)
    one = agreed([node], [1], 0)
    watching = background(node, "members", "--watch")
    wait_until(lambda: lines(watching) == [(one, [1])], 10, "the roster of the beginning")
    other = start(2)
    two = agreed([node, other], [1, 2], one)
    wait_until(lambda: lines(watching)[1:] == [(two, [1, 2])], 10, "the second roster")
    other.kill()
    left = agreed([node], [1], two)
    wait_until(lambda: lines(watching)[2:] == [(left, [1])], 10, "the third roster")
    node.terminate()
    node = start(1)  # the watch outlives the server
    wait_until(lambda: len(lines(watching)) > 3 and lines(watching)[-1][1] == [1], 20, "the roster of the new process")
    assert watching.running()
    generations = [generation for generation, _ in lines(watching)]
    assert generations == sorted(set(generations))


def test_waiting_for_the_next_roster(start, etcd, background):  # noqa: F811
    node = start(1)
    one = agreed([node], [1], 0)
    assert run(node, "wait", "--generation-above", str(one - 1)) == (0, f"{one}\n", "")
    code, out, err = run(node, "wait", "--generation-above", str(one), "--timeout", "0s")
    assert (code, out) == (1, "") and f"the generation is {one}" in err
    for wrong in ("-1", "x", "9" * 30):
        assert run(node, "wait", "--generation-above", wrong)[0] == 2
    waiting = background(node, "wait", "--generation-above", str(one), "--members", "2")
    assert waiting.running()
    other = start(2)
    two = agreed([node, other], [1, 2], one)
    wait_until(lambda: not waiting.running(), 20, "the wait to end")
    assert "worker1.tf.local\nworker2.tf.local\n" in waiting.out()
    assert json.loads(run(node, "wait", "--generation-above", str(one), "--json")[1]) == {"generation": two}


def test_it_goes_on_rising_where_the_store_was_set_back(start, etcd, directory):
    """A backup is restored, whose revisions are lower than those of before."""
    node = start(1)
    one = agreed([node], [1], 0)
    etcd.ctl("snapshot", "save", f"{directory}/backup")
    for number in range(5):
        etcd.put(f"elsewhere{number}", "x")
    other = start(2)
    two = agreed([node, other], [1, 2], one)
    etcd.stop()
    shutil.rmtree(etcd.data)
    etcd.ctl("snapshot", "restore", f"{directory}/backup", "--data-dir", etcd.data, "--name", etcd.name, "--initial-cluster",
             etcd.initial_cluster, "--initial-advertise-peer-urls", etcd.peer_url)
    etcd.start()
    above = agreed([node, other], [1, 2], two)
    third = start(3)
    assert agreed([node, other, third], [1, 2, 3], above) > above


def test_an_offset_that_is_noted_later_is_read_with_the_next_comparison(start, etcd):
    """By a node that has nothing to catch up with, and compares all names every six minutes."""
    etcd.put_many({f"f{number}.example.": '{"ipv4": "198.51.100.1"}' for number in range(5000)})
    node = start(1, options=["reconcile 1s"])
    agreed([node], [1], 0)
    for offset in (100_000, 200_000):  # the first one may be there before the second of the reads at the start
        etcd.put(KEY, f"1 {offset}")
        wait_until(lambda above=offset: (roster(node)[0] or 0) > above, 20, node.logs)


def test_a_note_of_a_hand_takes_nothing_back(start, etcd):
    node = start(1, options=["reconcile 1s"])
    agreed([node], [1], 0)
    etcd.put(KEY, "1 100000")
    known = agreed([node], [1], 100_000)
    etcd.put(KEY, "no number")
    wait_until(lambda: etcd.pairs(internal=True)[KEY]["value"] != b"no number", 20, node.logs)
    assert etcd.pairs(internal=True)[KEY]["value"].endswith(b" 100000")
    assert agreed([node], [1], 0) == known
    node.wait_logged("is no generation: no number", times=1)
