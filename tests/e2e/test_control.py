"""What a node says of its cluster over the control socket, and lets an operator change there."""

import os
import re
import socket
import stat
import time

import pytest

from corefiles import corefile
from dns_client import answers, wait_gone, wait_resolves
from harness.go_plugin import GoPlugin
from harness.processes import wait_until

NAME = "worker1.tf.local."
LEASE = 20  # seconds


@pytest.fixture
def pair(etcd, nodes):
    """Two nodes, the owner of worker1 first."""
    both = nodes.start_cluster(corefile(etcd.endpoint, lease=LEASE, options=["address 192.0.2.7"]), 2, etcd)
    for node in both:
        wait_resolves(both, node.owned_name(etcd), "192.0.2.7")
        # It answers for its name before it says so.
        wait_until(lambda n=node: cluster_of(n)["name"] and n.control("/v1/status")[1]["ready"], 10, node.logs)
    return sorted(both, key=lambda node: node.owned_name(etcd))


def cluster_of(node):
    status, body = node.control("/v1/status")
    assert status == 200
    [cluster] = body["clusters"]
    return cluster


def slots_of(node):
    status, body = node.control("/v1/members")
    assert status == 200, body
    [cluster] = body["clusters"]
    return cluster["slots"]


def test_who_may_ask_is_a_matter_of_the_files_permissions(pair):
    mode = os.stat(pair[0].socket_path()).st_mode
    assert stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o660


def test_the_status_says_what_the_node_owns(pair, etcd):
    first, _ = pair
    status, body = first.control("/v1/status")
    assert status == 200 and body["ready"] is True and body["not_ready"] == []
    cluster = cluster_of(first)
    assert cluster["name"] == NAME and cluster["id"] == 1 and cluster["zone"] == "tf.local."
    assert cluster["token"] == etcd.pairs()[NAME.encode()]["token"]
    assert cluster["pattern"] == "worker{{.ID}}.tf.local." and cluster["limit"] == 10
    assert 0 < cluster["lease_left_seconds"] <= cluster["lease_seconds"] == LEASE
    assert cluster["addresses"] == ["192.0.2.7"] and cluster["drained"] is False and cluster["observes"] is False
    assert cluster["servers"] == [f"127.0.0.1:{first.port}", f"[::1]:{first.port}"]
    assert cluster["names"] == cluster["names_in_etcd"] == 2 and cluster["fresh"] is True and 0 <= cluster["confirmed_seconds_ago"] < LEASE
    assert cluster["endpoints"] == [etcd.endpoint]
    assert cluster["node"] == etcd.names()[NAME]["id"]


def test_an_etcd_that_is_away_is_said(etcd, nodes):
    """Names are still fresh, and answered; but the operator is told, and since when."""
    node = nodes.start(corefile(etcd.endpoint, lease=60, options=["address 192.0.2.7"]))

    def is_well():
        _, body = node.control("/v1/status")
        return body["ready"] and body["degraded"] == []

    wait_until(is_well, 20, node.logs)
    assert cluster_of(node)["store_connected"] is True
    etcd.kill()
    wait_until(lambda: node.control("/v1/status")[1]["degraded"], 10, node.logs)
    _, body = node.control("/v1/status")
    [reason] = body["degraded"]
    assert body["ready"] is True, body
    assert re.fullmatch(r"worker\{\{\.ID\}\}\.tf\.local\.: etcd is away since [\dT:-]+Z", reason)
    [cluster] = body["clusters"]
    assert cluster["fresh"] is True and cluster["store_connected"] is False and abs(time.time() - cluster["store_since"]) < 60
    etcd.start()
    wait_until(is_well, 20, node.logs)


def test_a_name_that_was_lost_is_none_that_is_still_to_come(etcd, nodes):
    node = nodes.start(corefile(etcd.endpoint))
    node.wait_owns(etcd)
    wait_until(lambda: cluster_of(node)["had_name"], 10, node.logs)
    etcd.kill()
    wait_until(lambda: cluster_of(node)["name"] is None, 20, node.logs)
    assert cluster_of(node)["had_name"] is True
    etcd.start()


def test_a_parameter_that_is_given_twice_is_refused(pair):
    first, _ = pair
    for path in ("/v1/drain?pattern=a&pattern=b", "/v1/flush?name=x&name=y"):
        assert first.control(path, "POST") == (400, {"error": f"{path[path.index('?') + 1:].split('=')[0]} may be given once"})


def test_a_node_without_a_name_says_so(stopped_etcd, nodes):
    node = nodes.start(corefile(stopped_etcd.endpoint))
    status, body = node.control("/v1/status")
    assert status == 200 and body["ready"] is False
    [reason] = body["not_ready"]
    assert re.fullmatch(r"idetcd: names not read from etcd, own name not claimed; etcd is away since \d{4}-\d\d-\d\dT[\d:]{8}Z", reason)
    cluster = cluster_of(node)
    assert cluster["name"] is None and cluster["token"] is None and cluster["lease_left_seconds"] is None
    assert cluster["names"] is None and cluster["names_in_etcd"] is None, "nobody knows"
    assert cluster["confirmed_seconds_ago"] is None and cluster["fresh"] is False
    assert node.control("/v1/members", timeout=90)[0] == 503
    status, body = node.control("/v1/drain", "POST")
    assert status == 409 and "no name" in body["error"]


def test_the_members_are_what_etcd_holds(pair, etcd):
    first, second = pair
    etcd.put("worker5.tf.local.", '{"ipv4":"198.51.100.5","port":"53"}')

    def with_the_third():
        slots = slots_of(second)
        return len(slots) == 3 and slots[2]["age_seconds"] is not None and slots

    slots = wait_until(with_the_third, 10, "the third slot from etcd, and its event from the watch")
    assert [slot["name"] for slot in slots] == [NAME, "worker2.tf.local.", "worker5.tf.local."]
    own, other, manual = slots[1], slots[0], slots[2]
    assert own["own"] and not other["own"] and not manual["own"]
    assert other["node"] == cluster_of(first)["node"] and other["addresses"] == ["192.0.2.7"]
    assert 0 <= other["lease_left_seconds"] <= LEASE and not other["permanent"] and not other["drained"]
    assert manual["permanent"] and manual["node"] is None and manual["lease_left_seconds"] is None
    assert manual["age_seconds"] >= 0
    assert second.control("/v1/members?pattern=worker%7B%7B.ID%7D%7D.tf.local.")[0] == 200
    assert second.control("/v1/members?pattern=worker%7B%7B.ID%7D%7D.tf.local")[0] == 200, "without the dot at its end"
    status, body = second.control("/v1/members?pattern=other")
    assert status == 404 and body["error"].endswith("there is worker{{.ID}}.tf.local.")


def test_a_node_of_the_go_plugin_is_a_member(pair, etcd):
    with GoPlugin(etcd, ipv4="198.51.100.9") as other:
        other.start()
        slot = wait_until(lambda: next((slot for slot in slots_of(pair[0]) if slot["id"] == 3), None), 10, "its slot")
    assert slot["node"] is None and not slot["permanent"] and slot["lease_left_seconds"] > 3
    assert slot["addresses"] == ["198.51.100.9"] and slot["drained"] is False


def test_a_drained_node_leaves_dns_and_keeps_its_name(pair, etcd):
    first, second = pair
    status, body = first.control("/v1/drain", "POST")
    assert status == 200 and body == {"nodes": [{"pattern": "worker{{.ID}}.tf.local.", "name": NAME, "drained": True, "lasts": "process"}]}
    assert "ipv4" not in etcd.names()[NAME], "etcd has it when the answer comes"
    for node in pair:
        wait_until(lambda node=node: answers(node, NAME) == [], 10, "no address any more")
    assert cluster_of(first)["drained"] is True and cluster_of(first)["name"] == NAME
    assert slots_of(second)[0]["drained"] is True
    status, body = first.control("/v1/undrain", "POST")
    assert status == 200 and body["nodes"][0]["drained"] is False
    wait_resolves(pair, NAME, "192.0.2.7")
    assert cluster_of(first)["drained"] is False


def test_only_post_changes_something(pair, etcd):
    for path in ("/v1/drain", "/v1/undrain", "/v1/release?name=worker1&revision=1"):
        assert pair[0].control(path)[0] == 405
    assert etcd.names()[NAME]["ipv4"] == "192.0.2.7"


def test_a_drain_outlives_a_restart(etcd, nodes, directory):
    text = corefile(etcd.endpoint, options=["address 192.0.2.7", f"state {directory}/state"])
    node = nodes.start(text)
    node.wait_owns(etcd)
    wait_until(lambda: cluster_of(node)["name"], 10, "its name")
    status, body = node.control("/v1/drain", "POST")
    assert status == 200 and body["nodes"][0]["lasts"] == "state"
    assert node.terminate() == 0
    node.start()
    node.wait_owns(etcd)
    wait_until(lambda: cluster_of(node)["name"] == NAME, 10, "its name")
    assert cluster_of(node)["drained"] is True and "ipv4" not in etcd.names()[NAME]
    node.wait_logged("this node is drained")
    assert node.control("/v1/undrain", "POST")[0] == 200
    wait_resolves([node], NAME, "192.0.2.7")


def test_a_reload_leaves_a_drained_node_drained(etcd, nodes):
    node = nodes.start(corefile(etcd.endpoint, options=["address 192.0.2.7"]))
    node.wait_owns(etcd)
    wait_until(lambda: cluster_of(node)["name"], 10, "its name")
    assert node.control("/v1/drain", "POST")[0] == 200
    node.signal(1)
    node.wait_logged("Reloading complete")
    assert cluster_of(node)["drained"] is True and cluster_of(node)["name"] == NAME


def test_a_permanent_key_is_released(pair, etcd):
    first, _ = pair
    etcd.put("worker5.tf.local.", '{"ipv4":"198.51.100.5"}')
    wait_resolves(pair, "worker5.tf.local.", "198.51.100.5")
    status, slot = first.control("/v1/slot?name=Worker5.tf.local")
    assert status == 200 and slot["permanent"] and slot["addresses"] == ["198.51.100.5"]
    etcd.put("worker5.tf.local.", '{"ipv4":"198.51.100.6"}')
    status, body = first.control(f"/v1/release?name=worker5.tf.local&revision={slot['revision']}", "POST")
    assert status == 409 and "changed" in body["error"], "what was shown is not what is there"
    assert b"worker5.tf.local." in etcd.pairs()
    status, slot = first.control("/v1/slot?name=worker5.tf.local.")
    status, body = first.control(f"/v1/release?name=worker5.tf.local.&revision={slot['revision']}", "POST")
    assert status == 200 and body == {"released": "worker5.tf.local."}
    wait_gone(pair, "worker5.tf.local.")
    assert first.control("/v1/slot?name=worker5.tf.local.")[0] == 404


@pytest.mark.parametrize("path, status", [
    ("/v1/release?name=worker9.tf.local.&revision=5", 409), ("/v1/release?name=worker1.tf.local.", 400),
    ("/v1/release?name=worker1.tf.local.&revision=x", 400), ("/v1/release?name=a.other.&revision=1", 404), ("/v1/release", 400)])
def test_what_cannot_be_released(pair, path, status):
    code, body = pair[0].control(path, "POST")
    assert code == status and "\n" not in body["error"], body


def test_a_cluster_that_a_reload_has_dropped_is_not_spoken_of(etcd, nodes):
    node = nodes.start(corefile(etcd.endpoint, options=["address 192.0.2.7"]))
    node.wait_owns(etcd)
    with open(node.corefile_path, "w", encoding="ascii") as file:
        file.write(corefile(etcd.endpoint, pattern="other{{.ID}}.tf.local.", options=["address 192.0.2.7"]))
    node.signal(1)
    node.wait_logged("Reloading complete")
    wait_until(lambda: cluster_of(node)["name"] == "other1.tf.local.", 10, "the new name")
    assert cluster_of(node)["pattern"] == "other{{.ID}}.tf.local."
    assert node.control("/v1/members?pattern=worker%7B%7B.ID%7D%7D.tf.local.")[0] == 404


def test_two_patterns_are_two_clusters(etcd, nodes):
    text = "".join(f"{name}.local {{\n    idetcd {{\n        endpoint {etcd.endpoint}\n        pattern {name}{{{{.ID}}}}.{name}.local.\n"
                   f"        address 192.0.2.7\n    }}\n}}\n" for name in ("one", "two"))
    node = nodes.start(text)
    wait_until(lambda: all(c["name"] for c in node.control("/v1/status")[1]["clusters"]), 20, "both names")
    status, body = node.control("/v1/members")
    assert status == 200 and [c["slots"][0]["name"] for c in body["clusters"]] == ["one1.one.local.", "two1.two.local."]
    status, body = node.control("/v1/drain?pattern=two%7B%7B.ID%7D%7D.two.local.", "POST")
    assert status == 200 and [n["name"] for n in body["nodes"]] == ["two1.two.local."]
    assert [c["drained"] for c in node.control("/v1/status")[1]["clusters"]] == [False, True]


def test_an_observer_has_no_name_to_drain(etcd, nodes):
    node = nodes.start(corefile(etcd.endpoint, options=["observe"]))
    assert cluster_of(node)["observes"] is True and cluster_of(node)["addresses"] == []
    status, body = node.control("/v1/drain", "POST")
    assert status == 409 and "observes" in body["error"]


def test_a_client_that_asks_for_nonsense_is_told(pair):
    assert pair[0].control("/v1/slot?name=")[0] == 404
    assert pair[0].control("/v1/slot?name=a..b")[0] == 404
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(pair[0].socket_path())
        client.sendall(b"nonsense\r\n\r\n")
        assert b"400" in client.recv(4096)


def test_the_names_held_are_those_of_the_pattern(pair, etcd):
    etcd.put("db.tf.local.", '{"ipv4":"198.51.100.5"}')
    etcd.put("worker11.tf.local.", '{"ipv4":"198.51.100.6"}')
    for node in pair:
        wait_until(lambda node=node: cluster_of(node)["names_in_etcd"] == 4, 10, "all names")
        assert cluster_of(node)["names"] == 2, "of ten slots two are held"


def test_a_slot_that_was_there_before_is_at_least_as_old_as_the_server(pair, etcd, nodes):
    third = nodes.start(corefile(etcd.endpoint, options=["observe"]))
    def seen():  # etcd may be asked before this node has read the names for the first time
        slots = slots_of(third)
        return len(slots) == 2 and all("age_at_least_seconds" in slot for slot in slots) and slots
    for slot in wait_until(seen, 10, lambda: f"the slots, not {slots_of(third)}"):
        assert slot["age_seconds"] is None and slot["age_at_least_seconds"] >= 0 and slot["own"] is False


def test_a_permanent_key_above_the_limit_is_released(pair, etcd):
    first, _ = pair
    for name in ("worker11.tf.local.", "db.tf.local."):
        etcd.put(name, '{"ipv4":"198.51.100.5"}')
        status, slot = first.control(f"/v1/slot?name={name}")
        assert status == 200 and slot["id"] is None and slot["permanent"]
        assert first.control(f"/v1/release?name={name}&revision={slot['revision']}", "POST")[0] == 200
        assert name.encode() not in etcd.pairs()


def test_what_is_no_slot_and_has_a_lease_is_not_released(pair, etcd):
    with GoPlugin(etcd, pattern="db{}.tf.local.", ipv4="198.51.100.9") as other:
        other.start()
        status, body = pair[0].control("/v1/slot?name=db1.tf.local.")
    assert status == 409 and "no slot" in body["error"]


def test_where_a_cluster_answers(etcd, nodes, free_port):
    port = free_port()
    text = (f". {{\n    bind 127.0.0.1\n    whoami\n}}\ntf.local:{port} {{\n    bind 127.0.0.2\n    idetcd {{\n"
            f"        endpoint {etcd.endpoint}\n        pattern worker{{{{.ID}}}}.tf.local.\n        observe\n    }}\n}}\n")
    node = nodes.start(text)
    assert cluster_of(node)["servers"] == [f"127.0.0.2:{port}"]
    status, body = node.control("/v1/members")
    assert status == 200 and body["clusters"][0]["servers"] == [f"127.0.0.2:{port}"]


def test_without_a_pattern_those_names_are_drained_that_there_are(etcd, nodes):
    text = "".join(f"{name}.local {{\n    idetcd {{\n        endpoint {etcd.endpoint}\n        pattern {name}{{{{.ID}}}}.{name}.local.\n"
                   f"        address 192.0.2.7\n{option}    }}\n}}\n" for name, option in (("one", ""), ("two", "        observe\n")))
    node = nodes.start(text)
    wait_until(lambda: node.control("/v1/status")[1]["clusters"][0]["name"], 20, "its name")
    status, body = node.control("/v1/drain", "POST")
    assert status == 200 and [n["name"] for n in body["nodes"]] == ["one1.one.local."]
    assert node.control("/v1/drain?pattern=two%7B%7B.ID%7D%7D.two.local.", "POST")[0] == 409
