"""Columns of text: what is missing, what is no Unicode, and that other threads run meanwhile."""

import threading

import pytest

np = pytest.importorskip("numpy")


def test_words_for_missing(client):
    pandas = pytest.importorskip("pandas")
    for missing in (None, float("nan"), pandas.NA, pandas.NaT):
        client.put("t", {"x": ["a", missing, "ü", ""]}, replace=True)
        assert client["t"]["x"].dtype == "utf8" and client["t"]["x"].tolist() == ["a", None, "ü", ""]
        assert client["t"]["x"].null_count == 1
    client.put("t", {"x": np.ma.MaskedArray(["a", "b"], [True, False])}, replace=True)
    assert client["t"]["x"].tolist() == [None, "b"]


def test_series_of_every_kind_of_text(client):
    pandas = pytest.importorskip("pandas")
    values = ["one", None, "zwei", "three", "one"] * 9
    for dtype in ("object", "string", "category"):
        series = pandas.Series(values, dtype=dtype)
        client.put("s", series, replace=True)
        assert client["s"].tolist() == values and client["s"].to_pandas().isna().sum() == 9
    client.put("s", pandas.Series([b"\x00\xff", None, b""]), replace=True)
    assert client["s"].dtype == "binary" and client["s"].tolist() == [b"\x00\xff", None, b""]


def test_slices_begin_anywhere(client):
    values = [None if i % 7 == 0 else f"{i}" * (i % 5) for i in range(100)]
    client.put("t", {"x": values})
    for start, stop in ((0, 100), (1, 2), (7, 8), (9, 81), (50, 50)):
        part = client["t"]["x"][start:stop]
        assert part.tolist() == values[start:stop]
        assert part.to_numpy().tolist() == values[start:stop]


def test_equal_strings_near_each_other_are_one(client):
    client.put("t", {"x": ["left", "right"] * 50 + [None]})
    got = client["t"]["x"].to_numpy()
    assert got[0] is got[98] and got[1] is got[99] and got[0] == "left" and got[100] is None


def test_what_is_mixed_or_no_unicode_is_said(client):
    with pytest.raises(TypeError, match="row 1 is a bytes|row 0 is a str and row 1 a bytes"):
        client.put("t", {"x": ["a", b"b"]})
    with pytest.raises(ValueError, match="'x'.*not Unicode text"):
        client.put("t", {"x": ["a", "\ud800"]})
    with pytest.raises(TypeError, match="row 1 is a Fraction"):
        import fractions

        client.put("t", {"x": ["a", fractions.Fraction(1, 2)]})
    assert "t" not in client


def test_offsets_that_lead_outside_are_refused():
    from gpubufd import _core

    with pytest.raises(ValueError, match="offsets 0 to 9 are not within 0 to 3"):
        _core.text_list(True, False, np.array([0, 9], "i4"), b"abc", None, 0, 1, None)
    with pytest.raises(ValueError, match="not within"):
        _core.text_list(True, True, np.array([2, 1], "i8"), b"abc", None, 0, 1, None)
    with pytest.raises(ValueError, match="the column has fewer elements"):
        _core.text_list(True, False, np.array([0, 1], "i4"), b"abc", None, 0, 2, None)
    with pytest.raises(ValueError, match="no buffer of that many objects"):
        _core.text_list(True, False, np.array([0, 1], "i4"), b"abc", None, 0, 1, np.zeros(1))


def test_other_threads_run_meanwhile(client):
    """Without the interpreter's own switch, which comes between two lines of Python alone."""
    import sys

    values = [f"value {i}" for i in range(400_000)]
    turns = []
    go, done = threading.Event(), threading.Event()

    def other():
        go.wait()
        while not done.is_set():
            turns.append(None)

    thread = threading.Thread(target=other)
    before = sys.getswitchinterval()
    thread.start()
    try:
        sys.setswitchinterval(1e-4)
        from gpubufd import _core

        go.set()
        counted = len(turns)
        _core.text_of(values, ())
        assert len(turns) > counted
    finally:
        done.set()
        sys.setswitchinterval(before)
        thread.join()
