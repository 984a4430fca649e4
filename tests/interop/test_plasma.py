"""pyarrow 11's tests of Plasma, run over the shim in plasma.py."""

import sys

import conftest
import pytest

pytest.importorskip("pyarrow._plasma")
import plasma  # noqa: E402
import pyarrow  # noqa: E402

sys.modules["pyarrow.plasma"] = pyarrow.plasma = plasma
from pyarrow.tests.test_plasma import *  # noqa: E402, F403

# Devices consist of pieces of 2 MiB: none is as small as the one, and a rest of the other's is not used.
test_store_capacity = conftest.differs(test_store_capacity, "2097152 == 10000")  # noqa: F405
TestPlasmaClient.test_use_full_memory = conftest.differs(  # noqa: F405
    TestPlasmaClient.test_use_full_memory, "100000000 bytes can never fit: the capacity of host is 98566144 bytes")  # noqa: F405
