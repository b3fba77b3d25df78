"""`template`: answers out of the query."""

import dns.edns
import dns.flags
import dns.rrset
import pytest

from corefiles import corefile
from dns_client import answers, ask, extended_errors, rcode, wait_says
from harness.metrics import Metrics
from harness.processes import wait_until
from harness.upstreams import Upstream, answer
from test_corefile import validate

ADDRESSES = """
    template IN A ip.example.org {
        match ^ip-(?P<a>[0-9]+)-(?P<b>[0-9]+)-(?P<c>[0-9]+)-(?P<d>[0-9]+)[.]ip[.]example[.]org[.]$
        answer "{{ .Name }} 60 IN A {{ .Group.a }}.{{ .Group.b }}.{{ .Group.c }}.{{ .Group.d }}"
        authority "ip.example.org. 60 IN NS ns.ip.example.org."
        additional "ns.ip.example.org. 60 IN A 192.0.2.53"
        fallthrough sub.ip.example.org
    }
    template IN PTR 2.0.192.in-addr.arpa {
        match ^([0-9]+)[.]2[.]0[.]192[.]in-addr[.]arpa[.]$
        answer "{{ .Name }} 60 IN PTR ip-192-0-2-{{ index .Match 1 }}.ip.example.org."
    }
"""


def sections(response):
    return [sorted(rrset.to_text() for rrset in section) for section in (response.answer, response.authority, response.additional)]


def test_addresses_and_names_of_them(nodes, free_port):
    port = free_port()
    with Upstream() as upstream:
        node = nodes.start(f". {{\n    prometheus 127.0.0.1:{port}\n    errors\n{ADDRESSES}\n    forward . {upstream.address}\n}}\n")
        response = ask(node, "IP-10-0-2-7.ip.Example.org.")
        assert sections(response) == [["IP-10-0-2-7.ip.Example.org. 60 IN A 10.0.2.7"], ["ip.Example.org. 60 IN NS ns.ip.Example.org."],
                                      ["ns.ip.Example.org. 60 IN A 192.0.2.53"]]
        assert response.flags & dns.flags.AA
        assert answers(node, "9.2.0.192.in-addr.arpa.", "PTR") == ["ip-192-0-2-9.ip.example.org."]
        assert answers(node, "ip-10-0-2-256.ip.example.org.") == "SERVFAIL", "the text becomes no record"
        wait_until(lambda: "256" in node.logs(), 10, "errors says why")
        assert answers(node, "other.ip.example.org.") == "SERVFAIL", "without fallthrough there"
        assert answers(node, "other.sub.ip.example.org.") == ["192.0.2.1"]
        assert rcode(ask(node, "ip-10-0-2-7.ip.example.org.", "AAAA")) == "NOERROR", "of another type: the upstream's"
        assert answers(node, "ip-10-0-2-7.ip.example.org.", "ANY") == ["10.0.2.7"]
        metrics = Metrics.of(port)
        assert metrics.sum("coredns_template_matches_total") == 4
        assert metrics.sum("idetcd_template_failures_total") == 1


def test_denials_with_a_reason(nodes):
    node = nodes.start(""". {
    template ANY ANY invalid {
        rcode NXDOMAIN
        authority "invalid. 60 {{ .Class }} SOA ns.invalid. hostmaster.invalid. (1 60 60 60 60)"
        ederror 21 "Blocked according to RFC2606"
    }
    template IN AAAA {
        rcode NOERROR
    }
    template IN TXT client.test {
        answer "{{ .Name }} 0 IN TXT {{ .Remote }} {{ .Type }} {{ .Question.Qtype }}"
    }
}
""")
    response = ask(node, "www.invalid.", use_edns=0)
    assert rcode(response) == "NXDOMAIN"
    assert [rrset.to_text() for rrset in response.authority] == ["invalid. 60 IN SOA ns.invalid. hostmaster.invalid. 1 60 60 60 60"]
    [option] = [option for option in response.options if isinstance(option, dns.edns.EDEOption)]
    assert (option.code, option.text) == (21, "Blocked according to RFC2606")
    assert extended_errors(ask(node, "www.invalid.", use_edns=False)) == []
    assert answers(node, "www.example.org.", "AAAA") == []
    assert answers(node, "www.example.org.") == "REFUSED"
    assert answers(node, "client.test.", "TXT") == ['"127.0.0.1" "TXT" "16"']


def test_the_names_of_the_cluster_come_before_templates(nodes, etcd):
    node = nodes.start(corefile(etcd.endpoint, directives=["template ANY ANY {\n rcode NXDOMAIN\n }"]))
    wait_says(node, "worker1.tf.local.")
    assert answers(node, "worker1.tf.local.") != "NXDOMAIN"
    assert answers(node, "www.example.org.") == "NXDOMAIN"


def test_a_cname_is_followed(nodes):
    """To a name of `hosts`, of an upstream, and of the template itself."""
    with Upstream() as upstream:
        node = nodes.start(f""". {{
    template IN ANY alias.test {{
        match ^(.*)[.]alias[.]test[.]$
        answer "{{{{ .Name }}}} 60 IN CNAME {{{{ index .Match 1 }}}}."
    }}
    hosts {{
        192.0.2.7 host.test
        fallthrough
    }}
    cache
    forward . {upstream.address}
}}
""")
        assert answers(node, "host.test.alias.test.") == ["192.0.2.7", "host.test."]
        for _ in range(2):  # late, then from the cache
            assert answers(node, "www.example.org.alias.test.") == ["192.0.2.1", "www.example.org."]
        assert answers(node, "host.test.alias.test.", "CNAME") == ["host.test."]
        assert len(answers(node, "host.test" + 3 * ".alias.test" + ".")) == 4
        assert rcode(ask(node, "host.test" + 9 * ".alias.test" + ".")) == "SERVFAIL", "so many lead nowhere"


def test_the_target_of_a_forwarded_alias_is_made_once(nodes, free_port):
    """Also where it is looked up twice: whether the name is this server's own, and for the answer."""
    port = free_port()
    target = "ip-10-0-2-7.ip.example.org."

    def with_address(query, tcp):
        response = answer(query, f"CNAME {target}")
        response.answer.append(dns.rrset.from_text(target, 60, "IN", "A", "192.0.2.66"))
        return response

    with Upstream(with_address) as upstream:
        node = nodes.start(f". {{\n    prometheus 127.0.0.1:{port}\n{ADDRESSES}\n    forward . {upstream.address}\n}}\n")
        assert answers(node, "www.example.org.") == ["10.0.2.7", target]
        assert Metrics.of(port).sum("coredns_template_matches_total") == 1


def test_many_records_are_truncated(nodes):
    records = "\n".join(f'        answer "{{{{ .Name }}}} 60 IN TXT {i:03}{"x" * 200}"' for i in range(50))
    node = nodes.start(f". {{\n    template IN TXT {{\n{records}\n    }}\n}}\n")
    response = ask(node, "www.example.org.", "TXT")
    assert response.flags & dns.flags.TC and not response.answer
    assert len(answers(node, "www.example.org.", "TXT", tcp=True)) == 50


@pytest.mark.parametrize("lines, error", [
    ('answer "{{ range .Match }}{{ end }}"', "'range' is not supported"),
    ('answer "{{ .Name }} 60 IN A {{ .Group.x }}"', "no expression has a group 'x'"),
    ('match ^(a)\n        answer "{{ .Name }} 60 IN TXT {{ index .Match 2 }}"', "no expression has a group '2'"),
    ('answer "a. 60 IN A 192.0.2.256"', "192.0.2.256"),
    ("match (", "is no regular expression"),
    ("match " + "a" * 2000, "more than 1024 bytes"),
    ("rcode NOCODE", "unknown rcode NOCODE"),
    ("ederror x", "extended DNS error code"),
])
def test_what_is_wrong_is_said(tmp_path, lines, error):
    code, _, errors = validate(tmp_path, f". {{\n    template IN A {{\n        {lines}\n    }}\n}}\n")
    assert code != 0 and error in errors
