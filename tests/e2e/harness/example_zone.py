"""A zone with one of everything that a resolver passes on, and a seeded stream of queries about it.

The signatures in it are made up: nothing here validates them, they are there to be asked for with DO, or not."""

import random

import dns.flags
import dns.message
import dns.name
import dns.node
import dns.rdatatype
import dns.zone

ORIGIN = "diff.example."
REVERSE = "34.12.in-addr.arpa."

_HEAD = """$TTL 3600
@ SOA ns1.{origin} hostmaster.{origin} 1 7200 900 1209600 900
@ NS ns1.{origin}
@ NS ns2.{origin}
"""

_SIGNATURE = ("RRSIG {rdtype} 13 {labels} {ttl} 20380101000000 20240101000000 12345 {origin} "
              + "qK1" * 28 + "qA==")


def forward_zone():
    lines = [_HEAD.format(origin=ORIGIN), "@ MX 10 mx1", "@ TXT \"v=spf1 -all\"", "@ A 192.0.2.1", "@ AAAA 2001:db8::1",
             "@ CAA 0 issue \"ca.example.net\"", "ns1 A 192.0.2.53", "ns2 AAAA 2001:db8::53", "mx1 A 192.0.2.25",
             "mx2 A 192.0.2.26"]
    for i in range(300):
        lines.append(f"host{i} {60 + i} A 10.1.{i // 250}.{i % 250}")
        if i % 2:
            lines.append(f"host{i} AAAA 2001:db8:1::{i:x}")
        if i % 7 == 0:
            lines += [f"host{i} {60 + i} A 10.2.{j}.{i % 250}" for j in range(i % 5)]
    for i in range(40):
        lines += [f"mail{i} MX 10 mx1", f"mail{i} MX 20 mx2", f"mail{i} MX {i} host{i}", f"mail{i} TXT \"mail {i}\"",
                  f"_sip._tcp.svc{i} SRV {i} 5 5060 host{i}", f"_sip._tcp.svc{i} SRV 10 {i} 5061 host{i + 1}"]
        # Chains of one to eight links, to an address, to a name without one, to no name at all.
        for link in range(i % 8):
            lines.append(f"chain{i}-{link} CNAME chain{i}-{link + 1}")
        lines.append(f"chain{i}-{i % 8} " + ("A 10.3.0.%d" % i, "CNAME mail0", "CNAME nowhere", "CNAME CASE.Wild1")[i % 4])
        lines.append(f"chain{i} CNAME chain{i}-0")
    for i in range(20):
        lines += [f"*.wild{i} A 10.4.0.{i}", f"*.wild{i} TXT \"wild {i}\"", f"deep.er.wild{i} A 10.4.1.{i}",
                  f"*.alias{i} CNAME host{i}", f"a.b.c.empty{i} A 10.5.0.{i}"]
        # 100 bytes to 38,000: some fit, some need EDNS, some TCP.
        size = 100 * (i + 1) * (1 + i)
        strings = " ".join(f"\"{chr(97 + j % 26) * min(250, size - j)}\"" for j in range(0, size, 250))
        lines.append(f"text{i} TXT {strings}")
        lines += [f"many{i} A 10.6.{i}.{j}" for j in range(1 + 8 * i)]
        lines.append(f"strange{i} TYPE{65400 + i} \\# 4 0A0B0C{i:02X}")
    lines += [
        "tlsa TLSA 3 1 1 " + "ab" * 32, "sshfp SSHFP 4 2 " + "cd" * 32, "naptr NAPTR 10 20 \"S\" \"SIP+D2U\" \"\" _sip._udp",
        "loc LOC 52 22 23.000 N 4 53 32.000 E -2.00m 0.00m 10000m 10m", "hinfo HINFO \"cpu\" \"os\"",
        "svc HTTPS 1 . alpn=\"h2,h3\" ipv4hint=\"192.0.2.7\"", "svcb SVCB 1 svc port=\"8443\"", "rp RP admin.host0 mail0",
        "uri URI 10 1 \"https://www.example.net/\"", "afsdb AFSDB 1 host0", "zero 0 A 192.0.2.99",
        "empty TXT \"\"", "bytes TXT \"\\000\\255\\\"\\\\\"", "od\\.d A 192.0.2.77", "sp\\032ace A 192.0.2.78",
        "\\000nul A 192.0.2.79", "x" * 63 + " A 192.0.2.80", ".".join(["y" * 57] * 4) + " A 192.0.2.81",
        "dname DNAME wild0", "loop1 CNAME loop2", "loop2 CNAME loop1", "self CNAME self",
        "away CNAME www.elsewhere.example.", "caps CNAME HOST0.Diff.EXAMPLE.",
    ]
    return _sign("\n".join(lines) + "\n", ORIGIN)


def reverse_zone():
    lines = [_HEAD.format(origin=REVERSE).replace(f"ns1.{REVERSE}", f"ns1.{ORIGIN}").replace(
        f"ns2.{REVERSE}", f"ns2.{ORIGIN}")]
    lines += [f"{i}.{i % 3} PTR host{i}.{ORIGIN}" for i in range(250)]
    return "\n".join(lines) + "\n"


def _sign(text, origin):
    """A signature for each RRset and a chain of NSEC: enough that a server takes the zone for a signed one."""
    zone = dns.zone.from_text(text, origin, relativize=False, check_origin=False)
    names = sorted(zone.nodes)
    for position, name in enumerate(names):
        node = zone.nodes[name]
        types = {rdataset.rdtype for rdataset in node.rdatasets} | {dns.rdatatype.NSEC, dns.rdatatype.RRSIG}
        bitmap = " ".join(dns.rdatatype.to_text(rdtype) for rdtype in sorted(types))
        following = names[(position + 1) % len(names)]
        text += f"{name} 900 NSEC {following} {bitmap}\n"
        labels = len(name) - 1 - (name.labels[0] == b"*")
        ttls = {rdataset.rdtype: rdataset.ttl for rdataset in node.rdatasets} | {dns.rdatatype.NSEC: 900}
        for rdtype, ttl in ttls.items():
            signature = _SIGNATURE.format(rdtype=dns.rdatatype.to_text(rdtype), labels=labels, ttl=ttl, origin=origin)
            text += f"{name} {ttl} {signature}\n"
    return text


_TYPES = ["A", "A", "A", "AAAA", "AAAA", "MX", "TXT", "SRV", "NS", "SOA", "CNAME", "PTR", "HTTPS", "CAA", "NAPTR", "DS",
          "DNSKEY", "TYPE65400", "TYPE1234"]

# (how often, type or None for any, a name below ORIGIN from a random generator)
_NAMES = [
    (20, None, lambda r: f"host{r.randrange(300)}"),
    (8, "A", lambda r: f"host{r.randrange(300)}"),
    (8, None, lambda r: f"missing{r.randrange(600)}"),
    (3, None, lambda r: f"below.host{r.randrange(300)}"),
    (4, "MX", lambda r: f"mail{r.randrange(40)}"),
    (3, "SRV", lambda r: f"_sip._tcp.svc{r.randrange(40)}"),
    (2, None, lambda r: f"_tcp.svc{r.randrange(40)}"),
    (10, None, lambda r: f"chain{r.randrange(40)}"),
    (3, "A", lambda r: f"chain{r.randrange(40)}-{r.randrange(8)}"),
    (6, None, lambda r: f"{r.choice('abcdefgh')}{r.randrange(9)}.wild{r.randrange(20)}"),
    (2, None, lambda r: f"x.y.wild{r.randrange(20)}"),
    (2, None, lambda r: f"er.wild{r.randrange(20)}"),
    (1, None, lambda r: f"other.er.wild{r.randrange(20)}"),
    (1, "A", lambda r: f"*.wild{r.randrange(20)}"),
    (4, None, lambda r: f"{r.choice('abcdefgh')}.alias{r.randrange(20)}"),
    (4, None, lambda r: f"{r.choice(['', 'c.', 'b.c.', 'a.b.c.', 'z.'])}empty{r.randrange(20)}"),
    (6, "TXT", lambda r: f"text{r.randrange(20)}"),
    (6, "A", lambda r: f"many{r.randrange(20)}"),
    (2, "TYPE65400", lambda r: "strange0"),
    (2, None, lambda r: f"strange{r.randrange(20)}"),
    (2, None, lambda r: r.choice(["od\\.d", "sp\\032ace", "\\000nul", "x" * 63, ".".join(["y" * 57] * 4), "caps"])),
    (3, None, lambda r: f"{r.choice('abc')}.dname"),
    (1, None, lambda r: "dname"),
    (1, None, lambda r: r.choice(["loop1", "loop2", "self"])),
    (1, None, lambda r: "away"),
    (1, "A", lambda r: "zero"),
    (2, "TXT", lambda r: r.choice(["empty", "bytes"])),
    (2, None, lambda r: "@"),
    (1, "RRSIG", lambda r: f"host{r.randrange(300)}"),
    (1, "ANY", lambda r: f"{r.choice(['host', 'mail', 'missing'])}{r.randrange(40)}"),
    (1, "NSEC", lambda r: f"host{r.randrange(300)}"),
] + [(1, rdtype, lambda r, owner=owner: owner) for rdtype, owner in [
    ("TLSA", "tlsa"), ("SSHFP", "sshfp"), ("NAPTR", "naptr"), ("LOC", "loc"), ("HINFO", "hinfo"), ("HTTPS", "svc"),
    ("SVCB", "svcb"), ("RP", "rp"), ("URI", "uri"), ("AFSDB", "afsdb"), ("DNAME", "dname")]]


def queries(count, seed):
    """`count` messages with the IDs 0, 1, ...; the same for the same seed."""
    chance = random.Random(seed)
    weights = [weight for weight, _, _ in _NAMES]
    result = []
    for number in range(count):
        if chance.random() < 0.05:
            name = f"{chance.randrange(260)}.{chance.randrange(4)}.{REVERSE}"
            rdtype = chance.choice(["PTR", "PTR", "PTR", "A"])
        else:
            _, rdtype, make = chance.choices(_NAMES, weights)[0]
            name = make(chance)
            name = ORIGIN if name == "@" else f"{name}.{ORIGIN}"
            rdtype = rdtype or chance.choice(_TYPES)
        if chance.random() < 0.3:
            name = "".join(chance.choice((c.upper(), c.lower())) for c in name)
        query = dns.message.make_query(name, rdtype, use_edns=False)
        query.id = number
        if chance.random() < 0.7:
            query.use_edns(0, payload=chance.choice((512, 1232, 1232, 4096)))
            query.want_dnssec(chance.random() < 0.4)
        if chance.random() < 0.1:
            query.flags |= dns.flags.CD
        if chance.random() < 0.1:
            query.flags |= dns.flags.AD
        result.append(query)
    return result
