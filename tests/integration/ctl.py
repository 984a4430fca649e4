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
    """Runs gpubufctl on one daemon, in a directory of its own. LeakSanitizer looks at one run of each command on a daemon:
    to look takes as long as the command, and what the command leaves is gone with it."""

    looked_at = set()

    def __init__(self, path, directory):
        needs("gpubufctl")
        self.path = path
        self.directory = directory
        self.env = {**test_device.environment(), "GPUBUFD_SOCKET": path}
        for key in ("NO_COLOR", "COLUMNS"):
            self.env.pop(key, None)

    def start(self, *words, **popen):
        """The command as a process."""
        return subprocess.Popen([str(GPUBUFCTL), *words], cwd=self.directory, **{"env": self.env, **popen})

    def raw(self, *words, input=None, env=None):
        env = {**self.env, **(env or {})}
        run = (self.path, next((word for word in words if word[:1] not in ("-", b"-")), ""))
        if run in self.looked_at:
            env["ASAN_OPTIONS"] = env.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
        self.looked_at.add(run)
        done = subprocess.run([str(GPUBUFCTL), *words], input=input, stdin=subprocess.DEVNULL if input is None else None,
                              capture_output=True, timeout=DEADLINE * 3, env=env, cwd=self.directory)
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

    def read(self, *path):
        """The content of a file."""
        with open(os.path.join(self.directory, *path), "rb") as file:
            return file.read()

    def put_array(self, name, array, *words):
        """Publishes a NumPy array by the bytes of a raw file."""
        kind = array.dtype.kind
        unit = str(array.dtype).partition("[")[2].rstrip("]")
        dtype = {"b": "bool8", "M": f"timestamp[{unit}]", "m": f"duration[{unit}]",
                 "S": f"fixed_binary({array.dtype.itemsize})"}.get(kind, str(array.dtype))
        with Peer(self.path) as peer:
            peer.create_object(name, {"kind": "array", "dtype": dtype, "shape": list(array.shape)},
                               {"data": array.tobytes()}, replace=True)

    def array(self, name, *words):
        """The array as NumPy makes it of the raw bytes that `get` writes."""
        import numpy  # which the core's tests do without

        shown = self.json("show", name, *words)
        dtype = re.sub(r"^bool8?$", "?", re.sub(r"^timestamp", "M8", re.sub(r"^duration", "m8", shown["dtype"])))
        content = self.raw("get", name, "--format", "raw", *words).stdout
        return numpy.frombuffer(content, dtype).reshape(shown.get("shape", -1))


def read_csv(text):
    return list(csv.reader(io.StringIO(text, newline="")))
