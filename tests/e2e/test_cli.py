"""The subcommands: `idetcd status` and the others, with real nodes."""

import json
import os
import re
import signal
import subprocess

import pytest

from corefiles import corefile
from harness.node import binary
from harness.processes import TIME_FACTOR, Process, prepare_child, wait_until

WHOAMI = ". {\n    whoami\n}\n"
SUBCOMMANDS = ("status", "members", "whoami", "wait", "tf-config", "hostfile", "torchrun-env", "exec", "drain", "undrain", "release",
               "cache", "top", "completion")


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


@pytest.mark.parametrize("arguments", [["status", "--frob"], ["status", "more"], ["status", "--json=1"], ["status", "--socket"],
                                       ["wait"], ["wait", "--members=0"], ["wait", "--members=2", "--timeout=soon"],
                                       ["tf-config", "--port=1"], ["tf-config", "--role=worker"], ["torchrun-env"],
                                       ["torchrun-env", "--port=0"], ["exec"], ["exec", "--"], ["release"], ["cache"], ["cache", "fill"],
                                       ["release", "a.org", "--yes", "b.org"], ["release", "a.org"], ["completion", "tcsh"],
                                       ["help", "frob"]])
def test_wrong_usage(directory, arguments):
    code, out, err = run(directory, *arguments)
    assert code == 2 and out == ""
    assert err.startswith(f"idetcd {arguments[0]}: "), err


def test_a_word_that_is_no_subcommand_is_an_argument_too_many():
    assert run("/", "statu") == (1, "", "extra command line arguments: [statu]\n")
    assert run("/", "-quiet", "status") == (1, "", "extra command line arguments: [status]\n")


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
