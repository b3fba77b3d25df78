"""A booted Debian with systemd, on which the package and the recipes do what README.md and src/docs say."""

import os
import re

import pytest
import yaml

from harness.machine import Machine
from harness.node import ROOT
from harness.package import made_package

DEB = "/idetcd.deb"
COREFILE = "/etc/idetcd/Corefile"
HOSTS = "127.0.0.1 localhost etcd.internal\n::1 localhost\n"
CLUSTER = """    idetcd {{
        endpoint http://127.0.0.1:2379
        limit 5
        pattern {pattern}{{{{.ID}}}}.tf.internal.
    }}
"""


def text_of(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


def section(page, title):
    """What is below a heading, or a paragraph that begins in bold, down to the next heading or such paragraph."""
    return re.search(rf"^(?:## |\*\*){re.escape(title)}.*?(?=^## |^\*\*|\Z)", page, re.MULTILINE | re.DOTALL)[0]


def blocks(language, text):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


README = text_of("README.md")
RECIPES = text_of("src", "docs", "recipes.md")
CLOUD_TEXT = text_of("src", "deploy", "terraform", "user-data.yaml")
CLOUD_CONFIG = yaml.safe_load(CLOUD_TEXT)


@pytest.fixture(name="package", scope="module")
def made_deb(tmp_path_factory):
    return made_package(str(tmp_path_factory.mktemp("deb")))


@pytest.fixture(name="machine")
def booted(package, directory):
    """With the package, and an etcd."""
    with Machine(directory, {DEB: package, "/etc/hosts": HOSTS}) as machine:
        machine.shell(f"dpkg -i {DEB}")
        machine.start_etcd()
        yield machine


def resolves(machine, name):
    return machine.attempt("getent", "ahosts", name).stdout.startswith("192.0.2.11 ")


def wait_name(machine):
    machine.run("idetcd", "wait", "--members", "1", "--timeout", "60s")


def test_the_readme_beside_systemd_resolved(machine):
    """Its Corefile starts, what it says to type makes the machine ask the server, and a port that is taken is no riddle."""
    assert machine.state("systemd-resolved", "ActiveState") == ["active"]
    [corefile] = blocks("corefile", section(README, "A cluster in one file"))
    check, start = blocks("sh", section(README, "A cluster in one file"))[0].splitlines()
    machine.write(COREFILE, corefile)
    assert "warning" not in machine.attempt(*check.split()).stderr
    machine.run(*start.split())
    wait_name(machine)
    assert machine.run("dig", "+short", "worker1.tf.internal", "@localhost") == "192.0.2.11\n"

    resolver = section(README, "As the resolver of the machine.")
    added = "".join(f"    {directive}\n" for directive in ("cache", "forward . /etc/idetcd/upstreams.conf"))
    assert all(f"`{line.strip()}`" in resolver for line in added.splitlines())
    machine.write("/run/systemd/resolve/resolv.conf", "nameserver 192.0.2.53\n")
    machine.write(COREFILE, corefile.replace("    admin\n", f"    admin\n{added}"))
    machine.shell(blocks("sh", resolver)[0].replace("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf", 1))
    wait_name(machine)
    assert resolves(machine, "worker1.tf.internal") and resolves(machine, "worker1")

    # Without `bind`, resolved's stub is in the way.
    machine.write(COREFILE, corefile.replace("    bind 127.0.0.1 ::1\n", ""))
    assert re.search(r"^warning: .*systemd-resolve \(pid \d+\) has 127\.0\.0\.5[34]:53", machine.attempt(*check.split()).stderr, re.MULTILINE)
    machine.attempt("systemctl", "restart", "idetcd")
    journal = machine.wait(lambda: re.search(r"listen udp .*", machine.run("journalctl", "-u", "idetcd", "-p", "err", "-o", "cat")), "an error")[0]
    assert "Address already in use: a process of user systemd-resolve has 127.0.0.5" in journal and "`bind 127.0.0.1 ::1`" in journal
    machine.run("systemctl", "stop", "idetcd")


def test_what_does_not_start_is_not_tried_for_ever(machine):
    machine.write(COREFILE, ". {\n    nonsense\n}\n")
    assert machine.attempt("systemctl", "start", "idetcd").returncode != 0
    machine.wait(lambda: machine.state("idetcd", "ActiveState") == ["failed"], "no further try")
    assert machine.state("idetcd", "NRestarts", "ExecMainStatus") == ["0", "78"]

    machine.write(COREFILE, ". {\n    bind 127.0.0.53\n    whoami\n}\n")
    machine.run("systemctl", "start", "--no-block", "idetcd")
    machine.wait(lambda: machine.state("idetcd", "NRestarts") == ["2"], "tries")
    times = [float(line.split()[0]) for line in machine.run("journalctl", "-u", "idetcd", "-p", "err", "-o", "short-unix").splitlines()
             if "listen udp" in line]
    assert times[1] - times[0] > 4, "it waits between them"
    machine.run("systemctl", "stop", "systemd-resolved")
    machine.wait(lambda: machine.state("idetcd", "ActiveState") == ["active"], "the port is free now")


def test_the_journal_knows_what_is_a_warning(machine):
    machine.write(COREFILE, f". {{\n    bind 127.0.0.1\n    admin 0.0.0.0:9154\n{CLUSTER.format(pattern='worker')}}}\n")
    machine.run("systemctl", "start", "idetcd")
    wait_name(machine)
    machine.wait(lambda: "claimed worker1.tf.internal." in machine.run("journalctl", "-u", "idetcd", "-o", "cat"), "the journal")
    warnings = machine.run("journalctl", "-u", "idetcd", "-p", "warning", "-o", "cat").splitlines()
    assert warnings and all(line.startswith("[WARNING] ") for line in warnings)
    assert "[INFO] plugin/idetcd: claimed worker1.tf.internal." in machine.run("journalctl", "-u", "idetcd", "-p", "info..info", "-o", "cat")
    machine.run("systemctl", "reload", "idetcd")
    machine.wait(lambda: "Reloading complete" in machine.run("journalctl", "-u", "idetcd", "-o", "cat"), "a reload")


def test_cloud_init_makes_a_node_of_an_instance(package, directory):
    """The host name follows the name of the node, and the machine asks the server."""
    assert "https://artifacts.internal" in CLOUD_TEXT
    data = CLOUD_TEXT.replace("https://artifacts.internal", "file://")
    files = {DEB: package, "/etc/hosts": HOSTS, "/var/lib/cloud/seed/nocloud/user-data": data,
             "/var/lib/cloud/seed/nocloud/meta-data": "instance-id: i-1\nlocal-hostname: instance\n",
             "/var/lib/cloud/seed/nocloud/network-config": "network: {config: disabled}\n",
             "/etc/systemd/resolved.conf.d/dhcp.conf": "[Resolve]\nDNS=192.0.2.53\n",
             "/etc/cloud/cloud.cfg.d/90_test.cfg": "datasource_list: [NoCloud]\nnetwork: {config: disabled}\n"}
    with Machine(directory, files) as machine:
        machine.start_etcd()
        assert "Valid" in machine.run("cloud-init", "schema", "--config-file", "/var/lib/cloud/seed/nocloud/user-data")
        machine.wait(lambda: machine.run("hostname").strip() == "worker1", "the host name", 90)
        assert machine.run("hostnamectl", "hostname", "--static").strip() == "instance"
        machine.wait(lambda: machine.run("cat", "/etc/resolv.conf") == "nameserver 127.0.0.1\nsearch tf.internal\n", "the resolver")
        machine.wait(lambda: resolves(machine, "worker1"), "the name, by the search list")

        corefile = next(entry["content"] for entry in CLOUD_CONFIG["write_files"] if entry["path"] == COREFILE)
        machine.write(COREFILE, corefile.replace("worker{{.ID}}", "helper{{.ID}}"))
        machine.run("systemctl", "reload", "idetcd")
        machine.wait(lambda: machine.run("hostname").strip() == "helper1", "the host name after a change of the name")
        assert machine.run("systemctl", "--failed", "--no-legend", "--plain", "list-units", "idetcd*") == ""


def test_systemd_resolved_asks_for_the_zone(machine):
    recipe = section(RECIPES, "The cluster's names through it.")
    machine.write(COREFILE, blocks("corefile", recipe)[0])
    machine.write("/etc/systemd/resolved.conf.d/idetcd.conf", blocks("ini", recipe)[0])
    machine.shell("ln -sf /run/systemd/resolve/stub-resolv.conf /etc/resolv.conf; systemctl start idetcd; systemctl restart systemd-resolved")
    wait_name(machine)
    machine.wait(lambda: resolves(machine, "worker1.tf.internal"), "the name, by resolved")
    assert "worker1.tf.internal" in machine.run("resolvectl", "query", "192.0.2.11")
    assert "worker1.tf.internal" in machine.run("dig", "+short", "-x", "192.0.2.11", "@127.0.0.53")


def test_the_node_in_the_place_of_systemd_resolved(machine):
    recipe = section(RECIPES, "The node in its place.")
    machine.write(COREFILE, ". {\n" + CLUSTER.format(pattern="worker") + "    forward . /run/systemd/resolve/resolv.conf\n}\n")
    machine.write("/etc/systemd/resolved.conf.d/idetcd.conf", blocks("ini", recipe)[0])
    machine.shell(blocks("sh", recipe)[0])
    machine.run("systemctl", "start", "idetcd")
    wait_name(machine)
    assert resolves(machine, "worker1.tf.internal") and resolves(machine, "worker1")


def test_networkmanager_leaves_the_resolver_alone(machine):
    recipe = section(RECIPES, "NetworkManager")
    machine.shell("systemctl mask --now systemd-resolved; rm -f /etc/resolv.conf; systemctl unmask NetworkManager; systemctl start NetworkManager")
    machine.wait(lambda: machine.attempt("nmcli", "general").returncode == 0, "NetworkManager")
    machine.write("/etc/NetworkManager/conf.d/idetcd.conf", blocks("ini", recipe)[0])
    machine.shell(blocks("sh", recipe)[0])
    machine.shell("nmcli device set eth0 managed yes; nmcli connection add type ethernet ifname eth0 con-name one ip4 192.0.2.11/24 ipv4.dns 192.0.2.53; nmcli connection up one")
    machine.wait(lambda: "nameserver 192.0.2.53" in machine.run("cat", "/run/NetworkManager/no-stub-resolv.conf"), "the servers of the network")
    machine.write(COREFILE, blocks("corefile", recipe)[0])
    machine.run("systemctl", "start", "idetcd")
    wait_name(machine)
    assert machine.run("cat", "/etc/resolv.conf") == "nameserver 127.0.0.1\nsearch tf.internal\n"
    assert machine.attempt("getent", "ahosts", "worker1.tf.internal").stdout


def test_what_is_installed_goes_without_a_trace(machine):
    """With what the recipes add to the machine."""
    machine.write(COREFILE, f". {{\n    bind 127.0.0.1\n{CLUSTER.format(pattern='worker')}}}\n")
    machine.run("systemctl", "enable", "--now", "idetcd")
    wait_name(machine)
    resolver, package, by_hand = blocks("sh", section(text_of("src", "package", "README.md"), "Uninstalling"))
    assert "install_manifest.txt" in by_hand
    machine.write("/etc/systemd/resolved.conf.d/idetcd.conf", "[Resolve]\nDNSStubListener=no\n")
    machine.shell("ln -sf /bin/true /usr/local/sbin/idetcd-hostname")
    [unit] = [entry["content"] for entry in CLOUD_CONFIG["write_files"] if entry["path"].endswith("-hostname.service")]
    machine.write("/etc/systemd/system/idetcd-hostname.service", unit)
    machine.run("systemctl", "enable", "--now", "idetcd-hostname.service")
    machine.shell(resolver)
    machine.shell(package)
    assert machine.run("readlink", "/etc/resolv.conf").strip().endswith("stub-resolv.conf")
    left = machine.shell("find / -xdev -iname '*idetcd*' -not -path '/proc/*' -not -path '/sys/*' -not -path '/var/lib/dpkg/*' -not -path '/idetcd.deb'")
    assert left == "" and machine.attempt("systemctl", "cat", "idetcd").returncode != 0
