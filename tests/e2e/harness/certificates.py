"""A certificate authority of a test's own."""

import os
import subprocess


class Authority:
    def __init__(self, directory, name):
        self.directory, self.name = directory, name
        self.certificate, self._key = self._paths(name)
        _openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                 "-subj", f"/CN={name}", "-keyout", self._key, "-out", self.certificate)

    def issue(self, name, subject_alternative="IP:127.0.0.1,DNS:localhost"):
        """(certificate, key), for a server and for a client."""
        name = f"{self.name}-{name}"
        certificate, key = self._paths(name)
        request = os.path.join(self.directory, f"{name}.csr")
        extensions = os.path.join(self.directory, f"{name}.ext")
        with open(extensions, "w", encoding="ascii") as file:
            file.write(f"subjectAltName={subject_alternative}\nextendedKeyUsage=serverAuth,clientAuth\n")
        _openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}",
                 "-keyout", key, "-out", request)
        _openssl("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial", "-days", "2",
                 "-extfile", extensions, "-out", certificate)
        return certificate, key

    def _paths(self, name):
        return os.path.join(self.directory, f"{name}.pem"), os.path.join(self.directory, f"{name}.key")


def _openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
