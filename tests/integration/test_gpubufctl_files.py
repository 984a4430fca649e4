"""The files that gpubufctl reads and writes itself: .csv, by Python's csv module, and bytes as they are."""

import contextlib
import os
import re
import subprocess

import numpy
import pytest

from conftest import ROOT
from ctl import FAILED, GPUBUFCTL, OK, USAGE, read_csv
from peer import DEADLINE

DATA = ROOT / "examples" / "data"


# ---- .csv --------------------------------------------------------------------------------------


@pytest.mark.on_gpus
@pytest.mark.parametrize("name", ["movies", "weather"])
def test_csv_of_the_examples(ctl, name):
    source = (DATA / f"{name}.csv").read_text()
    rows = read_csv(source)
    out = ctl("put", name, str(DATA / f"{name}.csv"))
    assert out.startswith(f"{name}: table, {len(rows) - 1} rows × {len(rows[0])} columns")
    shown = ctl.json("show", name)
    assert [column["name"] for column in shown["columns"]] == rows[0]
    assert [column["nulls"] for column in shown["columns"]] == [
        sum(row[i] == "" for row in rows[1:]) for i in range(len(rows[0]))
    ]
    types = {column["name"]: column["dtype"] for column in shown["columns"]}
    if name == "movies":
        assert types["US Gross"] == "int64" and types["IMDB Rating"] == "float64"
        assert types["Title"] == "utf8"
    back = read_csv(ctl("get", name))
    assert len(back) == len(rows)
    for expected, got in zip(rows, back):
        for a, b in zip(expected, got):
            assert a == b or float(a) == float(b), (expected, got)


def test_a_dtype_does_not_go_with_a_file_that_has_types(ctl, tmp_path):
    """Taken as raw, the text of a CSV file would be published as numbers."""
    csv_file = tmp_path / "q.csv"
    csv_file.write_text("a,b,c\n1,2,3\n")
    sentence = ctl.fails(USAGE, "put", "q", str(csv_file), "--dtype", "float32")
    assert "--dtype is for raw files" in sentence and "--format raw" in sentence
    assert ctl.names() == []
    ctl("put", "q", str(csv_file), "--dtype", "uint8", "--format", "raw")
    assert ctl.raw("get", "q", "--format", "raw").stdout == csv_file.read_bytes()


# ---- raw ---------------------------------------------------------------------------------------


def test_raw_bytes(ctl):
    content = bytes(range(256)) * 17
    path = ctl.file("blob", content)
    assert re.fullmatch(r"a: 4352 bytes, version \d+\n", ctl("put", "a", path))
    ctl("put", "b", "-", input=content)
    with open(path, "rb") as file:  # a file in its middle
        file.seek(100)
        assert ctl.start("put", "c", "-", stdin=file, stdout=subprocess.DEVNULL).wait(DEADLINE) == OK
    assert ctl.raw("get", "a").stdout == content
    assert ctl.raw("get", "b").stdout == content
    assert ctl.raw("get", "c").stdout == content[100:]
    assert ctl.raw("get", "a", "--slice", "10:20").stdout == content[10:20]
    assert ctl.raw("get", "a", "--slice=-5:").stdout == content[-5:]
    ctl("put", "empty", "-", input=b"")
    assert ctl.raw("get", "empty").stdout == b""


def test_raw_with_a_type(ctl):
    array = numpy.arange(12, dtype="f4")
    path = ctl.file("blob", array.tobytes())
    ctl("put", "flat", path, "--dtype", "float32")
    assert ctl.json("show", "flat")["shape"] == [12]
    ctl("put", "grid", path, "--dtype", "float32", "--shape", "3,4")
    assert ctl.json("show", "grid")["shape"] == [3, 4]
    ctl("put", "piped", "-", "--dtype", "float32", "--shape", "3x4", input=array.tobytes())
    assert (ctl.array("piped") == array.reshape(3, 4)).all()
    ctl("put", "dates", "-", "--dtype", "date32", "--kind", "column",
        input=numpy.array([0, 15340], dtype="i4").tobytes())
    assert ctl("get", "dates", "-f", "csv") == "value\n1970-01-01\n2012-01-01\n"
    ctl("put", "half", "-", "--dtype", "bfloat16", input=b"\x80\x3f\x00\x40")
    assert ctl.raw("get", "half", "-f", "raw").stdout == b"\x80\x3f\x00\x40"


def test_small_floats(ctl):
    """The first element is in the low half of a byte; test_gpubufctl_types.py has every value of each type."""
    ctl("put", "e2m1", "-", "--dtype", "float4_e2m1fn", "--shape", "2,4", input=b"\x10\x32\x54\xf6")
    assert ctl.json("show", "e2m1")["shape"] == [2, 4]
    assert ctl("get", "e2m1", "-f", "csv") == "0,1,2,3\n0.0,0.5,1.0,1.5\n2.0,3.0,4.0,-6.0\n"
    for shape in ("3", "4,1"):
        message = ctl.fails(FAILED, "put", "odd", "-", "--dtype", "float4_e2m1fn", "--shape", shape, input=b"ab")
        assert "no whole bytes" in message
    assert "bytes" in ctl.fails(FAILED, "put", "odd", "-", "--dtype", "float6_e3m2fn", input=b"ab")


def test_raw_that_does_not_fit(ctl):
    path = ctl.file("blob", b"x" * 10)
    put = ("put", "x", path)
    assert "no whole number of elements" in ctl.fails(FAILED, *put, "--dtype", "int64")
    assert "cut short" in ctl.fails(FAILED, *put, "--dtype", "int8", "--shape", "11")
    assert "has bytes after" in ctl.fails(FAILED, *put, "--dtype", "int8", "--shape", "9")
    piped = ("put", "x", "-", "--dtype", "int8", "--shape")
    assert "cut short" in ctl.fails(FAILED, *piped, "11", input=b"x" * 10)
    assert "has bytes after" in ctl.fails(FAILED, *piped, "9", input=b"x" * 10)
    for shape in ("9223372036854775808", "4503599627370495,4503599627370495", "3,a", ","):
        ctl.fails(FAILED, *put, "--dtype", "int64", "--shape", shape)
    ctl.fails(USAGE, *put, "--dtype", "int33")
    ctl.fails(USAGE, *put, "--dtype", "utf8")
    ctl.fails(USAGE, *put, "--shape", "10")
    ctl.fails(USAGE, *put, "--kind", "table", "--format", "raw")
    assert ctl.names() == []
    assert ctl.json("ps")["leases"] == []


def test_put_what_cannot_be_read(ctl):
    assert "is a directory" in ctl.fails(FAILED, "put", "x", ctl.directory)
    assert "No such file" in ctl.fails(FAILED, "put", "x", "nowhere.csv")
    for name in ("a\x01b", "", "/a", "a/", "a//b", "x" * 256, "a\x1b[31m"):
        message = ctl.fails(USAGE, "put", name, ctl.file("f", b"1"))
        assert "\x1b" not in message
    assert ctl.names() == []


@pytest.mark.root
def test_put_a_file_of_somebody_else(ctl):
    path = ctl.file("secret", b"1")
    os.chmod(path, 0)
    # Root without its power over files: another user might not reach a checkout below /root.
    done = subprocess.run(
        ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all",
         str(GPUBUFCTL), "put", "x", path],
        env=ctl.env, capture_output=True, timeout=DEADLINE)
    assert done.returncode == FAILED
    assert b"Permission denied" in done.stderr


# ---- pipes -------------------------------------------------------------------------------------


def test_a_pipe_is_read_as_far_as_a_device_could_take_it(ctl):
    """It says so before the end comes, which of a pipe need not come at all."""
    capacity = max(device["capacity"] for device in ctl.json("stats")["devices"])
    for words in (("put", "endless", "-"), ("put", "endless", "-", "--dtype", "int8")):
        with subprocess.Popen([GPUBUFCTL, *words], stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=ctl.env) as process:
            try:
                for _ in range(2 * capacity >> 20):
                    process.stdin.write(bytes(1 << 20))
                process.stdin.flush()
                raise AssertionError("twice the device's capacity was read")
            except BrokenPipeError:
                pass
            sentence = process.stderr.read().decode()
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        assert process.returncode == FAILED
        assert re.search(r"standard input: it is larger than \S+, which has \d+ .iB$", sentence.strip()), sentence


def test_get_takes_the_file_as_put_does(ctl):
    ctl("put", "piped", ctl.file("in.bin", b"abc"))
    assert ctl("get", "piped", "-") == "abc"
    ctl("get", "piped", "out.bin")
    assert ctl.read("out.bin") == b"abc"
