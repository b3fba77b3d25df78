"""The second half of tools/quickstart: five nodes with one Corefile, and what they answer. See there."""

import json
import os
import secrets
import shlex
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))

from harness import ports  # noqa: E402
from harness.etcd import EtcdMember  # noqa: E402
from harness.node import Node  # noqa: E402
from harness.processes import wait_until  # noqa: E402

NODES = 5
FIRST_PORT = 1053

# NODE is the machine's address, as far as one machine can be five.
FOUNDING = """. {{
    bind {{$NODE}}
    idetcd {{
        peers 127.0.0.0/28
        peers-port {port}
        secret {secret}
        address {{$NODE}}
        limit {limit}
        pattern worker{{{{.ID}}}}.tf.internal.
    }}
    errors
}}
"""
WITH_ETCD = """. {{
    idetcd {{
        endpoint {endpoint}
        limit {limit}
        pattern worker{{{{.ID}}}}.tf.internal.
    }}
    errors
}}
"""


def main(arguments):
    once = "--once" in arguments
    with_etcd = "--etcd" in arguments
    # Either signal unwinds the stack, so that the clean-up below runs.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))

    running = []
    with tempfile.TemporaryDirectory(prefix="idetcd-quickstart-") as directory:
        try:
            nodes = start_beside_etcd(directory, running) if with_etcd else found(directory, running)
            owners = wait_for_names(nodes)
            all_resolved = show(nodes, owners)
            if once:
                return 0 if all_resolved else 1
            print_invitation(nodes, owners, with_etcd)
            watch_over(nodes)
        except KeyboardInterrupt:
            print()
            return 0
        except (AssertionError, OSError) as error:
            print(f"quickstart: {error}", file=sys.stderr)
            return 1
        finally:
            stop(running)


def found(directory, running):
    """Five nodes, each on an address of its own, as if they were machines: they found a cluster, and run its etcd."""
    secret = os.path.join(directory, "secret")
    with open(secret, "w", encoding="ascii") as file:
        file.write(secrets.token_hex(16))
    os.chmod(secret, 0o600)
    port = FIRST_PORT
    while not ports.reserve(port):
        port += 1
    path = write_corefile(directory, FOUNDING.format(port=ports.free_ports(3), secret=secret, limit=NODES))
    return launch(directory, path, running, [(f"127.0.0.{number}", port) for number in range(2, NODES + 2)])


def start_beside_etcd(directory, running):
    etcd = EtcdMember(directory)
    running.append(etcd)
    etcd.start()
    print(f"\netcd listens on {etcd.endpoint}.", end="")
    path = write_corefile(directory, WITH_ETCD.format(endpoint=etcd.endpoint, limit=NODES))
    wanted = range(FIRST_PORT, FIRST_PORT + NODES)
    return launch(directory, path, running, [("127.0.0.1", port if ports.reserve(port) else ports.free_port()) for port in wanted])


def write_corefile(directory, corefile):
    print(f"\nThe Corefile of all {NODES} nodes:\n\n{corefile}")
    path = os.path.join(directory, "Corefile")
    with open(path, "w", encoding="utf-8") as file:
        file.write(corefile)
    return path


def launch(directory, path, running, places):
    nodes = []
    for host, port in places:
        node = Node(f"node-{len(nodes) + 1}", directory, "", port)
        node.corefile_path = path
        node.host = host
        running.append(node)
        nodes.append(node.launch(env={"NODE": host}))
    for node in nodes:
        node.wait_answers(host=node.host)
    return nodes


def wait_for_names(nodes):
    """Each node's name; waits until every node owns one and has seen all the others."""
    owners = {}

    def all_own():
        for node in nodes:
            assert node.running(), f"{node.name} ended\n{node.logs()}"
            owners[node] = node.control("/v1/status")[1]["clusters"][0]["name"]
        return all(owners.values())

    wait_until(all_own, 30, lambda: "every node to own a name\n" + "\n".join(node.logs() for node in nodes), interval=0.05)
    wanted = addresses(nodes[0])
    for node in nodes:
        wait_until(lambda n=node: resolve(n, wanted, "+notcp") == wanted, 5, f"{node.name} to know all names\n{node.logs()}",
                   interval=0.1)
    return owners


def addresses(node):
    """Name -> the set of addresses that etcd holds for it."""
    return {slot["name"]: set(slot["addresses"]) for slot in json.loads(members(node, "--json"))["clusters"][0]["slots"]}


def resolve(node, names, transport):
    """Name -> the set of addresses that dig gets for it from this node."""
    questions = [word for name in names for kind in ("A", "AAAA") for word in (name, kind)]
    output = subprocess.run(
        ["dig", f"@{node.host}", "-p", str(node.port), transport, "+tries=1", "+time=2", "+noall", "+answer", *questions],
        capture_output=True, text=True, check=False).stdout
    found = {name: set() for name in names}
    for line in output.splitlines():
        fields = line.split()
        if len(fields) == 5 and fields[3] in ("A", "AAAA") and fields[0] in found:
            found[fields[0]].add(fields[4])
    return found


def show(nodes, owners):
    """Prints which node resolves which name; True if every node resolves every name."""
    wanted = addresses(nodes[0])
    answers = {(node, transport): resolve(node, wanted, f"+{flag}tcp")
               for node in nodes for transport, flag in (("udp", "no"), ("tcp", ""))}
    width = max(map(len, wanted)) + 2
    print("Each name (rows), asked at each node (columns), over UDP and TCP, A and AAAA:\n")
    print(" " * width + "".join(f"{place(node, nodes):<11}" for node in nodes) + "answer")
    all_resolved = len(wanted) == len(nodes)
    for name in sorted(wanted, key=lambda name: (len(name), name)):
        cells = ""
        for node in nodes:
            marks = []
            for transport in ("udp", "tcp"):
                resolved = bool(wanted[name]) and answers[node, transport][name] == wanted[name]
                all_resolved = all_resolved and resolved
                marks.append(transport if resolved else "---")
            cells += f"{' '.join(marks):<11}"
        print(f"{name:<{width}}{cells}{' '.join(sorted(wanted[name])) or 'no address'}")
    print()
    for node in nodes:
        print(f"  the node on {node.host}:{node.port} is {owners[node]}")
    print("\nThe cluster, as one of them knows it (idetcd members):\n")
    print(members(nodes[0]))
    print("\n" + ("every node resolves every name" if all_resolved else "SOME NAMES DID NOT RESOLVE"))
    if not all_resolved:
        print("\n".join(node.logs() for node in nodes), file=sys.stderr)
    return all_resolved


def place(node, nodes):
    """By which it differs from the others."""
    return node.host if len({one.host for one in nodes}) > 1 else f":{node.port}"


def members(node, *options):
    result = subprocess.run([node.binary, "members", "--socket", node.socket_path(), *options], check=False, capture_output=True,
                            text=True, timeout=30)
    assert result.returncode == 0, f"idetcd members: {result.stderr}\n{node.logs()}"
    return result.stdout.rstrip()


def print_invitation(nodes, owners, with_etcd):
    name = sorted(owners.values(), key=lambda name: (len(name), name))[min(3, len(owners) - 1)].rstrip(".")
    print(f"""
Try it (Ctrl-C here ends everything):

    dig +short @{nodes[0].host} -p {nodes[0].port} {name}
    dig +short @{nodes[-1].host} -p {nodes[-1].port} {name}
    dig @{nodes[0].host} -p {nodes[0].port} nobody.tf.internal
    {shlex.join([nodes[0].binary, "status" if with_etcd else "peers", "--socket", nodes[0].socket_path()])}
    {shlex.join(["kill", str(nodes[1].pid)])}    # the node {place(nodes[1], nodes)}: its name is free at once
""", flush=True)


def watch_over(nodes):
    """Until Ctrl-C; stopping a node in an orderly way is part of the demonstration."""
    ended = set()
    while True:
        for node in nodes:
            if node not in ended and not node.running():
                code = node.exit_code(1)
                assert code == 0, f"{node.name} ended with {code}\n{node.logs()}"
                print(f"the node {place(node, nodes)} has ended")
                ended.add(node)
        time.sleep(0.2)


def stop(running):
    """Nodes first, so that they can give back their names; a process that does not end in time is killed, by pid."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    nodes = [child for child in running if isinstance(child, Node)]
    for node in nodes:
        if node.running():
            node.signal(signal.SIGTERM)
    deadline = time.monotonic() + 6
    for node in nodes:
        while node.running() and time.monotonic() < deadline:
            time.sleep(0.01)
    for child in reversed(running):
        child.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
