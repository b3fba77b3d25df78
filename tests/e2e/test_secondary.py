"""`secondary`: zones that BIND, NSD, Knot and idetcd have."""

import os
import signal
import time

import dns.flags
import dns.message
import dns.opcode
import pytest

from dns_client import answers, ask, exchange, patient, rcode, resolves
from harness.dns_servers import Knot, Named, Nsd
from harness.metrics import Metrics
from harness.processes import wait_until
from test_transfer import KEY, RECORDS, SECRET, SOON, block, serving, signed, write, zone


def primary_named(directory, port, secondary):
    return Named(directory, port, {"example.": zone(1)}, name="primary", more="notify explicit; minimal-responses yes;", zone_options=(
        f"ixfr-from-differences yes; allow-transfer {{ 127.0.0.1; }}; also-notify {{ 127.0.0.1 port {secondary}; }};"))


def primary_nsd(directory, port, secondary):
    return Nsd(directory, port, {"example.": zone(1)}, name="primary", zone_options=(
        f"    provide-xfr: 127.0.0.1 NOKEY\n    notify: 127.0.0.1@{secondary} NOKEY\n"))


def primary_knot(directory, port, secondary):
    return Knot(directory, port, {"example.": zone(1)}, name="primary", statements=(
        f"remote:\n  - id: secondary\n    address: 127.0.0.1@{secondary}\nacl:\n  - id: transfer\n    address: 127.0.0.1\n    action: transfer\n"),
        zone_options="    notify: secondary\n    acl: transfer\n")


PRIMARIES = {"named": primary_named, "nsd": primary_nsd, "knot": primary_knot}


def following(primary, *options, more=()):
    return "example {\n" + "".join(f" {line}\n" for line in more) + f" secondary {{\n  transfer from 127.0.0.1:{primary}\n" + "".join(
        f"  {option}\n" for option in options) + " }\n}\n"


@pytest.mark.parametrize("program", PRIMARIES)
def test_a_primary_is_followed(nodes, directory, free_port, launched, program):
    port, metrics = free_port(), free_port()
    node = nodes.make(following(port, more=[f"prometheus 127.0.0.1:{metrics}"]))
    primary = launched(PRIMARIES[program](directory, port, node.port))
    node.start()
    wait_until(patient(lambda: resolves(node, "www.example.", "192.0.2.1")), SOON, node.logs)
    assert answers(node, "alias.example.") == ["192.0.2.1", "www.example."]
    assert answers(node, "any.wild.example.", "TXT") == ['"a text"']
    assert answers(node, "mail.example.", "MX") == ["10 www.example."]
    write(directory, "primary-0.zone", zone(2, RECORDS.replace("192.0.2.1", "192.0.2.7").replace("mail MX 10 www\n", "")))
    # The zone's file is as young as the last one, in whole seconds, which is as close as some look.
    os.utime(os.path.join(directory, "primary-0.zone"), (time.time() + 5, time.time() + 5))
    primary.signal(signal.SIGHUP)
    wait_until(lambda: answers(node, "www.example.") == ["192.0.2.7"], SOON, lambda: node.logs() + primary.logs())
    assert rcode(ask(node, "mail.example.", "MX")) == "NXDOMAIN"
    values = Metrics.of(metrics)
    assert values.sum("idetcd_secondary_transfers_total", zone="example.") == 2
    assert values.sum("idetcd_secondary_serial", zone="example.") == 2
    if program == "named":
        # An "AXFR-style IXFR" would be the whole zone.
        wait_until(lambda: "': IXFR ended" in primary.err(), SOON, primary.logs)


def test_a_copy_without_a_primary(nodes, directory, free_port):
    port, metrics = free_port(), free_port()
    node = nodes.start(following(port, more=[f"prometheus 127.0.0.1:{metrics}"]))
    assert rcode(ask(node, "www.example.")) == "SERVFAIL"
    node.wait_logged(f"example. cannot be had from 127.0.0.1:{port}: connection refused")
    assert Metrics.of(metrics).sum("idetcd_secondary_failures_total") >= 1
    path = write(directory, "db", "$TTL 300\n@ SOA ns hostmaster 1 1 1 3 60\n@ NS ns\nwww A 192.0.2.1\n")
    primary = nodes.make(block(path, "transfer {\n  to *\n }"), port=port)
    primary.start()
    wait_until(lambda: resolves(node, "www.example.", "192.0.2.1"), SOON, node.logs)
    primary.terminate()
    node.wait_logged("example. has expired: no primary has answered for 3 s", timeout=SOON)
    wait_until(lambda: rcode(ask(node, "www.example.")) == "SERVFAIL", SOON, node.logs)
    primary.start()
    wait_until(lambda: resolves(node, "www.example.", "192.0.2.1"), SOON, node.logs)


def test_a_signed_copy_that_is_handed_on(nodes, directory):
    path = write(directory, "db", zone(1))
    key = f"tsig {{\n  secret {KEY} {SECRET}\n  require AXFR IXFR SOA\n }}"
    middle = nodes.make("")
    last = nodes.make("")
    first = nodes.start(block(path, key, f"transfer {{\n  to 127.0.0.1:{middle.port}\n  tsig-key {KEY}\n }}"))
    write(directory, os.path.basename(middle.corefile_path),
          following(first.port, f"tsig-key {KEY}", more=[key, f"transfer {{\n  to 127.0.0.1:{last.port}\n  tsig-key {KEY}\n }}"]))
    write(directory, os.path.basename(last.corefile_path), following(middle.port, f"tsig-key {KEY}", more=[key]))
    middle.start()
    last.start()
    wait_until(lambda: resolves(last, "www.example.", "192.0.2.1"), SOON, lambda: middle.logs() + last.logs())
    write(directory, "db", zone(2, "www A 192.0.2.8\n"))
    wait_until(lambda: answers(last, "www.example.") == ["192.0.2.8"], SOON, lambda: middle.logs() + last.logs())
    for node in (first, middle):
        node.wait_logged("transfer of example. since serial 1 to 127.0.0.1: serial 2, ")
    middle.signal(signal.SIGHUP)
    middle.wait_logged("Reloading complete")
    assert answers(middle, "www.example.") == ["192.0.2.8"], "the copy goes on"


def test_a_copy_goes_on_with_another_primary(nodes, directory, free_port):
    primary = serving(nodes, directory, "transfer {\n  to *\n }")
    node = nodes.start(following(primary.port))
    wait_until(lambda: resolves(node, "www.example.", "192.0.2.1"), SOON, node.logs)
    write(directory, os.path.basename(node.corefile_path), following(free_port()))
    node.signal(signal.SIGHUP)
    node.wait_logged("Reloading complete")
    assert answers(node, "www.example.") == ["192.0.2.1"]


def test_an_unsigned_answer_is_not_taken(nodes, directory):
    primary = serving(nodes, directory, "transfer {\n  to *\n }")
    node = nodes.start(following(primary.port, f"tsig-key {KEY}", more=[f"tsig {{\n  secret {KEY} {SECRET}\n }}"]))
    node.wait_logged("example. cannot be had from 127.0.0.1")
    assert rcode(ask(node, "www.example.")) == "SERVFAIL"


def notify(name):
    message = dns.message.make_query(name, "SOA", flags=dns.flags.AA)
    message.set_opcode(dns.opcode.NOTIFY)
    return message


def test_who_may_notify(nodes, directory, free_port):
    node = nodes.start(following(free_port()))
    assert rcode(exchange(node, notify("example."))) == "NOERROR"
    assert rcode(exchange(node, notify("www.example."))) == "NOTAUTH"
    stranger = nodes.start("example {\n secondary {\n  transfer from 192.0.2.1\n }\n}\n")
    assert rcode(exchange(stranger, notify("example."))) == "REFUSED"
    plain = serving(nodes, directory)
    assert rcode(exchange(plain, notify("example."))) == "NOTIMP"


def test_a_notify_is_neither_filtered_nor_asked_for_a_cookie(nodes, free_port):
    filtered = nodes.start(following(free_port(), more=["acl {\n  filter\n }"]))
    assert rcode(exchange(filtered, notify("example."))) == "REFUSED"
    node = nodes.start(following(free_port(), more=["cookies {\n  require\n }"]))
    assert rcode(exchange(node, notify("example."))) == "NOERROR"
    assert exchange(node, notify("example.")).flags & dns.flags.AA, "it was taken"


def test_with_a_key_only_a_signed_notify_is_taken(nodes, free_port):
    node = nodes.start(following(free_port(), f"tsig-key {KEY}", more=[f"tsig {{\n  secret {KEY} {SECRET}\n }}"]))
    assert rcode(exchange(node, notify("example."))) == "REFUSED"
    assert rcode(exchange(node, signed(notify("example.")))) == "NOERROR"
