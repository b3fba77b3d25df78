"""What a node shows to Prometheus: names and labels of CoreDNS, numbers that are right, and a real Prometheus on whose
data the expressions of CoreDNS's dashboards and alerts have results."""

import urllib.error
import urllib.request

import dns.rcode
import dns.rrset
import pytest

from corefiles import corefile
from dns_client import RawUdp, ask, make_query, rcode
from harness.metrics import Metrics, Prometheus, promtool_problems, scrape
from harness.processes import wait_until
from harness.upstreams import Upstream, answer

PLAIN = """. {{
    bind 127.0.0.1
    prometheus 127.0.0.1:{port}
{directives}}}
"""


def plain(port, *directives):
    return PLAIN.format(port=port, directives="".join(f"    {directive}\n" for directive in directives))


def wait_sum(port, expected, name, /, timeout=5, **labels):
    """The end of a batch is counted a moment after its answers are sent."""
    wait_until(lambda: Metrics.of(port).sum(name, **labels) == expected, timeout,
               lambda: f"{name}{labels} to be {expected}\n{scrape(port)}")


def test_queries_are_counted_as_coredns_counts_them(nodes, free_port):
    port = free_port()
    node = nodes.start(plain(port, "hosts {\n192.0.2.7 h.example.\nfallthrough\n}", "acl {\nblock type ANY\n}", "whoami"))
    before = Metrics.of(port)  # those that found out whether it answers
    size = len(make_query("h.example.").to_wire())
    ask(node, "h.example.")
    ask(node, "h.example.", tcp=True)
    ask(node, "h.example.", "AAAA", want_dnssec=True)
    ask(node, "other.", "TYPE65534")
    assert rcode(ask(node, "other.", "ANY")) == "REFUSED"
    other_version = bytearray(make_query("other.", use_edns=0).to_wire())
    other_version[-5] = 1  # behind it are flags and length
    with RawUdp(node.port) as udp:
        udp.ask(bytes(other_version))
    server = {"server": f"dns://127.0.0.1:{node.port}", "zone": ".", "view": ""}
    wait_sum(port, before.sum("coredns_dns_request_duration_seconds_count", **server) + 5,
             "coredns_dns_request_duration_seconds_count", **server)
    now = Metrics.of(port)

    def more(name, /, **labels):
        return now.sum(name, **labels) - (before.sum(name, **labels) or 0)

    requests = "coredns_dns_requests_total"
    assert now.labels(requests) == ("server", "zone", "view", "proto", "family", "type")
    assert more(requests, **server, proto="udp", family="1", type="A") == 1
    assert more(requests, **server, proto="tcp", family="1", type="A") == 1
    assert more(requests, **server, type="AAAA") == more(requests, **server, type="other") == 1
    assert more(requests, zone="dropped") == 1, "EDNS version 1 is not ours"
    responses = "coredns_dns_responses_total"
    assert now.labels(responses) == ("server", "zone", "view", "rcode", "plugin")
    assert more(responses, **server, rcode="NOERROR", plugin="hosts") == 3
    assert more(responses, **server, rcode="REFUSED", plugin="acl") == 1
    assert more(responses, zone="dropped", rcode="BADVERS", plugin="") == 1
    assert more("coredns_dns_do_requests_total", **server) == 1
    assert more("coredns_acl_blocked_requests_total", **server) == 1
    assert more("coredns_dns_request_size_bytes_sum", **server, proto="tcp") == size
    assert more("coredns_dns_request_size_bytes_bucket", **server, proto="tcp", le="100") == 1
    assert now.sum("coredns_dns_request_size_bytes_bucket", **server, proto="tcp", le="0") == 0
    bounds = [labels["le"] for name, labels, _ in now.samples
              if name == "coredns_dns_request_duration_seconds_bucket" and labels["zone"] == "."]
    assert [float(bound) for bound in bounds] == [0.00025 * 2**n for n in range(16)] + [float("inf")]
    bounds = [labels["le"] for name, labels, _ in now.samples
              if name == "coredns_dns_response_size_bytes_bucket" and labels["proto"] == "tcp"]
    assert bounds == ["0", "100", "200", "300", "400", "511", "1023", "2047", "4095", "8291", "16000", "32000", "48000",
                      "64000", "+Inf"]
    short = now.sum("idetcd_dns_request_duration_seconds_bucket", **server, le="0.00025")
    assert promtool_problems(now.text) == ""
    assert short == now.sum("coredns_dns_request_duration_seconds_bucket", **server, le="0.00025")


def test_answers_that_come_late_are_timed_to_their_own_end(nodes, free_port):
    port = free_port()
    held = []

    def handler(query, tcp):
        held.append(query)
        return None if len(held) == 1 else answer(query, "A 192.0.2.1")  # the first one is lost
    with Upstream(handler) as upstream:
        node = nodes.start(plain(port, f"forward . {upstream.address}", "cache"))
        before = Metrics.of(port)
        name = "coredns_dns_request_duration_seconds_sum"
        for _ in range(2):
            assert rcode(ask(node, "late.example.")) == "NOERROR"
        wait_sum(port, 1, "coredns_dns_responses_total", plugin="cache", rcode="NOERROR")
        now = Metrics.of(port)
        assert now.sum("coredns_dns_responses_total", plugin="forward", rcode="NOERROR") >= 1
        assert now.sum(name) - (before.sum(name) or 0) > 0.01, "a lost datagram takes longer than that"


def test_two_blocks_share_an_address_and_a_reload_loses_nothing(nodes, free_port):
    port = free_port()
    text = plain(port, "whoami") + plain(port, "whoami").replace(". {", "a.example {", 1)
    node = nodes.start(text)
    for name in ("b.example.", "c.a.example.", "d.a.example."):
        ask(node, name)
    wait_sum(port, 2, "coredns_dns_requests_total", zone="a.example.")
    with open(node.corefile_path, "w", encoding="utf-8") as file:
        file.write(text.replace("whoami", "nonsense"))
    node.signal(1)
    node.wait_logged("Restart failed")
    assert Metrics.of(port).sum("coredns_dns_requests_total", zone="a.example.") == 2
    with open(node.corefile_path, "w", encoding="utf-8") as file:
        file.write(text.replace("whoami", "whoami\n    any"))
    node.signal(1)
    node.wait_logged("Reloading complete")
    ask(node, "e.a.example.")
    wait_sum(port, 3, "coredns_dns_requests_total", zone="a.example.")
    assert Metrics.of(port).sum("coredns_plugin_enabled", zone="a.example.", name="any") == 1


def test_an_address_that_is_taken_is_an_error(nodes, free_port):
    port = free_port()
    nodes.start(plain(port, "whoami"))
    second = nodes.make(plain(port, "whoami")).launch()
    assert second.exit_code(10) == 1
    assert "plugin/prometheus" in second.err() and "in use" in second.err()


def test_there_is_nothing_else(nodes, free_port):
    port = free_port()
    nodes.start(plain(port, "whoami"))
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5)


def test_what_a_node_says_of_its_name(nodes, etcd, free_port):
    ports = [free_port(), free_port()]
    first, _ = [nodes.start(corefile(etcd.endpoint, lease=3, directives=(f"prometheus 127.0.0.1:{port}",)))
                for port in ports]
    for node in nodes.nodes:
        node.wait_owns(etcd)
    for port in ports:
        wait_sum(port, 1, "idetcd_owned")
        wait_sum(port, 2, "idetcd_names")
        wait_sum(port, 1, "idetcd_watch_connected")
        wait_sum(port, 1, "idetcd_names_fresh")
        wait_sum(port, 0, "idetcd_watch_lag_revisions")
    one, other = (Metrics.of(port) for port in ports)
    assert one.sum("idetcd_token") != other.sum("idetcd_token")
    assert 0 < one.sum("idetcd_lease_remaining_seconds") <= 3
    assert 0 <= one.sum("idetcd_watch_lag_seconds") <= 3
    etcd.pause()
    wait_sum(ports[0], 0, "idetcd_owned", timeout=10)
    wait_sum(ports[0], 0, "idetcd_names_fresh", timeout=10)
    assert Metrics.of(ports[0]).sum("idetcd_watch_lag_seconds") > 2
    assert Metrics.of(ports[0]).sum("idetcd_token") == 0
    etcd.resume()
    wait_sum(ports[0], 1, "idetcd_owned", timeout=20)


# Grafana's dashboard 15762 and that of the coredns-mixin, without what is about Go; `$__rate_interval` and the like filled in.
DASHBOARDS = [
    'up{job="coredns"}',
    "coredns_build_info",
    "rate(process_cpu_seconds_total[10s])",
    "process_resident_memory_bytes",
    'sum(rate(coredns_dns_requests_total{proto="udp"}[10s]))',
    'sum(rate(coredns_dns_requests_total{proto="tcp"}[10s]))',
    'avg(rate(coredns_dns_request_size_bytes_sum{proto="udp"}[10s])) by (proto)',
    "sum(rate(coredns_dns_requests_total[10s])) by (type)",
    "sum(rate(coredns_dns_requests_total[10s])) by (zone)",
    "sum(rate(coredns_dns_responses_total[10s])) by (rcode)",
    "sum(rate(coredns_forward_requests_total[10s]))",
    "sum(rate(coredns_forward_requests_total[10s])) by (to)",
    "sum(rate(coredns_proxy_request_duration_seconds_count[10s])) by (to)",
    'sum(rate(coredns_forward_responses_total{rcode=~"SERVFAIL|REFUSED"}[10s])) by (rcode)',
    'sum(rate(coredns_proxy_request_duration_seconds_count{rcode=~"SERVFAIL|REFUSED"}[10s])) by (rcode)',
    "sum(rate(coredns_cache_hits_total[10s])) by (type)",
    "sum(rate(coredns_cache_misses_total[10s]))",
    "sum(coredns_cache_entries) by (type)",
    "sum(coredns_cache_hits_total) / (sum(coredns_cache_misses_total) + sum(coredns_cache_hits_total))",
    "sum(increase(coredns_dns_request_duration_seconds_bucket[10s])) by (le)",
    'sum(increase(coredns_dns_request_size_bytes_bucket{le!="0"}[10s])) by (le)',
    'sum(increase(coredns_dns_response_size_bytes_bucket{le!="0"}[10s])) by (le)',
    "histogram_quantile(0.99, sum(rate(coredns_dns_request_duration_seconds_bucket[10s])) by (server, zone, le))",
    "histogram_quantile(0.99, sum(rate(coredns_forward_request_duration_seconds_bucket[10s])) by (to, le))",
    "histogram_quantile(0.50, sum(rate(coredns_dns_request_size_bytes_bucket[10s])) by (server, zone, proto, le))",
    "histogram_quantile(0.99, sum(rate(coredns_dns_response_size_bytes_bucket[10s])) by (server, zone, proto, le))",
    "count(sum(coredns_plugin_enabled) by (name))",
    "sum(coredns_panics_total)",
]
# What the alerts of the mixin compare with a bound, and what must then be there to compare.
ALERTS = [
    "histogram_quantile(0.99, sum(rate(coredns_dns_request_duration_seconds_bucket[10s])) by (server, zone, le)) < 4",
    'sum(rate(coredns_dns_responses_total{rcode="SERVFAIL"}[10s])) / sum(rate(coredns_dns_responses_total[10s])) > 0.01',
    "histogram_quantile(0.99, sum(rate(coredns_forward_request_duration_seconds_bucket[10s])) by (to, le)) < 4",
    'sum(rate(coredns_forward_responses_total{rcode="SERVFAIL"}[10s])) / sum(rate(coredns_forward_responses_total[10s])) > 0.01',
    "sum(rate(coredns_forward_healthcheck_failures_total[10s])) by (to) >= 0",
    "sum(rate(coredns_forward_healthcheck_broken_total[10s])) >= 0",
]


def test_dashboards_and_alerts_have_data_of_a_real_prometheus(directory, nodes, etcd, free_port, launched):
    def handler(query, tcp):
        name = str(query.question[0].name)
        if name.startswith("bad"):
            return answer(query, rcode=dns.rcode.SERVFAIL)
        if name.startswith("no"):
            response = answer(query, rcode=dns.rcode.NXDOMAIN)
            response.authority.append(dns.rrset.from_text("example.", 60, "IN", "SOA", "ns. root. 1 2 3 4 60"))
            return response
        return answer(query, "A 192.0.2.1")
    with Upstream(handler) as upstream:
        scraped = [free_port(), free_port()]
        both = [nodes.start(corefile(etcd.endpoint, directives=(f"prometheus 127.0.0.1:{port}", "cache",
                                                                f"forward . {upstream.address}"))) for port in scraped]
        names = [node.wait_owns(etcd) for node in both]
        prometheus = Prometheus(directory, [f"127.0.0.1:{port}" for port in scraped])
        launched(prometheus)
        serial = 0

        def ask_all():
            nonlocal serial
            serial += 1
            for node in both:
                for name in (*names, "kept.example.", f"new{serial}.example.", f"no{serial}.example.", "no.example.",
                             f"bad{serial}.example."):
                    ask(node, name)
                ask(node, names[0], tcp=True)

        def has_data(result):
            ask_all()
            return result and all(sample["value"][1] != "NaN" for sample in result)
        prometheus.wait_series('up{job="coredns"}', lambda result: [sample["value"][1] for sample in result] == ["1", "1"])
        for expression in DASHBOARDS + ALERTS:
            prometheus.wait_series(expression, has_data)
        for port in scraped:
            assert promtool_problems(scrape(port)) == ""
