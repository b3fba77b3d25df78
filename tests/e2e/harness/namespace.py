"""A machine of its own as far as names go: network, mount and UTS namespaces. Needs root.

The network is entered by the calling thread itself, so everything that a test starts or connects to meanwhile lives in
it. The mounts and the host name are entered by the programs given to run()."""

import contextlib
import ctypes
import os
import subprocess

from .processes import Process, TIME_FACTOR, wait_until

_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000
_BOUND = ("resolv.conf", "hosts", "nsswitch.conf")


class Namespace:
    """Ends with its holder process: nothing is left of it on disk or in the kernel.

    `addresses` (with prefix lengths) are on lo, of global scope, so that libcs find the machine on the net."""

    def __init__(self, directory, addresses=()):
        self.directory = directory
        self.holder = Process("namespace", directory)
        self.holder.spawn(["unshare", "--net", "--mount", "--uts", "sleep", "infinity"])
        # Before a command line: runs it in there, with the same pid.
        self.prefix = ["nsenter", "--target", str(self.holder.pid), "--net", "--mount", "--uts", "--"]
        own = _identity("self")
        wait_until(lambda: all(a != b for a, b in zip(own, _identity(self.holder.pid))), 5, "the namespaces")
        try:
            self.run("ip", "link", "set", "lo", "up")
            for address in addresses:
                self.run("ip", "address", "add", address, "dev", "lo")
            for name in _BOUND:
                self.write(name, "")
                self.run("mount", "--bind", os.path.join(directory, name), f"/etc/{name}")
        except BaseException:
            self.close()
            raise

    def write(self, name, text):
        """The new content of /etc/`name` in there: written in place, as a bind mount is of the file, not of the name."""
        assert name in _BOUND
        with open(os.path.join(self.directory, name), "w", encoding="ascii") as file:
            file.write(text)

    def attempt(self, *argv, timeout=15):
        """subprocess.CompletedProcess of a program run in there."""
        return subprocess.run(
            [*self.prefix, *argv], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=timeout * TIME_FACTOR,
            env={key: value for key, value in os.environ.items() if key not in ("LOCALDOMAIN", "RES_OPTIONS")})

    def run(self, *argv, **options):
        """Its output; it must succeed."""
        result = self.attempt(*argv, **options)
        assert result.returncode == 0, f"{argv}: exit {result.returncode}\n{result.stdout}{result.stderr}"
        return result.stdout

    @contextlib.contextmanager
    def entered(self):
        """The calling thread, its children and its new threads are in the namespace's network meanwhile."""
        with open("/proc/thread-self/ns/net") as own, open(f"/proc/{self.holder.pid}/ns/net") as other:
            _set_network(other)
            try:
                yield self
            finally:
                _set_network(own)

    def close(self):
        self.holder.kill()


def _identity(pid):
    """What distinguishes one set of namespaces from another; that of `unshare` before it has done its work is ours."""
    try:
        return [os.readlink(f"/proc/{pid}/ns/{kind}") for kind in ("net", "mnt", "uts")]
    except FileNotFoundError:
        return _identity("self")


def _set_network(file):
    if _libc.setns(file.fileno(), _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


@contextlib.contextmanager
def inside(machine):
    """The `namespace` of a machine is entered; in the end both are closed, the machine first and in there."""
    try:
        with machine.namespace.entered():
            try:
                yield
            finally:
                machine.close()
    finally:
        machine.namespace.close()
