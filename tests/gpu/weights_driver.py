"""The driver's own time for new memory, beside which weights.py puts publishing."""

import ctypes

import torch

from gpubufd.cuda import Device, _call

GRANULE = 2 << 20


class AllocationProp(ctypes.Structure):
    """CUmemAllocationProp: pinned memory of a device, with a descriptor."""

    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("place", ctypes.c_int), ("device", ctypes.c_int),
                ("metadata", ctypes.c_void_p), ("flags", ctypes.c_ubyte * 8)]


class AccessDesc(ctypes.Structure):
    _fields_ = [("place", ctypes.c_int), ("device", ctypes.c_int), ("access", ctypes.c_int)]


def rounds(size, turns, timed):
    """[[seconds to create and map, to copy into it, to unmap and release], …] of memory of that size."""
    size = (size + GRANULE - 1) // GRANULE * GRANULE
    source = torch.empty(size, dtype=torch.uint8, device="cuda")
    device = torch.cuda.current_device()
    handle, address = ctypes.c_ulonglong(), ctypes.c_uint64()
    whole = ctypes.c_size_t(size)

    def make():
        prop = AllocationProp(1, 1, 1, device)
        _call("cuMemCreate", ctypes.byref(handle), whole, ctypes.byref(prop), ctypes.c_ulonglong())
        _call("cuMemAddressReserve", ctypes.byref(address), whole, ctypes.c_size_t(), ctypes.c_uint64(),
              ctypes.c_ulonglong())
        _call("cuMemMap", address, whole, ctypes.c_size_t(), handle, ctypes.c_ulonglong())
        _call("cuMemSetAccess", address, whole, ctypes.byref(AccessDesc(1, device, 3)), ctypes.c_size_t(1))

    def copy():
        _call("cuMemcpyDtoDAsync_v2", address, ctypes.c_uint64(source.data_ptr()), whole, ctypes.c_void_p(1))
        torch.cuda.synchronize()

    def drop():
        _call("cuMemUnmap", address, whole)
        _call("cuMemAddressFree", address, whole)
        _call("cuMemRelease", handle)

    with Device(device):
        return [[timed(step) for step in (make, copy, drop)] for _ in range(turns)]
