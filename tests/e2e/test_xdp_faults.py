"""What happens around answers from the kernel (XDP): servers that die, names that change, etcd that is away, rights that are
missing, and other people's programs."""

import itertools
import json
import os
import re
import shutil
import signal
import socket
import struct
import threading
import time

import pytest

from dns_client import EDE_STALE_ANSWER, RawTcp, answers, ask, extended_errors, header, opt, question, rcode, resolves
from harness import unit_file, xdp
from harness.load import Load
from harness.node import binary
from harness.processes import TIME_FACTOR, ended, wait_until
from harness.xdp import INTERFACE, LOOPBACK4, METRICS, PLAIN_METRICS, PLAIN_PORT, PORT, ZONE, Client, Kernel, Site, frozen

pytestmark = pytest.mark.skipif(xdp.unavailable() is not None, reason=str(xdp.unavailable()))

OWN = f"worker1.{ZONE}"
RD = 0x0100
HELD = [f"worker{number}.{ZONE}" for number in range(1, 201)]
RATE = 50_000
# What binds a server to programs of the kernel. Of root, CAP_SYS_ADMIN has all of them in it.
WITHOUT_RIGHTS = ["setpriv", "--bounding-set=-bpf,-net_admin,-perfmon,-sys_admin", "--inh-caps=-bpf,-net_admin,-perfmon,-sys_admin", "--"]


@pytest.fixture
def site(directory):
    site = Site(directory)
    with site.machine.entered():
        yield site
    site.close()


def use(interfaces="lo", **options):
    """The directive."""
    lines = "".join(f"        {name} {value}".rstrip() + "\n" for name, value in options.items())
    return f"{interfaces} {{\n{lines}    }}" if lines else interfaces


class Pinned:
    """A machine whose program and maps are pinned, and one server after the other."""

    def __init__(self, site, nodes, lease=60, **options):
        self.site = site
        self.nodes = nodes
        self.directory = os.path.join(site.bpffs(), "idetcd")
        self.text = xdp.block(site.etcd.endpoint, xdp=use(pin=self.directory, **options), lease=lease)
        self.node = None
        self.count = 0

    def launch(self, executable=None, prefix=()):
        self.count += 1
        self.node = self.nodes.make(self.text, f"server{self.count}", port=PORT)
        self.node.binary = executable or self.node.binary
        self.node.launch(prefix=[*self.site.machine.prefix, *prefix])
        return self.node

    def start(self, **options):
        """Waits until it feeds the kernel."""
        self.launch(**options)
        wait_until(lambda: self.feeds(), 15, lambda: f"{self.node.name} to feed the kernel\n{self.node.logs()}")
        return self.node

    def attached(self):
        return self._says(lambda metrics: metrics.sum("idetcd_xdp_attached") == 1)

    def feeds(self):
        return self.attached() and self._says(lambda metrics: (metrics.sum("idetcd_xdp_names") or 0) > 0)

    def _says(self, what):
        assert self.node.running(), self.node.logs()
        try:
            return what(xdp.metrics())
        except OSError:
            return False

    def kernel(self, interface="lo"):
        return Kernel(self.site.machine, interface)

    def command(self, what, *options):
        """`idetcd xdp` with the Corefile of the servers: exit code, stdout, stderr."""
        path = os.path.join(self.site.directory, "loader.Corefile")
        with open(path, "w", encoding="ascii") as file:
            file.write(self.text)
        return self.site.machine.attempt(binary(), "xdp", what, "--conf", path, *options)


@pytest.fixture
def pinned(site, nodes):
    return Pinned(site, nodes)


def plain(name, rdtype=1):
    return header(1, RD) + question(name, rdtype)


def by_kernel(kernel, name, rdtype="A", host=LOOPBACK4):
    """As answers(), by the kernel; None if that passes the question on."""
    before = kernel.answered()
    with Client(host) as client:
        client.send(plain(name, {"A": 1, "AAAA": 28, "PTR": 12}[rdtype]))
        data = client.receive()
    if kernel.answered() == before:
        return None
    if data[3] & 15:
        return {3: "NXDOMAIN"}[data[3] & 15]
    count = struct.unpack("!H", data[6:8])[0]
    size = {"A": 4, "AAAA": 16}[rdtype]
    family = socket.AF_INET if rdtype == "A" else socket.AF_INET6
    return [socket.inet_ntop(family, data[-size:])] if count else []


def assert_all_answered(load):
    print(load)
    assert load.lost == 0 and not load.other, str(load)
    assert load.asked >= 5_000, f"too few to prove anything: {load}"


# --- servers that come and go ---

def test_killed_and_started_again_without_a_loss(pinned, directory):
    """The program answers alone from the one's death to the other's start, and all the time besides."""
    first = pinned.start()
    kernel = pinned.kernel()
    before = kernel.answered()
    with Load(directory, PORT, HELD, RATE) as load:
        time.sleep(0.5)  # the length of a load before the fault
        first.kill()
        time.sleep(1)  # the length of the fault
        assert by_kernel(kernel, OWN) == ["10.1.0.1"]
        pinned.start()
        time.sleep(0.5)  # of the load after it
    assert_all_answered(load)
    assert kernel.answered() - before >= 0.999 * load.asked
    wait_until(lambda: resolves(pinned.node, OWN, "10.1.0.1"), 5, pinned.node.logs)
    assert [mode for mode, _, _ in xdp.programs(pinned.site.machine, "lo")] == ["generic"]


def test_a_crash_loop_without_a_loss(pinned, directory):
    """Servers that are killed at moments of their start."""
    pinned.start()
    with Load(directory, PORT, HELD, RATE) as load:
        for pause in (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4):
            pinned.node.kill()
            pinned.launch()
            time.sleep(pause)  # how long it lives
        pinned.node.kill()
        pinned.start()
    assert_all_answered(load)


def test_an_orderly_restart_and_reloads_without_a_loss(pinned, directory):
    node = pinned.start()
    with Load(directory, PORT, HELD, RATE) as load:
        for times in (1, 2, 3):
            with open(node.corefile_path, "a", encoding="ascii") as file:
                file.write(f"# {times}\n")
            node.signal(signal.SIGHUP)
            node.wait_logged("Reloading complete", times)
        assert node.terminate() == 0
        pinned.start()
        assert pinned.node.terminate() == 0
        pinned.start()
    assert_all_answered(load)


def test_another_binary_without_a_loss(pinned, directory):
    """An upgrade: the program that is pinned is exchanged between two frames, the maps stay."""
    pinned.start()
    kernel = pinned.kernel()
    other = os.path.join(directory, "another-idetcd")
    shutil.copy2(binary(), other)
    with Load(directory, PORT, HELD, RATE) as load:
        for executable in (other, binary(), other):
            pinned.node.kill()
            pinned.start(executable=executable)
    assert_all_answered(load)
    assert by_kernel(pinned.kernel(), OWN) == ["10.1.0.1"]
    kernel.close()


def test_the_old_server_ends_after_the_new_one_has_begun(pinned, site):
    """Two of them have the maps for a while; what the old one learns and does at its end is nothing to the kernel."""
    old = pinned.start()
    old.pause()
    pinned.text = pinned.text.replace(f":{PORT} ", f":{PORT + 1} ").replace(str(METRICS), str(PLAIN_METRICS))
    pinned.count += 1
    new = pinned.nodes.make(pinned.text, "new", port=PORT + 1)
    new.launch(prefix=site.machine.prefix).wait_answers()
    kernel = pinned.kernel()
    with Client(LOOPBACK4) as client:
        def feeds():
            before = kernel.answered()
            return client.ask(plain(OWN), PORT + 1) and kernel.answered() > before
        wait_until(feeds, 10, new.logs)
        old.resume()
        site.etcd.put(OWN, '{"ipv4":"10.9.0.1"}')
        wait_until(lambda: client.ask(plain(OWN), PORT + 1)[-4:] == bytes([10, 9, 0, 1]), 5, new.logs)
        assert old.terminate() == 0
        with frozen(new):
            assert client.ask(plain(OWN), PORT + 1)[-4:] == bytes([10, 9, 0, 1])


@pytest.mark.parametrize("how", ["SIGTERM", "SIGKILL"])
def test_what_is_pinned_answers_until_the_deadline_and_no_longer(site, nodes, how):
    """As long as the lease: what is older than that the sockets would call stale."""
    lease = 4
    pinned = Pinned(site, nodes, lease=lease)
    node = pinned.start()
    kernel = pinned.kernel()
    node.signal(getattr(signal, how))
    end = time.monotonic()
    node.exit_code(8)
    last = end
    with Client(LOOPBACK4) as client:
        while time.monotonic() < end + 3 * lease:
            before = kernel.answered()
            client.send(plain(OWN))
            if kernel.answered() > before:
                assert client.receive()[-4:] == bytes([10, 1, 0, 1])
                last = time.monotonic()
            elif time.monotonic() > last + 0.5:
                break
            time.sleep(0.02)  # between two questions
    assert end < last < end + 1.5 * lease, f"it has answered for {last - end:.2f} s"
    assert kernel.passed("expired") > 0
    assert xdp.programs(site.machine, "lo"), "it is still there, and passes all on"


@pytest.mark.parametrize("how", ["SIGTERM", "SIGKILL"])
def test_what_is_not_pinned_ends_with_the_server(site, nodes, how):
    node = site.start(nodes, xdp.block(site.etcd.endpoint, xdp=f"lo {INTERFACE}"), "server")
    for interface in ("lo", INTERFACE):
        assert xdp.programs(site.machine, interface)
    node.signal(getattr(signal, how))
    node.exit_code(8)
    for interface in ("lo", INTERFACE):
        wait_until(lambda i=interface: not xdp.programs(site.machine, i), 5, f"the program on {interface} to be gone")


def test_detach_ends_it_at_once(pinned):
    pinned.start()
    assert xdp.programs(pinned.site.machine, "lo")
    pinned.node.kill()
    for _ in range(2):
        result = pinned.command("detach")
        assert result.returncode == 0, result.stderr
        # The kernel puts away what a killed process held a moment after its end.
        wait_until(lambda: not xdp.programs(pinned.site.machine, "lo"), 5, "the program to be gone")
    assert pinned.site.machine.attempt("ls", pinned.directory).returncode != 0, "nothing is left"
    assert pinned.command("status").returncode == 1


def test_detach_beside_a_running_server(pinned):
    """From then on the sockets answer; another server attaches it again."""
    node = pinned.start()
    assert pinned.command("detach").returncode == 0
    # The kernel puts the link away a moment after its file is gone.
    wait_until(lambda: not xdp.programs(pinned.site.machine, "lo"), 5, "the program to be gone")
    assert answers(node, OWN) == ["10.1.0.1"]
    assert node.terminate() == 0
    pinned.start()
    wait_until(lambda: by_kernel(pinned.kernel(), OWN) == ["10.1.0.1"], 10, pinned.node.logs)


# --- names that change ---

def test_an_attach_beside_a_running_server_is_noticed(pinned):
    """With maps of another size, which the server does not feed: a reload takes them."""
    node = pinned.start()
    before = pinned.text
    pinned.text = before.replace(f"pin {pinned.directory}", f"pin {pinned.directory}\n        max_names 2000")
    assert pinned.command("attach").returncode == 0
    with frozen(node), Client(LOOPBACK4) as client:
        assert client.ask(plain(OWN), timeout=0.3) is None
    wait_until(lambda: xdp.metrics().sum("idetcd_xdp_attached") == 0, 10, node.logs)
    node.signal(signal.SIGHUP)
    wait_until(lambda: by_kernel(pinned.kernel(), OWN) == ["10.1.0.1"], 10, node.logs)


def test_an_attach_in_another_mode_beside_a_running_server_is_noticed(pinned):
    """Behind the driver checksums are the stack's to fill in, or not."""
    pinned.text = pinned.text.replace("xdp lo {", f"xdp {INTERFACE} {{\n        native")
    node = pinned.start()
    index = json.loads(pinned.site.machine.run("ip", "-json", "link", "show", "dev", INTERFACE))[0]["ifindex"]
    assert pinned.kernel(INTERFACE).behind_driver(index) == {False}
    pinned.text = pinned.text.replace("        native", "        generic")
    attached = pinned.command("attach")
    assert attached.returncode == 0, attached
    wait_until(lambda: pinned.kernel(INTERFACE).behind_driver(index) == {True}, 10, node.logs)


def test_a_change_of_interfaces_is_not_silent(pinned):
    node = pinned.start()
    with open(node.corefile_path, "w", encoding="ascii") as file:
        file.write(pinned.text.replace("xdp lo {", f"xdp lo {INTERFACE} {{"))
    node.signal(signal.SIGHUP)
    node.wait_logged("takes 'idetcd xdp attach' or a restart")
    assert by_kernel(pinned.kernel(), OWN) == ["10.1.0.1"]


@pytest.mark.parametrize("change", ["another endpoint", "another spelling", "another ttl"])
def test_another_corefile_for_the_same_names_without_a_loss(pinned, site, directory, change):
    """While etcd is away the new server knows nothing: what was pinned goes on, as it would without the change."""
    node = pinned.start()
    site.etcd.pause()
    try:
        node.kill()
        endpoint = site.etcd.endpoint
        pinned.text = {"another endpoint": pinned.text.replace(endpoint, f"{endpoint} http://127.0.0.2:1"),
                       "another spelling": pinned.text.replace(endpoint, endpoint.removeprefix("http://")),
                       "another ttl": pinned.text.replace("        observe\n", "        observe\n        ttl 77s\n")}[change]
        with Load(directory, PORT, HELD, RATE) as load:
            node = pinned.launch()
            wait_until(pinned.attached, 15, node.logs)
            time.sleep(0.5)  # of load, as such
            site.etcd.resume()
            wait_until(pinned.feeds, 15, node.logs)
        assert_all_answered(load)
    finally:
        site.etcd.resume()
    with frozen(node), Client(LOOPBACK4) as client:
        response = client.ask(plain(OWN))
    assert struct.unpack("!I", response[-10:-6])[0] == (77 if change == "another ttl" else 5)


def test_what_other_corefiles_have_left_takes_no_room(site, nodes):
    """Restarts with another pattern each: another zone for the kernel, and the names of the one before are gone."""
    pinned = Pinned(site, nodes, max_names="500")
    for number in range(4):
        pinned.text = re.sub(r"pattern \S+\{\{", f"pattern w{number}x{{{{", pinned.text)
        node = pinned.start()
        wait_until(lambda: xdp.metrics().sum("idetcd_xdp_names") >= 200, 5, node.logs)
        assert not xdp.metrics().sum("idetcd_xdp_left_out_total")
        wait_until(lambda: pinned.kernel().entries() == xdp.metrics().sum("idetcd_xdp_names"), 10, node.logs)
        node.kill()


def test_what_changes_while_no_server_runs(pinned, site):
    """The kernel's names are those of before until a server is level with etcd, and none of them outlives that."""
    node = pinned.start()
    kernel = pinned.kernel()
    node.kill()
    site.etcd.delete(f"worker2.{ZONE}")
    site.etcd.put(f"worker3.{ZONE}", '{"ipv4":"10.9.0.3"}')
    site.etcd.put(f"late.{ZONE}", '{"ipv4":"10.9.0.4"}')
    assert by_kernel(kernel, f"worker2.{ZONE}") == ["10.1.0.2"], "that is what was true"
    assert by_kernel(kernel, f"late.{ZONE}") == "NXDOMAIN"
    pinned.start()
    wait_until(lambda: by_kernel(kernel, f"worker2.{ZONE}") == "NXDOMAIN", 5, pinned.node.logs)
    assert by_kernel(kernel, f"worker3.{ZONE}") == ["10.9.0.3"]
    assert by_kernel(kernel, f"worker3.{ZONE}", "AAAA") == []
    assert by_kernel(kernel, f"late.{ZONE}") == ["10.9.0.4"]
    assert by_kernel(kernel, OWN) == ["10.1.0.1"]
    with frozen(pinned.node):
        assert by_kernel(kernel, f"worker2.{ZONE}") == "NXDOMAIN"
    with Client(LOOPBACK4) as client, kernel.counting(0):
        client.ask(header(1, RD) + question("2.0.1.10.in-addr.arpa.", 12)), "its address has no name"


def test_killed_in_the_midst_of_changes(pinned, site):
    """Whatever was half written when it died: what the next one makes of it is what etcd has."""
    pinned.start()
    kernel = pinned.kernel()
    current = {}
    for turn in range(5):
        stop = threading.Event()

        def change(turn=turn, stop=stop):
            for number in itertools.count():
                if stop.is_set():
                    return
                name = f"worker{number % 50 + 1}.{ZONE}"
                current[name] = None if number % 7 == turn else f"10.{20 + turn}.{number // 250 % 250}.{number % 250}"
                if current[name]:
                    site.etcd.put(name, '{"ipv4":"%s"}' % current[name])
                else:
                    site.etcd.delete(name)
        thread = threading.Thread(target=change)
        thread.start()
        time.sleep(0.2)  # the length of the changes before the fault
        pinned.node.kill()
        time.sleep(0.05)  # and after it
        stop.set()
        thread.join()
        pinned.start()
        for name, address in current.items():
            expected = [address] if address else "NXDOMAIN"
            wait_until(lambda n=name, e=expected: by_kernel(kernel, n) == e, 5,
                       lambda n=name, e=expected: f"{n} to be {e} in the kernel; {by_kernel(kernel, n)}\n{pinned.node.logs()}")


@pytest.mark.serial
def test_a_change_is_visible_in_the_kernel_as_soon_as_at_the_sockets(site, nodes):
    """What a socket of the server has said, the kernel says from then on; and it says it within 5 ms (p99) of etcd's own answer."""
    node = site.start(nodes, xdp.block(site.etcd.endpoint, xdp="lo"), "server")
    kernel = xdp.kernel_of(site.machine, node)
    wait_until(lambda: by_kernel(kernel, OWN) == ["10.1.0.1"], 10, node.logs)
    socket_query = header(2, RD, ar=1) + question(OWN) + opt(options=struct.pack("!2H", 65001, 0))

    def change(client, turn):
        """Of 150 changes, how long each took to be in the kernel; 150 others are seen at the sockets first."""
        times = []
        for number in range(300):
            address = bytes([10, 30 + turn, number // 250, number % 250 + 1])
            site.etcd.put(OWN, '{"ipv4":"%s"}' % socket.inet_ntoa(address))
            begin = time.monotonic()
            if number % 2:
                while client.ask(plain(OWN))[-4:] != address:
                    assert time.monotonic() < begin + 5 * TIME_FACTOR, node.logs()
                    time.sleep(0.0001)  # between two questions: the processor is needed by those who bring the change
                times.append(time.monotonic() - begin)
            else:
                while address not in client.ask(socket_query):
                    assert time.monotonic() < begin + 5 * TIME_FACTOR, node.logs()
                    time.sleep(0.0001)
                with kernel.counting(1):
                    assert client.ask(plain(OWN))[-4:] == address, "the kernel is behind the sockets"
        return sorted(times)

    p99, bound = [], 0.005 * TIME_FACTOR
    with Client(LOOPBACK4) as client:
        while not p99 or p99[-1] > bound and len(p99) < 3:  # of three a busy machine may be late with some
            times = change(client, len(p99))
            p99.append(times[len(times) * 99 // 100])
            print(f"from etcd's answer to the kernel's: p50 {times[len(times) // 2] * 1e3:.2f} ms, p99 {p99[-1] * 1e3:.2f} ms, "
                  f"longest {times[-1] * 1e3:.2f} ms")
    assert p99[-1] <= bound, p99


def test_no_answer_is_torn(site, nodes):
    """While a name changes as fast as it can, each answer is one of the two, and never none."""
    node = site.start(nodes, xdp.block(site.etcd.endpoint, xdp="lo"), "server")
    kernel = xdp.kernel_of(site.machine, node)
    values = [('{"ipv4":"10.10.10.10","ipv6":"1111:1111:1111:1111:1111:1111:1111:1111"}', bytes([10] * 4), bytes([0x11] * 16)),
              ('{"ipv4":"20.20.20.20","ipv6":"2222:2222:2222:2222:2222:2222:2222:2222"}', bytes([20] * 4), bytes([0x22] * 16))]
    site.etcd.put(OWN, values[0][0])
    wait_until(lambda: by_kernel(kernel, OWN) == ["10.10.10.10"], 10, node.logs)
    stop = threading.Event()

    def change():
        with site.machine.entered():
            for value, _, _ in itertools.cycle(values):
                if stop.is_set():
                    return
                site.etcd.put(OWN, value)
    thread = threading.Thread(target=change)
    thread.start()
    seen = set()
    before = kernel.answered()
    try:
        with Client(LOOPBACK4) as client:
            for _ in range(15_000):
                seen.add((4, client.ask(plain(OWN))[-4:]))
                seen.add((16, client.ask(plain(OWN, 28))[-16:]))
    finally:
        stop.set()
        thread.join()
    assert seen == {(len(data), data) for _, *both in values for data in both}
    assert kernel.answered() - before >= 0.9 * 30_000, "some were left to the sockets while they changed, but few"


# --- etcd that is away ---

def test_without_etcd_the_kernel_is_silent_and_the_sockets_say_stale(site, nodes):
    node = site.start(nodes, xdp.block(site.etcd.endpoint, xdp="lo", lease=6), "server")
    kernel = xdp.kernel_of(site.machine, node)
    wait_until(lambda: by_kernel(kernel, OWN) == ["10.1.0.1"], 10, node.logs)
    site.etcd.pause()
    try:
        begin = time.monotonic()
        wait_until(lambda: by_kernel(kernel, OWN) is None, 15, "the kernel to leave it to the sockets")
        assert time.monotonic() - begin > 1, "not at once: what was true is true for a while"
        response = ask(node, OWN, use_edns=0)
        assert rcode(response) == "NOERROR" and extended_errors(response) == [EDE_STALE_ANSWER]
        assert response.answer[0][0].to_text() == "10.1.0.1"
        assert kernel.passed("expired") >= 2
        assert rcode(ask(node, f"nobody.{ZONE}", use_edns=0)) == "NXDOMAIN"
        with kernel.counting(0):
            for name in (OWN, f"nobody.{ZONE}", f"four.{ZONE}"):
                ask(node, name)
    finally:
        site.etcd.resume()
    wait_until(lambda: by_kernel(kernel, OWN) == ["10.1.0.1"], 15, node.logs)


def test_before_etcd_has_been_read_the_kernel_says_nothing(site, nodes):
    site.etcd.pause()
    node = site.start(nodes, xdp.block(site.etcd.endpoint, xdp="lo"), "server")
    kernel = xdp.kernel_of(site.machine, node)
    with kernel.counting(0):
        assert rcode(ask(node, OWN)) == "SERVFAIL"
    site.etcd.resume()
    wait_until(lambda: by_kernel(kernel, OWN) == ["10.1.0.1"], 20, node.logs)


# --- what cannot be attached ---

def log_lines(node, word="xdp"):
    """Its lines that are about this."""
    return [line for line in (node.out() + node.err()).splitlines() if word in line and line.startswith("[")]


def assert_serves_by_sockets(site, node):
    wait_until(lambda: resolves(node, OWN, "10.1.0.1"), 10, node.logs)
    node.wait_logged("[WARNING] plugin/xdp")
    lines = [line for line in log_lines(node) if "[WARNING] plugin/xdp" in line]  # a busy etcd is warned of, too
    assert len(lines) == 1, f"one clear line: {node.logs()}"
    return lines[0]


def assert_refuses_to_start(site, nodes, text, prefix=()):
    """One line, and nothing of it is left."""
    node = nodes.make(text, "strict", port=PORT)
    node.launch(prefix=[*site.machine.prefix, *prefix])
    assert node.exit_code(10) == 1
    lines = node.err().splitlines()
    assert len(lines) == 1 and "xdp" in lines[0], f"one clear line: {node.logs()}"
    return lines[0]


def test_without_the_rights(site, nodes):
    node = site.start(nodes, xdp.block(site.etcd.endpoint, xdp="lo"), "server", prefix=WITHOUT_RIGHTS)
    assert re.search(r"CAP_BPF|right", assert_serves_by_sockets(site, node))
    assert not xdp.programs(site.machine, "lo")
    assert xdp.metrics().sum("idetcd_xdp_attached") in (0, None)


def test_without_the_rights_but_required(site, nodes):
    text = xdp.block(site.etcd.endpoint, xdp=use(required=""))
    assert re.search(r"CAP_BPF|right", assert_refuses_to_start(site, nodes, text, prefix=WITHOUT_RIGHTS))


def test_the_server_needs_no_rights_where_a_loader_has_done_the_work(pinned):
    """`idetcd xdp attach` has them; the server that feeds what is pinned has none, through its restarts, and needs no system
    call that its unit refuses, but for the one that the drop-in of the page allows."""
    for _ in range(2):
        attached = pinned.command("attach")
        assert attached.returncode == 0, attached.stderr
    for more in ([], unit_file.filtered("bpf")):
        node = pinned.start(prefix=[*WITHOUT_RIGHTS, *more])
        with frozen(node):
            assert by_kernel(pinned.kernel(), OWN) == ["10.1.0.1"]
        status = pinned.command("status")
        assert status.returncode == 0 and "lo" in status.stdout, status.stdout + status.stderr
        assert not [line for line in log_lines(node) if "WARNING" in line]
        node.kill()
    before = pinned.kernel().program
    assert pinned.command("attach").returncode == 0
    assert pinned.kernel().program != before, "the program is exchanged"
    assert by_kernel(pinned.kernel(), OWN) == ["10.1.0.1"], "what it knew is kept"


def test_an_interface_that_has_gone(pinned, site):
    """It is said, and a server that starts without it feeds what is still attached."""
    site.machine.run("ip", "link", "add", "spare0", "type", "veth", "peer", "name", "spare1")
    pinned.text = pinned.text.replace("xdp lo {", "xdp lo spare0 {")
    node = pinned.start()
    site.machine.run("ip", "link", "delete", "dev", "spare0")
    node.wait_logged("There is no program on spare0: the sockets answer there", timeout=15)
    assert pinned.attached()
    node.kill()
    pinned.start()
    pinned.node.wait_logged("there is no interface spare0; elsewhere the program answers")
    site.etcd.put(f"worker2.{ZONE}", '{"ipv4":"10.77.77.77"}')
    wait_until(lambda: by_kernel(pinned.kernel(), f"worker2.{ZONE}") == ["10.77.77.77"], 5, pinned.node.logs)


def test_the_only_interface_has_gone(pinned, site):
    site.machine.run("ip", "link", "add", "spare0", "type", "veth", "peer", "name", "spare1")
    pinned.text = pinned.text.replace("xdp lo {", "xdp spare0 {")
    node = pinned.start()
    site.machine.run("ip", "link", "delete", "dev", "spare0")
    wait_until(lambda: not pinned.attached(), 15, node.logs)
    node.kill()
    pinned.launch()
    pinned.node.wait_logged("there is no interface spare0; the sockets answer alone")


def test_another_network_namespace_takes_a_pin_of_its_own(pinned, site):
    """Containers may share the file system: one does not feed, attach or detach the other's."""
    node = pinned.start()
    before = pinned.kernel().program
    elsewhere = ["nsenter", f"--net=/proc/{site.outside.holder.pid}/ns/net", "--"]
    for what in ("attach", "detach", "status"):
        result = site.machine.attempt(*elsewhere, binary(), "xdp", what, "--conf", node.corefile_path)
        assert result.returncode == 2 and "another network namespace" in result.stderr, result
    other = pinned.nodes.make(pinned.text, "elsewhere", port=PORT)
    with site.outside.entered():
        other.launch(prefix=[*site.machine.prefix, *elsewhere])
        other.wait_logged("another network namespace")
        other.wait_logged("the sockets answer alone")
        other.terminate()
    assert pinned.kernel().program == before and pinned.attached()
    site.etcd.put(f"worker2.{ZONE}", '{"ipv4":"10.77.77.77"}')
    wait_until(lambda: by_kernel(pinned.kernel(), f"worker2.{ZONE}") == ["10.77.77.77"], 5, node.logs)


# A link of a program that is pinned at argv[1] to the interface argv[2], pinned at argv[3], by BPF_OBJ_GET,
# BPF_LINK_CREATE (of BPF_XDP) and BPF_OBJ_PIN of bpf(2), whose number is argv[4].
_PIN_LINK = """
import ctypes, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def bpf(command, attributes):
    buffer = ctypes.create_string_buffer(attributes, 128)
    result = libc.syscall(int(sys.argv[4]), command, buffer, 128)
    assert result >= 0, (command, ctypes.get_errno())
    return result
def path(text):
    keep.append(ctypes.create_string_buffer(text.encode()))
    return ctypes.addressof(keep[-1])
keep = []
program = bpf(7, struct.pack("=QII", path(sys.argv[1]), 0, 0))
link = bpf(28, struct.pack("=IIII", program, socket.if_nametoindex(sys.argv[2]), 37, 2))
bpf(6, struct.pack("=QII", path(sys.argv[3]), link, 0))
"""


def test_a_foreign_link_in_our_place_is_not_replaced(pinned, site):
    site.machine.run("mkdir", pinned.directory)
    place = os.path.join(os.path.dirname(pinned.directory), "foreign")
    site.machine.run("bpftool", "prog", "load", xdp.compiled(site.directory, "foreign", 2), place, "type", "xdp")
    site.machine.run("/usr/bin/python3", "-c", _PIN_LINK, place, "lo", os.path.join(pinned.directory, "link-lo"),
                     str(xdp.SYS_BPF[os.uname().machine]))
    before = xdp.programs(site.machine, "lo")
    assert before
    for what in ("attach", "detach"):
        result = pinned.command(what)
        assert result.returncode == 2 and "lo has another XDP program, which is not replaced" in result.stderr, result
        assert xdp.programs(site.machine, "lo") == before


def test_a_directory_of_somebody_else_is_left(pinned, site):
    """It may be where a bpf file system is to be mounted."""
    empty = os.path.join(site.directory, "empty")
    os.mkdir(empty)
    pinned.text = pinned.text.replace(pinned.directory, empty)
    assert "is on no bpf file system" in pinned.command("attach").stderr
    assert os.path.isdir(empty)
    assert "is on no bpf file system" in pinned.command("attach").stderr


def test_in_a_time_namespace(pinned):
    """The kernel compares with its own clock, not with the one that the process sees."""
    for offset in (1000, -1000):
        node = pinned.start(prefix=["unshare", "--time", f"--boottime={offset}", f"--monotonic={offset}", "--fork", "--kill-child", "--"])
        assert by_kernel(pinned.kernel(), OWN) == ["10.1.0.1"]
        status = json.loads(pinned.command("status", "--json").stdout)
        assert 0 < status["zones"][0]["believed_seconds"] <= 60, status
        [server] = node.children()
        node.kill()
        wait_until(lambda: ended(server), 10, "the server to have ended")


def test_an_interface_that_is_not_there(site, nodes):
    node = site.start(nodes, xdp.block(site.etcd.endpoint, xdp="lo nosuch0"), "server")
    assert "nosuch0" in assert_serves_by_sockets(site, node)
    node.terminate()
    assert "nosuch0" in assert_refuses_to_start(site, nodes, xdp.block(site.etcd.endpoint, xdp=use("nosuch0", required="")))


@pytest.mark.parametrize("pins", [False, True], ids=["by itself", "pinned"])
@pytest.mark.parametrize("mode", ["xdpdrv", "xdpgeneric"])
def test_a_foreign_program_is_never_replaced(site, nodes, mode, pins):
    site.attach(site.machine, INTERFACE, xdp.compiled(site.directory, "foreign", 2), mode)
    before = xdp.programs(site.machine, INTERFACE)
    assert before
    options = {"pin": os.path.join(site.bpffs(), "idetcd")} if pins else {}
    node = site.start(nodes, xdp.block(site.etcd.endpoint, xdp=use(INTERFACE, **options)), "server")
    assert INTERFACE in assert_serves_by_sockets(site, node)
    assert xdp.programs(site.machine, INTERFACE) == before
    node.terminate()
    assert xdp.programs(site.machine, INTERFACE) == before
    line = assert_refuses_to_start(site, nodes, xdp.block(site.etcd.endpoint, xdp=use(INTERFACE, required="", **options)))
    assert INTERFACE in line
    assert xdp.programs(site.machine, INTERFACE) == before


def test_one_interface_that_cannot_be_attached_leaves_the_others(pinned, site):
    """Each gets the program of this version: one that kept an older one might read other maps."""
    site.attach(site.machine, INTERFACE, xdp.compiled(site.directory, "foreign", 2), "xdpgeneric")
    before = xdp.programs(site.machine, INTERFACE)
    pinned.text = pinned.text.replace("xdp lo {", f"xdp {INTERFACE} lo {{")
    node = pinned.start()
    node.wait_logged(f"{INTERFACE} has another XDP program, which is not replaced; elsewhere the program answers")
    assert by_kernel(pinned.kernel(), OWN) == ["10.1.0.1"]
    assert xdp.programs(site.machine, INTERFACE) == before


def test_nobody_replaces_ours_by_accident(site, nodes):
    node = site.start(nodes, xdp.block(site.etcd.endpoint, xdp="lo"), "server")
    before = xdp.programs(site.machine, "lo")
    result = site.machine.attempt("ip", "link", "set", "dev", "lo", "xdpgeneric", "obj", xdp.compiled(site.directory, "foreign", 2), "sec", "xdp")
    assert result.returncode != 0 and xdp.programs(site.machine, "lo") == before
    assert node.running()


@pytest.mark.parametrize("mode", ["native", "generic"])
def test_the_mode_is_chosen(site, nodes, mode):
    site.start(nodes, xdp.block(site.etcd.endpoint, xdp=use(INTERFACE, **{mode: ""})), "server")
    assert [found for found, _, _ in xdp.programs(site.machine, INTERFACE)] == [mode]
    with site.outside.entered(), Client(xdp.SERVER4, source_port=xdp.SOURCE_PORTS[0]) as client:
        kernel = Kernel(site.machine, INTERFACE)
        def answered():
            before = kernel.answered()
            return client.ask(plain(OWN)) and kernel.answered() > before
        wait_until(answered, 10, "the kernel to answer")


def test_lo_has_no_driver_that_could(site, nodes):
    assert "lo" in assert_refuses_to_start(site, nodes, xdp.block(site.etcd.endpoint, xdp=use("lo", native="", required="")))


# --- more names than there is room for ---

def test_names_that_have_no_room_are_passed_on(site, nodes):
    """All are answered as by a server without `xdp`, and it is never said that one that is left out does not exist."""
    node = site.start(nodes, xdp.block(site.etcd.endpoint, xdp=use(max_names="64")), "server")
    other = site.start(nodes, xdp.block(site.etcd.endpoint, PLAIN_PORT, PLAIN_METRICS), "plain", port=PLAIN_PORT)
    kernel = xdp.kernel_of(site.machine, node)
    for server in (node, other):
        wait_until(lambda s=server: resolves(s, OWN, "10.1.0.1"), 10, server.logs)
    wait_until(lambda: (xdp.metrics().sum("idetcd_xdp_left_out_total") or 0) >= len(xdp.values()) - 64 - 1, 5, lambda: xdp.metrics().text)
    assert 0 < kernel.entries() <= 64 and xdp.metrics().sum("idetcd_xdp_names") <= 64

    def compare():
        before = kernel.answered()
        for name in [*xdp.values(), f"nobody.{ZONE}", f"worker999.{ZONE}"]:
            for rdtype in (1, 28, 15):
                assert client.ask(plain(name, rdtype)) == client.ask(plain(name, rdtype), PLAIN_PORT), name
        return kernel.answered() - before

    with Client(LOOPBACK4) as client, kernel.counting(0, rcode="NXDOMAIN"):
        assert compare() >= 3 * 50, "those that have room are answered"
        # Room that is given up is taken by others, or left; what is said stays true.
        for number in range(1, 101):
            site.etcd.delete(f"worker{number}.{ZONE}")
        for number in range(1, 21):
            site.etcd.put(f"fresh{number}.{ZONE}", '{"ipv4":"10.8.0.%d"}' % number)
        for server in (node, other):
            wait_until(lambda s=server: resolves(s, f"fresh20.{ZONE}", "10.8.0.20"), 5, server.logs)
        compare()
        for number in range(1, 21):
            assert answers(node, f"fresh{number}.{ZONE}") == [f"10.8.0.{number}"]


# --- what is changed while it runs ---

def reload(node, text, times):
    with open(node.corefile_path, "w", encoding="ascii") as file:
        file.write(text)
    node.signal(signal.SIGHUP)
    node.wait_logged("Reloading complete", times)


def test_a_reload_takes_what_is_not_to_be_answered_any_more(site, nodes):
    """Each block's new lines count from the moment of the reload; what it takes a restart for, it says."""
    node = site.start(nodes, xdp.block(site.etcd.endpoint, xdp="lo"), "server")
    kernel = xdp.kernel_of(site.machine, node)
    wait_until(lambda: by_kernel(kernel, OWN) == ["10.1.0.1"], 10, node.logs)
    reload(node, xdp.block(site.etcd.endpoint, xdp="lo", lines=["log"]), 1)
    wait_until(lambda: by_kernel(kernel, OWN) is None, 5, node.logs)
    reload(node, xdp.block(site.etcd.endpoint, xdp="lo", options=["fallthrough"]), 2)
    wait_until(lambda: by_kernel(kernel, OWN) == ["10.1.0.1"], 5, node.logs)
    assert by_kernel(kernel, f"nobody.{ZONE}") is None
    reload(node, xdp.block(site.etcd.endpoint), 3)
    wait_until(lambda: by_kernel(kernel, OWN) is None, 5, node.logs)
    assert answers(node, OWN) == ["10.1.0.1"]
    reload(node, xdp.block(site.etcd.endpoint, xdp="lo", bind=LOOPBACK4), 4)


def test_addresses_that_the_machine_is_given(site, nodes):
    """Of a server that listens on all of them; one that is taken away is answered no more, by anybody."""
    node = site.start(nodes, xdp.block(site.etcd.endpoint, xdp="lo"), "server")
    kernel = xdp.kernel_of(site.machine, node)
    wait_until(lambda: by_kernel(kernel, OWN) == ["10.1.0.1"], 10, node.logs)
    for host, size in (("192.0.2.77", 24), ("2001:db8::77", 64)):
        more = ["nodad"] if ":" in host else []
        site.machine.run("ip", "address", "add", f"{host}/{size}", "dev", INTERFACE, *more)
        wait_until(lambda h=host: by_kernel(kernel, OWN, host=h) == ["10.1.0.1"], 5, node.logs)
        site.machine.run("ip", "address", "delete", f"{host}/{size}", "dev", INTERFACE)


# --- what is counted ---

def test_what_the_kernel_has_answered_is_counted(site, nodes):
    """Among its own numbers, and among those of the block, as if the sockets had answered."""
    node = site.start(nodes, xdp.block(site.etcd.endpoint, xdp="lo"), "server")
    kernel = xdp.kernel_of(site.machine, node)
    wait_until(lambda: by_kernel(kernel, OWN) == ["10.1.0.1"], 10, node.logs)
    wait_until(lambda: xdp.metrics().sum("idetcd_xdp_answered_total") == kernel.answered(), 5, lambda: xdp.metrics().text)
    families = {
        "A": ("idetcd_xdp_answered_total", {"type": "A", "rcode": "NOERROR"}, 10),
        "AAAA": ("idetcd_xdp_answered_total", {"type": "AAAA", "rcode": "NOERROR"}, 5),
        "NXDOMAIN": ("idetcd_xdp_answered_total", {"type": "A", "rcode": "NXDOMAIN"}, 3),
        "options": ("idetcd_xdp_passed_total", {"reason": "edns"}, 2),
        "requests": ("coredns_dns_requests_total", {"type": "A", "proto": "udp", "family": "1"}, 10 + 3 + 2),
        "requests over IPv6": ("coredns_dns_requests_total", {"type": "AAAA", "proto": "udp", "family": "2"}, 5),
        "DO": ("coredns_dns_do_requests_total", {}, 4),
        "responses": ("coredns_dns_responses_total", {"rcode": "NOERROR", "plugin": "idetcd"}, 10 + 5 + 2),
        "NXDOMAIN responses": ("coredns_dns_responses_total", {"rcode": "NXDOMAIN", "plugin": "idetcd"}, 3),
        "sizes": ("coredns_dns_request_size_bytes_count", {"proto": "udp"}, 20),
        "sizes of responses": ("coredns_dns_response_size_bytes_count", {"proto": "udp"}, 20),
        "durations": ("coredns_dns_request_duration_seconds_count", {}, 20),
    }

    def counts():
        found = xdp.metrics()
        return {case: int(found.sum(name, **labels) or 0) for case, (name, labels, _) in families.items()}

    before = counts()
    with Client(LOOPBACK4) as client, Client("::1") as client6, kernel.counting(18):
        for number in range(10):
            edns = opt(flags=0x8000) if number < 4 else b""
            client.ask(header(number, RD, ar=bool(edns)) + question(OWN) + edns)
        for _ in range(5):
            client6.ask(plain(OWN, 28))
        for _ in range(3):
            client.ask(plain(f"nobody.{ZONE}"))
        for _ in range(2):
            client.ask(header(2, RD, ar=1) + question(OWN) + opt(options=struct.pack("!2H", 65001, 0)))
    expected = {case: before[case] + more for case, (_, _, more) in families.items()}
    wait_until(lambda: counts() == expected, 5, lambda: f"{counts()} to be {expected}")
    assert xdp.metrics().sum("idetcd_xdp_names") >= 200
    assert xdp.metrics().sum("idetcd_xdp_attached") == 1


@pytest.mark.parametrize("names", [65_537, 100_000, 1_000_000])
def test_memory_of_a_name(site, nodes, names):
    """No more than 256 bytes for each name that there may be, beside what each map has whatever its size. The kernel's hash has a
    power of two of buckets: most of them a name where the names are one more than that."""
    node = site.start(nodes, xdp.block(site.etcd.endpoint, xdp=use(max_names=str(names))), "server")
    kernel = xdp.kernel_of(site.machine, node)
    assert names * 128 < kernel.memory() <= names * 256 + 4096, f"{kernel.memory()} bytes for {names} names"


def test_over_tcp_nothing_changes(site, nodes):
    node = site.start(nodes, xdp.block(site.etcd.endpoint, xdp="lo"), "server")
    wait_until(lambda: resolves(node, OWN, "10.1.0.1"), 10, node.logs)
    with RawTcp(PORT) as tcp:
        assert tcp.ask(plain(OWN))[-4:] == bytes([10, 1, 0, 1])


def test_bulk_data_over_lo_arrives_whole(site, nodes):
    """Large segments that are shared with their sender pass the program too."""
    site.start(nodes, xdp.block(site.etcd.endpoint, xdp="lo"), "server")
    listener = socket.create_server((LOOPBACK4, 0))
    sent = os.urandom(16 << 20)
    received = bytearray()

    def take():
        connection, _ = listener.accept()
        with connection:
            while data := connection.recv(1 << 20):
                received.extend(data)
    thread = threading.Thread(target=take)
    thread.start()
    with socket.create_connection(listener.getsockname()) as client:
        client.sendall(sent)
    thread.join()
    listener.close()
    assert bytes(received) == sent
