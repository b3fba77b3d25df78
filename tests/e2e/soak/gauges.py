"""What a process holds, from /proc."""

import collections
import contextlib
import dataclasses
import os
import re

from chaos.store import now
from harness.background import Background

_STATES = {"01": "established", "07": "open", "08": "half closed", "0A": "listening"}
_MEMORY = re.compile(rb"^(\w+): +(\d+) kB$", re.MULTILINE)


@dataclasses.dataclass
class Sample:
    at: float
    anonymous: int  # KiB, what it has allocated, swapped out or not: what a leak makes grow
    rss: int  # KiB
    pss: int  # KiB
    descriptors: int
    threads: int
    waited: float = 0.0  # seconds since its start that threads were ready to run and got no processor, the sum of all


def take(pid):
    """OSError if there is no such process any more."""
    with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
        memory = {key.decode(): int(value) for key, value in _MEMORY.findall(file.read())}
    return Sample(now(), memory["Anonymous"] + memory["Swap"], memory["Rss"], memory["Pss"],
                  len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task")), _waited(pid))


def _waited(pid):
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as file:
            total += int(file.read().split()[1])
    return total / 1e9


def descriptors(pid):
    """What each open descriptor is, as a Counter of texts."""
    sockets = _sockets(pid)
    found = collections.Counter()
    for descriptor in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{descriptor}")
        except OSError:  # closed meanwhile
            continue
        inode = target[8:-1] if target.startswith("socket:[") else None
        found[sockets.get(inode, "a socket of another family") if inode else target.partition(":[")[0]] += 1
    return found


def _sockets(pid):
    """Inode -> what it is, of TCP and UDP. Of the two ports the lower one counts: the other is any that was free."""
    found = {}
    for protocol in ("tcp", "tcp6", "udp", "udp6"):
        with open(f"/proc/{pid}/net/{protocol}", encoding="ascii") as file:
            for fields in map(str.split, file.readlines()[1:]):
                local, remote = (int(fields[column].rpartition(":")[2], 16) for column in (1, 2))
                state = _STATES.get(fields[3], f"in state {fields[3]}")
                found[fields[9]] = f"{protocol} {state}, port {min(local, remote or local)}"
    return found


class Gauges(Background):
    """Takes a sample each second, until the process ends."""

    INTERVAL = 1.0

    def __init__(self, pid):
        super().__init__()
        self.samples = []
        self._pid = pid

    def _run(self):
        with contextlib.suppress(OSError):  # the process has ended, which the verdict will say
            while not self._end.wait(self.INTERVAL):
                self.samples.append(take(self._pid))
