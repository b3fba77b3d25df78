"""Answers that look forged: guesses at the ID or the question, and names in another case (RFC 5452, 0x20)."""

import copy
import os
import socket
import threading

import dns.message
import dns.name
import dns.rrset
import pytest

from dns_client import answers, ask
from harness.namespace import Namespace
from harness.upstreams import Upstream, answer

NAME = "www.abcdefghijklmnopqrstuvwxyz.example."


class Spoofed:
    """Between the query and the honest answer over UDP come `guesses` others, by `guess(query, i)`."""

    def __init__(self, guess, guesses):
        self.guess, self.guesses = guess, guesses

    def __call__(self, query, tcp):
        honest = answer(query, "A 192.0.2.1")
        if tcp:
            return honest
        return [*(self.guess(query, i) for i in range(self.guesses)), honest]


def wrong_id(query, i):
    forged = answer(query, "A 192.0.2.66")
    forged.id = (query.id + 1 + i) % 65536
    return forged


def wrong_question(query, i):
    other = copy.deepcopy(query)
    other.question[0].name = dns.name.from_text(f"n{i}.example.")
    forged = answer(other, "A 192.0.2.66")
    forged.id = query.id
    return forged


@pytest.mark.parametrize("guess", [wrong_id, wrong_question])
def test_after_four_near_misses_the_question_goes_over_tcp(nodes, guess):
    with Upstream(Spoofed(guess, 3)) as upstream:
        node = nodes.start(f". {{\n    forward . {upstream.address}\n}}\n")
        assert answers(node, "a.example.") == ["192.0.2.1"]
        assert [tcp for _, tcp in upstream.queries] == [False], "three may be strays"
        upstream.handler.guesses = 4
        assert answers(node, "b.example.") == ["192.0.2.1"]
        assert [tcp for _, tcp in upstream.queries] == [False, False, True]


def test_the_right_guess_that_comes_too_late_is_not_believed(nodes):
    """As many guesses as fit, a right one among the last."""
    def guess(query, i):
        return answer(query, "A 192.0.2.66") if i == 99 else wrong_id(query, i)
    with Upstream(Spoofed(guess, 100)) as upstream:
        node = nodes.start(f". {{\n    forward . {upstream.address}\n}}\n")
        for i in range(5):
            assert answers(node, f"n{i}.example.") == ["192.0.2.1"]


# --- 0x20 ---

def forwarding(nodes, upstream, *more):
    directives = "".join(f"    {line}\n" for line in more)
    return nodes.start(f". {{\n{directives}    forward . {upstream.address} {{\n        use_caps_for_id\n    }}\n}}\n")


def names(upstream):
    return [query.question[0].name.to_text() for query, _ in upstream.queries]


def folded(query, tcp):
    """As a server that answers in lower case."""
    lower = copy.deepcopy(query)
    lower.question[0].name = dns.name.from_text(query.question[0].name.to_text().lower())
    return answer(lower, "A 192.0.2.1").to_wire()  # a Message that is late would have the question over TCP not counted


def test_random_case_goes_out_and_the_clients_own_comes_back(nodes):
    def handler(query, tcp):
        response = answer(query, f"CNAME alias.{query.question[0].name.to_text()}")
        response.answer.append(dns.rrset.from_text(f"alias.{query.question[0].name.to_text()}", 60, "IN", "A", "192.0.2.1"))
        return response
    with Upstream(handler) as upstream:
        node = forwarding(nodes, upstream, "cache")
        for name in (NAME, NAME.upper(), NAME.title()):
            response = ask(node, name)
            assert response.question[0].name.to_text() == name
            assert response.answer[0].name.to_text() == name
            assert response.answer[1].name.to_text().lower() == f"alias.{NAME}"
            target = response.answer[0][0].target.to_text()
            assert target in (f"alias.{NAME}", f"alias.{name}"), "the case that was drawn is nobody's affair"
        assert len(upstream.queries) == 1, "the cache does not care"
        assert not upstream.queries[0][1] and names(upstream)[0] not in (NAME, NAME.upper())


def test_an_answer_in_another_case_is_asked_for_over_tcp(nodes):
    with Upstream(folded) as upstream:
        node = forwarding(nodes, upstream)
        for i in range(3):
            assert answers(node, f"n{i}.{NAME}") == ["192.0.2.1"]
        assert [tcp for _, tcp in upstream.queries] == [False, True] * 3


def test_off_by_default(nodes):
    with Upstream(folded) as upstream:
        node = nodes.start(f". {{\n    forward . {upstream.address}\n}}\n")
        assert answers(node, NAME.title()) == ["192.0.2.1"]
        assert names(upstream) == [NAME.title()]


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")
def test_source_ports_are_as_many_as_the_kernel_gives_to_clients(directory, nodes):
    """As the page says how to have more than by default: those of services are left out."""
    ports = []

    def serve(sock):
        while True:
            packet, (host, port) = sock.recvfrom(4096)
            if not packet:
                return
            ports.append(port)
            sock.sendto(answer(dns.message.from_wire(packet), "A 192.0.2.1").to_wire(), (host, port))

    namespace = Namespace(directory)
    try:
        for name, value in (("ip_local_port_range", "1024 65535"), ("ip_local_reserved_ports", "10000-49999")):
            namespace.run("sh", "-c", f"echo {value} > /proc/sys/net/ipv4/{name}")
        with namespace.entered(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind(("127.0.0.1", 0))
            thread = threading.Thread(target=serve, args=(sock,))
            thread.start()
            try:
                node = nodes.start(f". {{\n    forward . 127.0.0.1:{sock.getsockname()[1]}\n}}\n")
                for i in range(200):
                    assert answers(node, f"n{i}.example.") == ["192.0.2.1"]
                assert node.terminate() == 0
            finally:
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
                    end.sendto(b"", sock.getsockname())
                thread.join()
    finally:
        namespace.close()
    assert min(ports) < 10000 and max(ports) > 60999 and len(set(ports)) > 180
    assert not [port for port in ports if port < 1024 or 10000 <= port < 50000]
