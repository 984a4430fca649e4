#!/usr/bin/env python3
"""How long a small object waits while a large one is fetched over a slow network: loopback in a network namespace of its own,
whose rate tbf bounds, with a queue of 50 ms and packets as large as an Ethernet's. Needs root and tc. Prints a line for each rate.

    tests/bench/bench_slow_link.py [SECONDS [MBIT...]]

For SECONDS (10) small objects are fetched one after the other, 200 MB meanwhile, on the build in $GPUBUF_BUILD.
"""

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time

from bench_peer import SMALL, fetch, machines, publish

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../integration"))
from peer import Peer  # noqa: E402

LARGE = 200_000_000


@contextlib.contextmanager
def bounded(mbit):
    """Loopback has that rate meanwhile."""
    subprocess.run(["tc", *f"qdisc add dev lo root tbf rate {mbit}mbit burst 64kb latency 50ms".split()], check=True)
    yield
    subprocess.run(["tc", "qdisc", "del", "dev", "lo", "root"], check=True)


def waits(there, seconds):
    """Milliseconds of each small object."""
    found, end = [], time.monotonic() + seconds
    while not found or time.monotonic() < end:
        found.append(1000 * fetch(there, f"small{len(found) % SMALL}"))
    return sorted(found)


def at(mbit, seconds):
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        (here, there), _ = machines(stack, directory, LARGE, "host")
        stack.enter_context(contextlib.closing(publish(here, LARGE, "host")))
        fetch(there, "small0")  # the connection is made
        stack.enter_context(bounded(mbit))
        quiet = waits(there, 2)
        session = stack.enter_context(contextlib.closing(Peer(there)))
        session.request("open", name="large", wait_ms=600_000)
        time.sleep(2)  # until as much is under way as ever is
        beside = waits(there, seconds)
        print(f"{mbit} Mbit/s: a small object after {statistics.median(quiet):.1f} ms, {quiet[-1]:.1f} at most; "
              f"beside 200 MB {statistics.median(beside):.1f} ms, {beside[-1]:.1f} at most, of {len(beside)}", flush=True)


if __name__ == "__main__":
    if os.environ.get("APART") != "yes":
        os.execvpe("unshare", ["unshare", "--net", sys.executable, *sys.argv], {**os.environ, "APART": "yes"})
    subprocess.run(["ip", "link", "set", "lo", "mtu", "1500", "up"], check=True)
    for rate in sys.argv[2:] or ("10", "100", "1000"):
        at(rate, float(sys.argv[1]) if len(sys.argv) > 1 else 10)
