"""A real etcd: one member or several, on free loopback ports, data in memory where the machine allows it."""

import base64
import http.client
import json
import os
import shutil
import signal
import subprocess
import tempfile

from . import ports
from .processes import Process, TIME_FACTOR, wait_until


def _data_directory():
    # etcd syncs every write; on a tmpfs that costs nothing.
    shared_memory = "/dev/shm"
    return tempfile.mkdtemp(prefix="idetcd-etcd-", dir=shared_memory if os.access(shared_memory, os.W_OK) else None)


class EtcdMember:
    def __init__(self, directory, name="etcd", client_host="127.0.0.1", peer_host="127.0.0.1", prefix=()):
        self.name = name
        self.host = client_host
        self.client_port = ports.free_port()
        self.peer_port = ports.free_port()
        self.endpoint = f"http://{client_host}:{self.client_port}"
        self.peer_url = f"http://{peer_host}:{self.peer_port}"
        self.data = _data_directory()
        self.process = Process(name, directory)
        self.prefix = prefix  # before the command line, see Namespace
        self.initial_cluster = f"{name}={self.peer_url}"

    def launch(self, extra=()):
        self.process.spawn([
            "etcd", "--name", self.name, "--data-dir", self.data,
            "--listen-client-urls", self.endpoint, "--advertise-client-urls", self.endpoint,
            "--listen-peer-urls", self.peer_url, "--initial-advertise-peer-urls", self.peer_url,
            "--initial-cluster", self.initial_cluster, "--initial-cluster-state", "new",
            # Half of the defaults: a lone member becomes its own leader that much sooner.
            "--heartbeat-interval", "50", "--election-timeout", "500", *extra,
        ], prefix=self.prefix, env={"ETCD_UNSUPPORTED_ARCH": os.uname().machine.replace("aarch64", "arm64")})
        return self

    def healthy(self):
        try:
            status, body = self._http("GET", "/health")
            return status == 200 and json.loads(body).get("health") == "true"
        except (OSError, ValueError, http.client.HTTPException):
            return False

    def wait_healthy(self):
        def condition():
            assert self.process.running(), f"etcd ended\n{self.process.logs()}"
            return self.healthy()
        wait_until(condition, 30, lambda: f"etcd to be healthy\n{self.process.logs()}")
        return self

    def start(self, extra=()):
        return self.launch(extra).wait_healthy()

    def stop(self):
        """Orderly; the data stay."""
        if self.process.running():
            self.process.resume()
            self.process.signal(signal.SIGTERM)
            self.process.exit_code(20)

    def kill(self):
        self.process.kill()

    def pause(self):
        self.process.pause()

    def resume(self):
        self.process.resume()

    def wipe(self):
        """The next start() begins a new, empty store."""
        shutil.rmtree(self.data)
        os.mkdir(self.data, 0o700)

    def close(self):
        self.kill()
        shutil.rmtree(self.data, ignore_errors=True)
        ports.release(self.client_port)
        ports.release(self.peer_port)

    # --- the JSON gateway: etcd as a third party sees it ---

    def _connection(self):
        return http.client.HTTPConnection(self.host, self.client_port, timeout=10 * TIME_FACTOR)

    def _http(self, method, path, body=None, headers=None):
        connection = self._connection()
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def call(self, path, **request):
        status, body = self._http("POST", f"/v3/{path}", json.dumps(request))
        assert status == 200, f"etcd {path}: {status} {body!r}"
        return json.loads(body)

    def _range(self, **request):
        """A read, and another one where an election ends it."""
        def read():
            try:
                return self.call("kv/range", **request)
            except AssertionError as error:
                if "leader changed" not in str(error):
                    raise
                return None
        return wait_until(read, 10, f"{self.name} to have a leader")

    def pairs(self, internal=False):
        """Every key as bytes, with value, lease, revisions, and the fencing token of the one that put it. `internal`: with
        those that nodes write to confirm what they know."""
        reply = self._range(key=_b64(b"\0"), range_end=_b64(b"\0"))
        return {
            base64.b64decode(kv["key"]): {
                "value": base64.b64decode(kv.get("value", "")),
                "lease": int(kv.get("lease", 0)),
                "create_revision": int(kv["create_revision"]),
                "mod_revision": int(kv["mod_revision"]),
                "version": int(kv["version"]),
                "token": token_of(int(kv["create_revision"]), base64.b64decode(kv.get("value", ""))),
            } for kv in reply.get("kvs", []) if internal or not _is_internal(base64.b64decode(kv["key"]))
        }

    def names(self):
        """Key -> decoded value of what nodes have claimed."""
        return {
            key.decode(): json.loads(pair["value"])
            for key, pair in self.pairs().items() if not key.startswith(b"/") and pair["lease"]
        }

    def leases(self):
        return [int(lease["ID"]) for lease in self.call("lease/leases").get("leases", [])]

    def granted_ttl(self, lease):
        return int(self.call("lease/timetolive", ID=str(lease))["grantedTTL"])

    def put(self, key, value):
        self.call("kv/put", key=_b64(key), value=_b64(value))

    def put_many(self, pairs):
        """In transactions of a hundred, as etcd's default of at most 128 operations wants it."""
        operations = [{"requestPut": {"key": _b64(key), "value": _b64(value)}} for key, value in pairs.items()]
        for begin in range(0, len(operations), 100):
            self.call("kv/txn", success=operations[begin:begin + 100])

    def delete(self, key):
        self.call("kv/deleterange", key=_b64(key))

    def revision(self):
        return int(self.call("kv/range", key=_b64(b"x"))["header"]["revision"])

    def compact(self):
        self.call("kv/compaction", revision=str(self.revision()), physical=True)

    def ctl(self, *arguments, input_bytes=None):
        """etcdctl, as an operator would."""
        result = subprocess.run(
            ["etcdctl", "--endpoints", self.endpoint, "--dial-timeout", "20s", "--command-timeout", "25s", *arguments], input=input_bytes, capture_output=True, check=False,
            timeout=30 * TIME_FACTOR, env={**os.environ, "ETCDCTL_API": "3"})
        assert result.returncode == 0, f"etcdctl {arguments}: {result.stderr.decode()}"
        return result.stdout.decode()


class EtcdCluster:
    """Several members; start() returns when all are healthy."""

    def __init__(self, directory, size=3, members=None):
        self.members = members or [EtcdMember(directory, f"etcd{i}") for i in range(1, size + 1)]
        initial_cluster = ",".join(member.initial_cluster for member in self.members)
        for member in self.members:
            member.initial_cluster = initial_cluster

    def start(self):
        for member in self.members:
            member.launch()
        for member in self.members:
            member.wait_healthy()
        return self

    @property
    def endpoints(self):
        return " ".join(member.endpoint for member in self.members)

    def close(self):
        for member in self.members:
            member.close()


def token_of(create_revision, value):
    """The value says it where the create_revision is not the token: after a key was taken back, or the store set back."""
    try:
        return max(create_revision, json.loads(value).get("token", 0))
    except (ValueError, AttributeError, RecursionError):
        return create_revision


def _is_internal(key):
    return key.startswith((b"/idetcd/incarnation/", b"/idetcd/generation/", b"/idetcd/relay/", b"/idetcd/token/")) or key.endswith(b"/idetcd/beat")


def _b64(data):
    return base64.b64encode(data.encode() if isinstance(data, str) else data).decode()
