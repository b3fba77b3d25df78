"""etcd over its JSON gateway, by whichever member answers. One Store a thread."""

import base64
import contextlib
import http.client
import json
import socket
import threading
import time

from .ownership import Moments


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Unavailable(Exception):
    """This request failed; if it was a write, it may still be applied."""


class Refused(Exception):
    """etcd answered, and said no."""


class Store:
    def __init__(self, ports, timeout=1.0):
        self._ports = list(ports)
        self._timeout = timeout
        self._current = 0
        self._connection = None

    def call(self, path, **request):
        """One attempt; the next goes to another member if this one fails."""
        try:
            response = self._send(path, request)
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            self._next_member()
            raise Unavailable(str(error)) from None
        if response.status == 200:
            return json.loads(body)
        if response.status >= 500:
            self._next_member()
            raise Unavailable(body.decode(errors="replace"))
        raise Refused(body.decode(errors="replace"))

    def insist(self, path, timeout=30.0, **request):
        """Until it succeeds: for what may be repeated."""
        deadline = now() + timeout
        while True:
            try:
                return self.call(path, **request)
            except Unavailable as error:
                if now() > deadline:
                    raise AssertionError(f"etcd {path}: {error}") from None
                time.sleep(0.05)

    def put(self, key, value, lease=0, ignore_lease=False):
        """The revision."""
        return _revision(self.call("kv/put", key=_b64(key), value=_b64(value), lease=str(lease), ignore_lease=ignore_lease))

    def delete(self, key):
        """The revision."""
        return _revision(self.call("kv/deleterange", key=_b64(key)))

    def grant(self, seconds):
        return int(self.call("lease/grant", TTL=str(seconds))["ID"])

    def revoke(self, lease):
        """The revision."""
        return _revision(self.call("lease/revoke", ID=str(lease)))

    def leases(self):
        return {int(lease["ID"]) for lease in self.insist("lease/leases").get("leases", ())}

    def leases_of_names(self):
        reply = self.insist("kv/range", key=_b64(b"0"), range_end=_b64(b"\0"), keys_only=True)
        return {int(kv.get("lease", 0)) for kv in reply.get("kvs", ())} - {0}

    def lease_of(self, key):
        """0: none, or the key is not there."""
        kvs = self.insist("kv/range", key=_b64(key), keys_only=True).get("kvs")
        return int(kvs[0].get("lease", 0)) if kvs else 0

    def compact(self, revision):
        self.call("kv/compaction", revision=str(revision))

    def pairs(self):
        """Every key but the beat, which is of all nodes and stays: (value, mod_revision)."""
        reply = self.insist("kv/range", key=_b64(b"\0"), range_end=_b64(b"\0"))
        return {_text(kv["key"]): (_text(kv.get("value", "")), int(kv["mod_revision"])) for kv in reply.get("kvs", ())
                if not _is_beat(_text(kv["key"]))}

    def get(self, key):
        """(value, mod_revision), or (None, 0)."""
        kvs = self.insist("kv/range", key=_b64(key)).get("kvs")
        return (_text(kvs[0]["value"]), int(kvs[0]["mod_revision"])) if kvs else (None, 0)

    def replace(self, key, value, mod_revision):
        """On condition that the key's revision is still that one (0: it is not there). The revision, or None."""
        return self._if_still(key, mod_revision, {"requestPut": {"key": _b64(key), "value": _b64(value)}})

    def remove(self, key, mod_revision):
        """Likewise."""
        return self._if_still(key, mod_revision, {"requestDeleteRange": {"key": _b64(key)}})

    def _if_still(self, key, mod_revision, operation):
        compare = {"key": _b64(key), "target": "MOD", "result": "EQUAL", "mod_revision": str(mod_revision)}
        reply = self.call("kv/txn", compare=[compare], success=[operation])
        return _revision(reply) if reply.get("succeeded") else None

    def history(self, last_revision, first_revision=1):
        """Every change but those of the beat from the first revision to `last_revision`, which must be one of a change, in order: (key,
        value or None, create_revision, mod_revision). REQUIRES: nothing of it was compacted."""
        try:
            return self._history(last_revision, first_revision)
        except (OSError, http.client.HTTPException) as error:
            self._next_member()
            raise Unavailable(str(error)) from None

    def _history(self, last_revision, first_revision):
        response = self._send("watch", {"create_request": {"key": _b64(b"\0"), "range_end": _b64(b"\0"),
                                                           "start_revision": str(first_revision)}})
        changes = []
        while not changes or changes[-1][3] < last_revision:
            line = response.readline()
            if not line:
                raise http.client.IncompleteRead(b"")
            result = json.loads(line)["result"]
            assert not result.get("canceled"), result
            for event in result.get("events", ()):
                kv = event["kv"]
                deleted = event.get("type") == "DELETE"
                changes.append((_text(kv["key"]), None if deleted else _text(kv.get("value", "")),
                                int(kv.get("create_revision", 0)), int(kv["mod_revision"])))
        self.close()
        return [change for change in changes if first_revision <= change[3] <= last_revision and not _is_beat(change[0])]

    def close(self):
        if self._connection:
            self._connection.close()
        self._connection = None

    def _send(self, path, request):
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self._ports[self._current], timeout=self._timeout)
            self._connection.connect()
            self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection.request("POST", f"/v3/{path}", json.dumps(request))
        return self._connection.getresponse()

    def _next_member(self):
        self.close()
        self._current = (self._current + 1) % len(self._ports)


def _revision(reply):
    return int(reply["header"]["revision"])


def _is_beat(key):
    return key.endswith("/idetcd/beat")


def _b64(data):
    return base64.b64encode(data.encode() if isinstance(data, str) else data).decode()


def _text(data):
    return base64.b64decode(data).decode(errors="surrogateescape")


class Helper(threading.Thread):
    """Calls work() every `interval` seconds until stop(). An error is kept, and raised by stop()."""

    def __init__(self, interval, work):
        super().__init__(daemon=True)
        self._interval = interval
        self._work = work
        self._end = threading.Event()
        self._error = None
        self._working = threading.Lock()

    def paused(self):
        """A context in which work() is not under way. A failed write of before may still be."""
        return self._working

    def run(self):
        try:
            while not self._end.wait(self._interval):
                with self._working, contextlib.suppress(Unavailable):  # such are the times
                    self._work()
        except BaseException as error:  # pylint: disable=broad-except
            self._error = error

    def stop(self):
        self._end.set()
        if self.is_alive():
            self.join(30)
        if self._error:
            raise self._error


class Clock(Helper):
    """Writes all the time, so that the moments of all revisions are known."""

    def __init__(self, ports, interval=0.05):
        super().__init__(interval, self._write)
        self.moments = Moments()
        self._store = Store(ports)

    def _write(self):
        sent = now()
        revision = self._store.put("/chaos/clock", "")
        self.moments.add(revision, sent, now())
