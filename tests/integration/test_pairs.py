"""One random program over everything that holds state, on daemons that are killed: pairs.py.

    GPUBUF_TEST_PROGRAMS=2000 GPUBUF_TEST_SEED=7 /usr/bin/python3 -m pytest tests/integration/test_pairs.py

plays 200 programs of 1000 steps each. Without a seed they are the same every time. A failure prints the command that plays it
again, and with `--shrink` finds fewer steps.
"""

import os

import pairs
import pytest

pytestmark = pytest.mark.programs
PARTS = 4
PROGRAMS = int(os.environ.get("GPUBUF_TEST_PROGRAMS", "40")) // 10
SEED = int(os.environ.get("GPUBUF_TEST_SEED", "1"))


# RELIABILITY.md: Clients that end 5, 7, The daemon ends 2, 9, 11
@pytest.mark.parametrize("part", range(PARTS))
def test_programs(part):
    for number in range(part, max(PARTS, PROGRAMS), PARTS):
        seed = SEED * 1000 + number
        failure, last, lines, _ = pairs.play(seed, range(1000))
        if isinstance(failure, pairs.NoFailpoints):
            pytest.skip("this daemon was built without failpoints")
        if failure:
            pairs.print_failure(seed, failure, lines, list(range(last + 1)))
        assert not failure
