"""Queries that a server may be asked, and what becomes of them by accident or malice. All without their IDs.

Each kind is a generator of bodies from a seeded random.Random; the same seed makes the same bodies."""

import random
import struct

from dns_client import opt, wire_name

FLAGS = (0x0100, 0x0010, 0x0020, 0x0040, 0x0080, 0x0200, 0x0400)  # RD, CD, AD, Z, RA, TC, AA
_TYPES = [1] * 8 + [28] * 6 + [12] * 3 + [2, 5, 6, 15, 16, 33, 43, 48, 64, 65, 99, 127, 256, 1000, 65535]


def body(flags=0, counts=(1, 0, 0, 0), rest=b""):
    """A message without its ID."""
    return struct.pack("!5H", flags, *counts) + rest


class Queries:
    """Of a zone and the names in it."""

    def __init__(self, seed, zone, held, pointers, outside):
        self.random = random.Random(seed)
        self.zone = wire_name(zone)
        self.held = [wire_name(name) for name in held]
        self.pointers = [wire_name(name) for name in pointers]
        self.outside = [wire_name(name) for name in outside]

    # --- names ---

    def label(self, size=None):
        chance = self.random
        size = chance.choice((1, 1, 2, 3, 5, 8, 13, 30, 62, 63)) if size is None else size
        if chance.random() < 0.1:
            return bytes([size]) + chance.randbytes(size)
        return bytes([size]) + bytes(chance.choices(b"abcdefghijklmnopqrstuvwxyz0123456789-_", k=size))

    def name(self):
        chance = self.random
        kind = chance.random()
        if kind < 0.5:
            return chance.choice(self.held)
        if kind < 0.6:
            return chance.choice(self.pointers)
        if kind < 0.7:
            return self.label() + chance.choice(self.held)
        if kind < 0.75:
            held = chance.choice(self.held)
            return held[held[0] + 1:]  # one label less
        if kind < 0.8:
            return chance.choice(self.outside)
        if kind < 0.82:
            return self.zone
        return b"".join(self.label() for _ in range(chance.randrange(1, 4))) + self.zone

    def cased(self, name):
        """Each letter in either case; lengths stay what they are."""
        chance = self.random
        result = bytearray(name)
        at = 0
        while at < len(result) and result[at]:
            for index in range(at + 1, min(at + 1 + result[at], len(result))):
                if chr(result[index]).isascii() and chr(result[index]).isalpha() and chance.random() < 0.5:
                    result[index] ^= 0x20
            at += result[at] + 1
        return bytes(result)

    # --- kinds ---

    def query(self, name=None):
        chance = self.random
        name = self.name() if name is None else name
        if chance.random() < 0.3:
            name = self.cased(name)
        flags = 0x0100 if chance.random() < 0.7 else 0
        if chance.random() < 0.2:
            flags |= chance.choice(FLAGS)
        rest = name + struct.pack("!2H", chance.choice(_TYPES), 1)
        if chance.random() < 0.5:
            return body(flags, rest=rest)
        return body(flags, (1, 0, 0, 1), rest + opt(chance.choice((0, 511, 512, 1232, 4096, 65535)), flags=chance.choice((0, 0x8000))))

    def plain(self):
        return self.query()

    def flipped(self):
        """One to four bits."""
        data = bytearray(self.query())
        for _ in range(self.random.randrange(1, 5)):
            data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)
        return bytes(data)

    def cut(self):
        data = self.query()
        return data[:self.random.randrange(len(data))]

    def inserted(self):
        """Some bytes more, or other ones, or some less, anywhere, the end included."""
        chance = self.random
        data = bytearray(self.query())
        for _ in range(chance.randrange(1, 3)):
            at = len(data) if chance.random() < 0.2 else chance.randrange(len(data))
            data[at:at + chance.randrange(6)] = chance.randbytes(chance.randrange(6))
        return bytes(data)

    def fields(self):
        """A whole query of which one or two fields have another value."""
        chance = self.random
        flags, counts = 0x0100, [1, 0, 0, 0]
        name, rdtype, rdclass = self.name(), chance.choice(_TYPES), 1
        edns = {"payload": 1232}
        owner, optional, tail = b"\0", chance.random() < 0.6, b""
        for _ in range(chance.randrange(1, 3)):
            which = chance.randrange(12)
            if which == 0:
                flags = chance.randrange(0x10000)
            elif which == 1:
                counts[chance.randrange(4)] = chance.choice((0, 1, 2, 255, 256, 0x0100, 65535))
            elif which == 2:
                rdtype = chance.choice((0, 41, 128, 249, 250, 251, 252, 253, 254, 255, 256, chance.randrange(0x10000)))
            elif which == 3:
                rdclass = chance.choice((0, 2, 3, 4, 254, 255, 256, 0x8001, chance.randrange(0x10000)))
            elif which == 4:
                edns["payload"], optional = chance.randrange(0x10000), True
            elif which == 5:
                edns["extended_rcode"], optional = chance.randrange(256), True
            elif which == 6:
                edns["version"], optional = chance.choice((1, 2, 255)), True
            elif which == 7:
                edns["flags"], optional = chance.randrange(0x10000), True
            elif which == 8:
                code = chance.choice((3, 8, 9, 10, 11, 12, 15, 65001))
                data = chance.randbytes(chance.choice((0, 1, 4, 8, 16, 24)))
                edns["options"], optional = struct.pack("!2H", code, len(data)) + data, True
            elif which == 9:
                owner, optional = chance.choice((b"\1a\0", b"\xc0\x0c", b"\xc0\x00")), True
            elif which == 10:
                tail = chance.randbytes(chance.randrange(1, 12))
            else:
                name = name[:-1] + chance.choice((b"\xc0\x0c", b"\xc0\x04", b"\x40", b"\x80", b"\xff"))
        rest = name + struct.pack("!2H", rdtype, rdclass)
        if optional:
            counts[3] += counts[3] == 0
            rest += opt(owner=owner, **edns)
        return body(flags, counts, rest + tail)

    def edges(self):
        """Names around the limits: labels of 62 to 65 bytes, names of 253 to 257, zones in the midst of labels."""
        chance = self.random
        kind = chance.randrange(6)
        if kind == 0:
            size = chance.choice((0, 62, 63, 64, 65, 127, 128, 191, 192, 255))
            name = bytes([size]) + chance.randbytes(size) + self.zone
        elif kind == 1:  # of a length that is given, whole
            wanted = chance.choice((252, 253, 254, 255, 256, 257, 300)) - len(self.zone)
            name = b""
            while wanted - len(name) > 0:
                left = wanted - len(name)
                # No label has a length of nothing.
                name += self.label(min(63, left - 1) if left > 1 else 1)
            name += self.zone
        elif kind == 2:  # the zone, or a name of it, within a label
            inner = chance.choice((self.zone, self.zone[:-1], chance.choice(self.held)))[:63]
            name = self.label(3) + bytes([len(inner)]) + inner + chance.choice((b"\0", self.zone))
        elif kind == 3:  # a label's length is one too few or too many
            name = bytearray(chance.choice(self.held))
            name[0] = (name[0] + chance.choice((-1, 1))) & 0xff
            name = bytes(name)
        elif kind == 4:  # next to the letters, which no folding may touch
            held = bytearray(chance.choice(self.held))
            at = chance.randrange(1, held[0] + 1)
            held[at] = chance.choice((0x40, 0x5b, 0x60, 0x7b, 0, 0x2e, 0x20, 0x5c, 0xc1, 0xe1, held[at] ^ 0x80, held[at] ^ 0x20))
            name = bytes(held)
        else:  # something between name and zone, before it or after it
            held = chance.choice(self.held)
            first = held[:held[0] + 1]
            extra = chance.choice((b"\1*", b"\2tf", b"\5local", b"\2tf\5local", self.label(1)))
            name = chance.choice((first + extra + held[len(first):], extra + held, held[:-1] + extra + b"\0", b"\0" + held))
        return self.query(name)

    def cases(self):
        """A name that is held, in any case."""
        return self.query(self.cased(self.random.choice(self.held)))

    def pointing(self):
        """What asks for the name of an address."""
        chance = self.random
        name = self.cased(chance.choice(self.pointers))
        if chance.random() < 0.3:
            at = chance.randrange(len(name))
            name = name[:at] + bytes([chance.randrange(256)]) + name[at + 1:]
        rest = name + struct.pack("!2H", 12 if chance.random() < 0.9 else chance.choice(_TYPES), 1)
        if chance.random() < 0.5:
            return body(0x0100, rest=rest)
        return body(0x0100, (1, 0, 0, 1), rest + opt(flags=chance.choice((0, 0x8000))))

    def noise(self):
        return self.random.randbytes(self.random.randrange(0, 300))


def without_id(messages):
    """Those that have one."""
    return [message[2:] for message in messages if len(message) >= 2]
