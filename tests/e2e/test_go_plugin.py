"""A cluster that is being migrated: nodes of the Go plugin and ours, over one etcd, with one pattern."""

import base64
import json

import pytest

from corefiles import corefile
from dns_client import answers, ask, assert_nodata, pointer, said_name, wait_gone, wait_resolves, wait_says
from harness.etcd import token_of
from harness.go_plugin import GoPlugin
from harness.processes import wait_until
from harness.state import contents


def worker(number):
    return f"worker{number}.tf.local."


def states(etcd, first):
    """What etcd held at each revision from `first` to now: key -> (value, token, mod_revision)."""
    last = int(etcd.call("kv/range", key="AA==")["header"]["revision"])
    for revision in range(first, last + 1):
        reply = etcd.call("kv/range", key="AA==", range_end="AA==", revision=str(revision))
        yield {base64.b64decode(kv["key"]).decode():
               (base64.b64decode(kv["value"]).decode(), token_of(int(kv["create_revision"]), base64.b64decode(kv["value"])),
                int(kv["mod_revision"]))
               for kv in reply.get("kvs", [])}


def values_of(etcd, key, first=1):
    """Each value that was put at `key`, in order, whatever came between."""
    versions = {}
    for state in states(etcd, first):
        if key in state:
            versions[state[key][2]] = state[key][0]
    return [versions[revision] for revision in sorted(versions)]


# --- seen and respected ---

def test_every_value_that_the_plugin_writes_is_served(etcd, nodes):
    """It takes the addresses of its first interface, whatever they are, and leaves out what it did not find."""
    fields = [
        {"ipv4": "192.0.2.21", "ipv6": "2001:db8::21", "port": "53"},
        {"ipv4": "192.0.2.22", "port": "53"},
        {"ipv6": "2001:db8::23", "port": "1053"},
        {"ipv4": "192.0.2.24", "ipv6": "fe80::42:acff:fe11:2", "port": "53"},
        {"ipv4": "192.0.2.25"},
        {"port": "53"},
        {},
    ]
    go = [GoPlugin(etcd, **some).start() for some in fields]
    try:
        node = nodes.start(corefile(etcd.endpoint, options=["address 192.0.2.7"]))
        assert node.wait_owns(etcd) == worker(8)
        go.append(GoPlugin(etcd, ipv4="192.0.2.29", port="53").start())
        assert go[0].value == '{"ipv4":"192.0.2.21","ipv6":"2001:db8::21","port":"53"}' and go[6].value == "{}"
        assert [one.name for one in go] == [worker(number) for number in (1, 2, 3, 4, 5, 6, 7, 9)]
        wait_resolves([node], worker(9), "192.0.2.29")
        for number, some in enumerate(fields, 1):
            for family, rdtype in (("ipv4", "A"), ("ipv6", "AAAA")):
                if family in some:
                    assert answers(node, worker(number), rdtype) == [some[family]]
                    assert answers(node, worker(number), rdtype, tcp=True) == [some[family]]
                else:
                    assert_nodata(ask(node, worker(number), rdtype), "tf.local.")
        assert "is no record" not in node.logs()
    finally:
        for one in go:
            one.kill()


def test_who_comes_when_does_not_matter_and_gaps_are_filled(etcd, nodes):
    text = corefile(etcd.endpoint, options=["address 192.0.2.7"])
    one = nodes.start(text)
    assert one.wait_owns(etcd) == worker(1)
    with GoPlugin(etcd, lease=6, ipv4="192.0.2.22", port="53") as two, GoPlugin(etcd, lease=6, ipv4="192.0.2.23") as three:
        assert two.start().name == worker(2) and three.start().name == worker(3)
        four = nodes.start(text)
        assert four.wait_owns(etcd) == worker(4)
        wait_resolves([one, four], worker(2), "192.0.2.22")  # a watch that has just begun is behind at first
        two.kill()
        assert answers(one, worker(2)) == ["192.0.2.22"], "until the lease has ended"
        wait_gone([one, four], worker(2), timeout=10)
        before = etcd.pairs()
        crowd = nodes.start_cluster(text, 2, etcd)
        assert {node.owned_name(etcd) for node in crowd} == {worker(2), worker(5)}
        for name in (worker(1), worker(4)):
            assert etcd.pairs()[name.encode()] == before[name.encode()], "no node gives way for that"
        wait_resolves([one, four, *crowd], worker(2), "192.0.2.7")
        wait_resolves([one, four, *crowd], worker(3), "192.0.2.23")
        assert three.running and not three.crashed


def test_the_limit_counts_both_kinds(etcd, nodes):
    text = corefile(etcd.endpoint, limit=3, options=["when-full exit"])
    with GoPlugin(etcd, limit=3, ipv4="192.0.2.21") as first, GoPlugin(etcd, limit=3, ipv4="192.0.2.22") as second:
        first.start()
        second.start()
        assert nodes.start(text).wait_owns(etcd) == worker(3)
        refused = nodes.make(text).launch()
        assert refused.exit_code(10) == 1
        assert "Could not have more than 3 nodes in your cluster." in refused.err()
        with GoPlugin(etcd, limit=3, ipv4="192.0.2.23") as third:
            third.launch()
            wait_until(lambda: third.refused, 5, "the Go node to find no name")


# --- renewals ---

def renewed_without_disturbing(etcd, nodes, lease, times):
    node = nodes.start(corefile(etcd.endpoint, lease=lease, options=["address 192.0.2.7"]))
    assert node.wait_owns(etcd) == worker(1)
    with GoPlugin(etcd, lease=lease, ipv4="192.0.2.22", ipv6="2001:db8::22", port="53") as go:
        assert go.start().name == worker(2)
        wait_resolves([node], worker(2), "192.0.2.22")
        wait_says(node, worker(1))
        before, seen, said = etcd.pairs(), set(), node.logs(tail=1000)

        def renewed():
            seen.add((answers(node, worker(2)) == ["192.0.2.22"], said_name(node) == worker(1)))
            return len(go.leases) > times

        wait_until(renewed, lease * (times + 2), "the Go node to renew its name", interval=0.02)
        wait_until(lambda: go.leases[0] not in etcd.leases(), lease + 5, "the first lease to end")
        assert go.running and not go.crashed
        after = etcd.pairs()
        ours, theirs = worker(1).encode(), worker(2).encode()
        assert after[ours] == before[ours], "nothing of ours was written again"
        assert after[theirs]["create_revision"] == before[theirs]["create_revision"]
        assert after[theirs]["mod_revision"] > before[theirs]["mod_revision"]
        assert after[theirs]["lease"] == go.leases[-1] and len(set(go.leases)) == len(go.leases)
        assert seen == {(True, True)}
        assert node.logs(tail=1000) == said, "and nothing was worth a line"


def test_renewals_under_new_leases_disturb_nobody(etcd, nodes):
    renewed_without_disturbing(etcd, nodes, lease=6, times=2)


def test_renewals_at_the_real_pace(etcd, nodes):
    """Twice, and past the end of the first lease."""
    renewed_without_disturbing(etcd, nodes, lease=20, times=2)


# --- the plugin's race ---

def found_free(etcd, go):
    """Asked before ours claimed, put after."""
    assert go.probe() == worker(1)
    return lambda: go.put(worker(1))


def renewed_too_late(etcd, go):
    """It found its own value; then its lease ended and ours claimed; then it renewed."""
    go.put(worker(1))
    found = go.get(worker(1))
    assert base64.b64decode(found["value"]).decode() == go.value
    etcd.call("lease/revoke", ID=str(go.leases[-1]))
    return lambda: go.put(worker(1))


@pytest.mark.parametrize("begin", [found_free, renewed_too_late])
@pytest.mark.parametrize("address", ["192.0.2.21", "192.0.2.7"], ids=["another machine", "the same machine"])
def test_an_overwritten_name_is_left_to_the_other(etcd, nodes, directory, begin, address):
    """Also where the value says just what ours says, but for the ID: it is bound to a lease that another process renews."""
    events = f"{directory}/events"
    node = nodes.make(corefile(etcd.endpoint, lease=20, options=[
        "address 192.0.2.7", f"state {directory}/state", f'on-claim sh -c "echo $IDETCD_EVENT $IDETCD_NAME >> {events}"']))
    go = GoPlugin(etcd, lease=20, ipv4=address, port=str(node.port))
    overwrite = begin(etcd, go)
    node.start()
    wait_says(node, worker(1))
    wait_until(lambda: contents(events) == "claim worker1.tf.local.\n", 5, lambda: contents(events))
    uuid = etcd.names()[worker(1)]["id"]
    etcd.put("before.tf.local.", '{"ipv4":"192.0.2.99"}')
    wait_resolves([node], "before.tf.local.", "192.0.2.99")
    overwrite()
    overwritten = etcd.pairs()[worker(1).encode()]["mod_revision"]
    etcd.put("after.tf.local.", '{"ipv4":"192.0.2.99"}')
    wait_until(lambda: answers(node, "after.tf.local.") == ["192.0.2.99"], 5, "the node to have seen that", interval=0)
    assert said_name(node) != worker(1), "not its name from the moment that it has seen it"
    wait_says(node, worker(2))
    assert answers(node, worker(1)) == [address]
    assert pointer(node, "192.0.2.7") == [worker(2)]
    node.wait_logged("lost worker1.tf.local.: its key was overwritten by somebody else")
    wait_until(lambda: contents(events).count("\n") == 3, 5, lambda: contents(events))
    assert contents(events) == "claim worker1.tf.local.\nloss worker1.tf.local.\nclaim worker2.tf.local.\n"

    go.renew()
    go.renew()
    held = etcd.names()
    assert held[worker(1)] == json.loads(go.value) and held[worker(2)]["id"] == uuid
    assert values_of(etcd, worker(1), first=overwritten) == [go.value] * 3, "no war"
    assert len(values_of(etcd, worker(2))) == 1
    assert node.terminate() == 0
    assert set(etcd.names()) == {worker(1)}, "ours goes, theirs stays"
    go.renew()
    assert not go.crashed


# --- coming and going ---

def test_the_name_of_a_dead_go_node_goes_to_the_next_of_ours(etcd, nodes):
    text = corefile(etcd.endpoint, lease=3, options=["address 192.0.2.7"])
    with GoPlugin(etcd, lease=5, ipv4="192.0.2.21", port="53") as go:
        assert go.start().name == worker(1)
        node = nodes.start(text)
        assert node.wait_owns(etcd) == worker(2)
        go.wait_renewed()
    wait_gone([node], worker(1), timeout=10)
    newcomer = nodes.start(text)
    assert newcomer.wait_owns(etcd) == worker(1)
    wait_resolves([node, newcomer], worker(1), "192.0.2.7")
    assert node.owned_name(etcd) == worker(2)


def test_a_machine_that_is_migrated(etcd, nodes, directory):
    """The plugin is stopped, idetcd started in its place: same address, same port. The name that the plugin has left
    behind may not be taken by any node, since none can know that it was stopped; the machine gets the next, and keeps it."""
    node = nodes.make(corefile(etcd.endpoint, options=["address 192.0.2.21", f"state {directory}/state"]))
    with GoPlugin(etcd, lease=20, ipv4="192.0.2.21", port=str(node.port)) as go:
        assert go.start().name == worker(1)
    left = etcd.pairs()[worker(1).encode()]
    node.start()
    wait_says(node, worker(2))
    assert etcd.pairs()[worker(1).encode()] == left
    assert answers(node, worker(1)) == ["192.0.2.21"]
    assert pointer(node, "192.0.2.21") == [worker(2)]
    etcd.call("lease/revoke", ID=str(go.leases[-1]))  # as at its end
    wait_gone([node], worker(1), timeout=10)
    assert said_name(node) == worker(2)
    other = nodes.start(corefile(etcd.endpoint, options=["address 192.0.2.22"]))
    assert other.wait_owns(etcd) == worker(1)
    node.kill()
    node.start()
    wait_says(node, worker(2))


def test_a_name_that_a_go_node_took_meanwhile_is_not_taken_back(etcd, nodes, directory):
    node = nodes.start(corefile(etcd.endpoint, lease=6, options=["address 192.0.2.7", f"state {directory}/state"]))
    assert node.wait_owns(etcd) == worker(1)
    wait_until(lambda: worker(1) in contents(f"{directory}/state/identity"), 5, "the name to be remembered")
    node.kill()
    with GoPlugin(etcd, ipv4="192.0.2.21", port=str(node.port + 1)) as go:
        assert go.probe() == worker(2), "the lease has not ended"
        wait_until(lambda: not etcd.names(), 10, "the lease to end")
        assert go.start().name == worker(1)
        node.start()
        wait_says(node, worker(2))
        assert etcd.names()[worker(1)] == json.loads(go.value)


# --- a crowd ---

def test_a_crowd_of_both_kinds_started_at_once(etcd, nodes, directory):
    """The plugin's nodes run into each other and over ours, as they always did. Ours do neither, at no revision."""
    text = corefile(etcd.endpoint, limit=20, lease=20, options=[
        "address 192.0.2.7", f'on-claim sh -c "echo $IDETCD_EVENT $IDETCD_NAME $IDETCD_TOKEN $IDETCD_UUID >> {directory}/$IDETCD_UUID.events"'])
    first = int(etcd.call("kv/range", key="AA==")["header"]["revision"])
    go = [GoPlugin(etcd, limit=20, lease=12, ipv4=f"192.0.2.{100 + number}", port="53") for number in range(10)]
    ours = [nodes.make(text) for _ in range(10)]
    try:
        for one, node in zip(go, ours):
            node.launch()
            one.launch()

        def settled():
            held = etcd.names()
            believed = {one.name for one in go if one.name}
            return (len(believed) + sum("id" in value for value in held.values()) == len(held) and all(one.name for one in go)
                    and {value["port"] for value in held.values() if "id" in value} == {str(node.port) for node in ours})

        wait_until(settled, 30, lambda: f"all to have names: {etcd.names()}", interval=0.1)
        for one in go:
            assert not one.fault and not one.crashed
        for node in ours:
            node.wait_answers()
            wait_says(node, node.owned_name(etcd))
        # Of two Go nodes with one name only the later one goes on renewing it.
        next(one for one in go if etcd.names()[one.name] == json.loads(one.value)).wait_renewed(2)
        assert settled(), "and it stays like that"
        names_of = {}
        for node in ours:
            assert said_name(node) == node.owned_name(etcd)
            names_of[etcd.names()[said_name(node)]["id"]] = said_name(node)
        assert len(names_of) == len(set(names_of.values())) == 10
        for name, value in etcd.names().items():
            wait_resolves(ours, name, value["ipv4"])
        assert not any(key.startswith(b"/") for key in etcd.pairs()), "no ticket is left"

        created = check_history(etcd, first)
        for uuid, name in names_of.items():
            check_hook_runs(contents(f"{directory}/{uuid}.events"), uuid, name, created)
    finally:
        for one in go:
            one.kill()


def check_history(etcd, first):
    """At no revision has one of ours two names, and what is taken over is left alone. Returns what each of ours ever
    had: (name, token, UUID)."""
    created, lost = set(), set()
    for state in states(etcd, max(1, first)):
        holders = []
        for key, (value, create_revision, _) in state.items():
            if key.startswith("/"):
                continue
            uuid = json.loads(value).get("id")
            if uuid:
                assert (key, create_revision) not in lost, f"{uuid} has put its value over {key} of another"
                created.add((key, create_revision, uuid))
                holders.append(uuid)
            elif any(known[:2] == (key, create_revision) for known in created):
                lost.add((key, create_revision))
        assert len(holders) == len(set(holders)), holders
    return created


def check_hook_runs(events, uuid, name, created):
    """A node that reported claims and losses in turn, none that etcd did not give it, and at last its name."""
    lines = [line.split() for line in events.splitlines()]
    assert [line[0] for line in lines] == ["claim", "loss"] * (len(lines) // 2) + ["claim"], events
    for event, owned, token, holder in lines:
        assert holder == uuid and (owned, int(token), uuid) in created, (event, owned, token)
    assert lines[-1][1] == name
