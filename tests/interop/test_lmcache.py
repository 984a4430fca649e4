"""LMCache's wrappers of cuMemCreate's memory, whose descriptors go by gpubufd, over the fake driver: LMCache's own tests with
our resolver in the place of theirs, from its sources; an engine and a server that share no namespace; engines that are killed.
"""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import conftest
import pytest
from peer import wait_until

pytest.importorskip("torch")
pytest.importorskip("cuda.bindings")

ROOT, HERE = conftest.ROOT, pathlib.Path(__file__).resolve().parent
SOURCES = pathlib.Path(sys.prefix, "sources", "lmcache-0.5.6")
TESTS = SOURCES / "tests/v1/platform/devices/cuda/test_vmm_ipc_wrapper.py"
TTL = 2.0
APART = ["unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc", "sh", "-c",
         "mount -t tmpfs none /dev/shm && exec \"$@\"", "sh"]

if not TESTS.exists():
    pytest.skip("needs LMCache's sources", allow_module_level=True)


@pytest.fixture(scope="module")
def there():
    """A daemon with a GPU of the fake driver, whose directory containers see, and the environment of programs beside it."""
    fake = conftest._module.FAKE_GPU
    if not (fake / "libcuda.so.1").exists():
        pytest.skip("needs tests/fakecuda")
    memory = tempfile.mkdtemp(prefix="gpubuf-gpu-", dir="/tmp")
    driver = {"LD_LIBRARY_PATH": str(fake), "FAKECUDA_DIR": memory}
    path = os.pathsep.join([str(HERE), str(ROOT / "client" / "lmcache"), os.environ.get("PYTHONPATH", "")])
    try:
        with conftest._module.standing(device="cuda:0:192M", env=driver) as place:
            place.environment = dict(os.environ, **driver, PYTHONPATH=path, GPUBUFD_SOCKET=place.path, OMP_NUM_THREADS="1",
                                     PYTHONDONTWRITEBYTECODE="1")
            yield place
            place.daemon.check_no_leaks()
            place.stop()
    finally:
        shutil.rmtree(memory, ignore_errors=True)


PAGE = re.search(r"^```python\n(.*?)^```", (ROOT / "docs" / "LMCACHE.md").read_text(), re.M | re.S)[1]
# LMCache's text, and ours in its place. It says "cuda:0" to PyTorch, whose tensors are the host's here.
CHANGES = {
    "from multiprocessing import get_context\n": "import lmcache_host\nfrom multiprocessing import get_context\n",
    'DEVICE = "cuda:0"\n': 'DEVICE = "cpu"\n' + PAGE,
    "    set_vmm_fd_resolver(lambda eid: os.dup(fds[0]))\n": "    gpubufd_lmcache.install()\n",
    "    export_id, fds, _flags, _addr = socket.recv_fds(sock, 4096, 1)\n": "    export_id, fds = wrapper._export_id, [os.dup(0)]\n",
    "            socket.send_fds(parent_sock, [export_id], [fd])\n": "",
}
# PyTorch's own way of sharing, and what wants a fabric.
NOT_HERE = {"test_factory_default_unaffected", "test_fabric_kind_allowed_under_isolated", "test_fabric_round_trip"}


def test_its_own_tests(there, tmp_path):
    text = TESTS.read_text()
    for theirs, ours in CHANGES.items():
        assert text.count(theirs) == 1, theirs
        text = text.replace(theirs, ours)
    (tmp_path / TESTS.name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, f"--rootdir={tmp_path}", "-rA",
         *(f"--deselect={TESTS.name}::{name}" for name in NOT_HERE), TESTS.name],
        env=there.environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    assert "PASSED " + TESTS.name + "::test_cross_process_round_trip_of_interior_view" in done.stdout
    assert " skipped" not in done.stdout.splitlines()[-1], done.stdout[-600:]


# ---- containers ----

# Each has imported LMCache, and is forked for each engine. An engine says what is sent to the server, and waits.
ENGINES = """
import lmcache_host, ctypes, os, signal, sys, gpubufd_lmcache, torch
import lmcache.v1.gpu_connector  # else each engine that is forked imports it anew
from cuda.bindings import driver
from lmcache.v1.platform.base.ipc_wrapper import DeviceIPCWrapper
from lmcache.v1.platform.devices.cuda.ipc_wrapper import VmmCudaIPCWrapper
gpubufd_lmcache.TTL = float(sys.argv[1])
gpubufd_lmcache.install()
driver.cuDriverGetVersion()  # loads the driver, which takes long, and does not initialise it
SIZE = 2 << 20

def memory():
    kinds = driver.CUmemAllocationHandleType
    prop = driver.CUmemAllocationProp()
    prop.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    prop.requestedHandleTypes = kinds.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    access = driver.CUmemAccessDesc()
    access.location.type, access.flags = prop.location.type, driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    with lmcache_host.device(0):
        base = int(driver.cuMemAddressReserve(SIZE, 0, 0, 0)[1])
        driver.cuMemMap(base, SIZE, 0, driver.cuMemCreate(SIZE, prop, 0)[1], 0)
        assert int(driver.cuMemSetAccess(base, SIZE, [access], 1)[0]) == 0
    return torch.frombuffer((ctypes.c_char * SIZE).from_address(base), dtype=torch.uint8)

for line in sys.stdin:
    what, _, value = line.strip().partition(" ")
    if what == "kill":
        os.kill(int(value), signal.SIGKILL)
        os.waitpid(int(value), 0)
        print("killed", flush=True)
        continue
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        view = memory()[4096:8192]
        view.fill_(int(value))
        wrapper = VmmCudaIPCWrapper(view)
        os.write(write, DeviceIPCWrapper.Serialize(wrapper).hex().encode() + b"\\n")
        os.close(write)
        signal.pause()
    os.close(write)
    with open(read) as file:
        print(pid, file.readline().strip(), flush=True)
"""
SERVER = """
import lmcache_host, os, sys, gpubufd_lmcache
from cuda.bindings import driver
from lmcache.v1.platform.base.ipc_wrapper import DeviceIPCWrapper
gpubufd_lmcache.install()
wrappers = {}
for line in sys.stdin:
    what, _, value = line.strip().partition(" ")
    if what == "open":
        try:
            wrapper = wrappers[value] = DeviceIPCWrapper.Deserialize(bytes.fromhex(value))
            tensor = wrapper.to_tensor()
            print(*sorted(set(tensor.tolist())), len(tensor), flush=True)
        except LookupError:
            print("gone", flush=True)
    elif what == "close":
        wrappers.pop(value).close()
        print("closed", flush=True)
    else:
        with lmcache_host.device(0):
            print(len(os.listdir("/proc/self/fd")), *driver.cuMemGetInfo()[1:], flush=True)
"""


@contextlib.contextmanager
def container(there, program, *arguments):
    """ask(line): the answer of a program that shares the daemon's socket and no process, /dev/shm or System V memory."""
    with subprocess.Popen([*APART, sys.executable, "-c", program, *arguments], env=there.environment, text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:

        def ask(line):
            process.stdin.write(line + "\n")
            process.stdin.flush()
            answer = process.stdout.readline().strip()
            assert answer, f"it has ended: {process.poll()}"
            return answer

        try:
            yield ask
        finally:
            process.send_signal(signal.SIGKILL)


def one_engine(peer, engines, server, value):
    """An engine shares, the server opens, and the engine is killed before the server closes, or after it; what was sent."""
    pid, message = engines(f"start {value % 251}").split()
    assert server(f"open {message}") == f"{value % 251} 4096"
    if value % 2:
        server(f"close {message}")
    assert engines(f"kill {pid}") == "killed"
    if value % 2 == 0:
        server(f"close {message}")
    return message


def renewed(peer, engines, server):
    """The name stays while its engine lives, so that the server may open it anew."""
    pid, message = engines("start 7").split()
    begun = time.monotonic()
    while time.monotonic() < begun + 2 * TTL:
        assert len(peer.names()) == 1
        time.sleep(TTL / 20)
    assert server(f"open {message}") == "7 4096" and server(f"close {message}") == "closed"
    engines(f"kill {pid}")


@pytest.mark.parametrize("rounds", [int(os.environ.get("GPUBUF_TEST_KILLS", 20))])
def test_engines_are_killed(there, rounds):
    if subprocess.run([*APART, "true"], capture_output=True, check=False).returncode:
        pytest.skip("namespaces are not permitted here")
    with container(there, ENGINES, str(TTL)) as engines, container(there, SERVER) as server, \
            contextlib.closing(there.daemon.connect()) as peer:
        wait_until(lambda: not peer.names())  # of other tests' engines
        renewed(peer, engines, server)
        wait_until(lambda: not peer.names())
        before = server("state")  # its descriptors, and the GPU's free memory
        messages = [one_engine(peer, engines, server, i) for i in range(rounds)]
        wait_until(lambda: not peer.names())
        wait_until(lambda: server("state") == before)  # the daemon closes what it lets go of a moment later
        assert peer.call("leases")["leases"] == []
        assert server(f"open {messages[-1]}") == "gone"
    there.daemon.check_no_leaks()
