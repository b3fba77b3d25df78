"""What README.md, CONTRIBUTING.md and the pages of src/docs say to type works as it stands there, and links lead somewhere.

A block that is fenced as `sh` has commands, one as `console` also what they print; CLAIMS says how each is run here, and a
command that nothing claims fails. Corefiles: tests/unit/app/readme_test.cc. Files of other programs: test_recipes.py."""

import glob
import os
import re
import subprocess
import textwrap
from dataclasses import dataclass

import pytest

from harness.etcd import EtcdMember
from harness.namespace import Namespace
from harness.node import ROOT, Node, binary
from harness.processes import wait_until
from harness.upstreams import Upstream

README = os.path.join(ROOT, "README.md")
PAGES = [README, os.path.join(ROOT, "src", "README.md"), os.path.join(ROOT, "src", "package", "README.md"),
         os.path.join(ROOT, "src", "cli", "README.md"), *sorted(glob.glob(os.path.join(ROOT, ".github", "*.md"))),
         *sorted(glob.glob(os.path.join(ROOT, "src", "docs", "*.md")))]
EVERY_PAGE = sorted({*PAGES, *glob.glob(os.path.join(ROOT, "src", "**", "*.md"), recursive=True),
                     *glob.glob(os.path.join(ROOT, "bench", "**", "*.md"), recursive=True)})
LANGUAGES = {"sh", "console", "corefile", "yaml", "ini", "text"}

COREFILE = """. {{
    idetcd {{
        endpoint {endpoint}
        limit 5
        pattern worker{{{{.ID}}}}.tf.internal.
        address 192.0.2.1{id} 2001:db8::1{id}
    }}
    prometheus localhost:915{last}
    cache
    forward . {upstream}
}}
"""
MEMBERS = 4

# Programs in whose place others run, and why.
STAND_INS = {
    "mpirun": "it would start processes on other machines; test_jobs.py does",
    "srun": "test_jobs.py runs it",
    "dask-scheduler": "it does not end; test_jobs.py runs it",
    "dask-worker": "it does not end; test_jobs.py runs it",
    "ray": "Debian does not have it",
    "torchrun": "it is large",
    "python3": "it stands for a program that uses TensorFlow or PyTorch",
    "systemctl": "no systemd runs here",
    "journalctl": "no systemd runs here",
    "apt-get": "it would change this machine; test_package.py installs the package",
    "usermod": "it would change this machine",
    "kubectl": "there is no Kubernetes here; test_recipes.py looks at the manifest",
    "helm": "it is not in Debian; test_recipes.py renders the chart",
    "terraform": "it is not in Debian, and would rent machines",
    "docker": "it is not to be used here; test_image.py has buildah make the image",
}
# What the programs of a job do: they hold what they are given against the cluster.
STAND_IN_TEXTS = {
    "mpirun": 'test "$1 $(grep -cx "worker[1-4].tf.internal slots=8" "$2")" = "--hostfile 4"',
    "torchrun": """case "$*" in
        "--rdzv-backend idetcd "*" --nnodes 4 --nproc-per-node 8 "*" train.py") ;;
        "--nnodes 4 --node-rank 0 --nproc-per-node 8 --master-addr worker1.tf.internal --master-port 29500 train.py") ;;
        *) exit 1 ;;
    esac""",
    "ray": """case "$*" in
        "start --head --port 6379") ;;
        "start --address worker1.tf.internal:6379") test "$IDETCD_NAME" && getent hosts worker1.tf.internal ;;
        *) exit 1 ;;
    esac""",
    "python3": """case "$TF_CONFIG$IDETCD_NAME$RANK$WORLD_SIZE" in
        '{"cluster":{"worker":["worker1.tf.internal:2222",'*',"worker4.tf.internal:2222"]},"task":{"index":0,"type":"worker"}}') ;;
        worker1.tf.internal. | 04 | worker1.tf.internal.04) ;;
        *) exit 1 ;;
    esac""",
}


@dataclass(frozen=True)
class Claim:
    """How the commands are run that begin with a match of `pattern`."""

    pattern: str
    # "here": it has to succeed, and to say something; "silent": it has to succeed; "syntax": bash has to take it.
    how: str = "here"
    # Of "syntax": why no more, or what runs it.
    why: str = ""
    # What has to be so before, and what is to be undone afterwards: commands.
    before: str = "true"
    after: str = "true"


CLAIMS = [
    Claim(r"(dig|etcdctl|getent|ss|cat|curl -s) "),
    Claim(r"idetcd (-validate|status|members|whoami|wait)\b"),
    Claim(r"idetcd peers$", "syntax", "the cluster of this page has an etcd of its own; test_peers.py runs it"),
    Claim(r"idetcd exec --on-change ignore -- /usr/local/sbin/idetcd-slurmd", "syntax", "test_jobs.py runs it"),
    Claim(r"idetcd exec ", "silent"),
    Claim(r"idetcd hostfile .*>hosts( && mpirun .*)?$", "silent"),
    Claim(r"(ranks|config|TF_CONFIG)=\$\(idetcd |TF_CONFIG=\$config |env \$\(idetcd ", "silent"),
    Claim(r"idetcd drain$", after=f"idetcd undrain && idetcd wait --members {MEMBERS} --timeout 60s"),
    Claim(r"idetcd release worker5\.tf\.internal ", before="etcdctl put worker5.tf.internal. '{\"ipv4\":\"192.0.2.15\"}'"),
    Claim(r"idetcd cache flush "),
    Claim(r"idetcd top "),
    Claim(r"printf .*>/etc/resolv\.conf", "silent"),
    Claim(r"rm -f /etc/resolv\.conf && ", "silent"),
    Claim(r"(cp -L|rm -f|ln -sf|rm -rf) /", "syntax", "test_machine.py runs it"),
    Claim(r"xargs rm -f ", "syntax", "test_package.py runs it"),
    Claim(r"(" + "|".join(STAND_INS) + r")( |$)", "silent"),
    Claim(r"install -m 755 idetcd-new ", "silent"),
    Claim(r"idetcd -conf Corefile -handover ", "syntax", "it does not end; test_restart.py hands over"),
    Claim(r"tools/(quickstart|test|simulate|chaos|soak|install-packages|check-commits)\b", "syntax", "test_tools.py runs tools; tools/test is what runs this"),
    Claim(r"tools/etcd-versions\b", "syntax", "it takes half an hour, and belongs to a release"),
    Claim(r"cmake --build build/release --target (deb|rpm)", "syntax", "test_package.py makes the package"),
    Claim(r"(DESTDIR=/tmp/idetcd )?cmake --install build/release", "silent"),
    Claim(r"tar -czf /tmp/idetcd\.tar\.gz ", "silent"),
    Claim(r"(curl -fsSLo|tar -xzf) ", "syntax", "test_recipes.py runs it in a root of its own"),
]


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def blocks(path):
    """(language, text) of each fenced block, also of those that belong to an item of a list."""
    found = re.findall(r"^( *)```(\w*)\n(.*?)^\1```$", text_of(path), re.MULTILINE | re.DOTALL)
    return [(language, textwrap.dedent(text)) for _, language, text in found]


def commands(path):
    """What the blocks of `sh` say to type, without comments; each behind the assignments before it, which it may need."""
    for language, text in blocks(path):
        before = ""
        for line in text.replace("\\\n", " ").splitlines() if language == "sh" else ():
            command = re.sub(r"(^| {2,})# .*| +&( +#.*)?$", "", line).rstrip()
            if command:
                yield before, command
            if re.match(r"\w+=\$\(", command):
                before += command + "\n"


def succeeded(machine, command):
    result = machine.shell(command)
    assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
    return result


def claim_of(command):
    return next((claim for claim in CLAIMS if re.match(claim.pattern, command)), None)


class Machine:
    """With etcd, a node whose resolver is the node, and an upstream, all on their usual ports but etcd's."""

    def __init__(self, directory):
        self.directory = directory
        self.programs = os.path.join(directory, "bin")
        os.mkdir(self.programs)
        self.root = os.path.join(directory, "root")
        for name in ("etc", "tmp", "usr/local/bin"):
            os.makedirs(os.path.join(self.root, name))
        os.symlink(binary(), os.path.join(self.programs, "idetcd"))
        os.symlink(binary(), os.path.join(directory, "idetcd-new"))
        os.symlink(os.path.join(ROOT, "build"), os.path.join(directory, "build"))
        for name in STAND_INS:
            path = os.path.join(self.programs, name)
            with open(path, "w", encoding="ascii") as file:
                file.write(f"#!/bin/sh\n{STAND_IN_TEXTS.get(name, '')}\n")
            os.chmod(path, 0o755)
        self.namespace = Namespace(directory, [f"192.0.2.1{i}/32" for i in range(1, MEMBERS + 1)])
        self.started = []

    def start(self):
        """In the namespace's network."""
        self.namespace.write("resolv.conf", "nameserver 127.0.0.1\nsearch tf.internal\n")
        self.namespace.write("nsswitch.conf", "hosts: files dns\n")
        self.namespace.write("hosts", "127.0.0.1 localhost\n::1 localhost\n")
        self.etcd = EtcdMember(self.directory)
        self.started.append(self.etcd)
        self.etcd.start()
        upstream = Upstream().start()
        self.started.append(upstream)
        for i in range(1, MEMBERS + 1):
            text = COREFILE.format(endpoint=self.etcd.endpoint, id=i, last=2 + i, upstream=upstream.address)
            node = Node(f"idetcd{i}", self.directory, text, port=None)
            self.started.append(node)
            node.port = 53 if i == 1 else 5300 + i
            node.owns_port = False
            node.arguments = ["-dns.port", str(node.port)]
            # The others are on machines of their own: one socket is in this one's directory.
            node.start(env={"RUNTIME_DIRECTORY": self.directory} if i == 1 else {})
            node.wait_logged(f"claimed worker{i}.tf.internal.")
        self.node = self.started[-MEMBERS]
        wait_until(lambda: self.shell(f"idetcd status && idetcd wait --members {MEMBERS} --timeout 1").returncode == 0, 20, self.node.logs)

    def rooted(self, command):
        """With the files of /etc/idetcd and those that it writes in directories of our own."""
        command = re.sub(r"(?<=[ >=])/(tmp|usr/local)(?=/)", rf"{self.root}/\1", command)
        if "DESTDIR" not in command:
            command = command.replace("--prefix /usr/local", f"--prefix {self.root}/usr/local")
        command = command.replace("/etc/idetcd/Corefile", self.node.corefile_path).replace("/run/idetcd/53.sock", f"{self.directory}/53.sock")
        return command.replace("/etc/resolv.conf", f"{self.root}/etc/resolv.conf") if ">/etc/" in command else command

    def shell(self, commands):
        """As an operator types them."""
        return self.namespace.attempt(
            "env", "-C", self.directory, f"PATH={self.programs}:{os.environ['PATH']}", f"ETCDCTL_ENDPOINTS={self.etcd.endpoint}",
            "ETCDCTL_API=3", "SUDO_USER=operator", f"RUNTIME_DIRECTORY={self.directory}", "bash", "-o", "pipefail", "-c",
            self.rooted(commands), timeout=60)

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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: os.path.relpath(page, ROOT))
def test_every_block_is_of_a_language_that_is_checked(page):
    assert {language for language, _ in blocks(page)} <= LANGUAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: os.path.relpath(page, ROOT))
def test_every_command_is_one_that_works(machine, page):
    for before, command in commands(page):
        claim = claim_of(command)
        assert claim, f"nothing says how to test: {command}"
        if claim.how == "syntax":
            assert claim.why
            subprocess.run(["bash", "-n", "-c", command], check=True, timeout=20)
            tool = re.match(r"tools/[a-z-]+", command)
            assert not tool or os.access(os.path.join(ROOT, tool[0]), os.X_OK), command
            continue
        _, result, _ = [succeeded(machine, each) for each in (claim.before, before + command, claim.after)]
        assert result.stdout or claim.how == "silent", f"{command}: says nothing"
        if ">/etc/resolv.conf" in command:
            assert text_of(os.path.join(machine.root, "etc", "resolv.conf")).startswith("nameserver 127.0.0.1\n")


def test_every_claim_is_needed():
    found = [command for page in PAGES for _, command in commands(page)]
    found += [command for page in PAGES for command, _ in dialogues(page)]
    assert len(found) > 40
    for claim in CLAIMS:
        assert any(claim_of(command) is claim for command in found), claim.pattern
    for name in STAND_INS:
        assert any(re.search(rf"(^| ){name}( |$)", command) for command in found), name


def dialogues(page):
    """(command, what it prints) of the blocks of `console`."""
    return [found for language, text in blocks(page) if language == "console"
            for found in re.findall(r"^\$ (.*)\n((?:[^$\n].*\n|\n(?=[^$]))*)", text, re.MULTILINE)]


def alike(text):
    """Without what is another at each start: UUIDs, times (`-`: older than what the node has seen), generations, and how
    wide columns are."""
    text = re.sub(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "UUID", text)
    # An age is a lower bound where the name was there before the first snapshot, as its own may be on a busy machine.
    text = re.sub(r"(> )?\b[\d.]+ (ms|s|min|h|d)\b( \d+ (s|min|h)\b)?|(?<= )-(?= )", "TIME", text)
    text = re.sub(r"\bgeneration \d+", "generation N", text)
    return re.sub(r" +", " ", text)


def test_every_command_prints_what_stands_there(machine):
    compared = 0
    for page in PAGES:
        for command, output in dialogues(page):
            assert claim_of(command), f"nothing says how to test: {command}"
            result = machine.shell(command)
            assert alike(result.stdout) == alike(output), f"{command}\n{result.stdout}{result.stderr}"
            compared += 1
    assert compared >= 4


def test_the_page_that_the_readme_names_is_the_default():
    assert "\n    admin\n" in text_of(README)
    [port] = re.findall(r"<http://localhost:(\d+)>", text_of(README))
    assert f"`localhost:{port}`" in text_of(os.path.join(ROOT, "src", "directive", "admin", "README.md"))


def test_what_the_pages_put_resolves(machine):
    puts = [command for page in PAGES for _, command in commands(page) if command.startswith("etcdctl put ")]
    assert puts
    for command in puts:
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
