"""The server is one file: an image needs nothing beside it but glibc."""

import os
import re
import shutil
import subprocess

import pytest

from dns_client import wait_resolves, wait_says
from harness.node import binary
from harness.secure_etcd import Authority, SecureEtcd

MOST_LIBRARIES = 8
GLIBC = re.compile(r"^(linux-vdso|linux-gate|ld-linux.*|libc|libm|libdl|libpthread|librt|libresolv)\.so\.\d+$")

COREFILE = """. {{
    idetcd {{
        endpoint https://localhost:{port}
        pattern worker{{{{.ID}}}}.tf.internal.
        address 192.0.2.{number}
        lease 3s
        tls /client.pem /client.key /ca.pem
    }}
    errors
}}
"""


def libraries():
    """Name -> path (None: the kernel's) of what the loader takes for the server."""
    output = subprocess.run(["ldd", binary()], check=True, capture_output=True, text=True).stdout
    found = {}
    for line in output.splitlines():
        words = line.split()
        found[os.path.basename(words[0])] = next((word for word in reversed(words) if word.startswith("/")), None)
    return found


def test_it_needs_nothing_but_glibc():
    assert len(libraries()) <= MOST_LIBRARIES
    assert [name for name in libraries() if not GLIBC.match(name)] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="chroot needs root")
def test_it_serves_a_cluster_where_nothing_else_is(directory, nodes):
    """Two nodes in a root directory that holds the server, glibc and the Corefile's files: names are claimed over TLS, from
    an endpoint whose name is in /etc/hosts, and each node resolves the other's."""
    root = os.path.join(directory, "root")
    os.makedirs(os.path.join(root, "etc"))
    for path in filter(None, libraries().values()):
        os.makedirs(root + os.path.dirname(path), exist_ok=True)
        shutil.copy(path, root + path)
    shutil.copy(binary(), os.path.join(root, "idetcd"))
    with open(os.path.join(root, "etc", "hosts"), "w", encoding="ascii") as hosts:
        hosts.write("127.0.0.1 localhost\n")
    authority = Authority(directory)
    certificate, key = authority.issue()
    for source, target in ((certificate, "client.pem"), (key, "client.key"), (authority.certificate, "ca.pem")):
        shutil.copy(source, os.path.join(root, target))
    etcd = SecureEtcd(directory, authority, clients=True)
    try:
        etcd.start()
        for number in (1, 2):
            node = nodes.make(COREFILE.format(port=etcd.client_port, number=number))
            shutil.move(node.corefile_path, root)
            node.spawn(["chroot", root, "/idetcd", "-conf", f"/{node.name}.Corefile", "-dns.port", str(node.port)])
            node.wait_answers()
            wait_says(node, f"worker{number}.tf.internal.")
        for number in (1, 2):
            wait_resolves(nodes.nodes, f"worker{number}.tf.internal.", f"192.0.2.{number}")
    finally:
        etcd.close()
