"""scripts/run-cluster-demo: three machines, as network namespaces of this one."""

import os
import re
import subprocess

import etcds
import pytest
from conftest import BUILD, ROOT

pytestmark = pytest.mark.host_only("its daemons have memory of the host")


@pytest.mark.skipif(not etcds.ETCD, reason="needs etcd")
def test_three_machines(tmp_path):
    run = subprocess.run([str(ROOT / "scripts" / "run-cluster-demo")], capture_output=True, text=True, timeout=600,
                         stdin=subprocess.DEVNULL,
                         env=dict(os.environ, GPUBUF_BUILD=str(BUILD), TMPDIR=str(tmp_path)))
    if run.returncode == 77:
        pytest.skip(run.stderr.strip())
    assert run.returncode == 0, run.stdout + run.stderr
    assert "--etcd http" in run.stdout
    assert len(re.findall(r"note +copy of node1, ", run.stdout)) == 2
    first, _, rest = run.stdout.partition("5. The peer of node2 is killed")
    assert first.count("sum 140542660013") == 2
    sums = re.findall(r"sum (\d+)", rest)
    assert len(sums) == 4 and len(set(sums)) == 1 and "140542660013" not in sums
    assert not list(tmp_path.iterdir()), "it leaves nothing"
