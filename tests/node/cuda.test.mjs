// Objects on a GPU, on the driver of tests/fakecuda, which programs of their own are given: it must be
// there when they start. examples/raw.mjs, too.

import assert from 'node:assert/strict'
import { execFile, spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import readline from 'node:readline'
import test from 'node:test'
import { promisify } from 'node:util'
import { HERE, PACKAGE, PYTHON, PYTHONPATH, ROOT, arrow, fixtureWithGpu, noGpu, run, withoutPython } from './harness.mjs'

const UUID = 'GPU-fa4ecada-0000-4000-8000-000000000000'
const skip = noGpu
const noPython = await withoutPython('numpy')
const { daemon, gpu, place: directory } = skip ? {} : await fixtureWithGpu()

/** A program's output, read as JSON. */
async function program (script, environment) {
  const { code, stdout, stderr } = await run(`
    const print = value => console.log(JSON.stringify(value, (_, v) => typeof v === 'bigint' ? String(v) : v))
    const c = await connect(process.env.S)
    ${script}`, { ...gpu, S: daemon.socket, ...environment })
  assert.deepEqual([code, stderr], [0, ''])
  return JSON.parse(stdout)
}

test('published on a GPU, opened there, copied to the host', { skip: skip || (arrow ? false : 'no apache-arrow') }, async () => {
  const got = await program(`
    await c.put('gpu/table', { n: Int32Array.of(1, 2, 3), s: ['a', null, 'größer'] }, { device: 'cuda:0' })
    await c.put('gpu/big', Float64Array.from({ length: 300000 }, (_, i) => i), { device: 'cuda:0' })
    const table = await c.open('gpu/table')
    const n = table.column('n')
    let refused
    try { n.values } catch (error) { refused = error.kind }
    const host = await table.toHost()
    const part = await table.slice(1).toHost()
    const big = await c.open('gpu/big')
    const vector = await big.slice(299990).toHost()
    print({ device: table.device, refused, rows: host.toArray().map(row => row.toJSON()), part: part.toArray().map(row => row.toJSON()),
      data: n.deviceData, sliced: n.slice(1).deviceData, mask: n.deviceMask, descriptor: table.column('s').deviceDescriptor(),
      last: [...vector] })
    table.release(); big.release()`)
  assert.equal(got.device, UUID)
  assert.equal(got.refused, 'unsupported')
  assert.deepEqual(got.rows, [{ n: 1, s: 'a' }, { n: 2, s: null }, { n: 3, s: 'größer' }])
  assert.deepEqual(got.part, [{ n: 2, s: null }, { n: 3, s: 'größer' }])
  assert.deepEqual([got.data.byteLength, got.data.device, got.data.uuid], [12, 0, UUID])
  assert.notEqual(BigInt(got.data.ptr), 0n)
  assert.deepEqual(got.sliced, got.data) // whole buffers: the offset is to be applied
  assert.equal(got.mask, undefined)
  assert.deepEqual([got.descriptor.dtype, got.descriptor.length, got.descriptor.nullCount], ['utf8', 3, 1])
  assert.equal(got.descriptor.nullMask.uuid, UUID)
  assert.deepEqual(got.last, Array.from({ length: 10 }, (_, i) => 299990 + i))
})

test('what is on a GPU, as classes of @rapidsai', { skip: skip || (arrow ? false : 'no apache-arrow') }, async () => {
  const got = await program(`
    const { cuda, cudf } = await import(${JSON.stringify(path.join(HERE, 'rapids.mjs'))})
    const rapids = createRequire(${JSON.stringify(import.meta.url)})(${JSON.stringify(path.join(PACKAGE, 'lib', 'rapids.cjs'))})
    const device = 'cuda:0'
    await c.put('rapids/table', { n: Int32Array.of(1, 2, 3, 4), s: ['a', null, 'größer', 'd'], f: [1.5, null, 2, 3], b: [true, false, true, true],
      t: [new Date(0), new Date(1), null, new Date(3)] }, { device })
    await c.put('rapids/array', Float64Array.of(1, 2, 3), { device })
    const arrow = createRequire(${JSON.stringify(import.meta.url)})('apache-arrow')
    await c.put('rapids/kinds', arrow.tableFromArrays({ k: ['x', null, 'größer', 'x', null] }), { device })
    const table = await c.open('rapids/table')
    const array = await c.open('rapids/array')
    const refused = []
    const refuse = async promise => refused.push((await promise.then(() => ({}), error => error)).kind)
    const buffer = await rapids.toBuffer(array, cuda)
    const part = await rapids.toBuffer(table.column('n').slice(1, 3), cuda)
    await refuse(rapids.toBuffer(table.column('f'), cuda)) // has nulls
    await refuse(rapids.toBuffer(table.column('s'), cuda)) // is text
    await refuse(rapids.toSeries(table.column('b'), cudf)) // is bits
    const frame = await rapids.toDataFrame(table, cudf, ['n', 's', 'f', 't'])
    const text = frame.get('s')._col
    const sliced = (await rapids.toSeries(table.column('s').slice(1, 3), cudf))._col
    const kinds = await c.open('rapids/kinds')
    const parts = await Promise.all([[0, 5], [1, 4]].map(range => rapids.toSeries(kinds.column('k').slice(...range), cudf)))
    const version = await rapids.putBuffer(c, 'rapids/copy', buffer, cuda, { mode: '0640' })
    await rapids.putBuffer(c, 'rapids/none', Object.assign(new cuda.Int8Buffer({ ptr: 1, byteLength: 0, device: 0 })), cuda)
    const copy = await c.open('rapids/copy')
    const info = await c.stat('rapids/copy')
    await c.put('rapids/host', Int8Array.of(1), { device: 'host' })
    const host = await c.open('rapids/host')
    await refuse(rapids.toBuffer(host, cuda))
    await refuse(rapids.toSeries(host, cudf))
    const aborted = { signal: AbortSignal.abort(new Error('mine')) }
    const ends = await Promise.all([array.ready(aborted), array.toHost(aborted), array.ipcHandle(aborted), table.batches(1, aborted).next(),
      rapids.toBuffer(array, cuda, aborted), rapids.toSeries(table.column('n'), cudf, aborted),
      rapids.toDataFrame(table, cudf, ['n'], aborted), rapids.putBuffer(c, 'rapids/not', buffer, cuda, aborted)]
      .map(call => call.then(() => 'it did not', error => error.message)))
    const chars = ({ data, children: [offsets, chars] }) => chars?.data ?? data
    print({ ends, buffer: [buffer.constructor.name, buffer.length, BigInt(buffer.buffer.ptr) === array.deviceData.ptr],
      part: [part.constructor.name, part.length, part.byteOffset], refused, names: frame.names,
      types: frame.names.map(name => frame.get(name).type.constructor.name), nulls: frame.names.map(name => frame.get(name)._col.nullCount),
      text: [text.length, chars(text).byteLength, text.mask.ptr === Number(table.column('s').deviceMask.ptr), text.children[0].length,
        text.children[0].data.ptr === Number(table.column('s').deviceOffsets.ptr)],
      sliced: [sliced.offset, sliced.length, sliced.nullCount, sliced.children[0].length],
      kinds: parts.map(({ _col: { type, offset, length, nullCount, mask, children: [codes, words] } }) => [type.constructor.name, offset, length, nullCount,
        mask === codes.mask, codes.type.constructor.name === type.indices.constructor.name, words.length, chars(words).byteLength]),
      copy: [version === copy.version, copy.dtype, copy.length, copy.device, info.mode],
      copies: cuda.copies.map(({ to, from, bytes }) => [to === Number(copy.deviceData.ptr), from === Number(array.deviceData.ptr), bytes]) })
    for (const one of [table, array, kinds, copy, host]) one.release()`)
  assert.deepEqual(got, {
    ends: Array(8).fill('mine'),
    buffer: ['Float64Buffer', 3, true],
    part: ['Int32Buffer', 2, 4],
    refused: Array(5).fill('unsupported'),
    names: ['n', 's', 'f', 't'],
    types: ['Int32', 'Utf8String', 'Float64', 'TimestampMillisecond'],
    nulls: [0, 1, 1, 1],
    text: [4, 10, true, 5, true],
    sliced: [1, 2, 1, 4],
    kinds: [['Categorical', 0, 5, 2, true, true, 2, 9], ['Categorical', 0, 3, 1, true, true, 2, 9]],
    copy: [true, 'float64', 3, UUID, '0640'],
    copies: [[true, true, 24]]
  })
})

test('the legacy handle of an object, and of a slice of one of its columns', { skip }, async () => {
  const got = await program(`
    await c.put('ipc/table', { a: Int32Array.of(1, 2, 3), b: Float64Array.of(1, 2, 3) }, { device: 'cuda:0', share: 'ipc' })
    await c.put('fd', Int32Array.of(1), { device: 'cuda:0' })
    await c.put('on host', Int32Array.of(1), { device: 'host' })
    const table = await c.open('ipc/table')
    const b = table.column('b')
    const whole = await b.ipcHandle()
    const part = await b.slice(1).ipcHandle()
    const kinds = []
    for (const name of ['fd', 'on host']) {
      const object = await c.open(name)
      await object.ipcHandle().catch(error => kinds.push(error.kind))
      object.release()
    }
    print({ whole: { ...whole, handle: [...whole.handle] }, part: { ...part, handle: [...part.handle] }, kinds })
    table.release()`)
  assert.deepEqual(got.kinds, ['unsupported', 'unsupported'])
  assert.equal(got.whole.handle.length, 64)
  assert.deepEqual(got.part.handle, got.whole.handle)
  assert.deepEqual([got.whole.uuid, got.whole.device, got.whole.byteLength], [UUID, 0, 24])
  assert.deepEqual([got.part.byteOffset, got.part.byteLength], [got.whole.byteOffset + 8, 16])

  const raw = async (...words) => (await promisify(execFile)(process.execPath,
    [path.join(ROOT, 'examples', 'raw.mjs'), ...words], { env: { ...process.env, GPUBUFD_SOCKET: daemon.socket } })).stdout
  assert.match(await raw(), /^ipc\/table\tversion \d+\tGPU-/m)
  const shown = await raw('ipc/table')
  assert.ok(shown.includes(`handle ${Buffer.from(got.whole.handle).toString('hex')}`), shown)
  assert.doesNotMatch(await raw('on host'), /handle/)
  await assert.rejects(raw('none'), { code: 1 })
})

test('created on a GPU and written, in pieces', { skip }, async () => {
  const got = await program(`
    const made = await c.create('gpu/made', { kind: 'column', dtype: 'int32', length: 6, mask: true }, { device: 'cuda:0' })
    await made.write(Int32Array.of(1, 2, 3, 4))
    await made.write(Int32Array.of(50, 60), { at: 16 })
    await made.write(Uint8Array.of(0b110111), { buffer: 'mask' })
    const past = await made.write(Int32Array.of(1), { at: 24 }).catch(error => error.kind)
    const none = await made.write(Int32Array.of(1), { buffer: 'offsets' }).catch(error => error.kind)
    await made.seal({ nullCounts: 1 })
    const sealed = await made.write(Int32Array.of(1)).catch(error => error.kind)
    made.release()
    const column = await c.open('gpu/made')
    const vector = gpubufd.setArrow && await column.toHost().catch(() => undefined)
    print({ past, none, sealed, all: vector && [...vector] })
    column.release()`)
  assert.deepEqual([got.past, got.none, got.sealed], ['invalid', 'invalid', 'busy'])
  if (arrow) assert.deepEqual(got.all, [1, 2, 3, null, 50, 60])
})

test('much is copied into pinned memory, which is used again and is freed in the end', { skip: skip || (arrow ? false : 'no apache-arrow') }, async () => {
  const trace = path.join(directory, 'trace')
  const script = `
    const values = Float64Array.from({ length: 1 << 18 }, (_, i) => i)
    await c.put('gpu/much', values, { device: 'cuda:0', replace: true })
    const much = await c.open('gpu/much')
    let one = await much.toHost()
    const [buffer, at] = [one.data[0].values.buffer, one.data[0].values.byteOffset]
    const right = values.every((value, i) => one.get(i) === value)
    const part = await much.slice(1000, 200_000).toHost()
    one = undefined
    const several = await Promise.all(Array.from({ length: 8 }, () => much.toHost()))
    const all = several.every(vector => vector.get(12345) === 12345) && part.get(0) === 1000 && part.length === 199_000
    const controller = new AbortController()
    const stopped = much.toHost({ signal: controller.signal }).catch(error => error.name)
    controller.abort()
    const already = await much.toHost({ signal: AbortSignal.abort() }).catch(error => error.name)
    much.release()
    c.close() // what was copied stays
    print({ right, all, stopped: await stopped, already, bytes: buffer.byteLength, at, last: several[7].get((1 << 18) - 1) })`
  const expected = { right: true, all: true, stopped: 'AbortError', already: 'AbortError', bytes: 8 << 18, at: 0, last: (1 << 18) - 1 }
  assert.deepEqual(await program(script, { FAKECUDA_TRACE: trace }), expected)
  assert.ok((await readFile(trace, 'utf8')).split('cuMemHostAlloc').length > 5)
  // Where nothing can be pinned it is memory as any other.
  assert.deepEqual(await program(script, { FAKECUDA_FAIL: 'cuMemHostAlloc:*:2' }), expected)
})

const PRODUCER = `
import ctypes, sys, gpubufd, numpy as np
from gpubufd import cuda
client = gpubufd.connect()
stream = cuda.Stream()
gate = ctypes.c_int(0)
driver = ctypes.CDLL("libcuda.so.1")
with cuda.Device(0):
    made = client.create("late", "float64", (100000,), device="cuda:0")
    values = np.arange(100000.0)
    assert driver.fakecuda_wait(ctypes.byref(gate), ctypes.c_void_p(stream.handle)) == 0
    made.write(values, stream=stream.handle)
    made.seal(stream=stream.handle)
print("sealed", flush=True)
sys.stdin.readline()
gate.value = 1
stream.synchronize()
made.wait_ready()
sys.stdin.readline()
`

test('a producer that is still at work is waited for, while all else goes on', { skip: skip || noPython || (arrow ? false : 'no apache-arrow') }, async () => {
  const environment = { ...process.env, ...gpu, GPUBUFD_SOCKET: daemon.socket, PYTHONPATH }
  const producer = spawn(PYTHON, ['-c', PRODUCER], { env: environment, stdio: ['pipe', 'pipe', 'inherit'] })
  let consumer
  try {
    const lines = one => readline.createInterface({ input: one.stdout })[Symbol.asyncIterator]()
    const say = lines(producer)
    assert.equal((await say.next()).value, 'sealed')
    consumer = spawn(process.execPath, ['--input-type=module', '-e', `
    import { createRequire } from 'node:module'
    const { connect } = createRequire('/')(${JSON.stringify(path.join(PACKAGE, 'lib', 'index.cjs'))})
    const c = await connect()
    const late = await c.open('late')
    let done = 0
    const copied = late.toHost().then(vector => { done++; return vector })
    const ready = late.ready().then(() => { done++ })
    // Events and answers come while a thread waits with calls of its own.
    let events = 0
    const watch = c.watch('noise/')
    ;(async () => { for await (const event of watch) if (event.kind === 'sealed') events++ })()
    const until = Date.now() + 1500 // longer than it takes until the library asks the daemon about the producer
    let opens = 0
    while (Date.now() < until || events < 11) {
      await c.put('noise/' + opens % 7, Int8Array.of(1), { replace: true, device: 'host' })
      opens++
    }
    console.log(JSON.stringify({ done, going: events > 10 && opens > 10 }))
    const vector = await copied
    await ready
    console.log(JSON.stringify({ sum: vector.toArray().reduce((sum, value) => sum + value, 0) }))
    late.release()
    c.close()`], { env: environment, stdio: ['ignore', 'pipe', 'inherit'] })
    const told = lines(consumer)
    assert.deepEqual(JSON.parse((await told.next()).value), { done: 0, going: true })
    producer.stdin.write('go\n')
    assert.deepEqual(JSON.parse((await told.next()).value), { sum: 100000 * 99999 / 2 })
    producer.stdin.write('end\n')
  } finally {
    producer.kill()
    consumer?.kill()
  }
})

const gated = existsSync(path.join(PACKAGE, '..', 'gate.node')) ? skip : 'tests/node/gate.c is not built'

test('what is put, sealed and released on a stream waits there, and nobody else does', { skip: gated }, async () => {
  const got = await program(`
    const gate = createRequire('/')(${JSON.stringify(path.join(PACKAGE, '..', 'gate.node'))})
    const values = Int32Array.from({ length: 1000 }, (_, i) => i)
    const other = await connect({ socket: process.env.S, copy: true })
    const rest = { device: 'cuda:0', replace: true }
    const all = []
    const until = async condition => { while (!await condition()) await new Promise(resolve => setTimeout(resolve, 5)) }
    for (const value of [values, { x: values, y: values }]) {
      const stream = gate.hold()
      const version = await c.put('late', value, { ...rest, stream, wait: false })
      const late = await other.open('late')
      let ready = false
      const waits = late.ready().then(() => { ready = true })
      await c.stat('late')
      all.push([version === late.version, gate.done(stream), ready])
      gate.go()
      await waits
      const column = late.kind === 'table' ? late.column('x') : late
      const there = await column._read(0, Int32Array, 0, 1000)
      await until(() => gate.done(stream)) // its end comes after the event that ready() waits for
      all.push([there.every((value, i) => value === i)])
      late.release()
    }
    const sealing = gate.hold()
    const made = await c.create('made', { kind: 'array', dtype: 'int32', shape: [1000] }, rest)
    await made.write(values)
    const version = await made.seal({ stream: { ptr: sealing } })
    const theirs = gate.hold() // which is held by the same gate
    const opened = await other.open('made', { version })
    await opened.ready({ stream: theirs })
    all.push([gate.done(sealing), gate.done(theirs)])
    opened.release({ stream: theirs })
    const leased = async () => (await c.leases('made')).leases.length
    const before = await leased()
    gate.go()
    await until(async () => await leased() === 1)
    await made.ready()
    await until(() => gate.done(sealing) && gate.done(theirs))
    made.release()
    const waited = gate.hold()
    let over = false
    const put = c.put('waited', values, { ...rest, stream: Number(waited) }).then(() => { over = true })
    await other.open('waited', { timeout: 60000 })
    all.push([over, gate.done(waited), before])
    gate.go()
    await put
    await until(() => gate.done(waited))
    // Given up while its copies are queued: the memory stays until these are done.
    const used = async () => (await c.stats()).devices.find(device => device.name !== 'host').used
    const least = await used()
    const stream = gate.hold()
    const controller = new AbortController()
    const { subscribe } = createRequire('/')('node:diagnostics_channel')
    subscribe('gpubufd:request:end', ({ method }) => { if (method === 'write') controller.abort() })
    const odd = await c.put('odd', values, { ...rest, stream, wait: false, signal: controller.signal }).catch(error => error.name)
    all.push([odd, gate.done(stream), await used() > least])
    const refused = []
    for (const bad of [{ stream: 'x' }, { stream: -1 }, { stream: 1.5 }, { stream: {} }, { stream: null }, { stream, wait: 1 }]) {
      refused.push(await c.put('bad', values, bad).catch(error => error.name))
    }
    await c.put('host', values, { device: 'host', replace: true, wait: false }) // nothing to queue
    gate.go()
    await until(async () => await used() <= least)
    print({ all, refused })
    other.close(); c.close()`)
  assert.deepEqual(got.all, [
    [true, false, false], [true], [true, false, false], [true],
    [false, false], [false, false, 2], ['AbortError', false, true]])
  assert.deepEqual(got.refused, ['TypeError', 'RangeError', 'TypeError', 'TypeError', 'TypeError', 'TypeError'])
})

test('the check for machines with a GPU', { skip }, async () => {
  const { stdout } = await promisify(execFile)(process.execPath, [path.join(HERE, 'gpu-smoke.mjs'), '--python', PYTHON,
    '--package', path.join(PACKAGE, 'lib', 'index.mjs'), '--data', path.join(ROOT, 'examples', 'data')],
  { env: { ...process.env, ...gpu, GPUBUFD_SOCKET: daemon.socket } })
  assert.match(stdout, /^7 passed, 0 failed$/m)
})

test('without a driver the host goes on, and a GPU is refused', { skip }, async () => {
  const { code, stdout, stderr } = await run(`
    const c = await connect(process.env.S)
    await c.put('host/x', Int32Array.of(7), { device: 'host' })
    const x = await c.open('host/x')
    console.log(x.values[0])
    x.release()
    await c.put('gpu/x', Int32Array.of(7), { device: 'cuda:0' }).catch(error => console.log(error.kind))`,
  { S: daemon.socket, LD_LIBRARY_PATH: '/nonexistent' })
  assert.deepEqual([code, stderr, stdout], [0, '', '7\nunsupported\n'])
})

test('a view on a GPU keeps its pointers', { skip }, async () => {
  const got = await program(`
    const publish = step => c.put('gpu/policy', Float32Array.of(step, step), { device: 'cuda:0', own: true, replace: true, label: String(step) })
    await publish(1)
    const view = await c.follow('gpu/policy')
    const pointer = view.value.deviceData.ptr
    const read = async () => [...await view.value._read(0, Float32Array, 0, 2)]
    const seen = [await read()]
    await publish(2)
    seen.push(await view.switch({ streams: [0n] }), await read(), view.value.deviceData.ptr === pointer)
    seen.push(await view.park())
    let refused
    try { view.value.deviceData } catch (error) { refused = error.kind }
    seen.push(refused, await view.resume({ timeout: 5000 }), await read(), view.value.deviceData.ptr === pointer)
    view.close()
    await c.delete('gpu/policy')
    print(seen)`)
  assert.deepEqual(got, [[1, 1], true, [2, 2], true, true, 'busy', true, [2, 2], true])
})

test('live memory and streams on a GPU', { skip }, async () => {
  const got = await program(`
    const made = await c.create('gpu/pool', { kind: 'array', dtype: 'int32', shape: [4] }, { device: 'cuda:0', live: true })
    made.release()
    const claim = await c.claim('gpu/pool')
    await claim.write(Int32Array.of(1, 2, 3, 4))
    const reader = await c.open('gpu/pool')
    const seen = [claim.generation, claim.deviceData.byteLength, [...await reader._read(0, Int32Array, 0, 4)]]
    claim.release(); reader.release()
    await c.put('gpu/array', Int32Array.of(1, 2, 3), { device: 'cuda:0' })
    await c.edit('gpu/array', array => array.write(Int32Array.of(9), { at: 4 }))
    const edited = await c.open('gpu/array')
    seen.push(edited.device, [...await edited._read(0, Int32Array, 0, 3)])
    edited.release()
    const writer = await c.stream('gpu/cam', { dtype: 'int32', shape: [2], slots: 6, device: 'cuda:0' })
    const frames = await c.read('gpu/cam', { each: true, hold: 2 }).ready()
    for (let i = 0; i < 4; i++) {
      const frame = await writer.next()
      seen.push(frame.deviceData.byteLength)
      await frame.publish({ stream: 0n })
    }
    const places = new Set()
    const first = await frames.read()
    places.add(first.deviceData.ptr)
    await Promise.all([frames.read().then(frame => { places.add(frame.deviceData.ptr); return frame.done() }), first.done({ stream: 0 })])
    let refused
    try { (await frames.read()).array } catch (error) { refused = error.kind }
    seen.push(places.size, refused)
    await frames.close()
    await writer.close()
    await c.delete(['gpu/pool', 'gpu/cam', 'gpu/array'])
    print(seen)`)
  assert.deepEqual(got, [1, 16, [1, 2, 3, 4], UUID, [1, 9, 3], 8, 8, 8, 8, 2, 'unsupported'])
})

test('a frame is read ahead of the work that completes it', { skip: gated }, async () => {
  const got = await program(`
    const gate = createRequire('/')(${JSON.stringify(path.join(PACKAGE, '..', 'gate.node'))})
    const writer = await c.stream('gpu/ahead', { dtype: 'int32', shape: [2], slots: 8, device: 'cuda:0' })
    const ahead = await c.read('gpu/ahead', { ahead: true, hold: 2 }).ready()
    const after = await c.read('gpu/ahead').ready()
    const [stream, theirs] = [gate.hold(), gate.hold()]
    await (await writer.next()).publish({ stream })
    const frame = await ahead.read({ timeout: 10_000 })
    const seen = [await after.read({ timeout: 20 }).catch(error => error.kind), gate.done(stream)]
    await frame.wait({ stream: theirs })
    await frame.done({ stream: theirs })
    seen.push(await frame.wait().catch(error => error.kind))
    gate.go()
    const complete = await after.read({ timeout: 10_000 })
    seen.push(complete.number === frame.number)
    await complete.wait() // it is complete: nothing to wait for
    await complete.done()
    await Promise.all([ahead.close(), after.close()])
    await writer.close()
    await c.delete('gpu/ahead')
    print(seen)`)
  assert.deepEqual(got, ['timeout', false, 'stale', true])
})
