"""What README.md shows works as it stands there."""

import os
import re
import subprocess
import textwrap

from harness.node import ROOT, binary

with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
    README = file.read()


def recipe_file(path):
    """The content that the cloud-init recipe writes to `path`."""
    return textwrap.dedent(re.search(rf"  - path: {path}\n    content: \|\n((?:      .*\n|\n)+)", README).group(1))


def test_each_corefile_is_accepted(directory):
    corefiles = [text for text in re.findall(r"^```\n(.*?)^```$", README, re.MULTILINE | re.DOTALL) if text.startswith(". {")]
    corefiles.append(recipe_file("/etc/idetcd/Corefile"))
    assert len(corefiles) >= 3
    upstreams = os.path.join(directory, "upstreams.conf")
    with open(upstreams, "w", encoding="ascii") as servers:
        servers.write("nameserver 192.0.2.53\n")
    for text in corefiles:
        result = subprocess.run([binary(), "-validate", "-conf", "stdin"], check=False, capture_output=True, text=True, timeout=20,
                                input=text.replace("/etc/idetcd/upstreams.conf", upstreams))
        assert result.returncode == 0, f"{text}\n{result.stderr}"


def test_the_unit_lets_the_server_do_its_work():
    unit = recipe_file("/etc/systemd/system/idetcd.service")
    options = dict(line.split("=", 1) for line in unit.splitlines() if "=" in line)
    assert options["StateDirectory"] == "idetcd" and "-HUP" in options["ExecReload"]
    assert "CAP_NET_BIND_SERVICE" in options["AmbientCapabilities"]
    # The routes and addresses of the machine are read over netlink; the state has the boot's ID from /proc/sys.
    assert "AF_NETLINK" in options["RestrictAddressFamilies"] and "ProcSubset" not in options


def test_examples_keep_off_the_names_of_multicast_dns():
    examples = re.findall(r"^```\w*\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert not [line for text in examples for line in text.splitlines() if re.search(r"\.local\b", line)]
