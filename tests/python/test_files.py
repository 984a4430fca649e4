"""Files in and out, by the libraries whose formats they are."""

import datetime
import decimal
import json
import os

import pytest

import gpubufd

D = decimal.Decimal
TABLE = {
    "i": [1, None, -(2**62)], "x": [1.5, None, 0.1], "s": ["a", None, 'quo"te\n'], "b": [True, None, False],
    "l": [[1, None], [], None], "r": [{"a": 1, "b": "x"}, {"a": None, "b": None}, {"a": 3, "b": "ü"}],
}


def test_lines_of_json(client, tmp_path):
    client.put("t", TABLE)
    path = tmp_path / "t.jsonl"
    client.save("t", path)
    lines = path.read_text().splitlines()
    assert [json.loads(line) for line in lines] == client["t"].tolist()
    assert client.load(path, "again") == "again"
    assert client["again"].tolist() == client["t"].tolist() and client["again"].dtypes == client["t"].dtypes
    assert client.load(str(path), replace=True) == "t" and client["t"].tolist() == client["again"].tolist()
    with pytest.raises(FileExistsError):
        client.load(path)


def test_what_json_has_no_type_for(client, tmp_path):
    client.put("t", {
        "day": [datetime.date(2020, 2, 29)], "when": [datetime.datetime(2020, 1, 1, 12, 30)], "d": [D("1.50")],
        "x": [float("nan")], "y": [[float("inf"), 1.0]]})
    client.save("t", tmp_path / "t.ndjson")
    row = json.loads((tmp_path / "t.ndjson").read_text())
    assert row == {"day": "2020-02-29", "when": "2020-01-01T12:30:00", "d": "1.50", "x": None, "y": [None, 1.0]}
    client.put("b", {"b": [b"\xff"]})
    with pytest.raises(TypeError, match="bytes has no form in JSON"):
        client.save("b", tmp_path / "b.jsonl")
    client.put("c", [1, 2])
    with pytest.raises(TypeError, match="'c' is no table"):
        client.save("c", tmp_path / "c.jsonl")
    assert sorted(os.listdir(tmp_path)) == ["t.ndjson"]


def test_lines_of_others(client, tmp_path):
    path = tmp_path / "odd.jsonl"
    path.write_text('\ufeff{"a": 1, "big": 9007199254740993}\n\n{"b": ["x"], "a": null}\n{"a": 2.5}', encoding="utf-8")
    client.load(path)
    t = client["odd"]
    assert t.tolist() == [{"a": 1.0, "big": 9007199254740993, "b": None}, {"a": None, "big": None, "b": ["x"]},
                          {"a": 2.5, "big": None, "b": None}]
    for text, words in (('{"a": 1e400}\n', "line 1: 1e400 is too large for a float64"),
                        ('{"a": 1}\n{"a": \n', "line 2: "), ("[1, 2]\n", "line 1: expected an object"),
                        ('{"a": 1}\n{"a": "x"}\n', "column 'a': row 0 is a int and row 1 a str")):
        path.write_text(text)
        with pytest.raises((ValueError, TypeError), match=words):
            client.load(path, "bad")
    path.write_text("")
    client.load(path, replace=True)
    assert client["odd"].shape == (0, 0)
    assert "bad" not in client


def test_many_rows(client, np, tmp_path):
    client.put("t", {"i": np.arange(20000), "x": np.arange(20000) / 7})
    client.save("t", tmp_path / "t.jsonl")
    client.load(tmp_path / "t.jsonl", "u")
    assert (client["u"]["i"].to_numpy() == np.arange(20000)).all()
    assert (client["u"]["x"].to_numpy() == np.arange(20000) / 7).all()


@pytest.mark.parametrize("dtype", ["f8", "i2", "?", "c8", "M8[us]"])
def test_arrays(client, np, tmp_path, dtype):
    array = np.arange(2, 14).reshape(3, 4).astype(dtype)
    client.put("a", array)
    client.save("a", tmp_path / "a.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), array)
    client.load(tmp_path / "a.npy", "b")
    assert client["b"].dtype == array.dtype
    np.testing.assert_array_equal(client["b"].to_numpy(), array)


def test_arrays_that_are_none(client, np, tmp_path):
    client.put("c", {"x": [1, None]}), client.put("n", [1, None]), client.put("b", b"xyz")
    for name, words in (("c", "is a table"), ("n", "has nulls"), ("b", "is bytes")):
        with pytest.raises(TypeError, match=words):
            client.save(name, tmp_path / "x.npy")
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="[Oo]bject"):
        client.load(tmp_path / "objects.npy")
    assert sorted(os.listdir(tmp_path)) == ["objects.npy"]


def test_names_that_say_nothing(client, tmp_path):
    client.put("t", TABLE)
    with pytest.raises(ValueError, match=r"client\[name\].to_pandas\(\).to_csv\(.*t.csv.\) writes it"):
        client.save("t", tmp_path / "t.csv")
    (tmp_path / "t").write_text("")
    with pytest.raises(ValueError, match=r"\.arrow.*\.parquet.*pandas\.read_csv"):
        client.load(tmp_path / "t")
    with pytest.raises(ValueError, match="expected one of arrow"):
        client.load(tmp_path / "t", format="csv")
    with pytest.raises(ValueError, match="compression"):
        client.save("t", tmp_path / "t.jsonl", compression="lz4")
    client.save("t", tmp_path / "t", format="jsonl")
    assert client.load(tmp_path / "t", "u", format="jsonl") == "u"
    with pytest.raises(KeyError):
        client.save("nothing", tmp_path / "x.jsonl")
    with pytest.raises(FileNotFoundError):
        client.load(tmp_path / "nothing.jsonl")
    with pytest.raises(FileNotFoundError):
        client.save("t", tmp_path / "no" / "such.jsonl")
    assert sorted(os.listdir(tmp_path)) == ["t"]


def test_a_failure_leaves_the_file_that_was_there(client, tmp_path):
    client.put("t", {"b": [b"x"]})
    (tmp_path / "t.jsonl").write_text("before")
    with pytest.raises(TypeError):
        client.save("t", tmp_path / "t.jsonl")
    assert (tmp_path / "t.jsonl").read_text() == "before" and len(os.listdir(tmp_path)) == 1


def test_without_pyarrow(run, tmp_path):
    """The sentence names the package, and nothing is left behind."""
    out = run(f"""
        import os, sys
        sys.modules["pyarrow"] = None  # as if it were not installed
        import gpubufd
        client = gpubufd.connect()
        client.put("without", {{"a": [1]}})
        os.chdir({str(tmp_path)!r})
        for name in ("x.arrow", "x.feather", "x.arrows", "x.parquet"):
            open(name, "w").close()
            for work in (lambda: client.save("without", {str(tmp_path)!r} + "/" + name), lambda: client.load(name)):
                try:
                    work()
                except ImportError as error:
                    print(error.name, "|", error)
            os.remove(name)
        client.save("without", {str(tmp_path)!r} + "/x.jsonl")
        client.delete("without")
        print(os.listdir({str(tmp_path)!r}))
    """, fresh=True)
    *lines, left = out.splitlines()
    assert lines == [
        "pyarrow | Arrow's files need the package pyarrow, which is not installed: pip install pyarrow"] * 6 + [
        "pyarrow | Parquet files need the package pyarrow, which is not installed: pip install pyarrow"] * 2
    assert left == "['x.jsonl']"


@pytest.mark.parametrize("suffix", [".arrow", ".feather", ".arrows", ".parquet"])
def test_arrow_and_parquet(client, tmp_path, suffix):
    pa = pytest.importorskip("pyarrow")
    path = tmp_path / f"t{suffix}"
    client.put("t", {**TABLE, "when": [datetime.datetime(2020, 1, 1), None, datetime.datetime(1960, 1, 1)]})
    for compression in (None, "zstd"):
        client.save("t", path, compression=compression)
        assert client.load(path, "u", replace=True) == "u"
        assert client["u"].to_pyarrow().equals(client["t"].to_pyarrow())
    client.put("c", ["x", None, "y"]), client.save("c", path)
    assert client.load(path, "d", replace=True) == "d" and isinstance(client["d"], gpubufd.Column)
    assert client["d"].tolist() == ["x", None, "y"]
    client.put("a", pa.array([1.5, 2.5]).to_numpy()), client.save("a", path)
    client.load(path, "d", replace=True)
    assert isinstance(client["d"], gpubufd.Array) and client["d"].tolist() == [1.5, 2.5]
    with pytest.raises((ValueError, OSError)):
        (tmp_path / f"bad{suffix}").write_bytes(b"no such file\n" * 10)
        client.load(tmp_path / f"bad{suffix}")


def test_frames_keep_their_index_in_files(client, pd, tmp_path):
    pytest.importorskip("pyarrow")
    columns = {"a": [1, 2], "c": pd.Categorical(["x", "y"]), "p": pd.period_range("2020", periods=2, freq="M"),
               "i": pd.interval_range(0, 2)}
    for index in (pd.Index(["p", "q"], name="k"), pd.MultiIndex.from_arrays([["p", None], [3, 1]], names=["k", "n"])):
        frame = pd.DataFrame(columns, index=index)
        client.put("f", frame, replace=True)
        client.save("f", tmp_path / "f.parquet")
        pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "f.parquet"), frame)
        client.load(tmp_path / "f.parquet", "g", replace=True)
        pd.testing.assert_frame_equal(client["g"].to_pandas(), frame)
        client.put("g", client["f"].to_pyarrow(), replace=True)
        pd.testing.assert_frame_equal(client["g"].to_pandas(), frame)
