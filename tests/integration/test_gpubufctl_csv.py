"""Nasty CSV files, through gpubufctl put and get: each comes back as it was meant, or is refused with the place."""

import pytest
from ctl import FAILED

# The file's content, the types of its columns, and what get writes of it.
READ = {
    "header only": (b'a,b\n', "utf8,utf8", b'a,b\n'),
    "no newline": (b'a,b\n1,2', "int64,int64", b'a,b\n1,2\n'),
    "crlf": (b'a,b\r\n1,2\r\n', "int64,int64", b'a,b\n1,2\n'),
    "cr only": (b'a,b\r1,2\r', "int64,int64", b'a,b\n1,2\n'),
    "bom": (b'\xef\xbb\xbfa,b\n1,2\n', "int64,int64", b'a,b\n1,2\n'),
    "quoted newline": (b'a,b\n"x\ny",2\n', "utf8,int64", b'a,b\n"x\ny",2\n'),
    "quoted crlf": (b'a,b\n"x\r\ny",2\n', "utf8,int64", b'a,b\n"x\r\ny",2\n'),
    "quoted cr": (b'a,b\n"x\ry",2\n', "utf8,int64", b'a,b\n"x\ry",2\n'),
    "quoted comma": (b'a,b\n"x,y",2\n', "utf8,int64", b'a,b\n"x,y",2\n'),
    "doubled quotes": (b'a\n"he said ""hi"""\n', "utf8", b'a\n"he said ""hi"""\n'),
    "blank lines": (b'a,b\n\n1,2\n\n', "int64,int64", b'a,b\n1,2\n'),
    "blank one col": (b'a\n1\n\n2\n', "int64", b'a\n1\n\n2\n'),
    "trailing comma": (b'a,b,\n1,2,\n', "int64,int64,utf8", b'a,b,column_3\n1,2,\n'),
    "empty names": (b',,\n1,2,3\n', "int64,int64,int64", b'column_1,column_2,column_3\n1,2,3\n'),
    "spaces": (b'a, b\n1, 2\n', "int64,utf8", b'a," b"\n1," 2"\n'),
    "leading zeros": (b'z\n007\n010\n', "utf8", b'z\n007\n010\n'),
    "plus": (b'z\n+1\n+2\n', "utf8", b'z\n+1\n+2\n'),
    "minus zero": (b'z\n-0\n0\n', "float64", b'z\n-0.0\n0.0\n'),
    "hex": (b'z\n0x10\n', "utf8", b'z\n0x10\n'),
    "underscore": (b'z\n1_000\n', "utf8", b'z\n1_000\n'),
    "thousands": (b'z\n"1,000"\n', "utf8", b'z\n"1,000"\n'),
    "inf nan": (b'z\ninf\nnan\n-inf\n', "float64", b'z\ninf\nnan\n-inf\n'),
    "NA": (b'z\nNA\n1\n', "utf8", b'z\nNA\n1\n'),
    "NULL": (b'z\nNULL\n1\n', "utf8", b'z\nNULL\n1\n'),
    "exp": (b'z\n1e5\n2\n', "float64", b'z\n100000.0\n2.0\n'),
    "exp huge": (b'z\n1e400\n1\n', "utf8", b'z\n1e400\n1\n'),
    "many digits": (b'z\n0.1234567890123456789012345\n1\n', "float64", b'z\n0.12345678901234568\n1.0\n'),
    "int64 max": (b'z\n9223372036854775807\n-9223372036854775808\n', "int64", b'z\n9223372036854775807\n-9223372036854775808\n'),
    "above": (b'z\n9223372036854775808\n1\n', "uint64", b'z\n9223372036854775808\n1\n'),
    "uint+neg": (b'z\n18446744073709551615\n-1\n', "utf8", b'z\n18446744073709551615\n-1\n'),
    "int+float": (b'z\n9007199254740993\n0.5\n', "utf8", b'z\n9007199254740993\n0.5\n'),
    "true false": (b'z\ntrue\nfalse\n', "bool", b'z\ntrue\nfalse\n'),
    "True False": (b'z\nTrue\nFalse\n', "bool", b'z\ntrue\nfalse\n'),
    "TRUE": (b'z\nTRUE\nFALSE\n', "bool", b'z\ntrue\nfalse\n'),
    "T F": (b'z\nT\nF\n', "utf8", b'z\nT\nF\n'),
    "0 1": (b'z\n0\n1\n', "int64", b'z\n0\n1\n'),
    "dates": (b'z\n2020-01-01\n', "utf8", b'z\n2020-01-01\n'),
    "all empty": (b'a,b\n,\n,\n', "utf8,utf8", b'a,b\n,\n,\n'),
    "emoji": (b'z\n\xf0\x9f\x98\x80\n', "utf8", b'z\n\xf0\x9f\x98\x80\n'),
    "control": (b'z\na\x1b[31mb\n', "utf8", b'z\na\x1b[31mb\n'),
    "bidi": (b'z\n\xe2\x80\xaeabc\n', "utf8", b'z\n\xe2\x80\xaeabc\n'),
    "comment": (b'# c\na\n1\n', "utf8", b'# c\na\n1\n'),
    "quoted header": (b'"a b","c""d"\n1,2\n', "int64,int64", b'a b,"c""d"\n1,2\n'),
    "quoted number": (b'a\n"1"\n"2"\n', "int64", b'a\n1\n2\n'),
    "null vs empty": (b'a,b\n"",1\n,2\n', "utf8,int64", b'a,b\n"",1\n,2\n'),
    "one row many types": (b'a\n1\n2.5\nx\n', "utf8", b'a\n1\n2.5\nx\n'),
}
# The file's content, and how the sentence goes on behind its name.
REFUSED = {
    "empty": (b'', "the CSV is empty; expected a row with the columns' names"),
    "quote in middle": (b'a,b\nx"y,2\n',
                        'line 2, field 1: a quote where none may be; a field with quotes is written "like ""this"""'),
    "unclosed quote": (b'a,b\n"x,2\n', 'line 2, field 1: a quoted field that does not end before the file does'),
    "text after quote": (b'a,b\n"x"y,2\n',
                         'line 2, field 1: a quote where none may be; a field with quotes is written "like ""this"""'),
    "ragged short": (b'a,b\n1\n', 'line 2: 1 field, but the header has 2'),
    "ragged long": (b'a,b\n1,2,3\n', 'line 2: 3 fields, but the header has 2'),
    "behind a quoted newline": (b'a,b\n"x\ny",2\n1,2,3\n', 'line 4: 3 fields, but the header has 2'),
    "a program": (b"\x7fELF\x02\x01\x01\0\0\0", 'line 1, field 1: a NUL byte, which no text has'),
    "dup names": (b'a,a\n1,2\n', 'line 1: two columns are called "a"; rename one of them'),
    "nul": (b'z\na\x00b\n', 'line 2, field 1: a NUL byte, which no text has'),
    "latin1": (b'z\n\xe9\n',
               'line 2, field 1: not UTF-8 text; iconv -f latin1 -t utf-8 makes UTF-8 of what older programs wrote'),
    "utf16": (b'\xff\xfez\x00\n\x001\x00\n\x00', 'looks like UTF-16; iconv -f utf-16 -t utf-8 makes UTF-8 of it'),
    "long name": (b"x" * 300 + b"\n1\n", 'the name of column 1: expected a string of at most 255 bytes, found 300'),
    "5000 columns": (b",".join(b"c%d" % i for i in range(5000)) + b"\n", "line 1: more than 4096 columns"),
}


@pytest.mark.parametrize("name", READ)
def test_files_that_are_read(ctl, shared_peer, name):
    content, types, back = READ[name]
    file = ctl.file("nasty.csv", content)
    ctl("put", "nasty", file)
    columns = shared_peer.call("stat", name="nasty")["object"]["layout"]["columns"]
    assert ",".join(column["dtype"] for column in columns) == types
    assert ctl.raw("get", "nasty").stdout == back
    if back != content:
        ctl("put", "again", "-", "--format", "csv", input=back)
        assert ctl.raw("get", "again").stdout == back


@pytest.mark.parametrize("name", REFUSED)
def test_files_that_are_refused(ctl, name):
    content, sentence = REFUSED[name]
    assert ctl.fails(FAILED, "put", "nasty", ctl.file("nasty.csv", content)).endswith(sentence + "\n")
    assert "nasty" not in ctl.names()


def test_a_long_field_and_many_columns(ctl):
    for content in (b"a\n" + b"x" * 200_000 + b"\n", b",".join(b"c%d" % i for i in range(4096)) + b"\n"):
        ctl("put", "wide", ctl.file("wide.csv", content), "--replace")
        assert ctl.raw("get", "wide").stdout == content


@pytest.mark.parametrize("delimiter", [";", "|", "\t"])
def test_one_column_that_may_be_several(ctl, delimiter):
    """It is read as it stands, and the way to the other reading is told."""
    file = ctl.file("odd.csv", f"a{delimiter}b\n1{delimiter}2\n".encode())
    done = ctl.raw("put", "odd", file)
    said = "tab" if delimiter == "\t" else f"'{delimiter}'"
    assert done.returncode == 0 and f"has one column; --delimiter {said} makes several of it\n" in done.stderr.decode()
    ctl("put", "odd", file, "--replace", "--delimiter", delimiter)
    assert ctl("get", "odd") == "a,b\n1,2\n"
    ctl("put", "odd", file, "--replace", "--delimiter", ",")  # who says it is not told
