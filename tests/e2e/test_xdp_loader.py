"""`idetcd xdp attach|detach|status`: the program in the kernel is attached by one who may, and fed by a server that may not.

Each test has a machine of its own: a network, and a bpf file system at /mnt. Whether the kernel answers is asked while the
server stands still."""

import json
import os
import re
import subprocess
import threading

import dns.exception
import pytest

from dns_client import exchange, make_query, rcode
from harness.etcd import EtcdMember
from harness.namespace import Namespace
from harness.node import ROOT, binary
from harness.processes import TIME_FACTOR, wait_until

PIN = "/mnt/idetcd"
USER = 65534
NOTHING = ["--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all"]
AS_USER = ["setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups", *NOTHING]
COREFILE = """. {
    bind 127.0.0.1
    idetcd {
        endpoint %s
        pattern worker{{.ID}}.tf.local.
        lease 60s
        address 192.0.2.1
        observe
    }
%s}
"""
FOREIGN = 'char _license[] __attribute__((section("license"), used)) = "GPL";\n' \
          '__attribute__((section("xdp"), used)) int pass(void* frame) { return 2; }\n'


def unavailable():
    """Why nothing can be tested here; None: all is there."""
    if os.geteuid() != 0:
        return "XDP IS NOT TESTED: it needs root"
    if "without xdp" in subprocess.run([binary(), "-version"], capture_output=True, text=True, check=True).stdout:
        return "XDP IS NOT TESTED: the server is built without it"
    if os.system("unshare --mount sh -c 'mount -t bpf bpf /mnt' 2>/dev/null") != 0:
        return "XDP IS NOT TESTED: no bpf file system can be mounted"
    return None


pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))


class Machine:
    def __init__(self, directory, nodes):
        self.directory = directory
        self.nodes = nodes
        self.namespace = Namespace(directory, addresses=["192.0.2.1/32"])
        self.namespace.run("mount", "-t", "bpf", "bpf", "/mnt")
        self.etcd = None

    def corefile(self, xdp=f"lo {{\n        generic\n        max_names 1000\n        pin {PIN}\n    }}"):
        endpoint = self.etcd.endpoint if self.etcd else "http://127.0.0.1:1"
        return COREFILE % (endpoint, f"    xdp {xdp}\n" if xdp else "")

    def start_etcd(self):
        self.etcd = EtcdMember(self.directory)
        self.etcd.start()
        self.etcd.put_many({f"worker{n}.tf.local.": json.dumps({"ipv4": f"10.0.0.{n}"}) for n in range(1, 4)})

    def start_server(self, name=None, **options):
        """As a user without rights."""
        node = self.nodes.make(self.corefile(), name, **options)
        node.corefile_path = "stdin"
        node.launch(prefix=[*self.namespace.prefix, *AS_USER], stdin_text=self.corefile())
        node.wait_answers()
        return node

    def loader(self, *arguments, text=None, prefix=()):
        """A subcommand `xdp`, of root: exit code, stdout, stderr."""
        path = os.path.join(self.directory, "loader.Corefile")
        with open(path, "w", encoding="ascii") as file:
            file.write(text or self.corefile())
        done = self.namespace.attempt(*prefix, binary(), "xdp", *arguments, "-conf", path)
        return done.returncode, done.stdout, done.stderr

    def attach(self, **options):
        code, out, err = self.loader("attach", "-user", str(USER), **options)
        assert (code, err) == (0, ""), err
        return out

    def status(self, **options):
        code, out, err = self.loader("status", "--json", **options)
        assert err == ""
        said = json.loads(out)
        assert code == (0 if said["attached"] else 1)
        return said

    def fails(self, *arguments, **options):
        """The one line that says why."""
        code, out, err = self.loader(*arguments, **options)
        assert (code, out, err.count("\n")) == (2, "", 1), (code, out, err)
        return err

    def close(self):
        if self.etcd:
            self.etcd.close()
        self.namespace.close()


@pytest.fixture
def machine(directory, nodes):
    made = Machine(directory, nodes)
    try:
        with made.namespace.entered():
            yield made
            for node in nodes.nodes:
                node.resume()
            assert nodes.close() == []
    finally:
        made.close()


@pytest.fixture
def fed(machine):
    """(machine, server): a server without rights feeds what root has attached, and the kernel answers."""
    machine.start_etcd()
    machine.attach()
    server = machine.start_server()
    wait_until(lambda: machine.status()["names"] >= 3 and machine.status()["zones"][0]["whole"], 10, lambda: f"names in the map\n{server.logs()}")
    return machine, server


def address_of(server, name, timeout=5, port=None):
    """The address of a name, or the rcode; None: no answer in time."""
    try:
        response = exchange(server, make_query(name), timeout=timeout * TIME_FACTOR, port=port)
    except dns.exception.Timeout:
        return None
    return response.answer[0][0].to_text() if response.answer else rcode(response)


def kernel_says(server, name="worker1.tf.local."):
    """What is answered while the server stands still. A short time is meant: it may be that nothing comes."""
    server.pause()
    try:
        return address_of(server, name, timeout=0.5)
    finally:
        server.resume()


def rights_of(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        fields = dict(line.split(":", 1) for line in file)
    return fields["Uid"].split()[0], int(fields["CapEff"], 16), int(fields["CapPrm"], 16)


# --- what it is for ---

def test_a_server_without_rights_feeds_what_is_attached(fed):
    machine, server = fed
    uid, effective, permitted = rights_of(server.pid)
    assert (uid, effective, permitted) == (str(USER), 0, 0)
    assert kernel_says(server) == "10.0.0.1"
    answered = {(one["type"], one["rcode"]): one["count"] for one in machine.status()["answered"]}
    assert answered["A", "NOERROR"] >= 1


def test_attaching_again_loses_no_query(fed):
    """While the server stands still: a query that the kernel did not answer would get no answer at all."""
    machine, server = fed
    before = machine.status()
    server.pause()
    lost, asked, ended = [], [], threading.Event()

    def go_on():
        while not ended.is_set():
            (asked if address_of(server, "worker2.tf.local.", timeout=2) == "10.0.0.2" else lost).append(None)

    client = threading.Thread(target=go_on)
    client.start()
    try:
        for _ in range(5):
            assert "what it knew is kept" in machine.attach()
    finally:
        ended.set()
        client.join()
        server.resume()
    after = machine.status()
    assert len(asked) > 50 and lost == []
    assert after["interfaces"][0]["program"] != before["interfaces"][0]["program"]
    assert after["answered"][0]["count"] >= len(asked)
    # And the server feeds the new one.
    machine.etcd.put("worker9.tf.local.", json.dumps({"ipv4": "10.0.0.9"}))
    wait_until(lambda: kernel_says(server, "worker9.tf.local.") == "10.0.0.9", 10, "the new name in the kernel")


def test_it_outlives_the_server_and_the_next_one_goes_on_with_it(fed):
    machine, server = fed
    server.kill()
    assert address_of(server, "worker3.tf.local.") == "10.0.0.3"
    following = machine.start_server("following", port=server.port)
    wait_until(lambda: kernel_says(following) == "10.0.0.1", 10, lambda: f"the next one to feed\n{following.logs()}")
    machine.etcd.put("worker3.tf.local.", json.dumps({"ipv4": "10.0.0.33"}))
    wait_until(lambda: kernel_says(following, "worker3.tf.local.") == "10.0.0.33", 10, "what has changed")


def test_detach_ends_it_at_once(fed):
    machine, server = fed
    code, out, err = machine.loader("detach")
    assert (code, out, err) == (0, f"{PIN} is gone: the sockets answer alone\n", "")
    assert kernel_says(server) is None
    assert address_of(server, "worker1.tf.local.") == "10.0.0.1"
    assert machine.namespace.attempt("test", "-e", PIN).returncode == 1
    assert machine.loader("detach") == (0, f"nothing is pinned in {PIN}\n", "")
    assert machine.loader("status")[:2] == (1, f"nothing is pinned in {PIN}\n")


def test_interfaces_that_are_no_longer_named_are_let_go(machine):
    machine.namespace.run("ip", "link", "add", "veth0", "type", "veth", "peer", "name", "veth1")
    both = machine.corefile(f"lo veth0 {{\n        pin {PIN}\n    }}")
    machine.attach(text=both)
    assert [(one["name"], one["attached"], one["mode"]) for one in machine.status(text=both)["interfaces"]] == [
        ("lo", True, "generic"), ("veth0", True, "generic")]
    one = machine.corefile(f"veth0 {{\n        native\n        pin {PIN}\n    }}")
    machine.attach(text=one)
    assert [(one["name"], one["mode"]) for one in machine.status(text=one)["interfaces"]] == [("veth0", "native")]
    assert "xdp" not in machine.namespace.run("ip", "link", "show", "dev", "lo")
    machine.namespace.run("ip", "link", "del", "veth0")
    gone = machine.status(text=one)
    assert (gone["attached"], gone["interfaces"][0]["attached"]) == (False, False)


# --- status ---

def test_status(fed):
    machine, server = fed
    machine.etcd.put("worker4.tf.local.", json.dumps({"ipv4": "10.0.0.4"}))
    wait_until(lambda: machine.status()["zones"][0]["addresses"] >= 4, 10, "the addresses")
    assert [address_of(server, f"{name}.") for name in ("worker1.tf.local", "nobody.tf.local", "www.example.org")] == [
        "10.0.0.1", "NXDOMAIN", "REFUSED"]
    said = machine.status()
    (zone,) = said["zones"]
    assert (zone["name"], zone["whole"]) == ("tf.local.", True)
    assert 0 < zone["believed_seconds"] <= 60
    assert said["max_names"] == 1000 and said["names"] == zone["names"] and said["listeners"] == 1
    assert {("A", "NOERROR"), ("A", "NXDOMAIN")} <= {(one["type"], one["rcode"]) for one in said["answered"]}
    assert "zone" in {one["reason"] for one in said["passed"]}
    code, text, _ = machine.loader("status")
    assert code == 0
    lines = dict(line.split("  ", 1) for line in text.splitlines())
    assert lines["interface lo"].strip().startswith("attached, generic, program ")
    assert lines["zone tf.local"].strip().endswith(" s") and ", whole, believed for " in lines["zone tf.local"]
    assert lines["names"].strip() == f"{zone['names']} of 1000"
    # Of one who has stopped to be fed the time runs down.
    server.pause()
    wait_until(lambda: machine.status()["zones"][0]["believed_seconds"] < zone["believed_seconds"], 10, "the time to run down")
    server.resume()


# --- what goes wrong ---

def test_maps_of_another_size_are_new(machine):
    machine.attach()
    small = machine.corefile(f"lo {{\n        max_names 64\n        pin {PIN}\n    }}")
    assert "for 64 names" in machine.attach(text=small)
    assert machine.status(text=small)["max_names"] == 64
    assert "it knows nothing yet" in machine.attach()


def test_a_place_that_is_no_bpf_file_system(machine):
    elsewhere = os.path.join(machine.directory, "pinned")
    assert "is on no bpf file system" in machine.fails("attach", text=machine.corefile(f"lo {{\n        pin {elsewhere}\n    }}"))
    assert not os.path.exists(elsewhere)


def test_no_such_interface(machine):
    wrong = machine.corefile(f"lo eth77 {{\n        pin {PIN}\n    }}")
    assert "there is no interface eth77" in machine.fails("attach", text=wrong)
    assert machine.status()["attached"] is False
    # Nor is anything taken away from what is there.
    machine.attach()
    assert "there is no interface eth77" in machine.fails("attach", text=wrong)
    assert machine.status()["attached"] is True


def test_no_such_user(machine):
    assert "there is no user nobody-at-all" in machine.fails("attach", "--user", "nobody-at-all")


def test_a_program_of_somebody_else_is_not_replaced(machine):
    source, program = (os.path.join(machine.directory, name) for name in ("foreign.c", "foreign.o"))
    with open(source, "w", encoding="ascii") as file:
        file.write(FOREIGN)
    subprocess.run(["clang-14", "-O2", "-target", "bpf", "-c", source, "-o", program], check=True)
    machine.namespace.run("ip", "link", "set", "dev", "lo", "xdpgeneric", "obj", program, "sec", "xdp")
    before = machine.namespace.run("ip", "-j", "-d", "link", "show", "dev", "lo")
    assert "lo has another XDP program, which is not replaced" in machine.fails("attach")
    assert json.loads(machine.namespace.run("ip", "-j", "-d", "link", "show", "dev", "lo"))[0]["xdp"] == json.loads(before)[0]["xdp"]


def test_without_rights(machine):
    assert "the right is missing (CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON)" in machine.fails("attach", prefix=["setpriv", *NOTHING])


def test_maps_that_one_may_not_open_are_left_alone(machine):
    """An attach that cannot read the maps that are there would put empty ones in their place."""
    machine.attach()
    rights = "+bpf,+net_admin,+perfmon"
    other = ["setpriv", "--reuid", "65533", "--regid", "65533", "--clear-groups", f"--inh-caps=-all,{rights}", f"--ambient-caps=-all,{rights}"]
    assert "Permission denied" in machine.fails("attach", prefix=other)
    assert "what it knew is kept" in machine.attach()


def test_the_rights_of_the_unit_are_enough(machine):
    """Those of idetcd-xdp.service: root without the right to open what is another's."""
    with open(os.path.join(ROOT, "src", "app", "idetcd-xdp.service"), encoding="ascii") as file:
        [names] = re.findall(r"^CapabilityBoundingSet=(.*)$", file.read(), re.MULTILINE)
    rights = ",".join("+" + name.removeprefix("CAP_").lower() for name in names.split())
    weak = ["setpriv", f"--bounding-set=-all,{rights}", "--inh-caps=-all", "--no-new-privs", "--"]
    machine.start_etcd()
    machine.attach(prefix=weak)
    server = machine.start_server()
    wait_until(lambda: machine.status(prefix=weak)["names"] >= 3, 10, server.logs)
    assert "what it knew is kept" in machine.attach(prefix=weak)
    assert kernel_says(server) == "10.0.0.1"
    assert machine.loader("detach", prefix=weak)[0] == 0
    assert kernel_says(server) is None


@pytest.mark.parametrize("xdp, why", [("", "the Corefile has no `xdp`"), ("lo", "has no `pin`")])
def test_corefiles_without(machine, xdp, why):
    for word in ("attach", "detach", "status"):
        assert why in machine.fails(word, text=machine.corefile(xdp))


def test_a_corefile_that_is_wrong(machine):
    assert "Corefile:2" in machine.fails("attach", text=". {\n    xdp\n}\n").replace("loader.", "")


@pytest.mark.parametrize("arguments", [["frob"], [], ["status", "more"], ["status", "--user", "root"]])
def test_wrong_usage(machine, arguments):
    code, out, err = machine.loader(*arguments)
    assert (code, out) == (2, "") and err.startswith("idetcd xdp: ")
    assert machine.namespace.attempt("test", "-e", PIN).returncode == 1
