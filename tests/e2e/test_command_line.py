"""Options, signals, sockets, and what is printed."""

import contextlib
import os
import re
import resource
import signal
import socket
import subprocess
import time

import pytest

from corefiles import corefile
from dns_client import RawTcp, RawUdp, answers, ask, header, question, rcode, resolves, wait_resolves
from harness import unit_file
from harness.node import binary
from harness.processes import Process, TIME_FACTOR, assert_takes_less, wait_until
from harness.service_manager import ServiceManager

WHOAMI = ". {\n    whoami\n}\n"


def run(*arguments, cwd="/", text="", user=None):
    result = subprocess.run([binary(), *arguments], capture_output=True, text=True, check=False, cwd=cwd, input=text,
                            timeout=20 * TIME_FACTOR, user=user)
    return result.returncode, result.stdout, result.stderr


def one_line(text):
    lines = text.strip().splitlines()
    assert len(lines) == 1, f"one clear line: {text!r}"
    return lines[0]


# --- options ---

@pytest.mark.parametrize("flag", ["-version", "--version", "-version=true"])
def test_version(flag):
    code, out, err = run(flag)
    assert code == 0 and err == ""
    assert re.search(r"idetcd.*\d+\.\d+", out, re.IGNORECASE)


def test_plugins():
    code, out, err = run("-plugins")
    assert code == 0 and err == ""
    for name in ("bind", "errors", "idetcd", "log", "whoami"):
        assert re.search(rf"\b{name}\b", out)


@pytest.mark.parametrize("flag", ["-help", "--help", "-h"])
def test_help(flag):
    code, out, err = run(flag)
    assert code == 0
    for option in ("conf", "dns.port", "pidfile", "plugins", "quiet", "version", "validate"):
        assert f"-{option}" in out + err


@pytest.mark.parametrize("arguments", [["-frob"], ["--frob=1"], ["-conf"], ["-dns.port", "dns"], ["-dns.port=-1"],
                                       ["-dns.port=65536"], ["-quiet=maybe"], ["-p"]])
def test_bad_flags(arguments):
    code, _, err = run(*arguments)
    assert code == 2
    assert arguments[0].lstrip("-").split("=")[0] in err


@pytest.mark.parametrize("arguments", [["stray"], ["-quiet", "stray"], ["-conf", "stdin", "stray"], ["--", "stray"]])
def test_stray_arguments(arguments):
    code, _, err = run(*arguments)
    assert code == 1
    assert "stray" in err or "argument" in err


def test_a_corefile_that_is_not_there(directory):
    code, _, err = run("-conf", f"{directory}/nowhere")
    assert code == 1
    assert "nowhere" in one_line(err)


@pytest.mark.parametrize("spelling", [["-dns.port", "{}"], ["-dns.port={}"], ["--dns.port={}"], ["-p", "{}"], ["-p={}"], ["--p", "{}"]])
def test_spellings_of_the_port(nodes, free_port, spelling):
    port = free_port()
    node = nodes.make(WHOAMI, port=None, arguments=[word.format(port) for word in spelling])
    node.launch().wait_answers(port=port)


def test_the_port_is_for_blocks_that_name_none(nodes, free_port):
    own = free_port()
    node = nodes.start(f"a.org {{\n    whoami\n}}\nb.org:{own} {{\n    whoami\n}}\n")
    assert rcode(ask(node, "a.org.")) == "NOERROR"
    assert rcode(ask(node, "b.org.")) == "REFUSED"
    assert rcode(ask(node, "b.org.", port=own)) == "NOERROR"
    assert rcode(ask(node, "a.org.", port=own)) == "REFUSED"


def test_the_corefile_from_stdin(nodes):
    node = nodes.make("nonsense that is not read", arguments=[])
    node.corefile_path = "stdin"
    node.start(stdin_text=WHOAMI)
    assert rcode(ask(node, "example.org.")) == "NOERROR"


def test_the_corefile_in_the_working_directory(directory, free_port):
    port = free_port()
    with open(os.path.join(directory, "Corefile"), "w", encoding="utf-8") as file:
        file.write(f"only.org:{port} {{\n    whoami\n}}\n")
    assert run("-validate", cwd=directory)[0] == 0
    with open(os.path.join(directory, "Corefile"), "w", encoding="utf-8") as file:
        file.write("nonsense {\n    nonsense\n}\n")
    code, _, err = run("-validate", cwd=directory)
    assert code == 1 and "Corefile:2 - Error during parsing: Unknown directive 'nonsense'" in err


def test_no_corefile_at_all(directory, nodes, free_port):
    """`.:53 { whoami log }`, or on the port that was asked for."""
    port = free_port()
    empty = os.path.join(directory, "empty")
    os.mkdir(empty)
    node = nodes.make("", port=None, arguments=["-p", str(port)])
    node.corefile_path = None
    node.launch(cwd=empty).wait_answers(port=port)
    response = ask(node, "example.org.", port=port)
    assert rcode(response) == "NOERROR" and response.additional
    wait_until(lambda: '"A IN example.org. udp' in node.out(), 5, lambda: f"a log line\n{node.logs()}")


def test_pidfile(directory, nodes):
    path = os.path.join(directory, "pid")
    node = nodes.start(WHOAMI, arguments=["-pidfile", path])
    with open(path, encoding="utf-8") as file:
        assert int(file.read()) == node.pid
    assert node.terminate() == 0


def test_a_pidfile_that_cannot_be_written(directory, nodes):
    node = nodes.make(WHOAMI, arguments=["-pidfile", os.path.join(directory, "no", "such", "dir")])
    node.launch()
    assert node.exit_code(5) == 1
    assert "no/such/dir" in one_line(node.err())


# --- what is printed ---

def test_one_line_a_block(nodes, free_port):
    own = free_port()
    node = nodes.start(f".\n{{\n    whoami\n}}\nTF.local:{own} b.org {{\n    whoami\n}}\n".replace(".\n{", ". {", 1))
    expected = {f".:{node.port}", f"tf.local.:{own}", f"b.org.:{node.port}"}
    wait_until(lambda: expected <= set(node.out().splitlines()), 5, lambda: f"{expected}\n{node.logs()}")


def test_the_line_says_where_it_is_bound(nodes):
    node = nodes.start(". {\n    bind 127.0.0.1\n    whoami\n}\n")
    wait_until(lambda: f".:{node.port} on 127.0.0.1" in node.out().splitlines(), 5, lambda: f"the banner\n{node.logs()}")


def test_quiet(nodes):
    node = nodes.start(WHOAMI, arguments=["-quiet"])
    assert node.terminate() == 0
    assert f".:{node.port}" not in node.out()


LOG_LINE = re.compile(
    r'^\[INFO\] (?P<client>\S+):(?P<port>\d+) - (?P<id>\d+) "(?P<type>\S+) (?P<class>\S+) (?P<name>\S+) (?P<proto>udp|tcp) '
    r'(?P<size>\d+) (?P<do>true|false) (?P<bufsize>\d+)" (?P<rcode>\S+) (?P<flags>\S+) (?P<rsize>\d+) \d+\.\d+s$', re.MULTILINE)


def test_log_lines(nodes):
    node = nodes.start(". {\n    log\n    whoami\n}\n")
    first = ask(node, "Example.org.", host="::1", use_edns=0, want_dnssec=True, payload=4096)
    second = ask(node, "other.org.", "AAAA", tcp=True)

    def line(name):
        return wait_until(lambda: next((m for m in LOG_LINE.finditer(node.out()) if m["name"].lower() == name), None), 5,
                          lambda: f"the log line of {name}\n{node.logs()}").groupdict()

    found = line("example.org.")
    assert found["client"] == "[::1]" and int(found["id"]) == first.id
    assert (found["type"], found["class"], found["proto"], found["do"], found["bufsize"]) == ("A", "IN", "udp", "true", "4096")
    assert found["rcode"] == "NOERROR" and found["flags"].split(",")[:2] == ["qr", "aa"] and "rd" in found["flags"]
    assert int(found["size"]) == 12 + 17 + 11
    found = line("other.org.")
    assert found["client"] == "127.0.0.1" and int(found["id"]) == second.id
    assert (found["type"], found["proto"], found["do"]) == ("AAAA", "tcp", "false")


def test_log_only_some_names_and_classes(nodes):
    node = nodes.start("a.org {\n    log a.org\n    whoami\n}\nb.org {\n    whoami\n}\nc.org {\n    log {\n        class error\n    }\n    whoami\n}\n")
    for name in ("b.org.", "c.org.", "x.a.org."):
        ask(node, name)
    wait_until(lambda: "x.a.org." in node.out(), 5, "the log line")
    assert node.terminate() == 0
    assert {match["name"] for match in LOG_LINE.finditer(node.out())} <= {"x.a.org.", "ready.test."}


def test_a_name_cannot_forge_a_log_line(nodes):
    node = nodes.start(". {\n    log\n    whoami\n}\n")
    label = b"x\n[INFO] forged \x1b[2J\" \\"
    with RawUdp(node.port) as udp:
        udp.ask(header(1) + bytes([len(label)]) + label + b"\0\0\1\0\1")
    wait_until(lambda: "forged" in node.out(), 5, "the log line")
    for text in node.out().splitlines():
        assert not text.startswith("[INFO] forged")
        assert "\x1b" not in text


def test_a_blocked_stdout_does_not_stop_the_service(nodes, directory):
    """The pipe is not read: lines are lost, answers are not."""
    node = nodes.make(". {\n    log\n    whoami\n}\n")
    fifo = os.path.join(directory, "fifo")
    os.mkfifo(fifo)
    keeper = os.open(fifo, os.O_RDWR)
    node.out_path = fifo
    node.launch()
    try:
        node.wait_answers()
        for i in range(3000):
            assert rcode(ask(node, f"name{i}.example.org.")) == "NOERROR"
        node.signal(signal.SIGTERM)
        # It may wait for its last lines: let them out.
        os.set_blocking(keeper, False)

        def drained():
            try:
                while os.read(keeper, 1 << 16):
                    pass
            except BlockingIOError:
                pass
            return not node.running()
        wait_until(drained, 10, "the end")
    finally:
        node.kill()
        os.close(keeper)
        node.out_path = os.devnull


def test_a_fatal_error_that_nobody_reads_ends_the_server(etcd, nodes, directory):
    """The pipe is full: neither the loop nor the end of the process waits for it."""
    text = corefile(etcd.endpoint, limit=1, options=["when-full exit"])
    assert nodes.start(text).wait_owns(etcd) == "worker1.tf.local."
    refused = nodes.make(text)
    fifo = os.path.join(directory, "fifo")
    os.mkfifo(fifo)
    keeper = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
    try:
        with contextlib.suppress(BlockingIOError):
            while os.write(keeper, bytes(1 << 12)):
                pass
        refused.err_path = fifo
        refused.launch()
        wait_until(lambda: not refused.running(), 20, refused.out)
        assert refused.exit_code(0) == 1
    finally:
        refused.kill()
        os.close(keeper)
        refused.err_path = os.devnull


# --- sockets ---

def test_bind(nodes):
    node = nodes.start(". {\n    bind 127.0.0.1 ::1\n    whoami\n}\n")
    assert rcode(ask(node, "a.org.")) == "NOERROR"
    assert rcode(ask(node, "a.org.", host="::1", tcp=True)) == "NOERROR"
    assert not node.answers(host="127.0.0.2")
    with pytest.raises(ConnectionRefusedError):
        RawTcp(node.port, "127.0.0.2")


def test_bind_to_an_interface(nodes):
    node = nodes.start(". {\n    bind lo\n    whoami\n}\n")
    assert rcode(ask(node, "a.org.")) == "NOERROR"
    assert rcode(ask(node, "a.org.", tcp=True)) == "NOERROR"
    assert not node.answers(host="127.0.0.2")


def test_two_nodes_on_one_port_of_different_addresses(nodes, free_port):
    port = free_port()
    for i in (2, 3):
        node = nodes.make(f"a{i}.org:{port} {{\n    bind 127.0.0.{i}\n    whoami\n}}\n", port=None).launch()
        node.wait_answers(host=f"127.0.0.{i}", port=port)
    for i in (2, 3):
        assert rcode(ask(None, f"a{i}.org.", host=f"127.0.0.{i}", port=port)) == "NOERROR"
        assert rcode(ask(None, f"a{5 - i}.org.", host=f"127.0.0.{i}", port=port)) == "REFUSED"


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM], ids=["udp", "tcp"])
@pytest.mark.parametrize("address", ["0.0.0.0", "127.0.0.1", "::1"])
def test_a_port_in_use(etcd, nodes, kind, address):
    node = nodes.make(corefile(etcd.endpoint))
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind) as holder:
        if kind == socket.SOCK_STREAM:
            # A connection of an earlier test in TIME_WAIT does not hold the port.
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((address, node.port))
        if kind == socket.SOCK_STREAM:
            holder.listen()
        node.launch()
        assert node.exit_code(5) == 1
    line = one_line(node.err())
    assert str(node.port) in line and "address already in use" in line.lower()
    assert etcd.pairs() == {} and etcd.leases() == [], "nothing was claimed"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_check_that_waits_for_a_pipe_can_be_ended(directory, number):
    fifo = os.path.join(directory, "fifo")
    os.mkfifo(fifo)
    check = Process("check", directory)
    try:
        check.spawn([binary(), "-validate", "-conf", fifo])
        wait_until(lambda: b"-validate" in open(f"/proc/{check.pid}/cmdline", "rb").read() and check.state() == "S", 10, check.logs)
        check.signal(number)
        assert check.exit_code(10) == -number
    finally:
        check.kill()


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM], ids=["udp", "tcp"])
def test_a_taken_port_is_said_with_its_holder_and_the_way_out(nodes, directory, kind):
    """By whom it is taken is seen by a process without a sandbox; else whose it is."""
    node = nodes.make(". {\n    bind 127.0.0.1\n    whoami\n}\n")
    with socket.socket(socket.AF_INET, kind) as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", node.port))
        if kind == socket.SOCK_STREAM:
            holder.listen()
        said = f"(pid {os.getpid()}) has 127.0.0.1:{node.port}"
        code, out, err = run("-validate", "-conf", node.corefile_path, "-p", str(node.port))
        assert code == 0 and "is valid" in out and said in err, "it is the machine that is not ready, not the Corefile"
        for sandbox, expected in (("off", said), ("on", "")):
            code, _, err = run("-conf", node.corefile_path, "-p", str(node.port), "-sandbox", sandbox)
            assert code == 1 and "`bind`" in one_line(err) and f" has 127.0.0.1:{node.port}; stop it" in err and expected in err, err


def test_validate_says_which_ports_of_operators_are_taken(nodes, free_port):
    node = nodes.make(". {\n    whoami\n}\n")
    with socket.create_server(("127.0.0.1", 0)) as holder:
        taken = f"127.0.0.1:{holder.getsockname()[1]}"
        for directive in ("health", "ready", "prometheus", "admin"):
            for address, expected in ((taken, f"has {taken}, which keeps the server from {taken}"),
                                      (f"127.0.0.1:{free_port()}", ""), (f"127.0.0.1:{node.port}", "where the server answers DNS")):
                with open(node.corefile_path, "w", encoding="ascii") as file:
                    file.write(f". {{\n    bind 127.0.0.1\n    {directive} {address}\n    whoami\n}}\n")
                code, _, err = run("-validate", "-conf", node.corefile_path, "-p", str(node.port))
                assert code == 0 and (expected in err if expected else err == ""), (directive, err)


def test_what_a_service_manager_is_told_by_the_exit_status(nodes, directory):
    """A Corefile with errors does not mend itself: a status by which the unit does not restart. A port may come free."""
    wrong = nodes.make(". {\n    nonsense\n}\n")
    taken = nodes.make(". {\n    bind 127.0.0.1\n    whoami\n}\n")
    with ServiceManager(directory) as manager, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as holder:
        manager.launch(wrong)
        assert wrong.exit_code(5) == 78
        stray = nodes.make(". {\n    whoami\n}\n", arguments=["stray"])
        manager.launch(stray)
        assert stray.exit_code(5) == 78
        assert unit_file.options()["RestartPreventExitStatus"] == ["2 78"]
        missing = nodes.make("")
        os.unlink(missing.corefile_path)
        manager.launch(missing)
        wait_until(lambda: "cannot read" in missing.err(), 10, missing.logs)
        missing.signal(signal.SIGHUP)
        assert missing.exit_code(5) == 1, "its file system may be mounted late"
        resolvers = nodes.make(f". {{\n    bind 127.0.0.1\n    forward . {directory}/resolv.conf\n}}\n")
        manager.launch(resolvers)
        wait_until(lambda: "cannot read" in resolvers.err(), 10, resolvers.logs)
        assert resolvers.exit_code(10) == 1, "the network may write it late"
        holder.bind(("127.0.0.1", taken.port))
        for patience in (None, signal.SIGTERM):
            begin = time.monotonic()
            manager.launch(taken)
            wait_until(lambda: "already in use" in taken.err(), 10, taken.logs)
            if patience:
                taken.signal(patience)
            assert taken.exit_code(10) == (0 if patience else 1), "one that is asked to end has not failed"
            assert patience or time.monotonic() - begin >= 4, "the next process is not to follow at once"
            os.truncate(taken.err_path, 0)


def test_a_second_server_on_the_same_port(etcd, nodes):
    first = nodes.start(corefile(etcd.endpoint, options=["address 192.0.2.7"]))
    first.wait_owns(etcd)
    second = nodes.make(corefile(etcd.endpoint), port=first.port)
    second.launch()
    assert second.exit_code(5) == 1
    assert "address already in use" in one_line(second.err()).lower()
    assert set(etcd.pairs()) == {b"worker1.tf.local."}
    wait_resolves([first], "worker1.tf.local.", "192.0.2.7")


@pytest.mark.parametrize("where", ["192.0.2.99", "nosuchinterface0"])
def test_an_address_that_is_not_here(nodes, where):
    node = nodes.make(f". {{\n    bind {where}\n    whoami\n}}\n").launch()
    assert node.exit_code(5) == 1
    assert where in one_line(node.err())


def test_no_permission_for_the_port():
    with open("/proc/sys/net/ipv4/ip_unprivileged_port_start", encoding="utf-8") as file:
        if int(file.read()) <= 53:
            pytest.skip("any user may open port 53 here")
    nobody = 65534 if os.getuid() == 0 else None
    code, _, err = run("-conf", "stdin", text=".:53 {\n    bind 127.0.0.77\n    whoami\n}\n", user=nobody)
    assert code == 1
    line = one_line(err)
    assert "53" in line and "permission denied" in line.lower()


def test_few_file_descriptors(nodes):
    """accept(2) fails for a while; UDP goes on, and TCP again when there is room."""
    with open(binary(), "rb") as file:
        if b"libubsan" in file.read():
            pytest.skip("UBSan itself needs descriptors: it probes memory through a pipe")
    node = nodes.start(WHOAMI)
    in_use = len(os.listdir(f"/proc/{node.pid}/fd"))
    resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (in_use + 10, 4096))
    held = []
    try:
        for _ in range(40):
            held.append(RawTcp(node.port))
        for _ in range(20):
            assert rcode(ask(node, "a.org.")) == "NOERROR"
        with open(f"/proc/{node.pid}/stat", encoding="utf-8") as stat:
            before = sum(map(int, stat.read().split()[13:15]))
        time.sleep(1)  # how much it works while there is nothing that it could do
        with open(f"/proc/{node.pid}/stat", encoding="utf-8") as stat:
            ticks = sum(map(int, stat.read().split()[13:15])) - before
        assert ticks < 50 * TIME_FACTOR, "it does not spin"
    finally:
        for tcp in held:
            tcp.sock.close()
    wait_until(lambda: _works(node), 10, "TCP to work again", interval=0.1)


def _works(node):
    try:
        return rcode(ask(node, "a.org.", tcp=True)) == "NOERROR"
    except Exception:  # pylint: disable=broad-except
        return False


# --- signals ---

@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_term_and_int_give_the_name_back(etcd, nodes, number):
    node = nodes.start(corefile(etcd.endpoint, lease=20))
    node.wait_owns(etcd)
    node.signal(number)
    assert node.exit_code(6) == 0
    assert etcd.pairs() == {} and etcd.leases() == []


def test_a_second_int_ends_at_once(etcd, nodes, free_port):
    node = nodes.start(corefile(etcd.endpoint, lease=20, directives=[f"health 127.0.0.1:{free_port()} {{\n        lameduck 1h\n    }}"]))
    node.wait_owns(etcd)
    etcd.pause()  # so that giving the name back takes its time, too
    node.signal(signal.SIGINT)
    node.wait_logged("Going into lameduck mode")
    assert node.running()
    node.signal(signal.SIGINT)
    assert node.exit_code(5) == 2
    etcd.resume()


def test_quit_ends_at_once(etcd, nodes):
    node = nodes.make(corefile(etcd.endpoint, lease=20))

    def attempt(_):
        node.start()
        node.wait_owns(etcd, timeout=30)
        etcd.pause()
        begin = time.monotonic()
        node.signal(signal.SIGQUIT)
        assert node.exit_code(5) >= 0, "an exit, not a core dump"
        took = time.monotonic() - begin
        etcd.resume()
        return took
    assert_takes_less(1, attempt)
    assert "SIGQUIT: Quitting" in node.out() and "Shutting down" not in node.out()


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1, signal.SIGPIPE])
def test_other_signals_do_no_harm(etcd, nodes, number):
    node = nodes.start(corefile(etcd.endpoint, options=["address 192.0.2.7"]))
    node.wait_owns(etcd)
    wait_resolves([node], "worker1.tf.local.", "192.0.2.7")
    before = etcd.pairs()
    node.signal(number)
    for _ in range(50):
        assert resolves(node, "worker1.tf.local.", "192.0.2.7")
    assert etcd.pairs() == before, "still one name, and the same"
    assert node.running()


def test_sigterm_during_the_start(etcd, nodes):
    """At whatever moment: nothing is left."""
    text = corefile(etcd.endpoint, lease=20)
    for delay in (0, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2):
        node = nodes.make(text).launch()
        time.sleep(delay)
        node.signal(signal.SIGTERM)
        code = node.exit_code(8)
        assert code in (0, -signal.SIGTERM), "before it listens for signals the default still holds"
        assert etcd.pairs() == {} and etcd.leases() == [], delay


def test_open_connections_do_not_hold_up_the_end(nodes):
    node = nodes.start(WHOAMI)
    with RawTcp(node.port) as idle, RawTcp(node.port) as half:
        half.send(b"\0")
        packet = header(1) + question("a.org.")
        idle.send_message(packet)
        assert idle.receive_message()
        begin = time.monotonic()
        assert node.terminate(6) == 0
        assert time.monotonic() - begin < 6 * TIME_FACTOR


def test_it_starts_again_at_once_on_the_same_port(etcd, nodes):
    node = nodes.start(corefile(etcd.endpoint, options=["address 192.0.2.7"]))
    for _ in range(3):
        wait_resolves([node], "worker1.tf.local.", "192.0.2.7")
        with RawTcp(node.port) as tcp:  # closed by the server: TIME_WAIT is on its side
            tcp.send_message(header(1) + question("a.org."))
            assert tcp.receive_message()
            assert node.terminate() == 0
        node.start()
    wait_resolves([node], "worker1.tf.local.", "192.0.2.7")
    assert answers(node, "worker1.tf.local.", tcp=True) == ["192.0.2.7"]
