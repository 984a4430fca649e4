"""scripts/run-cluster-demo: three machines, as network namespaces of this one."""

import os
import re
import subprocess

import etcds
import pytest
from conftest import BUILD, ROOT

pytestmark = pytest.mark.host_only("its daemons have memory of the host")


def demo(tmp_path, **environment):
    """The text that it prints."""
    run = subprocess.run([str(ROOT / "scripts" / "run-cluster-demo")], capture_output=True, text=True, timeout=600,
                         stdin=subprocess.DEVNULL,
                         env=dict(os.environ, GPUBUF_BUILD=str(BUILD), TMPDIR=str(tmp_path), **environment))
    if run.returncode == 77:
        pytest.skip(run.stderr.strip())
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


@pytest.mark.parametrize("how", [
    pytest.param("etcd", marks=pytest.mark.skipif(not etcds.ETCD, reason="needs etcd")), "static"])
def test_three_machines(tmp_path, how):
    said = demo(tmp_path, STATIC="" if how == "etcd" else "1")
    assert ("--etcd http" if how == "etcd" else "--peer node") in said
    assert len(re.findall(r"note +copy of node1, ", said)) == 2
    first, _, rest = said.partition("5. The peer of node2 is killed")
    replaced, _, last = rest.partition("6. node1 is killed")
    assert first.count("sum 140542660013") == 2
    if how == "etcd":
        sums = re.findall(r"sum (\d+)", replaced + last)
        assert len(sums) == 4 and len(set(sums)) == 1 and "140542660013" not in sums
    else:
        assert last.count("sum 140542660013") == 2
    assert not list(tmp_path.iterdir()), "it leaves nothing"
