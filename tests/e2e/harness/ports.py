"""Free ports, for tests that run beside each other.

A port is reserved for the life of this process by binding an abstract Unix socket of its number: other test processes
see that, and nothing is left on disk. Ports lie under the ephemeral range, so no client socket takes one meanwhile."""

import random
import socket

_FIRST, _LAST = 10240, 32000
_reservations = {}


def free_port():
    """A port that is free for TCP and UDP on every local address, reserved for us."""
    for _ in range(5000):
        port = random.randrange(_FIRST, _LAST)
        if reserve(port):
            return port
    raise RuntimeError("no free port")


def free_ports(count):
    """The first of so many that follow each other, all of them reserved for us."""
    for _ in range(1000):
        first = free_port()
        taken = 1
        while taken < count and reserve(first + taken):
            taken += 1
        if taken == count:
            return first
        for port in range(first, first + taken):
            release(port)
    raise RuntimeError("no free ports")


def is_free(port):
    for family, host in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            try:
                sock = socket.socket(family, kind)
            except OSError:
                continue  # no such family on this machine
            with sock:
                if family == socket.AF_INET6:
                    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                if kind == socket.SOCK_STREAM:
                    # As servers do: a connection in TIME_WAIT does not hold the port.
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    sock.bind((host, port))
                except OSError:
                    return False
    return True


def reserve(port):
    """Reserves this very port; False if another process has reserved it or holds it, or if it is ours already."""
    if port in _reservations:
        return False
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        lock.bind(f"\0idetcd-test-port-{port}")
    except OSError:
        lock.close()
        return False
    if not is_free(port):
        lock.close()
        return False
    _reservations[port] = lock
    return True


def release(port):
    lock = _reservations.pop(port, None)
    if lock:
        lock.close()
