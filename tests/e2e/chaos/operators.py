"""What an operator does to the cluster, in a thread of its own: etcd may be slow, and the storm has to go on. Every write that
ends another's ownership is kept as a Touch, for the judge."""

import collections
import contextlib
import json

from .ownership import Touch
from .store import Helper, Refused, Store, Unavailable, now

ADDRESS = "192.0.2.97"  # of what is put by hand
_VALUE = json.dumps({"ipv4": ADDRESS, "id": "by-hand"})


class Operator(Helper):
    def __init__(self, ports):
        super().__init__(0.02, self._step)
        self._store = Store(ports, timeout=3)
        self._asked = collections.deque()
        self._next = 1  # the first revision whose changes are not in `changes` yet
        self.changes = []  # as Store.history()
        self.touches = []

    def ask_for(self, work, *arguments):
        """It is done soon. Any thread."""
        self._asked.append((work, arguments))

    def idle(self):
        return not self._asked

    def _step(self):
        if self._asked:
            work, arguments = self._asked[0]
            # etcd refuses a change of a key that is not there any more.
            with contextlib.suppress(Refused):
                work(self, *arguments)
            self._asked.popleft()

    def _touch(self, name, write, *arguments, **options):
        sent = now()
        self.touches.append(Touch(name, sent, None))  # whether it was done is not known
        revision = write(*arguments, **options)
        self.touches[-1] = Touch(name, sent, revision)

    def delete(self, name):
        self._touch(name, self._store.delete, name)

    def overwrite(self, name, under_its_lease):
        """REQUIRES: clear() follows, if it is not under its lease."""
        if not under_its_lease or self._store.lease_of(name):
            self._touch(name, self._store.put, name, _VALUE, ignore_lease=under_its_lease)

    def clear(self, name):
        """What overwrite() has put, if it is still there."""
        value, revision = self._store.get(name)
        if value == _VALUE:
            self._store.remove(name, revision)

    def revoke(self, name):
        lease = self._store.lease_of(name)
        if lease:
            self._touch(name, self._store.revoke, lease)

    def compact(self):
        """All that was before the present, after having read it for `changes`."""
        revision = self.catch_up()
        self._store.compact(revision)

    def catch_up(self):
        """Reads what is not in `changes` yet; the revision up to which it is. REQUIRES: in this thread, or after its end."""
        revision = self._store.put("/chaos/end", "")
        self.changes += self._store.history(revision, self._next)
        self._next = revision + 1
        return revision

    def finish(self):
        """The history is whole then."""
        self.stop()
        for _ in range(20):
            with contextlib.suppress(Unavailable):
                self.catch_up()
                return
        raise AssertionError("etcd does not tell its history")
