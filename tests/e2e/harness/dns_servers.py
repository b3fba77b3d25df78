"""Other people's DNS servers as a test's upstream or yardstick: NSD, Knot, BIND and unbound, on loopback, in the foreground."""

import os
import signal
import subprocess

from .processes import Process

_NSD = """server:
    server-count: 1
    ip-address: {host}
    port: {port}
    username: ""
    chroot: ""
    database: ""
    zonesdir: "{directory}"
    xfrdir: "{directory}"
    xfrdfile: ""
    zonelistfile: "{directory}/zone.list"
    pidfile: ""
    logfile: "{directory}/nsd.log"
    hide-version: yes
    rrl-ratelimit: 0
    rrl-whitelist-ratelimit: 0
    tcp-count: 200
remote-control:
    control-enable: no
"""

_KNOT = """server:
    rundir: "{directory}"
    listen: {host}@{port}
    udp-workers: 1
    tcp-workers: 1
    background-workers: 1
    socket-affinity: off
log:
  - target: stderr
    any: info
database:
    storage: "{directory}"
{statements}zone:
"""

_NAMED = """options {{
    directory "{directory}";
    pid-file none;
    session-keyfile none;
    listen-on port {port} {{ {host}; }};
    listen-on-v6 {{ none; }};
    recursion no;
    dnssec-validation no;
    answer-cookie yes;
    {more}
}};
controls {{ }};
"""

_UNBOUND = """server:
    interface: {host}
    port: {port}
    username: ""
    chroot: ""
    directory: "{directory}"
    pidfile: ""
    use-syslog: no
    do-ip6: no
    do-not-query-localhost: no
    module-config: "{modules}"
    extended-statistics: yes
    access-control: 127.0.0.0/8 allow
    # The default of releases since 1.18, and idetcd's bufsize.
    max-udp-size: 1232
    # The special-use zones too are the upstream's affair here.
    local-zone: "." transparent
    unblock-lan-zones: yes
    outgoing-range: 1024
    num-queries-per-thread: 1024
    incoming-num-tcp: 100
{more}remote-control:
    control-enable: yes
    control-interface: "{directory}/{name}.socket"
    control-use-cert: no
forward-zone:
    name: "."
    forward-addr: {upstream_host}@{upstream_port}
"""


def write(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
    return path


class Nsd(Process):
    """An authoritative server; `zones` is a dictionary of a zone's name to its text in master file form. `statements`: before the
    zones; `zone_options`: lines of each of them."""

    def __init__(self, directory, port, zones, host="127.0.0.1", name="nsd", statements="", zone_options=""):
        super().__init__(name, directory)
        self.host, self.port = host, port
        config = _NSD.format(host=host, port=port, directory=directory) + statements
        for number, (zone, text) in enumerate(zones.items()):
            path = write(os.path.join(directory, f"{name}-{number}.zone"), text)
            config += f'zone:\n    name: "{zone}"\n    zonefile: "{path}"\n{zone_options}'
        self.config = write(os.path.join(directory, f"{name}.conf"), config)

    def kill(self):
        """By SIGTERM first: what answers is a child of the process that we know."""
        if self.running():
            self.signal(signal.SIGTERM)
            self.exit_code(10)
        super().kill()

    def launch(self, **spawn_options):
        return self.spawn(["nsd", "-d", "-c", self.config], **spawn_options)


class Knot(Process):
    """As Nsd."""

    def __init__(self, directory, port, zones, host="127.0.0.1", name="knot", statements="", zone_options=""):
        super().__init__(name, directory)
        self.host, self.port = host, port
        config = _KNOT.format(host=host, port=port, directory=directory, statements=statements)
        for number, (zone, text) in enumerate(zones.items()):
            path = write(os.path.join(directory, f"{name}-{number}.zone"), text)
            config += f'  - domain: {zone}\n    file: "{path}"\n    zonefile-sync: -1\n    journal-content: none\n{zone_options}'
        self.config = write(os.path.join(directory, f"{name}.conf"), config)

    def launch(self, **spawn_options):
        return self.spawn(["knotd", "-c", self.config], **spawn_options)


class Named(Process):
    """As Nsd. `more`: further options."""

    def __init__(self, directory, port, zones, host="127.0.0.1", name="named", more="", statements="", zone_options=""):
        super().__init__(name, directory)
        self.host, self.port = host, port
        config = _NAMED.format(host=host, port=port, directory=directory, more=more) + statements
        for number, (zone, text) in enumerate(zones.items()):
            path = write(os.path.join(directory, f"{name}-{number}.zone"), text)
            config += f'zone "{zone}" {{ type primary; file "{path}"; {zone_options} }};\n'
        self.config = write(os.path.join(directory, f"{name}.conf"), config)

    def launch(self, **spawn_options):
        return self.spawn(["named", "-g", "-n", "1", "-c", self.config], **spawn_options)


class UnboundForwarder(Process):
    """unbound as people run it on a node: a cache before one upstream; no validation. `tls`: a certificate's file and its
    key's, with which it serves DNS over TLS on its port, and nothing else; `https`: the same over HTTPS. `options`: lines of the
    `server` clause."""

    def __init__(self, directory, port, upstream_host, upstream_port, host="127.0.0.1", name="unbound", tls=None,
                 https=None, modules="iterator", options=()):
        super().__init__(name, directory)
        self.host, self.port = host, port
        files = tls or https
        service = [f"{'tls' if tls else 'https'}-port: {port}", f'tls-service-pem: "{files[0]}"',
                   f'tls-service-key: "{files[1]}"'] if files else []
        self.config = write(os.path.join(directory, f"{name}.conf"), _UNBOUND.format(
            host=host, port=port, directory=directory, name=name, upstream_host=upstream_host, upstream_port=upstream_port,
            modules=modules, more="".join(f"    {line}\n" for line in [*service, *options])))

    def statistics(self):
        """What it counts, by name."""
        output = subprocess.run(["unbound-control", "-c", self.config, "stats_noreset"], check=True, capture_output=True, text=True)
        return {key: float(value) for key, _, value in (line.partition("=") for line in output.stdout.splitlines())}

    def launch(self, **spawn_options):
        return self.spawn(["unbound", "-d", "-c", self.config], **spawn_options)


class Dnsmasq(Process):
    """A forwarder with no cache of files, before one upstream; `options`: of its command line."""

    def __init__(self, directory, port, upstream, host="127.0.0.1", name="dnsmasq", options=()):
        super().__init__(name, directory)
        self.host, self.port = host, port
        self.arguments = [
            "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", f"--port={port}", f"--listen-address={host}",
            "--bind-interfaces", "--no-resolv", "--no-hosts", f"--server={upstream.replace(':', '#')}", "--user=root",
            f"--pid-file={os.path.join(directory, name)}.pid", "--log-facility=-", *options]

    def launch(self, **spawn_options):
        return self.spawn(self.arguments, **spawn_options)
