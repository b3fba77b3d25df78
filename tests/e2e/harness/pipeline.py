"""Thousands of queries through one UDP socket and one TCP connection, many in flight."""

import select
import socket
import struct
import time

from .processes import TIME_FACTOR

_PATIENCE = 1.0 * TIME_FACTOR  # seconds before a datagram is sent once more
_ATTEMPTS = 8


def over_udp(packets, port, host="127.0.0.1", window=64):
    """The responses, in the order of `packets`; AssertionError if one never comes. The IDs must differ."""
    by_id = {packet[:2]: index for index, packet in enumerate(packets)}
    assert len(by_id) == len(packets)
    responses = [None] * len(packets)
    attempts = [0] * len(packets)
    in_flight = {}  # index -> when it was sent, oldest first
    waiting = iter(range(len(packets)))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        sock.connect((host, port))
        sock.setblocking(False)

        def send(index):
            attempts[index] += 1
            assert attempts[index] <= _ATTEMPTS, f"no answer to {packets[index]!r}"
            in_flight.pop(index, None)
            in_flight[index] = time.monotonic()
            sock.send(packets[index])

        left = len(packets)
        while left:
            while len(in_flight) < window and (index := next(waiting, None)) is not None:
                send(index)
            if not select.select([sock], [], [], 0.2)[0]:
                late = time.monotonic() - _PATIENCE
                for index in [index for index, sent in in_flight.items() if sent < late]:
                    send(index)
                continue
            response = sock.recv(65535)
            index = by_id.get(response[:2])
            if index is not None and responses[index] is None:
                responses[index] = response
                in_flight.pop(index, None)
                left -= 1
    return responses


def over_tcp(packets, port, host="127.0.0.1", window=16):
    """As over_udp; answers may come in any order."""
    by_id = {packet[:2]: index for index, packet in enumerate(packets)}
    responses = [None] * len(packets)
    with socket.create_connection((host, port), timeout=20 * TIME_FACTOR) as sock, sock.makefile("rb") as stream:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sent = received = 0
        while received < len(packets):
            while sent < len(packets) and sent - received < window:
                sock.sendall(struct.pack("!H", len(packets[sent])) + packets[sent])
                sent += 1
            response = stream.read(struct.unpack("!H", stream.read(2))[0])
            responses[by_id[response[:2]]] = response
            received += 1
    return responses
