"""Machines that found a cluster: they have idetcd and etcd's program, and no etcd that runs. Machine N is 127.0.0.N."""

import json
import os
import shutil
import signal
import subprocess

import pytest

from dns_client import wait_resolves
from harness.clock import Clocks
from harness.metrics import Metrics
from harness.node import binary
from harness.peers import group_of, name_of, run, voters_of, wait_name, worker
from harness.processes import wait_until
from harness.state import Readings, contents

pytestmark = pytest.mark.etcd  # that the machines run


def owner(cluster, name):
    return next(node for node in cluster.made.values() if name_of(node) == name)


def test_two_machines_name_themselves_without_an_etcd(machines):
    cluster = machines(2)
    first, second = cluster.start(2), cluster.start(3)
    assert {wait_name(first), wait_name(second)} == {worker(1), worker(2)}
    for node in (first, second):
        for other in (first, second):
            wait_resolves([node], name_of(other), other.host, host=node.host)


def test_five_machines_are_numbered_in_the_order_of_their_start(machines):
    cluster = machines(5)
    numbers = [4, 2, 6, 3, 5]
    started = []
    for number in numbers:  # each has read its clock before the next one is there
        started.append(cluster.start(number))
        started[-1].wait_answers(host=f"127.0.0.{number}")
        if len(started) == 2:
            started[-1].wait_logged("2 of 3 machines seen")
    for place, node in enumerate(started):
        wait_name(node, worker(place + 1))


def test_all_that_are_killed_at_once_have_their_names_again(machines):
    cluster = machines(3)
    before = {}
    for number in (2, 3, 4):
        cluster.start(number)
    for number, node in cluster.made.items():
        before[number] = wait_name(node)
    for node in cluster.made.values():
        node.kill()
    for number, name in before.items():
        cluster.start(number)
    for number, name in before.items():
        wait_name(cluster.made[number], name)


def test_who_watches_the_identity_sees_no_loss_when_a_new_process_takes_over(machines, directory):
    """Though that one starts the machine's etcd first."""
    cluster = machines(1, lease=60)
    handover = ["-handover", f"{directory}/handover"]
    node = cluster.start(2, arguments=handover)
    wait_name(node, worker(1))
    identity = f"{cluster.state(2)}/identity"
    wait_until(lambda: worker(1) in contents(identity), 10, node.logs)
    with Readings(identity) as readings:
        new = cluster.start(2, arguments=handover)
        assert node.exit_code(30) == 0
        wait_name(new, worker(1), timeout=60)
        wait_until(lambda: len(readings.seen) == 2, 10, new.logs)
    assert all(f"IDETCD_NAME='{worker(1)}'" in text for text in readings.seen), readings.seen


def test_a_machine_that_comes_later_takes_the_next_name(machines):
    cluster = machines(3)
    first, second = cluster.start(2), cluster.start(3)
    assert {wait_name(first), wait_name(second)} == {worker(1), worker(2)}
    wait_name(cluster.start(4), worker(3))


def test_a_machine_of_another_secret_stays_alone(machines):
    cluster = machines(3)
    stranger = cluster.start(4, secret=cluster.secret_file("another"))
    first, second = cluster.start(2), cluster.start(3)
    assert {wait_name(first), wait_name(second)} == {worker(1), worker(2)}
    stranger.wait_logged("1 of 2 machines seen")
    assert name_of(stranger) is None


def test_validate_reads_the_secret(directory):
    path = os.path.join(directory, "Corefile")
    secret = os.path.join(directory, "secret")
    with open(path, "w", encoding="ascii") as file:
        file.write(f". {{\n    idetcd {{\n        pattern w{{{{.ID}}}}.tf.local.\n        peers a.test\n        secret {secret}\n    }}\n}}\n")

    def validate():
        done = subprocess.run([binary(), "-validate", "-conf", path], check=False, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stderr
    code, err = validate()
    assert code == 1 and f"{path}:5" in err and secret in err
    with open(secret, "w", encoding="ascii") as file:
        file.write("too short\n")
    code, err = validate()
    assert code == 1 and f"{path}:5" in err and "at least 16 are needed" in err
    with open(secret, "w", encoding="ascii") as file:
        file.write("long enough for all machines\n")
    os.chmod(secret, 0o604)
    code, err = validate()
    assert code == 0 and f"warning: {path}:5: every user of this machine may read the secret {secret}" in err
    os.chmod(secret, 0o600)
    assert validate() == (0, "")


def test_a_secret_that_every_user_may_read_is_warned_of(machines):
    cluster = machines(1)
    readable = cluster.secret_file("readable")
    os.chmod(readable, 0o604)
    cluster.start(2, secret=readable).wait_logged(f"every user of this machine may read the secret {readable}")
    quiet = cluster.start(3, peers=[3])
    wait_name(quiet)
    assert "may read the secret" not in quiet.logs(tail=1000)


def test_a_machine_without_etcds_program_says_what_to_install(machines):
    cluster = machines(1)
    node = cluster.start(2, "etcd-program /not/there/etcd")
    node.wait_logged("etcd-server")
    assert node.running()


def test_machines_that_keep_nothing_need_no_state(machines):
    cluster = machines(2)
    first, second = cluster.start(2, state=False), cluster.start(3, state=False)
    assert {wait_name(first), wait_name(second)} == {worker(1), worker(2)}
    voter = owner(cluster, worker(1))
    voter.wait_logged("etcd's data is in memory")
    wait_until(lambda: "in memory" in run(voter, "peers")[1], 10, lambda: run(voter, "peers")[1])
    assert first.terminate() == 0
    assert os.listdir(os.path.join(first.runtime_directory, f"peers-127.0.0.2-{cluster.port}")) == []


def test_the_subcommand_says_for_what_it_waits_and_who_votes(machines):
    cluster = machines(3)
    first = cluster.start(2)
    first.wait_logged("1 of 2 machines seen")
    code, out, _ = run(first, "peers")
    assert code == 1 and "no cluster yet: 1 of 2 machines seen" in out
    out = run(first, "status")[1]
    assert "no cluster yet: 1 of 2 machines seen" in out
    assert " AWAY for " in out and " d " not in out, "etcd has been away since the start of the server"
    second = cluster.start(3)
    wait_name(first)
    wait_name(second)
    # It asks with a client of its own, which may have found nobody a moment ago.
    for node in (first, second):
        wait_until(lambda n=node: run(n, "peers")[0] == 0, 10, lambda n=node: run(n, "peers")[1])
    group = json.loads(run(second, "peers", "--json")[1])["peers"][0]
    assert group["connected"] and group["founders"] == 2 and group["waits_for"] == ""
    assert [(voter["address"], voter["healthy"], voter["leader"]) for voter in group["voters"]] == [
        (f"{owner(cluster, worker(1)).host}:{cluster.port}", True, True)]
    out = run(first, "peers")[1]
    assert group["cluster"] in out and "leader" in out
    code, _, err = run(first, "peers", "recover")
    assert code == 2 and "--yes is needed: nothing is recovered" in err


def test_when_the_leaders_machine_dies_names_are_claimed_on_and_another_one_votes(machines):
    """Takes 15 s: a voter is replaced when it has been silent for 10."""
    cluster = machines(4)
    for number in (2, 3, 4, 5):
        cluster.start(number)
    names = {node: wait_name(node) for node in cluster.made.values()}
    _, leader = voters_of(cluster.made[2], 3)
    dead = next(node for node in names if node.host == leader)
    alive = [node for node in names if node is not dead]
    dead.kill()
    newcomer = cluster.start(6)
    wait_name(newcomer, names[dead], timeout=20)
    for node in alive:  # who has a name keeps it, and all know all
        wait_name(node, names[node])
        wait_resolves([node], names[dead], newcomer.host, host=node.host)
    voters, _ = voters_of(alive[0], 3)
    assert dead.host not in voters


def test_every_machine_is_replaced_over_and_over(machines):
    """Those that stand by end in order, voters are killed, and the disks are gone. IDETCD_TEST_ROUNDS: how often; 2 take 2 min, and
    hardly any of the processor: a voter is replaced when it has been silent for 10 s."""
    count, rounds = 5, int(os.environ.get("IDETCD_TEST_ROUNDS", "2"))
    cluster = machines(count, peers=range(2, count * (rounds + 1) + 2), lease=8)
    for number in range(2, count + 2):
        cluster.start(number)
    names = {number: wait_name(node) for number, node in cluster.made.items()}
    founded = group_of(cluster.made[2])["cluster"]

    def replace(gone, number):
        node = cluster.made.pop(gone)
        freed = names.pop(gone)
        if node.running():
            node.kill()
        shutil.rmtree(cluster.state(gone))
        newcomer = cluster.start(number)
        wait_name(newcomer, freed, timeout=30)
        assert group_of(newcomer)["cluster"] == founded
        for other, name in names.items():
            stays = cluster.made[other]
            assert name_of(stays) == name and "is not this node's name" not in stays.out(), stays.logs(tail=200)
        names[number] = freed
        for known in cluster.made.values():
            wait_resolves([known], freed, newcomer.host, host=known.host)
    number = count + 2
    for _ in range(rounds):
        present = list(names)
        voters, _ = voters_of(cluster.made[present[0]], 3)
        stand_by = [one for one in present if cluster.made[one].host not in voters]
        for gone in stand_by:
            assert cluster.made[gone].terminate() == 0
            replace(gone, number)
            number += 1
        for gone in set(present) - set(stand_by):
            voters_of(cluster.made[number - 1], 3)
            replace(gone, number)
            number += 1
    assert not set(present) & set(names)


@pytest.mark.parametrize("crashed", [False, True])
def test_a_majority_that_is_lost_for_ever_is_recovered_by_hand(machines, crashed):
    """Also where the machine that is left has crashed: how far its etcd's log was committed need not be on its disk then."""
    cluster = machines(3)
    for number in (2, 3, 4):
        cluster.start(number)
    for node in cluster.made.values():
        wait_name(node)
    _, leader = voters_of(cluster.made[2], 3)
    survivor = next(number for number, node in cluster.made.items() if node.host != leader)
    left = cluster.made[survivor]
    name = name_of(left)
    for node in cluster.made.values():
        if node is not left:
            node.kill()
    if crashed:
        left.kill()
        left.launch()
    wait_until(lambda: run(left, "peers")[0] == 1, 20, lambda: run(left, "peers")[1])
    newcomers = [cluster.start(number) for number in (5, 6)]
    wait_until(lambda: name_of(left) is None, 20, left.logs)
    assert [name_of(node) for node in newcomers] == [None, None]
    def recovered():  # refused until they have been out of reach for long enough
        code, out, err = run(left, "peers", "recover", "--yes")
        refusals = ("not known yet", "nothing is lost", "owners may still hold names")
        assert code == 0 or any(refusal in err for refusal in refusals), err
        return out if code == 0 else None
    out = wait_until(recovered, 60, left.logs)
    assert "this node's data is the cluster's" in out and "no lost voter may come back" in out
    wait_name(left, name)
    for node in newcomers:
        wait_name(node)
    voters, _ = voters_of(left, 3)
    assert voters == {left.host, *(node.host for node in newcomers)}
    def data():
        return [cluster.data(number) for number in (survivor, 5, 6)]
    wait_until(lambda: data() in [[one] * 3 for one in data()], 10, lambda: f"the voters to have the same: {data()}")


def test_machines_with_copies_of_one_disk_image(machines):
    """The image was made of a machine that had started; later one of a member, which votes."""
    cluster = machines(3, limit=4)
    image = cluster.start(2)
    image.wait_logged("1 of 2 machines seen")
    assert image.terminate() == 0
    for number in (3, 4):
        cluster.copy_state(2, number)
    for number in (2, 3, 4):
        cluster.start(number)
    names = {node: wait_name(node) for node in cluster.made.values()}
    assert set(names.values()) == {worker(n) for n in (1, 2, 3)}
    voters, _ = voters_of(cluster.made[2], 3)
    cluster.copy_state(3, 5)
    copy = cluster.start(5)
    copy.wait_logged("was written on another machine")
    wait_name(copy, worker(4))
    assert not cluster.etcds(5)
    for node, name in names.items():
        wait_name(node, name)
    assert voters_of(copy, 3)[0] == voters


def test_the_older_of_two_machines_dies(machines):
    """It alone votes. The younger one has its name until its time is over, founds nothing, and goes on when the other one is back."""
    cluster = machines(2, limit=3)
    for number in (2, 3):
        cluster.start(number)
    names = {number: wait_name(node) for number, node in cluster.made.items()}
    voters, _ = voters_of(cluster.made[2], 1)
    older, younger = sorted(cluster.made, key=lambda number: cluster.made[number].host not in voters)
    founded = group_of(cluster.made[older])["cluster"]
    cluster.made[older].kill()
    stays = cluster.made[younger]
    wait_until(lambda: name_of(stays) is None, 15, stays.logs)
    wait_resolves([stays], names[younger], stays.host, host=stays.host)  # as stale
    newcomer = cluster.start(4)
    newcomer.wait_logged("a member of the cluster")
    code, out, err = run(stays, "peers", "recover", "--yes")
    assert code == 1 and "this machine has no data of etcd" in err, out + err
    assert name_of(newcomer) is None and group_of(newcomer)["cluster"] == founded
    cluster.start(older)
    for number, name in names.items():
        wait_name(cluster.made[number], name)
    wait_name(newcomer, worker(3))


def test_a_voter_says_that_it_votes_while_another_one_stands_still(machines):
    cluster = machines(3)
    for number in (2, 3, 4):
        cluster.start(number)
    for node in cluster.made.values():
        wait_name(node)
    _, leader = voters_of(cluster.made[2], 3)
    frozen, *_ = (number for number, node in cluster.made.items() if node.host != leader)
    etcd, = cluster.etcds(frozen)
    os.kill(etcd, signal.SIGSTOP)
    asked = [node for number, node in cluster.made.items() if number != frozen]
    said = [group_of(node) for node in asked for _ in range(3)]
    os.kill(etcd, signal.SIGCONT)
    assert all(group["role"] == "votes" and group["connected"] and group["problem"] == "" for group in said), said
    assert [voter["address"] for voter in said[-1]["voters"] if not voter["healthy"]] == [f"127.0.0.{frozen}:{cluster.port}"]


def test_a_healthy_cluster_is_not_recovered(machines):
    cluster = machines(3)
    for number in (2, 3, 4):
        cluster.start(number)
    names = {node: wait_name(node) for node in cluster.made.values()}
    voters, _ = voters_of(cluster.made[2], 3)
    for node in names:
        def refused(node=node):
            """A machine that was just promoted, or does not know the others yet, gives another reason."""
            code, out, err = run(node, "peers", "recover", "--yes")
            assert code == 1, out + err
            return "nothing is lost" in err
        wait_until(refused, 10, node.logs)
    assert voters_of(cluster.made[2], 3)[0] == voters
    for node, name in names.items():
        wait_name(node, name)


def test_machines_that_keep_nothing_found_anew_when_all_have_stopped(machines):
    cluster = machines(2)
    for number in (2, 3):
        cluster.start(number, state=False)
    for node in cluster.made.values():
        wait_name(node)
    first = group_of(cluster.made[2])["cluster"]
    for node in cluster.made.values():
        node.kill()
    for node in cluster.made.values():
        node.launch()
        node.wait_logged("silent after a restart")
    for node in cluster.made.values():
        wait_until(lambda n=node: group_of(n)["cluster"], 15, node.logs)
        wait_name(node)
    assert group_of(cluster.made[2])["cluster"] != first


@pytest.mark.parametrize("knowing", [2, 5], ids=["the older one knows", "the younger one knows"])
def test_two_clusters_that_meet_become_the_older_one(machines, knowing):
    cluster = machines(3, limit=6)
    older, younger = (2, 3, 4), (5, 6, 7)
    for side in (older, younger):  # each has a founded cluster, and the names 1 to 3 in it
        for number in side:
            cluster.start(number, peers=side)
        assert {wait_name(cluster.made[number]) for number in side} == {worker(n) for n in (1, 2, 3)}
    survives = group_of(cluster.made[2])["cluster"]
    dissolves = group_of(cluster.made[5])["cluster"]
    assert survives != dissolves
    cluster.made[knowing].terminate()
    wait_name(cluster.start(knowing, peers=(*older, *younger)))  # its own address among them

    def are_one():
        nodes = list(cluster.made.values())
        joined = [node for node in nodes if group_of(node)["cluster"] == survives]
        names = [name for name in map(name_of, joined) if name]
        assert len(names) == len(set(names)), names
        return len(names) == len(nodes)
    wait_until(are_one, 90, lambda: "\n".join(f"{n}: {run(node, 'peers')[1]}{node.logs(tail=60)}" for n, node in cluster.made.items()))
    for number in younger:
        node = cluster.made[number]
        assert f"the cluster {dissolves} dissolves" in node.logs(tail=1000)
        assert Metrics.of(cluster.port + 3, host=node.host).sum("idetcd_peers_dissolved_total") == 1
        assert not os.path.exists(os.path.join(cluster.state(number), f"peers-{cluster.port}", dissolves))
    for node in cluster.made.values():
        for other in cluster.made.values():
            wait_resolves([node], name_of(other), other.host, host=node.host)
    voters, _ = voters_of(cluster.made[2], 3)
    assert voters == {f"127.0.0.{number}" for number in older}


def test_a_machine_whose_corefile_is_broken_when_its_cluster_dissolves_is_named_when_it_is_mended(machines):
    cluster = machines(1, limit=2)
    older = cluster.start(2)
    wait_name(older)
    younger = cluster.start(3, peers=[3])
    wait_name(younger)
    survives = group_of(older)["cluster"]
    with open(younger.corefile_path, encoding="utf-8") as file:
        good = file.read()
    with open(younger.corefile_path, "w", encoding="utf-8") as file:
        file.write(good.replace("limit", "no-option"))
    older.terminate()
    older = cluster.start(2, peers=[2, 3])  # tells the younger one
    younger.wait_logged("dissolves")
    younger.signal(signal.SIGHUP)  # a reload beside it
    younger.wait_logged("Restart failed")
    wait_until(lambda: group_of(younger)["cluster"] == survives, 60, younger.logs)
    assert name_of(younger) is None
    with open(younger.corefile_path, "w", encoding="utf-8") as file:
        file.write(good.replace("limit 2", "limit 3"))
    assert {wait_name(older), wait_name(younger, timeout=40)} == {worker(1), worker(2)}
    assert "only 'fallthrough' changes without a restart" in younger.logs(tail=1000)


def test_a_machine_that_is_cut_off_loses_its_name_and_founds_nothing(lan):
    cluster = lan()
    cut, *others = [cluster.start(number) for number in (2, 3, 4)]
    for node in (cut, *others):
        wait_name(node)
    founded = group_of(cut)["cluster"]
    voters_of(cut, 3)
    cluster.plug(2, "down")
    wait_until(lambda: name_of(cut) is None, 10, cut.logs)
    newcomer = cluster.start(5)
    for node in (newcomer, *others):
        wait_name(node)
    assert name_of(cut) is None and group_of(cut)["cluster"] == founded
    cluster.plug(2, "up")
    wait_name(cut)
    assert {group_of(node)["cluster"] for node in (cut, newcomer, *others)} == {founded}


def test_a_voter_whose_address_changes_goes_on_voting(lan):
    cluster = lan()
    moved, *others = [cluster.start(number) for number in (2, 3, 4)]
    names = {node: wait_name(node) for node in (moved, *others)}
    voters_of(others[0], 3)
    cluster.address(2, before=2, now=12)

    def condition():
        voters = group_of(others[0])["voters"]
        return all(voter["healthy"] for voter in voters) and {voter["address"] for voter in voters} == {
            f"10.77.0.{number}:2390" for number in (3, 4, 12)}
    wait_until(condition, 30, lambda: run(others[0], "peers")[1] + moved.logs(tail=100))
    for node, name in names.items():
        wait_name(node, name)


def test_a_clock_that_is_ten_years_off_changes_nothing_but_the_number(machines, directory):
    cluster = machines(3)
    clocks = Clocks(directory)
    clocks.set(wall=10 * 365 * 86400)
    late = cluster.start(2, env=clocks.env)  # was started first, and says that it was last
    late.wait_logged("1 of 2 machines seen")
    others = [cluster.start(number) for number in (3, 4)]
    assert {wait_name(node) for node in (late, *others)} == {worker(n) for n in (1, 2, 3)}
    assert name_of(late) != worker(1)
    voters_of(late, 3)  # its certificate and those of the others are good
    clocks.set(wall=0)
    for node in (late, *others):
        wait_name(node)
    clocks.close()


def test_a_voter_with_a_full_disk_costs_nobody_a_name(machines):
    cluster = machines(3, limit=4)
    os.mkdir(cluster.state(2))
    full = cluster.start(2, prefix=["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=200m none "$0" && exec "$@"', cluster.state(2)])
    others = [cluster.start(number) for number in (3, 4)]
    names = {node: wait_name(node) for node in (full, *others)}
    voters_of(full, 3)
    with open(f"/proc/{full.pid}/root{cluster.state(2)}/ballast", "wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(bytes(1 << 20))
    newcomer = cluster.start(5)  # the other two write on
    wait_name(newcomer, worker(4))
    for node, name in names.items():
        wait_name(node, name)
    for node in (newcomer, *others):
        wait_resolves([node], names[full], full.host, host=node.host)


def test_server_and_helper_killed_at_once_leave_no_etcd(machines):
    cluster = machines(1)
    node = cluster.start(2)
    wait_name(node)
    assert len(cluster.etcds(2)) == 1
    helper, = node.children()
    os.kill(helper, signal.SIGSTOP)  # else it would see the end of the server
    node.kill()
    os.kill(helper, signal.SIGKILL)
    wait_until(lambda: not cluster.etcds(2), 10, "etcd to end")
