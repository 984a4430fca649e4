"""Habits of NumPy, pandas, polars and Arrow users: each does what they expect, or the error says the way."""

import collections.abc
import concurrent.futures
import copy
import threading

import pytest

import gpubufd

np = pytest.importorskip("numpy")


@pytest.fixture
def table(client):
    client.put("animals", {"Sex": ["MALE", "FEMALE", None, "MALE"], "mass": [3750.0, 3800.5, 3250.0, 3450.0]})
    return client["animals"]


@pytest.fixture
def array(client):
    client.put("a", np.arange(6.0))
    return client["a"]


def test_a_column_is_compared_by_its_elements(table):
    assert (table["Sex"] == "MALE").tolist() == [True, False, False, True]
    assert (table["Sex"] != "MALE").tolist() == [False, True, True, False]
    assert (table["mass"] > 3500).tolist() == [True, True, False, False]
    assert (table["mass"] == table["mass"]).all()
    assert hash(table["Sex"]) != hash(table["mass"])


def test_nulls_that_numpy_has_no_value_for_are_said(client):
    client.put("n", [1, None, 3])
    with pytest.raises(ValueError, match="1 nulls.*fill=…"):
        client["n"] > 1


@pytest.mark.parametrize("rows", ["mask", "numbers", "list of bool", "column"])
def test_rows_of_a_table_are_picked_elsewhere(client, table, rows):
    client.put("rows", np.array([True, False, True, False]))
    key = {"mask": table["Sex"] == "MALE", "numbers": np.array([0, 2]), "list of bool": [True, False, True, True],
           "column": client["rows"]}[rows]
    with pytest.raises(TypeError, match=r"to_pandas\(\)\[rows\].*table\[start:stop\]"):
        table[key]


@pytest.mark.parametrize("key", [True, False, np.True_], ids=str)
def test_a_boolean_is_no_number(table, array, key):
    with pytest.raises(TypeError, match="a Table selects no single rows"):
        table[key]
    assert table["mass"][key].shape == array[:4][key].shape
    assert array[key].shape in ((1, 6), (0, 6))  # as NumPy has it


def test_elements_are_picked_as_numpy_does_it(table, array):
    mask = table["Sex"] == "MALE"
    assert table["mass"][mask].tolist() == [3750.0, 3450.0] and table["Sex"][[1, 0]].tolist() == ["FEMALE", "MALE"]
    assert array[array > 3].tolist() == [4.0, 5.0] and array[[5, 0]].tolist() == [5.0, 0.0]
    assert array[np.int8(2)] == 2.0 and table["mass"][np.int64(-1)] == 3450.0


def test_arrays_are_computed_with(client, array):
    assert (array + 1).tolist() == [1, 2, 3, 4, 5, 6] and (1 - array)[1] == 0 and (-array).min() == -5
    assert (array * array).sum() == 55 and (array // 2)[5] == 2 and (2 ** array)[3] == 8
    client.put("m", np.eye(2))
    assert (client["m"] @ client["m"] == np.eye(2)).all()
    assert array.dtype == np.float64 and client["m"].dtype.itemsize == 8


def test_a_frame_of_a_table_is_refused_with_the_way(table):
    pandas = pytest.importorskip("pandas")
    with pytest.raises(TypeError, match=r"to_pandas\(\) makes a DataFrame"):
        pandas.DataFrame(table)
    with pytest.raises(TypeError, match="table\\[NAME\\] is one column"):
        np.asarray(table)
    assert pandas.DataFrame(dict(table.to_pandas())).shape == (4, 2)


def test_the_interchange_protocol(table):
    interchange = pytest.importorskip("pandas.api.interchange")
    frame = interchange.from_dataframe(table[["mass"]])
    assert frame["mass"].tolist() == table["mass"].tolist()


def test_a_table_is_a_mapping_of_columns(table):
    assert list(table) == ["Sex", "mass"] == list(table.keys()) and "Sex" in table and len(table) == 4
    assert [column._column_name for column in table.values()] == ["Sex", "mass"]
    assert {name: column.tolist() for name, column in table.items()} == {
        name: column.tolist() for name, column in dict(table).items()}
    assert table.dtypes == {"Sex": "utf8", "mass": "float64"}
    with pytest.raises(AttributeError, match=r"table\['mass'\]"):
        table.mass
    with pytest.raises(AttributeError, match="has no 'maas'"):
        table.maas
    with pytest.raises(TypeError, match=r"to_pandas\(\)\.equals"):
        table == table[1:]


def test_head_and_tail(table, array):
    assert table.head(2)["mass"].tolist() == [3750.0, 3800.5] and len(table.head()) == 4
    assert table.tail(1)["Sex"].tolist() == ["MALE"] and len(table.tail(0)) == 0
    assert array.head(-4).tolist() == [0, 1] and array.tail(-4).tolist() == [4, 5]
    assert array.tail(100).tolist() == array.tolist()


def test_truth(client, table, array):
    client.put("b", b"hello")
    client.put("none", b"")
    for held in (table, table["Sex"], array):
        with pytest.raises(TypeError, match="neither true nor false"):
            bool(held)
    assert client["b"] and not client["none"] and bool(client)
    assert client["b"] == b"hello" and client["b"] != b"hallo" and (client["b"] == np.frombuffer(b"hexlo", "u1")).sum() == 4


def test_a_client_has_what_a_dict_has(client):
    assert isinstance(client, collections.abc.MutableMapping) and client == client and client != {}
    client.update({"a": [1]}, b=[2, 3])
    assert client.keys() == {"a", "b"} and list(client) == ["a", "b"]
    assert {name: held.tolist() for name, held in client.items()} == {"a": [1], "b": [2, 3]}
    assert [held.tolist() for held in client.values()] == [[1], [2, 3]]
    assert client.setdefault("a", [9]).tolist() == [1] and client.setdefault("c", [9]).tolist() == [9]
    taken = client.pop("c")
    assert taken.tolist() == [9] and "c" not in client and client.pop("c", None) is None
    with pytest.raises(gpubufd.NotFound):
        client.pop("c")
    for default in (None, {}, 5, "x"):
        with pytest.raises(TypeError, match="get.. takes one name, and no default"):
            client.get("c", default)
    with pytest.raises(ValueError, match="timeout is 'x': expected seconds"):
        client.get("c", timeout="x")
    assert repr(client.items()).startswith("Items(<gpubufd.Client")
    for call in (client.clear, client.popitem):
        with pytest.raises(TypeError, match="the names are everybody's"):
            call()
    assert {client: 1}[client] == 1 and list(client) == ["a", "b"]


def test_what_is_no_name_is_not_there(client):
    ref = client.put("a", [1])
    assert ref in client and 5 not in client and "" not in client and "a//b" not in client
    client["a"] = [2]
    assert ref not in client and "a" in client


def test_a_name_that_goes_in_the_middle_is_left_out(client):
    client.update(a=[1], b=[2], c=[3])
    seen = []
    for name, held in client.items():
        seen.append(name)
        client.delete("b", missing_ok=True)
    assert seen == ["a", "c"]


def test_pop_takes_the_version_that_it_gives(daemon, client):
    """Two pop what a third puts anew each time: every value is popped once."""
    rounds, done = 200, threading.Event()

    def put(producer):
        for number in range(rounds):
            while not done.is_set():
                try:
                    producer.put("job", [number])
                    break
                except gpubufd.Exists:
                    pass

    def take(one):
        taken = []
        while not done.is_set():
            held = one.pop("job", None)
            if held is not None:
                taken.append(held[0])
        return taken

    with gpubufd.connect(daemon.path) as producer, gpubufd.connect(daemon.path) as other:
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            takers = [pool.submit(take, one) for one in (client, other)]
            try:
                pool.submit(put, producer).result(timeout=300)
                while "job" in producer and not any(taker.done() for taker in takers):
                    pass
            finally:
                done.set()
            taken = [number for taker in takers for number in taker.result()]
    assert sorted(taken) == list(range(rounds))


FINGERS = {
    "loc": "to_pandas", "iloc": "to_pandas", "filter": "to_pyarrow", "group_by": "polars.DataFrame", "sort_values": "to_pandas",
    "query": "to_pandas", "with_columns": "polars.DataFrame", "describe": "to_pandas", "to_polars": "polars.DataFrame",
}


@pytest.mark.parametrize("name", FINGERS)
def test_what_frames_have_is_told_the_way(table, name):
    with pytest.raises(AttributeError, match=rf"a gpubufd.Table has no '{name}', and computes nothing: .*{FINGERS[name]}"):
        getattr(table, name)
    assert not hasattr(table, name)


def test_arrays_have_numpys_methods(client, table, array):
    client.put("m", np.arange(6.0).reshape(2, 3))
    matrix, column = client["m"], table["mass"]
    assert matrix.sum() == 15 and matrix.max(axis=0).tolist() == [3, 4, 5] and matrix.T.shape == (3, 2)
    assert matrix.astype("i4").dtype == np.int32 and matrix.reshape(3, 2)[2].tolist() == [4, 5] and matrix.item(1, 2) == 5
    assert np.shares_memory(matrix.T, matrix.to_numpy()) and matrix.copy().flags.writeable
    assert column.mean() == column.to_numpy().mean() and array.argsort().tolist() == [0, 1, 2, 3, 4, 5]
    assert {"sum", "T", "astype"} <= set(dir(matrix)) and not hasattr(client["m"], "fill")
    client.put("n", [1, None])
    with pytest.raises(ValueError, match="fill"):
        client["n"].sum()
    for name in [name for name in dir(gpubufd.Array) if type(getattr(gpubufd.Array, name)).__name__ == "_OfNumpy"]:
        expected = getattr(array.to_numpy(), name)
        assert callable(getattr(array, name)) == callable(expected), name
        assert getattr(gpubufd.Array, name).__doc__ == f"NumPy's {name} of to_numpy(). Host only."


@pytest.mark.parametrize("name", ["unique", "isin", "str", "cast", "to_list", "sort"])
def test_what_arrays_have_is_told_the_way(table, array, name):
    for held, kind in ((table["mass"], "Column"), (array, "Array")):
        with pytest.raises(AttributeError, match=rf"a gpubufd.{kind} has no '{name}': take to_numpy\(\), to_pandas"):
            getattr(held, name)
    with pytest.raises(AttributeError, match="on the host"):
        array.__cuda_array_interface__  # its own sentence


def test_nothing_is_set_by_an_index(client, table, array):
    with client.create("made", "f8", 3) as made:
        for held in (table, table["mass"], array, made):
            with pytest.raises(TypeError, match="put.. publishes a new version; an object of create.. is written by write"):
                held[0] = 1
        made.write(np.arange(3.0))
    with pytest.raises(TypeError, match="a published object never changes"):
        del table["Sex"]


def test_steps_are_told_the_way(table, array):
    for held, way in ((table, "to_pandas"), (table["mass"], "to_numpy"), (array, "to_numpy")):
        for key in (slice(None, None, 2), slice(None, None, -1)):
            with pytest.raises(ValueError, match=rf"step 1; take every n-th of {way}\(\)"):
                held[key]


def test_one_element_is_a_number(client, array):
    client.put("one", np.array(3))  # NumPy 2.4 refuses what has an axis
    assert float(client["one"]) == 3.0 and int(client["one"]) == 3 and complex(client["one"]) == 3
    assert divmod(array, 2)[0].tolist() == [0, 0, 1, 1, 2, 2] and divmod(7, array[1:])[1].tolist()[1] == 1
    for convert in (float, int, complex):
        with pytest.raises(TypeError):
            convert(array)


def test_columns_are_selected_by_a_list_too(table):
    assert table.select(["mass"]).names == table.select("mass").names == table[["mass"]].names == ["mass"]
    assert table.select(("mass", "Sex")).names == ["mass", "Sex"]
    with pytest.raises(KeyError, match="there is no column 'x'"):
        table.select(["x"])


def test_the_memory_of_a_column_is_indexed_as_numpy_does_it(table):
    assert table["mass"].buffers.values[0] == 3750.0 and table["mass"].buffers.values[-2:].tolist() == [3250.0, 3450.0]


def test_copies_are_refused_with_the_way(table):
    with pytest.raises(TypeError, match="cannot be pickled"):
        copy.deepcopy(table)
    assert isinstance(table, gpubufd.Table)


def test_dtypes_by_numpys_short_names(client):
    for short, dtype in {"f8": "float64", "<i4": "int32", "?": "bool8", "u1": "uint8", "M8[us]": "timestamp[us]"}.items():
        with client.create("made", short, 2, replace=True) as made:
            assert made._dtype == dtype, short
    with pytest.raises(gpubufd.Invalid, match="float65"):
        client.create("made", "float65", 2, replace=True)


def test_a_stack_of_images_is_shown_shortly(client):
    client.put("stack", np.zeros((10, 480, 640, 3), "u1"))
    client.put("small", np.arange(24).reshape(2, 3, 4))
    assert len(repr(client["stack"])) < 400 and len(client["stack"]._repr_html_()) < 400
    assert " 17" in repr(client["small"])


def test_what_notebooks_show(client):
    client.put("weights/<a>", np.arange(3), label="step-1", own=True)
    for shown in (client, client.list(), client.list("weights/"), client.devices(), client.leases()):
        html = shown._repr_html_()
        assert html.count("<") == html.count(">") and len(html) < 4000, html
    assert "weights/&lt;a&gt;" in client.list()._repr_html_() and "step-1" in client._repr_html_()
    assert client.list("nothing/")._repr_html_() == "<p>none</p>"
    assert [info.name for info in client.list()[:1]] == ["weights/<a>"]  # it is a list
    with client.stream("camera", "u1", (2, 3)) as writer, client.read("camera") as reader:
        assert repr(writer) == "<gpubufd.StreamWriter of 'camera': frames of uint8 (2, 3)>"
        assert "StreamWriter of &#x27;camera&#x27;" in writer._repr_html_() and "<table" in writer._repr_html_()
        with writer.next() as frame:
            frame.array[:] = 7
            assert repr(frame).startswith("<gpubufd.Frame ")
            assert "<pre>[[7 7 7]" in frame._repr_html_()
        assert "StreamReader of 'camera'" in repr(reader)
    assert "closed" in reader._repr_html_()
    with client.follow("weights/<a>") as view:
        assert "View of &#x27;weights/&lt;a&gt;" in view._repr_html_() and "<table" in view._repr_html_()
        view.park()
        assert "parked" in view._repr_html_() and "<table" not in view._repr_html_()
    other = gpubufd.connect(client._path)
    other.close()
    assert "closed" in other._repr_html_()
    client.put_many({f"many/{i:03}": b"" for i in range(60)})
    assert "60 in all" in client.list("many/")._repr_html_() and "many/059" not in client.list("many/")._repr_html_()
