"""`check`: a sick machine's node leaves DNS, or gives its name up, and comes back by itself; never too many at once."""

import http.server
import json
import os
import re
import threading
import time

from corefiles import corefile
from dns_client import answers, ask, rcode, said_name, wait_gone, wait_resolves, wait_says
from harness.processes import wait_until
from test_cli import run

FAST = ("check-interval 200ms", "check-fails 2", "check-timeout 30s")
NAMES = [f"worker{i}.tf.local." for i in range(1, 5)]


def set_sick(path, sick):
    if sick:
        with open(path, "w", encoding="ascii"):
            pass
    else:
        os.unlink(path)


def start(etcd, nodes, directory, number, *options, limit=10):
    """A node that is sick while its file is there, or the one of all."""
    check = f'check sh -c "! test -e {directory}/sick{number} && ! test -e {directory}/sick"'
    text = corefile(etcd.endpoint, lease=20, limit=limit, options=[f"address 192.0.2.{number}", check, *FAST, *options])
    return nodes.make(text, f"node{number}").start()


def cluster(node):
    return json.loads(run(node, "status", "--json")[1])["clusters"][0]


class Healthy(http.server.BaseHTTPRequestHandler):
    status = 200

    def do_GET(self):  # pylint: disable=invalid-name
        self.send_response(type(self).status)
        self.end_headers()

    def log_message(self, *_):  # pylint: disable=arguments-differ
        pass


def test_a_sick_machine_leaves_dns_and_comes_back(etcd, nodes, directory):
    """By a program, a port and a URL; apart from an operator's drain."""
    class Handler(Healthy):
        pass
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        port = server.server_address[1]
        node = start(etcd, nodes, directory, 1, f"check tcp {port}", f"check http http://127.0.0.1:{port}/health",
                     "interface lo as fabric")
        other = start(etcd, nodes, directory, 2)
        wait_resolves([other], NAMES[0], "192.0.2.1")
        wait_until(lambda: cluster(node)["token"], 10, node.logs)  # the others may see the claim first
        token = cluster(node)["token"]

        def goes(reason):
            wait_until(lambda: answers(other, NAMES[0]) == [], 20, node.logs)
            wait_gone([other], "worker1.fabric.tf.local.")
            wait_until(lambda: reason in (cluster(node)["sick"] or ""), 20, node.logs)
            status = cluster(node)
            assert status["out"] and not status["drained"]
            assert re.search(rf"degraded +.*this machine is sick: .*{re.escape(reason)}", run(node, "status")[1])
            assert said_name(node) == NAMES[0], "it keeps its name"

        def comes():
            wait_resolves([other], NAMES[0], "192.0.2.1", timeout=20)
            wait_until(lambda: cluster(node)["sick"] is None and not cluster(node)["out"], 10, node.logs)
            assert cluster(node)["token"] == token
            wait_until(lambda: not any(b"/idetcd/sick/" in key for key in etcd.pairs(internal=True)), 10, "the ticket goes")

        set_sick(f"{directory}/sick1", True)
        goes("sh: ended with status 1")
        set_sick(f"{directory}/sick1", False)
        comes()
        Handler.status = 503
        goes("answers 503")
        # An operator's drain is another matter: each ends by itself.
        assert run(node, "drain")[0] == 0
        Handler.status = 204
        wait_until(lambda: cluster(node)["sick"] is None and not cluster(node)["out"], 20, node.logs)
        assert answers(other, NAMES[0]) == [] and cluster(node)["drained"]
        Handler.status = 500
        wait_until(lambda: cluster(node)["out"], 20, node.logs)
        assert re.search(r"this node, drained$", run(node, "members")[1], re.MULTILINE)
        assert re.search(r"but sick: its addresses are not in DNS: .*answers 500\n$", run(node, "undrain")[1])
        assert answers(other, NAMES[0]) == [] and not cluster(node)["drained"]
        assert re.search(r"this node, sick$", run(node, "members")[1], re.MULTILINE)
        assert re.search(r" drained or sick$", run(other, "members")[1], re.MULTILINE)
        Handler.status = 302
        comes()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    goes("tcp 127.0.0.1")


def test_all_sick_at_once_leave_the_share_in_dns(etcd, nodes, directory):
    four = [start(etcd, nodes, directory, number) for number in range(1, 5)]
    for node in four:
        wait_until(lambda node=node: said_name(node), 10, node.logs)

    def in_dns():
        return sum("ipv4" in value for value in etcd.names().values())

    wait_until(lambda: in_dns() == 4, 10, "all in")
    set_sick(f"{directory}/sick", True)
    fewest = 4
    wait_until(lambda: all(cluster(node)["sick"] for node in four) and in_dns() == 2, 20, lambda: etcd.names())
    end = time.monotonic() + 2
    while time.monotonic() < end:
        fewest = min(fewest, in_dns())
    assert fewest == 2, "half of four"
    stays = [node for node in four if not cluster(node)["out"]]
    assert len(stays) == 2
    for node in stays:
        node.wait_logged("this node stays in, though its machine is sick: less than 50 % of the nodes would be left")
    # With fewer nodes more of them have to be in.
    stays[0].terminate()
    wait_until(lambda: in_dns() == 2 and len(etcd.names()) == 3, 40, lambda: etcd.names())
    set_sick(f"{directory}/sick", False)
    wait_until(lambda: in_dns() == 3, 20, lambda: etcd.names())


def test_a_sick_machine_gives_its_name_up(etcd, nodes, directory):
    first, second, third = [start(etcd, nodes, directory, number, "check-mode release", "check-floor 30%", "hold 1h",
                                  f"state {directory}/state{number}", limit=2) for number in range(1, 4)]
    wait_until(lambda: sum(said_name(node) is not None for node in (first, second, third)) == 2, 20, "two names")
    owners = {said_name(node): (node, number) for number, node in enumerate((first, second, third), 1)}
    spare = owners[None][0]
    node, number = owners[NAMES[0]]
    set_sick(f"{directory}/sick{number}", True)
    wait_says(spare, NAMES[0], timeout=30)
    assert said_name(node) is None and cluster(node)["out"] and cluster(node)["name"] is None
    spare.terminate()
    wait_until(lambda: NAMES[0] not in etcd.names(), 20, lambda: etcd.names())
    assert said_name(node) is None, "it asks for none while it is sick"
    assert run(node, "release", NAMES[0], "--yes", NAMES[0])[0] == 0, "reserved for the spare"
    set_sick(f"{directory}/sick{number}", False)
    wait_says(node, NAMES[0], timeout=30)


def test_the_share_counts_for_a_node_that_is_sick_before_it_has_a_name(etcd, nodes, directory):
    set_sick(f"{directory}/sick", True)
    node = start(etcd, nodes, directory, 1, "check-mode release", "hold 1h", f"state {directory}/state1")
    wait_says(node, NAMES[0], timeout=30)
    assert cluster(node)["sick"] and not cluster(node)["out"]


def test_a_machine_that_is_sick_from_the_start(etcd, nodes, directory):
    set_sick(f"{directory}/sick2", True)
    well = start(etcd, nodes, directory, 1)
    node = start(etcd, nodes, directory, 2)
    wait_until(lambda: cluster(node)["out"] and said_name(node), 20, node.logs)
    wait_until(lambda: answers(well, NAMES[1]) == [] and rcode(ask(well, NAMES[1])) == "NOERROR", 10, node.logs)


def test_mistakes(nodes):
    for options, why in ((("check tcp 0",), "check tcp PORT"), (("check http https://127.0.0.1",), "check http"),
                         (("check-floor 101%",), "from 0% to 100%"), (("check-mode leave",), "drain or release")):
        node = nodes.make(corefile("http://127.0.0.1:1", options=options)).launch()
        assert node.exit_code(5) == 1 and why in node.err()


def test_what_a_check_prints_is_not_in_the_log(etcd, nodes, directory):
    check = f'check sh -c "echo chatter; echo chatter >&2; echo x >>{directory}/ran"'
    node = nodes.start(corefile(etcd.endpoint, options=["address 192.0.2.1", check, *FAST]))
    wait_until(lambda: os.path.exists(f"{directory}/ran") and os.path.getsize(f"{directory}/ran") >= 4, 20, node.logs)
    assert "chatter" not in node.out() + node.err()
