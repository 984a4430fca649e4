"""torch.distributed.checkpoint over the daemon: one process and several, resharding, versions, failures."""

import inspect
import os

import conftest
import pytest

torch = pytest.importorskip("torch")
dcp = pytest.importorskip("torch.distributed.checkpoint")
import torch.multiprocessing as mp  # noqa: E402

gpubufd = conftest.gpubufd
import gpubufd.torch.checkpoint as checkpoint  # noqa: E402


def state(step):
    return {"model": {"w": torch.full((6, 4), float(step)), "h": torch.arange(7).to(torch.bfloat16), "tied": None,
                      "f8": torch.arange(4.0).to(torch.float8_e4m3fn), "scalar": torch.tensor(step)},
            "step": step, "note": f"step {step}"}


def filled(step):
    made = state(step)
    made["model"]["tied"] = made["model"]["w"]
    return made


def test_a_checkpoint_there_and_back_by_version_and_label(client):
    for step in range(3):
        dcp.save(filled(step), storage_writer=checkpoint.Writer(client, "run", label=f"step-{step}", keep=1))
    for which, step in (({}, 2), ({"label": "step-1"}, 1)):
        found = filled(9)
        dcp.load(found, storage_reader=checkpoint.Reader(client, "run", **which))
        assert found["step"] == step and found["note"] == f"step {step}"
        for name, tensor in filled(step)["model"].items():
            assert torch.equal(found["model"][name].view(torch.uint8) if tensor.dim() else found["model"][name],
                               tensor.view(torch.uint8) if tensor.dim() else tensor), name
    with pytest.raises(dcp.api.CheckpointException, match="step-0"):
        dcp.load(filled(9), storage_reader=checkpoint.Reader(client, "run", label="step-0"))
    parts = client.list("run/")
    assert len(parts) == 2  # of two checkpoints, of one rank each
    assert "model.w" in client.get(parts[0].name).dtypes
    dcp.save({"w": torch.ones(2)}, checkpoint_id="other", storage_writer=checkpoint.Writer(client, "run"))
    assert len(client.list("other")) == 2 and len(client.list("run")) == 3


def test_a_save_that_fails_leaves_the_former_one(client):
    dcp.save({"w": torch.ones(2)}, storage_writer=checkpoint.Writer(client, "run"))
    client.put("run/best/0", b"somebody else's")

    class Broken(checkpoint.Writer):
        def write_data(self, plan, planner):
            super().write_data(plan, planner)
            raise OSError("no")

    with pytest.raises(dcp.api.CheckpointException):
        dcp.save({"w": torch.zeros(2)}, storage_writer=Broken(client, "run"))
    found = {"w": torch.zeros(2)}
    dcp.load(found, storage_reader=checkpoint.Reader(client, "run"))
    assert float(found["w"].sum()) == 2 and len(client.list("run/")) == 3
    dcp.save({"w": torch.zeros(2)}, storage_writer=checkpoint.Writer(client, "run"))
    assert len(client.list("run/")) == 2 and "run/best/0" in client


@conftest.needs_root
def test_another_user_is_not_in_the_way(client, daemon):
    """Neither its objects in the place of parts that have gone, nor others, nor its own checkpoint, whose pickle would be run."""
    dcp.save({"w": torch.ones(2)}, storage_writer=checkpoint.Writer(client, "run"))
    (part,) = client.list("run/")
    client.delete(part.name)
    other = f"run/{'0' * 32}/0"
    conftest.as_another_user(daemon, f"""
c.put_bundle({part.name!r}, {{'w': numpy.zeros(2, 'f4')}}, mode=0o644)
c.put({other!r}, b'', mode=0o644)
c.put('theirs', b'theirs/\\n' + b'no pickle', mode=0o644)""")
    for name in ("run", "theirs"):
        with pytest.raises(dcp.api.CheckpointException, match="published by user 1001"):
            dcp.load({"w": torch.zeros(2)}, storage_reader=checkpoint.Reader(client, name))
    dcp.save({"w": torch.ones(2)}, storage_writer=checkpoint.Writer(client, "run"))
    assert other in client and part.name in client  # as a user who could not delete them


def test_async_save(client):
    given = filled(5)
    dcp.async_save(given, storage_writer=checkpoint.Writer(client, "run")).result()
    found = filled(0)
    dcp.load(found, storage_reader=checkpoint.Reader(client, "run"))
    assert found["step"] == 5 and torch.equal(found["model"]["w"], given["model"]["w"])


def of_rank(rank, world, path, port, work):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    torch.distributed.init_process_group("gloo", rank=rank, world_size=world)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (world,))
    full = torch.arange(60.0).reshape(10, 6)
    client = gpubufd.connect(path)
    if work == "save":
        given = {"rows": distribute_tensor(full, mesh, [Shard(0)]), "columns": distribute_tensor(-full, mesh, [Shard(1)]),
                 "whole": distribute_tensor(full + 1, mesh, [Replicate()])}
        dcp.save(given, storage_writer=checkpoint.Writer(client, "run"))
    else:
        found = {name: distribute_tensor(torch.zeros(10, 6), mesh, [place]) for name, place in
                 (("rows", Shard(1)), ("columns", Shard(0)), ("whole", Shard(0)))}
        dcp.load(found, storage_reader=checkpoint.Reader(client, "run"))
        for name, wanted in (("rows", full), ("columns", -full), ("whole", full + 1)):
            assert torch.equal(found[name].full_tensor(), wanted), name
    client.close()
    torch.distributed.destroy_process_group()


def test_other_ranks_load_what_two_have_saved_when_these_are_over(client, daemon):
    import socket

    for world, work in ((2, "save"), (3, "load")):
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        mp.spawn(of_rank, (world, daemon.path, port, work), nprocs=world)
    plain = {"rows": torch.zeros(10, 6)}
    dcp.load(plain, storage_reader=checkpoint.Reader(client, "run"))
    assert torch.equal(plain["rows"], torch.arange(60.0).reshape(10, 6))


def test_the_interface_is_the_one_that_is_implemented():
    from torch.distributed.checkpoint.storage import StorageReader, StorageWriter

    for ours, theirs in ((checkpoint.Writer, StorageWriter), (checkpoint.Reader, StorageReader)):
        assert not ours.__abstractmethods__
        for name in theirs.__abstractmethods__:
            given = inspect.signature(getattr(theirs, name)).parameters.values()
            plain = {one.name: None for one in given if one.kind is one.POSITIONAL_OR_KEYWORD}
            inspect.signature(getattr(ours, name)).bind(**plain)  # TypeError: PyTorch gives something else
