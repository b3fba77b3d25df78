"""What the control socket says of the traffic: rate, failures and durations of each second, and the busiest names. No block
here has `prometheus`."""

import time

import dns.rcode
import pytest

from corefiles import corefile
from dns_client import ask, patient, resolves, wait_resolves
from harness.processes import wait_until
from harness.upstreams import Upstream, answer
from test_cache import reload

NAME = "worker1.tf.local."


def ask_often(node, name, times, rdtype="A", **where):
    for _ in range(times):
        ask(node, name, rdtype, **where)


def said(node, path):
    status, body = node.control(path)
    assert status == 200, body
    return body


def history(node, since=0):
    return said(node, f"/v1/history?since={since}")


def shares(top):
    return {(entry["name"], entry["type"]): entry["share"] for entry in top["names"]}


def wait_counted(node, queries):
    """The history, when it has so many queries."""
    def condition():
        body = history(node)
        total = sum(second["queries"] for second in body["seconds"])
        assert total <= queries, body
        return total == queries and body
    return wait_until(condition, 10, lambda: f"{queries} queries: {history(node)}")


def asked_before(node):
    """How many queries it had when this was called."""
    seen = [history(node)]

    def condition():
        seen.append(history(node))
        return seen[-1]["seconds"] and seen[-1]["seconds"][-1]["at"] > seen[0]["now"]
    wait_until(condition, 10, lambda: f"a second that was not over at first: {seen[-1]}")
    return sum(second["queries"] for second in seen[-1]["seconds"])


@pytest.fixture
def node(etcd, nodes):
    [node] = nodes.start_cluster(corefile(etcd.endpoint, options=["address 192.0.2.7"]), 1, etcd)
    wait_resolves([node], NAME, "192.0.2.7")
    return node


def test_history_of_queries_over_udp_and_tcp(node):
    before = asked_before(node)
    begin = time.time()
    ask_often(node, NAME, 20)
    ask_often(node, NAME, 5, tcp=True)
    body = wait_counted(node, before + 25)
    recent = [second for second in body["seconds"] if second["at"] >= begin - 3]
    assert sum(second["queries"] for second in recent) >= 25
    assert [second["at"] for second in body["seconds"]] == list(
        range(body["seconds"][0]["at"], body["seconds"][-1]["at"] + 1)), "one a second"
    assert body["seconds"][-1]["at"] < body["now"] + 1.5
    for second in body["seconds"]:
        if second["queries"] == 0:
            assert second["p50_seconds"] is None and second["p99_seconds"] is None
        else:
            assert 0 < second["p50_seconds"] <= second["p99_seconds"] < 10


def test_history_goes_on_from_where_it_was_read(node):
    last = wait_until(lambda: history(node)["seconds"], 10, "the first second to be over")[-1]["at"]
    later = wait_until(lambda: history(node, last)["seconds"], 10, "the next second to be over")
    assert later[0]["at"] == last + 1
    assert not history(node, later[-1]["at"] + 1000)["seconds"]


def test_a_reload_keeps_the_history(node):
    ask_often(node, NAME, 10)
    total = asked_before(node)
    assert total >= 10
    reload(node, "limit 10", "limit 11")
    ask_often(node, NAME, 3)
    wait_counted(node, total + 3)


def test_top_has_the_busiest_names(node):
    ask_often(node, NAME.upper(), 30)
    ask_often(node, NAME, 6, "AAAA")
    ask_often(node, "nobody.tf.local.", 12)

    def condition():
        body = said(node, "/v1/top?seconds=60")
        found = shares(body)
        return (NAME, "AAAA") in found and ("nobody.tf.local.", "A") in found and body
    body = wait_until(condition, 10, lambda: f"all names: {said(node, '/v1/top?seconds=60')}")
    assert [entry["share"] for entry in body["names"]] == sorted((entry["share"] for entry in body["names"]), reverse=True)
    assert sum(body["rcodes"].values()) == pytest.approx(1) and {"NOERROR", "NXDOMAIN"} <= set(body["rcodes"])
    assert 1 <= body["seconds"] <= 60 and body["sampled"] >= 12
    assert 0 < body["p50_seconds"] <= body["p99_seconds"]
    for entry in body["names"]:
        assert entry["rate"] == pytest.approx(entry["share"] * body["rate"])


def test_the_status_has_the_rate(node):
    ask_often(node, NAME, 10)

    def condition():
        section = said(node, "/v1/status")["queries"]
        return section["rate"] > 0 and section
    queries = wait_until(condition, 10, "a second with queries")
    assert set(queries) == {"rate", "p50_seconds", "p99_seconds", "seconds"}
    assert 1 <= queries["seconds"] <= 10 and queries["p99_seconds"] > 0


def test_wrong_parameters_are_refused(node):
    for path in ("/v1/history?since=x", "/v1/history?since=nan", "/v1/top?seconds=0", "/v1/top?seconds=-1", "/v1/top?seconds=x"):
        status, body = node.control(path)
        assert status == 400 and list(body) == ["error"], path


def test_answers_that_come_later_and_failures(nodes):
    def handler(query, _):
        name = query.question[0].name.to_text()
        return answer(query, rcode=dns.rcode.SERVFAIL) if name.startswith("bad") else answer(query, "A 192.0.2.9")
    with Upstream(handler) as upstream:
        node = nodes.start(f"example.org {{\n    forward . {upstream.address} {{\n        max_fails 0\n    }}\n}}\n")
        wait_until(patient(lambda: resolves(node, "good.example.org.", "192.0.2.9")), 10, "an answer of the upstream")
        bad = ask(node, "bad.example.org.")
        assert bad.rcode() == dns.rcode.SERVFAIL
        assert ask(node, "elsewhere.test.").rcode() == dns.rcode.REFUSED

        def condition():
            body = said(node, "/v1/top?seconds=60")
            return {"NOERROR", "SERVFAIL", "REFUSED"} <= set(body["rcodes"]) and body
        body = wait_until(condition, 10, lambda: f"three rcodes: {said(node, '/v1/top?seconds=60')}")
        found = shares(body)
        assert ("good.example.org.", "A") in found and ("bad.example.org.", "A") in found
        assert ("elsewhere.test.", "A") in found, "it is of no block"
        assert sum(second["failures"] for second in history(node)["seconds"]) >= 1


def test_both_loops_are_counted(nodes):
    node = nodes.start(". {\n    workers 2\n    whoami\n}\n")
    before = asked_before(node)
    for _ in range(20):  # each from a port of its own
        ask(node, "x.test.")
    wait_counted(node, before + 20)
