"""A machine whose server answers in the kernel (XDP), another server without that beside it, and a second machine from which
both can be asked over a veth pair. Needs root and BPF.

Both servers observe one etcd, and say the same but for `xdp`: what the one says the other one has to say, byte for byte."""

import contextlib
import ctypes
import fcntl
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import weakref

from .etcd import EtcdMember
from .metrics import Metrics
from .namespace import Namespace
from .node import binary
from .processes import TIME_FACTOR, wait_until

PORT, PLAIN_PORT = 53, 5353  # of the server with `xdp`, and of the one without
METRICS, PLAIN_METRICS = 9153, 9154
SERVER4, SECOND4, SERVER6, SECOND6 = "192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2"
CLIENT4, CLIENT6 = "192.0.2.9", "2001:db8::9"
LINK_LOCAL = "fe80::1"
LOOPBACK4, LOOPBACK6 = "127.0.0.1", "::1"
INTERFACE = "eth0"
# Of a client whose packets meet a program behind the driver: one in 65,536 has a checksum that is right both as a whole and as
# the half that is left to a device, and goes to the server. With fixed ports, IDs and addresses it is the same in each run, and
# none of the tests' packets is one.
SOURCE_PORTS = (20053, 20054)
ZONE = "tf.local."

SKIPPED = "XDP is not tested: "  # how each reason begins, see conftest.py

SYS_BPF = {"x86_64": 321, "aarch64": 280}
_BPF_MAP_CREATE, _BPF_MAP_LOOKUP_ELEM, _BPF_MAP_GET_FD_BY_ID = 0, 1, 14
_BPF_MAP_TYPE_ARRAY = 2
_libc = ctypes.CDLL(None, use_errno=True)
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33


def unavailable():
    """Why nothing can be tested here; None: all is there."""
    if os.geteuid() != 0:
        return SKIPPED + "it needs root"
    if os.uname().machine not in SYS_BPF:
        return SKIPPED + f"the number of bpf(2) on {os.uname().machine} is not known here"
    try:
        os.close(_bpf(_BPF_MAP_CREATE, struct.pack("=5I", _BPF_MAP_TYPE_ARRAY, 4, 4, 1, 0)))
    except OSError as error:
        return SKIPPED + f"bpf(2): {error.strerror}"
    for program in ("bpftool", "clang-14", "setpriv", "ip"):
        if not shutil.which(program):
            return SKIPPED + f"{program} is not installed"
    version = subprocess.run([binary(), "-version"], capture_output=True, text=True, check=False).stdout
    if re.search(r"(without|no) xdp", version, re.IGNORECASE):
        return SKIPPED + f"{binary()} is built without it"
    return None


# --- names ---

# 255 bytes in wire form.
LONGEST = ".".join(["x" * 63] * 3 + ["x" * 52]) + "." + ZONE


def values():
    """What etcd has: name -> value."""
    names = {f"worker{n}.{ZONE}": {"ipv4": f"10.1.{n // 256}.{n % 256}", "ipv6": f"2001:db8:1::{n:x}"} for n in range(1, 201)}
    names |= {
        f"four.{ZONE}": {"ipv4": "10.2.0.1"},
        f"six.{ZONE}": {"ipv6": "2001:db8:2::1"},
        f"a.b.deep.{ZONE}": {"ipv4": "10.2.0.2"},
        f"{'l' * 63}.{ZONE}": {"ipv4": "10.2.0.3"},
        f"{LONGEST}": {"ipv4": "10.2.0.4", "ipv6": "2001:db8:2::4"},
        f"under_score.{ZONE}": {"ipv4": "10.2.0.5"},
        f"twin1.{ZONE}": {"ipv4": "10.2.0.9"},
        f"twin2.{ZONE}": {"ipv4": "10.2.0.9"},
        f"{'p' * 40}.{ZONE}": {"ipv4": "10.2.0.10"},
        "far.example.org.": {"ipv4": "10.2.0.11"},
    }
    return {name: json.dumps(value) for name, value in names.items()}




# --- Corefiles ---

IDETCD = """idetcd {{
        endpoint {endpoint}
        pattern worker{{{{.ID}}}}.tf.local.
        lease {lease}s
        address 192.0.2.1
        observe
{options}    }}"""


def idetcd(endpoint, lease=60, options=()):
    return IDETCD.format(endpoint=endpoint, lease=lease, options="".join(f"        {option}\n" for option in options))


def block(endpoint, port=PORT, metrics=METRICS, xdp="", bind="", lines=(), zones=".", **of_idetcd):
    """A server block. The same without `xdp` and with other ports is the other server's."""
    zones = " ".join(f"{zone}:{port}" for zone in zones.split())
    own = [f"bind {bind}"] if bind else []
    own += [f"prometheus {LOOPBACK4}:{metrics}"] if metrics else []
    own += [idetcd(endpoint, **of_idetcd), *lines]
    own += [f"xdp {xdp}"] if xdp else []
    return f"{zones} {{\n" + "".join(f"    {line}\n" for line in own) + "}\n"


# --- machines ---

class Site:
    """Two machines: that of the servers, with an etcd, and that of other clients."""

    def __init__(self, directory, names=None):
        self.directory = directory
        self._closing = contextlib.ExitStack()
        try:
            self.machine = self._namespace("machine")
            self.outside = self._namespace("outside")
            self.machine.run("ip", "link", "add", INTERFACE, "type", "veth", "peer", "name", INTERFACE, "netns", str(self.outside.holder.pid))
            for namespace, *addresses in ((self.machine, SERVER4, SECOND4, SERVER6, SECOND6, LINK_LOCAL), (self.outside, CLIENT4, CLIENT6, "fe80::9")):
                for address in addresses:
                    more = ["64", "nodad"] if ":" in address else ["24"]
                    namespace.run("ip", "address", "add", f"{address}/{more[0]}", "dev", INTERFACE, *more[1:])
                namespace.run("ip", "link", "set", INTERFACE, "addrgenmode", "none", "up")
            # Frames of our making with addresses of 127/8 are taken on lo, as others are.
            for name in ("route_localnet", "accept_local"):
                self.machine.run("sh", "-c", f"echo 1 > /proc/sys/net/ipv4/conf/lo/{name}")
            # A veth takes what the other end sends back from its program only if it has one itself.
            self.attach(self.outside, INTERFACE, compiled(directory, "pass", PASS))
            with self.machine.entered():
                self.etcd = EtcdMember(directory)
                self._closing.callback(self.etcd.close)
                self.etcd.start()
                self.etcd.put_many(values() if names is None else names)
        except BaseException:
            self.close()
            raise

    def _namespace(self, name):
        directory = os.path.join(self.directory, name)
        os.mkdir(directory)
        namespace = Namespace(directory)
        self._closing.callback(namespace.close)
        return namespace

    @staticmethod
    def attach(namespace, interface, program, mode="xdp"):
        namespace.run("ip", "link", "set", "dev", interface, mode, "obj", program, "sec", "xdp")

    def neighbour(self, name, address4, address6, router4, router6):
        """A machine behind the one of the clients, which routes. The link between them has no offloaded checksums."""
        far = self._namespace(name)
        self.outside.run("ip", "link", "add", name, "type", "veth", "peer", "name", INTERFACE, "netns", str(far.holder.pid))
        for namespace, interface, addresses in ((far, INTERFACE, (address4, address6)), (self.outside, name, (router4, router6))):
            for address in addresses:
                namespace.run("ip", "address", "add", *([f"{address}/64", "nodad"] if ":" in address else [f"{address}/24"]), "dev", interface)
            namespace.run("ip", "link", "set", interface, "up")
        self.outside.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding")
        with self.outside.entered():
            _set_transmit_checksums(name, False)
        for namespace, target4, gateway4, target6, gateway6 in (
                (far, "default", router4, "default", router6),
                (self.machine, f"{address4}/32", CLIENT4, f"{address6}/128", CLIENT6)):
            namespace.run("ip", "route", "add", target4, "via", gateway4)
            namespace.run("ip", "-6", "route", "add", target6, "via", gateway6)
        return far

    def bpffs(self):
        """A directory that what is pinned lives in as long as the machine."""
        path = os.path.join(self.directory, "bpf")
        os.mkdir(path)
        self.machine.run("mount", "-t", "bpf", "bpf", path)
        return path

    def start(self, nodes, text, name, port=PORT, **spawn_options):
        """A server in the machine. REQUIRES: its network is entered."""
        node = nodes.make(text, name, port=port)
        node.launch(prefix=[*self.machine.prefix, *spawn_options.pop("prefix", ())], **spawn_options)
        return node.wait_answers()

    def close(self):
        self._closing.close()


PASS = "2"  # XDP_PASS


_TERMS = 'char terms[] __attribute__((section("license"), used)) = "GPL";\n'
TAGGED = 5  # the mark of packets that get a tag

_TAGGER = """#include <linux/bpf.h>
static long (*push_tag)(struct __sk_buff*, unsigned short, unsigned short) = (void*)BPF_FUNC_skb_vlan_push;
__attribute__((section("tc"), used)) int tag(struct __sk_buff* packet) {
  if (packet->mark == %d) push_tag(packet, __builtin_bswap16(0x8100), %d);
  return 0;
}
"""


def compiled(directory, name, verdict):
    """The path of a program that has this verdict on every packet."""
    return _compiled(directory, name, f'__attribute__((section("xdp"), used)) int {name}_all(void* context) {{ return {verdict}; }}\n')


def tagger(directory, number):
    """The path of one for tc, which puts the tag of a VLAN beside each packet that is marked TAGGED."""
    return _compiled(directory, f"tag{number}", _TAGGER % (TAGGED, number))


def _compiled(directory, name, text):
    source, path = (os.path.join(directory, f"{name}.{suffix}") for suffix in ("c", "o"))
    if not os.path.exists(path):
        with open(source, "w", encoding="ascii") as file:
            file.write(text + _TERMS)
        subprocess.run(["clang-14", "-O2", "-g", "-target", "bpf", f"-I/usr/include/{os.uname().machine}-linux-gnu", "-c", source,
                        "-o", path], check=True)
    return path


def programs(namespace, interface=INTERFACE):
    """The XDP programs of an interface: (mode, id, name)."""
    link = json.loads(namespace.run("ip", "-j", "-d", "link", "show", "dev", interface))[0]
    xdp = link.get("xdp")
    if not xdp:
        return []
    modes = {1: "native", 2: "generic", 3: "offload"}
    attached = xdp.get("attached") or [{"mode": xdp["mode"], "prog": xdp["prog"]}]
    return [(modes.get(one["mode"], one["mode"]), one["prog"]["id"], one["prog"].get("name")) for one in attached]


_SIOCETHTOOL, _ETHTOOL_STXCSUM = 0x8946, 0x17


def _set_transmit_checksums(interface, on):
    """Whether the device is trusted with checksums (ethtool -K INTERFACE tx)."""
    command = ctypes.create_string_buffer(struct.pack("=2I", _ETHTOOL_STXCSUM, on))
    request = struct.pack("=16sQ16x", interface.encode(), ctypes.addressof(command))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCETHTOOL, request)


# --- clients ---

class Client:
    """A UDP socket in the network that is entered. Asks `host` at either port."""

    def __init__(self, host, source=None, source_port=0):
        self.host = host
        self.sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 8 << 20)
        self.sock.settimeout(3 * TIME_FACTOR)
        self.sock.bind((source or ("::" if ":" in host else "0.0.0.0"), source_port))
        self.port = self.sock.getsockname()[1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def send(self, packet, port=PORT):
        self.sock.sendto(packet, (self.host, port))

    def receive(self, timeout=None, port=PORT):
        """None: nothing has come."""
        self.sock.settimeout((timeout or 3) * TIME_FACTOR)
        try:
            data, where = self.sock.recvfrom(65535)
        except TimeoutError:
            return None
        assert where[:2] == (self.host.partition("%")[0], port), f"{where[:2]} answers what {(self.host, port)} was asked"
        return data

    def ask(self, packet, port=PORT, timeout=None):
        self.send(packet, port)
        return self.receive(timeout, port)

    def ask_barred(self, send, barrier, port=PORT):
        """What comes back for what send() sends: everything until the answer to `barrier`, which the server gives after it."""
        send()
        self.send(barrier, port)
        found = []
        while True:
            data = self.receive(port=port)
            assert data is not None, "no answer to a good query"
            if data[:2] == barrier[:2]:
                return found
            found.append(data)


class Stream:
    """Many packets, in windows, each ended by a packet that is answered after all of the window."""

    WINDOW = 256

    def __init__(self, host, port, source_port=0):
        self.address = (host, port)
        self.sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 32 << 20)
        self.sock.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, 8 << 20)
        self.sock.bind(("", source_port))
        self.sock.connect(self.address)
        self.sock.settimeout(5 * TIME_FACTOR)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def responses(self, bodies, barrier):
        """The response to each of `bodies`, messages without their ID; b"" where none comes. So are the responses without ID.
        Those of fewer than 12 bytes are never answered, and may not be: their ID may be none."""
        result = []
        send, receive = self.sock.send, self.sock.recv
        last = (0xffff).to_bytes(2, "big")
        ids = [n.to_bytes(2, "big") for n in range(self.WINDOW)]
        for begin in range(0, len(bodies), self.WINDOW):
            window = bodies[begin:begin + self.WINDOW]
            answers = [b""] * len(window)
            for index, body in zip(ids, window):
                send(index + body)
            send(last + barrier)
            while True:
                try:
                    data = receive(65535)
                except TimeoutError:
                    raise AssertionError(f"no answer to a good query behind {begin}") from None
                if data[:2] == last:
                    break
                index = int.from_bytes(data[:2], "big")
                assert index < len(window) and not answers[index], f"an answer that nobody asked for: {data!r}"
                answers[index] = data[2:]
            result += answers
        return result


@contextlib.contextmanager
def frozen(node):
    """The server does nothing meanwhile: what is answered is answered by the kernel."""
    node.pause()
    try:
        yield
    finally:
        node.resume()


class Kernel:
    """The program on an interface of a namespace, and what it has counted. It is read where the kernel has it: the server's
    metrics come later, and not while it stands still."""

    _TYPES = {"A": 0, "AAAA": 1, "MX": 2, "SOA": 3, "CNAME": 4, "PTR": 5, "TXT": 6, "NS": 7, "SRV": 8, "HTTPS": 14}
    _RCODES = {"NOERROR": 0, "NXDOMAIN": 1}
    _ANSWERED = (2, 19, 2)  # of families, types and rcodes, each a number of 8 bytes: what a meter begins with (layout.h)
    REASONS = ("checksum", "message", "edns", "type", "zone", "name", "expired", "changing", "room")

    def __init__(self, namespace, interface="lo"):
        found = programs(namespace, interface)
        assert len(found) == 1, f"the programs on {interface}: {found}"
        self.mode, self.program, self.name = found[0]
        self._maps = {}
        for number in _bpftool("prog", "show", "id", str(self.program))["map_ids"]:
            shown = _bpftool("map", "show", "id", str(number))
            self._maps[shown["name"]] = _Map(number, shown)

    def answered(self, rdtype=None, rcode=None):
        """How many queries, by type and rcode where they are given."""
        families, types, rcodes = self._ANSWERED
        total = 0
        for value in self._maps["meters"].values():
            counts = struct.unpack_from(f"={families * types * rcodes}Q", value)
            for index, count in enumerate(counts):
                is_type = rdtype is None or index // rcodes % types == self._TYPES[rdtype]
                total += count if is_type and (rcode is None or index % rcodes == self._RCODES[rcode]) else 0
        return total

    def passed(self, reason=None):
        """How many queries to the server's addresses were left to it, for one reason or all."""
        maps = self._maps["passed"]
        keys = range(len(self.REASONS)) if reason is None else [self.REASONS.index(reason)]
        return sum(struct.unpack("=Q", value)[0] for key in keys for value in maps.value(key))

    def entries(self, name="names"):
        """How many a map has."""
        return len(_bpftool("map", "dump", "id", str(self._maps[name].number)))

    def behind_driver(self, index):
        """What the listeners on the interface with this index say of whether the program runs behind its driver. They are
        written one after the other."""
        said = set()
        for entry in _bpftool("map", "dump", "id", str(self._maps["listeners"].number)):
            key, value = (bytes(int(byte, 16) for byte in entry[part]) for part in ("key", "value"))
            if struct.unpack_from("=I", key, 16)[0] == index:
                said.add(value[28] != 0)
        return said

    def memory(self):
        """The bytes that the kernel has set aside for the maps of names and pointers."""
        return sum(int(_bpftool("map", "show", "id", str(self._maps[name].number))["bytes_memlock"]) for name in ("names", "pointers"))

    @contextlib.contextmanager
    def counting(self, expected, what="", **of):
        """It answers so many queries meanwhile."""
        before = self.answered(**of)
        yield
        after = self.answered(**of) - before
        assert after == expected, f"{what} the kernel has answered {after}, not {expected}"

    def close(self):
        for one in self._maps.values():
            one.close()


class _Map:
    """A map of numbers for each processor, if it is one."""

    def __init__(self, number, shown):
        self.number = number
        self._fd = _bpf(_BPF_MAP_GET_FD_BY_ID, struct.pack("=3I", number, 0, 0))
        self.close = weakref.finalize(self, os.close, self._fd)
        self._entries = shown["max_entries"]
        self._size = (shown["bytes_value"] + 7) // 8 * 8
        with open("/sys/devices/system/cpu/possible", encoding="ascii") as file:
            self._processors = int(file.read().strip().rpartition("-")[2]) + 1

    def value(self, key):
        """Of each processor."""
        key_bytes = ctypes.create_string_buffer(struct.pack("=I", key), 4)
        found = ctypes.create_string_buffer(self._size * self._processors)
        _bpf(_BPF_MAP_LOOKUP_ELEM, struct.pack("=IIQQQ", self._fd, 0, ctypes.addressof(key_bytes), ctypes.addressof(found), 0))
        return [found.raw[begin:begin + self._size] for begin in range(0, len(found), self._size)]

    def values(self):
        return [value for key in range(self._entries) for value in self.value(key)]


def _bpf(command, attributes):
    """bpf(2). Raises OSError."""
    buffer = ctypes.create_string_buffer(attributes, 128)
    result = _libc.syscall(SYS_BPF[os.uname().machine], command, buffer, len(buffer))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _bpftool(*arguments):
    result = subprocess.run(["bpftool", "-j", *arguments], capture_output=True, text=True, check=False, timeout=30 * TIME_FACTOR)
    assert result.returncode == 0, f"bpftool {arguments}: {result.stdout}{result.stderr}"
    return json.loads(result.stdout)


def metrics(port=METRICS):
    return Metrics.of(port, host=LOOPBACK4)


def kernel_of(namespace, node, interface="lo"):
    """As soon as the server has attached its program."""
    def condition():
        assert node.running(), node.logs()
        return programs(namespace, interface)
    wait_until(condition, 10, lambda: f"a program on {interface}\n{node.logs()}")
    return Kernel(namespace, interface)


# --- frames ---

def checksum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


class Wire:
    """Frames of our making from one end of a link to the other. The sockets that answers come to are Clients'."""

    def __init__(self, interface, source_mac, target_mac):
        self.sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self.sock.bind((interface, 0))
        self.head = bytes.fromhex(target_mac.replace(":", "")) + bytes.fromhex(source_mac.replace(":", ""))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def send(self, *packets, vlan=None):
        for packet in packets:
            kind = b"\x86\xdd" if packet[0] >> 4 == 6 else b"\x08\0"
            tag = b"" if vlan is None else struct.pack("!2H", 0x8100, vlan)
            self.sock.send(self.head + tag + kind + packet)


def mac_of(namespace, interface=INTERFACE):
    return json.loads(namespace.run("ip", "-j", "link", "show", "dev", interface))[0]["address"]


def udp(source, target, source_port, target_port, payload, check=None, length=None):
    """A UDP datagram; `check`: instead of the right checksum, a number or a function of it."""
    length = 8 + len(payload) if length is None else length
    head = struct.pack("!3H", source_port, target_port, length)
    family = socket.AF_INET6 if ":" in source else socket.AF_INET
    pseudo = socket.inet_pton(family, source) + socket.inet_pton(family, target) + struct.pack("!2I", 8 + len(payload), 17)
    right = checksum(pseudo + head + b"\0\0" + payload) or 0xffff
    right = right if check is None else check(right) if callable(check) else check
    return head + struct.pack("!H", right) + payload


def ipv4(source, target, payload, options=b"", flags=0x4000, identification=1, ttl=64, tos=0, check=None, total=None, protocol=17):
    assert len(options) % 4 == 0
    words = 5 + len(options) // 4
    head = struct.pack("!2B3H2B", 0x40 | words, tos, total or 4 * words + len(payload), identification, flags, ttl, protocol)
    addresses = socket.inet_aton(source) + socket.inet_aton(target) + options
    right = checksum(head + b"\0\0" + addresses)
    right = right if check is None else check(right)
    return head + struct.pack("!H", right) + addresses + payload


def ipv6(source, target, payload, next_header=17, traffic=0, label=0, hops=64, length=None):
    return struct.pack("!IH2B", 6 << 28 | traffic << 20 | label, len(payload) if length is None else length, next_header, hops) + \
        socket.inet_pton(socket.AF_INET6, source) + socket.inet_pton(socket.AF_INET6, target) + payload


def packet(source, target, source_port, target_port, payload, check=None, **ip):
    """UDP in IP of either version."""
    datagram = udp(source, target, source_port, target_port, payload, check)
    return ipv6(source, target, datagram, **ip) if ":" in source else ipv4(source, target, datagram, **ip)


def fragments(source, target, source_port, target_port, payload, size):
    """The datagram in fragments of `size` bytes, a multiple of 8."""
    datagram = udp(source, target, source_port, target_port, payload)
    pieces = [(begin, datagram[begin:begin + size]) for begin in range(0, len(datagram), size)]
    assert len(pieces) > 1
    result = []
    for begin, piece in pieces:
        more = begin + size < len(datagram)
        if ":" in source:
            result.append(ipv6(source, target, struct.pack("!2BHI", 17, 0, begin | more, 77) + piece, next_header=44))
        else:
            result.append(ipv4(source, target, piece, flags=begin // 8 | (0x2000 if more else 0), identification=77))
    return result
