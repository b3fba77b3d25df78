"""The load: paced queries over UDP and TCP, each answer checked. A program, see program.py.

For each second it prints a line (Second as a dictionary) once every query of that second is answered or given up. Counts
and latencies belong to the second in which a query was sent."""

import collections
import dataclasses
import random
import selectors
import socket
import struct
import time

from chaos.prober import address
from chaos.store import now

from . import program, world

UDP_SOCKETS = 8
TCP_CONNECTIONS = 2
TCP_SHARE = 0.05
TCP_LIFE = 200  # queries on a connection, then a new one
PATIENCE = 10.0  # seconds: an answer that needs an upstream comes within 5, where there are processors for all
TICK = 0.002
MAX_WRONG = 20  # so many are described


@dataclasses.dataclass
class Tally:
    asked: int = 0
    right: int = 0
    failed: int = 0  # one of world.FAILURES where a good upstream has the answer
    wrong: int = 0
    unanswered: int = 0


class Second:
    def __init__(self, begin):
        self.begin = begin
        self.open = 0  # queries of which it is not known what becomes of them
        self.tallies = collections.defaultdict(Tally)
        self.local, self.forwarded = [], []  # latencies in seconds
        self.stalled = 0.0
        self.slowest = 0.0  # of all answers, in seconds
        self.wrong = []

    def summary(self):
        return {"begin": self.begin, "tallies": {kind: dataclasses.asdict(tally) for kind, tally in self.tallies.items()},
                "local": percentiles(self.local), "forwarded": percentiles(self.forwarded), "stalled": self.stalled,
                "slowest": self.slowest, "wrong": self.wrong}


def percentiles(latencies):
    """p50 and p99, or None."""
    if not latencies:
        return None
    ordered = sorted(latencies)
    return [ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]]


class Query:
    __slots__ = ("kind", "name", "packet", "right", "sent", "second")

    def __init__(self, chance):
        self.kind = world.choose(chance)
        self.name, self.right = self.kind.make(chance)
        self.packet = world.packet(self.name, chance.random() < 0.5)


class Ledger:
    """What becomes of each query."""

    def __init__(self, publish):
        self._publish = publish
        self._seconds = collections.deque()
        self._described = 0

    def asked(self, query, moment):
        begin = int(moment)
        if not self._seconds or self._seconds[-1].begin != begin:
            self._seconds.append(Second(begin))
        query.sent, query.second = moment, self._seconds[-1]
        query.second.open += 1
        query.second.tallies[query.kind.name].asked += 1

    def answered(self, query, packet, moment, not_before):
        """`not_before`: the last moment at which the answer was not there yet."""
        second, tally = query.second, query.second.tallies[query.kind.name]
        second.open -= 1
        second.slowest = max(second.slowest, moment - query.sent)
        said = judge(query, packet)
        if said in query.right:
            tally.right += 1
        elif said in world.FAILURES and query.kind.upstream:
            tally.failed += 1
        else:
            tally.wrong += 1
            self._describe(query, said)
        if query.kind.local:
            second.local.append(moment - query.sent)
            second.stalled = max(second.stalled, not_before - query.sent)
        elif query.kind.upstream:
            second.forwarded.append(moment - query.sent)

    def lost(self, query):
        query.second.open -= 1
        query.second.tallies[query.kind.name].unanswered += 1

    def publish(self, moment):
        """Each second that is over."""
        while self._seconds and self._seconds[0].begin < int(moment) and not self._seconds[0].open:
            self._publish(self._seconds.popleft().summary())

    def _describe(self, query, said):
        self._described += 1
        if self._described <= MAX_WRONG:
            query.second.wrong.append(f"{query.name} was answered {said}, not {' or '.join(sorted(query.right))}")


def judge(query, packet):
    """The answer as a text."""
    asked = query.packet[10:]
    question_length = asked.index(b"\0") + 5
    if len(packet) < 12 + question_length or not packet[2] & 0x80:
        return f"{packet.hex()}, which is no response"
    if packet[12:12 + question_length] != asked[:question_length]:
        return f"{packet.hex()}, which answers another question"
    try:
        return address(packet)
    except (IndexError, struct.error):
        return f"{packet.hex()}, which is malformed"


class Channel:
    """One socket, and the queries that are on their way through it."""

    def __init__(self, sock):
        self.sock = sock
        self.open = {}  # ID -> Query
        self._next = random.randrange(65536)

    def register(self, query):
        """Its message. REQUIRES: fewer than 65,536 are open."""
        while self._next in self.open:
            self._next = (self._next + 1) & 0xFFFF
        self.open[self._next] = query
        return struct.pack("!H", self._next) + query.packet

    def take(self, packet):
        return self.open.pop(struct.unpack_from("!H", packet)[0], None) if len(packet) >= 12 else None


class UdpChannel(Channel):
    def __init__(self, port):
        super().__init__(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.sock.connect(("127.0.0.1", port))
        self.sock.setblocking(False)

    def send(self, query):
        message = self.register(query)
        try:
            self.sock.send(message)
        except OSError:  # the buffer is full, or what was sent before came back: as if it were lost on its way
            pass

    def receive(self):
        """The messages that are there."""
        while True:
            try:
                yield self.sock.recv(65535)
            except BlockingIOError:
                return
            except ConnectionRefusedError:
                continue


class TcpChannel(Channel):
    def __init__(self, port):
        super().__init__(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.setblocking(False)
        self.sock.connect_ex(("127.0.0.1", port))  # others may have filled the listener's queue
        self.ended = False
        self.used = 0
        self._unsent, self._received = bytearray(), bytearray()

    def send(self, query):
        self.used += 1
        message = self.register(query)
        self._unsent += struct.pack("!H", len(message)) + message
        self.flush()

    def flush(self):
        try:
            while self._unsent:
                del self._unsent[:self.sock.send(self._unsent)]
        except BlockingIOError:  # not connected yet, or the server does not read
            pass
        except OSError:
            self.ended = True

    def receive(self):
        """The messages that are there. `ended` is set when there will be none any more."""
        try:
            while data := self.sock.recv(65536):
                self._received += data
            self.ended = True
        except BlockingIOError:
            pass
        except OSError:
            self.ended = True
        while len(self._received) >= 2:
            end = 2 + struct.unpack_from("!H", self._received)[0]
            if len(self._received) < end:
                return
            yield bytes(self._received[2:end])
            del self._received[:end]


class Load:
    def __init__(self, port, rate, seed, publish):
        self._port = port
        self._rate = rate
        self._chance = random.Random(seed)
        self._ledger = Ledger(publish)
        self._selector = selectors.DefaultSelector()
        self._udp = [self._added(UdpChannel(port)) for _ in range(UDP_SOCKETS)]
        self._tcp = [self._added(TcpChannel(port)) for _ in range(TCP_CONNECTIONS)]
        self._retired = []  # connections that only wait for answers
        self._waiting = collections.deque()  # (channel, query), oldest first; those that were answered meanwhile too
        self._polled = now()

    def run(self, ended):
        """Asks until ended() says so, then waits for what is open."""
        due, last = 0.0, now()
        while not ended():
            moment = now()
            # What could not be sent in time is left out: a burst would measure this process's own pauses.
            due = min(due + (moment - last) * self._rate, self._rate * 0.05)
            last = moment
            while due >= 1:
                due -= 1
                self._ask()
            self._step(TICK)
        while self._waiting:
            self._step(0.05)
        self._ledger.publish(now() + 1)

    def _added(self, channel):
        self._selector.register(channel.sock, selectors.EVENT_READ, channel)
        return channel

    def _ask(self):
        query = Query(self._chance)
        over_tcp = self._chance.random() < TCP_SHARE
        channel = self._connection() if over_tcp else self._chance.choice(self._udp)
        self._ledger.asked(query, now())
        channel.send(query)
        self._waiting.append((channel, query))

    def _connection(self):
        index = self._chance.randrange(TCP_CONNECTIONS)
        channel = self._tcp[index]
        if channel.ended or channel.used >= TCP_LIFE:
            self._retired.append(channel)
            channel = self._tcp[index] = self._added(TcpChannel(self._port))
        return channel

    def _step(self, seconds):
        ready = self._selector.select(seconds)
        moment = now()
        for key, _ in ready:
            self._receive(key.data, moment)
        self._polled = moment
        self._give_up(moment)
        for channel in self._tcp:
            channel.flush()
        for channel in [channel for channel in self._retired if channel.ended or not channel.open]:
            self._retired.remove(channel)
            self._selector.unregister(channel.sock)
            channel.sock.close()
        self._ledger.publish(moment)

    def _receive(self, channel, moment):
        for packet in channel.receive():
            query = channel.take(packet)
            if query:
                self._ledger.answered(query, packet, moment, self._polled)
                query.second = None
        if getattr(channel, "ended", False):
            self._lose_all(channel)

    def _lose_all(self, channel):
        for query in channel.open.values():
            self._ledger.lost(query)
            query.second = None
        channel.open.clear()
        if channel not in self._retired:
            index = self._tcp.index(channel)
            self._retired.append(channel)
            self._tcp[index] = self._added(TcpChannel(self._port))

    def _give_up(self, moment):
        while self._waiting and (self._waiting[0][1].second is None or self._waiting[0][1].sent < moment - PATIENCE):
            channel, query = self._waiting.popleft()
            if query.second is not None:
                for number in [number for number, open_query in channel.open.items() if open_query is query]:
                    del channel.open[number]
                self._ledger.lost(query)
                query.second = None


def main():
    given = program.options()
    checked = 0.0

    def ended():
        nonlocal checked
        moment = time.monotonic()
        if moment < checked + 0.05:
            return False
        checked = moment
        return program.ended()
    Load(given["port"], given["rate"], given["seed"], program.report).run(ended)


if __name__ == "__main__":
    main()
