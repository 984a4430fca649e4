"""The checks of frameworks.py on the host, as far as their libraries are here."""

import frameworks
import pytest

HOST = [entry for entry in frameworks.CHECKS if entry[1] in ("both", "host")]


@pytest.mark.parametrize("entry", HOST, ids=[entry[2].__name__ for entry in HOST])
def test_host(client, entry):
    try:
        entry[2](client, "host")
    except frameworks.Skip as why:
        pytest.skip(str(why))
