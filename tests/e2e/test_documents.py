"""What README.md and the pages of src/docs say to type works as it stands there, and links lead somewhere."""

import glob
import os
import re

import pytest

from harness.etcd import EtcdMember
from harness.namespace import Namespace
from harness.node import ROOT, Node, binary
from harness.processes import wait_until
from harness.upstreams import Upstream

README = os.path.join(ROOT, "README.md")
PAGES = sorted(glob.glob(os.path.join(ROOT, "src", "docs", "*.md")))
EVERY_PAGE = [README, *sorted(glob.glob(os.path.join(ROOT, "src", "**", "*.md"), recursive=True)),
              *sorted(glob.glob(os.path.join(ROOT, "bench", "**", "*.md"), recursive=True))]

OWN = "192.0.2.11"
COREFILE = """. {{
    idetcd {{
        endpoint {endpoint}
        pattern worker{{{{.ID}}}}.tf.internal.
        address {own} 2001:db8::11
    }}
    prometheus
    cache
    forward . {upstream}
}}
"""
# What other machines have put.
OTHERS = {"worker4.tf.internal.": '{"ipv4":"192.0.2.14","ipv6":"2001:db8::14","port":"53"}'}
# Programs that would change the machine, or ask what does not run here.
STAND_INS = ("systemctl", "journalctl")


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def blocks(path, language):
    """The fenced blocks of that language."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text_of(path), re.MULTILINE | re.DOTALL)
    return [text for of, text in found if of == language]


class Machine:
    """With etcd, a node whose resolver is the node, and an upstream, all on their usual ports but etcd's."""

    def __init__(self, directory):
        self.directory = directory
        self.programs = os.path.join(directory, "bin")
        os.mkdir(self.programs)
        os.symlink(binary(), os.path.join(self.programs, "idetcd"))
        for name in STAND_INS:
            path = os.path.join(self.programs, name)
            with open(path, "w", encoding="ascii") as file:
                file.write("#!/bin/sh\n")
            os.chmod(path, 0o755)
        self.namespace = Namespace(directory, [f"{OWN}/32"])
        self.started = []

    def start(self):
        """In the namespace's network."""
        self.namespace.write("resolv.conf", "nameserver 127.0.0.1\nsearch tf.internal\n")
        self.namespace.write("nsswitch.conf", "hosts: files dns\n")
        self.namespace.write("hosts", "127.0.0.1 localhost\n::1 localhost\n")
        self.etcd = EtcdMember(self.directory)
        self.started.append(self.etcd)
        self.etcd.start()
        for name, value in OTHERS.items():
            self.etcd.put(name.encode(), value.encode())
        upstream = Upstream().start()
        self.started.append(upstream)
        self.node = Node("idetcd", self.directory, COREFILE.format(endpoint=self.etcd.endpoint, own=OWN, upstream=upstream.address),
                         port=None)
        self.started.append(self.node)
        self.node.port = 53
        self.node.owns_port = False
        self.node.arguments = ["-dns.port", "53"]
        self.node.start(env={"RUNTIME_DIRECTORY": self.directory})
        self.node.wait_logged("claimed worker1.tf.internal.")
        wait_until(lambda: self.shell("dig +short CH TXT id.server @localhost").stdout == '"worker1.tf.internal"\n', 20, self.node.logs)

    def shell(self, commands):
        """As an operator types them, in a directory of the machine's own for /etc/idetcd."""
        commands = commands.replace("/etc/idetcd/Corefile", self.node.corefile_path)
        return self.namespace.attempt(
            "env", f"PATH={self.programs}:{os.environ['PATH']}", f"ETCDCTL_ENDPOINTS={self.etcd.endpoint}", "ETCDCTL_API=3",
            f"RUNTIME_DIRECTORY={self.directory}", "bash", "-o", "pipefail", "-c", commands, timeout=60)

    def close(self):
        for one in reversed(self.started):
            one.close()


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    if os.geteuid() != 0:
        pytest.skip("needs root")
    machine = Machine(str(tmp_path_factory.mktemp("machine")))
    try:
        with machine.namespace.entered():
            try:
                machine.start()
                yield machine
            finally:
                machine.close()
    finally:
        machine.namespace.close()


@pytest.mark.parametrize("page", PAGES, ids=os.path.basename)
def test_every_command_of_the_pages_succeeds(machine, page):
    found = [line for block in blocks(page, "sh") for line in block.splitlines()]
    assert found or os.path.basename(page) != "troubleshooting.md"
    for command in found:
        result = machine.shell(command)
        assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
        assert result.stdout or command.split()[0] in STAND_INS, f"{command}: says nothing"


def test_every_command_of_the_readme_prints_what_stands_there(machine):
    compared = 0
    for block in blocks(README, ""):
        for command, output in re.findall(r"^\$ (.*)\n((?:[^$\n].*\n)*)", block, re.MULTILINE):
            if command == "idetcd -conf Corefile":  # the server itself, which the machine runs
                continue
            result = machine.shell(command)
            assert result.stdout == output, f"{command}\n{result.stderr}"
            compared += 1
    assert compared >= 4


def test_what_the_readme_puts_resolves(machine):
    commands = [line for block in blocks(README, "") for line in block.splitlines() if line.startswith("etcdctl put ")]
    assert commands
    for command in commands:
        assert machine.shell(command).stdout == "OK\n"
        name, address = re.search(r"put (\S+) .*\"ipv4\":\"([\d.]+)\"", command).groups()
        wait_until(lambda: machine.shell(f"dig +short {name} @localhost").stdout == f"{address}\n", 20, machine.node.logs)


def anchors(text):
    """Those that GitHub gives to headings."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}


@pytest.mark.parametrize("page", EVERY_PAGE, ids=lambda page: os.path.relpath(page, ROOT))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^()\s]+)\)", re.sub(r"^```.*?^```$", "", text_of(page), flags=re.MULTILINE | re.DOTALL)):
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        assert os.path.exists(path), target
        if anchor:
            assert anchor in anchors(text_of(path)), target
