"""JSON lines that gpubufctl reads and writes, and text in other encodings: checked by Python's own json and codecs."""

import json
import random

import pytest

from conftest import ROOT
from ctl import FAILED, USAGE, read_csv

ROWS = [
    {"name": "a", "n": 1, "x": 0.5, "yes": True, "big": 2**64 - 1, "zip": "00501"},
    {"name": None, "n": -(2**63), "x": 2, "yes": False, "zip": "90210"},
    {"n": 7, "name": "ä\n\"€😀\u0001", "x": None, "big": 0, "late": "é"},
    {},
]


def lines(rows, end="\n"):
    return "".join(json.dumps(row) + end for row in rows)


def put(ctl, name, text, *words):
    return ctl("put", "-r", name, ctl.file("in.jsonl", text), *words)


def columns(ctl, name):
    return {column["name"]: column["dtype"] for column in ctl.json("show", name)["columns"]}


def test_lines_and_back(ctl):
    assert put(ctl, "t", lines(ROWS)).startswith("t: table, 4 rows × 7 columns")
    assert columns(ctl, "t") == {"name": "utf8", "n": "int64", "x": "float64", "yes": "bool", "big": "uint64",
                                 "zip": "utf8", "late": "utf8"}
    names = list(columns(ctl, "t"))
    expected = [{name: row.get(name) for name in names} for row in ROWS]
    assert ctl.json("get", "t") == expected
    for words in (["-o", "out.jsonl"], ["-o", "out.ndjson"], ["-o", "out", "-f", "jsonl"]):
        ctl("get", "t", *words)
        assert [json.loads(line) for line in ctl.read(words[1]).splitlines()] == expected
    ctl("put", "again", "out.jsonl")
    assert ctl.json("get", "again") == expected and columns(ctl, "again") == columns(ctl, "t")
    assert ctl("get", "t", "-f", "jsonl", "-s", "3:").count("\n") == 1
    assert ctl("get", "t", "-f", "jsonl", "-s", "4:") == ""


def test_the_form_of_the_file(ctl):
    plain = lines(ROWS)
    put(ctl, "plain", plain)
    expected = ctl("get", "plain", "-f", "jsonl")
    for text in (lines(ROWS, "\r\n"), "\ufeff" + plain, "\n\n  \n" + lines(ROWS, "\n\n"), plain[:-1]):
        put(ctl, "t", text)
        assert ctl("get", "t", "-f", "jsonl") == expected
    ctl("put", "-r", "t", "-", "-f", "jsonl", input=plain.encode())
    assert ctl("get", "t", "-f", "jsonl") == expected


def test_many_lines_and_a_long_one(ctl):
    """Lines that go over the pieces in which a file is read."""
    chance = random.Random(3)
    rows = [{"i": i, "text": "x" * chance.randint(0, 60), f"c{i % 5}": i / 8} for i in range(30000)]
    rows[777]["text"] = "long ä " * 400000
    put(ctl, "t", lines(rows))
    names = list(columns(ctl, "t"))
    assert names == ["i", "text", "c0", "c1", "c2", "c3", "c4"]
    assert ctl.json("get", "t") == [{name: row.get(name) for name in names} for row in rows]


def test_numbers_are_not_rounded(ctl):
    put(ctl, "t", '{"a":99999999999999999999,"b":9007199254740993,"c":1e3,"d":-0,"e":1.0}\n'
                  '{"a":1,"b":0.5,"c":1,"d":0,"e":2}\n')
    assert columns(ctl, "t") == {"a": "utf8", "b": "utf8", "c": "float64", "d": "float64", "e": "float64"}
    assert ctl("get", "t").splitlines()[1:] == ["99999999999999999999,9007199254740993,1000.0,-0.0,1.0",
                                               "1,0.5,1.0,0.0,2.0"]


def test_types_that_are_said(ctl):
    text = '{"day":"2012-01-31","zip":501,"n":"12"}\n{"day":null,"zip":"x","n":"-3"}\n'
    put(ctl, "t", text, "--types", "day=date32,zip=utf8,n=int64")
    assert columns(ctl, "t") == {"day": "date32", "zip": "utf8", "n": "int64"}
    assert ctl.json("get", "t") == [{"day": "2012-01-31", "zip": "501", "n": 12},
                                    {"day": None, "zip": "x", "n": -3}]
    path = ctl.file("in.jsonl", text)
    assert '--types: there is no column "other"' in ctl.fails(FAILED, "put", "u", path, "--types", "other=utf8")
    assert "--delimiter" in ctl.fails(USAGE, "put", "u", path, "--delimiter", ";")
    assert "JSON lines" in ctl.fails(USAGE, "put", "u", path, "--dtype", "int8")
    assert "table" in ctl.fails(USAGE, "put", "u", path, "--kind", "array")


@pytest.mark.parametrize("text, sentence", [
    ("", "no columns"),
    ("\n \n", "no columns"),
    ("{}\n{}\n", "no columns"),
    ('{"a":1}\n{"a":', "line 2, byte "),
    ('{"a":1}\n[1]\n', "line 2: an array; expected an object"),
    ("[{\"a\":1}]", "line 1: an array; expected an object"),
    ('{"a":1}{"a":2}\n', "line 1, byte "),
    ('{"a":1,"b":2,"a":3}\n', "line 1: a: occurs twice"),
    ('{"a":1}\n\n{"a":[1,2]}\n', "line 3: a: an array, and"),
    ('{"a":{"b":1}}\n', "line 1: a: an object, and"),
    ('{"a":1}\n{"a":"x"}\n{"a":true}\n', "line 2, \"a\": a string, where lines before have a number; --types 'a=utf8'"),
    ('{"a":NaN}\n', "line 1, byte "),
    ('{"a":01}\n', "line 1, byte "),
    ('{"a":"\\u0000"}\n', "line 1: a: "),
    ('{"a":"\\ud800"}\n', "line 1, byte "),
    ("{'a':1}\n", "line 1, byte "),
    ('{"a":"x\0y"}\n', "line 1, byte "),
    ('{"a":' + "[" * 100000 + "\n", "line 1, byte "),
    ('{"a":"' + "x" * (65 << 20), "line 1: over 64 MiB long"),
    (b'{"a":"\xff"}\n', "line 1, byte "),
    (b"\xff\xfe{\0}\0", "looks like UTF-16"),
])
def test_lines_that_are_refused(ctl, text, sentence):
    told = ctl.fails(FAILED, "put", "x", ctl.file("in.jsonl", text))
    assert sentence in told and "in.jsonl" in told, told
    assert ctl.names() == []


def test_too_many_columns(ctl):
    limit = next(limit["value"] for limit in json.loads((ROOT / "proto/protocol.json").read_text())["limits"]
                 if limit["name"] == "columns")
    told = ctl.fails(FAILED, "put", "x", ctl.file("in.jsonl", lines([{f"c{i}": i for i in range(limit + 1)}])))
    assert f"line 1: more than {limit} columns" in told


def test_what_is_no_table(ctl):
    ctl("put", "a", ctl.file("raw", b"1234"), "-d", "int8")
    assert "write .json" in ctl.fails(FAILED, "get", "a", "-o", "x.jsonl")
    assert "jq -c" in ctl.fails(USAGE, "put", "x", ctl.file("x.json", "[]"))


# ---- encodings ----


TABLE = "name,stadt\r\nJürgen,Köln\r\n\"a\nb\",Zürich\r\n"


@pytest.mark.parametrize("encoding, codec", [
    ("latin1", "latin-1"), ("windows-1252", "cp1252"), ("utf-16", "utf-16"), ("utf-16le", "utf-16-le"),
    ("utf-16be", "utf-16-be"), ("utf-32", "utf-32"), ("utf-8", "utf-8"), ("utf-8", "utf-8-sig"), ("gb18030", "gb18030"),
    ("ibm850", "cp850"),
])
def test_encodings(ctl, encoding, codec):
    ctl("put", "t", ctl.file("in.csv", TABLE.encode(codec)), "--encoding", encoding)
    assert read_csv(ctl("get", "t")) == [["name", "stadt"], ["Jürgen", "Köln"], ["a\nb", "Zürich"]]
    ctl("put", "-r", "t", ctl.file("in.jsonl", '{"a":"Köln"}\n{"a":"x"}'.encode(codec)), "--encoding", encoding)
    assert ctl.json("get", "t") == [{"a": "Köln"}, {"a": "x"}]


def test_characters_over_the_pieces_of_a_file(ctl):
    chance = random.Random(9)
    words = ["".join(chance.choice("aä€日本😀") for _ in range(chance.randint(1, 40))) for _ in range(60000)]
    text = "word\n" + "\n".join(words) + "\n"
    for codec, name in (("utf-16", "utf-16"), ("gb18030", "gb18030")):
        ctl("put", "-r", "t", "-", "-f", "csv", "--encoding", name, input=text.encode(codec))
        assert ctl("get", "t") == text


def test_bytes_that_are_none_of_the_encoding(ctl):
    bad = b"a,b\n1,x\n2,\x81\n"
    told = ctl.fails(FAILED, "put", "t", ctl.file("in.csv", bad), "--encoding", "windows-1252")
    assert "in.csv: line 3, byte 10: not windows-1252 text" in told
    cut = "a\nä\n".encode("utf-16-le")[:-3]
    told = ctl.fails(FAILED, "put", "t", ctl.file("in.csv", cut), "--encoding", "utf-16le")
    assert f"line 2, byte {len(cut) - 1}: a character of utf-16le that does not end" in told
    assert "iconv -l" in ctl.fails(FAILED, "put", "t", "in.csv", "--encoding", "klingon")
    assert "NUL" in ctl.fails(FAILED, "put", "t", ctl.file("in.csv", b"a\nx\0y\n"), "--encoding", "latin1")
    assert "--encoding utf-16" in ctl.fails(FAILED, "put", "t", ctl.file("in.csv", "a\n1\n".encode("utf-16")))
    assert "--encoding latin1" in ctl.fails(FAILED, "put", "t", ctl.file("in.csv", "a\nä\n".encode("latin-1")))
    assert "--encoding" in ctl.fails(USAGE, "put", "t", ctl.file("x.npy", b""), "--encoding", "latin1")
    assert ctl.names() == []
