"""Asking a node, with dnspython as the client, and raw packets where no library would send them."""

import socket
import struct

import dns.edns
import dns.exception
import dns.flags
import dns.message
import dns.query
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.reversename

from harness.processes import TIME_FACTOR, wait_until

TIMEOUT = 8 * TIME_FACTOR

EDE = 15  # RFC 8914
EDE_STALE_ANSWER = 3
EDE_NOT_READY = 14


def make_query(name, rdtype="A", **options):
    options.setdefault("use_edns", False)
    return dns.message.make_query(name, rdtype, **options)


def exchange(node, query, tcp=False, host="127.0.0.1", port=None, timeout=TIMEOUT):
    port = port or node.port
    if tcp:
        return dns.query.tcp(query, host, port=port, timeout=timeout)
    # The port may have been another socket's a moment ago, to which somebody's late answer comes: a client passes over it.
    return dns.query.udp(query, host, port=port, timeout=timeout, ignore_unexpected=True)


def ask(node, name, rdtype="A", tcp=False, host="127.0.0.1", port=None, **options):
    """The response message. dnspython checks ID, question and QR, passes over other senders, and refuses trailing bytes."""
    return exchange(node, make_query(name, rdtype, **options), tcp, host, port)


def answers(node, name, rdtype="A", **where):
    """The answer section's data as a sorted list of texts; the rcode's text if it is not NOERROR."""
    response = ask(node, name, rdtype, **where)
    if response.rcode() != dns.rcode.NOERROR:
        return rcode(response)
    return sorted(rdata.to_text() for rrset in response.answer for rdata in rrset)


def rcode(response):
    return dns.rcode.to_text(response.rcode())


def resolves(node, name, address, rdtype="A", **where):
    return answers(node, name, rdtype, **where) == [address]


def patient(question):
    """For wait_until(): question(), and None where no answer comes in time, as while an upstream is just starting."""
    def condition():
        try:
            return question()
        except (OSError, dns.exception.Timeout):
            return None
    return condition


def wait_resolves(nodes, name, address, rdtype="A", timeout=5, **where):
    for node in nodes:
        wait_until(lambda n=node: resolves(n, name, address, rdtype, **where), timeout,
                   lambda n=node: f"{name} at {n.name} to be {address}; now {answers(n, name, rdtype, **where)}\n{n.logs()}")


def wait_gone(nodes, name, timeout=5):
    for node in nodes:
        wait_until(lambda n=node: answers(n, name) == "NXDOMAIN", timeout,
                   lambda n=node: f"{name} to be gone at {n.name}; now {answers(n, name)}\n{n.logs()}")


def said_name(node, at="id.server."):
    """What the node calls itself, with the trailing dot; None: nothing."""
    response = ask(node, at, "TXT", rdclass="CH")
    if response.rcode() == dns.rcode.REFUSED:
        return None
    return b"".join(response.answer[0][0].strings).decode() + "."


def wait_says(node, name, timeout=10):
    wait_until(lambda: said_name(node) == name, timeout,
               lambda: f"{node.name} to call itself {name}; now {said_name(node)}\n{node.logs()}")


def pointer(node, address):
    """What the reverse name of an address says, as answers()."""
    return answers(node, dns.reversename.from_address(address).to_text(), "PTR")


def extended_errors(response):
    """The INFO-CODEs of RFC 8914."""
    return [int(option.code) if hasattr(option, "text") else struct.unpack("!H", option.data[:2])[0]
            for option in response.options if int(option.otype) == EDE]


def assert_nodata(response, zone):
    assert rcode(response) == "NOERROR", response
    assert not response.answer, response
    assert_soa_in_authority(response, zone)


def assert_nxdomain(response, zone):
    assert rcode(response) == "NXDOMAIN", response
    assert not response.answer, response
    assert_soa_in_authority(response, zone)


def assert_soa_in_authority(response, zone):
    """RFC 2308 §3: the zone's SOA, so that the answer may be remembered."""
    assert response.flags & dns.flags.AA, response
    assert len(response.authority) == 1, response
    rrset = response.authority[0]
    assert rrset.rdtype == dns.rdatatype.SOA and rrset.name.to_text() == zone, response
    assert 0 < min(rrset.ttl, rrset[0].minimum) <= 60, "a cluster is forming: negative answers are short-lived"


# --- raw ---

class RawUdp:
    """A connected UDP socket; context manager."""

    def __init__(self, port, host="127.0.0.1"):
        self.sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.connect((host, port))
        self.sock.settimeout(TIMEOUT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def send(self, packet):
        self.sock.send(packet)

    def receive(self):
        return self.sock.recv(65535)

    def ask(self, packet):
        self.send(packet)
        return self.receive()


class RawTcp:
    def __init__(self, port, host="127.0.0.1"):
        self.sock = socket.create_connection((host, port), timeout=TIMEOUT)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def send(self, data):
        self.sock.sendall(data)

    def send_message(self, packet):
        self.send(struct.pack("!H", len(packet)) + packet)

    def ask(self, packet):
        self.send_message(packet)
        return self.receive_message()

    def receive_message(self):
        """One message without its length; None at the end of the stream."""
        length = self._read(2)
        return None if length is None else self._read(struct.unpack("!H", length)[0])

    def ended(self):
        """Whether the server has closed: an end of file or a reset, and nothing before it."""
        try:
            return self.sock.recv(1) == b""
        except ConnectionResetError:
            return True

    def _read(self, count):
        data = b""
        while len(data) < count:
            chunk = self.sock.recv(count - len(data))
            if not chunk:
                assert not data, f"the stream ended inside a message: {data!r}"
                return None
            data += chunk
        return data


def header(query_id, flags=0, qd=1, an=0, ns=0, ar=0):
    return struct.pack("!6H", query_id, flags, qd, an, ns, ar)


def wire_name(text):
    """ "a.b." -> 1 a 1 b 0; no escapes, no checks."""
    return b"".join(bytes([len(label)]) + label.encode() for label in text.rstrip(".").split(".") if label) + b"\0"


def question(text, rdtype=1, rdclass=1):
    return wire_name(text) + struct.pack("!2H", rdtype, rdclass)


def record(owner, rdtype, rdclass, ttl, rdata):
    return owner + struct.pack("!2HIH", rdtype, rdclass, ttl, len(rdata)) + rdata


def opt(payload=1232, extended_rcode=0, version=0, flags=0, options=b"", owner=b"\0"):
    return owner + struct.pack("!2H2BHH", 41, payload, extended_rcode, version, flags, len(options)) + options
