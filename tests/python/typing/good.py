"""Code that type checkers must accept; it is never run."""

import asyncio
import pathlib
from typing import Any, Dict, List, Optional, Tuple

import gpubufd
import gpubufd.aio
import gpubufd.dask
from gpubufd import cluster, cuda
from gpubufd.numpy import load_file, save_file


def publish(client: gpubufd.Client) -> None:
    client.put("a", [1.5, None], device="host", mode=0o640, ttl=60, evict="keep", replace=True, timeout=1.5)
    client.put("t", {"x": [1], "s": ["a"]}, stream=cuda.Stream())
    client.share_mine("mine", object(), mode="640", stream=7)
    with client.create("c", {"x": "int32"}, 10, nulls=True) as made:
        made["x"].write([1, 2], offset=3)
        made.seal([0])
    client.put_bundle("m", {"w": [1.5]}, {"step": "1"}, device="cuda:0", replace=True)
    bundle: gpubufd.Bundle = client.get("m")
    shapes: Dict[str, Tuple[int, ...]] = bundle.shapes
    assert shapes and bundle.metadata["step"] and bundle["w"].tolist()
    weights: Dict[str, Any] = load_file(pathlib.Path("m.safetensors"), name="m", ttl=60)
    save_file(bundle, "m.safetensors")
    save_file(weights, "m.safetensors", metadata={"step": "1"})
    client.delete("a", "t", missing_ok=True)


def read(client: gpubufd.Client) -> Tuple[int, str]:
    table: gpubufd.Table = client.get("t", timeout=5)
    names: List[str] = table.names
    column = table["x"]
    part: gpubufd.Column = column[1:3]
    some: gpubufd.Table = table.select("x", "s")[2:5]
    buffer: gpubufd.Buffer = part.buffers.values
    validity: Optional[gpubufd.Validity] = part.buffers.validity
    shape: Tuple[int, ...] = part.shape
    interface: Dict[str, Any] = part.__cuda_array_interface__
    with client["t"] as held:
        held.wait_ready(None)
    with table as same:
        rows: int = len(same)
    on_host: gpubufd.Table = table.to_host()
    largest: float = column.to_numpy().max()
    made: gpubufd.Array = client.create("made", "f4", (2, 3))
    filled: gpubufd.Table = client.create("filled", {"x": "i4"}, 3)
    assert largest and made.strides and filled.names and table.to_pandas().shape
    whole: gpubufd.Column = column.to_host()[2:]
    assert on_host and whole
    array: gpubufd.Array = client.get("a")
    of_a_kind = client.get("a", timeout=1.5, kind=gpubufd.Array)
    pair: Tuple[gpubufd.Array, int] = of_a_kind, client.put("b", [1]).version
    ref: gpubufd.Ref = client.ref("b")
    key: Dict[gpubufd.Ref, Any] = {ref: ref.get(), gpubufd.Ref("b", 5): client[ref]}
    assert pair and key
    strides: Tuple[int, ...] = array.strides
    pointer: int = buffer.pointer
    assert names and validity is not None and shape and interface and strides and some and pointer
    return rows, table.device


def of_any_kind(client: gpubufd.Client) -> int:
    held = client["x"]
    if isinstance(held, gpubufd.Bytes):
        return held.nbytes
    if isinstance(held, gpubufd.Table):
        return len(held.names)
    rest: int = held.no_matter_what
    table: gpubufd.Table = client["t"]
    made = client["a"]
    takes_arrays(made, client.get_many(["a"])[0], client.claim("a"))
    height, width, channels = made.shape
    assert height and width and channels and made.sum() and (made + 1 < 2 * made.T).any() and made[0, 1] == 2 and made[0].real
    assert held["x"].to_pandas().mean() and [one.upper() for one in held] and held.metadata["key"] and dict(held.items())
    return rest + len(table.names) + client.claim("a").generation


def takes_arrays(*arrays: gpubufd.Array) -> None:
    assert arrays


def frames(client: gpubufd.Client) -> int:
    with client.stream("s", "f4", (3,)) as writer, writer.next() as frame:
        frame.array[:] = 0
    with client.read("s") as reader:
        for one in reader:
            return one.number + one.missed
    with client.follow("m") as view:
        weights: gpubufd.Array = view["w"]
        return view.version + weights.ndim


def files(client: gpubufd.Client, path: pathlib.Path) -> str:
    client.save("t", path / "t.parquet", compression="zstd")
    client.save("t", "t.data", format="arrow")
    return client.load(path / "t.parquet", "u", replace=True, ttl=60)


def past_one_machine(frame: Any) -> List[str]:
    told: gpubufd.dask.Published = gpubufd.dask.publish(frame, "x", scope="cluster", progress=print)
    rows: Optional[int] = told.rows
    workers: Tuple[str, ...] = told.workers
    assert rows and workers and told.unreachable == 0
    return [one.name for one in gpubufd.dask.list("x")]


def look(client: gpubufd.Client) -> None:
    for info in client.list("sales/"):
        size: int = info.bytes
        created: float = info.created
        assert size or created
    with client.watch("sales/", timeout=1) as watch:
        for event in watch:
            name: Optional[str] = event.name
            kind: str = event.kind
            assert name or kind
    many: List[Any] = client.get_many(["a", "b"], errors="return")
    devices: List[Dict[str, Any]] = client.devices()
    try:
        client.pin("a")
        client.expire("a", ttl=60.5)
        client.expire("a", ttl=None)
        client.expire("a", ttl=60, version=3)
        client.delete("a", label="step-1")
        client.spill("a", tier="disk", version=3)
        client.alias("b", "a", label="step-1", keep=2, scope="local")
        client.spill("a", tier="disk")
        client.restore("a", timeout=1.5, label="step-1")
    except gpubufd.NotFound as error:
        key: KeyError = error
        message: str = error.kind
        assert key and message
    except gpubufd.Error as error:
        code: int = error.code
        assert code
    assert many and devices


def gpu() -> None:
    free, total = cuda.Device(0).memory_info()
    share: float = free / total
    with cuda.Device(0), cuda.Stream() as stream, cuda.defer_cleanup():
        event: cuda.Event = stream.record(timing=True)
        seconds: float = event.seconds_since(event)
        array: cuda.DeviceArray = cuda.empty((2, 3), "f4")
        cuda.copy(array, cuda.pinned((2, 3), "f4"), stream=stream)
    try:
        cuda.devices()
    except cuda.CudaError as error:
        name: str = error.name
        status: int = error.status
        assert name and status
    assert share and seconds


def of_the_cluster() -> None:
    places: cluster.Places = cluster.where("x", timeout=1)
    node: str = places[0].node
    why: Optional[str] = places.why
    names: List[cluster.Name] = cluster.list("x")
    port: int = cluster.peers()[0].port
    assert node and why and names and port and cluster.stats()


async def later() -> None:
    async with await gpubufd.aio.connect(timeout=1) as client:
        ref: gpubufd.Ref = await client.put("x", b"abc")
        of_a_kind: int = (await client.get(ref, kind=gpubufd.Bytes)).nbytes
        assert of_a_kind
        some: Any = await client.get("x", timeout=1)
        info: gpubufd.Info = await client.stat("x")
        async with client.watch() as watch:
            async for event in watch:
                kind: str = event.kind
                assert kind
        names: List[gpubufd.Info] = await client.list()
        assert some and info and names


asyncio.run(later())
