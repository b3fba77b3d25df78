"""The members of a cluster together: the services that they offer, and all of them."""

import json

import pytest

from corefiles import corefile
from dns_client import EDE_STALE_ANSWER, answers, ask, assert_nodata, assert_nxdomain, extended_errors, rcode
from harness.processes import wait_until
from harness.state import State

ZONE = "tf.local."
HTTP = f"_http._tcp.{ZONE}"
METRICS = f"_metrics._tcp.{ZONE}"
ALL = f"all.{ZONE}"


def offering(etcd, address, *services, options=(), **more):
    return corefile(etcd.endpoint, options=[f"address {address}", *(f"service {one}" for one in services), *options], **more)


def wait_answers(nodes, name, rdtype, *wanted):
    wait_until(lambda: all(sorted(answers(node, name, rdtype)) == sorted(wanted) for node in nodes), 10,
               lambda: [answers(node, name, rdtype) for node in nodes])


@pytest.fixture
def pair(etcd, nodes):
    """Two nodes that offer different services; the first one is worker1."""
    one = nodes.start(offering(etcd, "192.0.2.1", "http tcp 8080", "metrics tcp 9100 weight 5"))
    one.wait_owns(etcd)
    other = nodes.start(offering(etcd, "192.0.2.2", "http tcp 8081"))
    other.wait_owns(etcd)
    return one, other


def test_a_service_leads_to_those_who_offer_it(pair, etcd):
    wait_answers(pair, HTTP, "SRV", f"0 1 8080 worker1.{ZONE}", f"0 1 8081 worker2.{ZONE}")
    wait_answers(pair, METRICS, "SRV", f"0 5 9100 worker1.{ZONE}")
    for node in pair:
        response = ask(node, HTTP, "SRV", use_edns=0)
        assert {(rrset.name.to_text(), rrset[0].to_text()) for rrset in response.additional} == {
            (f"worker1.{ZONE}", "192.0.2.1"), (f"worker2.{ZONE}", "192.0.2.2")}
        assert_nodata(ask(node, HTTP, "A"), ZONE)
        assert_nodata(ask(node, f"_tcp.{ZONE}", "SRV"), ZONE)
        assert_nxdomain(ask(node, f"_http._udp.{ZONE}", "SRV"), ZONE)
    value = json.loads(etcd.pairs()[f"worker1.{ZONE}".encode()]["value"])
    assert value["services"] == ["http tcp 8080 weight 1", "metrics tcp 9100 weight 5"]
    assert value["ipv4"] == "192.0.2.1", "as the Go plugin reads it"


def test_all_members_have_one_name(pair):
    wait_answers(pair, ALL, "A", "192.0.2.1", "192.0.2.2")
    assert_nodata(ask(pair[0], ALL, "AAAA"), ZONE)
    first = {ask(pair[0], ALL).answer[0][0].to_text() for _ in range(4)}
    assert first == {"192.0.2.1", "192.0.2.2"}, "in turn"


def test_a_member_says_who_it_is(pair, etcd):
    key = etcd.pairs()[f"worker2.{ZONE}".encode()]
    wait_answers(pair, ALL, "A", "192.0.2.1", "192.0.2.2")
    said = f'"uuid={json.loads(key["value"])["id"]}" "token={key["token"]}"'

    def agrees(node):
        """The generation is read after the names, and may rise once more."""
        (rrset,) = ask(node, f"worker2.{ZONE}", "TXT").answer
        generation = node.control("/v1/status")[1]["clusters"][0].get("generation")
        return [rdata.to_text() for rdata in rrset] == [f'{said} "generation={generation}"']
    for node in pair:
        wait_until(lambda n=node: agrees(n), 10, node.logs)


def test_who_is_drained_or_ends_offers_nothing(pair, etcd):
    one, other = pair
    wait_answers(pair, HTTP, "SRV", f"0 1 8080 worker1.{ZONE}", f"0 1 8081 worker2.{ZONE}")
    assert one.control("/v1/drain", "POST")[0] == 200
    wait_answers(pair, HTTP, "SRV", f"0 1 8081 worker2.{ZONE}")
    wait_answers(pair, ALL, "A", "192.0.2.2")
    assert_nxdomain(ask(other, METRICS, "SRV"), ZONE)
    assert one.control("/v1/undrain", "POST")[0] == 200
    wait_answers(pair, METRICS, "SRV", f"0 5 9100 worker1.{ZONE}")
    assert one.terminate() == 0
    wait_answers([other], HTTP, "SRV", f"0 1 8081 worker2.{ZONE}")
    wait_answers([other], ALL, "A", "192.0.2.2")


def test_services_are_known_over_a_restart_without_etcd(etcd, nodes, directory):
    state = State(f"{directory}/state")
    one = nodes.start(offering(etcd, "192.0.2.1", "http tcp 8080"))
    one.wait_owns(etcd)
    node = nodes.start(offering(etcd, "192.0.2.2", "http tcp 8081", options=[state.option]))
    node.wait_owns(etcd)
    wait_answers([node], HTTP, "SRV", f"0 1 8080 worker1.{ZONE}", f"0 1 8081 worker2.{ZONE}")
    wait_until(lambda: state.saved(f"worker1.{ZONE}", f"worker2.{ZONE}"), 60, "names to be saved")
    node.kill()
    etcd.kill()
    node.start()
    for name, rdtype in ((HTTP, "SRV"), (ALL, "A"), (f"worker1.{ZONE}", "TXT")):
        response = ask(node, name, rdtype, use_edns=0)
        assert rcode(response) == "NOERROR" and len(response.answer) == 1, response
        assert extended_errors(response) == [EDE_STALE_ANSWER]
    assert f"0 1 8080 worker1.{ZONE}" in answers(node, HTTP, "SRV")
    etcd.start()
    node.wait_owns(etcd)


def test_an_answer_to_many_is_cut_to_what_fits(etcd, nodes):
    node = nodes.start(corefile(etcd.endpoint, limit=500, options=["address 192.0.2.1", "service http tcp 80"]))
    node.wait_owns(etcd)
    for number in range(2, 202):
        etcd.put(f"worker{number}.{ZONE}", json.dumps({
            "ipv4": f"10.0.0.{number}", "id": f"00000000-0000-4000-8000-{number:012}", "services": ["http tcp 80 weight 1"]}))
    wait_until(lambda: len(answers(node, ALL, tcp=True)) == 201, 20, lambda: len(answers(node, ALL, tcp=True)))
    assert len(answers(node, HTTP, "SRV", tcp=True)) == 201
    for name, rdtype, least in ((ALL, "A", 60), (HTTP, "SRV", 20)):
        response = ask(node, name, rdtype, use_edns=0, payload=1232)
        assert response.flags & 0x200 and len(response.to_wire()) <= 1232, "TC"
        assert least < sum(len(rrset) for rrset in response.answer) < 201
