"""gpubufd.torch.multiprocessing with the real PyTorch: what arrives, who frees it, and whose reductions are taken."""

import gc
import io
import multiprocessing.connection
import multiprocessing.queues
import os
import pickle
import subprocess
import sys
import textwrap
import time
from multiprocessing.reduction import ForkingPickler

import conftest
import pytest

torch = pytest.importorskip("torch")
import torch.multiprocessing.queue  # noqa: E402

gpubufd = conftest.gpubufd
import gpubufd.torch as gt  # noqa: E402
import gpubufd.torch.multiprocessing as mp  # noqa: E402
from gpubufd import _weights  # noqa: E402

gpu, gpu_run = conftest._module.gpu, conftest._module.gpu_run
torch.set_num_threads(1)  # a child of fork() has none of the others
BIG = 100_000  # elements: past what travels in the message


@pytest.fixture
def there(at_daemon):
    mp.init_reductions()
    yield at_daemon
    torch.multiprocessing.reductions.init_reductions()


def sent(tensor):
    """A tensor as it arrives."""
    return pickle.loads(ForkingPickler.dumps(tensor))


def bits(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def names(client):
    return [info.name for info in client.list("torch.mp/")]


def gone(client):
    """Waits for the deletion, which nobody waits for."""
    until = time.monotonic() + 10
    while names(client) and time.monotonic() < until:
        time.sleep(0.01)
    return not names(client)


CASES = {
    "small": lambda: torch.arange(10.0),
    "big": lambda: torch.arange(float(BIG)),
    "bfloat16": lambda: torch.arange(BIG).to(torch.bfloat16),
    "float8": lambda: torch.arange(BIG).to(torch.float8_e4m3fn),
    "bool": lambda: torch.arange(BIG) % 3 == 0,
    "complex": lambda: torch.arange(BIG).to(torch.complex64),
    "scalar": lambda: torch.tensor(3),
    "empty": lambda: torch.empty(0, 3),
    "turned": lambda: torch.arange(BIG).reshape(10, -1).t(),
    "every second": lambda: torch.arange(BIG).reshape(10, -1)[:, ::2],
    "channels last": lambda: torch.rand(4, 16, 40, 40).to(memory_format=torch.channels_last),
    "a row": lambda: torch.arange(BIG * 4).reshape(4, -1)[2],
    "parameter": lambda: torch.nn.Parameter(torch.rand(BIG)),
    "leaf": lambda: torch.rand(BIG, requires_grad=True),
    "frozen": lambda: torch.nn.Parameter(torch.rand(5), requires_grad=False),
}


@pytest.mark.parametrize("name", CASES)
def test_it_arrives_as_it_was(there, name):
    tensor = CASES[name]()
    got = sent(tensor)
    assert type(got) is type(tensor) and got.dtype == tensor.dtype and got.shape == tensor.shape
    assert got.requires_grad == tensor.requires_grad and torch.equal(bits(got), bits(tensor))
    if name != "every second":
        assert got.stride() == tensor.stride()
    assert gone(there)


def test_a_message_is_few_objects(there):
    """However many tensors it has; and they count their changes each by itself."""
    given = [torch.full((BIG,), float(i)) for i in range(50)]  # 20 MB
    message = ForkingPickler.dumps({"a": given, "again": given[0], "large": torch.ones(5_000_000), "b": torch.ones(BIG).bool()})
    assert len(names(there)) == 3
    got = pickle.loads(message)
    assert gone(there) and there.stats()["objects"] == 3
    assert all(torch.equal(one, other) for one, other in zip(got["a"], given)) and got["again"] is got["a"][0]
    assert int(got["large"].sum()) == 5_000_000 and bool(got["b"].all())
    assert all(one.data_ptr() % 64 == 0 for one in got["a"])
    part = got["a"][3]
    del got
    gc.collect()
    assert there.stats()["objects"] == 1 and float(part.sum()) == 3 * BIG
    mp.options(writable="copy")
    try:
        one, other = sent([torch.ones(BIG), torch.zeros(BIG)])
        one += 1
        assert one._version == other._version + 1 and float(other.sum()) == 0
    finally:
        mp.options(writable=None)


def test_a_message_that_fails_leaves_nothing(there, monkeypatch):
    with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
        ForkingPickler.dumps([torch.ones(BIG), lambda: 0])
    assert not names(there)
    with pytest.raises(gpubufd.NoSpace):  # of the daemon's 256 MiB
        ForkingPickler.dumps([torch.ones(BIG), torch.empty(100 << 20)])
    assert gone(there)

    class Nested:
        def __reduce__(self):
            return pickle.loads, (bytes(ForkingPickler.dumps(torch.ones(BIG))),)

    one, two = sent([torch.zeros(BIG), Nested()])
    assert float(two.sum() - one.sum()) == BIG and gone(there)
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer)  # one that says nothing of its end
    pickler.dispatch_table = {torch.Tensor: mp._reduce}
    pickler.dump([torch.ones(BIG), torch.ones(BIG)])
    assert len(names(there)) == 2
    assert sum(float(one.sum()) for one in pickle.loads(buffer.getvalue())) == 2 * BIG and gone(there)


def test_the_receiver_frees_it(there):
    got = sent(torch.arange(float(BIG)))
    assert gone(there) and there.stats()["objects"] == 1  # without a name
    assert float(got[-1]) == BIG - 1
    del got
    gc.collect()
    assert there.stats()["objects"] == 0


def test_what_nobody_receives_ends_and_what_is_late_is_told(there):
    mp.options(ttl=0.2)
    try:
        message = ForkingPickler.dumps(torch.arange(BIG))
        assert names(there) and gone(there)
        with pytest.raises(gpubufd.NotFound, match="not within its ttl"):
            pickle.loads(message)
    finally:
        mp.options(ttl=60.0)
    message = ForkingPickler.dumps(torch.arange(BIG))
    first = pickle.loads(message)
    assert int(first[-1]) == BIG - 1 and gone(there)
    with pytest.raises(gpubufd.NotFound, match="received already"):
        pickle.loads(message)


@conftest.needs_root
def test_what_another_user_puts_in_its_place_is_not_received(there, daemon):
    mp.options(ttl=0.2, mode=0o644)
    try:
        message = ForkingPickler.dumps(torch.zeros(BIG))
        (name,) = names(there)
        assert gone(there)
    finally:
        mp.options(ttl=60.0, mode=None)
    conftest.as_another_user(daemon, f"c.put({name!r}, numpy.ones({4 * BIG}, 'u1'), mode=0o644)")
    with pytest.raises(PermissionError, match="is another user's"):
        pickle.loads(message)
    there.delete(name)
    mp.options(mode=0o644)
    try:
        assert float(sent(torch.ones(BIG)).sum()) == BIG and gone(there)
    finally:
        mp.options(mode=None)


def test_a_child_of_fork_holds_what_it_receives(there):
    """Its parent has received the same reference before."""
    gt.put_state_dict(there, "policy", {"w": torch.ones(BIG)})
    message = ForkingPickler.dumps(gt.get_state_dict(there, "policy")["w"])
    got = pickle.loads(message)

    def receive(pipe):
        again = pickle.loads(message)
        pipe.send(os.getpid() in [lease["pid"] for lease in _weights.default_client().leases()])
        pipe.send(float(again.sum()))

    ours, theirs = mp.get_context("fork").Pipe()
    child = mp.get_context("fork").Process(target=receive, args=(theirs,))
    child.start()
    assert ours.recv() is True and ours.recv() == float(got.sum()) == BIG
    child.join()


def test_what_is_published_is_sent_as_a_reference(there):
    gt.put_state_dict(there, "policy", {"w": torch.arange(float(BIG)), "b": torch.ones(3)})
    state = gt.get_state_dict(there, "policy")
    part = state["w"].reshape(10, -1)[3, 5:]
    for tensor in (state["w"], state["b"], part):
        message = ForkingPickler.dumps(tensor)
        assert len(message) < 250 and not names(there)
        got = pickle.loads(message)
        assert got.data_ptr() == tensor.data_ptr() and torch.equal(got, tensor)  # the same mapping, in this process
        again = pickle.loads(ForkingPickler.dumps(got))  # passed on
        assert again.data_ptr() == tensor.data_ptr() and not names(there)
    own = gt.get_state_dict(there, "policy", writable="copy")["w"]
    assert own.data_ptr() != state["w"].data_ptr() and len(ForkingPickler.dumps(own)) < 300 and len(names(there)) == 1
    there.delete(*names(there))
    mp.options(writable="copy")
    try:
        del got, again
        private = sent(part)
        private += 1
        assert torch.equal(private, part + 1)
    finally:
        mp.options(writable=None)
    there.delete("policy")
    message = ForkingPickler.dumps(state["b"])
    del state, part, own, tensor
    gc.collect()
    with pytest.raises(gpubufd.Error):
        pickle.loads(message)


def test_a_view_is_sent_as_a_copy(there):
    gt.put_state_dict(there, "policy", {"w": torch.ones(BIG)}, own=True)
    with gt.follow(there, "policy") as view:
        message = ForkingPickler.dumps(view["w"])
        gt.put_state_dict(there, "policy", {"w": torch.zeros(BIG)}, own=True, replace=True)
        view.switch()
        assert float(pickle.loads(message).sum()) == BIG


def test_what_is_pytorchs_own_stays_so(there):
    shared = torch.zeros(BIG).share_memory_()
    got = sent(shared)
    got += 1
    assert float(shared.sum()) == BIG and not names(there)
    assert torch.equal(sent(torch.eye(3).to_sparse()).to_dense(), torch.eye(3))
    with pytest.raises(RuntimeError, match="requires_grad"):
        ForkingPickler.dumps(torch.ones(3, requires_grad=True) * 2)


def test_without_a_daemon_it_says_so(there, monkeypatch, tmp_path):
    monkeypatch.setenv("GPUBUFD_SOCKET", str(tmp_path / "none"))
    monkeypatch.setattr(_weights._client, "connect", lambda path: gpubufd.connect(path, timeout=0.05))
    with pytest.raises(gpubufd.ConnectFailed):
        ForkingPickler.dumps(torch.arange(BIG))


def test_what_is_on_a_gpu_is_sent_together(gpu_run):
    """By the simulated driver, which PyTorch does not know: stand-ins for its tensors, and their bytes."""
    gpu_run("""
        import torch, gpubufd.torch.multiprocessing as mp
        from gpubufd import _client

        class Given:
            nbytes, device = 1000, torch.device("cuda", 0)
            def __init__(self, i):
                self.there = client.create(f"given/{i}", "uint8", 1000, device="cuda:0")
                self.there._write(0, 0, np.full(1000, i, "u1").ctypes.data, 1000, 0)
                self.there.seal()
            def data_ptr(self):
                return self.there._buffer(0).pointer

        def waits(stream, device):
            waited.append(stream)
            theirs(stream, device)

        with cuda.Stream(0) as stream:
            theirs, waited, mp._stream_on = _client.wait_for, [], lambda ordinal: stream.handle
            _client.wait_for, mp._messages.sent = waits, []
            places = [mp._placed(Given(i), 1000) for i in range(5)]
            sent, = mp._messages.sent
            sent.put()
        assert len(waited) == 1
        with client.get(sent.key[0]) as held:
            found = held.to_host().to_numpy()
            assert held.device.startswith("GPU-") and len(found) == places[-1][1] + 1000
        for i, (_, at) in enumerate(places):
            assert at % 256 == 0 and (found[at : at + 1000] == i).all()
        del sent, places
        client.delete("torch.mp/*", "given/*")
    """)


# ---- between processes ----


def send_and_end(queue):
    queue.put([torch.full((BIG,), 7.0), torch.ones(2)])
    queue.close()
    queue.join_thread()


def double(pipe, given):
    assert float(given[-1]) == BIG - 1
    while True:
        tensor = pipe.recv()
        if tensor is None:
            break
        pipe.send(tensor * 2)


def test_a_queue_outlives_its_sender(there):
    context = mp.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=send_and_end, args=(queue,))
    child.start()
    child.join()  # its memory is not its own
    assert child.exitcode == 0
    big, small = queue.get()
    assert float(big.sum()) == 7 * BIG and small.tolist() == [1, 1] and gone(there)


def test_spawn_and_pipes_and_fork(there):
    for method in ("spawn", "fork"):
        context = mp.get_context(method)
        ours, theirs = context.Pipe()
        child = context.Process(target=double, args=(theirs, torch.arange(float(BIG))))
        child.start()
        for value in (1.0, 2.0):
            ours.send(torch.full((BIG,), value))
            assert float(ours.recv()[-1]) == 2 * value
        ours.send(None)
        child.join()
        assert child.exitcode == 0 and gone(there)


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return torch.full((BIG // 10,), float(i * i))


def test_a_data_loader(there):
    loader = torch.utils.data.DataLoader(Squares(), batch_size=4, num_workers=2)
    assert [batch[:, -1].tolist() for batch in loader] == [[0, 1, 4, 9], [16, 25, 36, 49]]
    del loader
    assert gone(there)


APART = ["unshare", "--mount", "--pid", "--ipc", "--fork", "--mount-proc", "sh", "-c",
         "mount -t tmpfs none /dev/shm && exec \"$@\"", "sh"]
CONTAINERS = {
    "sends": """
        import sys, torch, gpubufd.torch as gt, gpubufd.torch.multiprocessing as mp, gpubufd
        from multiprocessing.reduction import ForkingPickler
        state = gt.get_state_dict(gpubufd.connect(), "policy")
        message = [state["w"], *(torch.full((100_000,), float(i)) for i in range(3))]
        sys.stdout.buffer.write(ForkingPickler.dumps(message))
    """,
    "receives": """
        import pickle, sys, torch, gpubufd.torch.multiprocessing
        shared, *tensors = pickle.load(sys.stdin.buffer)
        print(float(shared.sum()), [float(one.sum()) for one in tensors])
    """,
}


def in_a_container(daemon, program, message=b""):
    """The output of a program that shares the daemon's socket, and no process, /dev/shm or System V memory."""
    env = dict(os.environ, GPUBUFD_SOCKET=daemon.path, PYTHONPATH=str(conftest.PACKAGE), OMP_NUM_THREADS="1")
    done = subprocess.run([*APART, sys.executable, "-c", textwrap.dedent(CONTAINERS[program])], env=env, input=message,
                          capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def test_between_containers(there, daemon):
    if subprocess.run([*APART, "true"], capture_output=True, check=False).returncode:
        pytest.skip("namespaces are not permitted here")
    gt.put_state_dict(there, "policy", {"w": torch.ones(BIG)})
    message = in_a_container(daemon, "sends")
    assert len(names(there)) == 1 and len(message) < 1500
    assert in_a_container(daemon, "receives", message).decode().split() == f"{BIG:.1f} [0.0, {BIG:.1f}, {2 * BIG:.1f}]".split()
    assert gone(there)


# ---- PyTorch's half ----


def test_pytorch_pickles_by_what_is_registered_here():
    """The reductions are found where they are registered, and the module has what torch.multiprocessing has."""
    from torch.multiprocessing import reductions

    assert callable(reductions.reduce_tensor) and callable(reductions.init_reductions)
    reductions.init_reductions()
    assert ForkingPickler._extra_reducers[torch.Tensor] is reductions.reduce_tensor
    assert ForkingPickler._extra_reducers[torch.nn.Parameter] is reductions.reduce_tensor
    mp.init_reductions()
    assert ForkingPickler._extra_reducers[torch.Tensor] is mp._reduce
    assert not [name for name in torch.multiprocessing.__all__ if not hasattr(mp, name)]
    for used in (torch.multiprocessing.queue.ForkingPickler, multiprocessing.connection._ForkingPickler,
                 multiprocessing.queues._ForkingPickler):
        assert used is ForkingPickler  # all of them come by its dump()
    reductions.init_reductions()


def test_a_storage_keeps_what_is_noted_at_it():
    tensor = torch.arange(10.0)
    setattr(tensor.untyped_storage(), gt.REFERENCE, 1)
    part = tensor[2:]
    del tensor
    gc.collect()
    assert getattr(part.untyped_storage(), gt.REFERENCE) == 1
    copy = io.BytesIO()
    torch.save(part, copy)  # and it is not written along
    copy.seek(0)
    assert not hasattr(torch.load(copy).untyped_storage(), gt.REFERENCE)
