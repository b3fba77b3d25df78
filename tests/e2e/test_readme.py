"""What README.md shows works as it stands there."""

import glob
import os
import re
import subprocess
import textwrap

import pytest

from harness import unit_file
from harness.node import ROOT, binary

with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
    README = file.read()


def recipe_file(path):
    """The content that the cloud-init recipe writes to `path`."""
    return textwrap.dedent(re.search(rf"  - path: {path}\n    content: \|\n((?:      .*\n|\n)+)", README).group(1))


def test_the_recipes_corefile_is_accepted(directory):
    """With the files that it names. The blocks that are fenced as Corefiles: tests/unit/app/readme_test.cc."""
    upstreams = os.path.join(directory, "upstreams.conf")
    with open(upstreams, "w", encoding="ascii") as servers:
        servers.write("nameserver 192.0.2.53\n")
    text = recipe_file("/etc/idetcd/Corefile")
    assert "/etc/idetcd/upstreams.conf" in text
    result = subprocess.run([binary(), "-validate", "-conf", "stdin"], check=False, capture_output=True, text=True, timeout=20,
                            input=text.replace("/etc/idetcd/upstreams.conf", upstreams))
    assert result.returncode == 0, f"{text}\n{result.stderr}"


def test_the_recipes_unit_is_that_of_the_tree():
    """How far it lets the server do its work: test_sandbox.py."""
    assert recipe_file("/etc/systemd/system/idetcd.service").rstrip("\n") == unit_file.text().rstrip("\n")
    # The routes and addresses of the machine are read over netlink; the state has the boot's ID from /proc/sys.
    options = unit_file.options()
    assert options["StateDirectory"] == ["idetcd"] and "-HUP" in options["ExecReload"][0]
    assert "AF_NETLINK" in options["RestrictAddressFamilies"][0] and "ProcSubset" not in options


@pytest.mark.parametrize("downloaded", [True, False], ids=["downloaded", "not-downloaded"])
def test_the_recipes_commands_take_the_resolver_over_only_if_the_server_runs(directory, downloaded):
    """In a directory that stands for the machine's root, with programs that stand for those that would change it."""
    def write(path, text, mode=0o644):
        path = os.path.join(directory, path.lstrip("/"))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        os.chmod(path, mode)

    def rooted(text):
        return re.sub(r"(?<![\w./])/(?=etc|usr|run)", f"{directory}/", text)

    write("/etc/idetcd/Corefile", rooted(recipe_file("/etc/idetcd/Corefile")))
    write("/etc/resolv.conf", "nameserver 192.0.2.53\n")
    os.makedirs(os.path.join(directory, "usr", "local", "bin"))
    write("/bin/curl", f"#!/bin/sh\nexec cp {binary()} \"$2\"\n" if downloaded else "#!/bin/sh\nexit 22\n", 0o755)
    write("/bin/systemctl", f'#!/bin/sh\necho "$@" >>{directory}/systemctl.log\n', 0o755)
    commands = re.search(r"^runcmd:\n((?:  .*\n)+)", README, re.MULTILINE).group(1)
    commands = re.sub(r"^  - >-\n", "  - ", commands, flags=re.MULTILINE)  # folded: lines that go on
    commands = re.sub(r"\n    ", " ", re.sub(r"^  - +", "", commands, flags=re.MULTILINE))
    subprocess.run(["sh", "-c", rooted(commands)], check=False, capture_output=True, timeout=20,
                   env={"PATH": f"{directory}/bin:{os.environ['PATH']}"})

    with open(os.path.join(directory, "etc", "idetcd", "upstreams.conf"), encoding="ascii") as file:
        assert file.read() == "nameserver 192.0.2.53\n"
    with open(os.path.join(directory, "etc", "resolv.conf"), encoding="ascii") as file:
        assert file.read() == ("nameserver 127.0.0.1\nsearch tf.internal\n" if downloaded else "nameserver 192.0.2.53\n")
    with open(os.path.join(directory, "systemctl.log"), encoding="ascii") as file:
        assert ("enable --now idetcd" in file.read()) == downloaded


def test_examples_keep_off_the_names_of_multicast_dns():
    paths = [os.path.join(ROOT, "README.md"), *glob.glob(os.path.join(ROOT, "src", "plugin", "*", "README.md"))]
    assert len(paths) > 1
    for path in paths:
        with open(path, encoding="utf-8") as file:
            examples = re.findall(r"^```\w*\n(.*?)^```$", file.read(), re.MULTILINE | re.DOTALL)
        assert not [line for text in examples for line in text.splitlines() if re.search(r"\.local\b", line)], path
