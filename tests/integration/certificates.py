"""Certificates of nodes, signed by an authority that is made for a test."""

import os
import subprocess


class Authority:
    """One that signs certificates of nodes, in a directory of its own."""

    def __init__(self, directory, name="authority"):
        self.directory, self.name, self.signed = str(directory), name, {}
        self.certificate = self.path(f"{name}.pem")
        self.key = self.path(f"{name}.key")
        self._openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                      "-subj", f"/CN={name}", "-days", "2", "-keyout", self.key, "-out", self.certificate)

    def path(self, name):
        return os.path.join(self.directory, name)

    @staticmethod
    def _openssl(*words, **more):
        subprocess.run(["openssl", *words], check=True, capture_output=True, **more)

    def sign(self, node, days=2, stem=None):
        """(certificate, key) of a node, which are made once, but those with a `stem` each time; days < 0: it has expired."""
        if stem:
            self.signed.pop(node, None)  # the test may spoil them
            return self._sign(node, days, stem)
        if node not in self.signed:
            self.signed[node] = self._sign(node, days, node)
        return self.signed[node]

    def _sign(self, node, days, stem):
        stem = f"{self.name}-{stem}"
        key, request, certificate = (self.path(f"{stem}.{end}") for end in ("key", "csr", "pem"))
        extensions = self.path(f"{stem}.ext")
        with open(extensions, "w") as file:
            file.write(f"subjectAltName=DNS:{node}\nextendedKeyUsage=serverAuth,clientAuth\n")
        self._openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
                      f"/CN={node}", "-keyout", key, "-out", request)
        self._openssl("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.key,
                      "-CAcreateserial", "-days", str(days), "-extfile", extensions, "-out", certificate)
        return certificate, key
