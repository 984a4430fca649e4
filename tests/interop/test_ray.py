"""gpubufd.ray with a real Ray on this machine's memory: what passes, who frees it, what Ray expects of a transport."""

import gc
import inspect
import os
import time

import conftest
import pytest

ray = pytest.importorskip("ray")
torch = pytest.importorskip("torch")

gpubufd = conftest.gpubufd
import gpubufd.ray as transport  # noqa: E402

transport.register()  # before actors are defined


@pytest.fixture(scope="module")
def local(daemon):
    """A Ray of this machine's own, whose actors find the daemon and the package."""
    before = {name: os.environ.get(name) for name in ("GPUBUFD_SOCKET", "PYTHONPATH")}
    os.environ["GPUBUFD_SOCKET"] = daemon.path
    path = os.pathsep.join([str(conftest.PACKAGE), str(conftest.ROOT / "tests" / "interop"), before["PYTHONPATH"] or ""])
    ray.init(num_cpus=4, include_dashboard=False, _node_ip_address="127.0.0.1", configure_logging=False, object_store_memory=100 << 20,
             runtime_env={"env_vars": {"GPUBUFD_SOCKET": daemon.path, "PYTHONPATH": path}})
    yield transport
    ray.shutdown()
    for name, value in before.items():
        os.environ.pop(name, None) if value is None else os.environ.update({name: value})


@pytest.fixture(autouse=True)
def tidy(client, daemon):
    """The driver's own connection ends with each test."""
    yield
    conftest.end_own_connections(client, daemon)


@ray.remote
class Source:
    @ray.method(tensor_transport="gpubufd")
    def make(self, count, value):
        return torch.full((count,), value)

    @ray.method(tensor_transport="gpubufd")
    def state(self):
        return {"w": torch.arange(6.0).reshape(2, 3), "b": torch.ones(3, dtype=torch.bfloat16), "step": 7}

    @ray.method(tensor_transport="gpubufd")
    def bad(self):
        return torch.eye(3).to_sparse()

    def pid(self):
        return os.getpid()


@ray.remote(enable_tensor_transport=True)  # it has no method with a transport, which would do the same
class Sink:
    def total(self, tensor):
        return float(tensor.sum())

    def keep(self, tensor):
        self.kept = tensor

    def kept_total(self):
        return float(self.kept.sum())

    def look(self, state):
        with open("/proc/self/maps") as maps:
            mapped = "memfd:gpubufd" in maps.read()
        return state["w"].tolist(), str(state["b"].dtype), state["step"], mapped


def until(condition):
    end = time.monotonic() + 30
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


def test_actors_pass_tensors_and_ray_frees_them(local, client):
    source, sinks = Source.remote(), [Sink.remote(), Sink.remote()]
    made = source.make.remote(100_000, 2.0)
    assert ray.get([sink.total.remote(made) for sink in sinks]) == [200_000, 200_000]
    assert len(client.list("ray/")) == 1
    assert float(ray.get(made)[-1]) == 2  # the driver, too
    del made
    gc.collect()
    assert until(lambda: not client.list("ray/"))
    w, dtype, step, mapped = ray.get(sinks[0].look.remote(source.state.remote()))
    assert (w, dtype, step) == ([[0, 1, 2], [3, 4, 5]], "torch.bfloat16", 7) and mapped
    with pytest.raises(Exception, match="expected a dense one"):
        ray.get(sinks[0].total.remote(source.bad.remote()))
    for actor in (source, *sinks):
        ray.kill(actor)
    assert until(lambda: not client.leases())


def test_what_a_receiver_has_outlives_its_source(local, client):
    source, sink = Source.remote(), Sink.remote()
    made = source.make.remote(100_000, 3.0)
    ray.get(sink.keep.remote(made))
    os.kill(ray.get(source.pid.remote()), 9)
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(source.pid.remote())
    assert ray.get(sink.kept_total.remote()) == 300_000
    ray.kill(sink)
    assert until(lambda: not client.leases())
    del made
    client.delete("ray/*", missing_ok=True)


def test_another_daemons_tensors_are_refused(local, client, monkeypatch):
    monkeypatch.setattr(local, "default_client", lambda: client)
    transport = local.Transport()
    told = transport.extract_tensor_transport_metadata("id", [torch.ones(2), torch.zeros(3)])
    buffers = [torch.empty(2), torch.empty(3)]
    assert transport.recv_multiple_tensors("id", told, None, buffers)[0] is buffers[0] and float(buffers[0].sum()) == 2
    with pytest.raises(gpubufd.Stale, match="another daemon"):
        transport.recv_multiple_tensors("id", local.dataclasses.replace(told, instance="00"), None)
    transport.garbage_collect("id", told, [])
    transport.garbage_collect("id", told, [])
    assert transport.extract_tensor_transport_metadata("none", []).name == ""


def test_rays_half_of_the_interface(local):
    theirs = ray.experimental.TensorTransportManager
    for name in theirs.__abstractmethods__:
        ours, base = getattr(local.Transport, name), getattr(theirs, name)
        assert list(inspect.signature(ours).parameters) == list(inspect.signature(base).parameters), name
    assert list(inspect.signature(ray.experimental.register_tensor_transport).parameters) == [
        "transport_name", "devices", "transport_manager_class", "data_type"]
    with pytest.raises(ValueError, match="already registered"):
        local.register()


def test_a_ray_that_is_too_old_is_named(run):
    out = run("""
        import ray.experimental
        del ray.experimental.register_tensor_transport
        try:
            import gpubufd.ray
        except ImportError as error:
            print(error)
    """)
    assert "takes no tensor transports of others: gpubufd.ray is for Ray 2.60" in out
