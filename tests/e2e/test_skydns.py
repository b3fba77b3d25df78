"""`etcd`: services that programs keep in etcd, as SkyDNS has them."""

import json

import dns.flags
import dns.rdatatype

from dns_client import answers, ask, extended_errors, rcode
from harness.metrics import Metrics
from harness.processes import TIME_FACTOR, wait_until
from harness.proxy import TcpProxy
from harness.secure_etcd import GuardedEtcd
from harness.upstreams import Upstream, answer

SOON = 20 * TIME_FACTOR  # seconds; a time-out, not a delay
STALE = 3  # extended error


def key(name):
    return "/skydns/" + "/".join(reversed(name.rstrip(".").split(".")))


def service(etcd, name, **fields):
    etcd.put(key(name), json.dumps(fields))


def block(etcd, *lines, zones="sky.test", around=(), endpoint=None):
    options = [f"endpoint {endpoint or etcd.endpoint}", *lines]
    text = "".join(f"  {line}\n" for line in options)
    return f". {{\n etcd {zones} {{\n{text} }}\n" + "".join(f" {line}\n" for line in around) + "}\n"


def records(section):
    return sorted(f"{rrset.name} {rrset.ttl} {dns.rdatatype.to_text(rrset.rdtype)} {data}" for rrset in section for data in rrset)


def test_a_name_with_an_address_is_no_alias(etcd, nodes):
    """A cache would take the CNAME for all of the name's types (RFC 1034 §3.6.2)."""
    service(etcd, "a.mix.sky.test", host="192.0.2.77")
    service(etcd, "c.mix.sky.test", host="other.sky.test")
    service(etcd, "x.other.sky.test", host="2001:db8::1", text="theirs")
    node = nodes.start(block(etcd))
    wait_answers(node, "mix.sky.test", ["192.0.2.77"])
    service(etcd, "mix.sky.test", host="other.sky.test")
    service(etcd, "late.sky.test", host="192.0.2.78")
    wait_answers(node, "late.sky.test", ["192.0.2.78"])  # what came before is there
    for rdtype in ("AAAA", "TXT", "CNAME"):
        response = ask(node, "mix.sky.test", rdtype)
        assert rcode(response) == "NOERROR" and not response.answer and response.authority, rdtype
    etcd.delete(key("a.mix.sky.test"))
    wait_until(lambda: ask(node, "mix.sky.test", "AAAA").answer, SOON, node.logs)


def wait_answers(node, name, expected, rdtype="A"):
    wait_until(lambda: answers(node, name, rdtype) == expected, SOON,
               lambda: f"{name} to be {expected}; now {answers(node, name, rdtype)}\n{node.logs()}")


def test_services_are_answered_and_followed(etcd, nodes):
    service(etcd, "a.web.east.sky.test", host="192.0.2.1", port=80)
    service(etcd, "b.web.east.sky.test", host="192.0.2.2", port=80, weight=300)
    service(etcd, "c.web.east.sky.test", host="2001:db8::3", port=443)
    service(etcd, "www.sky.test", host="web.east.sky.test", ttl=60)
    service(etcd, "mail.sky.test", host="a.web.east.sky.test", mail=True, priority=5)
    service(etcd, "said.sky.test", text="hello")
    service(etcd, "1.2.0.192.in-addr.arpa", host="a.web.east.sky.test.")
    service(etcd, "a.ns.dns.sky.test", host="192.0.2.53")
    node = nodes.start(block(etcd, zones="sky.test 192.0.2.0/24"))
    wait_answers(node, "a.web.east.sky.test.", ["192.0.2.1"])
    assert answers(node, "web.east.sky.test.") == ["192.0.2.1", "192.0.2.2"]
    assert answers(node, "web.east.sky.test.", "AAAA") == ["2001:db8::3"]
    assert answers(node, "web.*.sky.test.") == ["192.0.2.1", "192.0.2.2"]
    assert ask(node, "a.WEB.eAst.sky.test.").answer[0].name.to_text() == "a.WEB.eAst.sky.test.", "in the client's case"
    servers = ask(node, "web.east.sky.test.", "SRV")
    assert records(servers.answer) == [
        "web.east.sky.test. 300 SRV 10 20 443 c.web.east.sky.test.",
        "web.east.sky.test. 300 SRV 10 20 80 a.web.east.sky.test.",
        "web.east.sky.test. 300 SRV 10 60 80 b.web.east.sky.test.",
    ]
    assert records(servers.additional) == [
        "a.web.east.sky.test. 300 A 192.0.2.1",
        "b.web.east.sky.test. 300 A 192.0.2.2",
        "c.web.east.sky.test. 300 AAAA 2001:db8::3",
    ]
    assert answers(node, "www.sky.test.") == ["192.0.2.1", "192.0.2.2", "web.east.sky.test."]
    assert answers(node, "www.sky.test.", "CNAME") == ["web.east.sky.test."]
    mail = ask(node, "mail.sky.test.", "MX")
    assert records(mail.answer) == ["mail.sky.test. 300 MX 5 a.web.east.sky.test."] and len(mail.additional) == 1
    assert answers(node, "said.sky.test.", "TXT") == ['"hello"']
    assert answers(node, "1.2.0.192.in-addr.arpa.", "PTR") == ["a.web.east.sky.test."]
    assert answers(node, "sky.test.", "NS") == ["a.ns.dns.sky.test."]
    denied = ask(node, "none.sky.test.")
    assert rcode(denied) == "NXDOMAIN" and denied.flags & dns.flags.AA and denied.authority[0].ttl == 30
    assert answers(node, "said.sky.test.") == []
    assert rcode(ask(node, "elsewhere.test.")) == "REFUSED"

    service(etcd, "a.web.east.sky.test", host="192.0.2.9")
    wait_answers(node, "a.web.east.sky.test.", ["192.0.2.9"])
    etcd.delete(key("b.web.east.sky.test"))
    wait_answers(node, "web.east.sky.test.", ["192.0.2.9"])


def test_a_value_that_is_none_costs_its_key_alone(etcd, nodes, free_port):
    port = free_port()
    service(etcd, "a.x.sky.test", host="192.0.2.1")
    etcd.put(key("b.x.sky.test"), "garbage")
    node = nodes.start(block(etcd, around=[f"prometheus 127.0.0.1:{port}"]))
    wait_answers(node, "x.sky.test.", ["192.0.2.1"])
    assert answers(node, "b.x.sky.test.") == "NXDOMAIN"
    node.wait_logged("/skydns/test/sky/x/b is left out: the value is no JSON object")
    metrics = Metrics.of(port)
    assert metrics.sum("idetcd_skydns_rejected_total") == 1
    assert metrics.sum("idetcd_skydns_services", path="/skydns") == 1
    assert metrics.sum("idetcd_skydns_fresh") == 1


def test_before_the_first_reading_nothing_is_known(stopped_etcd, nodes, free_port):
    port = free_port()
    node = nodes.start(block(stopped_etcd, around=[f"ready 127.0.0.1:{port}"]))
    response = ask(node, "a.sky.test.", use_edns=True)
    assert rcode(response) == "SERVFAIL" and extended_errors(response) == [14]
    assert "the services below /skydns have not been read" in node.control("/v1/status")[1]["not_ready"][0]
    stopped_etcd.start()
    service(stopped_etcd, "a.sky.test", host="192.0.2.1")
    wait_answers(node, "a.sky.test.", ["192.0.2.1"])
    wait_until(lambda: node.control("/v1/status")[1]["ready"], SOON, node.logs)


def test_answers_go_on_while_etcd_is_away(etcd, nodes, free_port):
    port = free_port()
    service(etcd, "a.sky.test", host="192.0.2.1")
    text = block(etcd, around=[f"prometheus 127.0.0.1:{port}", "reload 2s 1s"])
    node = nodes.start(text)
    wait_answers(node, "a.sky.test.", ["192.0.2.1"])
    etcd.kill()
    node.wait_logged("the services below /skydns are stale: etcd has said nothing for", timeout=40 * TIME_FACTOR)
    response = ask(node, "a.sky.test.", use_edns=True)
    assert response.answer[0][0].to_text() == "192.0.2.1" and extended_errors(response) == [STALE]
    assert node.control("/v1/status")[1]["degraded"] == ["etcd: the services below /skydns are stale: etcd is away"]
    assert Metrics.of(port).sum("idetcd_skydns_fresh") == 0
    with open(node.corefile_path, "w", encoding="utf-8") as file:
        file.write(text + "# changed\n")
    node.wait_logged("Reloading complete", timeout=SOON)
    assert answers(node, "a.sky.test.") == ["192.0.2.1"], "a reload loses nothing"
    etcd.start()
    service(etcd, "a.sky.test", host="192.0.2.2")
    wait_answers(node, "a.sky.test.", ["192.0.2.2"])
    node.wait_logged("the services below /skydns are current again", timeout=SOON)
    assert extended_errors(ask(node, "a.sky.test.", use_edns=True)) == []


def test_a_reload_that_changes_a_bound_of_leases_goes_on_from_the_last_table(etcd, nodes):
    service(etcd, "a.sky.test", host="192.0.2.1")
    node = nodes.start(block(etcd, around=["reload 2s 1s"]))
    wait_answers(node, "a.sky.test.", ["192.0.2.1"])
    etcd.kill()
    with open(node.corefile_path, "w", encoding="utf-8") as file:
        file.write(block(etcd, "min-lease-ttl 40s", around=["reload 2s 1s"]))
    node.wait_logged("Reloading complete", timeout=SOON)
    response = ask(node, "a.sky.test.", use_edns=True)
    assert response.answer[0][0].to_text() == "192.0.2.1" and extended_errors(response) == [STALE]
    etcd.start()
    service(etcd, "a.sky.test", host="192.0.2.2")
    wait_answers(node, "a.sky.test.", ["192.0.2.2"])
    wait_until(lambda: extended_errors(ask(node, "a.sky.test.", use_edns=True)) == [], SOON, node.logs)


def test_compaction_while_the_watch_is_cut(etcd, nodes):
    service(etcd, "a.sky.test", host="192.0.2.1")
    with TcpProxy(etcd.client_port) as proxy:
        node = nodes.start(block(etcd, endpoint=proxy.endpoint))
        wait_answers(node, "a.sky.test.", ["192.0.2.1"])
        proxy.cut()
        etcd.delete(key("a.sky.test"))
        service(etcd, "b.sky.test", host="192.0.2.2")
        etcd.compact()
        proxy.restore()
        wait_answers(node, "b.sky.test.", ["192.0.2.2"])
        assert answers(node, "a.sky.test.") == "NXDOMAIN"


def test_fallthrough(etcd, nodes):
    service(etcd, "a.sky.example.org", host="192.0.2.1")
    service(etcd, "only.text.sky.example.org", text="x")
    with Upstream(lambda query, tcp: answer(query, "A 192.0.2.77")) as upstream:
        node = nodes.start(block(etcd, "fallthrough low.sky.example.org", zones="sky.example.org", around=[f"forward . {upstream.address}"]))
        wait_answers(node, "a.sky.example.org.", ["192.0.2.1"])
        assert answers(node, "x.low.sky.example.org.") == ["192.0.2.77"]
        assert answers(node, "x.sky.example.org.") == "NXDOMAIN"
        assert answers(node, "only.text.sky.example.org.") == [], "the name exists"
        assert upstream.names() == ["x.low.sky.example.org."]


def test_aliases_that_lead_out_of_the_zone(etcd, nodes):
    service(etcd, "out.sky.test", host="www.example.org", ttl=60)
    service(etcd, "gone.sky.test", host="gone.example.org")
    service(etcd, "broken.sky.test", host="broken.example.org")
    service(etcd, "here.sky.test", host="host.example.net")

    def handler(query, tcp):
        name = query.question[0].name.to_text()
        if name.startswith("broken"):
            return answer(query, rcode=2)
        return answer(query, rcode=3) if name.startswith("gone") else answer(query, "A 192.0.2.80")

    with Upstream(handler) as upstream:
        text = block(etcd, around=[f"forward . {upstream.address}"])
        node = nodes.start(text + "example.net {\n hosts {\n  192.0.2.81 host.example.net\n }\n}\n")
        wait_answers(node, "out.sky.test.", ["192.0.2.80", "www.example.org."])
        response = ask(node, "out.sky.test.")
        assert [rrset.ttl for rrset in response.answer] == [60, 60] and response.flags & dns.flags.AA
        assert answers(node, "here.sky.test.") == ["192.0.2.81", "host.example.net."], "another block's"
        gone = ask(node, "gone.sky.test.")
        assert rcode(gone) == "NOERROR" and not gone.answer and len(gone.authority) == 1
        assert answers(node, "broken.sky.test.") == "SERVFAIL"
        assert answers(node, "out.sky.test.", flags=0) == ["www.example.org."], "without RD"


def test_without_a_resolver_an_alias_leads_nowhere(etcd, nodes):
    service(etcd, "out.sky.test", host="www.example.org")
    service(etcd, "a.sky.test", host="192.0.2.1")
    node = nodes.start(block(etcd))
    wait_answers(node, "a.sky.test.", ["192.0.2.1"])
    assert answers(node, "out.sky.test.") == []
    assert answers(node, "out.sky.test.", "CNAME") == ["www.example.org."]


def test_a_user_who_may_read_the_path_alone(directory, nodes, launched):
    etcd = launched(GuardedEtcd(directory))
    etcd.wait_healthy()
    service(etcd, "a.sky.test", host="192.0.2.1")
    etcd.guard()
    etcd.add_user("reader", "the reader's", ("read", "/skydns/", "/skydns0"))
    node = nodes.start(block(etcd, 'credentials reader "the reader\'s"'))
    wait_answers(node, "a.sky.test.", ["192.0.2.1"])
    service(etcd, "a.sky.test", host="192.0.2.2")
    wait_answers(node, "a.sky.test.", ["192.0.2.2"])


def test_a_lease_bounds_the_ttl_and_ends_the_service(etcd, nodes):
    granted = etcd.call("lease/grant", TTL=5)["ID"]
    etcd.ctl("put", f"--lease={int(granted):x}", key("a.sky.test"), '{"host":"192.0.2.1"}')
    node = nodes.start(block(etcd, "min-lease-ttl 2"))
    wait_answers(node, "a.sky.test.", ["192.0.2.1"])
    assert 2 <= ask(node, "a.sky.test.").answer[0].ttl <= 5
    wait_until(lambda: answers(node, "a.sky.test.") == "NXDOMAIN", SOON, node.logs)
