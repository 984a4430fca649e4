"""The command line against a real daemon: every command, what it prints, how it fails.

NumPy writes and reads the .npy files, Python's csv module the .csv files, so that the formats are
checked by somebody else's reading of them.
"""

import csv
import fcntl
import io
import json
import os
import pty
import re
import select
import signal
import stat as stat_module
import struct
import subprocess
import termios
import time

import numpy
import pytest

import device as test_device
from conftest import BUILD, ROOT
from ctl import FAILED, GPUBUFCTL, NO_DAEMON, OK, TIMEOUT, USAGE, Ctl
from peer import DEADLINE

DATA = ROOT / "examples" / "data"


@pytest.fixture
def ctl(shared_daemon, tmp_path):
    one = Ctl(shared_daemon.path, str(tmp_path))
    yield one
    names = one.names()
    if names:
        one("rm", *names)


def bytes_of_npy(array):
    out = io.BytesIO()
    numpy.save(out, array)
    return out.getvalue()


# ---- .npy --------------------------------------------------------------------------------------

DTYPES = (
    "?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16", "S5",
    "M8[s]", "M8[ms]", "M8[us]", "M8[ns]", "m8[s]", "m8[ms]", "m8[us]", "m8[ns]",
)


def example(dtype, shape, order="C"):
    random = numpy.random.default_rng(7)
    dtype = numpy.dtype(dtype)
    count = int(numpy.prod(shape, dtype=int))
    data = random.bytes(count * dtype.itemsize)
    array = numpy.frombuffer(data, dtype="u1") if dtype.kind == "b" else None
    if array is not None:
        array = (array & 1).astype("?")
    else:
        array = numpy.frombuffer(data, dtype=dtype)
    return numpy.array(array.reshape(shape), order=order)


@pytest.mark.parametrize("dtype", DTYPES)
def test_npy_round_trip(ctl, dtype):
    for shape, order in [((7,), "C"), ((3, 4), "C"), ((3, 4), "F"), ((2, 3, 4), "F"), ((), "C"),
                         ((0,), "C"), ((0, 5), "F")]:
        array = example(dtype, shape, order)
        source = ctl.file("in.npy", bytes_of_npy(array))
        ctl("put", "--replace", "a", source)
        ctl("get", "a", "-o", "out.npy")
        back = numpy.load(os.path.join(ctl.directory, "out.npy"))
        assert back.dtype == array.dtype and back.shape == array.shape
        assert back.tobytes() == array.tobytes()


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d not in ("?", "i1", "u1", "S5")])
def test_npy_of_the_other_byte_order(ctl, dtype):
    for order in "CF":
        array = example(dtype, (5, 3), order)
        # Not by astype, which may change what a NaN carries.
        swapped = numpy.array(array, order=order).byteswap().view(array.dtype.newbyteorder(">"))
        ctl("put", "-r", "a", ctl.file("in.npy", bytes_of_npy(swapped)))
        ctl("get", "a", "-o", "out.npy")
        back = numpy.load(os.path.join(ctl.directory, "out.npy"))
        assert back.tobytes() == array.tobytes()


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_npy_versions(ctl, version):
    out = io.BytesIO()
    numpy.lib.format.write_array(out, numpy.arange(5), version=version)
    ctl("put", "a", "-", input=out.getvalue())  # known by its start
    assert ctl("get", "a", "--format", "csv") == "value\n0\n1\n2\n3\n4\n"


def test_npy_large_fortran(ctl):
    array = numpy.asfortranarray(numpy.arange(700 * 901, dtype="u4").reshape(700, 901))
    ctl("put", "a", ctl.file("in.npy", bytes_of_npy(array)))
    ctl("get", "a", "-o", "out.npy")
    assert (numpy.load(os.path.join(ctl.directory, "out.npy")) == array).all()


def test_npy_as_a_column(ctl):
    ctl("put", "c", ctl.file("in.npy", bytes_of_npy(numpy.arange(4.0))), "--kind", "column")
    assert ctl.json("show", "c")["kind"] == "column"
    file = ctl.file("in2.npy", bytes_of_npy(numpy.zeros((2, 2))))
    assert "one axis" in ctl.fails(FAILED, "put", "d", file, "--kind", "column")


GOOD = bytes_of_npy(numpy.arange(12.0).reshape(3, 4))


@pytest.mark.parametrize(
    "content, sentence",
    [
        (b"", "does not start with"),
        (b"\x93NUM", "does not start with"),
        (b"hello, this is no array", "does not start with"),
        (GOOD[:7], "cut short"),
        (GOOD[:60], "cut short"),
        (GOOD[:-1], "cut short"),
        (GOOD[:128], "there are 0"),
        (GOOD + b"x", "has bytes after"),
        (GOOD.replace(b"<f8", b"<q8"), "dtype '<q8'"),
        (GOOD.replace(b"<f8", b"|O8"), "Python objects"),
        (GOOD.replace(b"False", b"Maybe"), "True or False"),
        (GOOD.replace(b"'shape'", b"'sharp'"), "unknown key 'sharp'"),
        (GOOD.replace(b"(3, 4)", b"(3, -4"), "whole number"),
        (GOOD.replace(b"(3, 4), } ", b"(9223372036854775808,)}"), "too long"),
        (GOOD.replace(b"(3, 4), }    ", b"(4503599627370495,2)}"), "too large"),
        (GOOD[:6] + b"\x09\x00" + GOOD[8:], "version 9.0"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + b"{" * 100, "at most"),
    ],
)
def test_npy_broken(ctl, content, sentence):
    path = ctl.file("broken.npy", content)
    message = ctl.fails(FAILED, "put", "x", path)
    assert sentence in message and "broken.npy" in message, message
    ctl.fails(FAILED, "put", "x", "-", "--format", "npy", input=content)
    assert ctl.names() == []
    assert ctl.json("ps")["leases"] == []


# ---- .csv --------------------------------------------------------------------------------------


def read_csv(text):
    return list(csv.reader(io.StringIO(text, newline="")))


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


def test_csv_types(ctl):
    text = (
        "i,f,b,s,code,big,none,special\n"
        "1,1.5,true,hello,007,9223372036854775808,,NaN\n"
        ",,,,,,,\n"
        '-9223372036854775808,-2e10,FALSE,"",+49,1,,-inf\n'
    )
    ctl("put", "t", "-", "--format", "csv", input=text.encode())
    shown = ctl.json("show", "t")["columns"]
    assert [(c["name"], c["dtype"], c["nulls"]) for c in shown] == [
        ("i", "int64", 1), ("f", "float64", 1), ("b", "bool", 1), ("s", "utf8", 1),
        ("code", "utf8", 1), ("big", "float64", 1), ("none", "utf8", 3), ("special", "float64", 1),
    ]
    assert ctl("get", "t") == (
        "i,f,b,s,code,big,none,special\n"
        "1,1.5,true,hello,007,9.223372036854776e+18,,nan\n"
        ",,,,,,,\n"
        '-9223372036854775808,-20000000000.0,false,"",+49,1.0,,-inf\n'
    )


def test_csv_quoting_survives(ctl):
    fields = ["plain", "with, comma", 'with "quotes"', "two\nlines", "cr\r\nlf", " spaces ", "ü日本",
              "tab\there"]
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(["name, of it", "n"])
    for i, field in enumerate(fields):
        writer.writerow([field, i])
    ctl("put", "t", "-", "-f", "csv", input=b"\xef\xbb\xbf" + out.getvalue().encode())
    assert read_csv(ctl.raw("get", "t").stdout.decode()) == read_csv(out.getvalue())
    once = ctl.raw("get", "t").stdout
    ctl("put", "again", "-", "-f", "csv", input=once)
    assert ctl.raw("get", "again").stdout == once


def test_csv_of_one_column_keeps_its_nulls(ctl):
    ctl("put", "t", "-", "-f", "csv", input=b"x\n1\n\n3\n")
    assert ctl.json("show", "t")["columns"][0]["nulls"] == 1
    assert ctl("get", "t") == "x\n1\n\n3\n"
    ctl("get", "t", "-c", "x", "-o", "x.csv")
    ctl("put", "u", "x.csv")
    assert ctl.json("show", "u")["columns"] == ctl.json("show", "t")["columns"]


def test_csv_without_rows(ctl):
    ctl("put", "t", "-", "-f", "csv", input=b"a,b\n")
    assert ctl("get", "t") == "a,b\n"
    assert "0 rows × 2 columns" in ctl("show", "t")


@pytest.mark.parametrize(
    "content, sentence",
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"a,b\n1,2\n3\n", "line 3: 1 field, but the header has 2"),
        (b'a,b\n"x\ny",2\n1,2,3\n', "line 4: 3 fields"),
        (b'a,b\n1,"2\n', "line 2, field 2: a quoted field that does not end"),
        (b'a,b\n1,2"3\n', "line 2, field 2: a quote"),
        (b"a,a\n1,2\n", 'two columns are called "a"'),
        (b"a,b\n1,\xff\n", "line 2, field 2: not UTF-8"),
        (b"a,b\n1,\0\n", "line 2, field 2: not UTF-8"),
        (b"\x7fELF\x02\x01\x01\0\0\0", "line 1, field 1: not UTF-8"),
        (",".join(f"c{i}" for i in range(4097)).encode(), "more than 4096 columns"),
    ],
)
def test_csv_broken(ctl, content, sentence):
    message = ctl.fails(FAILED, "put", "x", ctl.file("broken.csv", content))
    assert sentence in message and "broken.csv" in message
    assert ctl.names() == []


# ---- raw ---------------------------------------------------------------------------------------


def test_raw_bytes(ctl):
    content = bytes(range(256)) * 17
    path = ctl.file("blob", content)
    assert re.fullmatch(r"a: 4352 bytes, version \d+\n", ctl("put", "a", path))
    ctl("put", "b", "-", input=content)
    with open(path, "rb") as file:  # a file in its middle
        file.seek(100)
        subprocess.run([str(GPUBUFCTL), "put", "c", "-"], stdin=file, env=ctl.env, check=True,
                       capture_output=True, timeout=DEADLINE)
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
    ctl("get", "piped", "-o", "out.npy")
    assert (numpy.load(os.path.join(ctl.directory, "out.npy")) == array.reshape(3, 4)).all()
    ctl("put", "dates", "-", "--dtype", "date32", "--kind", "column",
        input=numpy.array([0, 15340], dtype="i4").tobytes())
    assert ctl("get", "dates", "-f", "csv") == "value\n1970-01-01\n2012-01-01\n"
    ctl("put", "half", "-", "--dtype", "bfloat16", input=b"\x80\x3f\x00\x40")
    assert ctl("get", "half", "-f", "csv") == "value\n1.0\n2.0\n"
    assert "NumPy has no bfloat16" in ctl.fails(FAILED, "get", "half", "-o", "x.npy")
    assert not os.path.exists(os.path.join(ctl.directory, "x.npy"))


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
        message = ctl.fails(FAILED, "put", name, ctl.file("f", b"1"))
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


# ---- options of put ----------------------------------------------------------------------------


def test_put_options(ctl):
    path = ctl.file("f", b"12345678")
    ctl("put", "a", path, "--mode", "640", "--ttl", "1h", "--evict", "drop", "--device",
        test_device.ID,
        "--share", "fd", "--wait", "1s")
    object_ = ctl.json("stat", "a")
    assert (object_["mode"], object_["ttl_ms"], object_["evict"]) == ("0640", 3600000, "drop")
    assert object_["device"] == test_device.ID and object_["share"] == "fd"
    assert "cannot create a" in ctl.fails(FAILED, "put", "a", path)
    version = ctl.json("stat", "a")["version"]
    assert ctl.json("put", "--replace", "a", path)["version"] > version
    for wrong in (("--mode", "999"), ("--ttl", "soon"), ("--evict", "never"), ("--share", "air"),
                  ("--kind", "thing"), ("--format", "pdf"), ("--wait", "-1")):
        ctl.fails(USAGE, "put", "b", path, *wrong)
    ctl.fails(FAILED, "put", "b", path, "--device", "nosuch")
    assert ctl.names() == ["a"]


@pytest.mark.host_only("the daemon of the other tests has memory of the GPU meanwhile")
def test_put_too_much(daemon, tmp_path):
    ctl = Ctl(daemon.path, str(tmp_path))
    path = ctl.file("big", b"")
    os.truncate(path, 100 << 20)
    ctl.fails(FAILED, "put", "a", path)
    assert "cannot create b" in ctl.fails(
        FAILED, "put", "b", "/dev/null", "--dtype", "int8", "--shape", "999999999999")
    assert ctl.names() == []


def test_interrupted_put_leaves_nothing(ctl, shared_daemon):
    process = subprocess.Popen(
        [str(GPUBUFCTL), "put", "x", "-", "--dtype", "int8", "--shape", "1000000"],
        stdin=subprocess.PIPE, env=ctl.env)
    process.stdin.write(b"1" * 1000)
    process.stdin.flush()
    end = time.monotonic() + DEADLINE
    while not ctl.json("ps")["leases"]:
        assert time.monotonic() < end
    process.send_signal(signal.SIGINT)
    assert process.wait(DEADLINE) == -signal.SIGINT
    process.stdin.close()
    while ctl.json("ps")["leases"]:
        assert time.monotonic() < end
    assert ctl.names() == []


# ---- get ---------------------------------------------------------------------------------------


def test_get_parts(ctl):
    ctl("put", "t", "-", "-f", "csv", input=b"n,s\n1,a\n,b\n3,\n4,d\n5,e\n")
    assert ctl("get", "t", "--slice", "1:3") == "n,s\n,b\n3,\n"
    assert ctl("get", "t", "--slice=-1:") == "n,s\n5,e\n"
    assert ctl("get", "t", "-s", "3:1") == "n,s\n"
    assert ctl("get", "t", "-c", "s", "-f", "csv", "-s", "2:") == "s\n\nd\ne\n"
    assert ctl.raw("get", "t", "-c", "n", "-s", "3:").stdout == numpy.array([4, 5]).tobytes()
    assert ctl.raw("get", "t", "-c", "s", "-s", "1:").stdout == b"bde"
    assert "no column" in ctl.fails(FAILED, "get", "t", "--column", "x", "-f", "csv")
    assert "is a table" in ctl.fails(FAILED, "get", "t", "-o", "t.npy")
    assert "is a table" in ctl.fails(FAILED, "get", "t", "-o", "t.raw")
    assert "1 of its elements" in ctl.fails(FAILED, "get", "t", "-c", "n", "-o", "n.npy")
    ctl.fails(USAGE, "get", "t", "-s", "x")
    ctl.fails(USAGE, "get", "t", "-f", "pdf")
    assert os.listdir(ctl.directory) == []


def test_get_columns_as_npy(ctl):
    ctl("put", "t", "-", "-f", "csv",
        input=b"i,f,b\n1,0.5,true\n2,,false\n3,-1,true\n4,2,true\n5,2,true\n6,2,true\n"
              b"7,2,true\n8,2,true\n9,2,false\n10,2,true\n")
    for column, part, expected in [
        ("i", ":", numpy.arange(1, 11)),
        ("i", "2:5", numpy.array([3, 4, 5])),
        ("f", ":4", numpy.array([0.5, numpy.nan, -1, 2])),
        ("b", ":", numpy.array([1, 0, 1, 1, 1, 1, 1, 1, 0, 1], dtype="?")),
        ("b", "1:9", numpy.array([0, 1, 1, 1, 1, 1, 1, 0], dtype="?")),
    ]:
        ctl("get", "t", "-c", column, "-s", part, "-o", "out.npy")
        back = numpy.load(os.path.join(ctl.directory, "out.npy"))
        assert back.dtype == expected.dtype
        assert numpy.array_equal(back, expected, equal_nan=expected.dtype.kind == "f")


def test_get_arrays_as_csv(ctl):
    for array, text in [
        (numpy.array(1.5), "value\n1.5\n"),
        (numpy.array([1, 2], dtype="i2"), "value\n1\n2\n"),
        (numpy.array([[1, 2, 3], [4, 5, 6]]), "0,1,2\n1,2,3\n4,5,6\n"),
        (numpy.array([0.1, 1e300, numpy.nan], dtype="f8"), "value\n0.1\n1e+300\nnan\n"),
        (numpy.array([0.1], dtype="f4"), "value\n0.1\n"),
        (numpy.array([1 + 2j]), "value\n1.0+2.0j\n"),
        (numpy.array([True, False]), "value\ntrue\nfalse\n"),
        (numpy.array(["2012-01-01T12:30:00.5"], dtype="M8[ms]"),
         "value\n2012-01-01T12:30:00.500\n"),
        (numpy.array(["NaT"], dtype="M8[s]"), "value\nNaT\n"),
        (numpy.array([90], dtype="m8[s]"), "value\nPT90S\n"),
        (numpy.array([b"ab\0"], dtype="S3"), "value\n616200\n"),
    ]:
        ctl("put", "-r", "a", ctl.file("in.npy", bytes_of_npy(array)))
        assert ctl("get", "a", "-f", "csv") == text
    ctl("put", "-r", "a", ctl.file("in.npy", bytes_of_npy(numpy.zeros((2, 2, 2)))))
    assert "one or two axes" in ctl.fails(FAILED, "get", "a", "-f", "csv")


def test_get_writes_whole_files_or_none(ctl):
    ctl("put", "a", ctl.file("f", b"new content"))
    target = ctl.file("target", b"old content, and longer")
    os.chmod(target, 0o640)
    ctl("get", "a", "-o", "target")
    assert open(target, "rb").read() == b"new content"
    assert stat_module.S_IMODE(os.stat(target).st_mode) == 0o640
    os.symlink("target", os.path.join(ctl.directory, "link"))
    ctl("put", "-r", "a", ctl.file("f", b"newer"))
    ctl("get", "a", "-o", "link")
    assert os.path.islink(os.path.join(ctl.directory, "link"))
    assert open(target, "rb").read() == b"newer"
    ctl.fails(FAILED, "get", "nosuch", "-o", "target")
    ctl.fails(FAILED, "get", "a", "-o", "target.csv")
    assert open(target, "rb").read() == b"newer"
    assert "is a directory" in ctl.fails(FAILED, "get", "a", "-o", ctl.directory)
    assert "No such file" in ctl.fails(FAILED, "get", "a", "-o", "nowhere/x")
    assert "No space" in ctl.fails(FAILED, "get", "a", "-o", "/dev/full")
    assert sorted(os.listdir(ctl.directory)) == ["f", "link", "target"]
    mask = os.umask(0o077)
    try:
        ctl("get", "a", "-o", "fresh")
    finally:
        os.umask(mask)
    assert stat_module.S_IMODE(os.stat(os.path.join(ctl.directory, "fresh")).st_mode) == 0o600


def test_get_waits(ctl):
    started = time.monotonic()
    ctl.fails(TIMEOUT, "get", "later", "--wait", "100ms")
    assert time.monotonic() - started >= 0.1
    process = subprocess.Popen([str(GPUBUFCTL), "get", "later", "-w", "60"], env=ctl.env,
                               stdout=subprocess.PIPE)
    ctl("put", "later", ctl.file("f", b"here"))
    assert process.communicate(timeout=DEADLINE)[0] == b"here"
    assert process.returncode == OK


def test_get_a_version(ctl):
    ctl("put", "a", ctl.file("f", b"one"))
    old = ctl.json("stat", "a")["version"]
    assert ctl.raw("get", "a", "-v", str(old)).stdout == b"one"
    ctl("put", "-r", "a", ctl.file("f", b"two"))
    ctl.fails(FAILED, "get", "a", "-v", str(old))
    ctl.fails(USAGE, "get", "a", "-v", "one")


# ---- looking -----------------------------------------------------------------------------------


def test_show(ctl):
    ctl("put", "t", "-", "-f", "csv", input="n,text,f\n1,日本,1.5\n,\"a\nb\",\n30,x,2\n".encode())
    assert ctl("show", "t") == (
        f"t  table, 3 rows × 3 columns · version {ctl.json('stat', 't')['version']}, "
        f"{test_device.ID}\n"
        "  column  type     nulls\n"
        "  n       int64        1\n"
        "  text    utf8         0\n"
        "  f       float64      1\n"
        "\n"
        "     n  text     f\n"
        "     1  日本   1.5\n"
        "  null  a\\nb  null\n"
        "    30  x      2.0\n"
    )
    assert ctl("show", "t", "-n", "1").endswith("… 2 more rows\n")
    assert ctl("show", "t", "-n", "0").count("\n") == 5
    assert "30" in ctl("show", "t", "-c", "n", "-s", "2:")
    ctl.fails(USAGE, "show", "t", "-n", "many")
    ctl.fails(FAILED, "show", "nosuch")


@pytest.mark.host_only("the name of a GPU is longer than the narrow lines of this test")
def test_show_arrays_and_bytes(ctl):
    ctl("put", "a", ctl.file("in.npy", bytes_of_npy(numpy.arange(200).reshape(2, 100))))
    text = ctl("show", "a", env={"COLUMNS": "80"})
    assert "array of int64, 2 × 100" in text and "more to the right" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    ctl("put", "z", ctl.file("in.npy", bytes_of_npy(numpy.zeros((0, 3)))))
    assert "0 × 3" in ctl("show", "z")
    ctl("put", "s", ctl.file("in.npy", bytes_of_npy(numpy.array(7))))
    assert "no axes" in ctl("show", "s")
    ctl.fails(FAILED, "show", "s", "-s", "0:1")
    ctl("put", "b", ctl.file("f", b"Hello\x00\x1b world, hello!"))
    assert "48 65 6c 6c 6f 00 1b" in ctl("show", "b")
    assert "\x1b" not in ctl("show", "b")


def test_show_fits_the_width(ctl):
    ctl("put", "movies", str(DATA / "movies.csv"))
    for width in (40, 80, 132):
        text = ctl("show", "movies", env={"COLUMNS": str(width)})
        assert all(len(line) <= width for line in text.splitlines()[1:])
        assert "more columns to the right" in text


def test_ls(ctl):
    assert ctl("ls") == ""
    assert ctl.json("ls") == {"objects": []}
    for name in ("a/one", "a/two", "b"):
        ctl("put", name, ctl.file("f", b"x" * 2048))
    ctl("pin", "b")
    assert ctl("ls", "--names") == "a/one\na/two\nb\n"
    assert ctl("ls", "a/", "-1") == "a/one\na/two\n"
    assert "2.0 KiB" in ctl("ls") and "pinned" in ctl("ls")
    long = ctl("ls", "-l").splitlines()
    assert long[0].split() == ["mode", "user", "device", "tier", "share", "size", "age", "version",
                               "leases", "name"]
    assert len(long) == 4
    objects = ctl.json("ls", "b")["objects"]
    assert len(objects) == 1 and objects[0]["pinned"] is True and objects[0]["bytes"] >= 2048
    again = json.loads(ctl("ls", "--json", "b"))["objects"]  # on either side
    for one in objects + again:
        one.pop("idle_ms")
    assert again == objects


def test_ls_more_than_a_page(ctl, shared_daemon):
    peer = shared_daemon.connect()
    for i in range(1203):
        made = peer.call("create", name=f"n{i:05}", layout={"kind": "bytes", "bytes": 1})
        peer.call("seal", lease=made["lease"], release=True)
    assert len(ctl.json("ls")["objects"]) == 1203
    assert ctl.names() == sorted(ctl.names())
    names = ctl.names()
    ctl("rm", *names)
    assert ctl.names() == []


def test_stat(ctl):
    ctl("put", "t", "-", "-f", "csv", input=b"a\n1\n")
    assert ctl.json("stat", "t")["layout"]["kind"] == "table"
    text = ctl("stat", "t")
    assert "table, length 1, 1 columns" in text and "sealed" in text
    ctl.fails(FAILED, "stat", "nosuch")


def test_rm_pin_unpin(ctl):
    for name in ("a", "b", "c"):
        ctl("put", name, ctl.file("f", b"x"))
    ctl("pin", "a", "b")
    assert ctl.json("stat", "a")["pinned"] and ctl.json("stat", "b")["pinned"]
    ctl("unpin", "a")
    assert not ctl.json("stat", "a")["pinned"]
    assert "nosuch" in ctl.fails(FAILED, "rm", "a", "nosuch", "c")
    assert ctl.names() == ["b"]
    assert ctl("rm", "-f", "b", "nosuch") == ""
    ctl.fails(FAILED, "pin", "nosuch")
    ctl.fails(FAILED, "unpin", "nosuch")


def test_alias(ctl):
    ctl("put", "t", "-", "-f", "csv", input=b'n,s,"a,b"\n1,a,x\n2,b,y\n3,c,z\n')
    ctl("alias", "part", "t", "--slice=-2:", "--columns", "a\\,b,n", "--mode", "400")
    assert ctl("get", "part") == '"a,b",n\ny,2\nz,3\n'
    assert ctl.json("stat", "part")["mode"] == "0400"
    ctl.fails(FAILED, "alias", "part", "t")
    ctl("alias", "part", "t", "--replace")
    assert ctl("get", "part") == ctl("get", "t")
    ctl.fails(FAILED, "alias", "x", "t", "--columns", "nosuch")
    ctl.fails(FAILED, "alias", "x", "nosuch")
    ctl.fails(USAGE, "alias", "x", "t", "--slice", "?")
    ctl("rm", "t")
    assert ctl("get", "part").startswith("n,s")


def test_ps(ctl, shared_daemon):
    ctl("put", "t", ctl.file("f", b"x"))
    assert ctl.json("ps")["leases"] == []
    peer = shared_daemon.connect()
    peer.call("hello", protocol=1, client="a reader")
    peer.call("open", name="t")
    leases = ctl.json("ps")["leases"]
    assert [(one["name"], one["client"], one["pid"]) for one in leases] == [
        ("t", "a reader", os.getpid())
    ]
    text = ctl("ps", "t").splitlines()
    assert text[0].split() == ["session", "pid", "user", "client", "access", "size", "age",
                               "version", "name"]
    assert "a reader" in text[1] and str(os.getpid()) in text[1] and "read" in text[1]
    assert "mapped" in ctl("ps", "--mapped")
    assert ctl.json("ps", "other")["leases"] == []
    peer.close()


def test_watch(ctl):
    ctl("put", "there", ctl.file("f", b"x"))
    process = subprocess.Popen([str(GPUBUFCTL), "watch", "--json"], env=ctl.env,
                               stdout=subprocess.PIPE)
    received = b""

    def event():
        nonlocal received
        while b"\n" not in received:
            assert select.select([process.stdout], [], [], DEADLINE)[0]
            received += os.read(process.stdout.fileno(), 65536)
        line, received = received.split(b"\n", 1)
        return json.loads(line)

    try:
        first = event()
        assert (first["kind"], first["object"]["name"]) == ("sealed", "there")
        assert event() == {"kind": "synced"}
        ctl("put", "new", ctl.file("f", b"x"))
        one = event()
        assert (one["kind"], one["object"]["name"]) == ("sealed", "new")
        ctl("rm", "new")
        assert event()["kind"] == "deleted"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(DEADLINE)
        process.stdout.close()
    assert len(ctl("watch", "-n", "2").splitlines()) == 2
    assert ctl("watch", "--new", "--for", "50ms") == ""
    assert "sealed" in ctl("watch", "the", "-n", "1")


def test_watch_ends_when_its_reader_does(ctl):
    process = subprocess.Popen([str(GPUBUFCTL), "watch"], env=ctl.env, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    assert select.select([process.stdout], [], [], DEADLINE)[0]
    process.stdout.close()
    assert process.wait(DEADLINE) == OK
    assert process.stderr.read() == b""
    process.stderr.close()


@pytest.mark.host_only("the daemon of the other tests has memory of the GPU meanwhile")
def test_watch_ends_when_the_daemon_does(daemon, tmp_path):
    ctl = Ctl(daemon.path, str(tmp_path))
    process = subprocess.Popen([str(GPUBUFCTL), "watch"], env=ctl.env, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    assert select.select([process.stdout], [], [], DEADLINE)[0]
    daemon.stop()
    out, error = process.communicate(timeout=DEADLINE)
    assert process.returncode == NO_DAEMON
    assert re.fullmatch(rb"gpubufctl: [^\n]+\n", error)


def test_stats_trim_describe_call(ctl):
    stats = ctl.json("stats")
    assert stats["devices"] and "capacity" in ctl("stats")
    assert "freed" in ctl.json("trim")
    assert ctl("trim", "--device", test_device.ID, "--bytes", "1M").endswith(" freed\n")
    ctl.fails(USAGE, "trim", "--bytes", "lots")
    ctl.fails(FAILED, "trim", "--device", "nosuch")
    described = json.loads(ctl("describe"))
    assert described == json.loads((ROOT / "proto" / "protocol.json").read_text())
    assert json.loads(ctl("call", "list")) == {"objects": []}
    assert json.loads(ctl("call", "list", '{"limit": 5}')) == {"objects": []}
    assert "nosuch" in ctl.fails(FAILED, "call", "nosuch")
    ctl.fails(FAILED, "call", "list", '{"limit": "x"}')
    ctl.fails(FAILED, "call", "open", '{"name": "x"}')
    ctl.fails(USAGE, "call", "list", '{"limit": ')
    ctl.fails(USAGE, "call", "list", "[]")


# ---- the frame ---------------------------------------------------------------------------------

COMMANDS = ("put", "get", "show", "ls", "stat", "rm", "pin", "unpin", "spill", "restore", "alias",
            "why", "ps", "top", "watch", "events", "stats", "trim", "doctor", "call", "describe",
            "completion")


def test_help(ctl):
    general = ctl("--help")
    for command in COMMANDS:
        assert re.search(rf"^  {command}\b", general, re.MULTILINE)
        own = ctl(command, "--help")
        assert own.startswith(f"usage: gpubufctl {command}")
        assert ctl(command, "-h") == own
        assert max(map(len, own.splitlines())) <= 100
    assert re.fullmatch(r"gpubufctl \d+\.\d+\.\d+\n", ctl("--version"))


def test_usage(ctl):
    for words in [(), ("nosuch",), ("--nosuch",), ("ls", "--nosuch"), ("ls", "-x"), ("ls", "a", "b"),
                  ("put",), ("put", "a"), ("get",), ("rm",), ("get", "a", "-o"),
                  ("--color", "pink", "ls"), ("ls", "--long=yes"), ("completion", "fish"),
                  ("--socket",)]:
        assert "--help" in ctl.fails(USAGE, *words)
    assert "\x1b" not in ctl.fails(USAGE, "\x1b[31mred")


def test_no_daemon(ctl, tmp_path):
    nowhere = str(tmp_path / "nobody")
    for words in [("ls",), ("stat", "a"), ("show", "a"), ("get", "a"), ("rm", "a"), ("ps",),
                  ("watch",), ("stats",), ("put", "a", "/dev/null"), ("call", "list")]:
        assert nowhere in ctl.fails(NO_DAEMON, "--socket", nowhere, *words)
        assert nowhere in ctl.fails(NO_DAEMON, *words, "--socket", nowhere)


def test_closed_pipe_and_full_disk(ctl):
    ctl("put", "movies", str(DATA / "movies.csv"))
    process = subprocess.Popen([str(GPUBUFCTL), "get", "movies"], env=ctl.env,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.read(10)
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(DEADLINE) == OK
    process.stderr.close()
    for words in [("get", "movies"), ("ls",), ("show", "movies"), ("--json", "stats"), ("--help",)]:
        with open("/dev/full", "wb") as full:
            done = subprocess.run([str(GPUBUFCTL), *words], env=ctl.env, stdout=full,
                                  stderr=subprocess.PIPE, timeout=DEADLINE)
        assert done.returncode == FAILED
        assert b"No space left" in done.stderr


def open_terminal():
    try:
        return pty.openpty()
    except OSError as error:
        pytest.skip(f"no terminal to be had here: {error}")  # a chroot without /dev/pts


def on_terminal(ctl, *words, env=None):
    """What a command writes to a terminal of 80 columns."""
    parent, child = open_terminal()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen([str(GPUBUFCTL), *words], stdin=subprocess.DEVNULL, stdout=child,
                               stderr=child, env={**ctl.env, "TERM": "xterm", **(env or {})})
    os.close(child)
    text = b""
    while True:
        assert select.select([parent], [], [], DEADLINE)[0]
        try:
            got = os.read(parent, 65536)
        except OSError:
            break
        if not got:
            break
        text += got
    os.close(parent)
    return process.wait(DEADLINE), text.decode()


def test_color(ctl):
    ctl("put", "t", "-", "-f", "csv", input=b"a,b\n1,\n")
    assert "\x1b[2mnull\x1b[0m" in ctl("--color=always", "show", "t")
    assert "\x1b" not in ctl("show", "t")
    assert "\x1b[" in on_terminal(ctl, "show", "t")[1]
    assert "\x1b" not in on_terminal(ctl, "show", "t", env={"NO_COLOR": "1"})[1]
    assert "\x1b[" in on_terminal(ctl, "show", "t", env={"NO_COLOR": ""})[1]
    assert "\x1b" not in on_terminal(ctl, "--color=never", "show", "t")[1]
    assert "\x1b" not in on_terminal(ctl, "show", "t", env={"TERM": "dumb"})[1]


@pytest.mark.host_only("the name of a GPU is longer than the narrow lines of this test")
def test_terminal_width_and_binary(ctl):
    ctl("put", "movies", str(DATA / "movies.csv"))
    status, text = on_terminal(ctl, "--color=never", "show", "movies")
    assert status == OK
    assert all(len(line) <= 80 for line in text.splitlines())
    ctl("put", "b", ctl.file("f", b"\x1b[31m"))
    status, text = on_terminal(ctl, "get", "b")
    assert status == USAGE and "terminal" in text


def test_progress_only_on_a_terminal_and_late(ctl):
    """A slow pipe: the bar appears on a terminal after a second, and is wiped at the end."""
    parent, child = open_terminal()
    process = subprocess.Popen([str(GPUBUFCTL), "put", "slow", "-", "--dtype", "int8", "--shape",
                                "40000000"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                               stderr=child, env={**ctl.env, "TERM": "xterm"})
    os.close(child)
    text = b""
    sent = 0
    while sent < 39000000 and not select.select([parent], [], [], 0.05)[0]:
        process.stdin.write(b"x" * 1000000)  # slowly, until the bar shows
        process.stdin.flush()
        sent += 1000000
    process.stdin.write(b"x" * (40000000 - sent))
    process.stdin.close()
    while True:
        try:
            got = os.read(parent, 65536)
        except OSError:
            break
        text += got
    os.close(parent)
    assert process.wait(DEADLINE) == OK
    text = text.decode()
    assert "slow" in text and "MiB" in text
    assert text.endswith("\r\x1b[K")


def test_completion(ctl):
    ctl("put", "some thing", ctl.file("f", b"x"))
    ctl("put", "some:one", ctl.file("f", b"x"))
    script = ctl.file("completion", ctl("completion", "bash"))

    def complete(*words):
        lines = "\n".join([
            f"PATH={BUILD / 'bin'}:$PATH",
            f"source {script}",
            'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()',
            '_gpubufctl; printf "%s\\n" "${COMPREPLY[@]}"',
        ])
        done = subprocess.run(["bash", "--norc", "-c", lines, "-", "gpubufctl", *words],
                              env=ctl.env, cwd=ctl.directory, capture_output=True, text=True,
                              timeout=DEADLINE)
        # compopt outside of a real completion is the only thing that may complain; it is silenced.
        assert done.stderr == "", done.stderr
        return done.stdout.split("\n")[:-1]

    assert complete("") == list(COMMANDS)
    assert complete("st") == ["stat", "stats"]
    assert "--socket" in complete("--") and "--json" in complete("ls", "--")
    assert complete("put", "--ev") == ["--evict"]
    assert complete("put", "--evict", "") == ["spill", "drop", "keep"]
    assert complete("show", "so") == ["some\\ thing", "some:one"]
    assert complete("show", "some\\ ") == ["some\\ thing"]
    assert complete("show", "some:") == ["one"]
    assert complete("put", "x", "comp") == ["completion"]
    assert complete("completion", "") == ["bash"]
    assert complete("put", "-e", "drop", "some:") == ["one"]


# ---- types that no file brings -----------------------------------------------------------------


def words(form, *values):
    return struct.pack(f"<{len(values)}{form}", *values)


def publish(peer, name, columns, length, data):
    layout = {"kind": "table", "length": length,
              "columns": [{"name": key, "length": length, **value}
                          for key, value in columns.items()]}
    made = peer.create(name, layout, data)
    peer.call("seal", lease=made["lease"], release=True)


def test_every_column_type(ctl, shared_peer):
    d128 = b"".join(value.to_bytes(16, "little", signed=True) for value in (12345, -5, 0))
    plain = {
        "bool8": (b"\x01\x00\x02", ["true", "false", "true"]),
        "float16": (words("e", 1, 0.1, float("inf")), ["1.0", "0.1", "inf"]),
        "uint64": (words("Q", 2**64 - 1, 0, 7), [str(2**64 - 1), "0", "7"]),
        "int8": (words("b", -128, 127, 0), ["-128", "127", "0"]),
        "date32": (words("i", 0, 15340, -1), ["1970-01-01", "2012-01-01", "1969-12-31"]),
        "date64": (words("q", 0, 86400000, 1), ["1970-01-01", "1970-01-02",
                                                "1970-01-01T00:00:00.001"]),
        "time32[s]": (words("i", 0, 86399, 60), ["00:00:00", "23:59:59", "00:01:00"]),
        "time64[ns]": (words("q", 0, 1, 10**9), ["00:00:00", "00:00:00.000000001", "00:00:01"]),
        "timestamp[us]": (words("q", 0, 1, -1), [
            "1970-01-01T00:00:00", "1970-01-01T00:00:00.000001", "1969-12-31T23:59:59.999999"]),
        "timestamp[ms,UTC]": (words("q", 0, 1500, 0), [
            "1970-01-01T00:00:00Z", "1970-01-01T00:00:01.500Z", "1970-01-01T00:00:00Z"]),
        "duration[ms]": (words("q", 0, 1500, -1), ["PT0S", "PT1.500S", "-PT0.001S"]),
        "decimal128(10,2)": (d128, ["123.45", "-0.05", "0.00"]),
        "fixed_binary(2)": (b"\x00\x01ab\xff\xff", ["0001", "6162", "ffff"]),
        "complex64": (words("f", 1, 2, 0, -1, 0.5, 0), ["1.0+2.0j", "0.0-1.0j", "0.5+0.0j"]),
    }
    columns = {dtype: {"dtype": dtype} for dtype in plain}
    data = {f"columns[{i}].data": content for i, (content, _) in enumerate(plain.values())}
    columns["none"] = {"dtype": "null", "null_count": 3}
    publish(shared_peer, "t", columns, 3, data)
    rows = read_csv(ctl("get", "t"))
    assert rows[0] == list(columns)
    for i, (dtype, (_, expected)) in enumerate(plain.items()):
        assert [row[i] for row in rows[1:]] == expected, dtype
    assert [row[-1] for row in rows[1:]] == ["", "", ""]
    for dtype in ("int8", "uint64", "float16", "timestamp[us]"):
        ctl("get", "t", "-c", dtype, "-o", "out.npy", "-s", "1:")
        back = numpy.load(os.path.join(ctl.directory, "out.npy"))
        assert back.tobytes() == plain[dtype][0][back.dtype.itemsize:]
    for dtype in ("date32", "time32[s]", "decimal128(10,2)", "none"):
        ctl.fails(FAILED, "get", "t", "-c", dtype, "-o", "x.npy")
    assert "decimal128(10,2)" in ctl("show", "t")


def nested(peer):
    """Lists, structs, fixed lists and a dictionary, three rows each."""
    columns = {
        "l": {"dtype": "list", "mask": {}, "null_count": 1,
              "children": [{"dtype": "int32", "length": 4}]},
        "s": {"dtype": "struct", "children": [
            {"name": "a", "dtype": "int8", "length": 3},
            {"name": "b", "dtype": "utf8", "length": 3, "data": {"bytes": 4}}]},
        "f": {"dtype": "fixed_list(2)", "children": [{"dtype": "int8", "length": 6}]},
        "d": {"dtype": "dictionary", "children": [
            {"dtype": "uint8", "length": 3, "mask": {}, "null_count": 1},
            {"dtype": "utf8", "length": 2, "data": {"bytes": 6}}]},
    }
    data = {
        "columns[0].offsets": words("i", 0, 2, 2, 4), "columns[0].mask": b"\x05",
        "columns[0].children[0].data": words("i", 1, 2, 3, 4),
        "columns[1].children[0].data": words("b", 1, 2, 3),
        "columns[1].children[1].offsets": words("i", 0, 1, 2, 4),
        "columns[1].children[1].data": b'x"yz',
        "columns[2].children[0].data": words("b", 1, 2, 3, 4, 5, 6),
        "columns[3].children[0].data": words("B", 1, 0, 0),
        "columns[3].children[0].mask": b"\x05",
        "columns[3].children[1].offsets": words("i", 0, 3, 6),
        "columns[3].children[1].data": b"redtea",
    }
    publish(peer, "n", columns, 3, data)


def test_nested_columns(ctl, shared_peer):
    nested(shared_peer)
    rows = [
        ["l", "s", "f", "d"],
        ["[1, 2]", '{"a": 1, "b": "x"}', "[1, 2]", "tea"],
        ["", '{"a": 2, "b": "\\""}', "[3, 4]", ""],
        ["[3, 4]", '{"a": 3, "b": "yz"}', "[5, 6]", "red"],
    ]
    assert read_csv(ctl("get", "n")) == rows
    for part in (slice(1, 3), slice(2, 3), slice(0, 1)):
        text = ctl("get", "n", "-s", f"{part.start}:{part.stop}")
        assert read_csv(text) == [rows[0]] + rows[1:][part]
    shown = ctl("show", "n")
    assert "fixed_list(2)" in shown and "[1, 2]" in shown and "null" in shown
    ctl.fails(FAILED, "get", "n", "-c", "l", "-o", "x.npy")
    ctl.fails(FAILED, "get", "n", "-c", "l", "-o", "x.raw")


@pytest.mark.parametrize("offsets", [(0, 1, 99), (0, -1, 2), (3, 1, 2), (0, 2, 2**31 - 1)])
def test_offsets_that_make_no_sense(ctl, shared_peer, offsets):
    """Memory is the publisher's: whatever stands there must not lead outside of the buffers."""
    text = {"dtype": "utf8", "data": {"bytes": 3}}
    publish(shared_peer, "bad", {"t": text}, 2,
            {"columns[0].offsets": words("i", *offsets), "columns[0].data": b"abc"})
    for command in (["get", "bad"], ["show", "bad"], ["get", "bad", "-c", "t", "-o", "x.raw"]):
        done = ctl.raw(*command)
        assert done.returncode == FAILED
        assert b'column "t", element' in done.stderr
    lists = {"dtype": "list", "children": [{"dtype": "int8", "length": 3}]}
    publish(shared_peer, "list", {"t": lists}, 2,
            {"columns[0].offsets": words("i", *offsets), "columns[0].children[0].data": b"abc"})
    assert ctl.raw("get", "list").returncode == FAILED
    codes = {"dtype": "dictionary", "children": [{"dtype": "int8", "length": 2},
                                                {"dtype": "int8", "length": 1}]}
    publish(shared_peer, "codes", {"t": codes}, 2,
            {"columns[0].children[0].data": words("b", -1, 1),
             "columns[0].children[1].data": b"x"})
    assert ctl.raw("get", "codes").returncode == FAILED


@pytest.mark.host_only("registers a memfd")
def test_arrays_with_nulls_and_strides(ctl, shared_peer):
    made = shared_peer.create("a", {"kind": "array", "dtype": "float32", "shape": [2, 3],
                                    "mask": {}},
                              {"data": words("f", 1, 2, 3, 4, 5, 6), "mask": b"\x2e"})
    shared_peer.call("seal", lease=made["lease"], release=True)
    assert ctl("get", "a", "-f", "csv") == "0,1,2\n,2.0,3.0\n4.0,,6.0\n"
    assert ctl("get", "a", "-f", "csv", "-s", "1:") == "0,1,2\n4.0,,6.0\n"
    ctl("get", "a", "-o", "out.npy")
    back = numpy.load(os.path.join(ctl.directory, "out.npy"))
    assert numpy.array_equal(back, [[numpy.nan, 2, 3], [4, numpy.nan, 6]], equal_nan=True)
    memory = os.memfd_create("m", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(memory, 4096)
    os.pwrite(memory, words("h", *range(12)), 0)
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    shared_peer.call(
        "register", fds=[memory], name="f",
        handles=[{"kind": "memfd", "fd": 0, "bytes": 4096, "device": "host"}],
        layout={"kind": "array", "dtype": "int16", "shape": [3, 4], "strides": [2, 6],
                "data": {"handle": 0, "offset": 0, "bytes": 24}})
    os.close(memory)
    expected = numpy.arange(12, dtype="i2").reshape(4, 3).T
    ctl("get", "f", "-o", "out.npy")
    assert (numpy.load(os.path.join(ctl.directory, "out.npy")) == expected).all()
    ctl("get", "f", "-o", "out.npy", "-s", "1:3")
    assert (numpy.load(os.path.join(ctl.directory, "out.npy")) == expected[1:3]).all()
    assert ctl("get", "f", "-f", "csv").splitlines()[1] == "0,3,6,9"


def test_text_without_end(ctl, shared_peer):
    """Dictionaries of lists of dictionaries, in which each element says the next level 30 times:
    30^5 numbers from a few bytes. `show` prints a start of them."""
    layout = {"dtype": "int8", "length": 30}
    data = {}
    path = "columns[0]"
    for _ in range(5):
        data[path + ".children[0].data"] = bytes(30)
        data[path + ".children[1].offsets"] = words("i", 0, 30)
        path += ".children[1].children[0]"
        layout = {"dtype": "dictionary", "length": 30, "children": [
            {"dtype": "uint8", "length": 30},
            {"dtype": "list", "length": 1, "children": [layout]}]}
    data[path + ".data"] = bytes(30)
    publish(shared_peer, "deep", {"t": layout}, 30, data)
    assert "[[[[[0, 0, 0" in ctl("show", "deep")
