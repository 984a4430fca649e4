"""The resources, by RMM's names and meanings."""

_current = {}


class CallbackMemoryResource:
    def __init__(self, allocate_func, deallocate_func):
        self._allocate, self._deallocate = allocate_func, deallocate_func

    def allocate(self, nbytes, stream=0):
        return self._allocate(nbytes, stream)

    def deallocate(self, address, nbytes, stream=0):
        self._deallocate(address, nbytes, stream)


def get_per_device_resource(device):
    return _current.setdefault(device, CallbackMemoryResource(None, None))


def set_per_device_resource(device, resource):
    _current[device] = resource
