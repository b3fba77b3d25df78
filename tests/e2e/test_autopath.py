"""`autopath`: the clients' search list is walked by the server, as programs with glibc and musl see it, too."""

import os
import re
import shutil
import subprocess

import dns.flags
import dns.query
import dns.rcode
import pytest

from conftest import Nodes, managed
from dns_client import TIMEOUT, answers, ask, make_query, rcode
from harness.metrics import Metrics
from harness.namespace import Namespace, inside
from harness.processes import wait_until
from harness.upstreams import Upstream, answer
from test_corefile import validate

HERE = os.path.dirname(os.path.abspath(__file__))
SEARCH = "one.example.net two.example.net three.example.net"


def upstream_answer(query, tcp):
    """Names in three.example.net, and www.example.org, exist; bad.one.example.net fails."""
    name = query.question[0].name.to_text().lower()
    if name.startswith("bad.one."):
        return answer(query, rcode=dns.rcode.SERVFAIL)
    if name.startswith("txt.three."):
        return answer(query)
    if name.endswith("three.example.net.") or name == "www.example.org.":
        return answer(query, "A 192.0.2.3", ttl=60)
    return answer(query, rcode=dns.rcode.NXDOMAIN)


def test_the_list_is_walked_at_once_and_late(nodes, free_port):
    port = free_port()
    with Upstream(upstream_answer) as upstream:
        node = nodes.start(f""". {{
    prometheus 127.0.0.1:{port}
    autopath {{
        search {SEARCH}
    }}
    hosts {{
        192.0.2.7 host.two.example.net
        fallthrough
    }}
    cache
    forward . {upstream.address}
}}
""")
        for tcp in (False, True, False):  # late at first, then from the cache
            response = ask(node, "Web.one.example.net.", tcp=tcp)
            assert [f"{r.name} {r[0]}" for r in response.answer] == ["Web.one.example.net. web.three.example.net.", "web.three.example.net. 192.0.2.3"]
            assert answers(node, "host.one.example.net.", tcp=tcp) == ["192.0.2.7", "host.two.example.net."], "of hosts"
            assert [r.name.to_text() for r in ask(node, "www.example.org.one.example.net.").answer] == [
                "www.example.org.one.example.net.", "www.example.org.three.example.net."], "three.example.net comes before the name alone"
            assert rcode(ask(node, "none.sub.one.example.net.", "A")) == "NOERROR"
            assert answers(node, "bad.one.example.net.") == ["192.0.2.3", "bad.three.example.net."], "a failure is passed over"
            response = ask(node, "txt.one.example.net.", "TXT")
            assert rcode(response) == "NOERROR" and not response.answer
        asked = len(upstream.names())
        for name in ("web.two.example.net.", "one.example.net.", "web.xone.example.net."):
            assert answers(node, name) == "NXDOMAIN", "only the first domain begins a walk"
        assert not [name for name in upstream.names()[asked:] if "three" in name]
        assert Metrics.of(port).sum("coredns_autopath_success_total") >= 15


def test_a_name_that_is_nowhere_and_one_alone(nodes, tmp_path):
    """The answer to the name that was asked for; the list is in a file."""
    (tmp_path / "resolv.conf").write_text("# the nodes'\nnameserver 127.0.0.1\ndomain old.example.net\nsearch one.example.net two.example.net\n")
    with Upstream(upstream_answer) as upstream:
        node = nodes.start(f". {{\n    autopath example.net {tmp_path}/resolv.conf\n    forward . {upstream.address}\n}}\n")
        response = ask(node, "none.one.example.net.")
        assert rcode(response) == "NXDOMAIN" and not response.answer
        assert upstream.names() == ["none.one.example.net.", "none.two.example.net.", "none."]
        response = ask(node, "www.example.org.one.example.net.")
        assert [r.to_text() for r in response.answer] == [
            "www.example.org.one.example.net. 60 IN CNAME www.example.org.", "www.example.org. 60 IN A 192.0.2.3"]


def test_what_is_wrong_is_said(tmp_path):
    (tmp_path / "empty").write_text("nameserver 127.0.0.1\n")
    for line, error in (("autopath", "needs a file with a search list"), ("autopath @kubernetes", "not supported here"),
                        ("autopath empty", "there is no search list"), ("autopath missing", "missing"),
                        ("autopath {\n search\n }", "search DOMAINS...")):
        code, _, errors = validate(tmp_path, f". {{\n    {line}\n    whoami\n}}\n")
        assert code != 0 and error in errors, (line, errors)


# --- libcs ---
def test_a_client_gets_what_it_may_ask_for(nodes):
    """No names that acl keeps from it, nor those that need its signature."""
    with Upstream(upstream_answer) as upstream:
        node = nodes.start(f""". {{
    acl two.example.net {{
        block net 127.0.0.2
    }}
    acl three.example.net {{
        block type A net 127.0.0.2
    }}
    autopath {{
        search {SEARCH}
    }}
    hosts {{
        192.0.2.7 host.two.example.net
        fallthrough
    }}
    cache
    forward . {upstream.address}
}}
""")
        def ask_blocked(name, rdtype="A"):
            return dns.query.udp(make_query(name, rdtype), "127.0.0.1", port=node.port, source="127.0.0.2", timeout=TIMEOUT, ignore_unexpected=True)

        for _ in range(2):  # late, then from the cache
            for name in ("web.one.example.net.", "host.one.example.net."):
                response = ask_blocked(name)
                assert rcode(response) == "NXDOMAIN" and not response.answer, name
            assert rcode(ask_blocked("web.one.example.net.", "TXT")) == "NOERROR"
            assert answers(node, "host.one.example.net.") == ["192.0.2.7", "host.two.example.net."]
        assert "web.two.example.net." not in upstream.names()

        node = nodes.start(f""". {{
    tsig example.org {{
        secret key. c2VjcmV0c2VjcmV0c2VjcmV0
        require all
    }}
    autopath {{
        search one.example.net two.example.net
    }}
    cache
    forward . {upstream.address}
}}
""")
        for _ in range(2):
            assert answers(node, "www.example.org.") == "REFUSED"
            assert answers(node, "www.example.org.one.example.net.") == "NXDOMAIN"


def test_the_alias_is_not_authentic(nodes):
    def authentic(query, tcp):
        response = upstream_answer(query, tcp)
        response.flags |= dns.flags.AD
        return response

    with Upstream(authentic) as upstream:
        node = nodes.start(f". {{\n    autopath {{\n        search {SEARCH}\n    }}\n    cache\n    forward . {upstream.address} {{\n        trust-ad\n    }}\n}}\n")
        for _ in range(2):  # late, then from the cache
            for name, is_authentic in (("web.three.example.net.", True), ("web.one.example.net.", False)):
                response = ask(node, name, want_dnssec=True, use_edns=0)
                assert rcode(response) == "NOERROR" and bool(response.flags & dns.flags.AD) == is_authentic, name


COREFILE = f""".:53 {{
    log
    autopath {{
        search {SEARCH}
    }}
    hosts {{
        192.0.2.7 host.three.example.net
    }}
}}
"""


class Machine:
    """Whose only resolver is the node."""

    def __init__(self, directory, nodes):
        self.nodes = nodes
        self.namespace = Namespace(directory, ("192.0.2.11/24",))
        self.namespace.write("nsswitch.conf", "hosts: files dns\n")
        self.namespace.write("resolv.conf", f"nameserver 127.0.0.1\nsearch {SEARCH}\noptions ndots:5\n")

    def start(self):
        self.node = self.nodes.make(COREFILE, port=None)
        self.node.launch(prefix=self.namespace.prefix).wait_answers(port=53)

    def close(self):
        pass

    def asked(self):
        """The names in the log, but for those by which the test has waited for the start."""
        return [name for name in re.findall(r'"\S+ IN (\S+) udp ', self.node.out()) if name.startswith(("host", "end."))]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return str(tmp_path_factory.mktemp("autopath"))


@pytest.fixture(scope="module")
def machine(directory, request):
    nodes = Nodes(directory)
    machine = Machine(directory, nodes)
    with inside(machine):
        machine.start()
        yield from (machine for _ in managed(nodes, request))


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces and port 53 need root")
@pytest.mark.parametrize("compiler", ["cc", "musl-gcc"])
def test_programs_ask_once(machine, directory, compiler):
    assert shutil.which(compiler), f"{compiler} is not installed: run tools/install-packages"
    program = os.path.join(directory, f"lookup-{compiler}")
    subprocess.run([compiler, "-O1", "-pthread", "-o", program, os.path.join(HERE, "harness", "lookup.c")], check=True)
    line = machine.namespace.run(program, "any", "host").split()
    assert line[1] == "0" and line[-1] == "192.0.2.7", line
    end = f"end.{compiler}."  # lines come in order
    ask(machine.node, end, port=53)
    wait_until(lambda: end in machine.asked(), 10, machine.node.logs)
    assert {name for name in machine.asked() if not name.startswith("end.")} == {"host.one.example.net."}
