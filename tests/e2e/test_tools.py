"""The commands that the README names, and what hosted CI does with them."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest
import yaml

from harness.namespace import Namespace
from harness.node import ROOT
from harness.processes import Process, TIME_FACTOR, ended, wait_until

QUICKSTART = [sys.executable, "-B", os.path.join(ROOT, "tools", "quickstart.py")]


def test_install_packages_is_quick_when_all_is_there():
    took = []
    while not took or took[-1] >= 5 * TIME_FACTOR and len(took) < 4:  # of three a busy machine may be late with some
        begin = time.monotonic()
        result = subprocess.run([os.path.join(ROOT, "tools", "install-packages")], check=False, capture_output=True, text=True)
        assert result.returncode == 0 and result.stdout == "" and result.stderr == ""
        took.append(time.monotonic() - begin)
    assert took[-1] < 5 * TIME_FACTOR, took
    assert not os.path.exists("/usr/sbin/policy-rc.d.before-idetcd")


# What the packages do when they are installed, where nothing but the machine's directories of daemons is replaced.
FAKE_PROGRAMS = {
    "dpkg-query": "echo 'unknown ok not-installed'",
    "apt-get": """[[ $* == *update* ]] && exit
printf '%s\\n' "$@" >"$RECORD/installed"
/usr/sbin/policy-rc.d etcd start; echo $? >"$RECORD/policy"
mkdir -p /etc/systemd/system/{multi-user.target,unbound.service}.wants
ln -s /lib/systemd/system/etcd.service /etc/systemd/system/multi-user.target.wants/
ln -s /lib/systemd/system/etcd.service /etc/systemd/system/etcd2.service
ln -s /lib/systemd/system/unbound-resolvconf.service /etc/systemd/system/unbound.service.wants/
ln -s ../init.d/etcd /etc/rc2.d/S01etcd
exit $APT_STATUS""",
    "update-rc.d": "[[ $2 == disable ]] && mv /etc/rc2.d/S01$1 /etc/rc2.d/K01$1",
    "systemctl": "exit 0",
}
PRIVATE = ["/etc/systemd/system", "/etc/rc2.d", "/usr/sbin"]


@pytest.mark.skipif(os.geteuid() != 0, reason="replaces directories in a mount namespace")
@pytest.mark.parametrize("status", [0, 1], ids=["installed", "failed half-way"])
def test_installed_daemons_are_neither_started_nor_enabled(directory, status):
    programs, record = os.path.join(directory, "bin"), os.path.join(directory, "record")
    os.mkdir(programs)
    os.mkdir(record)
    for name, body in FAKE_PROGRAMS.items():
        with open(os.path.join(programs, name), "w", encoding="ascii") as file:
            file.write(f"#!/bin/bash\n{body}\n")
        os.chmod(file.name, 0o755)
    script = f"""set -e
        for place in {" ".join(PRIVATE)}; do mount -t tmpfs none $place; done
        mkdir -p /etc/systemd/system/multi-user.target.wants
        ln -s /lib/systemd/system/nsd.service /etc/systemd/system/multi-user.target.wants/nsd.service
        ln -s ../init.d/nsd /etc/rc2.d/S01nsd
        status=0
        {os.path.join(ROOT, "tools", "install-packages")} quickstart || status=$?
        find {" ".join(PRIVATE)} -type l -o -type f -o -name '*.wants' | sort
        exit $status"""
    result = subprocess.run(["unshare", "--mount", "bash", "-c", script], check=False, capture_output=True, text=True, timeout=30 * TIME_FACTOR,
                            env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "RECORD": record,
                                 "APT_STATUS": str(status)})
    assert result.returncode == status, result.stderr
    left = result.stdout.splitlines()[result.stdout.splitlines().index("/etc/rc2.d/K01etcd"):]
    # What the user had enabled is as it was; no policy is left behind.
    assert left == ["/etc/rc2.d/K01etcd", "/etc/rc2.d/S01nsd", "/etc/systemd/system/multi-user.target.wants",
                    "/etc/systemd/system/multi-user.target.wants/nsd.service"], result.stdout
    with open(os.path.join(record, "policy"), encoding="ascii") as file:
        assert file.read() == "101\n", "a service was allowed to start"
    with open(os.path.join(record, "installed"), encoding="ascii") as file:
        installed = file.read().split()
    assert "etcd-server" in installed and not {"nsd", "knot", "unbound", "python3-pytest"} & set(installed)


def compile_commands(folder):
    """File -> how it is compiled, whichever folder that is in."""
    with open(os.path.join(folder, "compile_commands.json"), encoding="utf-8") as file:
        return {command["file"].replace(folder, "BUILD"): command["command"].replace(folder, "BUILD") for command in json.load(file)}


def test_packages_for_tests_change_nothing_that_was_compiled_without_them(directory):
    """So whatever of the tools is run first, the next one compiles no file again."""
    release = os.path.join(ROOT, "build", "release")
    subprocess.run(["cmake", "--preset", "release", "-B", directory, "-D", "CMAKE_DISABLE_FIND_PACKAGE_GTest=ON",
                    "-D", "CMAKE_DISABLE_FIND_PACKAGE_benchmark=ON"], cwd=ROOT, check=True, capture_output=True, timeout=120 * TIME_FACTOR)
    without, there = compile_commands(directory), compile_commands(release)
    assert len(without) < len(there)
    assert {file: command for file, command in without.items() if there.get(file) != command} == {}


def test_a_package_that_comes_is_looked_for():
    """bench/load/run after tools/quickstart finds what it needs, and tools/test too."""
    asked = subprocess.run(["ninja", "-C", os.path.join(ROOT, "build", "release"), "-t", "query", "build.ninja"], check=True,
                           capture_output=True, text=True, timeout=20 * TIME_FACTOR)
    assert "/var/lib/dpkg/status" in asked.stdout


def what_is_affected():
    """By nothing yet."""
    sys.path.insert(0, os.path.join(ROOT, "tests"))
    from affected import Affected  # pylint: disable=import-outside-toplevel
    sys.path.pop(0)
    return Affected(pathlib.Path(ROOT))


@pytest.mark.parametrize("change, programs, files, not_files", [
    ("src/directive/dns64/dns64.cc", {"directive_test", "app_test", "idetcd"}, {"test_dns64.py"}, {"test_cluster.py"}),
    ("src/cli/text.cc", {"cli_test", "app_test", "idetcd"}, {"test_cli.py"}, {"test_dns64.py"}),
    ("src/dns/name.cc", {"dns_test", "directive_test", "simulation_test", "name_fuzz"}, {"test_cluster.py"}, set()),
    ("tests/e2e/test_tcp.py", {"idetcd"}, {"test_tcp.py"}, {"test_dns64.py"}),
    ("README.md", {"idetcd"}, {"test_documents.py"}, {"test_tcp.py"}),
    ("src/directive/values/values.cc", {"directive_test", "idetcd"}, {"test_tcp_limits.py", "test_timeouts.py"}, {"test_dns64.py"}),
    ("bench/load/echo.cc", {"bench"}, set(), {"test_tools.py"}),
    (".github/workflows/ci.yml", {"idetcd"}, {"test_tools.py"}, {"test_tcp.py"}),
    ("tests/count_results.py", {"idetcd"}, {"test_tools.py"}, {"test_tcp.py"}),
])
def test_what_a_change_affects(change, programs, files, not_files):
    affected = what_is_affected()
    affected.add(change)
    affected.finish()
    named = {os.path.basename(name) for name in affected.e2e}
    assert programs <= affected.build and files <= named and not not_files & named


def test_each_directive_has_tests_that_a_change_of_it_affects():
    affected = what_is_affected()
    folders = [folder for folder in affected.depends if folder.startswith("directive/")]
    names = {name for folder in folders for name in affected.directives_of(folder)}
    assert len(folders) > 20 and {"any", "dns64", "zonelimit"} <= names
    for folder in folders:
        affected = what_is_affected()
        affected.folders = {folder}
        affected.finish()
        assert affected.e2e, folder


@pytest.mark.parametrize("change, tidied", [
    ("src/directive/values/values.cc", {"src/directive/values/values.cc"}),
    ("src/directive/values/values.h", {"src/directive/values"}),
    (".clang-tidy", {"src"}),
    ("tests/unit/dns/name_test.cc", {"tests/unit/dns/name_test.cc"}),
    ("README.md", set()),
])
def test_what_a_change_has_tidied(change, tidied):
    affected = what_is_affected()
    affected.add(change)
    assert affected.tidy == tidied


FAILURE = "<failure/>"
JUNIT = """<testsuites><testsuite>
<testcase name="a"/><testcase name="b">%s</testcase><testcase name="c"><skipped message="no chromium"/></testcase></testsuite></testsuites>"""


def count(directory, **reports):
    for name, text in reports.items():
        path = os.path.join(directory, f"{name.replace('__', '/')}.xml")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
    result = subprocess.run([os.path.join(ROOT, "tests", "count_results.py"), directory], check=False, capture_output=True, text=True)
    return result.returncode, result.stdout.splitlines()


@pytest.mark.parametrize("failures", [0, 1])
def test_skipped_tests_are_counted_and_named(directory, failures):
    status, lines = count(directory, part=JUNIT % (FAILURE * failures))
    assert status == failures
    assert lines[-2:] == ["skipped: part: c: no chromium", f"{2 - failures} passed, {failures} failed, 1 skipped"]


def test_a_name_that_no_file_can_have_is_counted(directory):
    assert count(directory, part=JUNIT.replace('"a"', f'"{"a" * 5000}/"') % "")[1][-1] == "2 passed, 0 failed, 1 skipped"


@pytest.mark.parametrize("program_failed,test_failed,counts", [
    (False, False, "2 passed, 0 failed, 2 skipped"),
    (True, True, "1 passed, 1 failed, 2 skipped"),
    (True, False, "2 passed, 1 failed, 2 skipped"),  # a leak, after the last test
])
def test_a_program_counts_as_its_tests(directory, program_failed, test_failed, counts):
    status, lines = count(directory, part=JUNIT % (FAILURE * program_failed), part__b="""<testsuites><testsuite>
<testcase name="One" classname="Suite">%s</testcase>
<testcase name="Two" classname="Suite" status="run"><skipped message="a.cc:1&#x0A;no room"/></testcase></testsuite></testsuites>
""" % (FAILURE * test_failed))
    assert status == program_failed and lines[-1] == counts
    assert "skipped: part: b: Suite.Two: no room" in lines


@pytest.mark.serial
@pytest.mark.parametrize("options", [[], ["--etcd"]], ids=["founded", "etcd"])
def test_quickstart_once(options):
    result = subprocess.run([os.path.join(ROOT, "tools", "quickstart"), "--once", *options], check=False, capture_output=True, text=True,
                            timeout=600 * TIME_FACTOR, cwd="/")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "every node resolves every name" in result.stdout
    assert [line.split()[0] for line in result.stdout.splitlines() if "/3  " in line] == ["1/3", "2/3", "3/3"], result.stdout
    for i in range(1, 6):
        row = next(line for line in result.stdout.splitlines() if line.startswith(f"worker{i}.tf.internal."))
        assert row.count("udp tcp") == 5, result.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_quickstart_cleans_up(directory, number):
    quickstart = Process("quickstart", directory)
    quickstart.spawn(QUICKSTART)
    try:
        wait_until(lambda: not quickstart.running() or "Try it" in quickstart.out(), 60, quickstart.logs)
        assert quickstart.running(), quickstart.logs()
        children = quickstart.children()
        assert len(children) == 5, "nodes, of which some have started an etcd"
        quickstart.signal(number)
        assert quickstart.exit_code(15) == (0 if number == signal.SIGINT else 128 + number)
    finally:
        quickstart.kill()
    wait_until(lambda: all(ended(pid) for pid in children), 10, lambda: [pid for pid in children if not ended(pid)])


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a network namespace")
def test_quickstart_takes_other_ports_when_its_own_are_taken(directory):
    # In a network of its own: in ours the quickstart of another test may hold the port, and give it up meanwhile.
    machine = Namespace(directory, addresses=["10.9.8.7/24"])
    try:
        with machine.entered(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as holder:
            holder.bind(("127.0.0.1", 1053))
            result = subprocess.run([*QUICKSTART, "--once"], check=False, capture_output=True, text=True, timeout=120 * TIME_FACTOR)
    finally:
        machine.close()
    assert result.returncode == 0, result.stdout + result.stderr
    # etcd's port, which is any free one, may begin with the same digits.
    assert not re.search(r":1053\b", result.stdout) and re.search(r":1054\b", result.stdout)


def test_quickstart_fails_when_a_node_fails():
    result = subprocess.run([*QUICKSTART, "--once"], check=False, capture_output=True, text=True, timeout=60 * TIME_FACTOR,
                            env={**os.environ, "IDETCD_BINARY": "/bin/false"})
    assert result.returncode == 1
    assert "ended with 1" in result.stderr


def test_hosted_ci_runs_the_commands_of_the_readme():
    """It cannot run here: this is its form, and what its steps call."""
    path = os.path.join(ROOT, ".github", "workflows", "ci.yml")
    rules = "{extends: default, rules: {document-start: disable, line-length: {max: 120}}}"
    subprocess.run(["yamllint", "--strict", "-d", rules, path], check=True, timeout=20 * TIME_FACTOR)
    with open(path, encoding="utf-8") as file:
        workflow = yaml.safe_load(file)
    assert set(workflow) == {"name", "on", "permissions", "concurrency", "jobs"}
    commands = []
    for job in workflow["jobs"].values():
        assert set(job) - {"env"} == {"runs-on", "container", "timeout-minutes", "steps"}
        assert job["container"] in ("debian:12", {"image": "debian:12", "options": "--privileged"})
        for step in job["steps"]:
            if "run" in step:
                assert set(step) == {"run"} and "${{" not in step["run"], "what others write belongs into a variable"
                commands.append(step["run"])
            else:
                assert set(step) <= {"uses", "with"} and re.fullmatch(r"actions/checkout@v\d+", step["uses"])
    for command in commands:
        subprocess.run(["bash", "-n", "-c", command], check=True, timeout=20 * TIME_FACTOR)
        tool = command.split()[0]
        assert "/" not in tool or os.access(os.path.join(ROOT, tool), os.X_OK), command
    assert {"tools/quickstart --once", "tools/test"} <= set(commands)


@pytest.mark.parametrize("message, fault", [
    ("net: " + "ä" * 67, None),
    ("net, src/README: a change\n\nWhy it is made.", None),
    ('Revert "net: a change"', None),
    ("net: " + "x" * 68, "73 characters"),
    ("a change", "not 'area: what changes'"),
    ("net: a change\nWhy it is made.", "not empty"),
], ids=["72", "body", "revert", "73", "no area", "no empty line"])
def test_check_commits(directory, message, fault):
    result = check_commits(directory, ["old, and not looked at", message])
    assert result.returncode == (1 if fault else 0) and (fault or "") in result.stderr, result.stderr


@pytest.mark.parametrize("base, checked", [("HEAD~2", 1), ("HEAD~1", 0), ("0" * 40, 0)], ids=["two", "one", "a new branch"])
def test_check_commits_since(directory, base, checked):
    """Hosted CI names the commit before a push, which is zeros for a new branch."""
    result = check_commits(directory, ["the first", "bad", "net: good"], base)
    assert result.returncode == checked and ("what changes" in result.stderr) == checked, result.stderr


def check_commits(directory, messages, *arguments):
    subprocess.run(["git", "init", "-q", directory], check=True)
    os.makedirs(os.path.join(directory, "tools"))
    shutil.copy(os.path.join(ROOT, "tools", "check-commits"), os.path.join(directory, "tools"))
    git = ["git", "-C", directory, "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "--allow-empty", "--cleanup=verbatim", "-m"]
    for message in messages:
        subprocess.run([*git, message], check=True)
    return subprocess.run([os.path.join(directory, "tools", "check-commits"), *arguments], cwd=directory, check=False,
                          capture_output=True, text=True)


@pytest.mark.parametrize("tool", ["quickstart", "test"])
def test_unknown_arguments(tool):
    result = subprocess.run([os.path.join(ROOT, "tools", tool), "--frob"], check=False, capture_output=True, text=True, timeout=10 * TIME_FACTOR)
    assert result.returncode == 2 and f"tools/{tool}" in result.stderr
