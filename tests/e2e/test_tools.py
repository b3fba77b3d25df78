"""The two commands that the README names."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from harness import ports
from harness.node import ROOT
from harness.processes import Process, TIME_FACTOR, wait_until

QUICKSTART = [sys.executable, "-B", os.path.join(ROOT, "tools", "quickstart.py")]


def test_install_packages_is_quick_when_all_is_there():
    begin = time.monotonic()
    result = subprocess.run([os.path.join(ROOT, "tools", "install-packages")], check=False, capture_output=True, text=True)
    assert result.returncode == 0 and result.stdout == "" and result.stderr == ""
    assert time.monotonic() - begin < 5 * TIME_FACTOR
    assert not os.path.exists("/usr/sbin/policy-rc.d.before-idetcd")


@pytest.mark.serial
def test_quickstart_once():
    result = subprocess.run([os.path.join(ROOT, "tools", "quickstart"), "--once"], check=False, capture_output=True, text=True,
                            timeout=600, cwd="/")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "every node resolves every name" in result.stdout
    for i in range(1, 6):
        row = next(line for line in result.stdout.splitlines() if line.startswith(f"worker{i}.tf.local."))
        assert row.count("udp tcp") == 5, result.stdout


@pytest.mark.serial
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_quickstart_cleans_up(directory, number):
    quickstart = Process("quickstart", directory)
    quickstart.spawn(QUICKSTART)
    try:
        wait_until(lambda: not quickstart.running() or "Try it" in quickstart.out(), 60, quickstart.logs)
        assert quickstart.running(), quickstart.logs()
        with open(f"/proc/{quickstart.pid}/task/{quickstart.pid}/children", encoding="ascii") as file:
            children = [int(pid) for pid in file.read().split()]
        assert len(children) == 6, "etcd and five nodes"
        quickstart.signal(number)
        assert quickstart.exit_code(15) == (0 if number == signal.SIGINT else 128 + number)
    finally:
        quickstart.kill()
    assert not [pid for pid in children if os.path.exists(f"/proc/{pid}")]


def test_quickstart_takes_other_ports_when_its_own_are_taken():
    holder = None
    if ports.is_free(1053):
        holder = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        holder.bind(("127.0.0.1", 1053))
    try:
        result = subprocess.run([*QUICKSTART, "--once"], check=False, capture_output=True, text=True, timeout=120)
    finally:
        if holder:
            holder.close()
    assert result.returncode == 0, result.stdout + result.stderr
    assert ":1053" not in result.stdout


def test_quickstart_fails_when_a_node_fails():
    result = subprocess.run([*QUICKSTART, "--once"], check=False, capture_output=True, text=True, timeout=60,
                            env={**os.environ, "IDETCD_BINARY": "/bin/false"})
    assert result.returncode == 1
    assert "ended with 1" in result.stderr


@pytest.mark.parametrize("tool", ["quickstart", "test"])
def test_unknown_arguments(tool):
    result = subprocess.run([os.path.join(ROOT, "tools", tool), "--frob"], check=False, capture_output=True, text=True, timeout=10)
    assert result.returncode == 2 and f"tools/{tool}" in result.stderr
