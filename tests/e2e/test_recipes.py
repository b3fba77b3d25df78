"""What src/docs/recipes.md shows to copy, or leads to in src/deploy, does what it is there for, in a directory that stands for the machine's root."""

import glob
import json
import os
import re
import subprocess

import pytest
import yaml

from harness.namespace import Namespace
from harness.node import ROOT, binary
from harness.processes import TIME_FACTOR
from harness import unit_file

with open(os.path.join(ROOT, "src", "docs", "recipes.md"), encoding="utf-8") as page:
    RECIPES = page.read()


def deployed(*path):
    with open(os.path.join(ROOT, "src", "deploy", *path), encoding="ascii") as file:
        return file.read()


CLOUD_CONFIG = yaml.safe_load(deployed("terraform", "user-data.yaml"))
KUBERNETES = list(yaml.safe_load_all(deployed("kubernetes", "idetcd.yaml")))
FILES = {entry["path"]: entry for entry in CLOUD_CONFIG["write_files"]}


class Root:
    """A directory that stands for the machine's root."""

    def __init__(self, directory):
        self.directory = directory

    def path(self, path):
        return os.path.join(self.directory, path.lstrip("/"))

    def write(self, path, text, mode=0o644):
        path = self.path(path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        os.chmod(path, mode)

    def read(self, path):
        with open(self.path(path), encoding="ascii") as file:
            return file.read()

    def rooted(self, text):
        """What it says of the machine's files, of those below the directory."""
        return re.sub(r"(?<![\w./])/(?=etc|usr|run|var)", f"{self.directory}/", re.sub(r"-C / ", f"-C {self.directory} ", text))

    def run(self, commands):
        return subprocess.run(["sh", "-c", self.rooted(commands)], check=False, capture_output=True, text=True, timeout=20 * TIME_FACTOR,
                              env={"PATH": f"{self.directory}/bin:{self.directory}/usr/local/bin:{self.directory}/usr/bin:{os.environ['PATH']}"})


@pytest.fixture(name="root")
def made_root(directory):
    root = Root(directory)
    os.makedirs(root.path("/usr/bin"))
    os.makedirs(root.path("/run"))
    for path, entry in FILES.items():
        root.write(path, root.rooted(entry["content"]), int(entry.get("permissions", "0644"), 8))
    return root


def test_the_corefile_is_accepted(root):
    """With the files that it names. The blocks that are fenced as Corefiles: tests/unit/app/readme_test.cc."""
    root.write("/etc/idetcd/upstreams.conf", "nameserver 192.0.2.53\n")
    assert "/etc/idetcd/upstreams.conf" in FILES["/etc/idetcd/Corefile"]["content"]
    result = subprocess.run([binary(), "-validate", "-conf", root.path("/etc/idetcd/Corefile")], check=False, capture_output=True, text=True,
                            timeout=20 * TIME_FACTOR)
    assert result.returncode == 0, result.stderr


def test_the_group_of_machines_has_that_text_and_room_for_no_more():
    group = deployed("terraform", "main.tf")
    [name] = re.findall(r'filebase64\("\$\{path\.module\}/([^"]+)"\)', group)
    [limit] = re.findall(r"^ *limit (\d+)$", FILES["/etc/idetcd/Corefile"]["content"], re.MULTILINE)
    assert name == "user-data.yaml" and re.search(rf"^ *max_size += {limit}\b", group, re.MULTILINE)


def stand_ins(root, installs):
    """Programs for those that would change the machine. What `curl` brings depends on what `installs` it, if anything does."""
    root.write("/bin/systemctl", f'#!/bin/sh\necho "$@" >>{root.directory}/systemctl.log\n', 0o755)
    root.write("/bin/systemd-sysusers", "#!/bin/sh\n", 0o755)
    # The last argument is the package.
    root.write("/bin/apt-get", f'#!/bin/sh\nfor package; do :; done\ntest -s "$package" && cp "$package" {root.path("/usr/bin/idetcd")}\n', 0o755)
    if installs == "archive":
        tree = os.path.join(root.directory, "tree")
        os.makedirs(os.path.join(tree, "usr", "local", "bin"))
        os.symlink(binary(), os.path.join(tree, "usr", "local", "bin", "idetcd"))
        subprocess.run(["tar", "-czf", root.path("archive"), "-C", tree, "usr"], check=True, timeout=20 * TIME_FACTOR)
        root.write("/bin/curl", f'#!/bin/sh\nexec cp {root.path("archive")} "$2"\n', 0o755)
    elif installs == "package":
        root.write("/bin/curl", f'#!/bin/sh\nexec cp {binary()} "$2"\n', 0o755)
    else:
        root.write("/bin/curl", "#!/bin/sh\nexit 22\n", 0o755)


@pytest.mark.parametrize("installs", ["package", "archive", None])
def test_the_commands_take_the_resolver_over_only_if_the_server_runs(root, installs):
    root.write("/etc/resolv.conf", "nameserver 192.0.2.53\n")
    stand_ins(root, installs)
    commands = CLOUD_CONFIG["runcmd"]
    if installs == "archive":
        [other] = re.findall(r"^```sh\n(curl .*?)^```$", RECIPES, re.MULTILINE | re.DOTALL)
        commands = [other, *commands[2:]]
    root.run("\n".join(commands))

    assert root.read("/etc/idetcd/upstreams.conf") == "nameserver 192.0.2.53\n"
    assert root.read("/etc/resolv.conf") == ("nameserver 127.0.0.1\nsearch tf.internal\n" if installs else "nameserver 192.0.2.53\n")
    assert ("enable --now idetcd" in root.read("systemctl.log")) == bool(installs)


def test_systemd_accepts_the_units(root):
    """And the unit of the tree, with programs that are there."""
    units = root.path("/etc/systemd/system")
    root.write("/etc/systemd/system/idetcd.service", unit_file.text().replace("/usr/local/bin/idetcd", binary()))
    result = subprocess.run(["systemd-analyze", "verify", "--man=no", *sorted(glob.glob(f"{units}/idetcd*"))], check=False,
                            capture_output=True, text=True, timeout=60 * TIME_FACTOR)
    ours = [line for line in result.stderr.splitlines() if "idetcd" in line]
    assert len(os.listdir(units)) == 2 and result.returncode == 0 and not ours, result.stderr


def test_what_other_programs_read_is_well_formed():
    """Drop-ins of programs that are not here, or cannot check theirs: sections, and options that these programs have."""
    known = {"Resolve": {"DNS", "Domains", "DNSStubListener"}, "main": {"dns", "rc-manager"}}
    blocks = re.findall(r"^```ini\n(.*?)^```$", RECIPES, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 3
    for block in blocks:
        title, *lines = block.strip().splitlines()
        for line in lines:
            assert line.partition("=")[0] in known[title.strip("[]")], line


def test_the_daemon_set_fits_together(directory):
    kinds = {document["kind"]: document for document in KUBERNETES}
    assert list(kinds) == ["ServiceAccount", "ConfigMap", "DaemonSet"]
    corefile = kinds["ConfigMap"]["data"]["Corefile"]
    pod = kinds["DaemonSet"]["spec"]["template"]["spec"]
    assert kinds["DaemonSet"]["spec"]["selector"]["matchLabels"].items() <= kinds["DaemonSet"]["spec"]["template"]["metadata"]["labels"].items()
    assert pod["serviceAccountName"] == kinds["ServiceAccount"]["metadata"]["name"]
    [container] = pod["containers"]
    with open(os.path.join(ROOT, "src", "package", "Dockerfile"), encoding="ascii") as file:
        user = re.search(r"^USER (\d+):(\d+)$", file.read(), re.MULTILINE)
    security = container["securityContext"]
    assert (security["runAsUser"], security["runAsGroup"]) == (int(user[1]), int(user[2]))
    assert security["capabilities"] == {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    [first] = pod["initContainers"]
    [state] = first["volumeMounts"]
    assert state in container["volumeMounts"] and f"chown {user[1]}:{user[2]} {state['mountPath']}\n" in first["command"][-1]
    for probe, directive in (("livenessProbe", "health"), ("readinessProbe", "ready")):
        get = container[probe]["httpGet"]
        assert f"{directive} {get['host']}:{get['port']}\n" in corefile
    [metrics] = [port["containerPort"] for port in container["ports"] if port["name"] == "metrics"]
    assert f"prometheus 169.254.20.10:{metrics}\n" in corefile
    path = os.path.join(directory, "resolv.conf")
    with open(path, "w", encoding="ascii") as file:
        file.write("nameserver 192.0.2.53\n")
    result = subprocess.run([binary(), "-validate", "-conf", "stdin"], input=corefile.replace("/etc/resolv.conf", path), check=False,
                            capture_output=True, text=True, timeout=20 * TIME_FACTOR, env={**os.environ, "KUBE_DNS_SERVICE_HOST": "10.96.0.10"})
    assert result.returncode == 0, result.stderr


def test_the_chart_makes_the_same_of_its_values():
    """There is no helm in Debian; but the chart has no other action than a value as JSON, by which it can be rendered."""
    values = yaml.safe_load(deployed("kubernetes", "chart", "values.yaml"))
    used = []

    def rendered(action):
        [name] = re.findall(r"^\{\{ toJson \.Values\.(\w+) \}\}$", action[0])
        used.append(name)
        return json.dumps(values[name])
    text = re.sub(r"\{\{.*?\}\}", rendered, deployed("kubernetes", "chart", "templates", "idetcd.yaml"), flags=re.DOTALL)
    assert list(yaml.safe_load_all(text)) == KUBERNETES
    assert set(used) == values.keys()


def test_the_chart_is_of_this_version():
    chart = yaml.safe_load(deployed("kubernetes", "chart", "Chart.yaml"))
    with open(os.path.join(ROOT, "CMakeLists.txt"), encoding="ascii") as file:
        [version] = re.findall(r"^project\(idetcd VERSION (\S+)", file.read(), re.MULTILINE)
    assert (chart["appVersion"], chart["version"]) == (version, version)
    assert yaml.safe_load(deployed("kubernetes", "chart", "values.yaml"))["image"].endswith(f":{version}")


def test_the_daemon_set_gives_the_machine_its_address_once(directory):
    if os.geteuid() != 0:
        pytest.skip("needs root")
    [pod] = [document["spec"]["template"]["spec"] for document in KUBERNETES if document["kind"] == "DaemonSet"]
    [container] = pod["initContainers"]
    state = os.path.join(directory, "state")
    os.mkdir(state)
    namespace = Namespace(directory)
    try:
        for _ in range(2):
            namespace.run(*(word.replace("/var/lib/idetcd", state) for word in container["command"]))
        assert os.stat(state).st_uid == 65532
        assert namespace.run("ip", "-brief", "address", "show", "dev", "lo").count("169.254.20.10/32") == 1
    finally:
        namespace.close()


def test_examples_keep_off_the_names_of_multicast_dns():
    paths = [os.path.join(ROOT, "README.md"), *glob.glob(os.path.join(ROOT, "src", "directive", "*", "README.md")),
             *glob.glob(os.path.join(ROOT, "src", "docs", "*.md"))]
    assert len(paths) > 1
    for path in paths:
        with open(path, encoding="utf-8") as file:
            examples = re.findall(r"^```\w*\n(.*?)^```$", file.read(), re.MULTILINE | re.DOTALL)
        # Kubernetes has cluster.local.
        found = [line for text in examples for line in text.splitlines() if re.search(r"(?<!cluster)\.local\b", line)]
        assert not found, path
