"""What the server may do on its machine, and what it may not any more."""

import contextlib
import glob
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import tempfile

import pytest

from corefiles import corefile
from dns_client import answers, wait_resolves, wait_says
from harness import unit_file
from harness.node import binary
from harness.processes import wait_until
from harness.state import State, contents

WORKER1 = "worker1.tf.local."
WHOAMI = ". {\n    bind 127.0.0.1\n    whoami\n}\n"
BINDING = "0000000000000400"  # CAP_NET_BIND_SERVICE
NONE = "0000000000000000"

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to give up")


@pytest.fixture(autouse=True)
def no_sanitizer():
    with open(binary(), "rb") as file:
        if b"LeakSanitizer" in file.read():
            pytest.skip("LeakSanitizer traces the process, so there is no sandbox")


@pytest.fixture
def state(directory):
    return State(f"{directory}/state")


def status(path):
    with open(path, encoding="ascii") as file:
        return dict(re.findall(r"^(\w+):\s*(\S+)", file.read(), re.MULTILINE))


def threads(node):
    found = []
    for path in glob.glob(f"/proc/{node.pid}/task/*/status"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # one that has ended meanwhile
            found.append(status(path))
    return found


def helper_of(node):
    with open(f"/proc/{node.pid}/task/{node.pid}/children", encoding="ascii") as file:
        return int(file.read())


def rights(of):
    return [of[name] for name in ("CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb", "NoNewPrivs")]


LIMITED = [BINDING, BINDING, BINDING, NONE, NONE, "1"]


def program_says(directory, name, *lines):
    """A program that writes what the lines print to the file of that name; its path."""
    path = os.path.join(directory, name)
    with open(path, "w", encoding="ascii") as file:
        file.write("\n".join(["#!/bin/sh", "{", *lines, f"}} > {directory}/{name}.new 2>&1", f"mv {directory}/{name}.new {directory}/{name}.out", ""]))
    os.chmod(path, 0o755)
    return path


# --- rights ---

@needs_root
def test_every_thread_the_helper_and_a_program_have_one_capability(etcd, nodes, directory, state):
    hook = program_says(directory, "hook", "cat /proc/self/status")
    node = nodes.start(corefile(etcd.endpoint, options=["address 192.0.2.7", state.option, f"on-claim {hook}"]))
    wait_says(node, WORKER1)
    seen = threads(node)
    assert len(seen) > 2
    assert all(rights(thread) == LIMITED and thread["Seccomp"] == "2" for thread in seen), seen
    wait_until(lambda: os.path.exists(f"{directory}/hook.out"), 5, "the program to say what it may do")
    assert rights(status(f"/proc/{helper_of(node)}/status")) == LIMITED, "what it gives up itself, it has given up before it runs a program"
    of_program = status(f"{directory}/hook.out")
    assert rights(of_program) == LIMITED and of_program["Seccomp"] == "0"


@needs_root
def test_a_reload_opens_a_port_below_1024(nodes):
    node = nodes.start(WHOAMI)
    port = next(filter(can_bind, range(600, 1024)))
    with open(node.corefile_path, "w", encoding="ascii") as file:
        file.write(WHOAMI + f".:{port} {{\n    bind 127.0.0.78\n    whoami\n}}\n")
    node.signal(signal.SIGHUP)
    node.wait_logged("Reloading complete")
    node.wait_answers(host="127.0.0.78", port=port)


def can_bind(port):
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        try:
            sock.bind(("127.0.0.78", port))
        except OSError:
            return False
    return True


def test_it_leaves_no_dump_and_is_nobodys_to_trace(nodes):
    node = nodes.start(WHOAMI)
    # What is not dumpable belongs to root, whoever runs it.
    user = 65534 if os.geteuid() == 0 else None
    result = subprocess.run(["cat", f"/proc/{node.pid}/environ"], check=False, capture_output=True, user=user)
    assert result.returncode != 0
    assert os.stat(f"/proc/{node.pid}/environ").st_uid == 0
    node.signal(signal.SIGSEGV)
    assert node.exit_code(5) == -signal.SIGSEGV


# --- writes ---

def test_a_state_directory_that_only_a_reload_names_needs_a_restart(etcd, nodes, state):
    node = nodes.start(WHOAMI)
    if "no Landlock" in node.out():
        pytest.skip("no Landlock")
    with open(node.corefile_path, "w", encoding="ascii") as file:
        file.write(corefile(etcd.endpoint, options=["address 192.0.2.7", state.option]))
    node.signal(signal.SIGHUP)
    node.wait_logged(f"Restart failed: plugin/idetcd: state directory {state.path}: Permission denied; "
                     "a directory that was not in the Corefile at the start needs a restart")
    node.wait_answers()
    assert not os.path.exists(state.path)
    assert node.terminate() == 0
    node.start()
    wait_says(node, WORKER1)


def test_a_reload_may_name_new_files_to_read(nodes, directory):
    node = nodes.start(WHOAMI)
    hosts = os.path.join(directory, "later.hosts")
    with open(hosts, "w", encoding="ascii") as file:
        file.write("192.0.2.9 db.tf.local\n")
    with open(node.corefile_path, "w", encoding="ascii") as file:
        file.write(f". {{\n    bind 127.0.0.1\n    hosts {hosts}\n}}\n")
    node.signal(signal.SIGHUP)
    wait_resolves([node], "db.tf.local.", "192.0.2.9")


def test_the_pid_file_goes_with_the_server(nodes, directory):
    path = os.path.join(directory, "pid")
    node = nodes.make(WHOAMI, arguments=["-pidfile", path]).start()
    assert contents(path) == f"{node.pid}\n"
    assert node.terminate() == 0
    assert not os.path.exists(path)


def test_without_a_sandbox_everything_is_as_it_was(etcd, nodes, state, directory):
    hook = program_says(directory, "hook", "cat /proc/self/status")
    node = nodes.make(corefile(etcd.endpoint, options=["address 192.0.2.7", state.option, f"on-claim {hook}"]), arguments=["-sandbox=off"]).start()
    node.wait_logged("sandbox: off; the server has all the rights with which it was started", times=1)
    own = status("/proc/self/status")
    assert all(rights(thread) == rights(own) and thread["Seccomp"] == own["Seccomp"] for thread in threads(node))
    wait_until(lambda: os.path.exists(f"{directory}/hook.out"), 5, "the program")
    assert rights(status(f"{directory}/hook.out")) == rights(own)


def test_to_log_only_still_takes_the_capabilities(nodes):
    node = nodes.make(WHOAMI, arguments=["-sandbox=log"]).start()
    node.wait_logged("sandbox: log; system calls that would be refused are allowed, and are in the audit log", times=1)
    assert all(thread["NoNewPrivs"] == "1" and thread["Seccomp"] == "2" for thread in threads(node))


# --- secrets ---

def test_no_password_is_logged(etcd, nodes):
    """Neither one that etcd does not know, nor one in a Corefile with mistakes."""
    secret = "hunter2-of-etcd"
    node = nodes.start(corefile(etcd.endpoint, options=["address 192.0.2.7", f"credentials root {secret}"]))
    wait_says(node, WORKER1)
    for number, mistake in enumerate([f"credentials root {secret} {secret}", f"credentials {secret}",
                                      f"endpoint http://root:{secret}@localhost:2379"]):
        with open(node.corefile_path, "w", encoding="ascii") as file:
            file.write(corefile(etcd.endpoint, options=[mistake]))
        node.signal(signal.SIGHUP)
        node.wait_logged("Restart failed", times=number + 1)
    assert node.terminate() == 0
    assert secret not in node.out() + node.err()


# --- the unit ---

def test_the_unit_is_as_closed_as_it_is_said_to_be():
    result = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=15", "--no-pager", unit_file.PATH],
                            check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert float(re.search(r"exposure level .*: ([0-9.]+)", result.stdout)[1]) <= 1.5


def test_systemd_understands_every_line_of_the_unit(directory):
    path = os.path.join(directory, "idetcd.service")
    with open(path, "w", encoding="ascii") as file:
        file.write(unit_file.text().replace("/usr/local/bin/idetcd", "/bin/true"))
    result = subprocess.run(["systemd-analyze", "verify", "--man=no", path], check=False, capture_output=True, text=True)
    assert "idetcd.service" not in result.stdout + result.stderr, result.stderr


@needs_root
def test_the_server_works_under_the_units_restrictions(etcd, nodes):
    """As nobody, with one capability, nowhere to write but the state directory, and systemd's filter of system calls: a name
    is claimed, kept in the state directory, told to a program, and answered on a port below 1024 after a reload."""
    place = State(tempfile.mkdtemp(prefix="idetcd-unit-"))  # others cannot enter the test's own
    os.chown(place.path, 65534, 65534)
    try:
        text = corefile(etcd.endpoint, options=["address 192.0.2.7", f'on-claim /bin/sh -c "cat /proc/self/status > {place.path}/new; mv {place.path}/new {place.path}/hook"'])
        conf = os.path.join(place.path, "Corefile")
        node = nodes.make(text)
        shutil.copy(node.corefile_path, conf)
        os.chmod(conf, 0o644)
        program = os.path.join(place.path, "idetcd")
        shutil.copy(binary(), program)
        os.chmod(program, 0o755)
        command = [program, "-conf", conf, "-dns.port", str(node.port)]
        node.spawn([*unit_file.prefix(place.path), *unit_file.filtered(), *command], env={"STATE_DIRECTORY": place.path})
        node.wait_answers()
        wait_says(node, WORKER1)
        assert "sandbox:" not in node.out(), node.out()
        of_server = threads(node)
        assert all(thread["Uid"] == "65534" and rights(thread)[:3] == [BINDING] * 3 and thread["Seccomp"] == "2" for thread in of_server), of_server
        wait_until(lambda: "IDETCD_NAME" in contents(f"{place.path}/identity"), 5, "the identity")
        wait_until(lambda: os.path.exists(f"{place.path}/hook"), 5, node.logs)
        assert rights(status(f"{place.path}/hook"))[:2] == [NONE, NONE], "a program has no capability at all"
        port = next(filter(can_bind, range(600, 1024)))
        with open(conf, "w", encoding="ascii") as file:
            file.write(text + f".:{port} {{\n    bind 127.0.0.78\n    whoami\n}}\n")
        node.signal(signal.SIGHUP)
        node.wait_logged("Reloading complete")
        node.wait_answers(host="127.0.0.78", port=port)
        assert answers(node, WORKER1) == ["192.0.2.7"]
        assert node.terminate() == 0
        assert contents(place.file("env")) == "" and stat.S_ISREG(os.stat(place.file("names")).st_mode)
    finally:
        shutil.rmtree(place.path)
