"""A TCP proxy between a node and an etcd that does to their conversation what networks and servers do."""

import socket
import threading

from . import ports


class TcpProxy:
    """Forwards to a loopback port. One thread a direction of a connection.

    `on_request(bytes)` and `on_response`, made for each connection by the factories of that name, return what is
    passed on. They may call silence() or cut(), which count at once."""

    def __init__(self, target_port, on_request=None, on_response=None):
        self.target_port = target_port
        self.port = ports.free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.make_request_filter, self.make_response_filter = on_request, on_response
        self.first_octets = []  # of each connection, what the client began with
        self._open = threading.Event()  # to the client
        self._open.set()
        self._lock = threading.Lock()
        self._pairs = []
        self._cut = False
        self._closed = False
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=64)
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def connections(self):
        return len(self._pairs)

    def silence(self):
        """The client hears nothing any more, from any connection, while all that it sends arrives: until listen(), which
        delivers what was held back, or cut()."""
        self._open.clear()

    def listen(self):
        self._open.set()

    def cut(self):
        """Every connection is reset, and new ones are, until restore()."""
        with self._lock:
            self._cut = True
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            _reset(pair)
        self._open.set()

    def restore(self):
        self._cut = False

    def close(self):
        self._closed = True
        self.cut()
        self._listener.close()
        ports.release(self.port)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.target_port))
            except OSError:
                _reset([client])
                continue
            for sock in (client, server):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                if self._cut:
                    _reset([client, server])
                    continue
                pair = [client, server]
                self._pairs.append(pair)
            threading.Thread(target=self._pump, args=(pair, client, server, True), daemon=True).start()
            threading.Thread(target=self._pump, args=(pair, server, client, False), daemon=True).start()

    def _pump(self, pair, source, target, request):
        factory = self.make_request_filter if request else self.make_response_filter
        passed_on = factory() if factory else lambda octets: octets
        first = request
        try:
            while octets := source.recv(65536):
                if first:
                    first = False
                    self.first_octets.append(octets[:32])
                octets = passed_on(octets)
                while not request and not self._open.wait(0.2):
                    if pair not in self._pairs:
                        return
                if octets and pair in self._pairs:
                    target.sendall(octets)
        except OSError:
            pass
        with self._lock:
            if pair in self._pairs:
                self._pairs.remove(pair)
        # An end for one is an end for both: HTTP/2 knows no half-closed connection.
        for sock in pair:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        if request:
            for sock in pair:
                sock.close()


def _reset(sockets):
    for sock in sockets:
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        except OSError:
            pass


class MessageLoss:
    """Takes gRPC messages that contain `text` out of the HTTP/2 stream that an etcd sends, as if it had never sent
    them: the next so many as `messages` says. For TcpProxy(on_response=loss.filter)."""

    def __init__(self, text):
        self.text = text
        self.messages = 0
        self.lost = 0

    def filter(self):
        held = bytearray()

        def passed_on(octets):
            held.extend(octets)
            passed = bytearray()
            while len(held) >= 9:
                end = 9 + int.from_bytes(held[:3], "big")
                if len(held) < end:
                    break
                frame = bytes(held[:end])
                del held[:end]
                if self._loses(frame):
                    self.messages -= 1
                    self.lost += 1
                else:
                    passed += frame
            return bytes(passed)

        return passed_on

    def _loses(self, frame):
        return self.messages > 0 and self._matches(frame)

    def _matches(self, frame):
        data, payload = frame[3] == 0, frame[9:]
        if not (data and self.text in payload):
            return False
        # Whole messages only: the others of the stream must stay in step.
        offset = 0
        while offset < len(payload):
            offset += 5 + int.from_bytes(payload[offset + 1:offset + 5], "big")
        assert offset == len(payload), "a message in several frames"
        return True


class WatchLoss(MessageLoss):
    """Takes every answer of a watch that has events out of the stream while `losing`; what else is answered goes on."""

    def __init__(self):
        super().__init__(b"")
        self.losing = False

    def _loses(self, frame):
        return self.losing and frame[3] == 0 and any(_has_events(message) for message in _messages(frame[9:]))


def _messages(payload):
    offset = 0
    while offset + 5 <= len(payload):
        end = offset + 5 + int.from_bytes(payload[offset + 1:offset + 5], "big")
        yield payload[offset + 5:end]
        offset = end


def _has_events(message):
    """Whether a protobuf message is a WatchResponse with events: field 11 is in no other answer of etcd."""
    offset = 0

    def varint():
        nonlocal offset
        value, shift = 0, 0
        while offset < len(message):
            octet = message[offset]
            offset += 1
            value |= (octet & 0x7F) << shift
            shift += 7
            if octet < 0x80:
                break
        return value

    while offset < len(message):
        tag = varint()
        if tag >> 3 == 11:
            return True
        if tag & 7 == 2:
            size = varint()
            offset += size
        elif tag & 7 == 0:
            varint()
        else:
            return False
    return False
