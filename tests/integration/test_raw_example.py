"""examples/raw.py: forty lines of sockets and JSON that open a column and read it."""

import os
import pathlib
import struct
import subprocess
import sys

import pytest

from peer import DEADLINE, column, table

RAW = pathlib.Path(__file__).resolve().parents[2] / "examples/raw.py"


@pytest.fixture
def raw(daemon):
    def run(*argv):
        return subprocess.run([sys.executable, str(RAW), *argv], text=True,
                              env={**os.environ, "GPUBUFD_SOCKET": daemon.path},
                              capture_output=True, timeout=DEADLINE, check=False)

    return run


def test_a_column_of_a_table_under_its_mask(peer, raw):
    layout = table(10, n={"dtype": "int64"}, x={"dtype": "float64", "mask": {}, "null_count": 5})
    data = {"columns[0].data": struct.pack("<10q", *range(10)),
            "columns[1].data": struct.pack("<10d", *(i / 2 for i in range(10))),
            "columns[1].mask": b"\x55\x01"}
    peer.create_object("t", layout, data)
    done = raw("t", "x")
    assert (done.stdout, done.stderr) == ("10 rows, 5 null, sum 10.0\n", "")
    assert raw("t", "n").stdout == "10 rows, 0 null, sum 45\n"


def test_a_slice(peer, raw):
    peer.create_object("c", column("int64", 100), struct.pack("<100q", *range(100)))
    peer.call("alias", name="part", of="c", slice={"offset": 90, "length": 10})
    assert raw("part").stdout == "10 rows, 0 null, sum 945\n"


def test_what_it_cannot_read(peer, raw):
    peer.put("b", b"x")
    for argv in (["none"], ["b"], ["b", "x"], []):
        done = raw(*argv)
        assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr


def test_it_is_short():
    """The point of it."""
    code = [line for line in RAW.read_text().split('"""')[2].splitlines()
            if line.strip() and not line.strip().startswith("#")]
    assert len(code) <= 40
