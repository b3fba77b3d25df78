"""A booted Debian 12 with systemd, in a container of systemd-nspawn: its own services, resolver, host name and network."""

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess

import pytest

from .node import ROOT
from .processes import Process, TIME_FACTOR, wait_until

TREE = os.path.join(ROOT, "build", "machine")
# debootstrap takes no alternative of a dependency: the last two are named for that.
PACKAGES = ("systemd systemd-sysv systemd-resolved dbus iproute2 bind9-dnsutils etcd-server cloud-init network-manager curl libssl3 zlib1g "
            "libpam-systemd python3-cffi-backend").split()
MASKED = ("etcd.service apt-daily.timer apt-daily-upgrade.timer NetworkManager.service NetworkManager-wait-online.service "
          "systemd-networkd-wait-online.service console-getty.service").split()


def made_tree():
    """The directory of the installed system, made once for all tests from Debian's archive. Skips where that cannot be."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    for program in ("debootstrap", "systemd-nspawn"):
        if not shutil.which(program):
            pytest.skip(f"{program} is not installed")
    with open(f"{TREE}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(TREE):
            shutil.rmtree(f"{TREE}.new", ignore_errors=True)
            made = subprocess.run(["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", "bookworm", f"{TREE}.new"],
                                  check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True)
            if made.returncode != 0:
                pytest.skip(f"there is no Debian to boot: {made.stdout[-300:]}")
            for unit in MASKED:
                os.symlink("/dev/null", f"{TREE}.new/etc/systemd/system/{unit}")
            shutil.rmtree(f"{TREE}.new/var/cache/apt")
            os.rename(f"{TREE}.new", TREE)
    return TREE


class Machine:
    """Context manager. What is written in there is gone with it. One at a time: they would share a control group.

    `files`: what is there before it boots, by path: a text, or a path of ours, for a file to read."""

    def __init__(self, directory, files=()):
        self.directory = directory
        self.files = dict(files)
        self.process = Process("machine", directory)
        self.leader = None
        self._stack = contextlib.ExitStack()

    def __enter__(self):
        tree = made_tree()
        with contextlib.ExitStack() as stack:
            lock = stack.enter_context(open("/run/idetcd-test-machine.lock", "w", encoding="ascii"))
            fcntl.flock(lock, fcntl.LOCK_EX)
            stack.callback(self._end)
            self.process.spawn(["systemd-nspawn", "--quiet", "--boot", f"--directory={tree}", "--volatile=overlay", "--private-network",
                                "--register=no", "--keep-unit", "--link-journal=no", "--resolv-conf=off", "--console=read-only",
                                "--hostname=machine", *self._binds()])
            wait_until(self._is_up, 120, self.process.logs, interval=0.2)
            self.run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth1")
            self.run("ip", "address", "add", "192.0.2.11/24", "dev", "eth0")
            for name in ("eth0", "eth1"):
                self.run("ip", "link", "set", name, "up")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self._stack.close()

    def _binds(self):
        for number, (path, content) in enumerate(self.files.items()):
            if not os.path.isabs(content) or not os.path.exists(content):
                text, content = content, os.path.join(self.directory, f"file{number}")
                with open(content, "w", encoding="utf-8") as file:
                    file.write(text)
            yield f"--bind-ro={content}:{path}"

    def _is_up(self):
        """Whether all that starts at boot has started, or failed."""
        assert self.process.running(), self.process.logs()
        children = self.process.children()
        if not children:
            return False
        self.leader = children[-1]  # the one before it only prepares
        state = self.attempt("systemctl", "is-system-running").stdout.strip()
        return state in ("running", "degraded")

    def _end(self):
        """Its first process is killed, and all others with it; then nspawn tidies up."""
        if self.process.running() and self.leader:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.leader, signal.SIGKILL)
            self.process.exit_code(20)
        self.process.kill()

    def attempt(self, *argv, timeout=60, text=None):
        """subprocess.CompletedProcess of a program run in there by root."""
        inside = ["nsenter", "--target", str(self.leader), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd=/", "--",
                  "env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive"]
        return subprocess.run([*inside, *argv], input=text or "", capture_output=True, text=True, check=False, timeout=timeout * TIME_FACTOR)

    def run(self, *argv, **options):
        """Its output; it must succeed."""
        result = self.attempt(*argv, **options)
        assert result.returncode == 0, f"{argv}: exit {result.returncode}\n{result.stdout}{result.stderr}"
        return result.stdout

    def shell(self, commands, **options):
        return self.run("sh", "-ec", commands, **options)

    def write(self, path, text):
        self.run("sh", "-c", 'mkdir -p "$(dirname "$0")" && cat >"$0"', path, text=text)

    def wait(self, condition, what, timeout=30):
        """Until condition() is truthy; its value."""
        return wait_until(condition, timeout, lambda: f"{what}\n{self.attempt('journalctl', '-b', '-n', '60', '--no-pager').stdout}", interval=0.2)

    def state(self, unit, *properties):
        """The values of the unit's properties."""
        shown = self.run("systemctl", "show", unit, *(f"-p{name}" for name in properties))
        values = dict(line.split("=", 1) for line in shown.splitlines())
        return [values[name] for name in properties]

    def start_etcd(self):
        self.run("systemd-run", "--unit=store", "--property=DynamicUser=yes", "--property=StateDirectory=store",
                 "etcd", "--data-dir=/var/lib/store/data")
        self.wait(lambda: self.attempt("curl", "-fs", "http://127.0.0.1:2379/health").returncode == 0, "etcd")
