"""Which address a node takes for its own: seen in network namespaces with interfaces and routes of our making."""

import ctypes
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading

import pytest

from corefiles import corefile
from dns_client import RawUdp, TIMEOUT, answers, ask, header, pointer, question, rcode, resolves, said_name, wait_gone, wait_resolves, wait_says
from harness.etcd import EtcdMember
from harness.namespace import Namespace
from harness.node import ROOT, Nodes
from harness.processes import TIME_FACTOR, wait_until
from harness.state import State, contents
from harness.upstreams import Upstream
from test_cli import run

_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000


def in_own_network(body, *setup):
    """Runs body() in a thread that has a network of its own, with `lo` up and after the `ip` commands of `setup`.

    A namespace belongs to the thread: what it starts and connects to is in there with it."""
    outcome = {}

    def run():
        try:
            if _libc.unshare(_CLONE_NEWNET) != 0:
                outcome["skip"] = f"no network namespaces: {os.strerror(ctypes.get_errno())}"
                return
            for command in ("link set lo up", *setup):
                subprocess.run(["ip", *command.split()], check=True, capture_output=True)
            body()
        except subprocess.CalledProcessError as error:
            outcome["skip"] = f"{error.cmd}: {error.stderr.decode().strip()}"
        except BaseException as error:  # pylint: disable=broad-except
            outcome["error"] = error

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if "skip" in outcome:
        pytest.skip(outcome["skip"])
    if "error" in outcome:
        raise outcome["error"]


WAN = ("link add wan type veth peer name provider", "link set wan up", "link set provider up",
       "addr add 10.9.8.7/24 dev wan", "addr add 10.9.8.99/24 dev wan",
       "addr add 2001:db8:9::7/64 dev wan nodad", "addr add fe80::77/64 dev wan nodad")
# What a machine with containers has, and must not be taken for its address. It comes first, as the Go plugin would see it.
BRIDGE = ("link add docker0 type bridge", "addr add 172.17.0.1/16 dev docker0", "addr add fd17::1/64 dev docker0 nodad",
          "link set docker0 up")


def claimed(directory, *setup, options=()):
    """What a node puts into etcd on such a machine."""
    found = {}

    def body():
        etcd, nodes = EtcdMember(directory), Nodes(directory)
        try:
            etcd.start()
            node = nodes.start(corefile(etcd.endpoint, options=options))
            node.wait_owns(etcd)
            value = etcd.names()["worker1.tf.local."]
            for family, rdtype in (("ipv4", "A"), ("ipv6", "AAAA")):
                wait_until(lambda: answers(node, "worker1.tf.local.", rdtype) == ([value[family]] if family in value else []),
                           5, lambda: f"{value}\n{node.logs()}")
            found.update({family: value[family] for family in ("ipv4", "ipv6") if family in value})
        finally:
            problems = nodes.close()
            etcd.close()
        assert not problems, problems

    in_own_network(body, *setup)
    return found


def test_the_source_of_the_default_route_in_each_family(directory):
    assert claimed(directory, *BRIDGE, *WAN, "route add default via 10.9.8.1", "-6 route add default via 2001:db8:9::1 dev wan") == {
        "ipv4": "10.9.8.7", "ipv6": "2001:db8:9::7"}


def test_the_preferred_source_of_the_route(directory):
    assert claimed(directory, *WAN, "route add default via 10.9.8.1 src 10.9.8.99")["ipv4"] == "10.9.8.99"


def test_the_metric_decides(directory):
    assert claimed(directory, *BRIDGE, *WAN, "route add default via 10.9.8.1 metric 50",
                   "route add default via 172.17.0.2 metric 100")["ipv4"] == "10.9.8.7"


def test_a_family_without_a_route_is_taken_from_where_the_other_goes_out(directory):
    assert claimed(directory, *BRIDGE, *WAN, "-6 route add default via 2001:db8:9::1 dev wan") == {
        "ipv4": "10.9.8.7", "ipv6": "2001:db8:9::7"}


def test_never_a_link_local_address(directory):
    assert claimed(directory, "link add wan type veth peer name provider", "link set wan up", "link set provider up",
                   "addr add 10.9.8.7/24 dev wan", "addr add fe80::77/64 dev wan nodad", "route add default via 10.9.8.1",
                   "-6 route add default via fe80::1 dev wan") == {"ipv4": "10.9.8.7"}
    assert claimed(directory, "link add wan type veth peer name provider", "link set wan up", "link set provider up",
                   "addr add 169.254.3.4/16 dev wan", "addr add 2001:db8:9::7/64 dev wan nodad", "route add default dev wan",
                   "-6 route add default via 2001:db8:9::1 dev wan") == {"ipv6": "2001:db8:9::7"}


def test_the_interface_option(directory):
    routes = ("route add default via 10.9.8.1", "-6 route add default via 2001:db8:9::1 dev wan")
    assert claimed(directory, *BRIDGE, *WAN, *routes, options=["interface docker0"]) == {
        "ipv4": "172.17.0.1", "ipv6": "fd17::1"}


def test_the_address_option(directory):
    routes = ("route add default via 10.9.8.1", "-6 route add default via 2001:db8:9::1 dev wan")
    assert claimed(directory, *WAN, *routes, options=["address 192.0.2.50"]) == {"ipv4": "192.0.2.50"}
    assert claimed(directory, options=["address 192.0.2.50 2001:db8::50"]) == {"ipv4": "192.0.2.50", "ipv6": "2001:db8::50"}


def test_a_machine_with_nothing_but_loopback(directory):
    assert claimed(directory) == {"ipv4": "127.0.0.1", "ipv6": "::1"}


def in_network_with_etcd(directory, body, *setup):
    """body(etcd, nodes) in a network of its own."""
    def run():
        etcd, nodes = EtcdMember(directory), Nodes(directory)
        try:
            body(etcd.start(), nodes)
        finally:
            problems = nodes.close()
            etcd.close()
        assert not problems, problems

    in_own_network(run, *setup)


def ip(*commands):
    for command in commands:
        subprocess.run(["ip", *command.split()], check=True, capture_output=True)


ROUTES = ("route add default via 10.9.8.1", "-6 route add default via 2001:db8:9::1 dev wan")
# The kernel forgets these with the link.
LINK_BACK = ("link set wan up", "addr replace 2001:db8:9::7/64 dev wan nodad", *ROUTES)


def test_the_record_follows_the_machines_addresses(directory):
    """Under the same token and lease, with the name, the reverse name and the identity file."""
    worker1, state = "worker1.tf.local.", State(f"{directory}/state")

    def body(etcd, nodes):
        node = nodes.start(corefile(etcd.endpoint, lease=20, options=[state.option]))
        fixed = nodes.start(corefile(etcd.endpoint, "fixed{{.ID}}.tf.local.", lease=20, options=["address 10.9.8.7"]))
        wait_says(node, worker1)
        wait_says(fixed, "fixed1.tf.local.")
        before = etcd.pairs()

        def follows(ipv4, ipv6, *commands):
            ip(*commands)
            wait_until(lambda: (answers(node, worker1), answers(node, worker1, "AAAA")) == (ipv4, ipv6), 10,
                       lambda: f"{ipv4} {ipv6}: {etcd.names()}\n{node.logs()}")
            now, value = etcd.pairs()[worker1.encode()], etcd.names()[worker1]
            assert (value.get("ipv4"), value.get("ipv6")) == ((ipv4 or [None])[0], (ipv6 or [None])[0])
            assert (now["create_revision"], now["lease"]) == tuple(before[worker1.encode()][key] for key in ("create_revision", "lease"))
            for address in (*ipv4, *ipv6):
                assert pointer(node, address) == [worker1]
            assert (answers(node, "ns.dns.tf.local."), answers(node, "ns.dns.tf.local.", "AAAA")) == (ipv4, ipv6)
            wait_until(lambda: f"IDETCD_IPV4='{''.join(ipv4)}'\nIDETCD_IPV6='{''.join(ipv6)}'\n" in contents(state.file("env")), 5, lambda: contents(state.file("env")))
            assert said_name(node) == worker1

        follows(["10.9.8.7"], ["2001:db8:9::7"])
        follows(["10.9.8.99"], ["2001:db8:9::7"], "route replace default via 10.9.8.1 src 10.9.8.99")
        assert pointer(node, "10.9.8.7") == ["fixed1.tf.local."], "not its own any more"
        follows(["10.9.8.99"], [], "-6 addr del 2001:db8:9::7/64 dev wan")
        follows(["10.9.8.99"], ["2001:db8:9::8"], "addr add 2001:db8:9::8/64 dev wan nodad")
        # Off the network: what is published stays, for loopback would send every client to itself.
        ip("link set wan down")
        wait_until(lambda: "the addresses stay 10.9.8.99 2001:db8:9::8" in node.logs(), 10, node.logs)
        assert answers(node, worker1) == ["10.9.8.99"] and said_name(node) == worker1
        follows(["10.9.8.7"], ["2001:db8:9::7"], *LINK_BACK)
        assert etcd.pairs()[b"fixed1.tf.local."] == before[b"fixed1.tf.local."], "what the Corefile says does not move"

    in_network_with_etcd(directory, body, *WAN, *ROUTES)


def test_new_addresses_never_go_over_somebody_elses_value(directory):
    """The name is overwritten and the address changes while the node cannot see either."""
    worker1, worker2, theirs = "worker1.tf.local.", "worker2.tf.local.", b'{"ipv4":"198.51.100.1","port":"53"}'

    def body(etcd, nodes):
        node = nodes.start(corefile(etcd.endpoint, lease=20))
        wait_says(node, worker1)
        for _ in range(3):
            node.pause()
            etcd.put(worker1, theirs)
            overwritten = etcd.pairs()[worker1.encode()]
            ip("route replace default via 10.9.8.1 src 10.9.8.99")
            node.resume()
            wait_says(node, worker2)
            wait_resolves([node], worker2, "10.9.8.99")
            assert etcd.pairs()[worker1.encode()] == overwritten
            # Once more from the beginning.
            assert node.terminate() == 0
            etcd.delete(worker1)
            ip("route replace default via 10.9.8.1 src 10.9.8.7")
            node.start()
            wait_says(node, worker1)
            wait_resolves([node], worker1, "10.9.8.7")

    in_network_with_etcd(directory, body, *WAN, *ROUTES)


ETH0 = ("link add eth0 type veth peer name there0", "addr add 192.0.2.1/24 dev eth0", "link set eth0 up",
           "link set there0 up", "route add default via 192.0.2.254")
IB0 = ("link add ib0 type veth peer name there1", "link set ib0 up", "link set there1 up", "addr add 10.1.0.1/16 dev ib0", "addr add fd05::1/64 dev ib0 nodad")


def test_further_networks_have_names_of_their_own(directory):
    """One pattern, one ID, all networks: names, reverse names, launchers; over an outage of etcd and of the network itself."""
    worker1, fabric1, fabric2 = "worker1.tf.local.", "worker1.fabric.tf.local.", "worker2.fabric.tf.local."

    def body(etcd, nodes):
        state = State(f"{directory}/state")
        text = corefile(etcd.endpoint, lease=20, options=["interface eth0", "interface ib0 as fabric", state.option])
        node = nodes.make(text, "first").start()
        wait_says(node, worker1)
        wait_until(lambda: "no address in the network fabric: there is no interface ib0" in node.logs(), 10, node.logs)
        assert rcode(ask(node, fabric1)) == "NXDOMAIN", "it is reached by its name all the same"
        other = nodes.make(corefile(etcd.endpoint, lease=20, options=["address 192.0.2.2", "address 10.1.0.2 as fabric"]), "second").start()
        wait_says(other, "worker2.tf.local.")
        assert run(other, "hostfile", "--network=fabric")[0] == 1, "the first is not there yet"
        ip(*IB0)
        for each in (node, other):
            wait_resolves([each], fabric1, "10.1.0.1", timeout=10)
            wait_resolves([each], fabric1, "fd05::1", "AAAA")
            wait_resolves([each], fabric2, "10.1.0.2")
            assert answers(each, worker1) == ["192.0.2.1"]
            assert pointer(each, "10.1.0.1") == [fabric1] and pointer(each, "192.0.2.1") == [worker1]
        assert etcd.names()[worker1]["networks"] == ["fabric 10.1.0.1 fd05::1"]
        assert run(other, "hostfile", "--network=fabric")[1].split() == [fabric1[:-1], fabric2[:-1]]
        assert run(node, "hostfile", "--network=fabric", "--addresses")[1].split() == ["10.1.0.1", "10.1.0.2"]
        assert run(node, "hostfile", "--addresses")[1].split() == ["192.0.2.1", "192.0.2.2"]
        assert "MASTER_ADDR=10.1.0.1\n" in run(node, "torchrun-env", "--port=1", "--network=fabric", "--addresses")[1]
        assert run(node, "hostfile", "--network=storage")[0] == 1
        assert "192.0.2.1, fabric 10.1.0.1 fd05::1" in run(other, "members")[1]
        assert re.search(r"^  in fabric +10\.1\.0\.1 fd05::1$", run(node, "status")[1], re.MULTILINE)
        # Off that network it keeps what it has published; drained, it publishes none at all.
        ip("link del ib0")
        wait_until(lambda: node.logs().count("there is no interface ib0") == 2, 10, node.logs)
        assert answers(other, fabric1) == ["10.1.0.1"]
        assert run(node, "drain")[0] == 0
        wait_gone([other], fabric1)
        assert run(node, "undrain")[0] == 0
        wait_resolves([other, node], fabric1, "10.1.0.1")
        # From the file, while etcd is away.
        assert node.terminate() == 0
        other.kill()
        etcd.stop()
        node.start()
        wait_resolves([node], fabric2, "10.1.0.2")

    in_network_with_etcd(directory, body, *ETH0)


def test_an_interface_that_is_not_there(nodes):
    node = nodes.make(corefile("http://127.0.0.1:1", options=["interface nosuch0"])).launch()
    assert node.exit_code(5) == 1
    assert "nosuch0" in node.err()


def test_a_multihomed_server_answers_from_the_address_that_was_asked(directory):
    def body():
        nodes = Nodes(directory)
        try:
            node = nodes.start(". {\n    whoami\n}\n")
            for host in ("10.9.8.7", "10.9.8.99", "127.0.0.5", "2001:db8:9::7", "2001:db8:9::8", "::1"):
                for tcp in (False, True):
                    assert rcode(ask(node, "a.org.", host=host, tcp=tcp)) == "NOERROR", host
        finally:
            problems = nodes.close()
        assert not problems

    in_own_network(body, *WAN, "addr add 2001:db8:9::8/64 dev wan nodad")


def test_a_machine_without_ipv6(directory):
    def body():
        with open("/proc/sys/net/ipv6/conf/lo/disable_ipv6", "w", encoding="utf-8") as file:
            file.write("1")
        etcd, nodes = EtcdMember(directory), Nodes(directory)
        try:
            etcd.start()
            node = nodes.start(corefile(etcd.endpoint, options=["address 192.0.2.7"]))
            wait_resolves([node], "worker1.tf.local.", "192.0.2.7")
            assert resolves(node, "worker1.tf.local.", "192.0.2.7", tcp=True)
        finally:
            problems = nodes.close()
            etcd.close()
        assert not problems

    in_own_network(body)


def test_quickstart_with_nothing_but_loopback(directory):
    def body():
        result = subprocess.run([sys.executable, "-B", os.path.join(ROOT, "tools", "quickstart.py"), "--once"], check=False,
                                capture_output=True, text=True, timeout=60 * TIME_FACTOR)
        assert result.returncode == 0, result.stdout + result.stderr
        assert "every node resolves every name" in result.stdout

    in_own_network(body)


# --- by which way an answer leaves ---

class TwoWays:
    """A server that a client reaches by one link, `there`, and that reaches the client by another, `back`."""

    SERVER, CLIENT = "server", "client"

    def __init__(self, directory):
        self.spaces = {}
        for name in (self.SERVER, self.CLIENT):
            os.makedirs(os.path.join(directory, name))
            self.spaces[name] = Namespace(os.path.join(directory, name))
        server, client = self.spaces.values()
        for number, link in enumerate(("there", "back"), 1):
            server.run("ip", "link", "add", link, "type", "veth", "peer", "name", link, "netns", str(client.holder.pid))
            for host, space in enumerate((server, client), 1):
                space.run("ip", "address", "add", f"10.3.{number}.{host}/24", "dev", link)
                space.run("ip", "address", "add", f"fd03:{number}::{host}/64", "dev", link, "nodad")
                space.run("ip", "address", "add", f"fe80::{host}/64", "dev", link, "nodad")
                space.run("ip", "link", "set", link, "up")
        # The client's own addresses, which it asks from; the server's way to them is `back`.
        client.run("ip", "address", "add", "10.4.0.2/32", "dev", "lo")
        client.run("ip", "address", "add", "fd04::2/128", "dev", "lo", "nodad")
        server.run("ip", "route", "add", "10.4.0.2/32", "via", "10.3.2.2", "dev", "back")
        server.run("ip", "-6", "route", "add", "fd04::2/128", "via", "fd03:2::2", "dev", "back")
        # An answer that is bound to the interface of its query takes this one, behind which there is no host.
        server.run("ip", "route", "add", "10.4.0.2/32", "via", "10.3.1.99", "dev", "there", "metric", "5000")
        server.run("ip", "-6", "route", "add", "fd04::2/128", "via", "fd03:1::99", "dev", "there", "table", "100")
        server.run("ip", "-6", "rule", "add", "oif", "there", "to", "fd04::2", "lookup", "100")
        for space in (server, client):
            for setting in ("all", "there", "back"):
                space.run("sysctl", "-qw", f"net.ipv4.conf.{setting}.rp_filter=0")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for space in self.spaces.values():
            space.close()


@pytest.mark.parametrize("server, source, link", [
    ("10.3.1.1", "10.4.0.2", None), ("fd03:1::1", "fd04::2", None), ("fe80::1", "fe80::2", "there"),
    ("fe80::1", "fd03:1::2", "there")], ids=["IPv4", "IPv6", "link-local", "link-local asked from elsewhere"])
def test_an_answer_leaves_by_the_way_that_leads_back(directory, server, source, link):
    """From the address that was asked, but not by the interface by which the query came, unless that is part of the
    address."""
    with TwoWays(directory) as ways:
        nodes = Nodes(directory)
        problems = ["not run"]
        try:
            with ways.spaces[ways.SERVER].entered():
                node = nodes.start(". {\n    whoami\n}\n")
            with ways.spaces[ways.CLIENT].entered():
                scope = socket.if_nametoindex(link) if link else 0
                with socket.socket(socket.AF_INET6 if ":" in server else socket.AF_INET, socket.SOCK_DGRAM) as sock:
                    address = (server, node.port, 0, scope) if ":" in server else (server, node.port)
                    sock.bind((source, 0, 0, scope if source.startswith("fe80") else 0) if ":" in server else (source, 0))
                    sock.settimeout(TIMEOUT)
                    for _ in range(3):  # a neighbour may have to be found first
                        sock.sendto(header(7) + question("a."), address)
                        try:
                            packet, sender = sock.recvfrom(4096)
                            break
                        except TimeoutError:
                            packet = None
                assert packet is not None, node.logs()
                assert packet[:2] == b"\0\7" and sender[:2] == (server, node.port)
        finally:
            problems = nodes.close()
        assert not problems, problems


def test_port_0_is_not_answered(directory):
    """It can only be forged: nothing can be sent there, and no handler is troubled with it."""
    def body():
        nodes = Nodes(directory)
        try:
            node = nodes.start(". {\n    log\n    whoami\n}\n")
            packet = header(7) + question("forged.")
            with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP) as raw:
                raw.sendto(struct.pack("!4H", 0, node.port, 8 + len(packet), 0) + packet, ("127.0.0.1", 0))
            assert rcode(ask(node, "after.")) == "NOERROR"
            wait_until(lambda: "after." in node.out(), 5, "the line of the query behind it")
            assert "forged." not in node.out()
        finally:
            problems = nodes.close()
        assert not problems, problems

    in_own_network(body)


def test_what_is_dropped_on_its_way_out_is_lost_like_anything_else(directory):
    """A full queue of our own, which the kernel reports: the question is asked again, and no client gets SERVFAIL."""
    def dropped():
        shown = subprocess.run(["tc", "-s", "qdisc", "show", "dev", "lo"], check=True, capture_output=True, text=True).stdout
        return int(shown.partition("(dropped ")[2].split(",")[0])

    def body():
        nodes = Nodes(directory)
        try:
            with Upstream() as upstream, RawUdp(nodes.start(f". {{\n    forward . {upstream.address}\n}}\n").port) as udp:
                packet = header(7, 0x100) + question("a-name-of-some-length.example.")
                frame = 14 + 20 + 8 + len(packet)  # what is forwarded has an OPT as well
                subprocess.run(["tc", "qdisc", "add", "dev", "lo", "root", "bfifo", "limit", str(frame)], check=True)
                udp.send(packet)
                wait_until(lambda: dropped() > 0, 5, "the question to be dropped")
                subprocess.run(["tc", "qdisc", "delete", "dev", "lo", "root"], check=True)
                said = udp.receive()
                assert said[:2] == packet[:2] and said[3] & 15 == 0 and said[6:8] == b"\0\1", said
        finally:
            problems = nodes.close()
        assert not problems, problems

    in_own_network(body)


def test_an_open_resolver_is_told_of_once(directory):
    warning = "is a public address"

    def body():
        nodes = Nodes(directory)
        try:
            def started(*directives):
                lines = "".join(f"    {directive}\n" for directive in directives)
                return nodes.start(f". {{\n{lines}    forward . 127.0.0.1:9\n}}\n")
            node = started()
            node.wait_logged(f"203.0.113.5:{node.port} {warning}", 1)
            node.signal(signal.SIGHUP)
            node.wait_logged("Reloading complete", 1)
            node.wait_logged(warning, 1)
            bound = started("bind 127.0.0.1 203.0.113.5")
            bound.wait_logged(f"203.0.113.5:{bound.port} {warning}", 1)
            for directives in (["bind 127.0.0.1 10.0.0.5"], ["acl {", "    allow net 10.0.0.0/8", "    block", "}"],
                               ["rrl {", "    responses-per-second 100", "}"]):
                quiet = started(*directives)
                assert warning not in quiet.logs(), directives
        finally:
            problems = nodes.close()
        assert not problems, problems
    in_own_network(body, "address add 203.0.113.5/32 dev lo", "address add 10.0.0.5/32 dev lo")
