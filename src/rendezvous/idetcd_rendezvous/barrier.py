"""The processes of a job, one a machine, agree on rounds: who takes part, and with which rank. Standard library only.

One of the processes is the host; all others, and itself, are its clients over TCP, for as long as they live. That is
whoever hosts already, else the first by number among the names whose processes run. The host has a round begin when enough
clients wait, and tells those in a round when it is over: since one of them has gone, has lost its name or wants another
round, or since somebody waits for whom there is room. The cluster's names, which the host reads from etcd, say who may take
part at all; a connection says that the process lives. If the host dies, the others find another one.

So that there are never two rounds at once, a host looks for others before it lets one begin: it yields to one that has a
round, or an earlier number. Both say that they host before they look, so one of the two sees the other.

Messages are lines of JSON. To a host: {"op": "probe" | "hello" | "join" | "publish" | "close" | "ping", ...}; what it says:
"round", "published", "again" (the round has ended before it began), "waiting", "closed", "moved" (it hosts no more)."""

import asyncio
import collections
import contextlib
import errno
import json
import logging
import secrets
import threading
import time
from dataclasses import dataclass
from typing import Any, Optional, Tuple

from .node import NodeError, by_number

_log = logging.getLogger(__name__)

_PAUSE = 0.2  # seconds between two attempts to find a host
_INTERVAL = 1.0  # between two looks of the host at the names
_PATIENCE = 2.0  # for a connection, and for the answer to a probe
_BATCH = 16  # probes at once
_MISSED = 3  # intervals of silence after which the other side is dead
_LONGEST_LINE = 1 << 22  # of a host
_LONGEST_OF_CLIENT = 1 << 16
_STRANGERS = 100  # connections at once that have not said whose they are; for each one more the oldest is closed


class Closed(Exception):
    """Somebody has closed the rendezvous: the job is over."""


class TimedOut(Exception):
    """The round did not begin in time."""


@dataclass(frozen=True)
class Round:
    id: str  # no other has it
    names: Tuple[str, ...]  # in the order of ranks
    hosts: Tuple[str, ...]  # how each is called
    rank: int  # of this process
    generation: Optional[int]  # of the members in etcd; None: the server does not count

    @property
    def world_size(self):
        return len(self.names)


@dataclass(frozen=True)
class Settings:
    run_id: str
    least: int  # members of a round
    most: int
    port: int  # the same on all machines
    order: Any = by_number  # of ranks: a key function of node.Member
    last_call: float = 30.0  # seconds for which a round that could begin waits for more
    keep_alive: float = 5.0


def _line(message):
    return json.dumps(message).encode() + b"\n"


async def _read(reader, patience):
    """None: the other side has closed the connection."""
    line = await asyncio.wait_for(reader.readline(), patience)
    if not line:
        return None
    try:
        message = json.loads(line)
    except RecursionError as error:
        raise ValueError("a message is too deep") from error
    if not isinstance(message, dict):
        raise ValueError("a message is no object")
    return message


# Of connections that break, and of another program at the other end.
_BROKEN = (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, asyncio.TimeoutError, asyncio.IncompleteReadError)


def _held(roster):
    return {(member.name, member.node) for member in roster.members}


class _Client:
    """Of a host."""

    def __init__(self, writer, hello):
        self.writer = writer
        self.id = int(hello["id"])
        self.name = str(hello["name"])
        self.node = hello["node"]
        self.attempt = 0
        self.waits = False
        self.in_round = False

    def send(self, **message):
        if not self.writer.is_closing():
            self.writer.write(_line(message))


class _Host:
    """Lives in the event loop. `retired` is called once, when it hosts no more."""

    def __init__(self, barrier, roster, retired):
        self._barrier = barrier
        self._settings = barrier.settings
        self._own = roster.own
        self._held = _held(roster)
        self._retired = retired
        self._clients = set()
        self._round = []  # clients; empty: none
        self._round_id = ""
        self._published = False
        self._is_over = False  # those in it are to come back
        self._is_forming = False
        self._last_names = set()
        self._last_join = 0.0
        self._look = asyncio.Event()
        self.closed = False
        self._is_retired = False
        self._task = asyncio.ensure_future(self._run())

    @property
    def state(self):
        if self._is_running():
            return "round"
        return "forming" if self._is_forming else "gathering"

    def _is_running(self):
        return bool(self._round) and not self._is_over

    async def serve(self, reader, client):
        if (client.name, client.node) not in self._held:
            return  # it is not known as yet, or a stranger
        for other in [each for each in self._clients if each.name == client.name]:
            self._remove(other)  # its process has started anew
        self._clients.add(client)
        client.send(welcome=True)
        if self.closed:
            client.send(closed=True)
        try:
            while True:
                message = await _read(reader, _MISSED * self._settings.keep_alive)
                if message is None or client not in self._clients:
                    return
                self._take(client, message)
                await asyncio.wait_for(client.writer.drain(), _MISSED * self._settings.keep_alive)
        except _BROKEN:
            client.writer.transport.abort()  # it may never read what it was sent
        finally:
            self._remove(client)

    def _take(self, client, message):
        op = message["op"]
        if op == "ping":
            client.send(pong=True)
        elif op == "join" and message["attempt"] > client.attempt:
            client.attempt = message["attempt"]
            client.waits = True
            self._last_join = time.monotonic()
            if client.in_round:
                client.in_round = False
                self._end_round()
        elif op == "publish" and self._round and message["id"] == self._round_id and not self._published:
            self._published = True
            for each in self._round:
                each.send(published=message["value"], id=self._round_id)
        elif op == "close":
            self.close()
        self._look.set()

    def close(self):
        self.closed = True
        for each in self._clients:
            each.send(closed=True)

    def _remove(self, client):
        if client not in self._clients:
            return
        self._clients.discard(client)
        client.writer.close()
        if client.in_round:
            client.in_round = False
            self._end_round()
        self._look.set()

    def _end_round(self):
        """Once: those who are in it learn that; before it has begun they go on to wait."""
        if not self._round or self._is_over:
            return
        self._is_over = True
        rest = [each for each in self._round if each.in_round]
        if self._published:
            for each in rest:
                each.send(waiting=max(1, self._waiting()))
        else:
            for each in rest:
                each.in_round = False
                each.waits = True
                each.send(again=True)
            self._round = []

    def _waiting(self):
        return sum(each.waits for each in self._clients)

    def retire(self):
        if self._is_retired:
            return
        self._is_retired = True
        self._task.cancel()
        for each in list(self._clients):
            each.send(**({"closed": True} if self.closed else {"moved": True}))
            each.writer.close()
        self._clients.clear()
        self._retired()

    async def _run(self):
        last_look = 0.0
        while not self._is_retired:  # before Python 3.12 wait_for() may lose a cancellation
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._look.wait(), self._next_time())
            self._look.clear()
            try:
                if time.monotonic() - last_look >= _INTERVAL:
                    last_look = time.monotonic()
                    roster = await self._barrier.read_roster()
                    self._compare(roster)
                    if not self._is_running():
                        await self._yield_to_others(roster)
                await self._step()
            except NodeError as error:
                self._barrier.note(str(error))
            except _BROKEN:
                _log.exception("the host of the rendezvous")

    def _next_time(self):
        left = self._last_join + self._settings.last_call - time.monotonic()
        return left if 0 < left < _INTERVAL else _INTERVAL

    def _compare(self, roster):
        """Who has lost its name takes no part; nor does a host without one host."""
        self._held = _held(roster)
        for client in list(self._clients):
            if (client.name, client.node) not in self._held:
                client.send(moved=True)
                self._remove(client)
        if (self._own.name, self._own.node) not in self._held:
            self.retire()

    def _candidates(self):
        """Those with whom a round may begin now; empty: none may."""
        if self._is_running():
            return []
        waiting = [each for each in self._clients if each.waits]
        # Those who do not wait are in a round that is over: they come back, or go.
        if len(waiting) < self._settings.least or len(waiting) != len(self._clients):
            return []
        if len(waiting) < self._settings.most and time.monotonic() - self._last_join < self._settings.last_call:
            return []
        # Where there are too many: those of the last round, then the first.
        waiting.sort(key=lambda each: (each.name not in self._last_names, each.id))
        return waiting[:self._settings.most]

    async def _step(self):
        if self._is_running() and self._published:
            if len(self._round) < self._settings.most and self._waiting():
                self._end_round()
        if not self._candidates() or self.closed:
            return
        self._is_forming = True
        try:
            roster = await self._barrier.read_roster()
            self._compare(roster)
            if not await self._yield_to_others(roster):
                self._form(self._candidates(), roster)
        finally:
            self._is_forming = False

    async def _yield_to_others(self, roster):
        """Whether no round may begin here now: another host goes before, or is about to see this one and yield."""
        names = {each.name for each in self._clients}
        others = [member for member in roster.members if member.name not in names]
        states = [(member, said["state"]) for member, said in await self._barrier.probe(others)]
        if any(state == "round" or (state != "none" and member.id < self._own.id) for member, state in states):
            self.retire()
        return self._is_retired or any(state == "forming" for _, state in states)

    def _form(self, clients, roster):
        members = {member.name: member for member in roster.members}
        clients = [each for each in clients if each.name in members]
        if len(clients) < self._settings.least:
            return
        clients.sort(key=lambda each: self._settings.order(members[each.name]))
        self._round_id = secrets.token_hex(8)
        self._round, self._published, self._is_over = clients, False, False
        self._last_names = {each.name for each in clients}
        said = {"id": self._round_id, "names": [each.name for each in clients],
                "hosts": [members[each.name].host for each in clients], "generation": roster.generation}
        for each in clients:
            each.waits, each.in_round = False, True
            each.send(round=said)


class Barrier:
    """Of this process. Its methods may be called from any thread, next_round() from one at a time.

    `roster`: a function that returns node.Roster, or raises NodeError."""

    def __init__(self, roster, settings):
        self.settings = settings
        self._roster = roster
        self._changed = threading.Condition()  # guards what follows
        self._attempt = 0  # to join; 0: none is under way
        self._attempts = 0
        self._round = None
        self._value = None  # that the first of the round has published, in a tuple
        self._waiting = 0
        self._closed = False
        self._reason = "nobody has been asked yet"
        # Of the event loop's thread:
        self._loop = None
        self._thread = None
        self._task = None
        self._is_ending = False
        self._writer = None
        self._server = None
        self._listens_at = None
        self._strangers = collections.deque()  # writers
        self._host = None

    # --- of the job ---

    def next_round(self, timeout, publish):
        """Waits until a round begins with this process. The first of it publishes what `publish(round)` returns, which all
        get: (round, value), where the value has 32 KiB of JSON at most. Closed, TimedOut."""
        deadline = time.monotonic() + timeout
        with self._changed:
            self._attempts += 1
            self._attempt = self._attempts
            self._round, self._value, self._waiting = None, None, 0
        self._start()
        self._send(op="join", attempt=self._attempt)
        try:
            while True:
                current = self._await_change(deadline, lambda: self._round)
                if current.rank == 0:
                    self._send(op="publish", id=current.id, value=publish(current))
                value = self._await_change(deadline, lambda: self._value or self._round is not current)
                with self._changed:
                    if self._round is current and isinstance(value, tuple):
                        self._attempt = 0
                        return current, value[0]
        except BaseException:
            with self._changed:
                self._round = None
            self._call(self._hang_up)
            raise
        finally:
            with self._changed:
                self._attempt = 0

    def waiting(self):
        """How many wait for another round; also 1 if this one is over, since somebody has gone."""
        with self._changed:
            return 0 if self._closed else self._waiting

    def is_closed(self):
        with self._changed:
            return self._closed

    def close(self):
        """For all: nobody begins another round."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._send(op="close")

    def stop(self):
        """Of this process alone."""
        if self._thread is not None:
            self._call(self._end)
            self._thread.join()
            self._thread = None

    def _await_change(self, deadline, condition):
        with self._changed:
            found = self._changed.wait_for(lambda: self._closed or condition(), max(0.0, deadline - time.monotonic()))
            if self._closed:
                raise Closed()
            if not found:
                raise TimedOut(self._reason)
            return found

    # --- of the hosts ---

    async def read_roster(self):
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(None, self._roster)
        except RuntimeError as error:  # there are no threads any more
            raise NodeError("the process ends") from error

    def note(self, reason):
        """Why there is no round as yet."""
        with self._changed:
            self._reason = reason

    async def probe(self, members):
        """(member, answer) of those whose processes of this job live."""
        async def one(member):
            try:
                async with _connected(member.address, self.settings.port) as (reader, writer):
                    writer.write(_line({"op": "probe", "run": self.settings.run_id}))
                    said = await _read(reader, _PATIENCE)
                    return (member, said) if said and said.get("state") else None
            except _BROKEN:
                return None

        found = []
        members = [member for member in members if member.address]
        for first in range(0, len(members), _BATCH):
            found += filter(None, await asyncio.gather(*map(one, members[first:first + _BATCH])))
        return found

    # --- the thread of the event loop ---

    def _start(self):
        if self._thread is not None:
            return
        ready = threading.Event()

        async def main():
            self._loop = asyncio.get_running_loop()
            self._task = asyncio.ensure_future(self._run())
            ready.set()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            if self._host is not None:
                self._host.closed |= self.is_closed()
                self._host.retire()
            await self._listen(None)

        self._thread = threading.Thread(target=lambda: asyncio.run(main()), name="idetcd-rendezvous", daemon=True)
        self._thread.start()
        ready.wait()

    def _call(self, function):
        """In the event loop, if there is one."""
        if self._thread is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(function)

    def _send(self, **message):
        """To the host, if there is one."""
        self._call(lambda: self._writer is not None and self._writer.write(_line(message)))

    def _end(self):
        self._is_ending = True
        self._task.cancel()

    def _hang_up(self):
        if self._writer is not None:
            self._writer.close()

    async def _run(self):
        while not self._is_ending:  # before Python 3.12 wait_for() may lose a cancellation
            try:
                if self._takes_part():
                    await self._follow()
                elif self._host is None:
                    await self._listen(None)  # others are not to wait for this process
            except NodeError as error:
                self.note(str(error))
            except _BROKEN as error:
                self.note(f"the host of the rendezvous: {error!r}")
            await asyncio.sleep(_PAUSE)

    def _takes_part(self):
        """In a round, or in the wait for one."""
        with self._changed:
            return self._attempt or self._round is not None

    async def _follow(self):
        """Finds the host, and does what it says, until it is gone."""
        roster = await self.read_roster()
        own = roster.own
        if own is None or not own.address:
            return self.note("this node has no name, or is drained" if own is None else f"{own.name} has no address in this network")
        await self._listen(own.address)
        host = await self._find_host(roster)
        if host is None:
            return self.note("nobody hosts the rendezvous as yet")
        address = self._listens_at or "127.0.0.1" if host is own else host.address
        async with _connected(address, self.settings.port) as (reader, writer):
            writer.write(_line({"op": "hello", "run": self.settings.run_id, "members": self._sizes, "id": own.id, "name": own.name, "node": own.node}))
            said = await _read(reader, _PATIENCE) or {}
            if not said.get("welcome"):
                return self.note(f"{host.name} says: {said['error']}") if "error" in said else None
            self.note(f"waits at {host.name}, with less than {self.settings.least} members")
            self._writer = writer
            with self._changed:
                attempt = self._attempt
                if attempt:
                    writer.write(_line({"op": "join", "attempt": attempt}))
            pings = asyncio.ensure_future(self._ping(writer))
            try:
                while not self._is_ending:
                    message = await _read(reader, _MISSED * self.settings.keep_alive)
                    if message is None or "moved" in message:
                        return None
                    self._take(message, own)
            finally:
                pings.cancel()
                self._writer = None
                self._note_end()

    async def _ping(self, writer):
        while True:
            await asyncio.sleep(self.settings.keep_alive)
            writer.write(_line({"op": "ping"}))

    def _take(self, message, own):
        with self._changed:
            if "round" in message:
                said = message["round"]
                self._value = None
                self._round = Round(said["id"], tuple(said["names"]), tuple(said["hosts"]), said["names"].index(own.name), said["generation"])
            elif "published" in message and self._round is not None and message["id"] == self._round.id:
                self._value = (message["published"],)
            elif "again" in message:
                self._round, self._value = None, None
            elif "waiting" in message:
                self._waiting = message["waiting"]
            elif "closed" in message:
                self._closed = True
            self._changed.notify_all()

    def _note_end(self):
        """Of the connection to the host, and so of the round."""
        with self._changed:
            if self._attempt:
                self._round, self._value = None, None
            elif self._round is not None:
                self._waiting = max(1, self._waiting)
            self._changed.notify_all()

    async def _find_host(self, roster):
        """This node itself, if no other hosts and none of an earlier number is alive; None: to be looked for again."""
        own = roster.own
        if self._host is not None:
            return own
        others = [member for member in roster.members if member.id != own.id]
        for first in range(0, len(others), _BATCH):
            alive = await self.probe(others[first:first + _BATCH])
            hosts = [(said["state"] != "round", member.id, member) for member, said in alive if said["state"] != "none"]
            if hosts:
                return min(hosts)[2]
            if any(member.id < own.id for member, _ in alive):
                return None
        self._host = _Host(self, roster, self._forget_host)
        return own

    def _forget_host(self):
        self._host = None

    async def _listen(self, address):
        """At the node's own address; at all where the machine does not have it, as behind a translation of addresses. None:
        nowhere."""
        if self._server is not None and address is not None and self._listens_at in (address, ""):
            return
        if self._server is not None:
            self._server.close()
            self._server = None
        if address is None:
            return
        for place in (address, ""):
            try:
                self._server = await asyncio.start_server(self._serve, place or None, self.settings.port, limit=_LONGEST_OF_CLIENT)
                self._listens_at = place
                return
            except OSError as error:
                if not place or error.errno != errno.EADDRNOTAVAIL:
                    raise NodeError(f"port {self.settings.port}: {error}; choose another with --rdzv-endpoint=:PORT") from error

    @property
    def _sizes(self):
        return [self.settings.least, self.settings.most]

    async def _serve(self, reader, writer):
        try:
            first = await self._read_first(reader, writer)
            if first.get("run") != self.settings.run_id:
                writer.write(_line({"error": "another job"}))
            elif first["op"] == "probe":
                writer.write(_line({"state": self._host.state if self._host else "none"}))
            elif first["members"] != self._sizes:
                writer.write(_line({"error": "a round here has {}:{} members, which all are to say".format(*self._sizes)}))
            elif self._host is not None:
                await self._host.serve(reader, _Client(writer, first))
        except (*_BROKEN, asyncio.CancelledError):  # the latter at the end of the loop, which would log it
            pass
        finally:
            writer.close()

    async def _read_first(self, reader, writer):
        if len(self._strangers) == _STRANGERS:
            self._strangers.popleft().transport.abort()
        self._strangers.append(writer)
        try:
            return await _read(reader, _PATIENCE) or {}
        finally:
            with contextlib.suppress(ValueError):
                self._strangers.remove(writer)


@contextlib.asynccontextmanager
async def _connected(address, port):
    reader, writer = await asyncio.wait_for(asyncio.open_connection(address, port, limit=_LONGEST_LINE), _PATIENCE)
    try:
        yield reader, writer
    finally:
        writer.close()
