"""The cases of DNS over TLS (RFC 7858) and over HTTPS (RFC 8484), with dnsperf as the load, beside unbound.

A client needs more processor time for an encrypted query than the server, so that the rate is the client's: what is compared is
the server's processor time for each answer."""

import collections
import re
import shutil
import statistics
import subprocess

from harness import ports
from lab import LOAD_CORE
from servers import ZONE, IdetcdZone, Unbound, cpu_time, unbound_server
from zone_cases import PAIRS, ZoneCase, ZoneData

NAMES = 1000
CONNECTIONS = 8
UNDER_WAY = 100  # queries; a connection over HTTPS may have 100
SECONDS = 2  # of each measurement


def list_cases():
    return [
        Encrypted("DNS over TLS, 1,000 names", "dot", target=1, in_quick=False),
        Encrypted("DNS over HTTPS, 1,000 names", "doh", target=1, in_quick=False),
    ]


class EncryptedData(ZoneData):
    """Its servers have a certificate, and listen to one mode of dnsperf's."""

    def __init__(self, lab, mode):
        super().__init__(lab, NAMES, False)
        self.mode = mode
        self.certificate, self.key = f"{self.directory}/cert.pem", f"{self.directory}/key.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
                        "/CN=localhost", "-days", "2", "-keyout", self.key, "-out", self.certificate], capture_output=True, check=True)
        self.queries = f"{self.directory}/queries"
        with open(self.queries, "w", encoding="ascii") as file:
            file.writelines(f"worker{number}.{ZONE} A\n" for number in range(1, NAMES + 1))


class EncryptedServer:
    """Beside the plain port, which says when it is ready."""

    def __init__(self, dataset):
        super().__init__(dataset)
        self.encrypted_port = ports.free_port()

    def close(self):
        super().close()
        ports.release(self.encrypted_port)


class IdetcdEncrypted(EncryptedServer, IdetcdZone):
    name = "idetcd"

    def prepare(self):
        scheme = {"dot": "tls", "doh": "https"}[self.dataset.mode]
        self.write("Corefile", f"""{ZONE} {scheme}://{ZONE}:{self.encrypted_port} {{
    {self.bind}
    tls {self.dataset.certificate} {self.dataset.key}
    file {self.write_zone()} {{
        reload 0
    }}
}}
""")


class UnboundEncrypted(EncryptedServer, Unbound):
    """With data of its own: nothing is looked up."""
    name = "unbound"

    def installed(self):
        return super(Unbound, self).installed()

    def prepare(self):
        port = {"dot": "tls-port", "doh": "https-port"}[self.dataset.mode]
        local = "".join(f'    local-data: "worker{number}.{ZONE} 3600 IN A 10.0.{number >> 8}.{number & 255}"\n'
                        for number in range(1, NAMES + 1))
        self.write("unbound.conf", unbound_server(self.port, self.directory) + f"""\
    interface: 127.0.0.1@{self.encrypted_port}
    {port}: {self.encrypted_port}
    tls-service-key: "{self.dataset.key}"
    tls-service-pem: "{self.dataset.certificate}"
    incoming-num-tcp: 100
    http-max-streams: {UNDER_WAY}
    local-zone: "{ZONE}" static
{local}remote-control:
    control-enable: no
""")

    def warm(self):
        pass


class Encrypted(ZoneCase):
    """Answers a second of a server's processor, as a multiple of unbound's."""
    group = "encrypted"

    def __init__(self, name, mode, **options):
        super().__init__(name, **options)
        self.mode = mode

    def dataset(self, lab, settings):
        return lab.dataset(EncryptedData, self.mode)

    def has_target(self, row):
        return row["server"] == IdetcdEncrypted.name

    def rows(self, lab, settings, dataset):
        if not shutil.which("dnsperf"):
            lab.missing.add("dnsperf")
            return []
        server, reference = dataset.server(IdetcdEncrypted), dataset.server(UnboundEncrypted)
        if not server or not reference:
            return []
        mine, theirs = [], []
        for _ in range(PAIRS):
            mine.append(measure(server, dataset))
            theirs.append(measure(reference, dataset))
        ratios = [other.microseconds / own.microseconds for own, other in zip(mine, theirs)]
        return [self.row(server, reference, ratios, "× unbound, answers by processor time", note(mine, theirs))]


Measurement = collections.namedtuple("Measurement", "rate microseconds")


def measure(server, dataset):
    """One run of dnsperf; every answer has to come."""
    before = cpu_time(server.pid)
    done = subprocess.run(["taskset", "-c", str(LOAD_CORE), "dnsperf", "-m", dataset.mode, "-s", "127.0.0.1", "-p",
                           str(server.encrypted_port), "-d", dataset.queries, "-c", str(CONNECTIONS), "-T", "1", "-q", str(UNDER_WAY),
                           "-l", str(SECONDS), "-O", f"doh-uri=https://localhost:{server.encrypted_port}/dns-query"],
                          capture_output=True, text=True, check=True)
    used = cpu_time(server.pid) - before
    answered, asked = (int(re.search(rf"Queries {what}: +(\d+)", done.stdout).group(1)) for what in ("completed", "sent"))
    right = re.search(r"Response codes: +NOERROR (\d+) \(100.00%\)", done.stdout)
    assert right and int(right.group(1)) == answered == asked > 0, f"{server.name}: {done.stdout}"
    rate = float(re.search(r"Queries per second: +([\d.]+)", done.stdout).group(1))
    return Measurement(rate, used / 1000 / answered)


def note(mine, theirs):
    def text(of):
        return f"{statistics.median(one.microseconds for one in of):.1f} µs an answer, {statistics.median(one.rate for one in of):,.0f} answers/s"
    return f"{text(mine)} (unbound {text(theirs)})"
