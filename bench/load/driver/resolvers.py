"""The resolvers, each with its fastest settings for one thread, in front of one upstream: NSD with the names of
example.net., on the load's core, so that the resolvers have theirs to themselves."""

import os
import re
import socket
import subprocess

from harness import ports
from lab import Dataset, LOAD_CORE
from servers import Echo, Idetcd, Server, ask, unbound_server

WORLD = "example.net."
CLUSTER_NAMES = 1000
LARGE_CACHE = 200_000  # entries: room for all names and for what else is asked for


class World(Dataset):
    """worker1 … workerN.example.net. and *.any.example.net. at the upstream; a small cluster in etcd."""

    def __init__(self, lab, names):
        super().__init__(lab, CLUSTER_NAMES, False)
        self.world_names = names
        self.silent = None

    def upstream(self):
        return self.server(Upstream)

    def silent_port(self):
        """A port on which queries arrive and no answer leaves."""
        if not self.silent:
            self.silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.silent.bind(("127.0.0.1", ports.free_port()))
        return self.silent.getsockname()[1]

    def close(self):
        super().close()
        if self.silent:
            ports.release(self.silent.getsockname()[1])
            self.silent.close()


class Upstream(Server):
    name = "NSD"
    executable = "nsd"
    core = str(LOAD_CORE)

    def argv(self):
        return [self.path(), "-d", "-c", os.path.join(self.directory, "nsd.conf")]

    def answers_right(self):
        return ask(self.port, f"worker{self.dataset.world_names}.{WORLD}")

    def prepare(self):
        with open(os.path.join(self.directory, "zone"), "w", encoding="utf-8") as file:
            file.write(f"$ORIGIN {WORLD}\n$TTL 3600\n@ IN SOA ns hostmaster 1 7200 1800 86400 60\n@ IN NS ns\nns IN A 127.0.0.1\n"
                       "*.any IN A 10.0.0.0\n")
            for number in range(1, self.dataset.world_names + 1):
                file.write(f"worker{number} IN A 10.{number >> 16}.{number >> 8 & 255}.{number & 255}\n")
        self.write("nsd.conf", f"""server:
    ip-address: 127.0.0.1@{self.port}
    server-count: 1
    send-buffer-size: 4194304
    receive-buffer-size: 4194304
    username: ""
    chroot: ""
    zonesdir: "{self.directory}"
    database: ""
    zonelistfile: "{self.directory}/zone.list"
    xfrdfile: "{self.directory}/xfrd.state"
    xfrdir: "{self.directory}"
    pidfile: ""
    logfile: "{self.directory}/nsd.log"
    minimal-responses: yes
    rrl-ratelimit: 0
remote-control:
    control-enable: yes
    control-interface: {self.directory}/control
zone:
    name: {WORLD}
    zonefile: {self.directory}/zone
""")

    def queries(self):
        """For addresses, since it was started."""
        done = subprocess.run(["nsd-control", "-c", os.path.join(self.directory, "nsd.conf"), "stats_noreset"],
                              capture_output=True, text=True, check=True, env=_with_sbin())
        found = re.search(r"num\.type\.A=(\d+)", done.stdout)
        return int(found.group(1)) if found else 0


class Resolver(Server):
    cache_entries = LARGE_CACHE

    def installed(self):
        return super().installed() and bool(self.dataset.upstream())

    def answers_right(self):
        return ask(self.port, f"worker1.{WORLD}")


class IdetcdResolver(Resolver, Idetcd):
    name = "idetcd"

    def upstream_port(self):
        return self.dataset.upstream().port

    def prepare(self):
        self.write("Corefile", f""". {{
    bind 127.0.0.1
    idetcd {{
        endpoint {self.dataset.etcd.endpoint}
        pattern worker{{{{.ID}}}}.tf.local.
        observe
    }}
    cache {{
        success {self.cache_entries}
    }}
    forward . 127.0.0.1:{self.upstream_port()}
}}
""")


class IdetcdStalled(IdetcdResolver):
    """Its upstream is silent."""

    def installed(self):
        return True

    def upstream_port(self):
        return self.dataset.silent_port()

    def answers_right(self):
        return ask(self.port, f"worker{CLUSTER_NAMES}.tf.local.")


class IdetcdIdle(IdetcdStalled):
    """One that is not asked for what stalls."""


class UnboundResolver(Resolver):
    name = "unbound"
    executable = "unbound"
    message_cache = rrset_cache = 1 << 30  # bytes

    def argv(self):
        return [self.path(), "-d", "-c", os.path.join(self.directory, "unbound.conf")]

    def prepare(self):
        server = unbound_server(self.port, self.directory, self.message_cache, self.rrset_cache)
        self.write("unbound.conf", server + f"""\
    extended-statistics: yes
forward-zone:
    name: "."
    forward-addr: 127.0.0.1@{self.dataset.upstream().port}
remote-control:
    control-enable: yes
    control-interface: {self.directory}/control
    control-use-cert: no
""")

    def cache_counts(self):
        """Entries: messages, RRsets."""
        done = subprocess.run(["unbound-control", "-c", os.path.join(self.directory, "unbound.conf"), "stats_noreset"],
                              capture_output=True, text=True, check=True, env=_with_sbin())
        return tuple(int(re.search(rf"^{cache}\.cache\.count=(\d+)", done.stdout, re.M).group(1)) for cache in ("msg", "rrset"))


class Dnsmasq(Resolver):
    name = "dnsmasq"
    executable = "dnsmasq"

    def argv(self):
        return [self.path(), "--keep-in-foreground", "--conf-file=" + os.path.join(self.directory, "dnsmasq.conf")]

    def prepare(self):
        self.write("dnsmasq.conf", f"""port={self.port}
listen-address=127.0.0.1
bind-interfaces
no-hosts
no-resolv
user=root
pid-file=
cache-size={self.cache_entries}
dns-forward-max=10000
server=127.0.0.1#{self.dataset.upstream().port}
""")


class Dnsdist(Resolver):
    """Its packet cache."""
    name = "dnsdist"
    executable = "dnsdist"
    datagrams_per_call = None  # as it comes: one

    def argv(self):
        return [self.path(), "--supervised", "--disable-syslog", "-C", os.path.join(self.directory, "dnsdist.conf")]

    def prepare(self):
        self.write("dnsdist.conf", f"""setSecurityPollSuffix("")
setACL("127.0.0.0/8")
setLocal("127.0.0.1:{self.port}")
setMaxUDPOutstanding(65535)
setRingBuffersSize(1)
newServer({{address="127.0.0.1:{self.dataset.upstream().port}", checkInterval=60}})
getPool(""):setCache(newPacketCache({self.cache_entries}, {{numberOfShards=1}}))
{self.datagrams_per_call and f"setUDPMultipleMessagesVectorSize({self.datagrams_per_call})" or ""}
""")


class DnsdistBatched(Dnsdist):
    """Many datagrams a system call, as idetcd takes them: an option of dnsdist's."""
    name = "dnsdist, batched"
    datagrams_per_call = 64


class EchoOfWorld(Echo):
    """The echo, in this data set."""


def _with_sbin():
    return {**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}
