#!/usr/bin/env python3
"""Records what a dashboard does with a cache of shared columns: traces/dashboard.txt.gz.

    make python && tests/bench/record_trace.py | gzip -9n >tests/bench/traces/dashboard.txt.gz

A real daemon; a process that publishes the data sets of examples/data, derives columns and refreshes a
live table; and viewers, processes of their own, that look at linked charts of 200 000 flights and a table
of films, as people do: drag brushes from bin to bin, zoom and pan a density map, come back to favourite
views. A view opens its data by name; a viewer that does not find them computes them from the columns and
publishes them for all. Nothing is evicted while recording, so that the trace is of what was wanted, and not
of a cache.

A line of the trace is `MS OP NAME [BYTES]`: milliseconds since the line before; c (created and sealed,
with its bytes), o (opened), r (a lease of it released) or d (deleted); names are numbers.
"""

import argparse
import csv
import multiprocessing
import os
import random
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "build/python"))

import gpubufd  # noqa: E402

DATA = ROOT / "examples/data"
BINS = 24  # of each chart's brush
FRAME = 0.016  # seconds between the steps of a drag
COLUMNS = {"delay": (-20, 100), "distance": (0, 2400), "time": (0, 24)}
CHARTS = tuple(COLUMNS)
VIEWERS = 6
TILES = 32  # that a viewer keeps open


# ---- the data ----


class Table:
    """A table of a flatbuffer: as much of the format as it takes to find the buffers of an Arrow file."""

    def __init__(self, data, at):
        self.data, self.at = data, at
        self.fields = at - struct.unpack_from("<i", data, at)[0]

    @classmethod
    def root(cls, data, at):
        return cls(data, at + struct.unpack_from("<I", data, at)[0])

    def offset(self, index):
        return self.at + struct.unpack_from("<H", self.data, self.fields + 4 + 2 * index)[0]

    def follow(self, index):
        at = self.offset(index)
        return at + struct.unpack_from("<I", self.data, at)[0]

    def structs(self, index, form):
        at = self.follow(index)
        count, size = struct.unpack_from("<I", self.data, at)[0], struct.calcsize(form)
        return [struct.unpack_from(form, self.data, at + 4 + i * size) for i in range(count)]


def read_flights():
    """delay and distance (int16), time (float32): one batch, no nulls."""
    data = (DATA / "flights-200k.arrow").read_bytes()
    length = struct.unpack_from("<i", data, len(data) - 10)[0]
    footer = Table.root(data, len(data) - 10 - length)
    ((start, metadata, _),) = footer.structs(3, "<qi4xq")
    prefix = 8 if data[start:start + 4] == b"\xff" * 4 else 4
    batch = Table(data, Table.root(data, start + prefix).follow(2))
    buffers = [b for b in batch.structs(2, "<qq") if b[1]]
    body, rows = start + metadata, batch.structs(1, "<qq")[0][0]
    types = {"delay": "<i2", "distance": "<i2", "time": "<f4"}
    return {name: np.frombuffer(data, kind, rows, body + offset)
            for (name, kind), (offset, _) in zip(types.items(), buffers[-3:])}


def read_csv(name):
    """Columns of numbers (nothing: NaN) and of text."""
    with open(DATA / name, newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    columns = {}
    for key, texts in zip(header, zip(*rows)):
        try:
            columns[key] = np.array([float(text or "nan") for text in texts])
        except ValueError:
            columns[key] = list(texts)
    return columns


# ---- what is recorded ----


class Recorder:
    """A client of the daemon that notes what it did and when."""

    def __init__(self, path):
        self.client = gpubufd.connect(path)
        self.notes = []

    def note(self, what, name, size=0):
        self.notes.append((time.monotonic_ns(), what, name, size))

    def put(self, name, value, **options):
        """Publishes, and notes the time before that: a reader may be quicker than the note."""
        began = time.monotonic_ns()
        self.client.put(name, value, **options)
        self.notes.append((began, "c", name, self.client.stat(name).bytes))

    def get(self, name):
        value = self.client.get(name)
        self.note("o", name)
        return value

    def release(self, name, value):
        self.note("r", name)
        value.release()

    def delete(self, *names):
        for name in names:
            self.note("d", name)
        self.client.delete(*names, missing_ok=True)

    def need(self, name, compute):
        """Opens what is there; else computes and publishes it. Released at once, as after a draw."""
        try:
            self.release(name, self.get(name))
        except KeyError:
            try:
                self.put(name, compute())
            except FileExistsError:
                self.release(name, self.get(name))  # somebody was quicker

    def with_value(self, name, compute):
        """The value, and what releases it."""
        try:
            return self.get(name)
        except KeyError:
            pass
        try:
            self.put(name, compute())
        except FileExistsError:
            pass
        return self.get(name)


# ---- the publisher ----


def publish(path, seconds, out):
    """Data sets, derived columns, and a live table that is replaced every second."""
    recorder = Recorder(path)
    flights = read_flights()
    for name, values in flights.items():
        recorder.put(f"flights/{name}", values)
    recorder.put("flights/hour", np.floor(flights["time"]).astype("i1"))
    recorder.put("flights/log_distance", np.log1p(np.maximum(flights["distance"], 0)).astype("f4"))
    recorder.put("flights/speed", (flights["distance"] / np.maximum(flights["time"], 1)).astype("f4"))
    for table in ("movies", "weather"):
        for name, values in read_csv(f"{table}.csv").items():
            recorder.put(f"{table}/{name}", values)
    out.put(None)  # the viewers may begin
    weather = read_csv("weather.csv")["temp_max"]
    end, turn = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        recorder.put("live/temperature", np.roll(weather, turn)[:512].copy(), replace=True)
        if turn % 5 == 4:
            recorder.delete(*(f"live/mean/{window}" for window in (7, 30, 90)))
        turn += 1
        time.sleep(1)
    out.put(recorder.notes)


# ---- a viewer ----


class Viewer:
    """A person at the charts, with habits."""

    def __init__(self, path, number):
        self.recorder = Recorder(path)
        self.random = random.Random(number)
        self.columns = {name: self.recorder.get(f"flights/{name}") for name in CHARTS}
        self.brushes = {}  # chart: (low, high) in bins
        self.place = (2, 1, 1)  # zoom, x, y of the density map
        self.tiles = {}  # name: object, the latest last

    # The charts' data: each name says all that its content depends on.

    def state(self, brushes=None):
        brushes = self.brushes if brushes is None else brushes
        return ",".join(f"{c}{low}-{high}" for c, (low, high) in sorted(brushes.items())) or "all"

    def mask(self, brushes):
        """The rows that pass, a byte each."""

        def compute():
            rows = np.ones(len(self.columns["delay"]), "b1")
            for chart, (low, high) in brushes.items():
                first, last = COLUMNS[chart]
                values = np.asarray(self.columns[chart])
                width = (last - first) / BINS
                rows &= (values >= first + low * width) & (values < first + high * width)
            return rows

        return f"mask/{self.state(brushes)}", compute

    def with_mask(self, brushes, use):
        name, compute = self.mask(brushes)
        value = self.recorder.with_value(name, compute)
        try:
            return use(np.asarray(value))
        finally:
            self.recorder.release(name, value)

    def draw_histograms(self):
        """Each chart under the brushes of the others."""
        for chart in CHARTS:
            others = {c: b for c, b in self.brushes.items() if c != chart}

            def count(rows, chart=chart):
                return np.histogram(np.asarray(self.columns[chart])[rows], BINS * 4,
                                    COLUMNS[chart])[0].astype("i4")

            self.recorder.need(f"histogram/{chart}/{self.state(others)}",
                               lambda others=others, count=count: self.with_mask(others, count))

    def build_index(self, active):
        """For a drag: counts of every passive chart by the position of the active brush."""
        others = {c: b for c, b in self.brushes.items() if c != active}
        for passive in CHARTS:
            if passive == active:
                continue

            def cube(rows, passive=passive):
                ranges = [COLUMNS[active], COLUMNS[passive]]
                counts = np.histogram2d(np.asarray(self.columns[active])[rows],
                                        np.asarray(self.columns[passive])[rows],
                                        (400, BINS * 4), ranges)[0]
                return counts.cumsum(axis=0).astype("i4")

            self.recorder.need(f"index/{active}/{passive}/{self.state(others)}",
                               lambda cube=cube: self.with_mask(others, cube))

    def draw_rows(self):
        """The chosen rows, for the table, and a sample of them, for the scatter plot."""
        state = self.state()
        self.recorder.need(f"rows/{state}", lambda: self.with_mask(
            self.brushes, lambda rows: np.flatnonzero(rows)[:100000].astype("i4")))

        def sample(rows):
            chosen = np.flatnonzero(rows)[::max(1, int(rows.sum()) // 5000)]
            return np.stack([np.asarray(self.columns[c])[chosen].astype("f4") for c in CHARTS])

        self.recorder.need(f"sample/{state}", lambda: self.with_mask(self.brushes, sample))

    def draw_map(self):
        """Keeps open the tiles in sight, and a few earlier ones."""
        zoom, x, y = self.place
        for dx in (0, 1):
            for dy in (0, 1):
                self.draw_tile(zoom, x + dx, y + dy)
        while len(self.tiles) > TILES:
            name = next(iter(self.tiles))
            self.recorder.release(name, self.tiles.pop(name))

    def draw_tile(self, zoom, x, y):
        state = self.state({c: b for c, b in self.brushes.items() if c == "time"})
        name = f"tile/{zoom}/{x}/{y}/{state}"

        def compute():
            (x0, x1), (y0, y1) = COLUMNS["distance"], COLUMNS["delay"]
            side = 1 << zoom
            wide, high = (x1 - x0) / side, (y1 - y0) / side
            ranges = [[x0 + x * wide, x0 + (x + 1) * wide], [y0 + y * high, y0 + (y + 1) * high]]
            rows = np.asarray(self.columns["distance"]), np.asarray(self.columns["delay"])
            return np.histogram2d(*rows, 128, ranges)[0].astype("f4")

        if name in self.tiles:
            self.tiles[name] = self.tiles.pop(name)
            return
        self.tiles[name] = self.recorder.with_value(name, compute)

    # People's actions.

    def drag(self):
        """An edge of a brush, or all of it, from bin to bin."""
        chart = self.random.choice(CHARTS)
        low, high = self.brushes.get(chart, (8, 14))
        self.build_index(chart)
        way, edge = self.random.choice((-1, 1)), self.random.choice(("low", "high", "both"))
        for _ in range(self.random.randint(3, 14)):
            if edge in ("low", "both"):
                low = min(max(low + way, 0), BINS - 1)
            if edge in ("high", "both"):
                high = min(max(high + way, low + 1), BINS)
            high = max(high, low + 1)
            self.brushes[chart] = (low, high)
            self.draw_histograms()
            time.sleep(FRAME)
        self.draw_rows()

    def clear(self):
        if self.brushes:
            self.brushes.pop(self.random.choice(sorted(self.brushes)))
        self.draw_histograms()
        self.draw_rows()

    def favourite(self):
        """One of forty views, the first far more often than the last."""
        which = min(int(self.random.paretovariate(0.9)), 40)
        choose = random.Random(which)
        self.brushes = {}
        for chart in choose.sample(CHARTS, choose.randint(1, 2)):
            low = choose.randrange(0, BINS - 6)
            self.brushes[chart] = (low, low + choose.randint(2, 6))
        self.draw_histograms()
        self.draw_rows()

    def wander(self):
        """Zooms and pans."""
        for _ in range(self.random.randint(2, 8)):
            zoom, x, y = self.place
            step = self.random.random()
            if step < 0.2 and zoom < 5:
                zoom, x, y = zoom + 1, 2 * x, 2 * y
            elif step < 0.4 and zoom > 1:
                zoom, x, y = zoom - 1, x // 2, y // 2
            else:
                x += self.random.choice((-1, 0, 1))
                y += self.random.choice((-1, 0, 1))
            most = (1 << zoom) - 2
            self.place = zoom, min(max(x, 0), most), min(max(y, 0), most)
            self.draw_map()
            time.sleep(FRAME)

    def look_at_films(self):
        """A page of the table, columns by popularity; means of the live table."""
        names = ["Title", "IMDB Rating", "US Gross", "Worldwide Gross", "Major Genre", "Director",
                 "Production Budget", "Release Date", "Rotten Tomatoes Rating", "Distributor"]
        opened = [(f"movies/{name}", self.recorder.get(f"movies/{name}"))
                  for name in names[:self.random.randint(2, len(names))]]
        for name, value in opened:
            self.recorder.release(name, value)
        try:
            live = self.recorder.get("live/temperature")
        except KeyError:
            return
        values = np.asarray(live)
        for window in (7, 30, 90):
            self.recorder.need(f"live/mean/{window}",
                               lambda w=window: np.convolve(values, np.full(w, 1 / w), "valid"))
        self.recorder.release("live/temperature", live)

    def look(self, seconds):
        acts = (self.drag, self.favourite, self.wander, self.clear, self.look_at_films)
        end = time.monotonic() + seconds
        self.draw_histograms()
        while time.monotonic() < end:
            self.random.choices(acts, (34, 30, 22, 6, 8))[0]()
            time.sleep(min(self.random.expovariate(2), 2))
        for name, value in self.tiles.items():
            self.recorder.release(name, value)
        for name, value in self.columns.items():
            self.recorder.release(f"flights/{name}", value)
        return self.recorder.notes


def view(path, number, seconds, out):
    out.put(Viewer(path, number).look(seconds))


# ---- all of it ----


def write(notes, seconds):
    """All notes, by time; names get numbers by their first one."""
    numbers, last = {}, None
    print(f"# {VIEWERS} viewers at linked charts of 200 000 flights, for {seconds:g} s; "
          "by tests/bench/record_trace.py")
    print("# MS OP NAME [BYTES]: c create, o open, r release, d delete")
    for moment, what, name, size in sorted(notes):
        number = numbers.setdefault(name, len(numbers))
        now = moment // 1000000
        print(f"{now - (last or now)} {what} {number}" + (f" {size}" if what == "c" else ""))
        last = now


def record(path, seconds):
    published, viewed = multiprocessing.Queue(), multiprocessing.Queue()
    publisher = multiprocessing.Process(target=publish, args=(path, seconds, published))
    viewers = [multiprocessing.Process(target=view, args=(path, i, seconds, viewed))
               for i in range(VIEWERS)]
    publisher.start()
    published.get()
    for viewer in viewers:
        viewer.start()
    notes = published.get()
    for _ in viewers:
        notes += viewed.get()
    for process in [publisher, *viewers]:
        process.join()
    return notes


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gpubufd-trace.") as directory:
        path = os.path.join(directory, "s")
        daemon = subprocess.Popen([ROOT / "build/bin/gpubufd", "--socket", path, "--device", "host:4G",
                                   "--log-level", "warning"])
        try:
            while not os.path.exists(path):
                if daemon.poll() is not None:
                    sys.exit("the daemon does not start")
                time.sleep(0.01)
            write(record(path, options.seconds), options.seconds)
        finally:
            daemon.terminate()
            daemon.wait()


if __name__ == "__main__":
    main()
