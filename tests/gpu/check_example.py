"""examples/raw_cuda.py, which has nothing of gpubufd's but the protocol."""

import sys

from harness import ROOT, check, equal, expect


@check("examples/raw_cuda.py publishes a column and another process opens it", seconds=120)
def raw_example(t):
    daemon, reader = t.with_workers(1)
    example = [sys.executable, ROOT / "examples" / "raw_cuda.py"]
    place = {"GPUBUFD_SOCKET": daemon.path}
    status, output = t.command(example + ["--put", "numbers", "1000"], 90, **place)
    equal((status, output), (0, ""))
    reader.open("numbers")
    equal(reader.column_sum("numbers"), [499500.0, 1000])
    status, output = t.command(example + ["numbers"], 90, **place)
    equal((status, output.strip()), (0, "1000 rows, 0 null, sum 499500.0"))

    rows, mask = 100, bytes(0b10101010 for _ in range(13))  # every other one is null
    writer = t.worker(daemon)
    writer.create("holes", {"kind": "column", "dtype": "float64", "length": rows, "mask": {}})
    writer.write_column("holes", [float(i) for i in range(rows)], mask.hex())
    writer.seal("holes")
    writer.call("alias", name="holes/part", of="holes", slice={"offset": 3, "length": 10})
    status, output = t.command(example + ["holes/part"], 90, **place)
    equal((status, output.strip()), (0, "10 rows, 5 null, sum 35.0"))
    status, output = t.command(example + ["nothing"], 90, **place)
    expect(status == 1 and "nothing" in output, output)
