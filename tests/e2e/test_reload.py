"""`reload`: a Corefile that has changed is taken over without a signal; and reloads that fail lose nothing."""

import contextlib
import ctypes
import hashlib
import os
import re
import select
import signal
import socket
import struct

import pytest

from corefiles import corefile
from dns_client import RawTcp, answers, header, question, wait_says
from harness.load import Load
from harness.metrics import Metrics
from harness.processes import TIME_FACTOR, wait_until
from harness.upstreams import Upstream
from http_client import ask as ask_http
from http_client import connection, get

CHANGED = "[INFO] plugin/reload: The Corefile has changed: Reloading"


def write(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def plain(port, address="192.0.2.1", more=""):
    return f""". {{
    bind 127.0.0.1
    reload 2s
    prometheus 127.0.0.1:{port}
    hosts {{
        {address} a.test
    }}
{more}}}
"""


def wait_answers_with(node, address):
    wait_until(lambda: answers(node, "a.test.") == [address], 20, lambda: f"a.test to be {address}\n{node.logs()}")


class Looks:
    """Counts how often a file was opened and closed again, by whoever reads it; context manager."""

    _CLOSE_NOWRITE = 0x10
    _libc = ctypes.CDLL(None, use_errno=True)

    def __init__(self, path):
        self._path = path

    def __enter__(self):
        self._fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self._libc.inotify_add_watch(self._fd, os.fsencode(self._path), self._CLOSE_NOWRITE) > 0
        return self

    def __exit__(self, *_):
        os.close(self._fd)

    def wait(self, count):
        """For `count` more: those of the node under test, which opens the file once each time it looks. One at a time: the kernel
        makes one of several that nobody has read."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._fd, 4096):
                pass
        for _ in range(count):
            assert select.select([self._fd], [], [], 20 * TIME_FACTOR)[0], "nobody looks"
            event = os.read(self._fd, 4096)
            assert len(event) % struct.calcsize("iIII") == 0, event


# --- what is taken, and what is not ---

def test_a_changed_corefile_is_taken_without_a_signal(nodes, free_port):
    port = free_port()
    node = nodes.start(plain(port))
    digest = hashlib.sha512(plain(port).encode()).hexdigest()
    node.wait_logged(f"[INFO] plugin/reload: Running configuration SHA512 = {digest}")
    assert Metrics.of(port).sum("coredns_reload_version_info", hash="sha512", value=digest) == 1
    write(node.corefile_path, plain(port, "192.0.2.2"))
    wait_answers_with(node, "192.0.2.2")
    node.wait_logged(CHANGED, times=1)
    digest = hashlib.sha512(plain(port, "192.0.2.2").encode()).hexdigest()
    wait_until(lambda: Metrics.of(port).sum("coredns_reload_version_info", value=digest) == 1, 5, "the digest to be shown")
    assert Metrics.of(port).sum("coredns_reload_version_info") == 1, "and no other one"
    assert Metrics.of(port).sum("coredns_reload_failed_total") == 0


def test_a_changed_file_that_is_imported_is_taken_too(nodes, directory, free_port):
    """By name, and found by a pattern; in the sandbox, as all nodes here."""
    port = free_port()
    os.mkdir(f"{directory}/conf.d")
    write(f"{directory}/hosts.conf", "hosts {\n 192.0.2.1 a.test\n}\n")
    node = nodes.start(f"a.test {{\n bind 127.0.0.1\n reload 2s\n prometheus 127.0.0.1:{port}\n import hosts.conf\n}}\nimport conf.d/*\n")
    wait_answers_with(node, "192.0.2.1")
    write(f"{directory}/hosts.conf", "hosts {\n 192.0.2.2 a.test\n}\n")
    wait_answers_with(node, "192.0.2.2")
    assert answers(node, "b.test.") == "REFUSED"
    write(f"{directory}/conf.d/b.conf", "b.test {\n bind 127.0.0.1\n whoami\n}\n")
    wait_until(lambda: answers(node, "b.test.") == [], 20, node.logs)
    os.unlink(f"{directory}/conf.d/b.conf")
    wait_until(lambda: answers(node, "b.test.") == "REFUSED", 20, node.logs)
    node.wait_logged("Reloading complete", times=3)
    assert Metrics.of(port).sum("coredns_reload_failed_total") == 0


def test_an_unchanged_file_is_not_read_in(nodes, free_port):
    node = nodes.start(plain(free_port()))
    with open(node.corefile_path, encoding="ascii") as file:
        write(f"{node.corefile_path}.new", file.read())
    os.rename(f"{node.corefile_path}.new", node.corefile_path)  # another file with the same content
    with Looks(node.corefile_path) as looks:
        os.utime(node.corefile_path)
        looks.wait(3)
    assert "Reloading" not in node.out()


def test_a_broken_file_changes_nothing_and_is_said_once(nodes, free_port):
    port = free_port()
    node = nodes.start(plain(port))
    with Looks(node.corefile_path) as looks:
        write(node.corefile_path, plain(port, "192.0.2.2", "    nonsense\n"))
        node.wait_logged("Restart failed: ", timeout=20)
        looks.wait(3)
        assert answers(node, "a.test.") == ["192.0.2.1"]
        assert Metrics.of(port).sum("coredns_reload_failed_total") == 1
        node.wait_logged("Unknown directive 'nonsense'", times=1)
        node.signal(signal.SIGHUP)  # which tries once more
        node.wait_logged("Restart failed: ", times=2)
        assert Metrics.of(port).sum("coredns_reload_failed_total") == 2
        digest = hashlib.sha512(plain(port).encode()).hexdigest()
        assert Metrics.of(port).sum("coredns_reload_version_info", value=digest) == 1, "what is in use"
        write(node.corefile_path, plain(port, "192.0.2.2"))
        wait_answers_with(node, "192.0.2.2")
    assert Metrics.of(port).sum("coredns_reload_failed_total") == 2


def test_a_corefile_that_has_gone_is_an_error_like_others(nodes, directory):
    """Also where no -conf names it: then a server that starts without a Corefile would be one of CoreDNS's default."""
    node = nodes.make("")
    write(f"{directory}/Corefile", plain(9).replace("    prometheus 127.0.0.1:9\n", ""))
    node.corefile_path = None
    node.launch(cwd=directory)
    node.wait_answers()
    os.rename(f"{directory}/Corefile", f"{directory}/Corefile.old")
    node.wait_logged("Restart failed: cannot read Corefile: No such file or directory", timeout=20)
    assert answers(node, "a.test.") == ["192.0.2.1"]
    write(f"{directory}/Corefile", plain(9, "192.0.2.2").replace("    prometheus 127.0.0.1:9\n", ""))
    wait_answers_with(node, "192.0.2.2")
    node.wait_logged("Restart failed", times=1)


def test_standard_input_is_not_read_again(nodes):
    node = nodes.make("")
    text = ". {\n bind 127.0.0.1\n reload 2s\n whoami\n}\n"
    node.corefile_path = None
    node.arguments = ["-conf", "stdin"]
    node.start(stdin_text=text)
    node.wait_logged("[WARNING] plugin/reload: The Corefile came from standard input, which is not read again", times=1)


# --- what stays ---

def udp_socket(port):
    """The inode of the socket that listens there on 127.0.0.1."""
    with open("/proc/net/udp", encoding="ascii") as file:
        lines = [line.split() for line in file.readlines()[1:]]
    return [fields[9] for fields in lines if fields[1] == f"0100007F:{port:04X}"]


def test_name_cache_sockets_and_connections_stay(nodes, etcd, free_port):
    port = free_port()
    with Upstream() as upstream:
        text = corefile(etcd.endpoint, lease=20, options=["address 192.0.2.7"], directives=[
            "bind 127.0.0.1", "reload 2s", f"prometheus 127.0.0.1:{port}", "cache", f"forward . {upstream.address}"])
        node = nodes.start(text)
        wait_says(node, "worker1.tf.local.")
        assert answers(node, "kept.example.org.") == ["192.0.2.1"]
        keys, token, sockets = etcd.pairs(), Metrics.of(port).sum("idetcd_token"), udp_socket(node.port)
        assert token > 0 and len(sockets) == 1
        with RawTcp(node.port) as tcp, connection(port) as http:
            tcp.ask(header(1) + question("worker1.tf.local."))
            assert ask_http(http, "/metrics")[0] == 200
            local = http.sock.getsockname()
            asked = len(upstream.names())
            write(node.corefile_path, text.replace("    cache\n", "    cache\n    errors\n    minimal\n"))
            node.wait_logged("Reloading complete", timeout=20)
            assert answers(node, "kept.example.org.") == ["192.0.2.1"]
            assert len(upstream.names()) == asked, "it was cached"
            assert tcp.ask(header(2) + question("worker1.tf.local."))[:2] == b"\0\2"
            assert ask_http(http, "/metrics")[0] == 200 and http.sock.getsockname() == local
        assert etcd.pairs() == keys, "the same claim, under the same lease"
        wait_until(lambda: Metrics.of(port).sum("idetcd_token") == token, 5, "the token to be what it was")
        assert udp_socket(node.port) == sockets
        assert node.logs().count("claimed worker1.tf.local.") == 1, node.logs()


# --- many ---

@pytest.mark.serial
def test_twenty_reloads_lose_no_query(nodes, etcd, directory, free_port):
    """Of cluster names and cached ones; most by signal, since `reload` takes two seconds and more for each."""
    names = [f"db{number}.tf.local." for number in range(50)]
    etcd.put_many({name: f'{{"ipv4":"192.0.2.{number + 100}"}}' for number, name in enumerate(names)})
    cached = [f"c{number}.example.org." for number in range(50)]
    with Upstream() as upstream:
        def text(version):
            extra = [f"hosts {{\n 192.0.2.9 v{version}.test\n fallthrough\n }}"] + ["errors"] * (version % 2)
            return corefile(etcd.endpoint, lease=20, options=["address 192.0.2.7"], directives=[
                "bind 127.0.0.1", "reload 2s", f"prometheus 127.0.0.1:{port}", f"health 127.0.0.1:{health}", "cache",
                f"forward . {upstream.address}", *extra])

        port, health = free_port(), free_port()
        node = nodes.start(text(0))
        wait_says(node, "worker1.tf.local.")
        keys = etcd.pairs()
        wait_until(lambda: all(answers(node, name) == [f"192.0.2.{number + 100}"] for number, name in enumerate(names)), 10,
                   "the names to be there")
        assert all(answers(node, name) == ["192.0.2.1"] for name in cached)
        with Load(directory, node.port, names + cached, rate=2000) as load:
            for version in range(1, 21):
                write(node.corefile_path, text(version))
                if version % 10:
                    node.signal(signal.SIGHUP)
                wait_until(lambda v=version: answers(node, f"v{v}.test.") == ["192.0.2.9"], 20, node.logs)
        print(load)
        assert load.lost == 0
        assert load.other == {}
        assert etcd.pairs() == keys
        assert Metrics.of(port).sum("coredns_reload_failed_total") == 0
        assert get(health, "/health") == (200, "OK")


def memory_of(node):
    """What is resident, in bytes."""
    with open(f"/proc/{node.pid}/status", encoding="ascii") as file:
        return 1024 * int(re.search(r"VmRSS:\s+(\d+)", file.read())[1])


@pytest.mark.serial
def test_a_thousand_broken_reloads_lose_nothing(nodes, free_port):
    """By what is wrong in a line, and by what shows only when most of the new configuration is there."""
    dns, health, ready, metrics, new = (free_port() for _ in range(5))
    good = f""".:{dns} {{
    bind 127.0.0.1
    reload 1h
    health 127.0.0.1:{health}
    ready 127.0.0.1:{ready}
    prometheus 127.0.0.1:{metrics}
    cache
    forward . 127.0.0.1:{dns + 1 if dns < 65535 else 1}
}}
test {{
    bind 127.0.0.1
    whoami
}}
"""
    node = nodes.start(good)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        broken = [good + "nonsense {",
                  good.replace("whoami", "whoami\n    nonsense"),
                  good.replace(f"health 127.0.0.1:{health}", f"health 127.0.0.1:{port}"),
                  good.replace(f"ready 127.0.0.1:{ready}", f"ready 127.0.0.1:{new}")
                      .replace(f"prometheus 127.0.0.1:{metrics}", f"prometheus 127.0.0.1:{port}"),
                  good.replace("cache", "cache 10\n    private") + "b.test {\n    bind 192.0.2.77\n    whoami\n}\n",
                  good + f"b.test:{port} {{\n    bind 127.0.0.1\n    whoami\n}}\n"]
        failed = 0

        def break_it(times):
            nonlocal failed
            with open(node.out_path, encoding="utf-8") as log:
                log.seek(0, os.SEEK_END)
                for _ in range(times):
                    write(node.corefile_path, broken[failed % len(broken)])
                    node.signal(signal.SIGHUP)
                    wait_until(lambda: "Restart failed" in log.read(), 20, node.logs, interval=0.001)
                    failed += 1

        with RawTcp(dns) as tcp, connection(health) as probe, connection(metrics) as scraper:
            def use_all():
                assert tcp.ask(header(1) + question("a.test."))[:2] == b"\0\1"
                assert ask_http(probe, "/health") == (200, "OK")
                assert ask_http(scraper, "/metrics")[0] == 200

            def break_and_use(times):
                for _ in range(times // 10):  # a connection that is idle for long is closed
                    break_it(10)
                    use_all()

            break_and_use(300)  # until what is made once is made
            descriptors, memory = len(os.listdir(f"/proc/{node.pid}/fd")), memory_of(node)
            break_and_use(700)
            grown = memory_of(node) - memory
            assert grown < 8 << 20, f"{grown} bytes more than after the first 300"
            wait_until(lambda: len(os.listdir(f"/proc/{node.pid}/fd")) <= descriptors + 2, 10,
                       lambda: f"{len(os.listdir(f'/proc/{node.pid}/fd'))} descriptors instead of {descriptors}")
        assert "Reloading complete" not in node.out()
    # Listeners are still there for those who come new, and the next good file is taken.
    assert node.answers() and node.answers(port=dns)
    assert get(health, "/health") == (200, "OK") and get(ready, "/ready") == (200, "OK")
    assert Metrics.of(metrics).sum("coredns_reload_failed_total") == 1000
    write(node.corefile_path, good.replace("whoami", "hosts {\n192.0.2.1 a.test\n}"))
    node.signal(signal.SIGHUP)
    node.wait_logged("Reloading complete")
    wait_answers_with(node, "192.0.2.1")
