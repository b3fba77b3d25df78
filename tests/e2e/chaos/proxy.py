"""Links between nodes and etcd members: TCP proxies on loopback, in one process of their own. Standard library only.

As a program it reads commands as lines of JSON on its standard input and confirms each with a line. It ends when its
standard input does. As a module it offers Links, which runs that program.

A link's direction that is held is a black hole: what was sent is neither delivered nor lost, and comes late when the
link opens again, as it would over a network that was away. A link that is cut resets what there is and refuses what is
new."""

import asyncio
import contextlib
import json
import os
import socket
import struct
import subprocess
import sys

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close() sends RST


class Link:
    def __init__(self, target):
        self.target = target
        self.cut = False
        self.held = {"up": False, "down": False}  # up: towards etcd
        self.delay = {"up": 0.0, "down": 0.0}
        self.pipes = set()

    def apply(self, cut=False, hold=(), up=0.0, down=0.0):
        """`up` and `down`: seconds that everything takes in that direction."""
        self.cut = cut
        self.delay = {"up": up, "down": down}
        self.held = {direction: direction in hold for direction in ("up", "down")}
        for pipe in list(self.pipes):
            if cut:
                pipe.abort()
            else:
                pipe.set_reading()


class Pipe(asyncio.Protocol):
    """One direction of one connection: what this side's transport receives goes to the other's."""

    def __init__(self, link, direction):
        self.link = link
        self.direction = direction
        self.transport = None
        self.other = None
        self.waiting = []  # received before it was known that nothing is to be received; b"": the end
        self.due = 0.0  # nothing may overtake what was delayed before

    def connection_made(self, transport):
        self.transport = transport
        self.link.pipes.add(self)
        self.set_reading()

    def stopped(self):
        return self.other is None or self.link.held[self.direction]

    def set_reading(self):
        if self.transport is None or self.transport.is_closing():
            return
        # Held at the source: its buffers fill up, and it notices nothing, as before a black hole.
        if self.stopped():
            self.transport.pause_reading()
            return
        waiting, self.waiting = self.waiting, []
        for data in waiting:
            self._deliver_in_time(data)
        self.transport.resume_reading()

    def data_received(self, data):
        if self.stopped():
            self.waiting.append(data)
        else:
            self._deliver_in_time(data)

    def eof_received(self):
        self.data_received(b"")
        return True  # the other direction goes on

    def connection_lost(self, _error):
        self.link.pipes.discard(self)
        if self.other:
            self.other.abort()

    def _deliver_in_time(self, data):
        loop = asyncio.get_running_loop()
        now = loop.time()
        self.due = max(self.due, now + self.link.delay[self.direction])
        if self.due <= now:
            self._deliver(data)
        else:
            loop.call_at(self.due, self._deliver, data)

    def _deliver(self, data):
        if self.other.transport.is_closing():
            return
        if data:
            self.other.transport.write(data)
        else:
            with contextlib.suppress(OSError):  # it was reset, which connection_lost() will say
                self.other.transport.write_eof()

    def abort(self):
        if self.transport is None or self.transport.is_closing():
            return
        sock = self.transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.transport.abort()


class Entrance(Pipe):
    """The client's side, which makes the connection to etcd."""

    def connection_made(self, transport):
        super().connection_made(transport)
        if self.link.cut:
            self.abort()
        else:
            self.connecting = asyncio.ensure_future(self._connect())

    async def _connect(self):
        loop = asyncio.get_running_loop()
        try:
            _, other = await loop.create_connection(lambda: Pipe(self.link, "down"), "127.0.0.1", self.link.target)
        except OSError:
            self.abort()
            return
        self.other, other.other = other, self
        if self.transport.is_closing() or self.link.cut:
            other.abort()
            self.abort()
            return
        self.set_reading()
        other.set_reading()


async def serve():
    loop = asyncio.get_running_loop()
    links = {}
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        command = json.loads(line)
        for port, target in command.get("listen", {}).items():
            link = links[int(port)] = Link(target)
            await loop.create_server(lambda link=link: Entrance(link, "up"), "127.0.0.1", int(port), backlog=128)
        for port in command.get("links", ()):
            links[port].apply(**command["state"])
        print("done", flush=True)


class Links:
    """Ports -> targets, each an open link at first. Not thread-safe. `prepare_child` is a preexec_fn."""

    def __init__(self, targets, log_path, prepare_child):
        self.ports = list(targets)
        with open(log_path, "ab") as log:
            self._process = subprocess.Popen([sys.executable, "-B", os.path.abspath(__file__)], stdin=subprocess.PIPE,
                                             stdout=subprocess.PIPE, stderr=log, process_group=0,
                                             preexec_fn=prepare_child)
        self._command(listen={str(port): target for port, target in targets.items()})

    def set(self, ports, **state):
        """state: as Link.apply(); none: open."""
        self._command(links=list(ports), state=state)

    def _command(self, **command):
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer == b"done\n", f"the proxy said {answer!r} to {command}"

    def close(self):
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


if __name__ == "__main__":
    asyncio.run(serve())
