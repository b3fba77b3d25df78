"""A DNS server that does what the first label of the name says (world.BAD_BEHAVIOURS). A program, see program.py."""

import asyncio
import os
import random
import struct
import sys

from . import program, world

QR, TC, RA, RD = 0x8000, 0x0200, 0x0080, 0x0100
SERVFAIL = 2
LATE = (0.2, 1.2)  # seconds; a server has two


def question_of(query):
    return query[12:query.index(b"\0", 12) + 5]


def behaviour_of(query):
    """None of them for a name without a dash, such as a health check's: it is answered well."""
    label = query[13:13 + query[12]].decode("ascii", "replace")
    return label.partition("-")[0].lower() if "-" in label else ""


def reply(query, address=None, flags=0):
    record = b""
    if address:
        record = struct.pack("!HHHIH4B", 0xC00C, 1, 1, 60, 4, *(int(part) for part in address.split(".")))
    return query[:2] + struct.pack("!5H", QR | RD | RA | flags, 1, 1 if record else 0, 0, 0) + question_of(query) + record


def forgeries(query):
    """What somebody else may send, who does not know the ID, or what was asked."""
    other_id = struct.pack("!H", struct.unpack_from("!H", query)[0] ^ 0x0101)
    yield other_id + reply(query, world.FORGED_ADDRESS)[2:]
    other_name = query[:13] + bytes([query[13] ^ 1]) + query[14:]
    yield reply(other_name, world.FORGED_ADDRESS)


def replies(query, tcp):
    """(delay, packets); None among the packets: the connection ends inside a message."""
    behaviour = behaviour_of(query)
    good = reply(query, world.BAD_ADDRESS)
    if behaviour == "silent":
        return 0, []
    if behaviour == "late":
        return random.uniform(*LATE), [good]
    if behaviour == "servfail":
        return 0, [reply(query, flags=SERVFAIL)]
    if behaviour == "truncated":
        return 0, [good if tcp else reply(query, flags=TC)]
    if behaviour == "garbage":
        return 0, [query[:2] + os.urandom(random.randrange(200))]
    if behaviour == "forged":
        return 0, [good] if tcp else [*forgeries(query), good]
    if behaviour == "half":
        return 0, [None] if tcp else [reply(query, flags=TC)]
    return 0, [good]


class Datagrams(asyncio.DatagramProtocol):
    def connection_made(self, transport):
        self._transport = transport

    def datagram_received(self, data, addr):
        delay, packets = replies(data, False)
        for packet in packets:
            asyncio.get_running_loop().call_later(delay, self._transport.sendto, packet, addr)


async def serve_connection(reader, writer):
    try:
        while True:
            query = await reader.readexactly(struct.unpack("!H", await reader.readexactly(2))[0])
            delay, packets = replies(query, True)
            await asyncio.sleep(delay)
            for packet in packets:
                if packet is None:
                    writer.write(b"\0\x40" + query[:2])
                    return
                writer.write(struct.pack("!H", len(packet)) + packet)
    except (OSError, asyncio.IncompleteReadError):
        pass  # the other end has gone
    finally:
        writer.close()


async def main():
    port = program.options()["port"]
    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(Datagrams, ("127.0.0.1", port))
    await asyncio.start_server(serve_connection, "127.0.0.1", port)
    end = asyncio.Event()
    loop.add_reader(sys.stdin, end.set)
    program.report("ready")
    await end.wait()


if __name__ == "__main__":
    asyncio.run(main())
