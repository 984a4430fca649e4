// On a machine with a GPU: what this package puts there, Python opens by its legacy handle and sees, and the
// other way round; copies to the host and pointers. `make node-smoke` packs it with Node and the rest for
// machines without Node; scripts/node-smoke runs it.
//
//   gpu-smoke.mjs                       of the daemon at $GPUBUFD_SOCKET
//   gpu-smoke.mjs --device cuda:0 --python python3

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
    data: { type: 'string' }
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

// Processes of their own, as CUDA refuses a handle in the process that made it. They call the driver itself.
const DRIVER = `
import base64, ctypes, json, os, socket, sys
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 64)]
ask, driver = json.loads(sys.argv[1]), ctypes.CDLL("libcuda.so.1")
def call(function, *arguments):
    code = getattr(driver, function)(*arguments)
    if code: raise SystemExit(f"{function}: CUDA error {code}")
driver.cuIpcOpenMemHandle_v2.argtypes = [ctypes.c_void_p, Handle, ctypes.c_uint]
driver.cuIpcCloseMemHandle.argtypes = [ctypes.c_uint64]
driver.cuMemcpyDtoH_v2.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t]
driver.cuMemcpyHtoD_v2.argtypes = [ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t]
context, number, pointer = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_uint64()
call("cuInit", 0)
call("cuDeviceGet", ctypes.byref(number), ask["device"])
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), number)
call("cuCtxPushCurrent_v2", context)
`

const READ = DRIVER + `
call("cuIpcOpenMemHandle_v2", ctypes.byref(pointer), Handle.from_buffer_copy(bytes(ask["handle"])), 1)
out = (ctypes.c_double * (ask["byteLength"] // 8))()
call("cuMemcpyDtoH_v2", out, pointer.value + ask["byteOffset"], ask["byteLength"])
print(json.dumps({"sum": sum(out), "first": out[:3]}))
call("cuIpcCloseMemHandle", pointer.value)
`

/** A publisher in Python: it speaks the raw protocol, and fills the memory that it is given. */
const PUBLISH = DRIVER + `
peer = socket.socket(socket.AF_UNIX)
peer.connect(os.environ["GPUBUFD_SOCKET"])
lines = peer.makefile("rb")
def request(method, **params):
    peer.sendall((json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}) + "\\n").encode())
    answer = json.loads(lines.readline())
    if "error" in answer: raise SystemExit(answer["error"]["message"])
    return answer["result"]
count = 100_000
made = request("create", name=ask["name"], layout={"kind": "column", "dtype": "float64", "length": count}, device=ask["on"], share="ipc", replace=True)
buffer = made["object"]["layout"]["data"]
(segment,) = [one for one in made["segments"] if one["id"] == buffer["segment"]]
call("cuIpcOpenMemHandle_v2", ctypes.byref(pointer), Handle.from_buffer_copy(base64.b64decode(segment["handle"]["ipc"])), 1)
values = (ctypes.c_double * count)(*[i * 0.5 for i in range(count)])
call("cuMemcpyHtoD_v2", pointer.value + buffer["offset"], values, count * 8)
request("seal", lease=made["lease"], release=True)
print("{}")
`

async function python (program, ask) {
  const { stdout } = await execute(options.python, ['-c', program, JSON.stringify(ask)], { maxBuffer: 1 << 26 })
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
  const seen = await python(READ, { handle: [...handle], ...place })
  assert.deepEqual([seen.sum, seen.first], [total, [0.5, 1.5, 2.5]])
  const part = await column.slice(100, 200).ipcHandle()
  const some = await python(READ, { ...part, handle: [...part.handle] })
  assert.deepEqual(some.first, [100.5, 101.5, 102.5])
  column.release()
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
