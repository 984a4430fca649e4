#!/usr/bin/env python3
"""How many objects a second one Python program gets and lets go of: bench_python.py SOCKET.

For each line "1 SECONDS" on standard input it opens the column that bench_client has published, again and
again, and prints a figure. scripts/run-bench calls it, beside bench_client.
"""

import sys
import time

import gpubufd

NAME = "client/column"


def main():
    with gpubufd.connect(sys.argv[1], name="bench") as client:
        for line in sys.stdin:
            in_flight, seconds = line.split()
            if in_flight != "1":
                sys.exit("this client opens one after the other")
            opened, start = 0, time.perf_counter()
            end = start + float(seconds)
            while time.perf_counter() < end:
                for _ in range(16):  # between looks at the clock, as the others have it
                    column = client.get(NAME)
                    del column
                opened += 16
            print(round(opened / (time.perf_counter() - start)), flush=True)


if __name__ == "__main__":
    main()
