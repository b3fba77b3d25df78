"""`idetcd doctor`: a list of what is wrong on this machine, with a fix each, that changes nothing."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import threading
import time

import pytest

from corefiles import corefile
from harness import ports
from harness.etcd import EtcdMember
from harness.namespace import Namespace
from harness.node import SANITIZERS, binary
from harness.processes import TIME_FACTOR, wait_until
from harness.secure_etcd import Authority, GuardedEtcd, SecureEtcd

STATES = ("ok", "note", "warning", "error")
LONGEST = 5  # seconds, of all checks; a busy machine takes longer to start them


class Report:
    """One run. `where`: the directory of the server's socket."""

    def __init__(self, where, text, *arguments, prefix=()):
        self.corefile = os.path.join(where, "doctor.Corefile")
        if text is not None:
            with open(self.corefile, "w", encoding="utf-8") as file:
                file.write(text)
        begin = time.monotonic()
        result = subprocess.run(
            [*prefix, binary(), "doctor", "--json", "--conf", self.corefile, *arguments], check=False, capture_output=True, text=True,
            stdin=subprocess.DEVNULL, timeout=60 * TIME_FACTOR, env={**os.environ, **SANITIZERS, "RUNTIME_DIRECTORY": where})
        self.seconds = time.monotonic() - begin
        self.code, self.err = result.returncode, result.stderr
        self.json = json.loads(result.stdout)
        self.findings = self.json["findings"]
        for finding in self.findings:
            assert finding["state"] in STATES and finding["check"] and finding["finding"], finding
        for state in ("error", "warning"):
            assert self.json[f"{state}s"] == sum(finding["state"] == state for finding in self.findings)
        assert self.code == (2 if self.json["errors"] else 1 if self.json["warnings"] else 0) and self.err == ""

    def of(self, check):
        return [finding for finding in self.findings if finding["check"] == check]

    def has(self, check, state, text):
        found = [finding for finding in self.of(check) if finding["state"] == state and text in finding["finding"]]
        assert found, (check, state, text, self.findings)
        return found[0]

    def worst(self, check):
        return max((finding["state"] for finding in self.of(check)), key=STATES.index)


def report_until(where, text, condition):
    """etcd has a second or two to answer, and a busy machine takes longer at times: until `condition` of a report holds."""
    last = []

    def look():
        last[:] = [Report(where, text)]
        return condition(last[0])
    wait_until(look, 30, lambda: f"other findings than {last[0].findings}")
    return last[0]


def is_good(report):
    return report.worst("etcd") in ("ok", "warning")  # the latter of a version with known defects


def whoami(port, *lines):
    return f".:{port} {{\n    bind 127.0.0.1\n    whoami\n" + "".join(f"    {line}\n" for line in lines) + "}\n"


def cluster(port, endpoint, *options, pattern="worker{{.ID}}.tf.internal."):
    text = corefile(endpoint, pattern=pattern, options=("address 127.0.0.1", *options), directives=["bind 127.0.0.1"])
    return text.replace(". {", f".:{port} {{", 1)


def tree(*roots):
    """All below but etcd's log: kind, size, times and content."""
    found = {}
    for root in roots:
        for path, folders, files in os.walk(root):
            for name in [*folders, *(file for file in files if not file.startswith("etcd."))]:
                each = os.path.join(path, name)
                status = os.lstat(each)
                found[each] = status.st_mode, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    return found


# --- ports ---

@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM], ids=["udp", "tcp"])
def test_a_port_that_another_program_has(directory, free_port, kind):
    port = free_port()
    assert Report(directory, whoami(port)).has("port", "ok", f"127.0.0.1:{port}: free")
    with socket.socket(socket.AF_INET, kind) as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", port))
        if kind == socket.SOCK_STREAM:
            holder.listen()
        report = Report(directory, whoami(port))
        assert "bind" in report.has("port", "error", f"(pid {os.getpid()}) has 127.0.0.1:{port}")["fix"] and report.code == 2


def test_an_address_that_the_machine_does_not_have(directory, free_port):
    report = Report(directory, whoami(free_port()).replace("127.0.0.1", "192.0.2.77"))
    assert "bind" in report.has("port", "error", "192.0.2.77")["fix"]
    report = Report(directory, whoami(free_port()).replace("127.0.0.1", "nosuch0"))
    assert report.has("port", "error", "nosuch0")


# --- Corefile ---

def test_a_corefile_with_errors_and_with_warnings(directory, free_port, nodes):
    report = Report(directory, f".:{free_port()} {{\n    nonsense\n    whomi\n}}\n")
    assert report.has("Corefile", "error", "Unknown directive 'nonsense'") and report.has("Corefile", "error", "did you mean 'whoami'?")
    assert report.of("server") and report.of("clock"), "the machine is looked at all the same"
    secret = os.path.join(directory, "secret")
    with open(secret, "w", encoding="ascii") as file:
        file.write("0" * 64 + "\n")
    os.chmod(secret, 0o644)
    text = cluster(free_port(), "http://x").replace("endpoint http://x", f"peers 127.0.0.2\n        secret {secret}")
    assert Report(directory, text).has("Corefile", "warning", "every user of this machine may read the secret")
    os.chmod(secret, 0o600)
    assert Report(directory, text).worst("Corefile") == "ok"
    os.unlink(secret)
    assert Report(directory, text).has("Corefile", "error", "secret")


def test_there_is_no_corefile(directory):
    report = Report(directory, None)
    assert "--conf" in report.has("Corefile", "error", "doctor.Corefile")["fix"] and report.code == 2


def test_a_pipe_in_place_of_the_corefile_is_not_waited_for(directory):
    os.mkfifo(os.path.join(directory, "doctor.Corefile"))
    report = Report(directory, None)
    assert report.has("Corefile", "error", "cannot be read within") and report.of("clock")
    assert report.seconds < (LONGEST + 3) * TIME_FACTOR


# --- etcd ---

@pytest.mark.etcd
def test_etcd_that_is_there_silent_and_gone(directory, free_port, stopped_etcd):
    text = cluster(free_port(), stopped_etcd.endpoint)
    gone = Report(directory, text)
    assert "endpoint" in gone.has("etcd", "error", stopped_etcd.endpoint)["fix"] and gone.code == 2
    stopped_etcd.start()
    assert report_until(directory, text, is_good).has("etcd", "ok", f"{stopped_etcd.endpoint} is etcd 3.")
    before = stopped_etcd.revision(), stopped_etcd.pairs(internal=True), stopped_etcd.leases()
    report_until(directory, text, is_good)
    assert (stopped_etcd.revision(), stopped_etcd.pairs(internal=True), stopped_etcd.leases()) == before, "nothing is written"
    stopped_etcd.pause()
    silent = Report(directory, text)
    assert silent.has("etcd", "error", stopped_etcd.endpoint) and silent.seconds < (LONGEST + 3) * TIME_FACTOR
    stopped_etcd.resume()


@pytest.mark.etcd
def test_known_defects_of_etcd(directory, free_port, etcd):
    version = json.loads(etcd._http("GET", "/version")[1])["etcdserver"]
    findings = report_until(directory, cluster(free_port(), etcd.endpoint), is_good).of("etcd")
    assert any(version in finding["finding"] for finding in findings)
    numbers = tuple(map(int, version.split(".")))
    if numbers < (3, 4, 42):
        assert any(finding["state"] == "warning" and "known defects" in finding["finding"] for finding in findings)


@pytest.mark.etcd
def test_one_endpoint_of_two_is_gone(directory, free_port, etcd):
    text = cluster(free_port(), f"{etcd.endpoint} http://127.0.0.1:{free_port()}")
    report = report_until(directory, text, is_good)
    assert report.worst("etcd") == "warning" and report.has("etcd", "ok", etcd.endpoint)


@pytest.mark.etcd
def test_endpoints_of_two_clusters(directory, free_port, etcd):
    other = EtcdMember(directory, "other")
    try:
        other.start()
        text = cluster(free_port(), f"{etcd.endpoint} {other.endpoint}")
        report = report_until(directory, text, lambda one: "of 2 clusters" in str(one.of("etcd")))
        assert "one cluster" in report.has("etcd", "error", "of 2 clusters")["fix"]
    finally:
        other.close()


@pytest.mark.etcd
def test_a_password_that_is_refused_and_a_role_that_lacks_the_names(directory, free_port):
    etcd = GuardedEtcd(directory)
    try:
        etcd.start()
        etcd.guard()
        etcd.add_user("node", "right", ("readwrite", "w", "x"))
        etcd.add_user("stranger", "right", ("readwrite", "a", "b"))
        for words in ("node wrong", "stranger right"):
            text = cluster(free_port(), etcd.endpoint, f"credentials {words}")
            report_until(directory, text, lambda one: any(finding["state"] == "error" and "credentials" in finding["fix"] for finding in one.of("etcd")))
        report_until(directory, cluster(free_port(), etcd.endpoint, "credentials node right"), is_good)
    finally:
        etcd.close()


@pytest.mark.etcd
def test_certificates(directory, free_port):
    authority = Authority(directory)
    etcd = SecureEtcd(directory, authority, clients=True)
    try:
        etcd.start()
        certificate, key = authority.issue()
        text = cluster(free_port(), etcd.endpoint, f"tls {certificate} {key} {authority.certificate}")
        report = report_until(directory, text, is_good)
        assert report.has("etcd", "warning", f"{certificate} expires in") and report.has("etcd", "ok", "is etcd 3.")
        stranger = Authority(directory, "stranger")
        report = Report(directory, cluster(free_port(), etcd.endpoint, f"tls {certificate} {key} {stranger.certificate}"))
        assert "tls" in report.has("etcd", "error", etcd.endpoint)["fix"]
    finally:
        etcd.close()


# --- the machine ---

def test_the_name_that_multicast_dns_takes(directory, free_port):
    text = cluster(free_port(), "http://127.0.0.1:1", pattern="worker{{.ID}}.tf.local.")
    assert "zone" in Report(directory, text).has("name", "warning", ".local")["fix"]


def test_the_address_that_would_be_published(directory, free_port):
    text = cluster(free_port(), "http://127.0.0.1:1")
    report = Report(directory, text)
    assert report.has("address", "ok", "127.0.0.1 is published, of lo") and report.has("address", "warning", "127.0.0.1")
    assert Report(directory, text.replace("address 127.0.0.1", "address 192.0.2.77")).has("address", "note", "192.0.2.77")
    assert "interface" in Report(directory, text.replace("address 127.0.0.1", "interface nosuch0")).has("address", "error", "nosuch0")["fix"]
    assert not Report(directory, text.replace("address 127.0.0.1", "address 127.0.0.1\n        observe")).of("address")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a mount namespace")
def test_who_is_asked_by_the_machine(directory):
    """Port 53 of a network of its own."""
    namespace = Namespace(directory, ["192.0.2.11/24"])
    try:
        def report(text, conf=whoami(53)):
            namespace.write("resolv.conf", text)
            return Report(directory, conf, prefix=namespace.prefix)

        good = report("nameserver 127.0.0.1\n")
        assert good.has("resolver", "ok", "programs ask this server") and good.code == 0, good.findings
        assert "recipes" in report("nameserver 192.0.2.53\n").has("resolver", "note", "192.0.2.53, not this server")["fix"]
        assert report("nameserver 192.0.2.11\n").has("resolver", "note", "192.0.2.11"), "it listens on loopback alone"
        assert report("nameserver 192.0.2.11\n", whoami(53).replace("    bind 127.0.0.1\n", "")).has("resolver", "ok", "192.0.2.11")
        second = report("nameserver 192.0.2.53\nnameserver 127.0.0.1\n")
        assert "first" in second.has("resolver", "warning", "192.0.2.53 first")["fix"] and second.code == 1
        assert report("nameserver 127.0.0.1\nsearch a.org b.org\noptions ndots:5\n").has("resolver", "note", "ndots:5")
        text = cluster(53, "http://127.0.0.1:1")
        assert report("nameserver 127.0.0.1\n", text).has("name", "note", "tf.internal")
        assert all(finding["state"] == "ok" for finding in report("nameserver 127.0.0.1\nsearch tf.internal\n", text).of("name"))
    finally:
        namespace.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts")
def test_the_state_directory(directory, free_port):
    state = os.path.join(directory, "state")
    text = cluster(free_port(), "http://127.0.0.1:1", f"state {state}")
    assert Report(directory, text).has("state", "ok", "is not there yet") and not os.path.exists(state)
    assert Report(directory, cluster(free_port(), "http://127.0.0.1:1")).has("state", "note", "no `state`")
    with open(state, "w", encoding="ascii"):
        pass
    assert Report(directory, text).has("Corefile", "error", "Not a directory")
    os.unlink(state)
    os.mkdir(state)

    def mounted(options):
        return ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o {options} none "{state}" && exec "$@"', "sh"]
    assert Report(directory, text, prefix=mounted("ro")).has("Corefile", "error", "Read-only file system")
    assert Report(directory, text, prefix=mounted("size=1m")).has("state", "error", "MiB left")
    assert Report(directory, text, prefix=mounted("size=16m")).has("state", "warning", "MiB left")


@pytest.mark.etcd
def test_a_state_that_is_read_and_one_that_cannot_be(directory, free_port, etcd, nodes):
    state = os.path.join(directory, "state")
    port = free_port()
    text = cluster(port, etcd.endpoint, f"state {state}")
    node = nodes.start(text, port=port)
    node.wait_owns(etcd)
    # The server writes it behind the claim.
    named = "remembers worker1.tf.internal."
    report = report_until(directory, text, lambda seen: any(named in finding["finding"] for finding in seen.of("state")))
    assert report.has("state", "ok", named), "while the server has it"
    assert report.has("port", "ok", "idetcd (pid")
    node.terminate()
    name = next(name for name in os.listdir(state) if name.endswith(".json"))
    with open(os.path.join(state, name), "w", encoding="ascii") as file:
        file.write("{")
    assert Report(directory, text).has("state", "warning", "not valid JSON")


def test_the_clock_and_limits(directory, free_port):
    report = Report(directory, whoami(free_port()), prefix=["sh", "-c", 'ulimit -n 256 && exec "$@"', "sh"])
    assert len(report.of("clock")) == 1 and report.worst("clock") in ("ok", "note")
    assert "LimitNOFILE" in report.has("limits", "warning", "limited to 256")["fix"]


def test_what_xdp_needs(directory, free_port):
    report = Report(directory, cluster(free_port(), "http://127.0.0.1:1").replace("    bind 127.0.0.1\n", "    bind 127.0.0.1\n    xdp nosuch0\n"))
    assert report.worst("xdp") == "warning" and any("nosuch0" in finding["finding"] or "built without" in finding["finding"] for finding in report.of("xdp"))
    assert not Report(directory, whoami(free_port())).of("xdp"), "only where the Corefile has it"


def test_what_peers_need(directory):
    first = ports.free_ports(3)
    dns = ports.free_port()
    try:
        text = cluster(dns, "http://x").replace("endpoint http://x", f"peers 127.0.0.1\n        peers-port {first}\n        etcd-program /nowhere/etcd")
        report = Report(directory, text)
        assert "etcd-server" in report.has("peers", "error", "/nowhere/etcd")["fix"] and report.has("peers", "ok", "are free")
        assert not report.of("etcd")
        other = os.path.join(directory, "etcd")
        with open(other, "w", encoding="ascii") as file:
            file.write("#!/bin/sh\necho \"etcd Version: 3.5.12\"\n")
        os.chmod(other, 0o755)
        with socket.create_server(("127.0.0.1", first + 2)):
            report = Report(directory, text.replace("/nowhere/etcd", other))
            assert "peers-port" in report.has("peers", "error", f"127.0.0.1:{first + 2}")["fix"]
            assert "3.5.28" in report.has("peers", "warning", "is etcd 3.5.12, which has known defects")["fix"]
    finally:
        for port in (dns, first, first + 1, first + 2):
            ports.release(port)


# --- the server that runs ---

@pytest.mark.etcd
def test_a_server_that_is_degraded(directory, free_port, etcd, nodes):
    port = free_port()
    text = cluster(port, etcd.endpoint)
    assert Report(directory, text).has("server", "note", "no server answers")
    node = nodes.start(text, port=port)
    node.wait_owns(etcd)
    where = node.runtime_directory
    report_until(where, text, lambda one: f"process {node.pid}, ready" in str(one.of("server")))
    etcd.kill()
    wait_until(lambda: node.control("/v1/status")[1]["degraded"], 20, node.logs)
    report = report_until(where, text, lambda one: "degraded: " in str(one.of("server")))
    assert report.has("server", "warning", "degraded: ") and report.has("etcd", "error", etcd.endpoint)
    assert Report(where, text, "--socket", "/nowhere.sock").has("server", "error", "/nowhere.sock")
    node.pause()
    found = Report(where, text).has("server", "error", "the server runs, but gives no answer")
    assert "enable" not in found["fix"]
    node.resume()


@pytest.mark.parametrize("status, reason, body", [(500, "Internal Server Error", "no"), (404, "Not Found", "no"), (503, "Service Unavailable", '{"error": "why"}')])
def test_a_server_that_answers_with_an_error(directory, free_port, status, reason, body):
    path = os.path.join(directory, "53.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def answer():
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:  # it is closed
                    return
                with client, contextlib.suppress(OSError):  # one only looks whether somebody listens
                    client.recv(4096)
                    client.sendall(f"HTTP/1.1 {status} {reason}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        thread = threading.Thread(target=answer)
        thread.start()
        try:
            report = Report(directory, whoami(free_port()))
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
    report.has("server", "error", f"the server runs, but answers with the HTTP status {status}")
    assert "no answer" not in str(report.of("server"))


@pytest.mark.etcd
def test_changes_nothing_and_says_the_same_to_people(directory, free_port, etcd, nodes):
    state, port = os.path.join(directory, "state"), free_port()
    text = cluster(port, etcd.endpoint, f"state {state}")
    node = nodes.start(text, port=port)
    node.wait_owns(etcd)
    node.terminate()
    shutil.rmtree(node.runtime_directory, ignore_errors=True)
    Report(directory, text)
    before = tree(directory), etcd.revision()
    report = Report(directory, None)
    assert (tree(directory), etcd.revision()) == before
    result = subprocess.run([binary(), "doctor", f"-conf={report.corefile}"], check=False, capture_output=True, text=True, timeout=60 * TIME_FACTOR,
                            env={**os.environ, **SANITIZERS, "RUNTIME_DIRECTORY": directory})
    assert result.returncode == report.code and result.stderr == ""
    lines = result.stdout.splitlines()
    for finding in report.findings:
        state = finding["state"].upper() if finding["state"] in ("warning", "error") else finding["state"]
        assert any(line.split()[:2] == [state, finding["check"]] for line in lines), (finding, result.stdout)
    assert sum(" -> " in line for line in lines) == sum("fix" in finding for finding in report.findings)
    assert lines[-1].split()[1].startswith("error")


def test_the_corefile_of_the_directory_is_the_default(directory, free_port):
    def look():
        result = subprocess.run([binary(), "doctor", "--json"], check=False, capture_output=True, text=True, cwd=directory, timeout=60 * TIME_FACTOR,
                                env={**os.environ, **SANITIZERS, "RUNTIME_DIRECTORY": directory})
        return json.loads(result.stdout)
    if not os.path.exists("/etc/idetcd/Corefile"):
        said = look()
        assert said["corefile"] == "default" and any(finding["check"] == "Corefile" and finding["state"] == "note" for finding in said["findings"])
    with open(os.path.join(directory, "Corefile"), "w", encoding="ascii") as file:
        file.write(whoami(free_port()))
    assert look()["corefile"] == "Corefile"
