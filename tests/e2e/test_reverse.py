"""Forward and reverse agree on every node: the address of each name that etcd holds leads back to it."""

import time

import dns.flags
import dns.rcode
import dns.reversename
import dns.rrset
import pytest

from corefiles import corefile
from dns_client import EDE_STALE_ANSWER, answers, ask, extended_errors, pointer, rcode, said_name, wait_resolves, wait_says
from harness.go_plugin import GoPlugin
from harness.processes import wait_until
from harness.proxy import TcpProxy
from harness.state import State
from harness.upstreams import Upstream, answer


def reverse(address):
    return dns.reversename.from_address(address).to_text()


def pointers(node, address):
    """As pointer(), in the order of the answer, which a launcher takes the first of."""
    response = ask(node, reverse(address), "PTR", use_edns=0)
    return [rdata.to_text() for rrset in response.answer for rdata in rrset] if rcode(response) == "NOERROR" else rcode(response)


def wait_points(nodes, address, *names, timeout=10):
    for node in nodes:
        wait_until(lambda n=node: pointers(n, address) == list(names), timeout,
                   lambda n=node: f"{address} at {n.name} to be {names}: {pointers(n, address)}\n{n.logs()}")


def test_each_of_five_nodes_knows_the_names_of_all_addresses(etcd, nodes):
    cluster = []
    for number in range(1, 6):
        cluster.append(nodes.start(corefile(etcd.endpoint, options=[f"address 192.0.2.{number} 2001:db8::{number}", "ttl 7s"])))
        wait_says(cluster[-1], f"worker{number}.tf.local.")
    for number in range(1, 6):
        for address in (f"192.0.2.{number}", f"2001:db8::{number}"):
            wait_points(cluster, address, f"worker{number}.tf.local.")
    for tcp in (False, True):
        response = ask(cluster[0], reverse("192.0.2.5").upper(), "PTR", tcp=tcp, use_edns=0)
        assert response.flags & dns.flags.AA and response.answer[0].ttl == 7 and not response.options
    assert answers(cluster[0], reverse("192.0.2.5"), "ANY") == ["worker5.tf.local."]
    # The reverse zone is not ours: neither what it has besides nor what it has not is denied.
    for name, rdtype in ((reverse("192.0.2.6"), "PTR"), ("3.0.192.in-addr.arpa.", "SOA"), ("in-addr.arpa.", "NS")):
        assert answers(cluster[0], name, rdtype) == "REFUSED"
    cluster[4].terminate()
    for address in ("192.0.2.5", "2001:db8::5"):
        wait_until(lambda a=address: {str(pointer(node, a)) for node in cluster[:4]} == {"REFUSED"}, 5, "the name to go")


def test_an_observer_knows_them_too(etcd, nodes):
    nodes.start(corefile(etcd.endpoint, options=["address 192.0.2.1"]))
    observer = nodes.start(corefile(etcd.endpoint, options=["observe", "address 192.0.2.1"]))
    wait_points([observer], "192.0.2.1", "worker1.tf.local.")


def test_the_names_of_an_address_follow_etcd(etcd, nodes):
    """Records that an operator puts, with the Go plugin's values, as hosts(5) would have them."""
    node = nodes.start(corefile(etcd.endpoint, options=["address 192.0.2.1"]))
    wait_says(node, "worker1.tf.local.")
    etcd.put("db.tf.local.", '{"ipv4":"192.0.2.50","ipv6":"2001:db8::50","port":"53"}')
    wait_points([node], "192.0.2.50", "db.tf.local.")
    assert pointers(node, "2001:db8::50") == ["db.tf.local."]
    etcd.put("db.tf.local.", '{"ipv4":"192.0.2.51","ipv6":"2001:db8::50"}')
    wait_points([node], "192.0.2.51", "db.tf.local.")
    assert pointers(node, "192.0.2.50") == "REFUSED"
    assert pointers(node, "2001:db8::50") == ["db.tf.local."]
    etcd.put("far.example.org.", '{"ipv4":"192.0.2.51"}')
    etcd.put("worker7.tf.local.", '{"ipv4":"192.0.2.51"}')
    wait_points([node], "192.0.2.51", "worker7.tf.local.", "db.tf.local.", "far.example.org.")
    etcd.put("db.tf.local.", "nonsense")
    wait_points([node], "192.0.2.51", "worker7.tf.local.", "far.example.org.")
    etcd.delete("worker7.tf.local.")
    wait_points([node], "192.0.2.51", "far.example.org.")
    etcd.put("here.tf.local.", '{"ipv4":"127.0.0.1"}')
    wait_resolves([node], "here.tf.local.", "127.0.0.1")
    assert pointers(node, "127.0.0.1") == "REFUSED", "each machine has this address"


def test_an_address_of_many_names(etcd, nodes):
    node = nodes.start(corefile(etcd.endpoint, options=["address 192.0.2.1"]))
    wait_says(node, "worker1.tf.local.")
    etcd.put_many({f"s{i}.tf.local.": '{"ipv4":"192.0.2.9"}' for i in range(200)})
    etcd.put("worker2.tf.local.", '{"ipv4":"192.0.2.9"}')
    wait_resolves([node], "worker2.tf.local.", "192.0.2.9")
    assert pointers(node, "192.0.2.9") == ["worker2.tf.local."] + [f"s{i}.tf.local." for i in range(31)]


def test_a_go_plugin_node(etcd, nodes):
    go = GoPlugin(etcd, ipv4="192.0.2.21", ipv6="2001:db8::21", port="53").start()
    try:
        node = nodes.start(corefile(etcd.endpoint, options=["address 192.0.2.7"]))
        wait_points([node], "192.0.2.21", "worker1.tf.local.")
        assert pointers(node, "2001:db8::21") == ["worker1.tf.local."]
    finally:
        go.kill()


def test_two_nodes_behind_one_address(etcd, nodes):
    """Each says its own name, others say both."""
    text = corefile(etcd.endpoint, options=["address 192.0.2.7"])
    cluster = nodes.start_cluster(text, 2, etcd)
    elsewhere = nodes.start(corefile(etcd.endpoint, options=["address 192.0.2.8"]))
    wait_points([elsewhere], "192.0.2.7", "worker1.tf.local.", "worker2.tf.local.")
    for node in cluster:
        wait_until(lambda n=node: said_name(n), 10, node.logs)
        wait_points([node], "192.0.2.7", said_name(node))
    assert {said_name(node) for node in cluster} == {"worker1.tf.local.", "worker2.tf.local."}


def test_what_is_old_says_so(etcd, nodes, directory):
    """While etcd is away, and after a restart from the saved names. Of its own address a node says nothing then."""
    state = State(f"{directory}/state")
    text = corefile(etcd.endpoint, lease=4, options=["address 192.0.2.1", state.option])
    node = nodes.start(text)
    wait_says(node, "worker1.tf.local.")
    etcd.put("db.tf.local.", '{"ipv4":"192.0.2.50"}')
    wait_points([node], "192.0.2.50", "db.tf.local.")
    wait_until(lambda: state.saved("db.tf.local."), 60, "the names to be saved")
    fresh = ask(node, reverse("192.0.2.50"), "PTR", use_edns=0)
    assert not fresh.options
    etcd.pause()

    def is_stale(which):
        response = ask(which, reverse("192.0.2.50"), "PTR", use_edns=0)
        return extended_errors(response) == [EDE_STALE_ANSWER] and response.answer[0][0].to_text() == "db.tf.local."
    wait_until(lambda: is_stale(node), 15, "a stale answer")
    wait_until(lambda: pointers(node, "192.0.2.1") == "REFUSED", 10, "the node not to own its name")
    assert pointers(node, "192.0.2.99") == "REFUSED"
    node.terminate()
    again = nodes.start(text)
    wait_until(lambda: is_stale(again), 10, lambda: f"the saved names\n{again.logs()}")
    etcd.resume()
    wait_until(lambda: extended_errors(ask(again, reverse("192.0.2.50"), "PTR", use_edns=0)) == [], 30, "a fresh answer")


def test_a_claimed_name_and_its_reverse_name_come_together(etcd, nodes):
    """A node that has answered with its own address knows the name of that, however far etcd is."""
    def distance():
        def passed_on(octets):
            time.sleep(0.1)
            return octets
        return passed_on
    with TcpProxy(etcd.client_port, on_request=distance) as proxy:
        etcd.pause()
        node = nodes.start(corefile(proxy.endpoint, lease=20, options=["address 192.0.2.1"]))
        etcd.resume()
        wait_until(lambda: answers(node, "worker1.tf.local.") == ["192.0.2.1"], 20, node.logs, interval=0)
        assert pointer(node, "192.0.2.1") == ["worker1.tf.local."]


@pytest.mark.parametrize("whose", ["cluster", "hosts"])
@pytest.mark.parametrize("address", ["203.1.2.5", "2a01:db8::5"])
def test_a_question_for_another_type_or_for_a_name_above_does_not_make_the_pointer_vanish(etcd, nodes, address, whose):
    """Behind a cache that takes NXDOMAIN for all names below (RFC 8020), where the upstream knows none of these names."""
    lines = f"{address} db.tf.local" if whose == "hosts" else ""
    with Upstream(lambda query, tcp: answer(query, rcode=dns.rcode.NXDOMAIN)) as upstream:
        node = nodes.start(corefile(etcd.endpoint, options=["address 192.0.2.1"], directives=[
            f"hosts /dev/null {{\n {lines}\n fallthrough\n }}", f"forward . {upstream.address}"]))
        wait_says(node, "worker1.tf.local.")
        if whose == "cluster":
            etcd.put("db.tf.local.", f'{{"{"ipv6" if ":" in address else "ipv4"}":"{address}"}}')
        wait_points([node], address, "db.tf.local.")
        labels = reverse(address).split(".")
        questions = [(reverse(address), rdtype) for rdtype in ("TXT", "A", "SOA", "DS")]
        tops = len(labels) - 3  # up to in-addr.arpa. and ip6.arpa.
        questions += [(".".join(labels[i:]), rdtype) for i in range(1, tops) for rdtype in ("PTR", "NS")]
        for name, rdtype in questions:
            assert answers(node, name, rdtype) == [], f"{name} {rdtype}"
        for order in (questions, questions[::-1]):
            behind = nodes.start(f". {{\n forward . 127.0.0.1:{node.port}\n cache {{\n nxdomain_cut\n }}\n}}\n")
            for name, rdtype in order:
                assert answers(behind, name, rdtype) == []
                assert pointers(behind, address) == ["db.tf.local."]
            behind.terminate()
        assert answers(node, reverse("198.51.100.1"), "TXT") == "NXDOMAIN"


ABOVE = ["corp.example.", "b.corp.example.", "other.example.", "example.", "local.", "block.example.", "wild.example."]


def test_a_question_for_a_name_above_does_not_make_the_names_below_vanish(etcd, nodes, directory):
    """Names of `hosts`, of the cluster and of etcd outside of it, and zones of other blocks, in trees whose servers know none
    of them: also out of the cache, by an alias, and after a restart. What those servers have is passed on."""
    def respond(query, tcp):
        name = query.question[0].name.to_text()
        if name == "given.com.":
            return answer(query, "TXT theirs")
        response = answer(query, *([f"CNAME {name[:-6]}"] if name.endswith(".alias.") else []), rcode=dns.rcode.NXDOMAIN)
        response.authority.append(dns.rrset.from_text(".", 60, "IN", "SOA", "a. b. 1 1 1 1 60"))
        return response
    with Upstream(respond) as upstream:
        text = corefile(etcd.endpoint, options=["address 192.0.2.1"], directives=[
            "hosts /dev/null {\n 10.0.0.1 db.a.b.corp.example\n 10.0.0.2 *.wild.example\n 10.0.0.4 db.given.com\n fallthrough\n }",
            f"cache {{\n nxdomain_cut\n persist {directory}/cache\n }}", f"forward . {upstream.address}"])
        text += f"zone.block.example {{\n forward . {upstream.address}\n}}\n"
        node = nodes.start(text)
        wait_says(node, "worker1.tf.local.")
        etcd.put("db.other.example.", '{"ipv4":"10.0.0.3"}')
        wait_resolves([node], "db.other.example.", "10.0.0.3")
        assert answers(node, "nobody.example.") == "NXDOMAIN" and answers(node, "nobody.example.alias.") == "NXDOMAIN"
        for again in ("from the upstream", "from the cache", "from the saved cache"):
            if again == "from the saved cache":
                node.terminate()
                node = nodes.start(text)
                wait_says(node, "worker1.tf.local.")
            for name in ABOVE:
                for rdtype in ("A", "AAAA", "DS", "SOA", "HTTPS"):
                    assert answers(node, name, rdtype) == [], f"{name} {rdtype} {again}"
                    if name != "local.":
                        assert answers(node, f"{name}alias.", rdtype) in ([], [name]), f"alias to {name} {rdtype} {again}"
            assert answers(node, "given.com.", "TXT") == ['"theirs"']
        behind = nodes.start(f". {{\n forward . 127.0.0.1:{node.port}\n cache {{\n nxdomain_cut\n }}\n}}\n")
        for name in ABOVE[:-2]:
            answers(behind, name)
        for name, address in (("db.a.b.corp.example.", "10.0.0.1"), ("worker1.tf.local.", "192.0.2.1"), ("db.other.example.", "10.0.0.3")):
            assert answers(behind, name) == [address]
        etcd.delete("db.other.example.")
        wait_until(lambda: answers(node, "other.example.") == "NXDOMAIN", 10, "nothing to be below")


def test_what_the_cluster_does_not_hold_goes_on(etcd, nodes, directory):
    """To `hosts` and upstreams; but the cluster's names come first, and `acl` before them."""
    with Upstream(lambda query, tcp: answer(query, "PTR host.example.org.")) as upstream:
        node = nodes.start(corefile(etcd.endpoint, options=["address 192.0.2.1", "fallthrough"], directives=[
            "acl {\n block type PTR net 127.0.0.2\n }", "minimal",
            "hosts {\n 192.0.2.50 other.lan\n 192.0.2.60 printer.lan\n fallthrough\n }",
            f"forward 8.8.8.in-addr.arpa. {upstream.address}"]))
        etcd.put("db.tf.local.", '{"ipv4":"192.0.2.50"}')
        wait_points([node], "192.0.2.50", "db.tf.local.")
        assert pointers(node, "192.0.2.60") == ["printer.lan."]
        assert pointers(node, "8.8.8.8") == ["host.example.org."]
        etcd.delete("db.tf.local.")
        wait_points([node], "192.0.2.50", "other.lan.")


def test_a_block_for_the_zone_and_its_reverse_zone(etcd, nodes):
    text = corefile(etcd.endpoint, options=["observe"]).replace(". {", "tf.local 192.0.2.0/24 2001:db8::/32 {", 1)
    node = nodes.start(text)
    etcd.put("worker3.tf.local.", '{"ipv4":"192.0.2.3","ipv6":"2001:db8::3"}')
    wait_points([node], "192.0.2.3", "worker3.tf.local.")
    assert pointers(node, "2001:db8::3") == answers(node, reverse("192.0.2.3"), "ANY") == ["worker3.tf.local."]
    assert pointers(node, "198.51.100.1") == "REFUSED"
