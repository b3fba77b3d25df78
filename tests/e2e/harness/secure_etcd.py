"""An etcd behind TLS, or that asks for a user and a password; and the certificates for that."""

import http.client
import json
import os
import shutil
import ssl
import subprocess

from .etcd import EtcdMember
from .processes import TIME_FACTOR


class Authority:
    """A CA of the test's own. Whatever it issues is for 127.0.0.1 and localhost, server and client."""

    def __init__(self, directory, name="authority"):
        self.directory = os.path.join(directory, name)
        os.mkdir(self.directory)
        self.certificate = os.path.join(self.directory, "ca.pem")
        self._key = os.path.join(self.directory, "ca.key")
        self._count = 0
        _openssl("-x509", "-subj", f"/CN={name}", "-addext", "keyUsage=critical,keyCertSign", "-keyout", self._key,
                 "-out", self.certificate)

    def issue(self):
        """(certificate, key), as paths of PEM files."""
        self._count += 1
        certificate, key = (os.path.join(self.directory, f"{self._count}.{ending}") for ending in ("pem", "key"))
        _openssl("-x509", "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-addext",
                 "basicConstraints=critical,CA:false", "-CA", self.certificate, "-CAkey", self._key, "-keyout", key,
                 "-out", certificate)
        return certificate, key


def _openssl(*arguments):
    subprocess.run(["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    *arguments], check=True, capture_output=True)


def install(source, target):
    """As an operator replaces a file that is in use: at once."""
    shutil.copy(source, f"{target}.new")
    os.rename(f"{target}.new", target)


class SecureEtcd(EtcdMember):
    """`authority` issues the server's certificate; with `clients` it is also whose certificates clients must show."""

    def __init__(self, directory, authority, clients=False, name="etcd"):
        super().__init__(directory, name)
        self.endpoint = self.endpoint.replace("http:", "https:")
        self.server = os.path.join(directory, f"{name}.server.pem"), os.path.join(directory, f"{name}.server.key")
        self.trusted = os.path.join(directory, f"{name}.trusted.pem")
        self.clients = clients
        self.certify(authority)

    def certify(self, authority):
        """From the next connection on, what concerns the server; what concerns the clients, from the next start."""
        self.authority = authority
        for source, target in zip(authority.issue(), self.server):
            install(source, target)
        install(authority.certificate, self.trusted)
        self._own = authority.issue()  # for what the tests ask

    def launch(self, extra=()):
        wanted = ("--client-cert-auth", "--trusted-ca-file", self.trusted) if self.clients else ()
        return super().launch(["--cert-file", self.server[0], "--key-file", self.server[1], *wanted, *extra])

    def _connection(self):
        context = ssl.create_default_context(cafile=self.authority.certificate)
        context.load_cert_chain(*self._own)
        return http.client.HTTPSConnection("127.0.0.1", self.client_port, timeout=10 * TIME_FACTOR, context=context)


class GuardedEtcd(EtcdMember):
    """Wants a user. `guard()` creates root and switches authentication on; the tests ask as root from then on."""

    ROOT = "root", "the root's password"

    def __init__(self, directory, name="etcd"):
        super().__init__(directory, name)
        self._token = None

    def guard(self):
        self.ctl("user", "add", ":".join(self.ROOT))
        self.ctl("user", "grant-role", self.ROOT[0], "root")
        self.ctl("auth", "enable")
        self._token = ""
        return self

    def add_user(self, user, password, *grants):
        """`grants`: (kind, first key, end) of a role of the user's name; end "": to the end of the key space."""
        self.ctl("user", "add", f"{user}:{password}")
        self.ctl("role", "add", user)
        for grant in grants:
            self.grant(user, *grant)
        self.ctl("user", "grant-role", user, user)

    def grant(self, role, kind, first, end):
        arguments = [first, end] if end else ["--from-key", first]
        self.ctl("role", "grant-permission", role, kind, *arguments)

    def revoke(self, role, first, end):
        arguments = [first, end] if end else ["--from-key", first]
        self.ctl("role", "revoke-permission", role, *arguments)

    def ctl(self, *arguments, input_bytes=None):
        user = () if self._token is None else ("--user", ":".join(self.ROOT))
        return super().ctl(*user, *arguments, input_bytes=input_bytes)

    def call(self, path, **request):
        if self._token is None:
            return super().call(path, **request)
        for _ in range(2):
            status, body = self._with_token(path, request) if self._token else (401, b"")
            if status == 200:
                return json.loads(body)
            # A token does not outlive the member that gave it.
            self._token = super().call("auth/authenticate", name=self.ROOT[0], password=self.ROOT[1])["token"]
        raise AssertionError(f"etcd {path}: {status} {body!r}")

    def _with_token(self, path, request):
        return self._http("POST", f"/v3/{path}", json.dumps(request), {"Authorization": self._token})
