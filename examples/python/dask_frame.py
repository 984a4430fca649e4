#!/usr/bin/env python3
"""Weather by year, published as a Dask frame and loaded again: dask_frame.py [SCHEDULER]

With a scheduler's address (tcp://host:8786) the partitions go into the daemons beside its workers, which
must see the file; without one, into this machine's daemon.
"""

import pathlib
import sys

import dask.dataframe as dd

import gpubufd.dask

WEATHER = pathlib.Path(__file__).resolve().parents[1] / "data" / "weather.csv"


def work() -> None:
    weather = dd.read_csv(str(WEATHER), parse_dates=["date"], blocksize=32 * 1024)
    gpubufd.dask.publish(weather, "weather-days", replace=True)
    print(f"{weather.npartitions} partitions published")

    loaded = gpubufd.dask.load("weather-days")  # in any other program, too: nothing is read so far
    print(loaded.groupby(loaded.date.dt.year)[["temp_max", "precipitation"]].mean().compute().round(1))


def main() -> None:
    if len(sys.argv) > 1:
        from distributed import Client

        with Client(sys.argv[1]):
            work()
    else:
        work()


if __name__ == "__main__":
    main()
