"""The checks of frameworks.py, as far as their libraries are here: on the host, and on the fake driver."""

import frameworks
import pytest
from conftest import PACKAGE

HOST = [entry for entry in frameworks.CHECKS if entry[1] in ("both", "host")]
GPU = [entry for entry in frameworks.CHECKS if entry[1] in ("both", "gpu")]


@pytest.mark.parametrize("entry", HOST, ids=[entry[2].__name__ for entry in HOST])
def test_host(client, daemon, monkeypatch, entry):
    monkeypatch.setenv("GPUBUFD_SOCKET", daemon.path)
    monkeypatch.setenv("PYTHONPATH", str(PACKAGE), prepend=":")
    try:
        entry[2](client, "host")
    except frameworks.Skip as why:
        pytest.skip(str(why))
    assert not client.closed, "what a check found is asserted in it"


@pytest.mark.parametrize("name", [entry[2].__name__ for entry in GPU])
def test_gpu(gpu_run, name):
    out = gpu_run(
        f"""
        import frameworks
        try:
            frameworks.{name}(client, "cuda:0")
        except frameworks.Skip as why:
            print("skipped:", why)
        else:
            print("it holds")
        """
    )
    if "skipped:" in out:
        pytest.skip(out.partition("skipped:")[2].strip())
    assert "it holds" in out
