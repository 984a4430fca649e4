"""Output of gpubufctl for types that no file brings, and of layouts whose buffers make no sense."""

import fcntl
import os
import struct

import numpy
import pytest

import small_floats
from ctl import FAILED, read_csv


def words(form, *values):
    return struct.pack(f"<{len(values)}{form}", *values)


def register(peer, memory, name, layout):
    """Registers a memfd of 4096 bytes; `data` says where the layout's bytes lie in it."""
    peer.call("register", fds=[memory], name=name, layout=layout,
              handles=[{"kind": "memfd", "fd": 0, "bytes": 4096, "device": "host"}])


def register_by_columns(peer):
    """An array "f" of 3 x 4 numbers that lie by columns. Its descriptor, to be closed."""
    memory = os.memfd_create("m", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.fchmod(memory, 0o600)
    os.ftruncate(memory, 4096)
    os.pwrite(memory, words("h", *range(12)), 0)
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    register(peer, memory, "f", {"kind": "array", "dtype": "int16", "shape": [3, 4], "strides": [2, 6],
                                 "data": {"handle": 0, "offset": 0, "bytes": 24}})
    return memory


def publish(peer, name, columns, length, data):
    columns = [{"name": key, "length": length, **value} for key, value in columns.items()]
    peer.create_object(name, {"kind": "table", "length": length, "columns": columns}, data)


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
        "month_interval": (words("i", 0, 14, -1), ["P0D", "P14M", "P-1M"]),
        "day_time_interval": (words("i", 0, 0, 2, 1500, -1, -1), ["P0D", "P2DT1.500S", "P-1DT-0.001S"]),
        "month_day_nano_interval": (struct.pack("<iiqiiqiiq", 1, -2, 3, 0, 0, -10**9, 5, 0, -2**63), [
            "P1M-2DT0.000000003S", "PT-1S", "P5MT-9223372036.854775808S"]),
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
        back = ctl.array("t", "-c", dtype, "-s", "1:")
        assert back.tobytes() == plain[dtype][0][back.dtype.itemsize:]
    assert "decimal128(10,2)" in ctl("show", "t")


@pytest.mark.parametrize("dtype", small_floats.DTYPES)
def test_every_small_float(ctl, dtype):
    expected = small_floats.values(dtype)
    ctl("put", "a", "-", "--dtype", dtype, input=small_floats.every_code(dtype))
    shown = ctl.json("show", "a")
    assert shown["dtype"] == dtype and shown["shape"] == [len(expected)]
    lines = ctl("get", "a", "-f", "csv").split()[1:]
    assert small_floats.same([float(numpy.float32(line)) for line in lines], expected)
    assert ctl.raw("get", "a", "-f", "raw").stdout == small_floats.every_code(dtype)


def test_slices_of_packed_floats(ctl):
    ctl("put", "a", "-", "--dtype", "float4_e2m1fn", input=bytes.fromhex("10325476"))
    assert ctl("get", "a", "-s", "2:6", "-f", "csv").split()[1:] == ["1.0", "1.5", "2.0", "3.0"]
    for command in ("get", "show"):
        for part in ("1:4", "0:3"):
            sentence = ctl.fails(FAILED, command, "a", "-s", part)
            assert "float4_e2m1fn are packed" in sentence and "whole bytes" in sentence


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
    ctl.fails(FAILED, "get", "n", "-c", "l", "x.raw")


@pytest.mark.parametrize("offsets", [(0, 1, 99), (0, -1, 2), (3, 1, 2), (0, 2, 2**31 - 1)])
def test_offsets_that_make_no_sense(ctl, shared_peer, offsets):
    """Memory is the publisher's: whatever stands there must not lead outside of the buffers."""
    text = {"dtype": "utf8", "data": {"bytes": 3}}
    publish(shared_peer, "bad", {"t": text}, 2,
            {"columns[0].offsets": words("i", *offsets), "columns[0].data": b"abc"})
    for command in (["get", "bad"], ["show", "bad"], ["get", "bad", "-c", "t", "x.raw"]):
        done = ctl.raw(*command)
        assert done.returncode == FAILED
        assert b'column "t", element' in done.stderr.replace(b"\\", b"")
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


def test_arrays_with_nulls_and_strides(ctl, shared_peer):
    shared_peer.create_object("a", {"kind": "array", "dtype": "float32", "shape": [2, 3], "mask": {}},
                              {"data": words("f", 1, 2, 3, 4, 5, 6), "mask": b"\x2e"})
    assert ctl("get", "a", "-f", "csv") == "0,1,2\n,2.0,3.0\n4.0,,6.0\n"
    assert ctl("get", "a", "-f", "csv", "-s", "1:") == "0,1,2\n4.0,,6.0\n"
    memory = register_by_columns(shared_peer)
    packed = bytes.fromhex("1032 5476 9a8b dcfe")
    os.pwrite(memory, packed, 100)
    register(shared_peer, memory, "p", {"kind": "array", "dtype": "float4_e2m1fn", "shape": [2, 1, 4], "strides": [5, 2, 1],
                                        "data": {"handle": 0, "offset": 100, "bytes": 7}})
    os.close(memory)
    assert ctl.raw("get", "p", "-f", "raw").stdout == packed[:2] + packed[5:7]
    expected = numpy.arange(12, dtype="i2").reshape(4, 3).T
    assert (ctl.array("f") == expected).all()
    assert (ctl.array("f", "-s", "1:3") == expected[1:3]).all()
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
