"""What src/docs/jobs.md says of MPI, Slurm and Dask, with these programs, on machines of namespaces whose resolver is their
node. test_documents.py runs the page's other commands."""

import os
import re
import secrets
import shutil

import pytest

from corefiles import SHORT_LEASE
from harness.etcd import EtcdMember
from harness.namespace import Namespace
from harness.node import ROOT, binary
from harness.processes import Process, wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

NETWORK = "10.77.0"
HEAD = f"{NETWORK}.1"
LIMIT = 5
COREFILE = """. {{
    idetcd {{
        endpoint {endpoint}
        limit {limit}
        pattern worker{{{{.ID}}}}.tf.internal.
        lease {lease}s
        {option}
    }}
}}
"""
NAMES = [f"worker{i}" for i in range(1, LIMIT + 1)]
with open(os.path.join(ROOT, "src", "docs", "jobs.md"), encoding="utf-8") as page:
    PAGE = page.read()


def command(start):
    """The only line of the page that begins so, for as many members as there are here."""
    [found] = re.findall(rf"^{re.escape(start)}.*$", PAGE, re.MULTILINE)
    return re.sub(r"(--members|-N) 4", rf"\1 {LIMIT}", found).replace("--slots 8", "--slots 1")


def text_block(start):
    """The only file of the page that begins so."""
    [found] = re.findall(rf"^```text\n({re.escape(start)}.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return found


def write(path, text, mode=0o644):
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
    os.chmod(path, mode)
    return path


class Machine:
    """One of a cluster: a namespace, and the node that is its resolver."""

    def __init__(self, cluster, name, address, option):
        self.name = name
        self.address = address
        self.directory = os.path.join(cluster.directory, name)
        os.makedirs(self.directory)
        self.namespace = Namespace(self.directory)
        self.namespace.run("hostname", name)
        self.namespace.write("resolv.conf", "nameserver 127.0.0.1\nsearch tf.internal\noptions timeout:2 attempts:5\n")
        self.namespace.write("nsswitch.conf", "hosts: files dns\npasswd: files\ngroup: files\n")
        self.namespace.write("hosts", f"127.0.0.1 localhost\n{HEAD} head\n")
        self.corefile = COREFILE.format(endpoint=cluster.endpoint, limit=LIMIT, lease=SHORT_LEASE, option=option)
        self.node = None
        self.processes = []

    def start(self, nodes):
        self.node = nodes.make(self.corefile, name=f"node-{self.name}", port=53)
        self.node.launch(prefix=self.namespace.prefix)

    def process(self, name, *argv, **options):
        """A program that stays, with the subcommands in its path."""
        process = Process(f"{self.name}-{name}", self.directory)
        self.processes.append(process)
        return process.spawn(list(argv), prefix=self.namespace.prefix, env=self.env(), **options)

    def env(self):
        return {"RUNTIME_DIRECTORY": self.node.runtime_directory, "PATH": f"{os.path.dirname(binary())}:{os.environ['PATH']}"}

    def attempt(self, commands, timeout=150):
        return self.namespace.attempt("env", *(f"{key}={value}" for key, value in self.env().items()), "bash", "-o", "pipefail", "-c", commands, timeout=timeout)

    def shell(self, commands, **options):
        """Its output; it must succeed."""
        result = self.attempt(commands, **options)
        assert result.returncode == 0, f"{commands}\n{result.stdout}{result.stderr}"
        return result.stdout

    def fail(self):
        """As a machine that loses its power."""
        for process in [*self.processes, self.node]:
            if process.running():
                process.kill()
        self.namespace.run("ip", "link", "set", "lan", "down")

    def close(self):
        for process in self.processes:
            process.kill()
        self.namespace.close()


class Cluster:
    """Machines on one switch, and a head, which has the etcd and a node that only observes."""

    def __init__(self, directory, nodes):
        self.directory = directory
        self.nodes = nodes
        self.machines = []
        self.etcd = None
        self.endpoint = None
        self.head = None

    def start(self, count=LIMIT):
        self.endpoint = "http://head:0"
        head = Machine(self, "head", HEAD, "observe")
        self.machines.append(head)
        head.namespace.run("ip", "link", "add", "bridge", "type", "bridge")
        head.namespace.run("ip", "link", "set", "bridge", "up")
        head.namespace.run("ip", "address", "add", f"{HEAD}/24", "dev", "bridge")
        self.etcd = EtcdMember(self.directory, client_host=HEAD, prefix=head.namespace.prefix)
        self.etcd.launch()
        with head.namespace.entered():
            self.etcd.wait_healthy()
        self.endpoint = self.etcd.endpoint
        head.corefile = head.corefile.replace("http://head:0", self.endpoint)
        self.head = head
        head.start(self.nodes)
        for number in range(1, count + 1):
            self.add(number)

    def add(self, number):
        """The machine's node takes the lowest name that is free, or waits for one."""
        machine = Machine(self, f"machine{number}", f"{NETWORK}.{10 + number}", f"address {NETWORK}.{10 + number}")
        self.machines.append(machine)
        self.head.namespace.run("ip", "link", "add", f"port{number}", "type", "veth", "peer", "name", "lan", "netns", str(machine.namespace.holder.pid))
        self.head.namespace.run("ip", "link", "set", f"port{number}", "master", "bridge", "up")
        machine.namespace.run("ip", "link", "set", "lan", "up")
        machine.namespace.run("ip", "address", "add", f"{machine.address}/24", "dev", "lan")
        machine.start(self.nodes)
        if number <= LIMIT:
            machine.node.wait_logged(f"claimed worker{number}.tf.internal.")
        return machine

    def close(self):
        for node in self.nodes.nodes:
            if node.running():
                node.terminate()
        for machine in reversed(self.machines):
            machine.close()
        if self.etcd is not None:
            self.etcd.close()


@pytest.fixture
def cluster(directory, nodes):
    made = Cluster(directory, nodes)
    try:
        made.start()
        yield made
    finally:
        made.close()


# --- MPI ---

AGENT = """#!/bin/sh
# In place of ssh: runs a command on another machine, which is found by its name.
address=$(getent ahostsv4 "$1" | {{ read -r address _; echo "$address"; }})
shift
exec nsenter --target "$(cat {directory}/$address.pid)" --net --mount --uts -- sh -c "$*"
"""
PROGRAM = r"""
#include <mpi.h>
#include <stdio.h>
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, sum = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  char name[MPI_MAX_PROCESSOR_NAME];
  int length;
  MPI_Get_processor_name(name, &length);
  printf("%d %s %d\n", rank, name, sum);
  return MPI_Finalize();
}
"""


@pytest.mark.skipif(not shutil.which("mpirun"), reason="needs openmpi-bin")
def test_mpirun_starts_on_all_members(cluster):
    agent = write(os.path.join(cluster.directory, "agent"), AGENT.format(directory=cluster.directory), 0o755)
    program = write(os.path.join(cluster.directory, "solver.c"), PROGRAM)
    for machine in cluster.machines:
        write(os.path.join(cluster.directory, f"{machine.address}.pid"), str(machine.namespace.holder.pid))
        machine.namespace.run("hostname", machine.name.replace("machine", "worker"))
    lines = cluster.machines[1].shell(f"""cd {cluster.directory} && mpicc -o solver {program}
        export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_plm_rsh_agent={agent}
        {command("idetcd hostfile ")} && {command("mpirun ")}""").splitlines()
    assert sorted(lines) == [f"{rank} {name} 10" for rank, name in enumerate(NAMES)]


# --- Slurm ---

# Beside what the page has: the test's own places, and root, since there is no other user.
SLURM = """SlurmUser=root
SlurmdUser=root
AuthInfo=socket={directory}/munge.sock
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool-%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd-%n.pid
"""


class Slurm:
    def __init__(self, cluster):
        self.cluster = cluster
        self.head = cluster.head
        self.directory = os.path.join(cluster.directory, "slurm")
        os.makedirs(os.path.join(self.directory, "state"))
        self.conf = write(os.path.join(self.directory, "slurm.conf"), text_block("ClusterName=") + SLURM.format(directory=self.directory))
        self.program = write(os.path.join(self.directory, "idetcd-slurmd"), text_block("#!/bin/sh\nname="), 0o755)
        write(os.path.join(self.directory, "munge.key"), secrets.token_hex(64), 0o400)
        self.daemons = []

    def start(self):
        munged = self.head.process("munged", "munged", "--foreground", "--force", f"--key-file={self.directory}/munge.key",
                                   f"--socket={self.directory}/munge.sock", f"--pid-file={self.directory}/munged.pid",
                                   f"--log-file={self.directory}/munged.log", f"--seed-file={self.directory}/munged.seed")
        wait_until(lambda: os.path.exists(f"{self.directory}/munge.sock"), 10, munged.logs)
        self.head.process("slurmctld", "slurmctld", "-D", "-c", "-i", "-f", self.conf)
        self.wait(lambda: self.attempt("scontrol ping").returncode == 0, "the controller")
        for machine in self.cluster.machines[1:]:
            self.join(machine)

    def join(self, machine):
        machine.process("slurmd", "sh", "-c", f"export SLURM_CONF={self.conf}; exec " +
                        command("idetcd exec --on-change ignore -- /usr").replace("/usr/local/sbin/idetcd-slurmd", self.program))

    def attempt(self, commands, timeout=40):
        return self.head.attempt(f"export SLURM_CONF={self.conf}; {commands}", timeout=timeout)

    def idle(self):
        return sorted(self.attempt("sinfo -h -N -t idle -o %N").stdout.split())

    def wait(self, condition, what, timeout=20):
        return wait_until(condition, timeout, lambda: what + "".join(
            process.logs(tail=40) for machine in self.cluster.machines for process in machine.processes), interval=0.1)


@pytest.mark.skipif(not shutil.which("slurmd"), reason="needs slurmd")
def test_slurm_has_the_members_as_its_nodes(cluster):
    slurm = Slurm(cluster)
    slurm.start()
    slurm.wait(lambda: slurm.idle() == NAMES, "all nodes to be idle")
    result = slurm.attempt(command("srun "))
    assert sorted(result.stdout.split()) == NAMES, result.stderr
    spare = cluster.add(LIMIT + 1)
    slurm.join(spare)
    cluster.machines[3].fail()
    spare.node.wait_logged("claimed worker3.tf.internal.", timeout=30)
    slurm.wait(lambda: f"NodeAddr={spare.address} " in slurm.attempt("scontrol show node worker3").stdout and "slurmd started" in spare.processes[0].err(),
               "slurmd of the spare")
    result = slurm.attempt(f"srun -N {LIMIT} sh -c 'echo $(hostname) $(ip -brief address show dev lan)'")
    found = dict(re.findall(r"^(worker\d) .* ([\d.]+)/24", result.stdout, re.MULTILINE))
    assert found == {**{f"worker{i}": f"{NETWORK}.{10 + i}" for i in range(1, LIMIT + 1)}, "worker3": spare.address}, result.stdout + result.stderr


# --- Dask ---

DASK_SUM = """
import socket
from distributed import Client
with Client("tcp://worker1.tf.internal:8786", timeout=120) as client:
    client.wait_for_workers(5, timeout=120)
    names = client.run(socket.gethostname)
    print(" ".join(sorted(names.values())), client.submit(sum, range(10)).result(timeout=30))
"""


@pytest.mark.skipif(not shutil.which("dask-worker"), reason="needs python3-distributed")
def test_dask_has_its_workers_on_the_members(cluster):
    scheduler = cluster.machines[1].process("scheduler", "sh", "-c", f"exec {command('dask-scheduler')}")
    for machine in cluster.machines[1:]:
        machine.namespace.run("hostname", machine.name.replace("machine", "worker"))
        machine.process("worker", "sh", "-c", f"exec {command('idetcd exec -- dask-worker ')} --no-nanny --nthreads 1 --local-directory {machine.directory}")
    path = write(os.path.join(cluster.directory, "sum.py"), DASK_SUM)
    assert cluster.head.shell(f"/usr/bin/python3 -B {path}").strip() == f"{' '.join(NAMES)} 45", scheduler.logs()
