"""gpubufctl, run on a daemon."""

import csv
import io
import json
import os
import re
import subprocess

import device as test_device
from conftest import BUILD, SANITIZER, needs
from peer import DEADLINE, Peer

GPUBUFCTL = BUILD / "bin" / "gpubufctl"
OK, FAILED, USAGE, NO_DAEMON, TIMEOUT = range(5)


class Ctl:
    """Runs gpubufctl on one daemon, in a directory of its own."""

    def __init__(self, path, directory):
        needs("gpubufctl")
        self.path = path
        self.directory = directory
        self.env = {
            key: value
            for key, value in test_device.environment().items()
            if key not in ("NO_COLOR", "COLUMNS", "GPUBUFD_SOCKET")
        }
        self.env["GPUBUFD_SOCKET"] = path

    def raw(self, *words, input=None, env=None):
        done = subprocess.run(
            [str(GPUBUFCTL), *words],
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            timeout=DEADLINE * 3,
            env={**self.env, **(env or {})},
            cwd=self.directory,
        )
        assert not SANITIZER.search(done.stderr.decode(errors="replace")), done.stderr.decode()
        assert done.returncode in range(5), (done.returncode, done.stderr)
        return done

    def __call__(self, *words, **settings):
        """Must succeed, in silence on standard error; returns standard output."""
        done = self.raw(*words, **settings)
        assert done.returncode == OK and done.stderr == b"", (words, done)
        return done.stdout.decode()

    def json(self, *words):
        return json.loads(self("--json", *words))

    def fails(self, status, *words, **settings):
        """Must fail with one sentence and print nothing else; returns the sentence."""
        done = self.raw(*words, **settings)
        sentence = done.stderr.decode()
        assert done.returncode == status, (words, done)
        assert done.stdout == b"", (words, done.stdout)
        assert re.fullmatch(r"gpubufctl: [^\n]+\n", sentence), sentence
        return sentence

    def names(self):
        """All that there are, as the daemon tells."""
        with Peer(self.path) as peer:
            return peer.names()

    def file(self, name, content):
        path = os.path.join(self.directory, name)
        with open(path, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        return path


def bytes_of_npy(array):
    import numpy  # which the core's tests do without

    out = io.BytesIO()
    numpy.save(out, array)
    return out.getvalue()


def read_csv(text):
    return list(csv.reader(io.StringIO(text, newline="")))
