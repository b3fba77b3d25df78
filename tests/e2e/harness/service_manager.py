"""What a node sees of systemd: the notification socket of sd_notify(3) and the descriptor store of systemd.service(5)."""

import array
import os
import socket
import sys
import threading
import time

from .processes import TIME_FACTOR

# Hands sockets over as sd_listen_fds(3) has it: LISTEN_PID can only be known in the process itself.
_LAUNCH = """
import fcntl, os, sys
given = [int(number) for number in sys.argv[1].split(",") if number]
moved = [fcntl.fcntl(fd, fcntl.F_DUPFD, 200) for fd in given]
for fd, source in enumerate(moved, 3):
    os.dup2(source, fd)
os.closerange(3 + len(moved), 1000)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execvp(sys.argv[2], sys.argv[2:])
"""


class ServiceManager:
    """Keeps what its service stores, by name, and remembers what it was told. Context manager."""

    def __init__(self, directory, abstract=False):
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0idetcd-test-{os.getpid()}-{id(self)}" if abstract else f"{directory}/notify")
        name = self._socket.getsockname()
        self.address = f"@{name[1:].decode()}" if abstract else name
        self.messages = []  # as dictionaries, without what is only descriptors
        self.stored = []    # (name, socket), in the order in which they came
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
            end.sendto(b"END=1", self._socket.getsockname())
        self._thread.join()
        self._socket.close()
        for _, kept in self.stored:
            kept.close()

    def _run(self):
        while True:
            data, control, _, _ = self._socket.recvmsg(65536, socket.CMSG_SPACE(16 * array.array("i").itemsize))
            descriptors = array.array("i")
            for level, kind, octets in control:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    descriptors.frombytes(octets)
            message = dict(line.split("=", 1) for line in data.decode().splitlines())
            if "END" in message:
                return
            with self._changed:
                self._take(message, descriptors)
                self._changed.notify_all()

    def _take(self, message, descriptors):
        if "FDSTORE" in message:
            for fd in descriptors:
                self._store(message["FDNAME"], fd)
            return
        for fd in descriptors:  # of BARRIER=1, which waits for that
            os.close(fd)
        if "FDSTOREREMOVE" in message:
            gone = [kept for kept in self.stored if kept[0] == message["FDNAME"]]
            self.stored = [kept for kept in self.stored if kept not in gone]
            for _, kept in gone:
                kept.close()
        self.messages.append({**message, "at": time.monotonic()})

    def _store(self, name, fd):
        """A descriptor of the same open file is not kept twice."""
        if any(os.path.sameopenfile(kept.fileno(), fd) for _, kept in self.stored):
            return os.close(fd)
        self.stored.append((name, socket.socket(fileno=fd)))

    def wait(self, condition, what, timeout=10):
        """Until condition(self) is truthy; its value. Nothing is taken meanwhile."""
        with self._changed:
            value = self._changed.wait_for(lambda: condition(self), timeout * TIME_FACTOR)
            assert value, f"{what}; messages {self.messages}, stored {self.stored}"
            return value

    def wait_said(self, variable, value, since=0, timeout=10):
        """The first message that says so behind the `since` first ones."""
        return self.wait(lambda self: next((m for m in self.messages[since:] if m.get(variable) == value), None),
                         f"{variable}={value}", timeout)

    def names(self):
        return sorted(name for name, _ in self.stored)

    def launch(self, node, sockets=(), watchdog=None, env=None):
        """Starts it as its service: with `sockets`, (name, socket) of socket units, and all that is stored."""
        given = [*sockets, *self.stored]
        env = {"NOTIFY_SOCKET": self.address, **(env or {})}
        if given:
            env |= {"LISTEN_FDS": str(len(given)), "LISTEN_FDNAMES": ":".join(name for name, _ in given)}
        if watchdog:
            env |= {"WATCHDOG_USEC": str(int(watchdog * 1e6))}
        numbers = [one.fileno() for _, one in given]
        prefix = [sys.executable, "-IS", "-c", _LAUNCH, ",".join(map(str, numbers))]
        return node.launch(env=env, prefix=prefix, pass_fds=numbers)
