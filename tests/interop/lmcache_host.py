"""A GPU for LMCache's tests and its wrappers of descriptors, over the fake driver, whose memory is on the host.

cuda-bindings call the fake driver; tensors are PyTorch's, of the host. CuPy only shows memory, and PyTorch's half of CUDA
only says which device there is, so a few lines stand in for both.
"""

import contextlib
import ctypes
import sys
import types

import torch
from cuda.bindings import driver

UUID = "fa4ecada-0000-4000-8000-000000000000"


@contextlib.contextmanager
def device(_):
    driver.cuInit(0)
    if int(driver.cuCtxGetCurrent()[1]) == 0:
        driver.cuCtxPushCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
    yield


class Flat:
    """cupy.ndarray of bytes."""

    def __init__(self, count, dtype, memptr):
        memory, offset = memptr
        whole = (ctypes.c_char * count).from_address(memory.address + offset)
        self.tensor = torch.frombuffer(whole, dtype=dtype)

    def __dlpack__(self, **asked):
        return self.tensor.__dlpack__()

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


driver.cuCtxSetCurrent = driver.cuCtxPushCurrent
torch.cuda.is_available = lambda: True
torch.cuda.device_count = lambda: 1
torch.cuda.get_device_properties = lambda _: types.SimpleNamespace(uuid=UUID)
torch.cuda.device = device
torch.cuda.init = torch.cuda.set_device = torch.cuda.synchronize = lambda *_: None
sys.modules["cupy"] = types.SimpleNamespace(ndarray=Flat, uint8=torch.uint8, cuda=types.SimpleNamespace(
    Device=device, MemoryPointer=lambda memory, offset: (memory, offset),
    UnownedMemory=lambda address, size, owner: types.SimpleNamespace(address=address, owner=owner)))
