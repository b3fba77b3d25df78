"""The node's only resolver, as programs see it: `nameserver 127.0.0.1` and nothing else, on a machine of its own
(harness/namespace.py), asked through glibc, musl, Python, getent and ping. /etc/hosts is empty there."""

import collections
import itertools
import os
import re
import shutil
import subprocess

import dns.message
import dns.query
import dns.rdatatype
import dns.rrset
import pytest

from conftest import Nodes, managed
from harness.dns_servers import Nsd
from harness.etcd import EtcdMember
from harness.namespace import Namespace, inside
from harness.processes import TIME_FACTOR, wait_until
from harness.upstreams import Upstream, answer

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces and port 53 need root")

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = "/usr/bin/python3"
V4, V6 = "192.0.2.11", "2001:db8::11"
UPSTREAM_PORT, BACKWARDS_PORT = 5300, 5301
EAI_NONAME, EAI_AGAIN, EAI_NODATA = -2, -3, -5
AT_ONCE = 1900 * TIME_FACTOR  # ms: below any resolver's first timeout, well above a busy machine's scheduling

COREFILE = """.:53 {{
    log
    errors
    idetcd {{
        endpoint {endpoint}
        pattern worker{{{{.ID}}}}.tf.local.
        address {v4} {v6}
        lease 5s
    }}
    hosts {{
        10.20.0.5 printer.lan
        10.20.0.6 nas
        2001:db8:20::5 printer.lan
        fallthrough
    }}
    cache
    forward backwards.example 127.0.0.1:{backwards}
    forward . 127.0.0.1:{upstream}
}}
"""

ZONE = """$TTL 300
@ SOA ns host 1 7200 900 1209600 60
@ NS ns
ns A 127.0.0.1
www A 12.34.0.80
www AAAA 2001:db8:34::80
only4 A 12.34.0.4
only6 AAAA 2001:db8:34::6
mail MX 10 www
alias CNAME alias2
alias2 CNAME www
*.wild A 12.34.0.7
worker1.sub A 12.34.0.9
""" + "".join(f"big A 12.35.{i // 250}.{i % 250 + 1}\n" for i in range(300)) + "".join(
    f"n{i} A 12.36.0.{i}\nn{i} AAAA 2001:db8:36::{i}\n" for i in range(100))

ROOT = """$TTL 300
@ SOA ns.net.example. host.net.example. 1 7200 900 1209600 60
@ NS ns.net.example.
"""

REVERSE = """$TTL 300
@ SOA ns.net.example. host.net.example. 1 7200 900 1209600 60
@ NS ns.net.example.
80.0 PTR www.net.example.
"""


class Machine:
    """The namespace, and in it etcd, NSD and the node under test."""

    def __init__(self, directory, nodes):
        self.nodes = nodes
        self.marks = 0
        self.namespace = Namespace(directory, (f"{V4}/24", f"{V6}/64"))
        self.run, self.attempt = self.namespace.run, self.namespace.attempt
        self.namespace.write("nsswitch.conf", "hosts: files dns\n")
        self.resolv_conf()
        self.etcd = EtcdMember(directory)
        self.upstream = Nsd(directory, UPSTREAM_PORT, {".": ROOT, "net.example.": ZONE, "34.12.in-addr.arpa.": REVERSE})

    def start(self):
        self.etcd.start()
        self.upstream.launch()
        text = COREFILE.format(endpoint=self.etcd.endpoint, v4=V4, v6=V6, upstream=UPSTREAM_PORT,
                               backwards=BACKWARDS_PORT)
        self.node = self.nodes.make(text, port=None)
        self.node.launch(prefix=self.namespace.prefix).wait_answers(port=53)
        self.name = wait_until(lambda: next(iter(self.etcd.names()), None), 10,
                               lambda: f"the node to own a name\n{self.node.logs()}").rstrip(".")
        self.etcd.put("worker77.tf.local.", '{"ipv4":"192.0.2.77"}')
        wait_until(lambda: self.gets("worker77.tf.local"), 10, self.node.logs)
        wait_until(lambda: self.gets("www.net.example"), 10, self.upstream.logs)

    def gets(self, name):
        return self.attempt("getent", "ahosts", name).returncode == 0

    def resolv_conf(self, *lines, server="127.0.0.1"):
        self.namespace.write("resolv.conf", "".join(f"{line}\n" for line in (f"nameserver {server}", *lines)))

    def close(self):
        self.upstream.kill()
        self.etcd.close()

    # --- what the server logged ---

    def queries(self):
        """(client, id, type, name, proto, size, do, bufsize) of each query that was logged."""
        pattern = r'\[INFO\] (\S+) - (\d+) "(\S+) IN (\S+) (udp|tcp) (\d+) (true|false) (\d+)"'
        return re.findall(pattern, self.node.out())

    def mark(self):
        """The name of a query of our own, when the log has its line, and those of all queries before it."""
        self.marks += 1
        name = f"mark-{self.marks}.tf.local."
        dns.query.udp(dns.message.make_query(name, "A"), "127.0.0.1", timeout=5 * TIME_FACTOR, ignore_unexpected=True)
        wait_until(lambda: f" {name} " in self.node.out(), 5, lambda: f"{name} in the log\n{self.node.logs()}")
        return name

    def logged(self, act):
        """What the server logged of act()'s queries: lines come in order, so they are those between two of our own."""
        begin = self.mark()
        act()
        end = self.mark()
        queries = self.queries()
        names = [query[3] for query in queries]
        return queries[names.index(begin) + 1:names.index(end)]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return str(tmp_path_factory.mktemp("libc"))


@pytest.fixture(scope="module")
def the_machine(directory, request):
    nodes = Nodes(directory)
    machine = Machine(directory, nodes)
    with inside(machine):
        machine.start()
        yield from (machine for _ in managed(nodes, request))


@pytest.fixture
def machine(the_machine):
    yield the_machine
    the_machine.resolv_conf()


@pytest.fixture(scope="module", params=["glibc", "musl"])
def libc(request):
    compiler = {"glibc": "cc", "musl": "musl-gcc"}[request.param]
    assert shutil.which(compiler), f"{compiler} is not installed: run tools/install-packages"
    return request.param


Result = collections.namedtuple("Result", "code milliseconds canonical addresses")


@pytest.fixture
def lookup(machine, libc, directory):
    """lookup(mode, name...) -> {name: Result} of the C program, linked with one libc or the other."""
    program = os.path.join(directory, f"lookup-{libc}")
    if not os.path.exists(program):
        subprocess.run([{"glibc": "cc", "musl": "musl-gcc"}[libc], "-O1", "-pthread", "-o", program,
                        os.path.join(HERE, "harness", "lookup.c")], check=True)

    def act(*arguments):
        results = {}
        for line in machine.run(program, *arguments).splitlines():
            name, code, milliseconds, canonical, *addresses = line.split(" ")
            results[name] = Result(int(code), float(milliseconds), canonical, sorted(addresses))
        return results

    return act


def python(machine, code):
    return machine.run(PYTHON, "-I", "-c", f"import socket\n{code}").split()


# --- getaddrinfo and getnameinfo from C ---

def test_names_of_every_kind(lookup, machine):
    expected = {
        machine.name: [V4, V6],
        "worker77.tf.local": ["192.0.2.77"],
        "printer.lan": ["10.20.0.5", "2001:db8:20::5"],
        "www.net.example": ["12.34.0.80", "2001:db8:34::80"],
        "alias.net.example": ["12.34.0.80", "2001:db8:34::80"],
        "only4.net.example": ["12.34.0.4"],
        "only6.net.example": ["2001:db8:34::6"],
        "any.thing.wild.net.example": ["12.34.0.7"],
        "WwW.nEt.eXample": ["12.34.0.80", "2001:db8:34::80"],
        "www.net.example.": ["12.34.0.80", "2001:db8:34::80"],
        "app.localhost": ["127.0.0.1", "::1"],
    }
    results = lookup("any", *expected)
    assert {name: result.addresses for name, result in results.items()} == {n: sorted(a) for n, a in expected.items()}
    assert results["alias.net.example"].canonical == "www.net.example"
    assert max(result.milliseconds for result in results.values()) < AT_ONCE
    for name in (machine.name, "printer.lan", "www.net.example"):
        assert lookup("4", name)[name].addresses == [expected[name][0]]
        assert lookup("6", name)[name].addresses == [expected[name][1]]


def test_aliases_that_come_behind_what_they_lead_to(lookup):
    """glibc does not follow them in this order: "Name or service not known"."""
    def handler(query, tcp):
        response = answer(query)
        rdtype = dns.rdatatype.to_text(query.question[0].rdtype)
        data = {"A": "12.34.0.81", "AAAA": "2001:db8:34::81"}[rdtype]
        for owner, kind, rdata in (("c.backwards.example.", rdtype, data), ("b.backwards.example.", "CNAME", "c.backwards.example."),
                                   ("a.backwards.example.", "CNAME", "b.backwards.example.")):
            response.answer.append(dns.rrset.from_text(owner, 60, "IN", kind, rdata))
        return response
    with Upstream(handler, port=BACKWARDS_PORT):
        assert lookup("any", "a.backwards.example")["a.backwards.example"].addresses == ["12.34.0.81", "2001:db8:34::81"]


def test_localhost(lookup):
    addresses = lookup("any", "localhost")["localhost"].addresses
    assert {"127.0.0.1", "::1"} >= set(addresses) >= {"127.0.0.1"}


def test_names_that_are_not(lookup):
    missing = ["worker78.tf.local", "missing.net.example", "missing.lan", "nothing.local", "x.invalid", "a.b.worker77.tf.local"]
    for name, result in lookup("any", *missing).items():
        assert result.code == EAI_NONAME and result.milliseconds < AT_ONCE, (name, result)
    for name, result in lookup("any", "mail.net.example", "wild.net.example").items():
        assert result.code in (EAI_NODATA, EAI_NONAME) and result.milliseconds < AT_ONCE, (name, result)
    assert lookup("6", "worker77.tf.local")["worker77.tf.local"].code in (EAI_NODATA, EAI_NONAME)
    assert lookup("4", "only6.net.example")["only6.net.example"].code in (EAI_NODATA, EAI_NONAME)


def test_addresses_have_names(lookup, machine):
    results = lookup("reverse", V4, V6, "192.0.2.77", "10.20.0.5", "2001:db8:20::5", "12.34.0.80", "127.0.0.1", "::1",
                     "12.34.0.99", "10.99.0.1")
    assert [result.canonical for result in results.values()] == [
        machine.name, machine.name, "worker77.tf.local", "printer.lan", "printer.lan", "www.net.example", "localhost",
        "localhost", "-", "-"]
    assert results["12.34.0.99"].code == results["10.99.0.1"].code == EAI_NONAME
    assert max(result.milliseconds for result in results.values()) < AT_ONCE


def test_an_answer_too_long_for_a_datagram(lookup, machine, libc):
    queries = machine.logged(lambda: check_big(lookup("4", "big.net.example")["big.net.example"], libc))
    assert libc == "musl" or [query[4] for query in queries if query[3] == "big.net.example."][-1] == "tcp"


def check_big(result, libc):
    # musl knows no TCP before 1.2.4: of the truncated answer it learns nothing. Later ones take 48 addresses at most.
    if libc == "glibc":
        assert result.code == 0 and len(result.addresses) == 300
    else:
        assert (result.code, len(result.addresses)) in ((EAI_NODATA, 0), (EAI_NONAME, 0), (0, 48))


def test_both_families_at_once(lookup, machine):
    """One socket, two queries sent before the first answer."""
    queries = machine.logged(lambda: lookup("any", "n1.net.example"))
    mine = [query for query in queries if query[3] == "n1.net.example."]
    assert sorted(query[2] for query in mine) == ["A", "AAAA"]
    assert len({query[0] for query in mine}) == 1, "one port"
    assert len({query[1] for query in mine}) == 2, "two IDs"


def test_many_threads(lookup):
    names = [f"n{i}.net.example" for i in range(100)]
    results = lookup("together", *names)
    assert {name: result.addresses for name, result in results.items()} == {
        name: sorted([f"12.36.0.{i}", f"2001:db8:36::{i}"]) for i, name in enumerate(names)} | {
        "n0.net.example": ["12.36.0.0", "2001:db8:36::"]}


def test_search_list(lookup, machine):
    short = machine.name.partition(".")[0]
    machine.resolv_conf("search tf.local net.example")
    results = lookup("any", short, "nas", "www", "nowhere", "worker1.sub", machine.name, "www.net.example")
    assert results[short].addresses == [V4, V6] and results["www"].addresses == ["12.34.0.80", "2001:db8:34::80"]
    assert results["nas"].addresses == ["10.20.0.6"], "the name as it is, after the search list"
    assert results["nowhere"].code == EAI_NONAME
    assert results[machine.name].addresses == [V4, V6] and results["www.net.example"].code == 0
    assert max(result.milliseconds for result in results.values()) < AT_ONCE

    # As in Kubernetes: with few dots the search list comes first, and what it costs is some NXDOMAIN of our own.
    machine.resolv_conf("search svc.tf.local tf.local net.example", "options ndots:5")
    results = lookup("any", short, machine.name, "www.net.example", "worker1.sub", "worker77.tf.local")
    assert results[machine.name].addresses == [V4, V6]
    assert results[short].addresses == [V4, V6]
    assert results["www.net.example"].addresses == ["12.34.0.80", "2001:db8:34::80"]
    assert results["worker1.sub"].addresses == ["12.34.0.9"]
    assert max(result.milliseconds for result in results.values()) < AT_ONCE


OPTIONS = ["edns0 trust-ad", "use-vc", "edns0 use-vc", "single-request", "single-request-reopen", "rotate",
           "timeout:3 attempts:1", "inet6", "no-aaaa"]


@pytest.mark.parametrize("options", OPTIONS)
def test_options(lookup, machine, libc, options):
    """musl knows few of them and must not be disturbed by any."""
    machine.resolv_conf(f"options {options}")
    names = {machine.name: [V4, V6], "www.net.example": ["12.34.0.80", "2001:db8:34::80"],
             "printer.lan": ["10.20.0.5", "2001:db8:20::5"]}

    def act():
        for name, result in lookup("any", *names).items():
            wanted = names[name]
            assert result.addresses in ([wanted, wanted[:1]] if options == "no-aaaa" else [wanted]), (name, result)
            assert result.milliseconds < AT_ONCE
        assert lookup("any", "missing.net.example")["missing.net.example"].code == EAI_NONAME

    queries = machine.logged(act)
    if libc == "glibc":
        assert {query[4] for query in queries} == {"tcp" if "use-vc" in options else "udp"}
        if "edns0" in options:
            assert {query[7] for query in queries} == {"1200"}, ("glibc's EDNS buffer", queries)


def test_nameserver_over_ipv6(lookup, machine):
    machine.resolv_conf(server="::1")
    assert lookup("any", machine.name)[machine.name].addresses == [V4, V6]
    assert lookup("any", "www.net.example")["www.net.example"].code == 0
    assert lookup("reverse", V6)[V6].canonical == machine.name


# --- upstream and etcd do not depend on each other ---

def test_a_dead_upstream(lookup, machine, libc):
    """Upstream names fail in time; all others as ever, and what is cached too."""
    # musl waits for something better than a SERVFAIL until its time is over.
    machine.resolv_conf("options timeout:2 attempts:1")
    assert lookup("any", "www.net.example")["www.net.example"].code == 0
    machine.upstream.kill()
    try:
        cold = f"n9{libc == 'musl':d}-dead.net.example"
        results = lookup("any", machine.name, "worker77.tf.local", "printer.lan", "www.net.example", "localhost", "worker78.tf.local")
        assert [result.code for result in results.values()] == [0, 0, 0, 0, 0, EAI_NONAME], results
        assert max(result.milliseconds for result in results.values()) < AT_ONCE
        assert lookup("reverse", V4)[V4].canonical == machine.name
        result = lookup("any", cold)[cold]
        assert result.code == EAI_AGAIN, result
        assert result.milliseconds < (AT_ONCE if libc == "glibc" else 5_000 * TIME_FACTOR), "refused, not silent"
        # While others wait for the world: the cluster's names do not.
        both = lookup("together", "x" + cold, machine.name)
        assert both[machine.name].addresses == [V4, V6] and both[machine.name].milliseconds < AT_ONCE
    finally:
        machine.upstream.launch()
    # Names not asked for before: failures are remembered for some seconds (RFC 9520).
    fresh = (f"back{number}.wild.net.example" for number in itertools.count())
    wait_until(lambda: next(iter(lookup("any", next(fresh)).values())).code == 0, 10, machine.node.logs, interval=0.1)


def test_a_silent_upstream(lookup, machine, libc):
    """With fifty programs waiting for the world, the cluster is there at once; and the world is when it is back."""
    machine.resolv_conf("options timeout:3 attempts:1")
    machine.upstream.kill()
    silent = Upstream(lambda query, tcp: None, port=UPSTREAM_PORT).start()
    try:
        waiting = [f"silent{i}.{libc}.wild.net.example" for i in range(50)]
        results = lookup("together", *waiting, machine.name, "worker77.tf.local", "worker78.tf.local", "printer.lan", "app.localhost")
        assert {results[name].code for name in waiting} == {EAI_AGAIN}
        for name, code in ((machine.name, 0), ("worker77.tf.local", 0), ("worker78.tf.local", EAI_NONAME), ("printer.lan", 0),
                           ("app.localhost", 0)):
            assert results[name].code == code and results[name].milliseconds < AT_ONCE, (name, results[name])
    finally:
        silent.close()
        machine.upstream.launch()
    fresh = (f"heard{number}.{libc}.wild.net.example" for number in itertools.count())
    wait_until(lambda: next(iter(lookup("any", next(fresh)).values())).code == 0, 15, machine.node.logs, interval=0.1)


def test_a_dead_etcd(lookup, machine):
    machine.etcd.pause()
    try:
        results = lookup("any", "worker77.tf.local", "n5.net.example", "n6.net.example", "printer.lan")
        assert [result.code for result in results.values()] == [0, 0, 0, 0], results
        assert max(result.milliseconds for result in results.values()) < AT_ONCE
    finally:
        machine.etcd.resume()
    wait_until(lambda: lookup("any", machine.name)[machine.name].code == 0, 15, machine.node.logs, interval=0.2)


# --- getent, Python, ping, hostname ---

@pytest.mark.parametrize("options", [(), ("options edns0 trust-ad",), ("options use-vc",)], ids=["plain", "edns0", "use-vc"])
def test_getent(machine, options):
    machine.resolv_conf(*options)
    lines = machine.run("getent", "ahosts", machine.name).splitlines()
    assert {line.split()[0] for line in lines} == {V4, V6}
    assert lines[0].split()[2] == machine.name
    assert {line.split()[0] for line in machine.run("getent", "ahostsv4", "alias.net.example").splitlines()} == {"12.34.0.80"}
    assert machine.run("getent", "hosts", V4).split() == [V4, machine.name]
    assert machine.run("getent", "hosts", V6).split() == [V6, machine.name]
    assert machine.run("getent", "hosts", "192.0.2.77").split() == ["192.0.2.77", "worker77.tf.local"]
    assert machine.run("getent", "hosts", "12.34.0.80").split() == ["12.34.0.80", "www.net.example"]
    assert machine.run("getent", "hosts", "10.20.0.5").split()[1] == "printer.lan"
    assert machine.run("getent", "hosts", "127.0.0.1").split()[1] == "localhost"
    assert machine.attempt("getent", "ahosts", "missing.net.example").returncode == 2
    assert machine.attempt("getent", "hosts", "12.34.0.99").returncode == 2


def test_python(machine):
    output = python(machine, f"""
for name in ("{machine.name}", "www.net.example", "printer.lan"):
    print(name, *sorted({{info[4][0] for info in socket.getaddrinfo(name, 80)}}))
print(socket.gethostbyname("alias.net.example"), socket.gethostbyaddr("{V4}")[0], socket.getnameinfo(("{V6}", 53), 0)[0])
try:
    socket.getaddrinfo("missing.net.example", 80)
except socket.gaierror as error:
    print(error.errno == socket.EAI_NONAME)
""")
    assert output == [machine.name, V4, V6, "www.net.example", "12.34.0.80", "2001:db8:34::80", "printer.lan", "10.20.0.5",
                      "2001:db8:20::5", "12.34.0.80", machine.name, machine.name, "True"]


@pytest.mark.parametrize("short", [True, False], ids=["short", "long"])
def test_the_nodes_own_name(machine, short):
    """getfqdn() and `hostname -f`: forward and reverse agree, from the short host name and the long one."""
    if short:
        machine.resolv_conf("search tf.local")
    machine.run("hostname", machine.name.partition(".")[0] if short else machine.name)
    code = """
name = socket.getfqdn()
print(name, *sorted({socket.getnameinfo(info[4], socket.NI_NAMEREQD)[0] for info in socket.getaddrinfo(name, 53)}))
"""
    assert python(machine, code) == [machine.name, machine.name]
    assert machine.run("hostname", "--fqdn").strip() == machine.name


def test_ping(machine):
    machine.resolv_conf("search tf.local")
    for arguments, address in ((["-4", machine.name], V4), (["-6", machine.name], V6),
                               (["-4", machine.name.partition(".")[0]], V4), (["-4", "localhost"], "127.0.0.1")):
        output = machine.run("ping", "-c1", "-w5", *arguments)
        assert f"({address})" in output and " 0% packet loss" in output, output
    result = machine.attempt("ping", "-c1", "-w5", "missing.net.example")
    assert result.returncode == 2 and "Name or service not known" in result.stderr
