"""Certificates of nodes, signed by an authority that is made for a test."""

import os
import subprocess


class Authority:
    """One that signs certificates of nodes, in a directory of its own."""

    def __init__(self, directory, name="authority"):
        self.directory, self.name = str(directory), name
        self.certificate = self.path(f"{name}.pem")
        self.key = self.path(f"{name}.key")
        self._openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                      "-subj", f"/CN={name}", "-days", "2", "-keyout", self.key, "-out", self.certificate)

    def path(self, name):
        return os.path.join(self.directory, name)

    @staticmethod
    def _openssl(*words, **more):
        subprocess.run(["openssl", *words], check=True, capture_output=True, **more)

    def sign(self, node, names=None, days=2, stem=None):
        """(certificate, key) of a node; days < 0: it has expired."""
        stem = f"{self.name}-{stem or node}"
        key, request, certificate = (self.path(f"{stem}.{end}") for end in ("key", "csr", "pem"))
        extensions = self.path(f"{stem}.ext")
        with open(extensions, "w") as file:
            if names != []:
                file.write("subjectAltName=" + ",".join(f"DNS:{name}" for name in names or [node]) + "\n")
            file.write("extendedKeyUsage=serverAuth,clientAuth\n")
        self._openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
                      f"/CN={node}", "-keyout", key, "-out", request)
        self._openssl("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.key,
                      "-CAcreateserial", "-days", str(days), "-extfile", extensions, "-out", certificate)
        return certificate, key
