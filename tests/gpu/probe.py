"""How the CUDA driver answers where gpubufd, its library or tests/fakecuda count on an answer.

Runs in a worker; each question is a method, and its answer a word or a short sentence. The
answers of tests/fakecuda are in probe.json; check_driver.py compares.
"""

import ctypes
import os
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p

import gpu_driver as cuda

SIZE = 4 << 20
UNBACKED = 0x1234  # what is no handle and no pointer


def names(_):
    """All questions to a process that has a context, in the order in which they stand below."""
    return [name for name in vars(Questions) if not name.startswith("_")]


def ask(work, name):
    """[the answer to one question, whether the context is still good]"""
    try:
        answer = getattr(Questions(work.cu), name)()
    except cuda.CudaError as error:
        answer = f"could not be asked: {error}"
    return answer, work.cu.result("cuCtxSynchronize") == "CUDA_SUCCESS"


def ask_without_context(work):
    """The same for a process that has done no more than cuInit, as the daemon."""
    cu, answers = work.cu, {}
    pointer, handle, fd = c_uint64(), c_uint64(), c_int(-1)

    def note(name, function, *arguments):
        answers[f"{name}_without_context"] = cu.result(function, *arguments)

    note("create", "cuMemCreate", byref(handle), SIZE, byref(cuda.exportable(0)), 0)
    note("export", "cuMemExportToShareableHandle", byref(fd), handle.value, cuda.FD, 0)
    note("import", "cuMemImportFromShareableHandle", byref(handle), c_void_p(fd.value), cuda.FD)
    properties = cuda.Properties()
    note("properties", "cuMemGetAllocationPropertiesFromHandle", byref(properties), handle.value)
    note("reserve", "cuMemAddressReserve", byref(pointer), SIZE, 0, 0, 0)
    note("map", "cuMemMap", pointer.value, SIZE, 0, handle.value, 0)
    access = cuda.Access(cuda.Location(1, 0), cuda.READWRITE)
    note("set_access", "cuMemSetAccess", pointer.value, SIZE, byref(access), 1)
    note("unmap", "cuMemUnmap", pointer.value, SIZE)
    note("free_address", "cuMemAddressFree", pointer.value, SIZE)
    note("release", "cuMemRelease", handle.value)
    note("alloc", "cuMemAlloc", byref(pointer), SIZE)
    note("info", "cuMemGetInfo", byref(c_size_t()), byref(c_size_t()))
    note("address_range", "cuMemGetAddressRange", byref(c_uint64()), byref(c_size_t()), UNBACKED)
    note("stream", "cuStreamCreate", byref(c_void_p()), 0)
    note("event", "cuEventCreate", byref(c_void_p()), 0)
    active = c_int()
    cu.cuDevicePrimaryCtxGetState(0, byref(c_uint()), byref(active))
    answers["context_active_after_all_that"] = str(bool(active.value))
    return answers


class Questions:
    def __init__(self, cu):
        self._cu = cu

    def _import(self, fd):
        return self._cu.result("cuMemImportFromShareableHandle", byref(c_uint64()), c_void_p(fd),
                               cuda.FD)

    def _mapped(self, flags=cuda.READWRITE):
        return self._cu.map(self._cu.create(SIZE), SIZE, flags)

    def _attribute(self, pointer, which, kind=c_uint64):
        value = kind()
        result = self._cu.result("cuPointerGetAttribute", byref(value), which, pointer)
        return value.value if result == "CUDA_SUCCESS" else result

    # ---- sizes and properties ----

    def granularity(self):
        count = c_size_t()
        self._cu.cuMemGetAllocationGranularity(byref(count), byref(cuda.exportable(0)), 0)
        return str(count.value)

    def create_odd_size(self):
        return self._cu.result("cuMemCreate", byref(c_uint64()), SIZE + 4096,
                               byref(cuda.exportable(0)), 0)

    def create_nothing(self):
        return self._cu.result("cuMemCreate", byref(c_uint64()), 0, byref(cuda.exportable(0)), 0)

    def create_on_no_device(self):
        return self._cu.result("cuMemCreate", byref(c_uint64()), SIZE, byref(cuda.exportable(77)), 0)

    def create_too_much(self):
        return self._cu.result("cuMemCreate", byref(c_uint64()), 1 << 50, byref(cuda.exportable(0)),
                               0)

    def create_in_a_forked_child(self):
        ours, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            answer = self._cu.result("cuMemCreate", byref(c_uint64()), SIZE, byref(cuda.exportable(0)), 0)
            os.write(theirs, answer.encode())
            os._exit(0)
        os.waitpid(child, 0)
        answer = os.read(ours, 100).decode()
        os.close(ours)
        os.close(theirs)
        return answer

    def new_memory_is_zero(self):
        pointer = self._mapped()
        return str(self._cu.sum(pointer, SIZE) == 0)

    def properties_of_import(self):
        fd = self._cu.export(self._cu.create(SIZE))
        properties = cuda.Properties()
        self._cu.cuMemGetAllocationPropertiesFromHandle(byref(properties), self._cu.import_fd(fd))
        os.close(fd)
        return (f"type {properties.type}, handle types {properties.requestedHandleTypes}, location "
                f"{properties.location.type}:{properties.location.id}")

    # ---- descriptors ----

    def export_not_exportable(self):
        return self._cu.result("cuMemExportToShareableHandle", byref(c_int()),
                               self._cu.create(SIZE, handle_types=0), cuda.FD, 0)

    def export_imported(self):
        fd = self._cu.export(self._cu.create(SIZE))
        return self._cu.result("cuMemExportToShareableHandle", byref(c_int()),
                               self._cu.import_fd(fd), cuda.FD, 0)

    def exported_is_cloexec(self):
        fd = self._cu.export(self._cu.create(SIZE))
        return str(not os.get_inheritable(fd))

    def import_memfd(self):
        fd = os.memfd_create("probe")
        os.ftruncate(fd, SIZE)
        return self._import(fd)

    def import_dev_null(self):
        return self._import(os.open("/dev/null", os.O_RDWR))

    def import_pipe(self):
        return self._import(os.pipe()[0])

    def import_closed(self):
        return self._import(9999)

    def import_minus_one(self):
        return self._import(-1)

    def import_twice(self):
        fd = self._cu.export(self._cu.create(SIZE))
        return f"{self._import(fd)}, {self._import(fd)}"

    def import_dup(self):
        return self._import(os.dup(self._cu.export(self._cu.create(SIZE))))

    def export_twice(self):
        handle = self._cu.create(SIZE)
        return str(self._cu.export(handle) != self._cu.export(handle))

    # ---- addresses ----

    def reserve_odd_size(self):
        return self._cu.result("cuMemAddressReserve", byref(c_uint64()), SIZE + 4096, 0, 0, 0)

    def map_larger(self):
        return self._map_as(2 * SIZE)

    def map_smaller(self):
        return self._map_as(SIZE // 2)

    def _map_as(self, count):
        pointer, handle = c_uint64(), self._cu.create(SIZE)
        self._cu.cuMemAddressReserve(byref(pointer), 2 * SIZE, 0, 0, 0)
        return self._cu.result("cuMemMap", pointer.value, count, 0, handle, 0)

    def map_import_larger(self):
        fd, pointer = self._cu.export(self._cu.create(SIZE)), c_uint64()
        self._cu.cuMemAddressReserve(byref(pointer), 2 * SIZE, 0, 0, 0)
        return self._cu.result("cuMemMap", pointer.value, 2 * SIZE, 0, self._cu.import_fd(fd), 0)

    def map_at_offset(self):
        pointer, handle = c_uint64(), self._cu.create(SIZE)
        self._cu.cuMemAddressReserve(byref(pointer), SIZE, 0, 0, 0)
        return self._cu.result("cuMemMap", pointer.value, SIZE // 2, SIZE // 2, handle, 0)

    def map_twice(self):
        handle = self._cu.create(SIZE)
        pointer = c_uint64()
        self._cu.cuMemAddressReserve(byref(pointer), SIZE, 0, 0, 0)
        self._cu.cuMemMap(pointer.value, SIZE, 0, handle, 0)
        return self._cu.result("cuMemMap", pointer.value, SIZE, 0, handle, 0)

    def map_nowhere(self):
        return self._cu.result("cuMemMap", 1 << 40, SIZE, 0, self._cu.create(SIZE), 0)

    def unmap_half(self):
        return self._cu.result("cuMemUnmap", self._mapped(), SIZE // 2)

    def free_address_while_mapped(self):
        return self._cu.result("cuMemAddressFree", self._mapped(), SIZE)

    def access_none_then_copy(self):
        pointer, handle = c_uint64(), self._cu.create(SIZE)
        self._cu.cuMemAddressReserve(byref(pointer), SIZE, 0, 0, 0)
        self._cu.cuMemMap(pointer.value, SIZE, 0, handle, 0)
        return self._cu.result("cuMemcpyHtoD", pointer.value, b"x" * 64, 64)

    def access_write_only(self):
        pointer, access = self._mapped(), cuda.Access(cuda.Location(1, 0), 2)
        return self._cu.result("cuMemSetAccess", pointer, SIZE, byref(access), 1)

    def access_changed_to_read(self):
        pointer = self._mapped()
        access = cuda.Access(cuda.Location(1, 0), cuda.READ)
        return self._cu.result("cuMemSetAccess", pointer, SIZE, byref(access), 1)

    def access_asked_for(self):
        flags, location = ctypes.c_ulonglong(), cuda.Location(1, 0)
        self._cu.cuMemGetAccess(byref(flags), byref(location), self._mapped(cuda.READ))
        return str(flags.value)

    # ---- copies ----

    def copy_to_read_only(self):
        return self._cu.result("cuMemcpyHtoD", self._mapped(cuda.READ), b"x" * 64, 64)

    def copy_to_read_only_async(self):
        stream = self._cu.stream()
        result = self._cu.result("cuMemcpyHtoDAsync", self._mapped(cuda.READ), b"x" * 64, 64, stream)
        return f"{result}, {self._cu.result('cuStreamSynchronize', stream)}"

    def copy_within_device_to_read_only(self):
        return self._cu.result("cuMemcpyDtoD", self._mapped(cuda.READ), self._mapped(), 64)

    def copy_from_read_only(self):
        return self._cu.result("cuMemcpyDtoH", ctypes.create_string_buffer(64),
                               self._mapped(cuda.READ), 64)

    def copy_past_the_end(self):
        return self._cu.result("cuMemcpyDtoH", ctypes.create_string_buffer(8192),
                               self._mapped() + SIZE - 4096, 8192)

    def copy_from_no_pointer(self):
        return self._cu.result("cuMemcpyDtoH", ctypes.create_string_buffer(64), UNBACKED, 64)

    def copy_within_device_to_unbacked(self):
        return self._cu.result("cuMemcpyDtoD", self._mapped(), UNBACKED, 64)

    # ---- legacy handles ----

    def handle_of_vmm_memory(self):
        return self._cu.result("cuIpcGetMemHandle", byref(cuda.Handle64()), self._mapped())

    def handle_of_interior_pointer(self):
        pointer = self._cu.allocate(SIZE)
        return str(self._cu.ipc_handle(pointer) == self._cu.ipc_handle(pointer + 4096))

    def handle_of_host_memory(self):
        return self._cu.result("cuIpcGetMemHandle", byref(cuda.Handle64()), self._cu.pinned(4096))

    def handle_of_no_pointer(self):
        return self._cu.result("cuIpcGetMemHandle", byref(cuda.Handle64()), UNBACKED)

    def open_own_handle(self):
        octets = self._cu.ipc_handle(self._cu.allocate(SIZE))
        handle = cuda.Handle64.from_buffer_copy(octets)
        return self._cu.result("cuIpcOpenMemHandle", byref(c_uint64()), handle, 1)

    def open_zeros(self):
        return self._cu.result("cuIpcOpenMemHandle", byref(c_uint64()), cuda.Handle64(), 1)

    def close_what_was_not_opened(self):
        return self._cu.result("cuIpcCloseMemHandle", self._cu.allocate(SIZE))

    def event_handle_of_plain_event(self):
        event = c_void_p()
        self._cu.cuEventCreate(byref(event), 2)
        return self._cu.result("cuIpcGetEventHandle", byref(cuda.Handle64()), event)

    def interprocess_event_with_timing(self):
        return self._cu.result("cuEventCreate", byref(c_void_p()), 4)

    def open_own_event(self):
        _, octets = self._cu.event()
        handle = cuda.Handle64.from_buffer_copy(octets)
        return self._cu.result("cuIpcOpenEventHandle", byref(c_void_p()), handle)

    # ---- what a pointer is ----

    def vmm_is_legacy_capable(self):
        return str(self._attribute(self._mapped(), 10, ctypes.c_ubyte))

    def allocated_is_legacy_capable(self):
        return str(self._attribute(self._cu.allocate(SIZE), 10, ctypes.c_ubyte))

    def vmm_allowed_handle_types(self):
        return str(self._attribute(self._mapped(), 14))

    def vmm_not_exportable_handle_types(self):
        pointer = self._cu.map(self._cu.create(SIZE, handle_types=0), SIZE, cuda.READWRITE)
        return str(self._attribute(pointer, 14))

    def vmm_imported_handle_types(self):
        fd = self._cu.export(self._cu.create(SIZE))
        pointer = self._cu.map(self._cu.import_fd(fd), SIZE, cuda.READWRITE)
        return str(self._attribute(pointer, 14))

    def allocated_handle_types(self):
        return str(self._attribute(self._cu.allocate(SIZE), 14))

    def vmm_context_attribute(self):
        return str(self._attribute(self._mapped(), 1) == 0)

    def vmm_device_ordinal(self):
        return str(self._attribute(self._mapped(), 9, c_int))

    def vmm_access_flags(self):
        return str(self._attribute(self._mapped(cuda.READ), 16, c_uint))

    def vmm_range_of_two_mappings(self):
        """One reservation, two allocations side by side: whose range is told?"""
        pointer = c_uint64()
        self._cu.cuMemAddressReserve(byref(pointer), 2 * SIZE, 0, 0, 0)
        for i in range(2):
            self._cu.cuMemMap(pointer.value + i * SIZE, SIZE, 0, self._cu.create(SIZE), 0)
        self._cu.set_access(pointer.value, 2 * SIZE, cuda.READWRITE)
        base, count = self._cu.address_range(pointer.value + SIZE + 4096)
        start = self._attribute(pointer.value + SIZE + 4096, 11)
        size = self._attribute(pointer.value + SIZE + 4096, 12)
        return (f"cuMemGetAddressRange +{base - pointer.value} {count}, "
                f"attributes +{start - pointer.value} {size}")

    def unknown_pointer_attribute(self):
        return str(self._attribute(UNBACKED, 10, ctypes.c_ubyte))

    def host_pointer_attribute(self):
        return str(self._attribute(ctypes.addressof(ctypes.create_string_buffer(8)), 2, c_uint))

    def host_pointer_attributes(self):
        which, memory, ordinal = (c_int * 2)(2, 9), c_uint(7), c_int(7)
        data = (c_void_p * 2)(ctypes.addressof(memory), ctypes.addressof(ordinal))
        result = self._cu.result("cuPointerGetAttributes", 2, which, data, UNBACKED)
        return f"{result}, memory type {memory.value}, ordinal {ordinal.value}"

    def address_range_of_no_pointer(self):
        return self._cu.result("cuMemGetAddressRange", byref(c_uint64()), byref(c_size_t()), UNBACKED)

    # ---- contexts and streams ----

    def free_twice(self):
        pointer = self._cu.allocate(SIZE)
        self._cu.cuMemFree(pointer)
        return self._cu.result("cuMemFree", pointer)

    def free_vmm(self):
        return self._cu.result("cuMemFree", self._mapped())

    def peer_of_itself(self):
        can = c_int()
        result = self._cu.result("cuDeviceCanAccessPeer", byref(can), 0, 0)
        return f"{result}, {can.value}"

    def register_host_twice(self):
        page = ctypes.create_string_buffer(8192)
        at = (ctypes.addressof(page) + 4095) & ~4095
        first = self._cu.result("cuMemHostRegister", at, 4096, 1)
        second = self._cu.result("cuMemHostRegister", at, 4096, 1)
        self._cu.result("cuMemHostUnregister", at)
        return f"{first}, {second}, {self._cu.result('cuMemHostUnregister', at)}"

    def query_no_event_recorded(self):
        event, _ = self._cu.event()
        return self._cu.result("cuEventQuery", event)
