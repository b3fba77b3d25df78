"""`rewrite` and `header`: other questions and flags for the directives behind them."""

import dns.flags
import dns.message
import dns.query
import dns.rcode
import dns.rdataclass
import dns.rdatatype

from corefiles import corefile
from dns_client import answers, ask, rcode, wait_says
from harness.processes import wait_until
from harness.upstreams import Upstream, answer
from test_corefile import validate

RULES = r"""
    rewrite name first.example.org backend.example.com
    rewrite name suffix .consul.example.org .service.example.com answer auto
    rewrite stop {
        name regex (.*)-(us-west-1)\.example\.net {1}.service.{2}.example.com
        answer name (.*)\.service\.(us-west-1)\.example\.com {1}-{2}.example.net
    }
    rewrite name prefix bare- plain-
    rewrite continue ttl suffix .ttl.example.com 30-40
    rewrite rcode suffix .gone.example.com NXDOMAIN NOERROR
    rewrite type ANY HINFO
    rewrite class CH IN
    rewrite name prefix long- """ + "x" * 60 + "\n"


def records(response):
    return [f"{rrset.name} {rdata}" for rrset in response.answer for rdata in rrset]


def upstream_answer(query, tcp):
    question = query.question[0]
    if "gone" in str(question.name):
        return answer(query, rcode=dns.rcode.NXDOMAIN)
    if question.rdtype == dns.rdatatype.HINFO:
        return answer(query, 'HINFO "cpu" "os"')
    return answer(query, "A 192.0.2.1", ttl=60)


def test_questions_and_answers(nodes):
    with Upstream(upstream_answer) as upstream:
        node = nodes.start(f". {{\n{RULES}    cache\n    forward . {upstream.address}\n}}\n")
        for _ in range(2):  # late, then from the cache
            assert records(ask(node, "First.example.org.")) == ["First.example.org. 192.0.2.1"]
            assert [r.name.to_text() for r in ask(node, "web.consul.example.org.").answer] == ["web.consul.example.org."]
            assert [r.name.to_text() for r in ask(node, "ftp-us-west-1.example.net.").answer] == ["ftp-us-west-1.example.net."]
            response = ask(node, "bare-www.example.com.")
            assert [r.name.to_text() for r in response.answer] == ["plain-www.example.com."], "as CoreDNS: no rule for the answer"
            assert response.question[0].name.to_text() == "bare-www.example.com."
            assert [r.ttl for r in ask(node, "a.ttl.example.com.").answer] == [40]
            assert rcode(ask(node, "a.gone.example.com.")) == "NOERROR"
            assert answers(node, "www.example.com.", "ANY") == ['"cpu" "os"']
            assert answers(node, "www.example.com.", rdtype="A") == ["192.0.2.1"]
            assert answers(node, "long-" + "y" * 50 + ".example.com.") == "SERVFAIL", "the label is too long"
            response = ask(node, "class.example.com.", rdclass="CH")
            assert rcode(response) == "NOERROR" and response.question[0].rdclass == dns.rdataclass.CH
            assert [r.rdclass for r in response.answer] == [dns.rdataclass.IN], "as CoreDNS: A of class CH has other data"
        assert upstream.names().count("backend.example.com.") == 1, "the cache keeps what was found"
        assert "web.service.example.com." in upstream.names() and "ftp.service.us-west-1.example.com." in upstream.names()
        assert records(ask(node, "first.example.org.", tcp=True)) == ["first.example.org. 192.0.2.1"]


def test_transfers_of_another_class_are_refused(nodes, tmp_path):
    path = tmp_path / "zone"
    path.write_text("$TTL 60\n@ SOA ns host 1 60 60 60 60\n@ NS ns\nns A 192.0.2.1\n")
    node = nodes.start(f"example.org {{\n    rewrite class CH IN\n    file {path}\n    transfer {{\n        to *\n    }}\n}}\n")
    for rdtype in ("AXFR", "IXFR"):
        for tcp in (False, True):
            assert rcode(ask(node, "example.org.", rdtype, tcp=tcp, rdclass="CH")) == "REFUSED"
    assert answers(node, "ns.example.org.", rdclass="CH") == answers(node, "ns.example.org.") == ["192.0.2.1"]


def test_what_is_changed_is_not_authentic(nodes):
    def authentic(query, tcp):
        response = upstream_answer(query, tcp)
        response.flags |= dns.flags.AD
        return response

    with Upstream(authentic) as upstream:
        node = nodes.start(f". {{\n{RULES}    cache\n    forward . {upstream.address} {{\n        trust-ad\n    }}\n}}\n")
        for _ in range(2):  # late, then from the cache
            for name, rdtype, is_authentic in (
                    ("www.example.com.", "A", True), ("WWW.example.com.", "A", True), ("a.ttl.example.com.", "A", True),
                    ("first.example.org.", "A", False), ("web.consul.example.org.", "A", False),
                    ("a.gone.example.com.", "A", False), ("www.example.com.", "ANY", False)):
                assert bool(ask(node, name, rdtype, want_dnssec=True, use_edns=0).flags & dns.flags.AD) == is_authentic, name


def test_what_no_message_has_room_for_is_cut(nodes):
    """The client's question is longer than the one that is asked."""
    def large(query, tcp):
        if tcp:
            return answer(query, *(f'TXT "{i:03}{"x" * (237 + i % 2)}"' for i in range(258)))
        response = answer(query)
        response.flags |= dns.flags.TC
        return response

    with Upstream(large) as upstream:
        name = ".".join(["y" * 60] * 4) + "."
        node = nodes.start(f". {{\n    rewrite name {name} large.example.org\n    forward . {upstream.address}\n}}\n")
        assert len(ask(node, "large.example.org.", "TXT", tcp=True).answer[0]) == 258
        response = ask(node, name, "TXT", tcp=True)
        assert rcode(response) == "NOERROR" and response.flags & dns.flags.TC
        assert 250 < len(response.answer[0]) < 258


def test_names_of_the_cluster_and_of_hosts(nodes, etcd):
    node = nodes.start(corefile(etcd.endpoint, options=["address 192.0.2.11"], directives=[
        "rewrite name db.example.org worker1.tf.local", "rewrite name suffix .tf.internal .tf.local answer auto",
        "rewrite name local.example.org host.example.com", "hosts {\n 192.0.2.7 host.example.com\n }", "log"]))
    wait_says(node, "worker1.tf.local.")
    assert answers(node, "worker1.tf.local.") == ["192.0.2.11"], "what no rule is for"
    assert records(ask(node, "db.example.org.")) == ["db.example.org. 192.0.2.11"]
    assert records(ask(node, "worker1.tf.internal.")) == ["worker1.tf.internal. 192.0.2.11"]
    assert ask(node, "db.example.org.").flags & dns.flags.AA
    response = ask(node, "worker9.tf.internal.")
    assert rcode(response) == "NXDOMAIN"
    assert [r.name.to_text() for r in response.authority] == ["tf.local."], "a suffix is not the zone itself"
    assert answers(node, "local.example.org.") == ["192.0.2.7"]
    wait_until(lambda: " db.example.org. udp" in node.logs(), 10, "the client's question in the log")


def test_what_is_wrong_is_said(tmp_path):
    for line, error in (("name regex (a {1}", "is no regular expression"), ("edns0 nsid set", "edns0 rules are CoreDNS's"),
                        ("nmae a b", "invalid rule type 'nmae'"), ("class IN CH", "IN only")):
        code, _, errors = validate(tmp_path, f". {{\n    rewrite {line}\n    whoami\n}}\n")
        assert code != 0 and error in errors, line


# --- header ---

def test_flags_of_answers_at_once_and_late(nodes):
    with Upstream(lambda query, tcp: answer(query, "A 192.0.2.1")) as upstream:
        node = nodes.start(f""". {{
    header {{
        response set aa
        clear ra
        query set rd
    }}
    hosts {{
        192.0.2.7 host.example.com
        fallthrough
    }}
    cache
    forward . {upstream.address}
}}
""")
        for name in ("host.example.com.", "www.example.org.", "www.example.org."):  # at once, late, from the cache
            query = dns.message.make_query(name, "A", use_edns=False)
            query.flags &= ~dns.flags.RD
            response = dns.query.udp(query, "127.0.0.1", port=node.port, timeout=10)
            assert response.rcode() == dns.rcode.NOERROR, "RD is set, or forward would refuse"
            assert response.flags & dns.flags.AA and not response.flags & dns.flags.RA
            assert [str(rdata) for rdata in response.answer[0]] == ["192.0.2.7" if name == "host.example.com." else "192.0.2.1"]
        assert upstream.names() == ["www.example.org."]
