"""`file`: zones from master files, beside BIND, NSD and Knot, which judge what the RFCs leave open."""

import os
import shutil
import subprocess
import time

import dns.flags
import dns.name
import dns.rcode
import dns.rdata
import dns.rdatatype
import pytest

from dns_client import answers, ask, exchange, extended_errors, make_query, patient, rcode, resolves
from harness.dns_servers import Knot, Named, Nsd
from harness.metrics import Metrics
from harness.processes import TIME_FACTOR, wait_until
from harness.random_zones import RandomZone
from test_corefile import run, validate

ZONES = 40
SEED = int(os.environ.get("ZONES_SEED", "27"))
SOON = 20 * TIME_FACTOR  # seconds; a time-out, not a delay
APEX = "$TTL 300\n@ SOA ns hostmaster {serial} 3600 600 86400 60\n@ NS ns\nns A 192.0.2.53\n"


def write(directory, name, text):
    """At once, as an editor that renames does."""
    path = os.path.join(directory, name)
    with open(path + ".new", "w", encoding="ascii") as file:
        file.write(text)
    os.replace(path + ".new", path)
    return path


def zone(serial, records=""):
    return APEX.format(serial=serial) + records


def serial_of(node, name="example."):
    response = ask(node, name, "SOA")
    return response.answer[0][0].serial if response.answer else rcode(response)


def test_a_zone_is_answered_with_all_that_belongs_to_it(nodes, directory):
    path = write(directory, "db", zone(1, "www A 192.0.2.1\nwww AAAA 2001:db8::1\nalias CNAME www\n* TXT wild\nsub NS ns.sub\nns.sub A 192.0.2.2\n"
                                         "mail MX 10 www\n_x._tcp SRV 1 2 3 www\nold DNAME new\na.new A 192.0.2.3\n"))
    node = nodes.start(f"example {{\n file {path}\n}}\n")
    assert answers(node, "www.example.") == ["192.0.2.1"]
    assert answers(node, "WWW.eXample.", "AAAA") == ["2001:db8::1"]
    assert answers(node, "alias.example.") == ["192.0.2.1", "www.example."]
    assert answers(node, "any.example.", "TXT") == ['"wild"']
    assert answers(node, "a.old.example.") == ["192.0.2.3", "a.new.example.", "new.example."]
    referral = ask(node, "x.sub.example.")
    assert not referral.flags & dns.flags.AA and not referral.answer
    assert [rrset.to_text() for rrset in referral.authority] == ["sub.example. 300 IN NS ns.sub.example."]
    assert [rrset.to_text() for rrset in referral.additional] == ["ns.sub.example. 300 IN A 192.0.2.2"]
    assert len(ask(node, "mail.example.", "MX").additional) == 2
    missing = ask(node, "x.www.example.")
    assert rcode(missing) == "NXDOMAIN" and missing.flags & dns.flags.AA and missing.authority[0].ttl == 60
    assert rcode(ask(node, "elsewhere.")) == "REFUSED"


def test_an_alias_that_leads_out_of_its_zone_is_completed(nodes, directory):
    """As a stub resolver needs it: whatever block, or server, has the target."""
    theirs = write(directory, "db.theirs", zone(1, "www A 192.0.2.7\nnext CNAME www\n"))
    upstream = nodes.start(f"theirs {{\n file {theirs}\n}}\n")
    ours = write(directory, "db.ours", zone(1, "far CNAME next.theirs.\nhosts CNAME printer.lan.\nnear CNAME www.other.\nround CNAME round.other.\n"
                                               "void CNAME nowhere.theirs.\nlost CNAME x.unknown.\n* CNAME www.theirs.\n"))
    other = write(directory, "db.other", zone(1, "www A 192.0.2.8\nround CNAME round.example.\n"))
    node = nodes.start(f"example {{\n file {ours}\n}}\nother {{\n file {other}\n}}\n"
                       f"lan {{\n hosts {{\n  192.0.2.9 printer.lan\n }}\n}}\ntheirs {{\n forward . 127.0.0.1:{upstream.port}\n}}\n")
    assert answers(node, "near.example.") == ["192.0.2.8", "www.other."]
    assert answers(node, "hosts.example.") == ["192.0.2.9", "printer.lan."]
    for tcp in (False, True):
        response = ask(node, "far.example.", tcp=tcp)
        assert sorted(str(rdata) for rrset in response.answer for rdata in rrset) == ["192.0.2.7", "next.theirs.", "www.theirs."]
        assert [rrset.name.to_text() for rrset in response.answer] == ["far.example.", "next.theirs.", "www.theirs."]
        assert response.flags & dns.flags.AA
    assert answers(node, "any.example.") == ["192.0.2.7", "www.theirs."]
    assert rcode(ask(node, "void.example.")) == "NXDOMAIN"
    # Nobody has it, or it was not wanted.
    assert answers(node, "lost.example.") == ["x.unknown."]
    assert answers(node, "far.example.", flags=0) == ["next.theirs."]
    assert answers(node, "far.example.", "CNAME") == ["next.theirs."]
    # No end: not asked for ever.
    assert rcode(ask(node, "round.example.")) in ("SERVFAIL", "NOERROR")
    upstream.terminate()
    failed = exchange(node, make_query("any.example.", use_edns=True), timeout=SOON)
    assert rcode(failed) == "SERVFAIL" and extended_errors(failed)


def test_large_answers_come_over_tcp(nodes, directory):
    path = write(directory, "db", zone(1, "".join(f"many TXT {number}{'x' * 200}\n" for number in range(30))))
    node = nodes.start(f"example {{\n file {path}\n}}\n")
    assert ask(node, "many.example.", "TXT").flags & dns.flags.TC
    assert ask(node, "many.example.", "TXT", use_edns=True, payload=1232).flags & dns.flags.TC
    assert len(answers(node, "many.example.", "TXT", tcp=True)) == 30


def test_a_new_serial_is_taken_over_whole_or_not_at_all(nodes, directory, free_port):
    path = write(directory, "db", zone(1, "www A 192.0.2.1\n"))
    port = free_port()
    node = nodes.start(f"example {{\n prometheus 127.0.0.1:{port}\n file {path} {{\n  reload 100ms\n }}\n}}\n")
    assert serial_of(node) == 1
    write(directory, "db", zone(2, "www A 192.0.2.2\n"))
    wait_until(lambda: serial_of(node) == 2, SOON, lambda: f"serial 2\n{node.logs()}")
    assert answers(node, "www.example.") == ["192.0.2.2"]
    write(directory, "db", zone(3, "www A 192.0.2.3\nbad A x\n"))
    node.wait_logged("db:6: 'x' is no IPv4 address; the zone stays as it is", timeout=SOON)
    assert serial_of(node) == 2 and answers(node, "www.example.") == ["192.0.2.2"]
    os.remove(path)
    node.wait_logged("No such file or directory; the zone stays as it is", timeout=SOON)
    assert answers(node, "www.example.") == ["192.0.2.2"]
    write(directory, "db", zone(1, "www A 192.0.2.4\n"))
    wait_until(lambda: answers(node, "www.example.") == ["192.0.2.4"], SOON, node.logs)
    metrics = Metrics.of(port)
    assert metrics.sum("idetcd_zone_serial", zone="example.") == 1
    assert metrics.sum("idetcd_zone_names", zone="example.") == 3
    assert metrics.sum("idetcd_zone_load_failures_total") == 2
    assert metrics.sum("idetcd_zone_loads_total") >= 3


def test_a_changed_file_with_the_same_serial_stays_as_it_is(nodes, directory):
    path = write(directory, "db", zone(1, "www A 192.0.2.1\n"))
    node = nodes.start(f"example {{\n file {path} {{\n  reload 100ms\n }}\n}}\n")
    refused = "has the same serial 1, and stays as it is"
    last = "192.0.2.1"
    # A file that was read while it was young may have been half written, and is taken.
    for number in range(2, 20):
        wait_until(lambda: time.time() > os.stat(path).st_ctime + 3, SOON, "the file to be old enough")
        text = f"192.0.2.{number}"
        write(directory, "db", zone(1, f"www A {text}\n"))
        wait_until(lambda t=text: refused in node.logs() or resolves(node, "www.example.", t), SOON, node.logs)
        if refused in node.logs():
            break
        last = text
    assert refused in node.logs() and answers(node, "www.example.") == [last]


def test_an_included_file_is_watched_too(nodes, directory):
    path = write(directory, "db", "$INCLUDE part\n")
    write(directory, "part", zone(1, "www A 192.0.2.1\n"))
    node = nodes.start(f"example {{\n file {path} {{\n  reload 100ms\n }}\n}}\n")
    write(directory, "part", zone(2, "www A 192.0.2.2\n"))
    wait_until(lambda: answers(node, "www.example.") == ["192.0.2.2"], SOON, node.logs)


def test_a_file_may_come_later(nodes, directory):
    path = os.path.join(directory, "db")
    node = nodes.start(f"example {{\n file {path} {{\n  reload 100ms\n }}\n}}\n")
    missing = ask(node, "www.example.", use_edns=True)
    assert rcode(missing) == "SERVFAIL" and extended_errors(missing) == [14]
    write(directory, "db", zone(1, "www A 192.0.2.1\n"))
    wait_until(lambda: resolves(node, "www.example.", "192.0.2.1"), SOON, node.logs)


@pytest.mark.parametrize("text, reload, why", [
    ("@ A x\n", "1m", "db:1: 'x' is no IPv4 address"), ("$TTL 1\n@ NS a\n", "1m", "db: example. has no SOA record"),
    (zone(1, "a CNAME b\na A 192.0.2.1\n"), "1m", "db:6: a.example. has a CNAME and other records"), (None, "0", "db: No such file or directory"),
])
def test_a_zone_that_is_wrong_at_the_start_ends_it(directory, text, reload, why):
    path = os.path.join(directory, "db")
    if text is not None:
        write(directory, "db", text)
    result = run(directory, f"example {{\n file {path} {{\n  reload {reload}\n }}\n}}\n")
    assert result[0] == 1 and f"plugin/file: {directory}/{why}" in result[2], result


def test_validation_reads_the_files(directory):
    path = write(directory, "db", zone(1, "\na A x\n"))
    result = validate(directory, f"example {{\n file {path}\n}}\n")
    assert result[0] == 1 and f"{path}:6: 'x' is no IPv4 address" in result[1] + result[2], result
    write(directory, "db", zone(1))
    assert validate(directory, f"example {{\n file {path}\n}}\n")[0] == 0


def test_several_zones_and_what_is_passed_on(nodes, directory):
    parent = write(directory, "parent", zone(1, "www A 192.0.2.1\nsub NS ns.sub\nsub DS 1 8 2 " + 64 * "0" + "\n"))
    child = write(directory, "child", zone(1, "www A 192.0.2.2\n"))
    node = nodes.start(f". {{\n file {parent} example. {{\n  fallthrough\n }}\n file {child} sub.example. other. deep.none.other.\n}}\n")
    assert answers(node, "www.example.") == ["192.0.2.1"]
    assert answers(node, "www.sub.example.") == ["192.0.2.2"]
    assert answers(node, "www.other.") == ["192.0.2.2"]
    assert len(ask(node, "sub.example.", "DS").answer) == 1, "DS is the parent's"
    assert rcode(ask(node, "example.", "DS")) == "NOERROR"
    apart = nodes.start(f"sub.example {{\n file {child}\n}}\nexample {{\n file {parent}\n}}\n")
    assert len(ask(apart, "sub.example.", "DS").answer) == 1, "in whatever block that is"
    assert rcode(ask(node, "x.other.")) == "NXDOMAIN"
    assert rcode(ask(node, "none.other.")) == "NOERROR", "a zone is below it"
    assert rcode(ask(node, "x.example.")) == "REFUSED", "nobody behind it has the name"


def test_a_folder_of_zones(nodes, directory):
    folder = os.path.join(directory, "zones")
    os.makedirs(os.path.join(folder, "sub"))
    write(folder, "db.example", zone(1, "www A 192.0.2.1\n"))
    write(folder, "sub/db.example", zone(1, "www A 192.0.2.8\n"))
    write(folder, "sub/db.other", zone(1, "www A 192.0.2.2\n"))
    write(folder, "readme", "not a zone\n")
    write(folder, "db.broken", "@ A x\n")
    node = nodes.start(f". {{\n auto {{\n  directory {folder}\n  reload 100ms\n }}\n whoami\n}}\n")
    assert answers(node, "www.example.") == ["192.0.2.1"]
    assert answers(node, "www.other.") == ["192.0.2.2"]
    assert answers(node, "www.broken.") == [], "what is no zone is the next directive's"
    node.wait_logged("db.broken:1: 'x' is no IPv4 address; broken. is not served", timeout=SOON)
    write(folder, "db.new", zone(1, "www A 192.0.2.3\n"))
    wait_until(lambda: answers(node, "www.new.") == ["192.0.2.3"], SOON, node.logs)
    write(folder, "db.new", zone(2, "www A 192.0.2.4\n"))
    wait_until(lambda: answers(node, "www.new.") == ["192.0.2.4"], SOON, node.logs)
    write(folder, "db.broken", zone(1, "www A 192.0.2.5\n"))
    wait_until(lambda: answers(node, "www.broken.") == ["192.0.2.5"], SOON, node.logs)
    os.remove(os.path.join(folder, "db.example"))
    wait_until(lambda: answers(node, "www.example.") == ["192.0.2.8"], SOON, node.logs)
    os.remove(os.path.join(folder, "sub/db.example"))
    wait_until(lambda: answers(node, "www.example.") == [], SOON, node.logs)
    assert answers(node, "www.new.") == ["192.0.2.4"]


def test_names_of_zones_come_from_those_of_files(nodes, directory):
    folder = os.path.join(directory, "zones")
    node = nodes.start(f"org net {{\n auto org {{\n  directory {folder} ^(.*)-([a-z]*)\\.zone$ {{1}}.{{2}}\n  reload 100ms\n }}\n}}\n")
    node.wait_logged("zones: No such file or directory; its zones stay as they are", timeout=SOON)
    os.mkdir(folder)
    write(folder, "example-org.zone", zone(1, "www A 192.0.2.1\n"))
    write(folder, "example-net.zone", zone(1, "www A 192.0.2.1\n"))
    wait_until(lambda: answers(node, "www.example.org.") == ["192.0.2.1"], SOON, node.logs)
    assert rcode(ask(node, "www.example.net.")) == "REFUSED", "not within org"


# One of each type, in the forms in which people write them.
CORPUS = r"""
a A 192.0.2.1
a AAAA 2001:db8::1
a TXT "one" two "th\"ree;" \100\032x
a MX 10 mail.example.net.
a HINFO PC Linux
a RP mbox.a txt.a
a AFSDB 1 a
a LOC 52 22 23.000 N 4 53 32.000 E -2.00m 0.00m 10000m 10m
a NAPTR 100 50 "s" "z3950+I2L+I2C" "" _z3950._tcp.a
a CERT PKIX 65534 RSASHA256 MxFcby9k/yvedMfQgKzhH5er0Mu/vILz45IkskceFGgiWCn/GxHhai6VAuHAoNUz4YoU1tVfSCSqQYn6//11U6Nld80jEeC8aTrO+KKmCaY=
a DS 60485 8 2 (
   D4B7D520E7BB5F0F67674A0CCEB1E3E0614B93C4F9E99B83
   83F6A1E4469DA50A )
a SSHFP 2 1 123456789abcdef67890123456789abcdef67890
a 86400 RRSIG A 8 2 86400 20300322173103 20260220173103 2642 @ AQIDBAUGBwgJCgsMDQ4PEA==
a NSEC b A MX RRSIG NSEC TYPE1234
@ DNSKEY 257 3 8 ( AQPSKmynfzW4kyBv015MUG2DeIQ3
   Cbl+BBZH4b/0PY1kxkmvHjcZc8no )
a TLSA 3 1 1 0C72AC70B745AC19998811B131D662C9AC69DBDBE7CB23E5B514B56664C5D3D6
a SMIMEA 3 0 0 aabbccdd
a CDS 60485 8 1 2BB183AF5F22588179A53B0A98631FAD1A292118
a CDNSKEY 256 3 8 AQPSKmynfzW4kyBv015MUG2DeIQ3
a OPENPGPKEY mQENBFVHm5sBCACxhNw=
a CAA 0 issue "ca.example.net; policy=ev"
a URI 10 1 "https://example.net/"
a EUI48 00-00-5e-00-53-2a
a EUI64 00-00-5e-ef-10-00-00-2a
_x._tcp SRV 0 5 5060 sip
a SPF "v=spf1 -all"
a KX 10 kx
a DHCID AAIBY2/AuCccgoJbsaxcQc9TUapptP69lOjxfNuVAA2kjEA=
a TYPE65534 \\# 6 abcd ef01 2345
d DNAME elsewhere.example.
p PTR host.example.
c CNAME a
\\065\\.b.x TXT "a label with a dot"
$ORIGIN sub.example.
$TTL 1h30m
@ 2D IN TXT "a unit"
 3600 IN TXT "blank owner"
*.w A 192.0.2.9
$GENERATE 1-9/4 h$ A 192.0.2.$
"""


def test_records_are_read_as_ldns_reads_them(nodes, directory):
    path = write(directory, "db", "$ORIGIN example.\n" + zone(1, CORPUS.replace("\\\\", "\\")))
    without = "".join(line for line in open(path, encoding="ascii") if not line.startswith("$GENERATE"))  # which ldns has not
    result = subprocess.run(["ldns-read-zone", write(directory, "plain", without)], capture_output=True, text=True, check=True)
    theirs = {}
    for line in result.stdout.splitlines():
        owner, ttl, _, rdtype, data = line.split(None, 4)
        rdata = dns.rdata.from_text("IN", rdtype, data, relativize=False)
        theirs.setdefault((dns.name.from_text(owner), rdata.rdtype), []).append((int(ttl), rdata.to_generic().data))
    node = nodes.start(f"example {{\n file {path}\n}}\n")
    assert len(theirs) >= 38
    for (owner, rdtype), records in theirs.items():
        response = ask(node, owner, rdtype, tcp=True)
        ours = sorted((rrset.ttl, rdata.to_generic().data) for rrset in response.answer if rrset.rdtype == rdtype for rdata in rrset)
        assert ours == sorted((records[0][0], data) for _, data in records), (owner, dns.rdatatype.to_text(rdtype))
    assert answers(node, "h5.sub.example.") == ["192.0.2.5"] and rcode(ask(node, "h4.sub.example.")) == "NXDOMAIN"


# --- beside other servers ---

class View:
    """A response without the order of its records."""

    def __init__(self, message):
        self.head = dns.rcode.to_text(message.rcode()), bool(message.flags & dns.flags.AA), bool(message.flags & dns.flags.TC), _rrsets(message.answer)
        self.authority = _rrsets(message.authority)
        self.additional = _rrsets(message.additional)

    def __str__(self):
        return f"{self.head}\n   authority {sorted(self.authority)}\n   additional {sorted(self.additional)}"


def _rrsets(section):
    return frozenset(f"{rrset.name} {rrset.ttl} {dns.rdatatype.to_text(rrset.rdtype)} {rdata}".lower() for rrset in section for rdata in rrset)


@pytest.fixture(name="judges")
def judges_fixture(directory, free_port, launched):
    """A function that starts those that are installed, with these zones."""
    def start(zones):
        made = []
        for program, make in (("named", lambda *where: Named(*where, more="minimal-responses no-auth; check-names primary ignore; check-integrity no;")), ("nsd", Nsd), ("knotd", Knot)):
            if shutil.which(program):
                made.append(launched(make(directory, free_port(), zones)))
        return made
    return start


def test_where_the_others_agree_we_do_too(nodes, directory, judges):
    zones = [RandomZone(f"z{number}.test.", f"{SEED} {number}") for number in range(ZONES)]
    others = judges({zone.origin.rstrip("."): zone.text for zone in zones})
    assert len(others) == 3, "BIND, NSD and Knot: tools/install-packages servers"
    lines = [f" file {write(directory, zone.origin, zone.text)} {zone.origin}\n" for zone in zones]
    node = nodes.start("test. {\n" + "".join(lines) + "}\n")
    for other in others:
        wait_until(patient(lambda o=other: resolves(o, f"ns.{zones[-1].origin}", "192.0.2.53")), SOON, lambda o=other: f"{o.name}\n{o.logs()}")
    differences = []
    agreed = asked = 0
    for random_zone in zones:
        for name, rdtype in random_zone.queries:
            asked += 1
            views = [View(ask(server, name, rdtype, use_edns=True, payload=4096)) for server in (*others, node)]
            ours = views.pop()
            if len({view.head for view in views}) > 1:
                continue
            agreed += 1
            for part in ("head", "authority", "additional"):
                theirs = {getattr(view, part) for view in views}
                if len(theirs) == 1 and theirs != {getattr(ours, part)}:
                    differences.append(f"{name} {rdtype}: {part}\n  theirs {views[0]}\n  ours {ours}\n{random_zone.text}")
    print(f"{asked} queries, {agreed} with one answer of all, {len(differences)} differences")
    assert not differences, f"{len(differences)} of {agreed}:\n" + "\n".join(differences[:10])
    assert agreed > asked / 2
