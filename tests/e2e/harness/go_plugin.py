"""A node of the CoreDNS plugin that idetcd replaces, as far as etcd can see a difference.

What it does, faults included: it asks for one name after the other from 1 on, and puts its value at the first that is
absent, without a condition. Twice in the time of its lease it reads its key: if the value is its own, it puts it again
under a lease that is new each time. It revokes nothing, at no time. A key that it finds missing ends its process, one
that says something else it leaves alone."""

import base64
import json
import threading
import time

from .processes import TIME_FACTOR, wait_until


class GoPlugin:
    """Context manager. `fields` are of the value, in its order; what is absent is left out."""

    def __init__(self, etcd, pattern="worker{}.tf.local.", limit=10, lease=20, **fields):
        self.etcd, self.pattern, self.limit, self.lease = etcd, pattern, limit, lease
        order = ("ipv4", "ipv6", "port")
        self.value = json.dumps({key: fields[key] for key in order if fields.get(key)}, separators=(",", ":"))
        self.name = None  # that it believes to have
        self.leases = []  # in the order of its puts
        self.refused = self.crashed = False
        self.fault = None
        self._ended = threading.Event()
        self._thread = None

    # --- one step at a time ---

    def get(self, name):
        kvs = self.etcd.call("kv/range", key=b64(name)).get("kvs", [])
        return kvs[0] if kvs else None

    def probe(self):
        """The first free name; None: all are taken."""
        names = (self.pattern.format(number) for number in range(1, self.limit + 1))
        return next((name for name in names if self.get(name) is None), None)

    def put(self, name):
        """Whatever is there."""
        lease = self.etcd.call("lease/grant", TTL=str(self.lease))["ID"]
        self.etcd.call("kv/put", key=b64(name), value=b64(self.value), lease=lease)
        self.name = name
        self.leases.append(int(lease))

    def renew(self):
        found = self.get(self.name)
        if found is None:
            self.crashed = True
        elif found["value"] == b64(self.value):
            self.put(self.name)

    # --- the process ---

    def launch(self):
        """Returns at once."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def start(self):
        self.launch()
        wait_until(lambda: self.name or self.refused or self.fault, 10, "the Go node to have a name")
        assert self.name, self.fault or "every name is taken"
        return self

    def kill(self):
        """Its key stays until the lease ends, as it does after SIGTERM."""
        self._ended.set()
        if self._thread:
            self._thread.join()

    @property
    def running(self):
        return self._thread is not None and self._thread.is_alive()

    def wait_renewed(self, times=1):
        before = len(self.leases)
        wait_until(lambda: len(self.leases) >= before + times or not self.running, 2 * self.lease * times + 5,
                   "the Go node to renew its name")
        assert self.running, self.fault

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def _run(self):
        try:
            name = self.probe()
            if name is None:
                self.refused = True
                return
            self.put(name)
            while not self._ended.wait(self.lease / 2) and not self.crashed:
                self.renew()
        except Exception as error:  # pylint: disable=broad-except
            self.fault = error  # it stops renewing, and goes on serving


def b64(text):
    return base64.b64encode(text.encode()).decode()
