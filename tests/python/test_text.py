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


def test_equal_strings_near_each_other_are_one(client):
    client.put("t", {"x": ["left", "right"] * 50 + [None]})
    got = client["t"]["x"].to_numpy()
    assert got[0] is got[98] and got[1] is got[99] and got[0] == "left" and got[100] is None


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
