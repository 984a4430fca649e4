// On a machine with a GPU: what this package puts there, CuPy opens by its legacy handle and sees, and the
// other way round; copies to the host and pointers. `make node-smoke` packs it with Node and the rest for
// machines without Node; scripts/node-smoke runs it.
//
//   gpu-smoke.mjs                       of the daemon at $GPUBUFD_SOCKET
//   gpu-smoke.mjs --device cuda:0 --python python3 [--fake]
//
// --fake: the driver is tests/fakecuda, and Python takes the handle by the driver's functions alone, which it
// does also where there is no CuPy.

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { parseArgs, promisify } from 'node:util'

const { values: options } = parseArgs({
  options: {
    device: { type: 'string', default: 'cuda:0' },
    python: { type: 'string', default: 'python3' },
    package: { type: 'string', default: 'gpubufd' },
    data: { type: 'string' },
    fake: { type: 'boolean', default: false }
  }
})
const execute = promisify(execFile)
const { connect, setArrow } = await import(options.package)
const arrow = await import('apache-arrow').then(module => (setArrow(module), module), () => undefined)

const client = await connect({ name: 'gpu-smoke' })
const { device } = options
let passed = 0
const check = async (what, work) => {
  const started = performance.now()
  const said = await work()
  console.log(`ok ${++passed} ${what}${said ? `: ${said}` : ''} (${(performance.now() - started).toFixed(1)} ms)`)
}

// A process of its own, as CUDA refuses a handle in the process that made it.
const PYTHON = `
import base64, ctypes, json, struct, sys
ask = json.loads(sys.argv[1])
handle = bytes(ask["handle"])
def checked(code, what):
    if code: raise SystemExit(f"{what}: CUDA error {code}")
if ask["cupy"]:
    import cupy, numpy
    pointer = cupy.cuda.runtime.ipcOpenMemHandle(handle)
    memory = cupy.cuda.UnownedMemory(pointer + ask["byteOffset"], ask["byteLength"], None)
    array = cupy.ndarray((ask["byteLength"] // 8,), "f8", cupy.cuda.MemoryPointer(memory, 0))
    print(json.dumps({"sum": float(array.sum()), "first": array[:3].tolist(), "with": "CuPy " + cupy.__version__}))
    cupy.cuda.runtime.ipcCloseMemHandle(pointer)
else:
    class Handle(ctypes.Structure):
        _fields_ = [("bytes", ctypes.c_char * 64)]
    driver = ctypes.CDLL("libcuda.so.1")
    context, number, pointer = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_uint64()
    checked(driver.cuInit(0), "cuInit")
    checked(driver.cuDeviceGet(ctypes.byref(number), ask["device"]), "cuDeviceGet")
    checked(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), number), "cuDevicePrimaryCtxRetain")
    checked(driver.cuCtxPushCurrent_v2(context), "cuCtxPushCurrent")
    opened = Handle.from_buffer_copy(handle)
    driver.cuIpcOpenMemHandle_v2.argtypes = [ctypes.c_void_p, Handle, ctypes.c_uint]
    checked(driver.cuIpcOpenMemHandle_v2(ctypes.byref(pointer), opened, 1), "cuIpcOpenMemHandle")
    out = (ctypes.c_double * (ask["byteLength"] // 8))()
    driver.cuMemcpyDtoH_v2.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t]
    checked(driver.cuMemcpyDtoH_v2(out, pointer.value + ask["byteOffset"], ask["byteLength"]), "cuMemcpyDtoH")
    print(json.dumps({"sum": sum(out), "first": out[:3], "with": "the driver"}))
    driver.cuIpcCloseMemHandle.argtypes = [ctypes.c_uint64]
    checked(driver.cuIpcCloseMemHandle(pointer.value), "cuIpcCloseMemHandle")
`

/** A publisher in Python: it speaks the raw protocol, and fills the memory that it is given. */
const PUBLISH = `
import base64, ctypes, json, os, socket, sys
ask = json.loads(sys.argv[1])
peer = socket.socket(socket.AF_UNIX)
peer.connect(os.environ["GPUBUFD_SOCKET"])
lines = peer.makefile("rb")
def call(method, **params):
    peer.sendall((json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}) + "\\n").encode())
    answer = json.loads(lines.readline())
    if "error" in answer: raise SystemExit(answer["error"]["message"])
    return answer["result"]
count = 100_000
made = call("create", name=ask["name"], layout={"kind": "column", "dtype": "float64", "length": count}, device=ask["on"], share="ipc", replace=True)
buffer = made["object"]["layout"]["data"]
(segment,) = [one for one in made["segments"] if one["id"] == buffer["segment"]]
handle = base64.b64decode(segment["handle"]["ipc"])
if ask["cupy"]:
    import cupy
    pointer = cupy.cuda.runtime.ipcOpenMemHandle(handle)
    memory = cupy.cuda.UnownedMemory(pointer + buffer["offset"], count * 8, None)
    array = cupy.ndarray((count,), "f8", cupy.cuda.MemoryPointer(memory, 0))
    array[:] = cupy.arange(count) * 0.5
    cupy.cuda.Device().synchronize()
else:
    class Handle(ctypes.Structure):
        _fields_ = [("bytes", ctypes.c_char * 64)]
    driver = ctypes.CDLL("libcuda.so.1")
    context, number, pointer = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_uint64()
    assert driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(number), ask["device"]) == 0
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), number) == 0 and driver.cuCtxPushCurrent_v2(context) == 0
    driver.cuIpcOpenMemHandle_v2.argtypes = [ctypes.c_void_p, Handle, ctypes.c_uint]
    assert driver.cuIpcOpenMemHandle_v2(ctypes.byref(pointer), Handle.from_buffer_copy(handle), 1) == 0
    values = (ctypes.c_double * count)(*[i * 0.5 for i in range(count)])
    driver.cuMemcpyHtoD_v2.argtypes = [ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t]
    assert driver.cuMemcpyHtoD_v2(pointer.value + buffer["offset"], values, count * 8) == 0
call("seal", lease=made["lease"], release=True)
if ask["cupy"]: cupy.cuda.runtime.ipcCloseMemHandle(pointer)
print("{}")
`

const hasCupy = !options.fake && await execute(options.python, ['-c', 'import cupy']).then(() => true, () => false)
async function python (program, ask) {
  const { stdout } = await execute(options.python, ['-c', program, JSON.stringify({ cupy: hasCupy, ...ask })], { maxBuffer: 1 << 26 })
  return JSON.parse(stdout)
}

const COUNT = 1 << 20
const numbers = Float64Array.from({ length: COUNT }, (_, i) => i % 1000 + 0.5)
const total = numbers.reduce((sum, value) => sum + value, 0)

await check(`put to ${device} and toHost()`, async () => {
  await client.put('smoke/numbers', numbers, { device, as: 'column', replace: true })
  const column = await client.open('smoke/numbers')
  assert.notEqual(column.device, 'host')
  assert.throws(() => column.values, { kind: 'unsupported' })
  assert.ok(column.deviceData.ptr > 0n)
  if (arrow) {
    assert.deepEqual((await column.toHost()).toArray(), numbers)
    assert.deepEqual((await column.slice(1000, 2000).toHost()).toArray(), numbers.slice(1000, 2000))
  }
  column.release()
  return `${column.name} on ${(await client.stat('smoke/numbers')).device}`
})

await check('strings, nulls, and a dictionary', async () => {
  if (!arrow) return 'left out: no apache-arrow'
  const city = ['Linz', null, 'Graz', 'größer', null, '']
  const kind = arrow.vectorFromArray(['a', 'b', null, 'a', 'a', 'b'], new arrow.Dictionary(new arrow.Utf8(), new arrow.Int8()))
  await client.put('smoke/table', { city, n: Int32Array.of(1, 2, 3, 4, 5, 6), kind }, { device, replace: true })
  const table = await client.open('smoke/table')
  const host = await table.toHost()
  assert.deepEqual([...host.getChild('city')], city)
  assert.deepEqual([...host.getChild('kind')], [...kind])
  assert.deepEqual([...(await table.slice(2, 5).toHost()).getChild('city')], city.slice(2, 5))
  table.release()
})

await check('200 000 flights from an Arrow file', async () => {
  if (!arrow || !options.data) return 'left out: no apache-arrow, or no --data'
  const file = await readFile(path.join(options.data, 'flights-200k.arrow'))
  await client.put('smoke/flights', file, { device, replace: true })
  const flights = await client.open('smoke/flights')
  const [got, expected] = [await flights.toHost(), arrow.tableFromIPC(file)]
  for (const { name } of expected.schema.fields) assert.deepEqual(got.getChild(name).toArray(), expected.getChild(name).toArray())
  flights.release()
})

await check('ipcHandle(), opened by Python', async () => {
  await client.put('smoke/ipc', { a: Int32Array.of(1, 2, 3), b: numbers }.b, { device, share: 'ipc', as: 'column', replace: true })
  const column = await client.open('smoke/ipc')
  const { handle, ...place } = await column.ipcHandle()
  assert.equal(handle.length, 64)
  assert.equal(place.byteLength, COUNT * 8)
  const seen = await python(PYTHON, { handle: [...handle], ...place })
  assert.deepEqual([seen.sum, seen.first], [total, [0.5, 1.5, 2.5]])
  const part = await column.slice(100, 200).ipcHandle()
  const some = await python(PYTHON, { ...part, handle: [...part.handle] })
  assert.deepEqual(some.first, [100.5, 101.5, 102.5])
  column.release()
  return seen.with
})

await check('filled by Python through the handle, opened here', async () => {
  await python(PUBLISH, { name: 'smoke/python', on: device, device: 0 })
  const column = await client.open('smoke/python')
  assert.equal(column.length, 100_000)
  if (arrow) {
    const got = (await column.toHost()).toArray()
    assert.ok(got.every((value, i) => value === i * 0.5))
  }
  column.release()
})

await check('many copies at once', async () => {
  if (!arrow) return 'left out: no apache-arrow'
  const column = await client.open('smoke/numbers')
  const bytes = COUNT * 8 * 64
  const started = performance.now()
  const all = await Promise.all(Array.from({ length: 64 }, () => column.toHost()))
  const seconds = (performance.now() - started) / 1000
  assert.ok(all.every(vector => vector.get(12345) === numbers[12345] && vector.get(COUNT - 1) === numbers[COUNT - 1]))
  column.release()
  return `${(bytes / seconds / 1e9).toFixed(2)} GB/s`
})

await check('nothing is left', async () => {
  await client.delete(['numbers', 'table', 'flights', 'ipc', 'python'].map(name => `smoke/${name}`)).catch(() => {})
  assert.deepEqual((await client.leases()).leases, [])
})

client.close()
console.log(`${passed} passed, 0 failed`)
