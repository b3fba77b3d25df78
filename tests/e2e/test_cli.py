"""The subcommands: `idetcd status` and the others, with real nodes."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import threading

import pytest

from corefiles import corefile
from dns_client import answers, ask, patient, wait_gone, wait_resolves, wait_says
from harness.node import binary
from harness.processes import TIME_FACTOR, Process, prepare_child, wait_until
from harness.upstreams import Upstream

WHOAMI = ". {\n    whoami\n}\n"
SUBCOMMANDS = ("status", "members", "whoami", "wait", "tf-config", "hostfile", "torchrun-env", "exec", "drain", "undrain", "release",
               "cache", "peers", "top", "xdp", "doctor", "completion")


def run(where, *arguments, timeout=60, **options):
    """A subcommand, for the server whose sockets are in the directory `where`: exit code, stdout, stderr."""
    where = where if isinstance(where, str) else where.runtime_directory
    options.setdefault("stdin", subprocess.DEVNULL)
    result = subprocess.run([binary(), *arguments], check=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            timeout=timeout * TIME_FACTOR, env={**os.environ, "RUNTIME_DIRECTORY": where}, **options)
    return result.returncode, result.stdout, result.stderr


def one_line(text):
    lines = text.splitlines()
    assert len(lines) == 1, f"one clear line: {text!r}"
    return lines[0]


class Background(Process):
    """A subcommand that takes its time."""

    def __init__(self, directory, where, *arguments):
        super().__init__("-".join(["cli", *re.findall(r"\w+", " ".join(arguments))])[:60], directory)
        self.spawn([binary(), *arguments], env={"RUNTIME_DIRECTORY": where})


@pytest.fixture
def background(directory):
    """A function that starts a subcommand; it is ended at the end."""
    started = []

    def start(where, *arguments):
        started.append(Background(directory, where if isinstance(where, str) else where.runtime_directory, *arguments))
        return started[-1]

    yield start
    for process in started:
        process.kill()


# --- usage ---

def test_help_lists_all():
    for arguments in (["help"], ["help", "--help"]):
        code, out, err = run("/", *arguments)
        assert code == 0 and err == ""
        for name in SUBCOMMANDS:
            assert re.search(rf"^  {name}\b", out, re.MULTILINE), name
    assert re.search(rf"^  {' '.join(SUBCOMMANDS)}$", run("/", "-help")[1], re.MULTILINE)


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_each_has_its_help(name):
    code, out, err = run("/", name, "--help")
    assert code == 0 and err == ""
    assert out.startswith(f"Usage: idetcd {name} ") and "--socket PATH" in out and "--json" in out
    assert run("/", "help", name) == (code, out, err)


def test_help_is_asked_for_among_the_options():
    assert run("/", "exec", "--timeout", "5s", "--help")[1].startswith("Usage: idetcd exec ")
    assert run("/", "wait", "--members=2", "-h")[0] == 0
    for arguments in (["exec", "--timeout=1ms", "ls", "--help"], ["exec", "--timeout", "1ms", "--", "--help"]):
        code, out, err = run("/", *arguments)
        assert (code, out) == (1, "") and one_line(err), arguments
    code, out, err = run("/", "status", "--socket", "--help")
    assert (code, out) == (2, "") and "nobody listens at --help" in one_line(err)


@pytest.mark.parametrize("arguments", [["status", "--frob"], ["status", "more"], ["status", "--json=1"], ["status", "--socket"],
                                       ["wait"], ["wait", "--members=0"], ["wait", "--members=2", "--timeout=soon"],
                                       ["tf-config", "--port=1"], ["tf-config", "--role=worker"], ["torchrun-env"],
                                       ["torchrun-env", "--port=0"], ["exec"], ["exec", "--"], ["release"], ["cache"], ["cache", "fill"], ["xdp"], ["xdp", "load"],
                                       ["release", "a.org", "--yes", "b.org"], ["release", "a.org"], ["completion", "tcsh"],
                                       ["help", "frob"]])
def test_wrong_usage(directory, arguments):
    code, out, err = run(directory, *arguments)
    assert code == 2 and out == ""
    assert err.startswith(f"idetcd {arguments[0]}: "), err


def test_a_word_that_is_no_subcommand_is_an_argument_too_many():
    assert run("/", "statu") == (1, "", "extra command line arguments: [statu]; did you mean `idetcd status`?\n")
    assert run("/", "-quiet", "status") == (1, "", "extra command line arguments: [status]; did you mean `idetcd status`?\n")
    assert run("/", "xyzzy") == (1, "", "extra command line arguments: [xyzzy]\n")


def test_a_word_that_is_missing_is_named(directory):
    assert "a word is missing: NAME" in run(directory, "release")[2]


def test_failures_for_programs(directory):
    """Of every subcommand: the exit code and the line on stderr as ever, and the line in JSON."""
    arguments = {"wait": ["--members=1", "--timeout=0"], "exec": ["--timeout=0", "true"], "tf-config": ["--port=1", "--role=x"],
                 "torchrun-env": ["--port=1"], "release": ["a.org", "--yes=a.org"], "cache": ["flush"], "completion": ["tcsh"],
                 "xdp": ["status"]}
    for name in set(SUBCOMMANDS) - {"doctor"}:  # that has findings, whatever there is
        code, out, err = run(directory, name, "--json", *arguments.get(name, []))
        assert code == run(directory, name, *arguments.get(name, []))[0] != 0, name
        assert err == f"idetcd {name}: {json.loads(one_line(out))['error']}\n"
    code, out, err = run(directory, "status", "--json", "--frob")
    assert code == 2 and json.loads(one_line(out)) == {"error": "there is no option --frob"} and "--frob" in err
    assert run(directory, "exec", "--timeout=0", "true", "--json")[1] == ""


# --- which server ---

def test_there_is_none(directory):
    code, out, err = run(directory, "status")
    assert code == 2 and out == "" and directory in one_line(err) and "does idetcd run?" in err
    code, _, err = run("/nowhere/at/all", "status")
    assert code == 2 and "/nowhere/at/all" in one_line(err)
    code, _, err = run(directory, "status", "--socket", f"{directory}/x.sock")
    assert code == 2 and "does idetcd run?" in one_line(err)


def test_it_has_been_killed(nodes):
    node = nodes.start(WHOAMI)
    assert run(node, "status")[0] == 0
    node.kill()
    code, _, err = run(node, "status")
    assert code == 2 and f"nobody listens at {node.runtime_directory}/{node.port}.sock" in one_line(err)


def test_one_has_been_killed_beside_it(nodes, free_port):
    killed = nodes.start(WHOAMI)
    killed.kill()
    with open(os.path.join(killed.runtime_directory, "foo.sock"), "w", encoding="ascii"):
        pass
    node = nodes.make(WHOAMI, port=free_port())
    node.runtime_directory = killed.runtime_directory
    node.start()
    assert json.loads(run(node, "status", "--json")[1])["pid"] == node.pid


def test_there_are_several(nodes, free_port):
    first = nodes.start(WHOAMI)
    port = free_port()
    second = nodes.make(WHOAMI, port=port)
    second.runtime_directory = first.runtime_directory
    second.start()
    code, _, err = run(first, "status")
    sockets = [f"{first.runtime_directory}/{each.port}.sock" for each in (first, second)]
    assert code == 2 and "--socket" in one_line(err) and all(path in err for path in sockets)
    for node, path in zip((first, second), sockets):
        assert json.loads(run("/", "status", "--json", "--socket", path)[1])["pid"] == node.pid


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_somebody_who_may_not(nodes):
    node = nodes.start(WHOAMI)
    path = f"{node.runtime_directory}/{node.port}.sock"
    folder = os.path.dirname(path)
    opened = []
    while folder != "/":  # pytest's directories are for the owner only
        opened.append((folder, os.stat(folder).st_mode & 0o777))
        os.chmod(folder, opened[-1][1] | 0o055)
        folder = os.path.dirname(folder)
    try:
        code, _, err = run("/", "status", "--socket", path, user=65534, group=65534, extra_groups=[])
    finally:
        for folder, mode in opened:
            os.chmod(folder, mode)
    assert code == 2
    assert f"permission denied for {path}: ask root (sudo), or to be put into the group root" in one_line(err)


# --- what this node is ---

def test_status_of_a_server_without_a_cluster(nodes):
    node = nodes.start(WHOAMI)
    code, out, err = run(node, "status")
    assert (code, err) == (0, "")
    assert re.search(rf"^idetcd +\d\S*, process {node.pid}, up ", out, re.MULTILINE) and re.search(r"^ready +yes$", out, re.MULTILINE)
    code, out, err = run(node, "status", "--json")
    said = json.loads(one_line(out))
    assert code == 0 and said["pid"] == node.pid and said["ready"] is True


def test_a_node_that_is_not_ready(stopped_etcd, nodes):
    node = nodes.start(corefile(stopped_etcd.endpoint))
    code, out, _ = run(node, "status")
    assert code == 1 and re.search(r"^ready +NO$", out, re.MULTILINE) and re.search(r"^  missing +idetcd: ", out, re.MULTILINE)
    assert json.loads(run(node, "status", "--json")[1])["not_ready"]
    assert run(node, "whoami")[0] == 1


def test_whoami_without_a_name(nodes):
    node = nodes.start(WHOAMI)
    assert run(node, "whoami") == (1, "", "idetcd whoami: this node has no name\n")
    assert run(node, "whoami", "--json")[:2] == (1, "[]\n")


# --- output, signals ---

def test_a_full_disk_is_an_error(nodes):
    node = nodes.start(WHOAMI)
    for arguments in (["status"], ["help"]):
        with open("/dev/full", "w", encoding="ascii") as full:
            result = subprocess.run([binary(), *arguments], check=False, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
                                    env={**os.environ, "RUNTIME_DIRECTORY": node.runtime_directory})
        assert result.returncode == 2
        assert "No space left on device" in one_line(result.stderr)


def test_a_watch_with_a_full_disk_is_an_error(three):
    with open("/dev/full", "w", encoding="ascii") as full:
        result = subprocess.run([binary(), "members", "--watch"], check=False, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
                                env={**os.environ, "RUNTIME_DIRECTORY": three[0].runtime_directory})
    assert result.returncode == 2 and "No space left on device" in one_line(result.stderr)


def test_a_closed_pipe_ends_it_as_any_program():
    read, write = os.pipe()
    os.close(read)
    result = subprocess.run([binary(), "help"], check=False, stdout=write, stderr=subprocess.PIPE, timeout=60)
    os.close(write)
    assert result.returncode == -signal.SIGPIPE and result.stderr == b""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_what_waits(directory, background, number):
    process = background(directory, "wait", "--members", "1")
    # The server's main() holds them back, and this process has begun as one. If it is here before that, so much the better.
    wait_until(lambda: not process.handles(number), 10, process.logs)
    process.signal(number)
    assert process.exit_code(10) == -number


def test_what_waits_for_a_server_has_a_limit(directory):
    for arguments in (["wait", "--members", "1"], ["exec"]):
        code, out, err = run(directory, *arguments, "--timeout", "200ms", *(["--", "true"] if arguments == ["exec"] else []))
        assert code == 1 and out == "" and "there is no socket" in one_line(err)


# --- a cluster ---

PATTERN = "worker{{.ID}}.tf.local."
WORKERS = [f"worker{number}.tf.local" for number in (1, 2, 3)]


def in_order(nodes, etcd):
    """By their names, when each knows its own and all are served by all."""
    for node in nodes:
        wait_until(lambda node=node: run(node, "whoami")[0] == 0, 20, node.logs)
        wait_resolves(nodes, node.owned_name(etcd), "192.0.2.7")
    return sorted(nodes, key=lambda node: node.owned_name(etcd))


@pytest.fixture(scope="module")
def three(shared_etcd, shared_nodes):
    """worker1 to worker3; nothing changes them."""
    text = corefile(shared_etcd.endpoint, lease=20, options=["address 192.0.2.7"])
    return in_order(shared_nodes.start_cluster(text, 3, shared_etcd), shared_etcd)


@pytest.fixture
def pair(etcd, nodes):
    return in_order(nodes.start_cluster(corefile(etcd.endpoint, options=["address 192.0.2.7"]), 2, etcd), etcd)


def test_status_of_a_member(three):
    code, out, err = run(three[1], "status")
    assert (code, err) == (0, ""), out
    for line in (r"ready +yes", r"cluster +worker\{\{\.ID\}\}\.tf\.local\.", r"  name +worker2\.tf\.local", r"  id, token +2, \d+",
                 r"  lease +[\d.]+ m?s left of 20\.0 s", r"  addresses +192\.0\.2\.7", r"  names +3 of 10 held", r"  mirror +fresh, confirmed .* ago", r"  etcd +connected for .*: http.*"):
        assert re.search(f"^{line}$", out, re.MULTILINE), (line, out)
    [cluster] = json.loads(run(three[1], "status", "--json")[1])["clusters"]
    assert cluster["name"] == "worker2.tf.local."


def test_members(three):
    code, out, err = run(three[1], "members")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert re.fullmatch(re.escape(f"{PATTERN}: 3 of 10 names are held, generation ") + r"\d+", lines[0]) and lines[1].split()[:3] == ["ID", "NAME", "ADDRESSES"]
    assert [line.split()[:3] for line in lines[2:]] == [[str(i + 1), name, "192.0.2.7"] for i, name in enumerate(WORKERS)]
    assert [line.endswith("  this node") for line in lines[2:]] == [False, True, False]
    said = json.loads(run(three[1], "members", "--json", "--pattern", PATTERN)[1])
    assert [slot["name"] for slot in said["clusters"][0]["slots"]] == [f"{name}." for name in WORKERS]
    assert run(three[1], "members", "--json", "--pattern", PATTERN.rstrip("."))[0] == 0


def test_a_pattern_that_is_not_there(three):
    for arguments in (["members"], ["wait", "--members=1"], ["hostfile"], ["exec", "true"], ["whoami"], ["drain"], ["undrain"]):
        code, out, err = run(three[1], arguments[0], "--pattern=other{{.ID}}", *arguments[1:])
        assert (code, out) == (2, "") and f"has no pattern other{{{{.ID}}}}., but: {PATTERN}" in one_line(err), arguments
    assert run(three[1], "whoami", "--pattern", PATTERN.rstrip("."))[:2] == (0, "worker2.tf.local\n")
    assert run(three[1], "exec", "--pattern", PATTERN.rstrip("."), "--", "true")[0] == 0


def test_members_without_etcd(stopped_etcd, nodes):
    node = nodes.start(corefile(stopped_etcd.endpoint))
    code, out, err = run(node, "members", timeout=100)
    assert code == 2 and out == "" and one_line(err)


def test_members_of_a_server_without_a_cluster(nodes):
    node = nodes.start(WHOAMI)
    for arguments in (["members"], ["wait", "--members=1"], ["hostfile"], ["exec", "true"], ["drain"], ["undrain", "--pattern=x{{.ID}}.org"],
                      ["release", "a.org", "--yes=a.org"], ["whoami", "--pattern=x{{.ID}}.org."]):
        code, out, err = run(node, *arguments)
        assert (code, out) == (2, "") and "the server has no cluster: its Corefile has no idetcd" in one_line(err), arguments


def test_whoami(three):
    for node, name in zip(three, WORKERS):
        assert run(node, "whoami") == (0, f"{name}\n", "")
        assert run(node, "whoami", "--short") == (0, f"{name.split('.', maxsplit=1)[0]}\n", "")
    assert json.loads(run(three[0], "whoami", "--json")[1]) == [{"name": "worker1.tf.local.", "short": "worker1"}]


def test_wait_for_those_that_are_there(three):
    for arguments in (["1"], ["3"], ["3", "--timeout", "0"]):
        code, out, err = run(three[0], "wait", "--members", *arguments)
        assert (code, out.splitlines(), err) == (0, WORKERS, "")
    slots = json.loads(one_line(run(three[0], "wait", "--members=3", "--json")[1]))
    assert [slot["id"] for slot in slots] == [1, 2, 3]
    def refused():
        """A server that stands still for a moment is told of instead."""
        code, out, err = run(three[0], "wait", "--members", "4", "--timeout", "100ms")
        assert (code, out) == (1, "")
        return "3 of 4 names are held" in one_line(err)
    wait_until(refused, 10, three[0].logs)


def test_wait_begins_before_anything_is_there(etcd, nodes, background):
    text = corefile(etcd.endpoint, options=["address 192.0.2.7"])
    first, second = nodes.make(text), nodes.make(text)
    waiting = background(first, "wait", "--members", "2")
    first.start().wait_owns(etcd)
    wait_until(lambda: run(first, "wait", "--members=1", "--timeout=5s")[0] == 0, 10, first.logs)
    assert waiting.running(), f"one is not two\n{waiting.logs()}"
    second.start()
    assert waiting.exit_code(30) == 0, waiting.logs()
    assert waiting.out().splitlines() == WORKERS[:2]


def test_wait_asks_over_dns(etcd, nodes):
    """Held is not enough: this node refuses all that ask it."""
    node = nodes.start(corefile(etcd.endpoint, options=["address 192.0.2.7"], directives=["acl {\n        block\n    }"]))
    node.wait_owns(etcd)
    wait_until(lambda: run(node, "whoami")[0] == 0, 20, node.logs)
    code, out, err = run(node, "wait", "--members=1", "--timeout=300ms")
    assert (code, out) == (1, "") and "REFUSED" in one_line(err)


def test_wait_for_addresses_of_ipv6_only(etcd, nodes):
    node = nodes.start(corefile(etcd.endpoint, options=["address 2001:db8::7"]))
    assert run(node, "wait", "--members=1", "--timeout=30s")[:2] == (0, "worker1.tf.local\n")


def test_wait_asks_where_the_server_listens(etcd, nodes):
    node = nodes.make(corefile(etcd.endpoint, options=["address 192.0.2.7"], directives=["bind ::1"])).launch()
    node.wait_answers(host="::1")
    assert run(node, "wait", "--members=1", "--timeout=30s")[:2] == (0, "worker1.tf.local\n")


def test_wait_asks_where_no_address_of_the_node_is(etcd, nodes):
    node = nodes.make(corefile(etcd.endpoint, options=["address 192.0.2.7"], directives=["bind 127.0.0.77"])).launch()
    node.wait_answers(host="127.0.0.77")
    assert run(node, "wait", "--members=1", "--timeout=30s")[:2] == (0, "worker1.tf.local\n")


def test_tf_config(three):
    for index, node in enumerate(three):
        code, out, err = run(node, "tf-config", "--role", "worker", "--port", "2222", "--members", "3")
        assert (code, err) == (0, "")
        assert json.loads(one_line(out)) == {"cluster": {"worker": [f"{name}:2222" for name in WORKERS]},
                                             "task": {"type": "worker", "index": index}}


def test_hostfile(three):
    assert run(three[0], "hostfile") == (0, "".join(f"{name}\n" for name in WORKERS), "")
    assert run(three[0], "hostfile", "--slots=8", "--members=3") == (0, "".join(f"{name} slots=8\n" for name in WORKERS), "")
    assert json.loads(run(three[0], "hostfile", "--slots=8", "--json")[1])[0] == {"name": WORKERS[0], "slots": 8}


def test_torchrun_env(three):
    for rank, node in enumerate(three):
        code, out, err = run(node, "torchrun-env", "--port", "29500", "--members", "3")
        assert (code, err) == (0, "")
        shell = subprocess.run(["sh", "-c", f"{out}\necho $RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT"], check=True, capture_output=True,
                               text=True, timeout=60)
        assert shell.stdout == f"{rank} 3 worker1.tf.local 29500\n"
        said = json.loads(run(node, "torchrun-env", "--port=29500", "--json")[1])
        assert said == {"RANK": str(rank), "WORLD_SIZE": "3", "MASTER_ADDR": "worker1.tf.local", "MASTER_PORT": "29500"}


@pytest.mark.parametrize("command", [["tf-config", "--role=worker", "--port=1"], ["torchrun-env", "--port=1"], ["hostfile"]], ids=lambda c: c[0])
def test_exactly_the_members_asked_for(three, command):
    for count in ("2", "4"):
        code, out, err = run(three[0], *command, "--members", count)
        assert (code, out) == (1, "") and f"3 names are held, not {count}" in one_line(err)


def test_ranks_are_dense_where_ids_are_not(etcd, nodes):
    text = corefile(etcd.endpoint, options=["address 192.0.2.7"])
    first, second, third = in_order(nodes.start_cluster(text, 3, etcd), etcd)
    assert second.terminate() == 0
    wait_gone([third], "worker2.tf.local.")
    code, out, _ = run(third, "torchrun-env", "--port=1", "--members=2", "--timeout=20s")
    assert code == 0 and out.splitlines()[:2] == ["RANK=1", "WORLD_SIZE=2"]
    assert run(first, "drain")[0] == 0
    code, out, _ = run(third, "torchrun-env", "--port=1", "--members=1", "--timeout=20s")
    assert code == 0 and out == "RANK=0\nWORLD_SIZE=1\nMASTER_ADDR=worker3.tf.local\nMASTER_PORT=1\n"
    code, _, err = run(first, "torchrun-env", "--port=1")
    assert code == 1 and "is drained" in one_line(err)
    assert run(first, "hostfile")[1] == "worker3.tf.local\n"


def test_a_key_without_a_record_is_no_member(pair, etcd):
    etcd.put("worker5.tf.local.", "garbage")
    for command in (["hostfile"], ["torchrun-env", "--port=1"], ["tf-config", "--role=x", "--port=1"]):
        code, out, err = run(pair[0], *command)
        assert code == 0 and "worker5" not in out and "WORLD_SIZE=3" not in out, out + err
    assert re.search(r"worker5\.tf\.local .*without a valid record", run(pair[0], "members")[1])


def test_one_that_observes(three, shared_etcd, nodes):
    node = nodes.start(corefile(shared_etcd.endpoint, lease=20, options=["observe"]))
    assert run(node, "hostfile", "--members=3", "--timeout=20s")[0] == 0
    for command in (["torchrun-env", "--port=1"], ["tf-config", "--port=1", "--role=x"], ["whoami"]):
        assert run(node, *command)[0] == 1, command
    code, _, err = run(node, "drain")
    assert code == 1 and "observes" in one_line(err)


def test_drain_and_undrain(pair):
    first = pair[0]
    assert run(first, "drain") == (0, "worker1.tf.local: drained until this server ends (no `state` directory): the name is "
                                       "kept, without addresses\n", "")
    wait_until(lambda: answers(pair[1], "worker1.tf.local.") == [], 10, "no address")
    assert re.search(r"^  name +worker1\.tf\.local \(drained\)$", run(first, "status")[1], re.MULTILINE)
    assert re.search(r"worker1\.tf\.local .*  this node, drained$", run(first, "members")[1], re.MULTILINE)
    code, _, err = run(first, "wait", "--members=2", "--timeout=100ms")
    assert code == 1 and "1 of 2 names" in err
    assert run(first, "undrain") == (0, "worker1.tf.local: no longer drained: its addresses are in DNS\n", "")
    assert run(first, "wait", "--members=2", "--timeout=20s")[0] == 0
    assert json.loads(run(first, "drain", "--json")[1])["nodes"][0]["drained"] is True


def test_two_clusters_are_told_apart(etcd, nodes):
    text = "".join(f"{name}.local {{\n    idetcd {{\n        endpoint {etcd.endpoint}\n        pattern {name}{{{{.ID}}}}.{name}.local.\n"
                   f"        address 192.0.2.7\n    }}\n}}\n" for name in ("one", "two"))
    node = nodes.start(text)
    wait_until(lambda: run(node, "whoami")[1].split() == ["one1.one.local", "two1.two.local"], 20, node.logs)
    assert run(node, "whoami", "--pattern=two{{.ID}}.two.local.")[1] == "two1.two.local\n"
    for command in (["wait", "--members=1"], ["hostfile"], ["exec", "true"]):
        code, out, err = run(node, *command)
        assert code == 2 and out == "" and "--pattern" in one_line(err)
    assert run(node, "hostfile", "--pattern=two{{.ID}}.two.local.")[:2] == (0, "two1.two.local\n")
    assert run(node, "exec", "--pattern=one{{.ID}}.one.local.", "--", "sh", "-c", "echo $IDETCD_NAME")[1] == "one1.one.local.\n"


# --- exec ---

def test_exec_knows_its_name(three, shared_etcd):
    code, out, err = run(three[2], "exec", "--members", "3", "--", "env")
    assert (code, err) == (0, "")
    environment = dict(line.split("=", 1) for line in out.splitlines() if "=" in line)
    value = shared_etcd.names()["worker3.tf.local."]
    expected = {"IDETCD_NAME": f"{WORKERS[2]}.", "IDETCD_ID": "3", "IDETCD_UUID": value["id"], "IDETCD_IPV4": "192.0.2.7", "IDETCD_IPV6": "",
                "IDETCD_PATTERN": PATTERN, "IDETCD_TOKEN": str(shared_etcd.pairs()[b"worker3.tf.local."]["token"])}
    assert {name: environment[name] for name in expected} == expected
    assert environment.get("HOSTNAME") == os.environ.get("HOSTNAME")


def test_exec_is_the_command(three, directory):
    assert run(three[0], "exec", "sh", "-c", "exit 7")[0] == 7
    assert run(three[0], "exec", "--", "sh", "-c", "kill -TERM $$")[0] == -signal.SIGTERM
    code, out, err = run(three[0], "exec", "--", "no-such-program", "--help")
    assert (code, out) == (127, "") and "no-such-program" in one_line(err)
    code, out, err = run(three[0], "exec", "")
    assert (code, out) == (127, "") and "the name of the command is empty" in one_line(err)
    code, _, err = run(three[0], "exec", "--", directory)
    assert code == 126 and "Permission denied" in one_line(err)


def test_exec_leaves_signals_as_they_were(three):
    def masks(*prefix):
        # Python sets dispositions of its own, and restore_signals gives some back: two children of the same parent.
        out = run(three[0], *prefix)[1] if prefix else subprocess.run(
            ["grep", "^Sig[BI]", "/proc/self/status"], check=True, capture_output=True, text=True, timeout=60).stdout
        return out
    assert masks("exec", "--", "grep", "^Sig[BI]", "/proc/self/status") == masks()


def test_exec_waits_for_the_name(stopped_etcd, nodes, background):
    node = nodes.start(corefile(stopped_etcd.endpoint, options=["address 192.0.2.7"]))
    code, _, err = run(node, "exec", "--timeout=100ms", "--", "true")
    assert code == 1 and "no name" in one_line(err)
    waiting = background(node, "exec", "--", "sh", "-c", "echo $IDETCD_NAME")
    stopped_etcd.start()
    assert waiting.exit_code(30) == 0
    assert waiting.out() == "worker1.tf.local.\n"


# --- cache flush ---

def test_cache_flush(nodes):
    with Upstream() as upstream:
        node = nodes.start(f". {{\n    workers 1\n    cache\n    forward . {upstream.address}\n}}\n")
        for name in ("a.example.org.", "b.a.example.org.", "c.example.net."):
            wait_until(lambda name=name: answers(node, name), 10, node.logs)
        out = run(node, "status")[1]
        assert re.search(r"^cache \.:\d+ +\d+ entries, [\d.]+ (Ki)?B, \d", out, re.MULTILINE), out
        assert re.search(rf"^upstream \.:\d+ +{upstream.address} up, round trip [\d.]+ m?s$", out, re.MULTILINE), out
        assert run(node, "cache", "flush", "A.example.org") == (0, "2 entries flushed\n", "")
        assert run(node, "cache", "flush", "c.example.net.") == (0, "1 entry flushed\n", "")
        wait_until(lambda: answers(node, "c.example.net."), 10, node.logs)
        assert json.loads(one_line(run(node, "cache", "flush", "--json")[1]))["flushed"] >= 1
        assert run(node, "cache", "flush") == (0, "0 entries flushed\n", "")


# --- at a terminal ---

class Terminal:
    """A subcommand at a terminal of its own."""

    def __init__(self, where, *arguments, width=80, height=24):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        self.before = termios.tcgetattr(slave)
        self.text = ""

        def own_terminal():
            prepare_child()
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        self.process = subprocess.Popen([binary(), *arguments], stdin=slave, stdout=slave, stderr=slave, preexec_fn=own_terminal,
                                        env={**os.environ, "RUNTIME_DIRECTORY": where.runtime_directory})
        os.close(slave)

    def read(self):
        """What has come. The other end is gone: that is an error on Linux, and no more than the end."""
        ready = select.poll()
        ready.register(self.master, select.POLLIN)
        while ready.poll(0):
            try:
                got = os.read(self.master, 65536)
            except OSError:
                break
            if not got:
                break
            self.text += got.decode(errors="replace")
        return self.text

    def wait_for(self, text, times=1):
        wait_until(lambda: self.read().count(text) >= times or self.process.poll() is not None, 60, lambda: f"{text!r} in {self.text!r}")
        assert self.read().count(text) >= times, f"it has ended: {self.text!r}"

    def type(self, text):
        os.write(self.master, text.encode())

    def end(self):
        code = self.process.wait(20 * TIME_FACTOR)
        self.read()
        return code

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.master)


# --- top ---

@pytest.fixture
def busy(nodes):
    """A server that is asked all the time, mostly for one name."""
    node = nodes.start(WHOAMI)
    end = threading.Event()

    def keep_asking():
        while not end.is_set():
            for name in (*["busy.example.org."] * 9, "rare.example.org."):
                patient(lambda name=name: ask(node, name))()
    asking = threading.Thread(target=keep_asking)
    asking.start()
    yield node
    end.set()
    asking.join()


def test_top_once(busy):
    wait_until(lambda: "busy.example.org." in run(busy, "top")[1], 30, lambda: run(busy, "top", "--json"))
    code, out, err = run(busy, "top", "--once")
    assert (code, err) == (0, "")
    assert re.search(r"^[\d.]+ queries/s, p50 ", out) and re.search(r"^SHARE +QUERIES/S +TYPE +NAME$", out, re.MULTILINE), out
    code, out, err = run(busy, "top", "--json", "--seconds", "5")
    names = [each["name"] for each in json.loads(one_line(out))["names"]]
    assert code == 0 and names[0] == "busy.example.org."


def ended(terminal, code):
    """As that says, and the terminal is as it was: its modes, its screen, its cursor."""
    assert terminal.end() == code
    assert terminal.text.endswith("\x1b[?25h\x1b[?1049l"), terminal.text[-80:]
    assert termios.tcgetattr(terminal.master) == terminal.before


def test_top_is_live(busy):
    with Terminal(busy, "top", width=30, height=6) as terminal:
        terminal.wait_for("\x1b[H", times=3)
        screens = re.split(r"\x1b\[H", terminal.text)[1:-1]
        for screen in screens:
            lines = re.sub(r"\x1b\[[KJ]|\r", "", screen).splitlines()
            assert len(lines) <= 5 and max(map(len, lines)) <= 30, lines
        fcntl.ioctl(terminal.master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        terminal.wait_for("busy.example.org.")
        terminal.type("xq")
        ended(terminal, 0)


@pytest.mark.parametrize("how", ["\x03", signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=["ctrl-c", "int", "term", "hup"])
def test_top_leaves_the_terminal_as_it_was(busy, how):
    with Terminal(busy, "top") as terminal:
        terminal.wait_for("queries/s")
        if isinstance(how, str):
            terminal.type(how)
        else:
            terminal.process.send_signal(how)
        ended(terminal, 0 if how in ("\x03", signal.SIGINT) else -how)


def state_of(pid):
    """As ps(1) shows it: "T" is stopped."""
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


def test_top_is_stopped_and_goes_on(busy):
    with Terminal(busy, "top") as terminal:
        terminal.wait_for("queries/s")
        terminal.process.send_signal(signal.SIGTSTP)
        terminal.wait_for("\x1b[?1049l")
        wait_until(lambda: state_of(terminal.process.pid) == "T", 10, "top is stopped")  # before, SIGCONT would be lost
        terminal.process.send_signal(signal.SIGCONT)
        terminal.wait_for("\x1b[?1049h", times=2)
        terminal.type("q")
        ended(terminal, 0)


def test_top_says_when_the_server_ends(busy):
    with Terminal(busy, "top") as terminal:
        terminal.wait_for("queries/s")
        busy.pause()
        terminal.wait_for("does not answer in time")
        busy.resume()
        terminal.type("q")
        ended(terminal, 0)


# --- release ---

@pytest.fixture
def taken(three, shared_etcd):
    """A permanent key, which nobody but an operator takes away."""
    shared_etcd.put("worker7.tf.local.", '{"ipv4":"198.51.100.7","port":"53"}')
    wait_resolves(three, "worker7.tf.local.", "198.51.100.7")
    yield "worker7.tf.local"
    shared_etcd.delete("worker7.tf.local.")
    wait_gone(three, "worker7.tf.local.")


def test_release_by_a_script(three, taken, shared_etcd):
    code, out, err = run(three[0], "release", taken)
    assert (code, out) == (2, "") and f"--yes {taken}" in one_line(err)
    assert run(three[0], "release", taken, "--yes", WORKERS[0])[0] == 2
    assert b"worker7.tf.local." in shared_etcd.pairs()
    assert run(three[0], "release", taken, "--yes", f"{taken}.") == (0, f"{taken} is released\n", "")
    assert b"worker7.tf.local." not in shared_etcd.pairs()
    code, out, err = run(three[0], "release", taken, "--yes", taken)
    assert (code, out) == (1, "") and "nobody holds" in one_line(err)


def test_release_at_a_terminal(three, taken, shared_etcd):
    for first, second in (("worker8.tf.local", None), (taken, "y"), ("", None)):
        with Terminal(three[0], "release", taken) as terminal:
            terminal.wait_for("Type the name to release it: ")
            assert "198.51.100.7" in terminal.text and "permanent" in terminal.text
            terminal.type(f"{first}\n")
            if second is not None:
                terminal.wait_for("Type yes if you are sure: ")
                terminal.type(f"{second}\n")
            assert terminal.end() == 1 and "nothing is released" in terminal.text
    assert b"worker7.tf.local." in shared_etcd.pairs()
    with Terminal(three[0], "release", taken.upper()) as terminal:
        terminal.wait_for("Type the name to release it: ")
        terminal.type(f"  {taken} \t\n")
        terminal.wait_for("Type yes if you are sure: ")
        terminal.type("yes \n")
        assert terminal.end() == 0 and f"{taken} is released" in terminal.text
    assert b"worker7.tf.local." not in shared_etcd.pairs()


def test_what_has_changed_since_it_was_shown_is_not_released(three, taken, shared_etcd):
    with Terminal(three[0], "release", taken) as terminal:
        terminal.wait_for("Type the name to release it: ")
        shared_etcd.put("worker7.tf.local.", '{"ipv4":"198.51.100.8","port":"53"}')
        terminal.type(f"{taken}\n")
        terminal.wait_for("Type yes if you are sure: ")
        terminal.type("yes\n")
        assert terminal.end() == 1 and "changed" in terminal.text
    assert b"worker7.tf.local." in shared_etcd.pairs()


def test_the_highest_name_is_released_and_its_node_moves_down(etcd, nodes):
    """After a restored backup, in which others had the low names: an operator moves the nodes down, one by one."""
    text = corefile(etcd.endpoint, lease=20, options=["address 192.0.2.7"])
    cluster = []
    for number in (1, 2, 3):
        cluster.append(nodes.start(text))
        wait_says(cluster[-1], f"worker{number}.tf.local.")
    assert cluster[0].terminate() == 0
    assert run(cluster[1], "release", WORKERS[2], "--yes", WORKERS[2])[0] == 0
    wait_says(cluster[2], "worker1.tf.local.")
    cluster[2].wait_logged("lost worker3.tf.local.: an operator has released it")
    assert set(etcd.names()) == {"worker1.tf.local.", "worker2.tf.local."}


def test_nodes_of_a_pattern_that_overlaps_are_no_members(etcd, nodes):
    """worker{{.ID}}0 has worker10, which is a name of worker{{.ID}} too."""
    ours = nodes.start(corefile(etcd.endpoint, limit=20, options=["address 192.0.2.7"]))
    wait_says(ours, "worker1.tf.local.")
    theirs = nodes.start(corefile(etcd.endpoint, "worker{{.ID}}0.tf.local.", options=["address 192.0.2.8"]))
    wait_says(theirs, "worker10.tf.local.")
    etcd.put("worker11.tf.local.", '{"ipv4":"192.0.2.9","port":"53"}')  # as the Go plugin does
    assert run(ours, "hostfile") == (0, "worker1.tf.local\nworker11.tf.local\n", "")
    assert run(theirs, "hostfile") == (0, "worker10.tf.local\n", "")
    out = run(ours, "members")[1]
    assert out.count("of another pattern") == 1 and re.search(r"^10 .*worker10\.tf\.local .*of another pattern$", out, re.MULTILINE), out


# --- completion ---

def completed(directory, line):
    """What bash offers for the last word of the line."""
    script = os.path.join(directory, "completion")
    with open(script, "w", encoding="ascii") as file:
        assert subprocess.run([binary(), "completion", "bash"], check=False, stdout=file, timeout=60).returncode == 0
    words = line.split(" ")
    code = f"""
        . {script}
        COMP_WORDS=({' '.join(f"'{word}'" for word in words)}) COMP_CWORD={len(words) - 1}
        $(complete -p idetcd | sed 's/.* -F \\([^ ]*\\) .*/\\1/')
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    result = subprocess.run(["bash", "--norc", "-c", code], check=False, capture_output=True, text=True, timeout=60, cwd=directory)
    assert result.returncode == 0 and result.stderr == "", result.stderr
    return set(result.stdout.split())


def test_completion(directory):
    assert completed(directory, "idetcd ") >= {*SUBCOMMANDS, "help", "-conf", "-validate"}
    assert completed(directory, "idetcd un") == {"undrain"}
    assert completed(directory, "idetcd help st") == {"status"}
    assert completed(directory, "idetcd status ") == {"--socket", "--json", "--help"}
    assert completed(directory, "idetcd tf-config --role worker --p") == {"--port", "--pattern"}
    assert completed(directory, "idetcd tf-config --role ") == set()
    assert completed(directory, "idetcd cache f") == {"flush"}
    assert completed(directory, "idetcd cache ") == {"flush", "--socket", "--json", "--help"}
    assert completed(directory, "idetcd cache flush ") == completed(directory, "idetcd completion bash ") == {"--socket", "--json", "--help"}
    assert completed(directory, "idetcd completion b") == {"bash"}
    assert completed(directory, "idetcd -sandbox o") == {"on", "off"}
    os.mkdir(os.path.join(directory, "there"))
    assert completed(directory, "idetcd status --socket th") == {"there"}
    assert completed(directory, "idetcd -conf th") == {"there"}
    assert "true" in completed(directory, "idetcd exec -- tru")
    assert "true" in completed(directory, "idetcd exec --members 2 tru")
    assert completed(directory, "idetcd exec --members 2 --timeout 3s -- ls th") == {"there"}
    assert completed(directory, "idetcd exec --timeout = 3s -- ls th") == {"there"}
    assert completed(directory, "idetcd status --socket = th") == {"there"}
    assert completed(directory, "idetcd status --socket =") >= {"there"}
    assert completed(directory, "idetcd exec --members 2 --t") == {"--timeout"}
