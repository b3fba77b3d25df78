"""The cases of zone files: how soon one is answered for, and how fast a secondary has all of it."""

import shutil
import socket
import statistics
import struct
import time

import pairs
from cases import FLOOD, Case, Rate
from harness.processes import wait_until
from lab import LOAD_CORE, SERVER_CORE, Dataset
from servers import ZONE, EchoSrv, IdetcdZone, Knot, Nsd

PAIRS = 6  # each of seconds: as few as have an interval at all
APEX_RECORDS = 3  # servers.Server.write_zone
AXFR = 252


def list_cases():
    return [
        LoadTime("a zone file of many names to its first answer", target=0.5, in_quick=False),
        TransferRate("AXFR of many names", target=1, in_quick=False),
        ServiceRate("1,000 names of a zone file, SRV", (*FLOOD, "--srv"), EchoSrv, [IdetcdZone, Knot, Nsd], target=0.90, in_quick=False),
    ]


class ZoneData(Dataset):
    """worker1 … workerN in zone files, and no etcd."""

    def start_etcd(self):
        pass

    def close(self):
        for server in self.servers.values():
            server.close()


class ServiceData(ZoneData):
    services = True


class ZoneCase(Case):
    group = "zones"
    many = True

    def dataset(self, lab, settings):
        return lab.dataset(ZoneData, settings.many, False)

    def has_target(self, row):
        return row["server"] == IdetcdZone.name

    @staticmethod
    def row(server, reference, ratios, unit, note):
        interval = pairs.median_interval(ratios)
        return {"server": server.name, "reference": reference.name, "unit": unit, **pairs.as_fields("ratio", ratios),
                "pairs": interval.count, "wide": interval.wide, "ratios": [round(ratio, 4) for ratio in ratios], "note": note}


class LoadTime(ZoneCase):
    """From the start of the process to the first answer, as a multiple of NSD's, which compiles the file meanwhile; neither is
    bound to a core."""
    less_is_better = True

    def rows(self, lab, settings, dataset):
        kinds = [kind for kind in (IdetcdZone, Knot, Nsd) if kind(dataset).installed()]
        if Nsd not in kinds:
            return []
        seconds = {kind: [] for kind in kinds}
        for _ in range(PAIRS):
            for kind in kinds:
                seconds[kind].append(self.time_to_answer(kind(dataset)))
        return [self.row(kind, Nsd, [mine / theirs for mine, theirs in zip(seconds[kind], seconds[Nsd])], "× NSD, seconds",
                         f"{dataset.names:,} names in {statistics.median(seconds[kind]):.2f} s (NSD {statistics.median(seconds[Nsd]):.2f} s)")
                for kind in kinds if kind is not Nsd]

    @staticmethod
    def time_to_answer(server):
        server.core = f"{SERVER_CORE},{LOAD_CORE}"
        server.prepare()
        start = time.monotonic()
        server.process.spawn(["taskset", "-c", server.core, *server.argv()])
        wait_until(server.answers_right, 300, lambda: f"{server.name} to answer\n{server.process.logs()}", interval=0.002)
        seconds = time.monotonic() - start
        server.close()
        shutil.rmtree(server.directory, ignore_errors=True)
        return seconds


class TransferRate(ZoneCase):
    """Records a second that one client gets of the whole zone, as a multiple of Knot's."""

    def rows(self, lab, settings, dataset):
        reference = dataset.server(Knot)
        if not reference:
            return []
        rows = []
        for kind in (IdetcdZone, Nsd):
            server = dataset.server(kind)
            if not server:
                continue
            mine, theirs = [], []
            for _ in range(PAIRS):
                mine.append(transfer(server.port, dataset.names))
                theirs.append(transfer(reference.port, dataset.names))
            rows.append(self.row(server, reference, [other / own for own, other in zip(mine, theirs)], "× Knot DNS, records/s",
                                 f"{dataset.names:,} names in {statistics.median(mine):.2f} s (Knot {statistics.median(theirs):.2f} s)"))
        return rows


class ServiceRate(Rate):
    group = "zones"

    def dataset(self, lab, settings):
        return lab.dataset(ServiceData, 1000, False)

    def has_target(self, row):
        return row["server"] == IdetcdZone.name


def transfer(port, names):
    """The seconds until the last record has come."""
    name = b"".join(bytes([len(label)]) + label.encode() for label in ZONE.rstrip(".").split(".")) + b"\0"
    query = struct.pack("!6H", 4711, 0, 1, 0, 0, 0) + name + struct.pack("!2H", AXFR, 1)
    left = names + APEX_RECORDS + 1  # the SOA once more
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection, connection.makefile("rb", 1 << 20) as stream:
        start = time.monotonic()
        connection.sendall(struct.pack("!H", len(query)) + query)
        while left > 0:
            message = stream.read(struct.unpack("!H", stream.read(2))[0])
            assert message[3] & 15 == 0, f"AXFR is refused: rcode {message[3] & 15}"
            left -= struct.unpack("!H", message[6:8])[0]
        assert left == 0, "more records than the zone has"
        return time.monotonic() - start
