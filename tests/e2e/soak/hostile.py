"""Clients of no good intent, each kind from an address of its own. A program, see program.py. Whatever they are answered
is not looked at: what counts is how the others fare, and what it costs the server.

At its end it prints how much of each it has done."""

import contextlib
import random
import selectors
import socket
import struct
import time

from dns_client import header, opt, question, record

from . import program, world

SOURCE = "127.66.0.{}"
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close() sends RST


def _option(code, data):
    return struct.pack("!2H", code, len(data)) + data


def seeds():
    """Messages to begin mutations with: one of each thing that a parser has to look at."""
    steady = question(world.steady(7)[0])
    forwarded = question(world.host(7)[0])
    yield header(1, world.RD) + steady
    yield header(1, world.RD) + forwarded
    yield header(1, world.RD, ar=1) + forwarded + opt(4096, flags=0x8000, options=_option(3, b""))
    subnet = _option(8, struct.pack("!HBB", 1, 24, 0) + b"\xc0\0\2")
    yield header(1, world.RD, ar=1) + steady + opt(options=_option(10, bytes(24)) + subnet)
    yield header(1, world.RD, ar=1) + steady + opt(options=_option(11, b"\0\x64") + _option(12, bytes(40)))
    yield header(1, 0x2800, qd=1, ns=1) + question(world.ZONE, 6) + record(b"\xc0\x0c", 1, 1, 5, bytes(4))  # an UPDATE
    yield header(1, 0x2400) + question(world.ZONE, 6)  # a NOTIFY
    yield header(1) + question(world.ZONE, 252)  # AXFR
    yield header(1) + question("version.bind.", 16, 3)
    yield header(1, ar=1) + steady + record(b"\1k\0", 250, 255, 0, b"\x0bhmac-sha256\0" + bytes(16))  # a TSIG
    yield header(1, 0x8180, an=1) + steady + record(b"\xc0\x0c", 1, 1, 5, bytes(4))  # a response
    yield header(1, qd=2) + steady + forwarded


def mutated(chance, packet):
    """A few octets of it changed, left out or added, or nothing; now and then none of it is left."""
    data = bytearray(packet)
    data[:2] = chance.randbytes(2)
    for _ in range(chance.randrange(5)):
        at = chance.randrange(len(data)) if data else 0
        action = chance.randrange(5)
        if action == 0:
            data[at:at + 1] = chance.randbytes(1)
        elif action == 1:
            del data[at:at + chance.randrange(1, 9)]
        elif action == 2:
            data[at:at] = chance.randbytes(chance.randrange(1, 9))
        elif action == 3:
            data[at:at + 2] = struct.pack("!H", 0xC000 | chance.randrange(64))
        else:
            del data[at:]
    return bytes(data)


class Datagrams:
    """`rate` a second of what `make(chance)` returns. Every other socket is never read; each is used for a while only."""

    SOCKETS, LIFE = 8, 2000

    def __init__(self, name, host, port, rate, chance, make):
        self.name, self.done = name, 0
        self._source, self._server = (host, 0), ("127.0.0.1", port)
        self._rate, self._chance, self._make = rate, chance, make
        self._sockets = []
        self._due, self._last = 0.0, time.monotonic()

    def step(self, moment):
        self._due = min(self._due + (moment - self._last) * self._pace(moment), self._rate * 0.1)
        self._last = moment
        while self._due >= 1:
            self._due -= 1
            self._send()

    def _pace(self, _moment):
        return self._rate

    def _send(self):
        if self.done % self.LIFE == 0:
            self._renew()
        sock = self._chance.choice(self._sockets)
        with contextlib.suppress(OSError):  # its buffer is full
            sock.send(self._make(self._chance))
        self.done += 1

    def _renew(self):
        self.close()
        for _ in range(self.SOCKETS):
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sock.bind(self._source)
            sock.connect(self._server)
            sock.setblocking(False)
            self._sockets.append(sock)

    def close(self):
        for sock in self._sockets:
            sock.close()
        self._sockets.clear()


class Flood(Datagrams):
    """As above, for two seconds of every five."""

    def _pace(self, moment):
        return self._rate if moment % 5 < 2 else 0


class Connections:
    """TCP connections, each with one bad habit, for some time each."""

    MOST = 150  # at a time
    OPENED = 20  # a second
    LONGEST = 12.0  # seconds: longer than the server lets a connection be idle

    def __init__(self, host, port, chance):
        self.name, self.done = "connections", 0
        self._source, self._server, self._chance = (host, 0), ("127.0.0.1", port), chance
        self._open = []  # (sock, habit, end)
        self._due, self._last = 0.0, time.monotonic()
        self._habits = [self._silent, self._half_a_length, self._half_a_message, self._never_reads, self._half_closes,
                        self._resets, self._drips, self._garbage]

    def step(self, moment):
        self._due = min(self._due + (moment - self._last) * self.OPENED, self.OPENED)
        self._last = moment
        while self._due >= 1 and len(self._open) < self.MOST:
            self._due -= 1
            self._begin(moment)
        for sock, habit, end in self._open:
            if moment >= end:
                self._close(sock, habit)
            elif habit in (self._drips, self._never_reads):
                with contextlib.suppress(OSError):  # closed by the server, or its buffers are full
                    habit(sock)
        self._open = [entry for entry in self._open if moment < entry[2]]

    def _close(self, sock, habit):
        if habit == self._resets:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        sock.close()

    def _begin(self, moment):
        habit = self._chance.choice(self._habits)
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.bind(self._source)
        sock.settimeout(0.5)
        try:
            sock.connect(self._server)
            sock.setblocking(False)
            habit(sock)
        except OSError:
            sock.close()
            return
        self._open.append((sock, habit, moment + self._chance.uniform(0, self.LONGEST)))
        self.done += 1

    def close(self):
        for sock, _, _ in self._open:
            sock.close()
        self._open.clear()

    # --- habits ---

    def _message(self):
        fresh = f"x{self._chance.getrandbits(40):x}.wild.{world.UPSTREAM_ZONE}"
        name = self._chance.choice([world.steady(3)[0], world.host(3)[0], fresh])
        packet = header(self._chance.getrandbits(16), world.RD) + question(name)
        return struct.pack("!H", len(packet)) + packet

    def _silent(self, sock):
        pass

    def _half_a_length(self, sock):
        sock.send(b"\0")

    def _half_a_message(self, sock):
        sock.send(self._message()[:-3])

    def _never_reads(self, sock):
        sock.send(b"".join(self._message() for _ in range(20)))

    def _half_closes(self, sock):
        sock.send(self._message() * 3)
        sock.shutdown(socket.SHUT_WR)

    def _resets(self, sock):
        sock.send(self._message() * 3)

    def _drips(self, sock):
        """An octet at a time."""
        sock.send(self._chance.choice([b"\0", b"\1", b"\x20"]))

    def _garbage(self, sock):
        sock.send(self._chance.randbytes(self._chance.randrange(1, 3000)))


def flood_query(chance):
    """A name that nobody has asked for before, of a zone whose responses are limited."""
    return chance.randbytes(2) + world.packet(f"x{chance.getrandbits(48):x}.{world.FLOODED_ZONE}", chance.random() < 0.5)


def odd_query(chance):
    """A good question with whatever may be said in an OPT record, cookies of any length among it."""
    name = chance.choice([world.steady(chance.randrange(world.STEADY))[0], world.host(chance.randrange(world.HOSTS))[0]])
    options = b"".join(
        _option(chance.choice([3, 8, 10, 10, 11, 12, chance.getrandbits(16)]), chance.randbytes(chance.randrange(48)))
        for _ in range(chance.randrange(4)))
    return header(chance.getrandbits(16), world.RD, ar=1) + question(name) + opt(
        chance.choice([0, 512, 1232, 65535]), chance.choice([0, 0, 0, 1]), chance.choice([0, 0, 0, 1, 255]),
        chance.getrandbits(16), options)


def actors(port, chance):
    packets = list(seeds())
    return [
        Datagrams("mutations", SOURCE.format(1), port, 300, chance, lambda chance: mutated(chance, chance.choice(packets))),
        Datagrams("odd options", SOURCE.format(2), port, 200, chance, odd_query),
        # A /24 of its own, as `rrl` counts.
        Flood("flood", "127.66.1.1", port, 1500, chance, flood_query),
        Connections(SOURCE.format(3), port, chance),
    ]


def main():
    given = program.options()
    crowd = actors(given["port"], random.Random(given["seed"]))
    selector = selectors.DefaultSelector()
    while not program.ended():
        for actor in crowd:
            actor.step(time.monotonic())
        selector.select(0.005)
    for actor in crowd:
        actor.close()
    program.report({actor.name: actor.done for actor in crowd})


if __name__ == "__main__":
    main()
