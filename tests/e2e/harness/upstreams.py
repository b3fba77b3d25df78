"""DNS servers that do what a test wants: on sockets of their own, one thread each."""

import contextlib
import os
import selectors
import socket
import ssl
import struct
import subprocess
import threading
import time

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

from . import ports


SO_TIMESTAMPNS = 35  # Linux; the socket module does not know it
_LATE = 0.03  # seconds; the node repeats a question after 50 ms


def answer(query, *records, rcode=dns.rcode.NOERROR, ttl=60):
    """A response with `records`, texts like "A 192.0.2.1", at the qname."""
    response = dns.message.make_response(query, recursion_available=True)
    response.set_rcode(rcode)
    question = query.question[0]
    for record in records:
        rdtype, rdata = record.split(" ", 1)
        response.answer.append(dns.rrset.from_text(question.name, ttl, "IN", rdtype, rdata))
    return response


class Upstream:
    """`handler(query, tcp)` returns a message, bytes, a list of them, or None for silence. Over UDP and TCP on one
    port; with `tls` (an ssl.SSLContext) over TLS only."""

    def __init__(self, handler=None, host="127.0.0.1", port=None, tls=None):
        self.handler = handler or (lambda query, tcp: answer(query, "A 192.0.2.1"))
        self.host = host
        self._owns_port = port is None
        self.port = ports.free_port() if port is None else port
        self.tls = tls
        self.queries = []  # (message, tcp), but for repetitions
        # The names in datagrams that came once more, byte for byte, and in what came over TCP although we had answered over
        # UDP: as the node does when we are late.
        self.repeated = []
        self._datagrams = set()
        self._over_tcp = []  # (message, when it was read)
        self._late = set()  # questions in datagrams that were answered, but not soon
        self.connections = 0
        self.idle = 5  # seconds after which it closes a connection
        self.resumed = 0
        self._stop = None
        self._thread = None
        self._sockets = []
        self._accepted = set()

    def start(self):
        self._selector = selectors.DefaultSelector()
        self._stop, stopped = socket.socketpair()
        self._selector.register(stopped, selectors.EVENT_READ, None)
        self._sockets = [stopped]
        if not self.tls:
            self.udp = self._listen(socket.SOCK_DGRAM, self._on_datagram)
        self._listen(socket.SOCK_STREAM, self._on_connection)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def stop(self):
        """Closes everything; the port stays reserved, and start() may be called again."""
        if not self._thread:
            return
        self._stop.send(b"x")
        self._thread.join()
        self._thread = None
        for sock in self._sockets:
            sock.close()
        for connection in list(self._accepted):  # their threads end with them; of TLS nothing more is said
            with contextlib.suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
        self._stop.close()
        self._selector.close()

    def close(self):
        self.stop()
        if self._owns_port:
            ports.release(self.port)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.close()

    @property
    def address(self):
        return f"{self.host}:{self.port}"

    def names(self):
        return [query.question[0].name.to_text() for query, _ in self.queries if not _is_probe(query)]

    def _listen(self, kind, callback):
        sock = socket.socket(socket.AF_INET, kind)
        if kind == socket.SOCK_STREAM:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((self.host, self.port))
        if kind == socket.SOCK_STREAM:
            sock.listen(64)
        else:
            sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)  # dnspython takes its time over each
        self._sockets.append(sock)
        self._selector.register(sock, selectors.EVENT_READ, callback)
        return sock

    def _run(self):
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    return
                key.data(key.fileobj)

    def _on_datagram(self, sock):
        packet, ((_, _, stamp),), _, client = sock.recvmsg(65535, 64)
        seconds, nanoseconds = struct.unpack("=qq", stamp)
        came_at = seconds + nanoseconds / 1e9
        repeated = (packet, client) in self._datagrams
        self._datagrams.add((packet, client))
        whole = self._answer(packet, False, lambda octets: sock.sendto(octets, client), repeated)
        if whole and time.time() - came_at > _LATE:
            self._late.add(whole)
            for query, read_at in self._over_tcp:  # the thread of its connection may have been faster
                if query.question[0].to_text() == whole and read_at > came_at and (query, True) in self.queries:
                    self.queries.remove((query, True))
                    self.repeated.append(query.question[0].name.to_text())

    def _on_connection(self, listener):
        connection, _ = listener.accept()
        connection.settimeout(self.idle)
        threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        try:
            with connection:
                if self.tls:
                    connection = self.tls.wrap_socket(connection, server_side=True)
                    self.resumed += connection.session_reused
                self.connections += 1
                with connection:
                    self._accepted.add(connection)
                    while packet := _read_framed(connection):
                        self._answer(packet, True, lambda octets: connection.sendall(struct.pack("!H", len(octets)) + octets))
        except OSError:
            pass  # the peer has gone
        finally:
            self._accepted.discard(connection)

    def _answer(self, packet, tcp, send, repeated=False):
        """The question, if the reply leaves nothing to ask for."""
        query = dns.message.from_wire(packet)
        asked = query.question[0].to_text()
        if repeated or tcp and asked in self._late:
            self.repeated.append(query.question[0].name.to_text())
        else:
            if tcp:
                self._over_tcp.append((query, time.time()))
            self.queries.append((query, tcp))
        replies = self.handler(query, tcp)
        for reply in replies if isinstance(replies, list) else [replies]:
            if reply is not None:
                send(reply if isinstance(reply, bytes) else reply.to_wire(max_size=65535))
        return asked if isinstance(replies, dns.message.Message) and not replies.flags & dns.flags.TC else None


def _is_probe(query):
    return query.question[0].rdtype == dns.rdatatype.NS and query.question[0].name == dns.name.root


def _read_framed(connection):
    prefix = _read_exactly(connection, 2)
    return prefix and _read_exactly(connection, struct.unpack("!H", prefix)[0])


def _read_exactly(connection, size):
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            return None
        data += more
    return data


def make_certificate(directory, subject_alternative, name="server"):
    """A self-signed certificate and its key, as two PEM files."""
    cert, key = os.path.join(directory, f"{name}.pem"), os.path.join(directory, f"{name}.key")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", f"/CN={name}", "-addext", f"subjectAltName={subject_alternative}", "-keyout", key, "-out", cert],
        check=True, capture_output=True)
    return cert, key


def server_context(cert, key):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context
