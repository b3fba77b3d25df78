"""What is in etcd is what every node answers."""

import time

import pytest

from corefiles import corefile
from dns_client import answers, ask, assert_nodata, assert_nxdomain, rcode, wait_gone, wait_resolves
from harness.processes import TIME_FACTOR, wait_until


@pytest.fixture
def cluster(etcd, nodes):
    return nodes.start_cluster(corefile(etcd.endpoint, options=["address 192.0.2.7 2001:db8::7"]), 3, etcd)


def test_put_and_delete_are_seen_everywhere_within_a_second(etcd, cluster):
    def seconds(wait):
        begin = time.monotonic()
        wait()
        return time.monotonic() - begin

    took = []
    for _ in range(3):  # a busy machine may be late once
        etcd.ctl("put", "extra.tf.local.", '{"ipv4":"198.51.100.1","ipv6":"2001:db8::1","port":"53"}')
        put = seconds(lambda: wait_resolves(cluster, "extra.tf.local.", "198.51.100.1"))
        wait_resolves(cluster, "extra.tf.local.", "2001:db8::1", "AAAA")
        etcd.ctl("put", "extra.tf.local.", '{"ipv4":"198.51.100.2","port":"53"}')
        changed = seconds(lambda: wait_resolves(cluster, "extra.tf.local.", "198.51.100.2"))
        assert_nodata(ask(cluster[0], "extra.tf.local.", "AAAA"), "tf.local.")
        etcd.ctl("del", "extra.tf.local.")
        gone = seconds(lambda: wait_gone(cluster, "extra.tf.local."))
        took.append((put, changed, gone))
    assert max(map(min, zip(*took))) < 1 * TIME_FACTOR, took


def test_one_family_only(etcd, cluster):
    etcd.put("four.tf.local.", '{"ipv4":"198.51.100.4"}')
    etcd.put("six.tf.local.", '{"ipv6":"2001:db8::6","port":"53"}')
    wait_resolves(cluster, "four.tf.local.", "198.51.100.4")
    wait_resolves(cluster, "six.tf.local.", "2001:db8::6", "AAAA")
    for node in cluster:
        assert_nodata(ask(node, "four.tf.local.", "AAAA"), "tf.local.")
        assert_nodata(ask(node, "six.tf.local.", "A"), "tf.local.")


def test_names_outside_the_patterns_zone(etcd, cluster):
    """The Go plugin answers every key, wherever it lies."""
    etcd.put("db.example.org.", '{"ipv4":"198.51.100.5"}')
    wait_resolves(cluster, "db.example.org.", "198.51.100.5")
    for node in cluster:
        response = ask(node, "db.example.org.", "AAAA")
        assert rcode(response) == "NOERROR" and not response.answer
        assert rcode(ask(node, "other.example.org.")) == "REFUSED", "we are no authority for example.org"


def test_empty_non_terminals_come_and_go(etcd, cluster):
    etcd.put("a.b.c.tf.local.", '{"ipv4":"198.51.100.1"}')
    etcd.put("z.b.c.tf.local.", '{"ipv4":"198.51.100.2"}')
    wait_resolves(cluster, "a.b.c.tf.local.", "198.51.100.1")
    wait_resolves(cluster, "z.b.c.tf.local.", "198.51.100.2")
    for node in cluster:
        assert_nodata(ask(node, "b.c.tf.local."), "tf.local.")
        assert_nodata(ask(node, "c.tf.local.", "AAAA"), "tf.local.")
        assert_nxdomain(ask(node, "x.b.c.tf.local."), "tf.local.")
        assert_nxdomain(ask(node, "x.c.tf.local."), "tf.local.")
    etcd.delete("a.b.c.tf.local.")
    wait_gone(cluster, "a.b.c.tf.local.")
    for node in cluster:
        assert_nodata(ask(node, "b.c.tf.local."), "tf.local.")  # z still holds it
    etcd.delete("z.b.c.tf.local.")
    wait_gone(cluster, "b.c.tf.local.")
    for node in cluster:
        assert_nxdomain(ask(node, "c.tf.local."), "tf.local.")


def test_a_name_below_a_name(etcd, cluster):
    etcd.put("host.tf.local.", '{"ipv4":"198.51.100.1"}')
    etcd.put("sub.host.tf.local.", '{"ipv4":"198.51.100.2"}')
    wait_resolves(cluster, "sub.host.tf.local.", "198.51.100.2")
    wait_resolves(cluster, "host.tf.local.", "198.51.100.1")
    etcd.delete("host.tf.local.")
    wait_until(lambda: answers(cluster[0], "host.tf.local.") == [], 5, "host to have no address")
    assert_nodata(ask(cluster[0], "host.tf.local."), "tf.local.")
    assert answers(cluster[0], "sub.host.tf.local.") == ["198.51.100.2"]


GARBAGE = {
    "empty": b"",
    "text": b"hello",
    "open": b'{"ipv4":"198.51.100.1"',
    "number": b"42",
    "string": b'"198.51.100.1"',
    "null": b"null",
    "array": b'["198.51.100.1"]',
    "wrongtype": b'{"ipv4":5}',
    "objectaddr": b'{"ipv4":{"a":1}}',
    "badaddr": b'{"ipv4":"999.1.1.1"}',
    "swapped": b'{"ipv4":"2001:db8::1"}',
    "badsix": b'{"ipv6":"fe80::1%eth0"}',
    "hostname": b'{"ipv4":"example.org"}',
    "trailing": b'{"ipv4":"198.51.100.1"} {"ipv4":"198.51.100.2"}',
    "binary": bytes(range(256)),
    "nul": b'{"ipv4":"198.51.100.1\0"}',
    "utf8": b'{"ipv4":"\xff\xfe"}',
    "deep": b"[" * 100_000,
    "deepobject": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
}


@pytest.mark.hostile
def test_a_bad_value_costs_that_key_alone(etcd, cluster):
    for name, value in GARBAGE.items():
        if value:
            etcd.ctl("put", f"{name}.tf.local.", input_bytes=value)
        else:
            etcd.put(f"{name}.tf.local.", value)  # etcdctl takes empty input for no input
    etcd.put("big.tf.local.", b'{"ipv4":"' + b"9" * 1_400_000 + b'"}')
    etcd.put("good.tf.local.", '{"ipv4":"198.51.100.1","port":"53"}')
    wait_resolves(cluster, "good.tf.local.", "198.51.100.1")
    for node in cluster:
        for name in [*GARBAGE, "big"]:
            assert answers(node, f"{name}.tf.local.") == "NXDOMAIN", name
            node.wait_logged(f'etcd key "{name}.tf.local." ', times=1)
        assert answers(node, "worker1.tf.local.") == ["192.0.2.7"]
        node.wait_logged("etcd holds a value of ", times=1)
    for i in range(20):
        etcd.put("text.tf.local.", f"hello {i}")
    etcd.put("good.tf.local.", '{"ipv4":"198.51.100.2","port":"53"}')
    wait_resolves(cluster, "good.tf.local.", "198.51.100.2")
    for node in cluster:
        node.wait_logged('etcd key "text.tf.local." ', times=1)  # and however often it changes


@pytest.mark.hostile
def test_a_bad_value_at_start(etcd, nodes):
    """The same through the snapshot instead of the watch."""
    for name, value in GARBAGE.items():
        etcd.put(f"{name}.tf.local.", value)
    etcd.put("good.tf.local.", '{"ipv4":"198.51.100.1","port":"53"}')
    node = nodes.start(corefile(etcd.endpoint))
    wait_resolves([node], "good.tf.local.", "198.51.100.1")
    for name in GARBAGE:  # not denied before all names are read
        wait_gone([node], f"{name}.tf.local.")
    assert node.wait_owns(etcd) == "worker1.tf.local."


@pytest.mark.hostile
def test_a_good_value_that_turns_bad_is_withdrawn(etcd, cluster):
    etcd.put("host.tf.local.", '{"ipv4":"198.51.100.1"}')
    wait_resolves(cluster, "host.tf.local.", "198.51.100.1")
    etcd.put("host.tf.local.", "rubbish")
    wait_gone(cluster, "host.tf.local.")
    etcd.put("host.tf.local.", '{"ipv4":"198.51.100.2"}')
    wait_resolves(cluster, "host.tf.local.", "198.51.100.2")


@pytest.mark.hostile
def test_keys_that_are_no_host_names(etcd, cluster):
    value = '{"ipv4":"198.51.100.9"}'
    for key in (b"nodot.tf.local", b"/registry/pods/x", b"a..tf.local.", b".", b"..", b" ", b"sp ace.tf.local.",
                b"x" * 64 + b".tf.local.", (b"x" * 60 + b".") * 5, b"n\0ul.tf.local.", b"\xff.tf.local.", b"new\nline.tf.local.",
                b"0", b"~.tf.local.", b"k" * 30_000, b"\\.tf.local.", b"\\9.tf.local."):
        etcd.put(key, value)
    etcd.put("good.tf.local.", '{"ipv4":"198.51.100.1"}')
    wait_resolves(cluster, "good.tf.local.", "198.51.100.1")
    for node in cluster:
        assert answers(node, "nodot.tf.local.") == "NXDOMAIN"
        node.wait_logged("etcd holds a key of ", times=1)
        assert answers(node, "worker2.tf.local.") == ["192.0.2.7"]


def test_a_thousand_names(etcd, nodes):
    """More than one page of the snapshot, then more than one message of the watch."""
    etcd.put_many({f"host{i}.tf.local.": f'{{"ipv4":"10.0.{i // 256}.{i % 256}"}}' for i in range(1000)})
    node = nodes.start(corefile(etcd.endpoint))
    for i in (0, 1, 255, 256, 500, 999):
        wait_resolves([node], f"host{i}.tf.local.", f"10.0.{i // 256}.{i % 256}")
    etcd.ctl("del", "--prefix", "host")
    for i in (0, 999):
        wait_gone([node], f"host{i}.tf.local.")


def test_a_snapshot_of_many_pages(etcd, nodes):
    """Also more than the 4 MB that a gRPC message may have: each value is padded by a field that is none of ours."""
    padding = "x" * 300
    count = 25_000
    etcd.put_many({f"h{i}.tf.local.": f'{{"ipv4":"10.{i >> 16}.{i >> 8 & 255}.{i & 255}","note":"{padding}"}}' for i in range(count)})
    node = nodes.start(corefile(etcd.endpoint, options=["address 192.0.2.7"]))
    wait_resolves([node], "worker1.tf.local.", "192.0.2.7", timeout=20)
    for i in [*range(0, count, 997), count - 1]:
        assert answers(node, f"h{i}.tf.local.") == [f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}"]
    etcd.ctl("del", "--prefix", "h")  # one revision: twenty-five thousand events in one watch response, in fragments
    for i in (0, count // 2, count - 1):
        wait_gone([node], f"h{i}.tf.local.", timeout=20)
    assert answers(node, "worker1.tf.local.") == ["192.0.2.7"]


def test_many_changes_of_one_name_end_with_the_last(etcd, cluster):
    for i in range(200):
        etcd.put("busy.tf.local.", f'{{"ipv4":"10.1.0.{i}"}}')
    wait_resolves(cluster, "busy.tf.local.", "10.1.0.199")


def test_two_names_for_one_address(etcd, cluster):
    etcd.put("one.tf.local.", '{"ipv4":"192.0.2.7"}')
    wait_resolves(cluster, "one.tf.local.", "192.0.2.7")
    assert answers(cluster[0], "worker1.tf.local.") == ["192.0.2.7"]


def test_a_prefix_wiped_by_an_operator(etcd, cluster):
    etcd.put_many({f"host{i}.tf.local.": '{"ipv4":"198.51.100.1"}' for i in range(20)})
    wait_resolves(cluster, "host19.tf.local.", "198.51.100.1")
    etcd.ctl("del", "--prefix", "")
    wait_gone(cluster, "host19.tf.local.")
    for node in cluster:
        node.wait_logged("mass deletion: 23 of 23 names vanished from etcd at once")
    # The names go, and the nodes come back: each claims one again.
    wait_until(lambda: len(etcd.names()) == 3, 15, lambda: f"three names again: {etcd.pairs()}", interval=0.05)
    assert set(etcd.names()) == {f"worker{i}.tf.local." for i in (1, 2, 3)}
    assert len({value["id"] for value in etcd.names().values()}) == 3
    wait_resolves(cluster, "worker3.tf.local.", "192.0.2.7")
