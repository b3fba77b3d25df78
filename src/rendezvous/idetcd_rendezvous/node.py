"""The server on this machine, asked over its control socket: who the members of the cluster are.

The socket and not `idetcd members --json`: the command may be missing where PyTorch runs, as in a container that has the
socket mounted."""

import glob
import http.client
import json
import os
import socket
import urllib.parse
from dataclasses import dataclass
from typing import Optional, Tuple

_PATIENCE = 6.0  # seconds; the server reads etcd, for which it takes 5 s at most


class NodeError(Exception):
    """The server says nothing now: it does not run, etcd is away, or what was asked for is not there."""


@dataclass(frozen=True)
class Member:
    """A name that is held and has an address, and is not of another pattern."""

    id: int
    name: str  # without the dot at its end
    node: Optional[str]  # the UUID; None: of the Go plugin
    place: Tuple[str, ...]  # in the network; empty: not said
    address: str  # for this job; empty: it has none in the network that was asked for
    host: str  # how the member is called: its name, or the address


@dataclass(frozen=True)
class Roster:
    members: Tuple[Member, ...]  # by ID
    own: Optional[Member]  # this node; None: it has no name, or is drained
    generation: Optional[int]  # of the members; None: the server does not count


def by_number(member):
    return member.id


def by_place(member):
    """As `--order topology` of the subcommands: part by part, then by ID; those without a place come last."""
    return (not member.place, member.place, member.id)


class _Connection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=_PATIENCE)
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Node:
    """`path`: of the control socket; default: the only one of its directory, as for the subcommands.

    `network`: members are known by their names and addresses in it. `by_address`: they are called by their addresses."""

    def __init__(self, path=None, pattern=None, network=None, by_address=False):
        self._path = path
        self._pattern = pattern
        self._network = network
        self._by_address = by_address

    def roster(self):
        """Read from etcd. Blocks; NodeError."""
        query = "?" + urllib.parse.urlencode({"pattern": self._pattern}) if self._pattern else ""
        clusters = self._get("/v1/members" + query).get("clusters", [])
        if len(clusters) != 1:
            patterns = " ".join(cluster["pattern"] for cluster in clusters)
            raise NodeError(f"there are several clusters: choose one with pattern=: {patterns}" if clusters else "the server has no cluster")
        [cluster] = clusters
        own = None
        members = []
        for slot in cluster["slots"]:
            if slot["drained"] or slot["foreign"] or slot["id"] is None or not slot["addresses"]:
                continue
            member = self._member(slot)
            members.append(member)
            if slot["own"]:
                own = member
        return Roster(tuple(sorted(members, key=by_number)), own, cluster.get("generation"))

    def _member(self, slot):
        called = slot
        if self._network:
            called = slot.get("networks", {}).get(self._network, {"name": slot["name"], "addresses": []})
        name = called["name"].rstrip(".")
        addresses = sorted(called["addresses"], key=lambda address: ":" in address)
        address = addresses[0] if addresses else ""
        return Member(slot["id"], slot["name"].rstrip("."), slot["node"], tuple(filter(None, (slot.get("topology") or "").split("/"))),
                      address, address if self._by_address else name)

    def _get(self, target):
        path = self._path or _only_socket()
        connection = _Connection(path)
        try:
            connection.request("GET", target, headers={"Accept": "application/json"})
            response = connection.getresponse()
            said = json.loads(response.read())
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise NodeError(f"{path}: {error}") from error
        finally:
            connection.close()
        if response.status >= 400:
            raise NodeError(said.get("error", f"the server answers {response.status}"))
        return said


def _only_socket():
    directory = os.environ.get("RUNTIME_DIRECTORY", "").split(":")[0] or "/run/idetcd"
    paths = glob.glob(os.path.join(glob.escape(directory), "*.sock"))
    living = [path for path in paths if len(paths) == 1 or _is_listened_at(path)]
    if len(living) == 1:
        return living[0]
    raise NodeError(f"there are several servers: choose one with socket=: {' '.join(living)}" if living
                    else f"there is no socket in {directory}: does idetcd run?")


def _is_listened_at(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as attempt:
        return attempt.connect_ex(path) == 0
