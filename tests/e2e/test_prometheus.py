"""What a node shows to Prometheus: names and labels of CoreDNS, numbers that are right, and a real Prometheus on whose
data the expressions of CoreDNS's dashboards and alerts, and of our dashboard, have results."""

import json
import os
import re
import time
import urllib.error
import urllib.request

import dns.rcode
import dns.rrset
import pytest

from corefiles import corefile
from dns_client import RawUdp, ask, make_query, rcode
from harness.metrics import Metrics, Prometheus, promtool_problems, scrape
from harness.node import ROOT
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


def settled(port):
    """The metrics when all that was asked so far is counted: those queries that found out whether the node answers."""
    def condition():
        metrics = Metrics.of(port)
        asked = metrics.sum("coredns_dns_requests_total")
        return asked and asked == metrics.sum("coredns_dns_request_duration_seconds_count") and metrics
    return wait_until(condition, 10, lambda: f"every query to be timed\n{scrape(port)}")


def test_queries_are_counted_as_coredns_counts_them(nodes, free_port):
    port = free_port()
    node = nodes.start(plain(port, "hosts {\n192.0.2.7 h.example.\nfallthrough\n}", "acl {\nblock type ANY\n}", "whoami"))
    before = settled(port)
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


def test_a_node_that_observes_asks_for_no_name(nodes, etcd, free_port):
    """By that an alert knows it."""
    port = free_port()
    nodes.start(corefile(etcd.endpoint, options=("observe",), directives=(f"prometheus 127.0.0.1:{port}",)))
    wait_sum(port, 1, "idetcd_names_fresh")
    wait_sum(port, 0, "idetcd_owned")
    assert Metrics.of(port).sum("idetcd_claim_requests_total") == 0


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
        assert abs(time.time() - Metrics.of(port).sum("idetcd_watch_changed_timestamp_seconds")) < 600
        wait_sum(port, 0, "idetcd_watch_lag_revisions")
    one, other = (Metrics.of(port) for port in ports)
    assert one.sum("idetcd_token") != other.sum("idetcd_token")
    assert 0 < one.sum("idetcd_lease_remaining_seconds") <= 3
    assert 0 <= one.sum("idetcd_names_age_seconds") <= 3
    etcd.pause()
    wait_sum(ports[0], 0, "idetcd_owned", timeout=10)
    wait_sum(ports[0], 0, "idetcd_names_fresh", timeout=10)
    assert Metrics.of(ports[0]).sum("idetcd_names_age_seconds") > 2
    assert Metrics.of(ports[0]).sum("idetcd_token") == 0
    etcd.resume()
    wait_sum(ports[0], 1, "idetcd_owned", timeout=20)


# Families of CoreDNS that its dashboards and alerts name, and their labels; of histograms with their buckets.
QUERY = ("server", "zone", "view")
CACHE = ("server", "zones", "view")
PROXY = ("proxy_name", "to")
TIMES = [0.00025 * 2**n for n in range(16)]
SIZES = [0, 100, 200, 300, 400, 511, 1023, 2047, 4095, 8291, 16e3, 32e3, 48e3, 64e3]
FAMILIES = {
    "coredns_build_info": ("version", "revision", "goversion"),
    "coredns_panics_total": (),
    "coredns_plugin_enabled": (*QUERY, "name"),
    "coredns_dns_requests_total": (*QUERY, "proto", "family", "type"),
    "coredns_dns_do_requests_total": QUERY,
    "coredns_dns_responses_total": (*QUERY, "rcode", "plugin"),
    "coredns_acl_allowed_requests_total": ("server", "view"),
    "coredns_acl_blocked_requests_total": QUERY,
    "coredns_acl_filtered_requests_total": QUERY,
    "coredns_acl_dropped_requests_total": QUERY,
    "coredns_cache_requests_total": CACHE,
    "coredns_cache_misses_total": CACHE,
    "coredns_cache_drops_total": CACHE,
    "coredns_cache_prefetch_total": CACHE,
    "coredns_cache_served_stale_total": CACHE,
    "coredns_cache_hits_total": (*CACHE, "type"),
    "coredns_cache_evictions_total": (*CACHE, "type"),
    "coredns_cache_entries": (*CACHE, "type"),
    "coredns_hosts_entries": ("hostsfile",),
    "coredns_hosts_reload_timestamp_seconds": (),
    "coredns_health_request_failures_total": (),
    "coredns_proxy_healthcheck_failures_total": PROXY,
    "coredns_proxy_conn_cache_hits_total": (*PROXY, "proto"),
    "coredns_proxy_conn_cache_misses_total": (*PROXY, "proto"),
    "coredns_forward_healthcheck_broken_total": (),
    "coredns_forward_max_concurrent_rejects_total": (),
    "coredns_forward_requests_total": ("to",),
    "coredns_forward_responses_total": ("to", "rcode"),
    "coredns_forward_healthcheck_failures_total": ("to",),
    "coredns_forward_conn_cache_hits_total": ("to", "proto"),
    "coredns_forward_conn_cache_misses_total": ("to", "proto"),
    "process_cpu_seconds_total": (),
    "process_resident_memory_bytes": (),
    "process_open_fds": (),
    "process_max_fds": (),
    "process_start_time_seconds": (),
    # Ours.
    "idetcd_queries_dropped_total": ("worker", "reason"),
}
HISTOGRAMS = {
    "coredns_dns_request_duration_seconds": (QUERY, TIMES),
    "coredns_dns_request_size_bytes": ((*QUERY, "proto"), SIZES),
    "coredns_dns_response_size_bytes": ((*QUERY, "proto"), SIZES),
    "coredns_proxy_request_duration_seconds": ((*PROXY, "rcode"), TIMES),
    "coredns_forward_request_duration_seconds": (("to", "rcode"), TIMES),
    "coredns_health_request_duration_seconds": ((), None),
}


def test_names_labels_and_buckets_are_those_of_coredns(nodes, free_port, directory):
    port = free_port()
    hosts = os.path.join(directory, "hosts")
    with open(hosts, "w", encoding="ascii") as file:
        file.write("192.0.2.7 h.example.\n")
    os.utime(hosts, (1000, 2000.5))
    with Upstream() as upstream:
        node = nodes.start(plain(port, "acl {\nfilter type MX\nblock type ANY\ndrop type TXT\n}", "cache",
                                 f"hosts {hosts} {{\nfallthrough\n}}", f"health 127.0.0.1:{free_port()}",
                                 f"forward . {upstream.address} {{\nforce_tcp\n}}"))
        ask(node, "one.example.", want_dnssec=True)
        for rdtype in ("A", "MX", "ANY"):
            ask(node, "two.example.", rdtype)
        with RawUdp(node.port) as udp:
            udp.send(make_query("two.example.", "TXT").to_wire())
        wait_sum(port, 1, "coredns_acl_dropped_requests_total")
        wait_sum(port, 1, "idetcd_queries_dropped_total", reason="acl")
    metrics = Metrics.of(port)
    assert metrics.sum("coredns_hosts_reload_timestamp_seconds") == 2000.5
    for name, labels in FAMILIES.items():
        assert name in metrics.names(), name
        assert set(metrics.labels(name)) == set(labels), name
    for name, (labels, bounds) in HISTOGRAMS.items():
        assert {f"{name}_{part}" for part in ("bucket", "sum", "count")} <= metrics.names(), name
        assert set(metrics.labels(f"{name}_bucket")) == {*labels, "le"}, name
        found = [float(having["le"]) for sample, having, _ in metrics.samples if sample == f"{name}_bucket"]
        if bounds:
            assert found[:len(bounds) + 1] == [*bounds, float("inf")], name
    assert promtool_problems(metrics.text) == ""


# What the two Grafana dashboards 15762 and coredns-mixin draw, without what is about Go. Their variables as Grafana fills
# them in: all instances, and a range that four scrapes fit in.
ALL = 'job="coredns",instance=~".+"'
INSTANCE = 'instance=~".+"'
RANGE = "[10s]"


def quantile(q, name, labels):
    return f"histogram_quantile({q}, sum(rate({name}_bucket{{{ALL}}}{RANGE})) by ({labels}))"


DASHBOARD_15762 = [
    f"up{{{ALL}}}",
    f"rate(process_cpu_seconds_total{{{ALL}}}{RANGE})",
    f"process_resident_memory_bytes{{{ALL}}}",
    *(f'sum(rate(coredns_dns_requests_total{{{INSTANCE},proto="{proto}"}}{RANGE}))' for proto in ("udp", "tcp")),
    *(f'avg(rate(coredns_dns_request_size_bytes_sum{{{INSTANCE},proto="{proto}"}}{RANGE})) by (proto)'
      for proto in ("udp", "tcp")),
    f"sum(rate(coredns_dns_requests_total{{{INSTANCE}}}{RANGE})) by (type)",
    f"sum(rate(coredns_dns_responses_total{{{INSTANCE}}}{RANGE})) by (rcode)",
    f"sum(rate(coredns_forward_requests_total{RANGE}))",
    f'sum(rate(coredns_forward_responses_total{{rcode=~"SERVFAIL|REFUSED"}}{RANGE})) by (rcode)',
    f"sum(rate(coredns_cache_hits_total{{{INSTANCE}}}{RANGE})) by (type)",
    f"sum(rate(coredns_cache_misses_total{{{INSTANCE}}}{RANGE})) by (type)",
    "sum(coredns_cache_entries) by (type)",
    # Of its later revisions.
    f"coredns_build_info{{{ALL}}}",
    f"sum(rate(coredns_proxy_request_duration_seconds_count{{{INSTANCE}}}{RANGE}))",
    f'sum(rate(coredns_proxy_request_duration_seconds_count{{{INSTANCE},rcode=~"SERVFAIL|REFUSED"}}{RANGE})) by (rcode)',
    *(f'sum(increase({name}_bucket{{{INSTANCE},le!="0"}}{RANGE})) by (le)'
      for name in ("coredns_dns_request_duration_seconds", "coredns_dns_request_size_bytes",
                   "coredns_dns_response_size_bytes")),
]
DASHBOARD_OF_MIXIN = [
    "sum(up{job=\"coredns\"})",
    "sum(coredns_panics_total{job=\"coredns\"})",
    f"sum(rate(coredns_dns_responses_total{{{ALL}}}{RANGE})) by (rcode)",
    f"sum(rate(coredns_forward_responses_total{{{ALL}}}{RANGE})) by (rcode)",
    quantile(0.99, "coredns_dns_request_duration_seconds", "server, zone, le"),
    quantile(0.99, "coredns_forward_request_duration_seconds", "to, le"),
    f"sum(rate(coredns_dns_requests_total{{{ALL}}}{RANGE})) by (type)",
    f"sum(rate(coredns_dns_requests_total{{{ALL}}}{RANGE})) by (zone)",
    f"sum(rate(coredns_forward_requests_total{{{ALL}}}{RANGE})) by (to)",
    f"count(sum(coredns_plugin_enabled{{{ALL}}}) by (name))",
    *(quantile(q, name, "server, zone, proto, le") for q in (0.99, 0.50)
      for name in ("coredns_dns_request_size_bytes", "coredns_dns_response_size_bytes")),
    f"sum(coredns_cache_hits_total{{{ALL}}}) / (sum(coredns_cache_misses_total{{{ALL}}}) + sum(coredns_cache_hits_total{{{ALL}}}))",
    f"sum(rate(coredns_cache_hits_total{{{ALL}}}{RANGE})) by (type)",
    f"sum(rate(coredns_cache_misses_total{{{ALL}}}{RANGE}))",
    f"sum(coredns_cache_entries{{{ALL}}}) by (type)",
    f"process_resident_memory_bytes{{{ALL}}}",
    f"rate(process_cpu_seconds_total{{{ALL}}}{RANGE})",
    'count(coredns_build_info{job="coredns"}) by (instance)',  # its variable
]
# The alerts of the mixin and of kube-prometheus: what they compare, and the comparison. The test makes the first ones
# true, and shows of the others what is compared; CoreDNSDown is true when the servers are gone.
JOB = 'job="coredns"'
ALERTS_THAT_FIRE = [
    f'sum(rate(coredns_dns_responses_total{{{JOB},rcode="SERVFAIL"}}{RANGE}))'
    f" / sum(rate(coredns_dns_responses_total{{{JOB}}}{RANGE})) > 0.01",
    f'sum(rate(coredns_dns_responses_total{{{JOB},rcode="SERVFAIL"}}{RANGE}))'
    f" / sum(rate(coredns_dns_responses_total{{{JOB}}}{RANGE})) > 0.03",
    f'sum(rate(coredns_forward_responses_total{{{JOB},rcode="SERVFAIL"}}{RANGE}))'
    f" / sum(rate(coredns_forward_responses_total{{{JOB}}}{RANGE})) > 0.01",
    f'sum(rate(coredns_forward_responses_total{{{JOB},rcode="SERVFAIL"}}{RANGE}))'
    f" / sum(rate(coredns_forward_responses_total{{{JOB}}}{RANGE})) > 0.03",
]
ALERTS_THAT_DO_NOT = [
    quantile(0.99, "coredns_dns_request_duration_seconds", "server, zone, le") + " <= 4",
    quantile(0.99, "coredns_forward_request_duration_seconds", "to, le") + " <= 4",
    f"sum(rate(coredns_forward_healthcheck_failures_total{{{JOB}}}{RANGE})) by (to) <= 0",
    f"sum(rate(coredns_forward_healthcheck_broken_total{{{JOB}}}{RANGE})) <= 0",
    f"increase(coredns_panics_total{{{JOB}}}{RANGE}) <= 0",
]
DOWN = 'absent(up{job="coredns"} == 1)'


def our_dashboard():
    """Its queries, with its variables as Grafana fills them in."""
    with open(os.path.join(ROOT, "src", "deploy", "grafana", "idetcd.json"), encoding="utf-8") as file:
        dashboard = json.load(file)
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    for variable in dashboard["templating"]["list"][1:]:  # the first one is the data source
        [(series, label)] = re.findall(r"^label_values\((.*), (\w+)\)$", variable["query"]["query"])
        queries.append(f"count({series}) by ({label})")
    assert len(queries) > 20
    values = {"$job": "coredns", "$instance": ".+", "$__rate_interval": RANGE.strip("[]")}
    return [re.sub(r"\$\w+", lambda match: values[match[0]], query) for query in queries]


def is_drawn(result):
    return result and all(sample["value"][1] != "NaN" for sample in result)


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
            return is_drawn(result)
        up = 'up{job="coredns"}'
        prometheus.wait_series(up, lambda result: [sample["value"][1] for sample in result] == ["1", "1"])
        assert prometheus.query(DOWN) == []
        for expression in DASHBOARD_15762 + DASHBOARD_OF_MIXIN + ALERTS_THAT_FIRE + ALERTS_THAT_DO_NOT + our_dashboard():
            prometheus.wait_series(expression, has_data)
        for port in scraped:
            assert promtool_problems(scrape(port)) == ""
        for node in both:
            node.kill()
        prometheus.wait_series(DOWN)
