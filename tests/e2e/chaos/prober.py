"""Asks every node all the time, over UDP. An answer was given at some moment between the sending of its query and its
receipt; queries go on while a node is stopped, so the first that it says when it goes on is known to be said then."""

import selectors
import socket
import struct
import threading

from .store import now

A, PTR, TXT, AAAA, OPT = 1, 12, 16, 28, 41
IN, CHAOS = 1, 3
NSID = 3  # the option, RFC 5001
EDE, STALE_ANSWER = 15, 3  # RFC 8914
_RCODES = {0: "NOERROR", 1: "FORMERR", 2: "SERVFAIL", 3: "NXDOMAIN", 4: "NOTIMP", 5: "REFUSED"}


def wire_name(text):
    return b"".join(bytes([len(label)]) + label.encode() for label in text.rstrip(".").split(".")) + b"\0"


def question(name, rdtype, rdclass=IN, edns=False, nsid=False):
    """A query but for its ID."""
    options = struct.pack("!2H", NSID, 0) if nsid else b""
    extra = struct.pack("!BHHIH", 0, OPT, 1232, 0, len(options)) + options if edns or nsid else b""
    return struct.pack("!5H", 0, 1, 0, 0, 1 if extra else 0) + wire_name(name) + struct.pack("!2H", rdtype, rdclass) + extra


def _records(packet):
    """(type, rdata) of everything behind the question."""
    _, _, questions, *counts = struct.unpack("!6H", packet[:12])
    at = 12
    for _ in range(questions):
        at = _skip_name(packet, at) + 4
    for _ in range(sum(counts)):
        at = _skip_name(packet, at)
        rdtype, _, _, length = struct.unpack_from("!HHIH", packet, at)
        at += 10
        yield rdtype, packet[at:at + length]
        at += length


def _skip_name(packet, at):
    while True:
        length = packet[at]
        if length >= 0xC0:
            return at + 2
        at += 1 + length
        if length == 0:
            return at


def own_name(packet):
    """The name that the answer to `id.server CH TXT`, or an NSID option, says; None: it says none."""
    for rdtype, rdata in _records(packet):
        if rdtype == TXT:
            return rdata[1:].decode() + "."
        for code, data in _options(rdtype, rdata):
            if code == NSID:
                return data.decode() + "."
    return None


def is_stale(packet):
    """Whether the answer says so of itself."""
    return any(code == EDE and struct.unpack_from("!H", data)[0] == STALE_ANSWER
               for record in _records(packet) for code, data in _options(*record))


def _options(rdtype, rdata):
    while rdtype == OPT and rdata:
        code, length = struct.unpack_from("!2H", rdata)
        yield code, rdata[4:4 + length]
        rdata = rdata[4 + length:]


def address(packet):
    """The one address of an answer; NODATA; or what else the answer is, as a text."""
    rcode = packet[3] & 0xF
    found = [rdata for rdtype, rdata in _records(packet) if rdtype in (A, AAAA)]
    if rcode == 0 and not found:
        return "NODATA"
    if rcode or len(found) != 1:
        return _RCODES.get(rcode, str(rcode)) if not found else f"{len(found)} addresses"
    return socket.inet_ntop(socket.AF_INET if len(found[0]) == 4 else socket.AF_INET6, found[0])


class _Target:
    def __init__(self, owner, port):
        self.owner = owner
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.setblocking(False)
        self.sock.connect(("127.0.0.1", port))
        self.outstanding = {}  # ID -> (question's number, sent)
        self.asked = 0
        self.due = 0.0


class Prober(threading.Thread):
    """`questions` take turns. `observe(owner, number, sent, received, packet)` is called in this thread with every
    answer; those of one owner come in the order in which they were given."""

    INTERVAL = 0.02
    # A stopped node's socket must have room for the latest query: it is the one that shows most.
    PATIENT_AFTER, PATIENT_INTERVAL = 25, 0.1

    def __init__(self, questions, observe):
        super().__init__(daemon=True)
        self._questions = questions
        self._observe = observe
        self._selector = selectors.DefaultSelector()
        self._targets = {}
        self._lock = threading.Lock()  # guards the two above
        self._end = threading.Event()
        self._error = None

    def attach(self, owner, port):
        """REQUIRES: the process that was behind this port before has ended."""
        target = _Target(owner, port)
        with self._lock:
            self._targets[owner] = target
            self._selector.register(target.sock, selectors.EVENT_READ, target)

    def detach(self, owner):
        """What was answered is still taken in."""
        with self._lock:
            target = self._targets.pop(owner, None)
            if target is None:
                return
            self._receive(target)
            self._selector.unregister(target.sock)
            target.sock.close()

    def run(self):
        try:
            while not self._end.is_set():
                with self._lock:
                    for key, _ in self._selector.select(0):
                        self._receive(key.data)
                    due = self._send_due()
                # Outside the lock; a moment too long costs nothing but sharpness.
                self._end.wait(min(max(due - now(), 0.0005), 0.002))
        except BaseException as error:  # pylint: disable=broad-except
            self._error = error

    def stop(self):
        self._end.set()
        self.join(30)
        for owner in list(self._targets):
            self.detach(owner)
        self._selector.close()
        if self._error:
            raise self._error

    def _send_due(self):
        earliest = float("inf")
        for target in self._targets.values():
            if target.due <= now():
                self._send(target)
            earliest = min(earliest, target.due)
        return earliest

    def _send(self, target):
        number = target.asked % len(self._questions)
        query_id = target.asked & 0xFFFF
        target.asked += 1
        sent = now()
        patient = len(target.outstanding) >= self.PATIENT_AFTER
        target.due = sent + (self.PATIENT_INTERVAL if patient else self.INTERVAL)
        try:
            target.sock.send(struct.pack("!H", query_id) + self._questions[number])
        except OSError:
            return  # it does not listen yet, or no longer
        target.outstanding[query_id] = (number, sent)

    def _receive(self, target):
        while True:
            try:
                packet = target.sock.recv(4096)
            except BlockingIOError:
                return
            except OSError:
                continue  # the refusal of an earlier query
            received = now()
            if len(packet) < 12 or not packet[2] & 0x80:
                continue
            query = target.outstanding.pop(struct.unpack_from("!H", packet)[0], None)
            if query:
                # Queries before this one, that got no answer, get none any more.
                for lost in [key for key, (_, sent) in target.outstanding.items() if sent < query[1]]:
                    del target.outstanding[lost]
                self._observe(target.owner, *query, received, packet)


class SingleQueryClient:
    """One query at a time, to one port; context manager."""

    def __init__(self, port, timeout=3.0):
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sock.connect(("127.0.0.1", port))
        self._sock.settimeout(timeout)
        self._asked = 0

    def ask(self, packet):
        """As address(); None: no answer."""
        self._asked += 1
        query_id = struct.pack("!H", self._asked & 0xFFFF)
        try:
            self._sock.send(query_id + packet)
            while True:
                answer = self._sock.recv(4096)
                if answer[:2] == query_id:
                    return address(answer)
        except OSError:
            return None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._sock.close()
