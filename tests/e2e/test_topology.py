"""`topology`: the place of a node in its network, by which launchers order the members."""

import json
import os

import pytest

from corefiles import corefile
from harness.processes import wait_until
from test_cli import one_line, run

NAMES = [f"worker{i}.tf.local" for i in range(1, 6)]
BY_PLACE = [NAMES[i - 1] for i in (3, 1, 5, 2, 4)]
PORT = ("--port", "29500")


def script(directory, name, text):
    path = os.path.join(directory, name)
    with open(path, "w", encoding="ascii") as file:
        file.write(f"#!/bin/sh\n{text}\n")
    os.chmod(path, 0o755)
    return path


def starter(etcd, nodes):
    def start(number, *options, env=None):
        node = nodes.make(corefile(etcd.endpoint, options=[f"address 192.0.2.{number}", *options]), f"node{number}")
        node.start(env=env)
        node.wait_owns(etcd)
        return node
    return start


@pytest.fixture
def five(etcd, nodes, directory):
    """By a file, a program, not at all, a variable, and what is no place."""
    start = starter(etcd, nodes)
    with open(os.path.join(directory, "place"), "w", encoding="ascii") as file:
        file.write("  z1/rack2/s1 \nmore\n")
    return [start(1, f"topology file {directory}/place"),
            start(2, f"topology {script(directory, 'place.sh', 'echo z1/rack2-b/$1')} s7"),
            start(3, "topology env PLACE", env={"PLACE": "z1/rack2"}),
            start(4, "topology env NOWHERE"),
            start(5, "topology env PLACE", env={"PLACE": "z1/rack2/s1"})]


def test_launchers_order_members_by_place(five, etcd):
    places = {slot["name"]: slot["topology"] for slot in json.loads(run(five[0], "members", "--json")[1])["clusters"][0]["slots"]}
    assert places == {"worker1.tf.local.": "z1/rack2/s1", "worker2.tf.local.": "z1/rack2-b/s7", "worker3.tf.local.": "z1/rack2",
                      "worker4.tf.local.": None, "worker5.tf.local.": "z1/rack2/s1"}
    assert json.loads(etcd.pairs()[b"worker1.tf.local."]["value"])["topology"] == "z1/rack2/s1"
    for node in five:
        assert run(node, "hostfile", "--order", "topology")[1].split() == BY_PLACE
    assert run(five[0], "hostfile")[1].split() == run(five[0], "hostfile", "--order=number")[1].split() == NAMES
    table = run(five[1], "members", "--order=topology")[1].splitlines()
    assert [line.split()[1] for line in table[2:]] == BY_PLACE and "PLACE" in table[1]
    said = json.loads(run(five[1], "members", "--order=topology", "--json")[1])
    assert [slot["name"].rstrip(".") for slot in said["clusters"][0]["slots"]] == BY_PLACE
    for rank, name in enumerate(BY_PLACE):
        node = five[NAMES.index(name)]
        assert run(node, "torchrun-env", *PORT, "--order=topology")[1].splitlines()[:3] == [
            f"RANK={rank}", "WORLD_SIZE=5", "MASTER_ADDR=worker3.tf.local"]
        task = json.loads(run(node, "tf-config", *PORT, "--role=w", "--order=topology")[1])["task"]
        assert task == {"type": "w", "index": rank}
    code, _, err = run(five[0], "hostfile", "--order=sideways")
    assert code == 2 and "--order" in one_line(err)


def test_who_has_no_place_says_why(etcd, nodes, directory):
    start = starter(etcd, nodes)
    for number, (options, why) in enumerate((
            (f"topology file {directory}/missing", "missing"),
            (f"topology {script(directory, 'bad.sh', 'echo a//b')}", "no place like zone/rack/switch"),
            (f"topology {script(directory, 'fails.sh', 'echo a; exit 3')}", "has failed"),
            (f"topology {directory}/none.sh", "No such file")), 1):
        node = start(number, options)
        wait_until(lambda node=node, why=why: any("topology" in line and why in line for line in node.logs(400).splitlines()), 10, node.logs)


def test_a_program_that_does_not_end_holds_nobody_up(etcd, nodes, directory):
    node = starter(etcd, nodes)(1, f"topology {script(directory, 'hangs.sh', 'echo a/b; exec sleep 1000')}")
    assert "has not ended after 5 s" in node.logs(400)
