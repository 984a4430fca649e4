"""References, which processes send each other in place of published objects: a name and a version."""

import gc
import pickle
import re
import subprocess
import sys
import textwrap

import pytest
from conftest import ROOT, environment

import gpubufd

np = pytest.importorskip("numpy")


def test_a_ref_is_a_value(client):
    ref = client.put("prices", {"price": [9.5, None]})
    assert isinstance(ref, gpubufd.Ref) and repr(ref) == f"gpubufd.Ref('prices', {ref.version})"
    assert ref.version == client.stat("prices").version == client["prices"].version and ref.instance == client.instance
    assert ref == client.ref("prices") == pickle.loads(pickle.dumps(ref)) and len(pickle.dumps(ref)) < 250
    assert {ref: 1}[client.ref("prices")] == 1
    assert ref != client.put("prices", [1], replace=True) and ref != gpubufd.Ref("price", ref.version, ref.instance)
    with pytest.raises(AttributeError):
        ref.version = 5
    with pytest.raises(gpubufd.NotFound):
        client.ref("nothing")


VALUES = {
    "bytes": b"xyz", "an array": np.arange(3), "Fortran order": np.ones((2, 3), order="F"), "a column": ["a", None],
    "a table": {"x": [1]}, "an array with nulls": np.ma.masked_array([1, 2], [0, 1]), "a scalar": 5,
}


@pytest.mark.parametrize("name", VALUES)
def test_put_says_the_version(client, name):
    first = client.put("v", VALUES[name])
    with client[first] as held, client.get(first) as again, first.get(client) as same:
        assert held.version == again.version == same.version == first.version
    assert client.put("v", VALUES[name], replace=True).version > first.version


def test_a_version_that_is_gone(client):
    replaced = client.put("a", [1])
    with client[replaced] as held:
        deleted = client.put("a", [2], replace=True)
        with pytest.raises(gpubufd.Stale, match=rf"gpubufd.Ref\('a', {replaced.version}\) is gone: .*version"):
            client.get(replaced)
        assert held.tolist() == [1]
    client.delete("a")
    with pytest.raises(gpubufd.Stale, match=rf"gpubufd.Ref\('a', {deleted.version}\) is gone: .*no object"):
        client[deleted]
    with pytest.raises(gpubufd.NotFound):  # a name alone is not known to have been there
        client["a"]


def test_another_daemon_has_other_versions(place):
    """Its numbers begin anew, so that a name and a number may be there again, and be something else."""
    with gpubufd.connect(place.path) as client:
        ref = client.put("a", [1])
        place.restart()
        again = client.put("a", [2])
        assert (again.name, again.version) == (ref.name, ref.version) and again != ref
        with pytest.raises(gpubufd.Stale, match="is gone: its daemon was stopped"):
            client.get(ref)
        assert client.leases() == [] and client.get(gpubufd.Ref("a", ref.version)).tolist() == [2]


def test_of_the_kind_that_is_meant(client):
    client.put("t", {"x": [1]})
    with client.get("t", kind=gpubufd.Table) as table:
        assert table["x"].tolist() == [1]
    with pytest.raises(TypeError, match="'t' is of the kind Table, not Array"):
        client.get("t", kind=gpubufd.Array)
    gc.collect()
    assert client.leases() == []


@pytest.fixture
def program(daemon, tmp_path):
    """program(text, *arguments): what a file of that text prints, as a user's main program."""

    def run(text, *arguments):
        path = tmp_path / "program.py"
        path.write_text(textwrap.dedent(text))
        env = environment()
        env.pop("GPUBUFD_SOCKET", None)  # a Ref says where its daemon is
        done = subprocess.run([sys.executable, str(path), daemon.path, *arguments], env=env, capture_output=True,
                              text=True, timeout=600, check=False)
        assert done.returncode == 0, (done.stdout, done.stderr)
        return done.stdout.split()

    return run


WORK = """
    import concurrent.futures, multiprocessing, sys
    import gpubufd

    def total(task):
        ref, start = task
        with ref.get() as table:
            return sum(table["x"][start:].tolist()), table["s"][start]

    def make(name):
        return gpubufd.connect(sys.argv[1]).put(name, {"x": [1.0]})
"""


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_a_pool_of_processes(client, program, method):
    """A child of fork() has a connection of its own, though its parent had opened a Ref before."""
    said = program(WORK + """
    if __name__ == "__main__":
        client = gpubufd.connect(sys.argv[1])
        ref = client.put("pool", {"x": [float(i) for i in range(1000)], "s": [str(i) for i in range(1000)]})
        expected = [(sum(range(start, 1000)), str(start)) for start in range(50)]
        assert total((ref, 0)) == expected[0]
        with multiprocessing.get_context(sys.argv[2]).Pool(3) as pool:
            assert pool.map(total, [(ref, start) for start in range(50)]) == expected
            made = pool.map(make, ["made/0", "made/1"])
            assert [len(one.get()) for one in made] == [1, 1] and made[0] == client.ref("made/0")
            client.put("pool", [1], replace=True)
            try:
                pool.apply(total, [(ref, 0)])
            except gpubufd.Stale as error:
                assert "is gone" in str(error)
                print("gone")
    """, method)
    assert said == ["gone"] and client.leases() == []


def test_what_the_guide_shows(program):
    text = (ROOT / "docs" / "PYTHON.md").read_text()
    (block,) = re.findall(r"```python notest\n(def mean.*?)```", text, re.S)
    prelude = """
        import multiprocessing, sys
        import gpubufd
        client = gpubufd.connect(sys.argv[1])
        frames = [{"price": [float(i), i + 1.0]} for i in range(5)]
    """
    assert program(textwrap.dedent(prelude) + block) == ["[0.5,", "1.5,", "2.5,", "3.5,", "4.5]"]


def test_dask_passes_them(client, program):
    pytest.importorskip("dask")
    said = program(WORK + """
    if __name__ == "__main__":
        import dask, dask.base
        client = gpubufd.connect(sys.argv[1])
        ref = client.put("dask", {"x": [1.0, 2.0, 4.0], "s": list("abc")})
        assert dask.base.tokenize(ref) == dask.base.tokenize(client.ref("dask"))
        tasks = [dask.delayed(total)((ref, start)) for start in range(3)]
        print(*dask.compute(*tasks, scheduler="processes", num_workers=2))
    """)
    assert "".join(said) == "(7.0,'a')(6.0,'b')(4.0,'c')"
