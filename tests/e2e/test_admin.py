"""`admin`: the page for operators, in a real browser, of a real cluster; and who may read it."""

import http.client
import json
import signal

import pytest

from corefiles import corefile
from dns_client import exchange, make_query
from harness import ports
from harness.browser import browser
from harness.etcd import EtcdMember
from harness.processes import wait_until
from http_client import connection, get, listens


def with_page(etcd, port):
    """The clusters' Corefile; a node without `port` has no page."""
    return corefile(etcd.endpoint, options=["address 192.0.2.7"],
                    directives=[f"admin 127.0.0.1:{port}", "bind 127.0.0.1", "forward . 127.0.0.1:9", "cache 30"] if port else [])


@pytest.fixture
def chrome(directory):
    with browser(directory) as window:
        window.size(1280, 1000)
        yield window


def slots_of(port):
    return json.loads(get(port, "/api/members")[1])["clusters"][0]["slots"]


@pytest.fixture
def cluster(etcd, nodes, free_port):
    """Two nodes, the first with a page; it, where its page is, and what it owns."""
    port = free_port()
    first = nodes.start(with_page(etcd, port))
    own = first.wait_owns(etcd)
    second = nodes.start(with_page(etcd, None))
    second.wait_owns(etcd)
    # A node has its name a moment after etcd has it, and an answer is shared for a moment.
    wait_until(lambda: json.loads(get(port, "/api/status")[1])["clusters"][0]["name"] == own, 20, f"{own} on the page")
    wait_until(lambda: len(slots_of(port)) == 2, 20, "two members on the page")
    return first, port, own.rstrip(".")


def members_shown(chrome):
    return chrome.run("return Array.from(document.querySelectorAll('#clusters tbody tr th > :first-child'), e => e.textContent)")


def open_page(chrome, port, own):
    chrome.open(f"http://127.0.0.1:{port}/")
    chrome.wait_text("h1", own)
    chrome.wait(lambda: len(members_shown(chrome)) == 2, "two members")


def answer(port, path, host):
    """Status, fields and body where the request is for `host`."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        client.putrequest("GET", path, skip_host=True)
        client.putheader("Host", host)
        client.endheaders()
        response = client.getresponse()
        return response.status, response.headers, response.read().decode()
    finally:
        client.close()


def test_the_page_shows_the_cluster_as_it_is(cluster, chrome, etcd, nodes):
    first, port, own = cluster
    open_page(chrome, port, own)
    assert sorted(members_shown(chrome)) == sorted(name.rstrip(".") for name in etcd.names())
    assert own in chrome.text("#clusters tr.me") and "this node" in chrome.text("#clusters tr.me")
    chrome.wait_text("#state", "ready")
    assert "192.0.2.7" in chrome.text("#node") and etcd.endpoint in chrome.text("#node")
    assert "2 of 10" in chrome.text("#tile-members").replace("\n", " ")
    # A member that comes appears, one that goes vanishes, and nobody does anything.
    third = nodes.start(with_page(etcd, None))
    name = third.wait_owns(etcd).rstrip(".")
    chrome.wait(lambda: name in members_shown(chrome), name)
    assert third.terminate() == 0
    chrome.wait(lambda: name not in members_shown(chrome), f"{name} to go")
    # What is drained says so.
    assert first.control("/v1/drain", "POST")[0] == 200
    chrome.wait_text("#state", "drained")
    chrome.wait_text("#clusters tr.me", "drained")
    assert chrome.errors() == []


def test_the_page_shows_who_runs_the_etcd_of_machines_that_founded_their_cluster(nodes, free_port, chrome):
    port = free_port()
    peers = ports.free_ports(3)
    text = f""". {{
    bind 127.0.0.2
    admin 127.0.0.1:{port}
    idetcd {{
        pattern worker{{{{.ID}}}}.tf.local.
        limit 1
        address 127.0.0.2
        peers 127.0.0.2
        peers-port {peers}
    }}
}}
"""
    node = nodes.make(text).launch().wait_answers(host="127.0.0.2")
    wait_until(lambda: node.control("/v1/status")[1]["clusters"][0]["name"], 20, node.logs)
    chrome.open(f"http://127.0.0.1:{port}/")
    chrome.wait_text("#peers", "leads")
    assert f"127.0.0.2:{peers}" in chrome.text("#peers")
    assert chrome.errors() == []
    for number in range(peers, peers + 3):
        ports.release(number)


def test_the_page_asks_nobody_but_its_server(cluster, chrome):
    _, port, own = cluster
    open_page(chrome, port, own)
    chrome.wait(lambda: chrome.run("return performance.getEntriesByType('resource').length") > 6, "some requests")
    asked = chrome.run("return performance.getEntriesByType('resource').map(e => e.name)")
    assert all(url.startswith((f"http://127.0.0.1:{port}/api/", "data:")) for url in asked), asked
    assert chrome.errors() == []
    # The policy holds: neither what is written into the document nor another server gets anywhere.
    chrome.run("""const s = document.createElement('script'); s.textContent = 'window.taken = true'; document.body.append(s);
                  const d = document.createElement('p'); d.setAttribute('style', 'position: fixed'); d.id = 'styled'; document.body.append(d);""")
    assert chrome.run("return window.taken === undefined && getComputedStyle(document.getElementById('styled')).position") == "static"
    refused = chrome.driver.execute_async_script("const done = arguments[0]; fetch('http://127.0.0.1:9/').then(() => done(''), e => done(String(e)))")
    assert refused
    found = []  # they come a moment later

    def are_found():
        found.extend(chrome.errors())
        return sum("Content Security Policy" in line for line in found) >= 3
    chrome.wait(are_found, "three errors")


def test_the_charts_show_what_is_asked(cluster, chrome):
    first, port, own = cluster
    open_page(chrome, port, own)

    def asks_until(seen):
        return lambda: exchange(first, make_query(f"{own}.", "A")) and seen()
    for chart in ("#rate", "#latency"):
        chrome.wait(asks_until(lambda chart=chart: chrome.run(
            f"return document.querySelectorAll('{chart} path.line').length") == 2), f"two lines in {chart}")
    chrome.wait(asks_until(lambda: chrome.text("#tile-rate .v").split()[0] not in ("0", "–")), "a rate")
    chrome.wait(asks_until(lambda: "µs" in chrome.text("#tile-p99 .v") or "ms" in chrome.text("#tile-p99 .v")), "a latency")
    assert "median" in chrome.run("return document.querySelector('#latency svg').getAttribute('aria-label')")
    assert chrome.errors() == []


def test_a_server_that_is_away_is_said_and_so_is_its_return(cluster, chrome):
    first, port, own = cluster
    open_page(chrome, port, own)
    assert not chrome.text("#away")
    assert first.terminate() == 0
    chrome.wait_text("#away", "has not answered since")
    assert chrome.text("#state") == "away"
    assert len(members_shown(chrome)) == 2, "what was known stays"
    first.start()
    chrome.run("document.getElementById('again').click()")
    chrome.wait(lambda: not chrome.text("#away"), "the notice to go")
    chrome.wait_text("#state", "ready")


def test_a_node_that_is_not_ready_says_why(stopped_etcd, nodes, free_port, chrome):
    port = free_port()
    nodes.start(with_page(stopped_etcd, port))
    chrome.open(f"http://127.0.0.1:{port}/")
    chrome.wait_text("#state", "not ready")
    chrome.wait_text("#not-ready", "own name not claimed")
    chrome.wait_text("#members .missing", "cannot be read")
    stopped_etcd.start()
    chrome.wait_text("#state", "ready")
    chrome.wait(lambda: len(members_shown(chrome)) == 1, "the only member")
    assert not chrome.text("#not-ready")


def test_what_is_amiss_while_it_serves_is_said(etcd, nodes, free_port, chrome):
    port = free_port()
    node = nodes.start(with_page(etcd, port))
    node.wait_owns(etcd)
    chrome.open(f"http://127.0.0.1:{port}/")
    chrome.wait_text("#state", "ready")
    chrome.wait_text("#clusters .legend", "this node")
    etcd.kill()
    chrome.wait_text("#degraded", "etcd is away since")
    chrome.wait_text("#name", "Name lost")
    etcd.start()
    chrome.wait(lambda: not chrome.text("#degraded"), "the notice to go")


def test_an_endpoint_of_another_cluster_is_shown(etcd, nodes, free_port, directory, chrome):
    port = free_port()
    stranger = EtcdMember(directory, "stranger")
    try:
        stranger.start()
        node = nodes.start(corefile(f"{etcd.endpoint} {stranger.endpoint}", directives=[f"admin 127.0.0.1:{port}"]))
        node.wait_owns(etcd)
        chrome.open(f"http://127.0.0.1:{port}/")
        chrome.wait_text("#node", f"{stranger.endpoint}: it is of another cluster")
        chrome.wait_text("#degraded", f"{stranger.endpoint} is not used")
        assert chrome.errors() == []
    finally:
        stranger.close()


def test_the_page_fits_a_phone(cluster, chrome):
    _, port, own = cluster
    chrome.size(360, 740, phone=True)
    open_page(chrome, port, own)
    chrome.wait_text("#node", "etcd")
    assert chrome.run("return document.documentElement.scrollWidth") <= 360
    wide = chrome.run("""return Array.from(document.querySelectorAll('body *')).filter(e =>
        e.getClientRects().length && getComputedStyle(e).position !== 'absolute' && e.getBoundingClientRect().right > 360.5).map(e => e.outerHTML.slice(0, 80))""")
    assert wide == []


# Text against what is behind it, as WCAG 2.2 has it (1.4.3); what is partly transparent does not occur.
CONTRASTS = """
const light = c => c.match(/[0-9.]+/g).slice(0, 3).map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (!/, 0\\)$/.test(c)) return c; } return 'rgb(255,255,255)'; };
return Array.from(document.querySelectorAll('body *')).filter(e => e.getClientRects().length && !e.closest('svg, script, .quiet') &&
    Array.from(e.childNodes).some(n => n.nodeType === 3 && n.textContent.trim())).map(e => {
  const [a, b] = [light(getComputedStyle(e).color), light(behind(e))].sort((x, y) => y - x);
  return [(a + .05) / (b + .05), e.textContent.trim().slice(0, 40)];
}).filter(([ratio]) => ratio < 4.5)"""


def test_light_and_dark_can_both_be_read(cluster, chrome):
    _, port, own = cluster
    grounds = []
    for scheme in ("light", "dark"):
        chrome.scheme(scheme)
        open_page(chrome, port, own)
        grounds.append(chrome.run("return getComputedStyle(document.body).backgroundColor"))
        assert chrome.run(CONTRASTS) == [], scheme
    assert grounds[0] != grounds[1]


def test_only_who_asks_for_this_server_is_answered(cluster):
    _, port, own = cluster
    for host in ("127.0.0.1", f"127.0.0.1:{port}", "localhost", "[::1]:80", "192.0.2.99", own, f"{own.upper()}.:{port}"):
        for path in ("/", "/api/status", "/api/members"):
            assert answer(port, path, host)[0] == 200, (host, path)
    for host in ("example.org", f"evil.example:{port}", f"{own}.example", "tf.local", "", "localhost.example"):
        for path in ("/", "/api/status", "/api/members", "/api/history"):
            status, _, body = answer(port, path, host)
            assert status == 421 and own not in body, (host, path)


def test_it_says_the_same_as_the_control_socket_and_changes_nothing(cluster):
    first, port, own = cluster
    status, headers, body = answer(port, "/api/status", "localhost")
    there = first.control("/v1/status")[1]
    assert status == 200 and json.loads(body).keys() == there.keys()
    assert json.loads(body)["clusters"][0]["name"] == there["clusters"][0]["name"] == f"{own}."
    assert [slot["name"] for slot in slots_of(port)] == [slot["name"] for slot in first.control("/v1/members")[1]["clusters"][0]["slots"]]
    assert headers["Cache-Control"] == "no-store" and headers["X-Content-Type-Options"] == "nosniff"
    with connection(port) as client:
        client.request("POST", "/api/status")
        assert client.getresponse().status == 405
    for path in ("/v1/status", "/v1/drain", "/api/drain", "/api", "/api/status/"):
        assert get(port, path)[0] == 404, path
    page = answer(port, "/", "localhost")[1]
    assert page["Referrer-Policy"] == "no-referrer" and "frame-ancestors 'none'" in page["Content-Security-Policy"]


def test_the_page_is_on_loopback_unless_configured(nodes, free_port):
    port = free_port()
    node = nodes.start(f". {{\n    admin 0.0.0.0:{port}\n    whoami\n}}\n")
    warning = f"[WARNING] plugin/admin: the page is open to all who reach 0.0.0.0:{port}"
    node.wait_logged(warning, times=1)
    node.signal(signal.SIGUSR1)
    node.wait_logged("Reloading complete")
    node.wait_logged(warning, times=1)
    quiet = free_port()
    other = nodes.start(f". {{\n    admin localhost:{quiet}\n    whoami\n}}\n")
    assert get(quiet, "/")[0] == 200 and not listens(quiet, "127.0.0.2")
    assert "plugin/admin" not in other.out() + other.err()
