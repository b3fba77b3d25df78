"""`health` and `ready`: what probes are told, over the life of a process and its reloads."""

import re
import signal
import socket
import time

import pytest

from corefiles import corefile
from dns_client import exchange, make_query, rcode
from harness.processes import TIME_FACTOR, wait_until
from http_client import ask, connection, get, listens


def with_endpoints(port, ready_port=None, lame_duck="0s", inside="whoami"):
    ready = f"    ready 127.0.0.1:{ready_port}\n" if ready_port else ""
    return f". {{\n{ready}    health 127.0.0.1:{port} {{\n        lameduck {lame_duck}\n    }}\n    {inside}\n}}\n"


def rewrite(node, text):
    with open(node.corefile_path, "w", encoding="utf-8") as file:
        file.write(text)


def reload(node, text, outcome="Reloading complete"):
    before = (node.out() + node.err()).count(outcome)
    rewrite(node, text)
    node.signal(signal.SIGUSR1)
    node.wait_logged(outcome, times=before + 1)


def test_health_says_ok_to_any_client(nodes, free_port):
    port = free_port()
    nodes.start(with_endpoints(port))
    with connection(port) as client:
        assert ask(client, "/health") == (200, "OK")
        assert ask(client, "/health", "HEAD") == (200, "")
        assert ask(client, "/other")[0] == 404
        assert ask(client, "/health", "POST")[0] == 405


def test_without_an_address_it_listens_everywhere(nodes, free_port):
    port = free_port()
    nodes.start(f". {{\n    health :{port}\n    whoami\n}}\n")
    assert get(port, "/health") == (200, "OK")
    if socket.has_dualstack_ipv6():
        assert get(port, "/health", host="::1") == (200, "OK")


def test_a_name_that_is_no_service_is_an_error_at_the_start(nodes):
    node = nodes.make(". {\n    health localhost:a\n    whoami\n}\n").launch()
    assert node.exit_code(10) == 1
    assert "plugin/health: localhost:a: " in node.err()


def test_a_port_of_another_program_is_an_error(nodes, free_port):
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        node = nodes.make(with_endpoints(port)).launch()
        assert node.exit_code(10) == 1
        assert f"plugin/health: listen tcp 127.0.0.1:{port}: Address already in use" in node.err()


def test_at_the_start_a_port_may_come_free(nodes, free_port):
    """The process before this one may still be ending."""
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        node = nodes.make(with_endpoints(port)).launch()
        time.sleep(0.3)  # the length of what it has to wait for
        assert node.running()
    node.wait_answers()
    assert get(port, "/health") == (200, "OK")


def test_lame_duck_answers_until_its_end(nodes, free_port):
    port, ready_port = free_port(), free_port()
    lame_duck = 4 * TIME_FACTOR
    node = nodes.start(with_endpoints(port, ready_port, f"{lame_duck * 1000:.0f}ms"))
    assert get(ready_port, "/ready") == (200, "OK")
    begin = time.monotonic()
    node.signal(signal.SIGTERM)
    node.wait_logged(f"Going into lameduck mode for {lame_duck * 1000:.0f} ms")
    assert get(ready_port, "/ready") == (503, "Shutting down")
    answered = 0
    while not answered or time.monotonic() - begin < lame_duck / 3:  # a part of what is meant to pass
        assert get(port, "/health") == (200, "OK")
        assert rcode(exchange(node, make_query("a.example."))) == "NOERROR"
        answered += 1
    assert answered > 0 and node.running()
    assert node.exit_code(20) == 0
    assert time.monotonic() - begin >= lame_duck
    assert not listens(port)


def test_an_interrupt_ends_the_lame_duck(nodes, free_port):
    node = nodes.start(with_endpoints(free_port(), lame_duck="1h"))
    node.signal(signal.SIGINT)
    node.wait_logged("Going into lameduck mode")
    node.signal(signal.SIGINT)
    assert node.exit_code(5) == 2


def test_the_name_is_kept_for_the_lame_duck(nodes, etcd, free_port):
    node = nodes.start(corefile(etcd.endpoint, directives=[
        f"health 127.0.0.1:{free_port()} {{\n        lameduck {4000 * TIME_FACTOR:.0f}ms\n    }}"]))
    name = node.wait_owns(etcd)
    node.signal(signal.SIGTERM)
    node.wait_logged("Going into lameduck mode")
    time.sleep(1)  # a part of what is meant to pass
    assert node.owned_name(etcd) == name
    assert node.exit_code(20) == 0
    assert node.owned_name(etcd) is None


def test_ready_says_what_is_missing(nodes, stopped_etcd, free_port):
    port, other = free_port(), free_port()
    node = nodes.start(corefile(stopped_etcd.endpoint, directives=[f"ready 127.0.0.1:{port}"]))
    status, said = get(port, "/ready")
    assert status == 503 and re.fullmatch(r"idetcd: names not read from etcd, own name not claimed; etcd is away since [\dT:-]+Z\n", said)
    node.wait_logged("[INFO] plugin/ready: Not ready: idetcd: names not read from etcd, own name not claimed")
    stopped_etcd.start()
    wait_until(lambda: get(port, "/ready") == (200, "OK"), 20, lambda: str(get(port, "/ready")))
    assert node.owned_name(stopped_etcd)
    observer = nodes.start(corefile(stopped_etcd.endpoint, options=["observe"], directives=[f"ready 127.0.0.1:{other}"]))
    wait_until(lambda: get(other, "/ready") == (200, "OK"), 20, lambda: str(get(other, "/ready")))
    assert observer.owned_name(stopped_etcd) is None


@pytest.mark.parametrize("monitor, wanted", [("until-ready", (200, "OK")),
                                             ("continuously", (503, "idetcd: own name not claimed; etcd is away"))])
def test_ready_goes_on_asking_only_if_told(nodes, etcd, free_port, monitor, wanted):
    port = free_port()
    node = nodes.start(corefile(etcd.endpoint, directives=[f"ready 127.0.0.1:{port} {{\n        monitor {monitor}\n    }}"]))
    node.wait_owns(etcd)
    wait_until(lambda: get(port, "/ready") == (200, "OK"), 10, lambda: str(get(port, "/ready")))
    etcd.kill()  # an orderly end lets the lease end while the watch goes on
    node.wait_logged("is not this node's name for the time being", timeout=30)
    status, said = get(port, "/ready")
    assert (status, said.partition(" since ")[0]) == wanted


def test_connections_survive_a_reload(nodes, free_port):
    port, ready_port = free_port(), free_port()
    node = nodes.start(with_endpoints(port, ready_port))
    with connection(port) as health, connection(ready_port) as ready:
        assert ask(health, "/health") == (200, "OK")
        assert ask(ready, "/ready") == (200, "OK")
        local = health.sock.getsockname()
        for _ in range(5):
            reload(node, with_endpoints(port, ready_port, "1ms"))
            assert ask(health, "/health") == (200, "OK")
            assert ask(ready, "/ready") == (200, "OK")
        assert health.sock.getsockname() == local, "the same connection"


def test_a_reload_moves_the_endpoint(nodes, free_port):
    port, next_port = free_port(), free_port()
    node = nodes.start(with_endpoints(port))
    reload(node, with_endpoints(next_port))
    assert get(next_port, "/health") == (200, "OK")
    wait_until(lambda: not listens(port), 10, "the old address to be closed")
    reload(node, f". {{\n    health :{next_port}\n    whoami\n}}\n")
    assert get(next_port, "/health", host="127.0.0.2") == (200, "OK")
    reload(node, ". {\n    whoami\n}\n")
    wait_until(lambda: not listens(next_port), 10, "the endpoint to be closed")


def test_a_reload_that_fails_loses_no_endpoint(nodes, free_port):
    port, ready_port = free_port(), free_port()
    node = nodes.start(with_endpoints(port, ready_port))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bad = with_endpoints(taken.getsockname()[1], ready_port)
        with connection(port) as client:
            for _ in range(20):
                reload(node, bad, "Restart failed")
                assert ask(client, "/health") == (200, "OK")
                assert get(ready_port, "/ready") == (200, "OK")
                assert rcode(exchange(node, make_query("a.example."))) == "NOERROR"


def test_clients_that_say_nothing_keep_no_probe_out(nodes, free_port):
    port = free_port()
    nodes.start(with_endpoints(port))
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(200)]
    try:
        assert get(port, "/health") == (200, "OK")
    finally:
        for client in idle:
            client.close()


def test_a_successor_goes_on_with_the_endpoint(nodes, directory, free_port):
    port = free_port()
    handover = ["-handover", f"{directory}/handover"]
    node = nodes.make(with_endpoints(port), arguments=handover).start()
    for _ in range(3):
        new = nodes.make(with_endpoints(port), port=node.port, arguments=handover).launch()
        assert node.exit_code(8) == 0
        new.wait_answers()
        assert get(port, "/health") == (200, "OK")
        node = new
