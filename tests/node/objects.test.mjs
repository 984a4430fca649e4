// Objects: what they show, slices, the end of leases.

import assert from 'node:assert/strict'
import { mkdtemp, rm } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import test from 'node:test'
import { Worker } from 'node:worker_threads'
import { Daemon, PACKAGE, collect, exposeGc, fixture, gpubufd, mappings, opener, require, run, until } from './harness.mjs'

const gc = exposeGc()

const { daemon, connect } = await fixture()
const c = await connect({ cacheLeases: false }) // leases are counted
const opened = opener(c)

const TYPED = {
  int8: Int8Array.of(-1, 2, 3), int16: Int16Array.of(-1, 2, 3), int32: Int32Array.of(-1, 2, 3),
  int64: BigInt64Array.of(-1n, 2n, 2n ** 62n), uint8: Uint8Array.of(1, 2, 255),
  uint16: Uint16Array.of(1, 2, 65535), uint32: Uint32Array.of(1, 2, 2 ** 32 - 1),
  uint64: BigUint64Array.of(1n, 2n, 2n ** 64n - 1n), float32: Float32Array.of(1.5, NaN, Infinity),
  float64: Float64Array.of(1.5, NaN, Infinity)
}

test('typed arrays come back as what they were, as arrays and as columns', async () => {
  for (const [dtype, values] of Object.entries(TYPED)) {
    await c.put('typed', values, { replace: true })
    await c.put('column', values, { as: 'column', replace: true })
    const [array, column] = await c.openMany(['typed', 'column'])
    assert.ok(array instanceof gpubufd.NDArray)
    assert.ok(column instanceof gpubufd.Column)
    for (const object of [array, column]) {
      assert.equal(object.dtype, dtype)
      assert.equal(object.length, 3)
      assert.deepEqual(object.values, values)
      assert.deepEqual(object.slice(1).values, values.slice(1))
      assert.deepEqual(object.slice(-2, -1).values, values.slice(-2, -1))
      assert.equal(object.slice(3).values.length, 0)
      assert.equal(object.nullCount, 0)
      assert.equal(object.mask, undefined)
      object.release()
    }
  }
})

test('floats of 8 bits are bytes, packed ones are counted in elements', async () => {
  const bytes = Uint8Array.from({ length: 12 }, (_, i) => i)
  await opened(bytes, eight => {
    assert.deepEqual([eight.dtype, eight.shape, eight.values], ['float8_e4m3fn', [3, 4], bytes])
    assert.throws(() => eight.toArrow(), { kind: 'unsupported', message: /no type for float8_e4m3fn|needs the package apache-arrow/ })
  }, { dtype: 'float8_e4m3fn', shape: [3, 4] })
  await opened(bytes, four => {
    assert.deepEqual([four.shape, four.strides, four.size, four.values], [[3, 8], [4, 1], 24, bytes])
    assert.ok(four.isContiguous)
    assert.deepEqual(four.slice(1, 2).values, bytes.slice(4, 8))
    assert.throws(() => four.toArrow(), { kind: 'unsupported' })
  }, { dtype: 'float4_e2m1fn', shape: [3, 8] })
  await opened(bytes, six => {
    assert.deepEqual(six.slice(4, 12).values, bytes.slice(3, 9))
    assert.throws(() => six.slice(2, 6), { kind: 'invalid' })
  }, { dtype: 'float6_e3m2fn', shape: [16] })
  await assert.rejects(c.put('odd', bytes, { dtype: 'float4_e2m1fn', shape: [8, 3] }), { kind: 'invalid' })
})

test('arrays of several axes', async () => {
  const values = Float32Array.from({ length: 24 }, (_, i) => i)
  await opened(values, cube => {
    assert.deepEqual([cube.shape, cube.strides, cube.ndim, cube.size], [[4, 3, 2], [24, 8, 4], 3, 24])
    const part = cube.slice(1, 3)
    assert.deepEqual(part.shape, [2, 3, 2])
    assert.deepEqual([...part.values], [...values.slice(6, 18)])
    assert.ok(part.isContiguous)
  }, { shape: [4, 3, 2] })
  await opened(Float64Array.of(3), scalar => {
    assert.deepEqual([scalar.ndim, scalar.size, scalar.values[0]], [0, 1, 3])
    assert.throws(() => scalar.slice(0, 1), { kind: 'invalid' })
  }, { shape: [] })
  await opened(Uint16Array.of(0x3c00), halves => assert.deepEqual([halves.dtype, halves.values[0]], ['float16', 0x3c00]), { dtype: 'float16' })
})

test('bytes', async () => {
  for (const value of [Buffer.from('hello'), new TextEncoder().encode('hello').buffer,
    new DataView(new TextEncoder().encode('hello').buffer)]) {
    await opened(value, bytes => {
      assert.ok(bytes instanceof gpubufd.Bytes)
      assert.equal(Buffer.from(bytes.bytes).toString(), 'hello')
      assert.equal(Buffer.from(bytes.slice(1, 3).bytes).toString(), 'el')
    })
  }
  const big = Buffer.alloc(5 << 20, 7) // copied by another thread
  for (const value of [Buffer.alloc(0), big]) await opened(value, object => assert.equal(Buffer.compare(object.bytes, value), 0))
})

test('tables of plain columns', async () => {
  await opened({ n: Int32Array.of(1, 2, 3), text: ['one', null, 'drei ü'], none: [null, null, null] }, table => {
    assert.ok(table instanceof gpubufd.Table)
    assert.deepEqual([table.numRows, table.numColumns, table.columnNames], [3, 3, ['n', 'text', 'none']])
    const text = table.column('text')
    assert.deepEqual([text.columnName, text.dtype, text.nullCount], ['text', 'utf8', 1])
    assert.deepEqual([...text.offsets], [0, 3, 3, 10])
    assert.equal(Buffer.from(text.values).toString(), 'onedrei ü')
    assert.deepEqual([0, 1, 2].map(i => text.isValid(i)), [true, false, true])
    assert.equal(table.columnAt(2).nullCount, 3)
    assert.throws(() => table.column('x'), { kind: 'not_found' })
    assert.throws(() => table.column(1), TypeError)
    assert.throws(() => table.columnAt(3), RangeError)
    assert.throws(() => table.columnAt(0.5), TypeError)
    assert.throws(() => text.child(0), RangeError)
    assert.throws(() => text.isValid(3), RangeError)
    const rows = table.slice(1)
    assert.deepEqual([...rows.column('n').values], [2, 3])
    assert.equal(rows.column('text').isValid(0), false)
  })
})

test('plain arrays of numbers, bigints, booleans, dates', async () => {
  const days = [new Date(0), null, new Date(-1)]
  await c.put('plain', { n: [1, null, -0.5], i: [2n ** 62n, undefined, -1n], b: [true, null, false], d: days })
  const table = await c.open('plain')
  assert.deepEqual(table.columns.map(column => [column.dtype, column.nullCount]),
    [['float64', 1], ['int64', 1], ['bool', 1], ['timestamp[ms]', 1]])
  assert.deepEqual(table.columns.map(column => [0, 1, 2].map(i => column.isValid(i))), Array(4).fill([true, false, true]))
  assert.deepEqual([...table.column('n').values], [1, 0, -0.5])
  assert.deepEqual([...table.column('i').values], [2n ** 62n, 0n, -1n])
  assert.equal(table.column('b').values[0], 1)
  assert.deepEqual([...table.column('d').values], [0n, 0n, -1n])
  table.release()
  await opened([1, 2], column =>
    assert.deepEqual([column.kind, column.nullCount, column.mask, [...column.values]], ['column', 0, undefined, [1, 2]]))
  await assert.rejects(c.put('no', { a: [1, 'x'] }), { name: 'TypeError', message: /column "a": element 1 is no number/ })
  await assert.rejects(c.put('no', [1n, 2]), TypeError)
  await assert.rejects(c.put('no', [new Date(NaN)]), TypeError)
  await assert.rejects(c.put('no', { a: [[1]] }), { message: /Arrow vector/ })
  await assert.rejects(c.put('no', [2n ** 63n]), RangeError)
})

test('slices outside of what there is are refused', async () => {
  await c.put('five', Int32Array.of(1, 2, 3, 4, 5), { as: 'column' })
  const five = await c.open('five')
  for (const [begin, end] of [[6], [-6], [0, 6], [3, 2], [2 ** 53], [-(2 ** 53)], [0, 1e300]]) {
    assert.throws(() => five.slice(begin, end), RangeError, `${begin} ${end}`)
  }
  for (const [begin, end] of [['1'], [1.5], [NaN], [null], [{}], [0, Infinity], [0, '2']]) {
    assert.throws(() => five.slice(begin, end), TypeError, `${begin} ${end}`)
  }
  assert.deepEqual([...five.slice(1n, 3n).values], [2, 3])
  assert.deepEqual([...five.slice(1, 4).slice(1).slice(-1).values], [4])
  five.release()
})

test('one ArrayBuffer shows a mapping, and copies are made on demand', async () => {
  await c.put('x', Float64Array.of(1, 2, 3))
  await c.put('y', Float64Array.of(4, 5, 6))
  const [x, y, again] = await c.openMany(['x', 'y', 'x'])
  assert.equal(x.values.buffer, y.values.buffer)
  assert.equal(x.values.buffer, again.values.buffer)
  assert.equal(x.values.byteOffset, again.values.byteOffset)
  assert.equal(x.slice(1).values.byteOffset, x.values.byteOffset + 8)
  const copy = await c.open('x', { copy: true })
  assert.notEqual(copy.values.buffer, x.values.buffer)
  copy.values[0] = 9 // a copy's own
  assert.equal(x.values[0], 1)
  for (const object of [x, y, again, copy]) object.release()
  const copying = await connect({ copy: true })
  const other = await copying.open('x')
  other.values.fill(0)
  assert.deepEqual([...other.values], [1, 2, 3])
  other.release()
  copying.close()
})

test('created, filled in place, sealed', async () => {
  const column = await c.create('filled', { kind: 'column', dtype: 'float32', length: 4, mask: true })
  column.values.set([1, 2, 3, 4])
  column.mask.fill(0b1011)
  assert.equal(column.version, 0)
  await assert.rejects(c.stat('filled'), { kind: 'not_found' })
  await assert.rejects(column.seal({ nullCounts: 'x' }), TypeError)
  await assert.rejects(column.seal({ nullCounts: [1, 2] }), TypeError)
  const version = await column.seal({ nullCounts: 1 })
  assert.equal(column.version, version)
  assert.equal(column.nullCount, 1)
  await assert.rejects(column.seal(), { kind: 'busy' })
  const opened = await c.open('filled')
  assert.deepEqual([...opened.values], [1, 2, 3, 4])
  assert.deepEqual([0, 1, 2, 3].map(i => opened.isValid(i)), [true, true, false, true])
  opened.release()
  column.release()

  const table = await c.create('made', {
    kind: 'table',
    length: 2,
    columns: [{ name: 'a', dtype: 'int8', metadata: { unit: 'm' } }, { name: 'b', dtype: 'utf8', dataBytes: 2, mask: true }]
  })
  table.column('a').values.set([1, 2])
  table.column('b').offsets.set([0, 2, 2])
  table.column('b').values.set([104, 105])
  table.column('b').mask[0] = 1
  await table.seal({ nullCounts: { b: 1 } })
  assert.equal(table.column('b').nullCount, 1)
  assert.equal(table.column('a').metadata.get('unit'), 'm')
  table.release()

  const given = await c.create('given up', { kind: 'bytes', bytes: 8 })
  given.release()
  await assert.rejects(given.seal(), { kind: 'stale' })
  await assert.rejects(c.stat('given up'), { kind: 'not_found' })
})

test('a bundle is the bytes of a safetensors file', async () => {
  const manifest = '{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}'
  const file = Buffer.concat([Buffer.alloc(8), Buffer.from(manifest), Buffer.of(1, 2, 3)])
  file.writeBigUInt64LE(BigInt(manifest.length))
  const layout = { kind: 'bundle', bytes: file.length, manifestBytes: manifest.length }
  const made = await c.create('bundle', layout)
  made.bytes.set(file)
  await made.seal()
  made.release()
  const bundle = await c.open('bundle')
  assert.ok(bundle instanceof gpubufd.Bundle)
  assert.equal(bundle.kind, 'bundle')
  assert.equal(bundle.length, file.length)
  assert.deepEqual(Buffer.from(bundle.bytes), file)
  assert.throws(() => bundle.slice(1), { kind: 'invalid' })
  assert.throws(() => bundle.toArrow(), { kind: 'unsupported' })
  bundle.release()
  await assert.rejects(c.create('bad', { ...layout, manifestBytes: file.length }), { kind: 'invalid' })
  await assert.rejects(c.create('bad', { kind: 'bundle', bytes: 9 }), { kind: 'invalid' })
  await c.delete('bundle')
})

/** A safetensors file of { name: [dtype, shape, bytes] }, and how long its manifest is. */
test('bytes and arrays have metadata', async () => {
  for (const layout of [{ kind: 'bytes', bytes: 1 }, { kind: 'array', dtype: 'int8', shape: [1] }]) {
    const made = await c.create('said', { ...layout, metadata: { unit: 'm' } }, { replace: true })
    await made.seal()
    const opened = await c.open('said')
    assert.deepEqual([...opened.metadata], [['unit', 'm']])
    opened.release()
    made.release()
  }
  await c.delete('said')
})

function safetensors (tensors, metadata) {
  let at = 0
  const entries = Object.entries(tensors).map(([name, [dtype, shape, bytes]]) =>
    [name, { dtype, shape, data_offsets: [at, at += bytes.byteLength] }])
  const manifest = Buffer.from(JSON.stringify({ __metadata__: metadata, ...Object.fromEntries(entries) }))
  const head = Buffer.alloc(8)
  head.writeBigUInt64LE(BigInt(manifest.length))
  const data = Object.values(tensors).map(([, , bytes]) => Buffer.from(bytes.buffer))
  return [Buffer.concat([head, manifest, ...data]), manifest.length]
}

async function putBundle (name, [file, manifestBytes]) {
  const made = await c.create(name, { kind: 'bundle', bytes: file.length, manifestBytes }, { replace: true })
  made.bytes.set(file)
  await made.seal()
  made.release()
}

test('the arrays of a bundle by name, over its memory', async () => {
  const pad = '1'.repeat(3)
  const weights = { w: ['F64', [2, 3], Float64Array.of(1, 2, 3, 4, 5, 6)], b: ['I32', [2], Int32Array.of(7, -8)], none: ['F32', [0], new Float32Array(0)] }
  let given
  for (let spaces = 0; spaces < 8; spaces++) { // so that the data begins at a multiple of 8
    given = safetensors(weights, { format: 'pt', pad: pad + ' '.repeat(spaces) })
    if ((8 + given[1]) % 8 === 0) break
  }
  await putBundle('weights', given)
  const bundle = await c.open('weights')
  assert.deepEqual([bundle.size, bundle.names, bundle.has('w'), bundle.has('x')], [3, ['w', 'b', 'none'], true, false])
  assert.equal(bundle.metadata.get('format'), 'pt')
  assert.deepEqual(bundle.tensors.get('b'), { dtype: 'int32', shape: [2], offset: 8 + given[1] + 48, byteLength: 8 })
  const w = bundle.get('w')
  assert.ok(w instanceof gpubufd.NDArray)
  assert.deepEqual([w.name, w.dtype, w.shape, w.values], ['weights', 'float64', [2, 3], weights.w[2]])
  assert.equal(w.values.buffer, bundle.bytes.buffer)
  assert.deepEqual(w.slice(1).values, Float64Array.of(4, 5, 6))
  assert.deepEqual([...bundle].map(([name, array]) => [name, [...array.values]]), [['w', [1, 2, 3, 4, 5, 6]], ['b', [7, -8]], ['none', []]])
  assert.throws(() => bundle.get('x'), { kind: 'not_found', message: /no array "x" among its 3: "w", "b", "none"$/ })
  for (const wrong of [1, undefined, null]) assert.throws(() => bundle.get(wrong), TypeError)
  bundle.release()
  assert.throws(() => w.values, { kind: 'stale' })
  assert.throws(() => bundle.get('w'), { kind: 'stale' })
  await until(async () => (await c.leases('weights')).leases.length === 0)
  await c.delete('weights')
})

test('a bundle whose manifest lies says so, and one that is out of step gives no array', async () => {
  const [file, length] = safetensors({ a: ['U8', [3], Uint8Array.of(1, 2, 3)] })
  await putBundle('lies', [Buffer.from(file.toString('latin1').replace('[0,3]', '[0,9]'), 'latin1'), length])
  const lies = await c.open('lies')
  assert.throws(() => lies.names, { kind: 'invalid', message: /lies/ })
  assert.throws(() => lies.get('a'), { kind: 'invalid' })
  lies.release()
  let odd
  for (let pad = 0; pad < 2; pad++) {
    odd = safetensors({ a: ['F64', [1], Float64Array.of(5)] }, { pad: ' '.repeat(pad) })
    if ((8 + odd[1]) % 2) break
  }
  await putBundle('odd', odd)
  const bundle = await c.open('odd')
  assert.throws(() => bundle.get('a'), { kind: 'unsupported' })
  const { offset } = bundle.tensors.get('a')
  assert.equal(Buffer.from(bundle.bytes).readDoubleLE(offset), 5) // where it lies is known all the same
  bundle.release()
  await c.delete(['lies', 'odd'])
})

test('a released object refuses, and its views with it', async () => {
  await c.put('gone', { a: Int32Array.of(1, 2) })
  const table = await c.open('gone')
  const column = table.column('a')
  const slice = column.slice(1)
  slice.release()
  assert.throws(() => slice.values, { kind: 'stale' })
  assert.deepEqual([...column.values], [1, 2])
  const values = column.values
  table.release()
  table.release()
  for (const use of [() => table.column('a'), () => table.slice(0), () => column.values, () => column.slice(1),
    () => column.isValid(0), () => column.nullCount]) {
    assert.throws(use, { name: 'StaleError', message: /"gone" has been released/ })
  }
  assert.equal(values.length, 2) // mapped as long as somebody can look
  assert.ok(column.released)
  column.release()
  await until(async () => (await c.leases('gone')).leases.length === 0)
})

test('using and await using', async () => {
  await c.put('used', Int8Array.of(1))
  const object = await c.open('used')
  object[Symbol.dispose]()
  assert.ok(object.released)
  const other = await c.open('used')
  await other[Symbol.asyncDispose]()
  assert.ok(other.released)
})

test('detached and foreign buffers', async () => {
  const buffer = new ArrayBuffer(8)
  const view = new Int8Array(buffer)
  structuredClone(buffer, { transfer: [buffer] })
  await assert.rejects(c.put('detached', view), { name: 'TypeError', message: /detached/ })
  await assert.rejects(c.put('detached', buffer), { name: 'TypeError', message: /detached/ })
  await c.put('shared', new Int32Array(new SharedArrayBuffer(8)))
  const fake = Object.create(gpubufd.NDArray.prototype)
  assert.throws(() => fake.values, TypeError)
  assert.throws(() => fake.slice(0), TypeError)
  const shared = await c.open('shared')
  await assert.rejects(c.put('x', shared), TypeError)
  shared.release()
})

const WAYS = {
  detached: {
    make: bytes => new ArrayBuffer(bytes),
    spoil: buffer => structuredClone(buffer, { transfer: [buffer] })
  },
  resized: {
    make: bytes => new ArrayBuffer(bytes, { maxByteLength: bytes }),
    spoil: buffer => buffer.resize(80)
  }
}
const TIMES = { 'at once': work => work(), 'in a microtask': queueMicrotask, 'soon after': setImmediate }

for (const [way, { make, spoil }] of Object.entries(WAYS)) {
  const skip = way === 'resized' && !ArrayBuffer.prototype.resize && 'this Node has no resizable buffers'
  for (const [time, later] of Object.entries(TIMES)) {
    for (const bytes of [8 << 10, 32 << 20]) {
      test(`a buffer of ${bytes >> 10} KiB that is ${way} ${time} shows nothing of what lay there`, { skip }, async () => {
        const old = await c.create('old', { kind: 'bytes', bytes })
        old.bytes.fill(0x5a)
        old.release()
        const view = new Float64Array(make(bytes)).fill(7)
        const outcome = Promise.resolve(c.put('spoilt', view, { replace: true })).then(() => 'done', error => error)
        await new Promise(resolve => later(() => resolve(spoil(view.buffer))))
        const told = await outcome
        if (told === 'done') { // it was copied before
          assert.equal(time, 'soon after')
          const there = await c.open('spoilt')
          assert.ok(there.values.length === bytes / 8 && there.values.every(value => value === 7))
          there.release()
          await c.delete('spoilt')
          return
        }
        assert.ok(told instanceof TypeError, told)
        await assert.rejects(c.stat('spoilt'), gpubufd.NotFoundError)
        await until(async () => (await c.leases()).leases.length === 0)
      })
    }
  }
}

test('what has fewer bytes than its layout is not published', async () => {
  await assert.rejects(c.put('short', new Uint8Array(10), { dtype: 'float64', shape: [1000] }),
    { name: 'TypeError', message: /10 bytes where its layout has 8000/ })
  await assert.rejects(c.stat('short'), gpubufd.NotFoundError)
})

test('what was published cannot be changed by who published it', async () => {
  const ends = async code => (await run(`
    const client = await connect(${JSON.stringify(daemon.socket)})
    ${code}`)).signal
  assert.equal(await ends(`
    await client.put('p', new Int8Array(10))
    const object = await client.open('p')
    object.values[0] = 99`), 'SIGSEGV')
  assert.equal(await ends(`
    const object = await client.create('s', { kind: 'array', dtype: 'int8', shape: [1 << 20] })
    const values = object.values.fill(1)
    await object.seal()
    values[500000] = 99`), 'SIGSEGV')
  assert.equal(await ends(`
    await client.put('f', new Int8Array(10), { final: true })
    if (!(await client.stat('f')).final) throw new Error('it is not final')
    const object = await client.open('f')
    object.values[0] = 99`), 'SIGSEGV')
})

test('what is forgotten is released, with a warning that names it', async () => {
  await c.put('forgotten', Int8Array.of(1))
  const warned = new Promise(resolve => process.on('warning', warning => {
    if (warning.code === 'GPUBUF_UNRELEASED' && /"forgotten"/.test(warning.message)) resolve()
  }))
  await (async () => { (await c.open('forgotten')).slice(0) })()
  await until(async () => {
    gc()
    return (await c.leases('forgotten')).leases.length === 0
  })
  await warned
})

test('who has the memory has the lease', async () => {
  await c.put('held', Int8Array.of(42))
  let values = (await c.open('held')).values
  let column = (await c.open('held')).slice(0)
  await collect(5)
  assert.equal((await c.leases('held')).leases.length, 2)
  assert.deepEqual([values[0], column.values[0]], [42, 42])
  values = column = undefined
  await until(async () => {
    gc()
    return (await c.leases('held')).leases.length === 0
  })
})

test('mappings go when nobody can look at them any more', async () => {
  const { code, stdout, stderr } = await run(`
    import fs from 'node:fs'
    const mapped = () => fs.readFileSync('/proc/self/maps', 'utf8').split('\\n').filter(line => line.includes('/memfd:')).length
    const c = await connect({ socket: process.env.S, cacheBytes: 1 })
    await c.put('mapped', new Uint8Array(8 << 20))
    let object = await c.open('mapped')
    let values = object.values
    object.release()
    await c.list()
    console.log(mapped() > 0, values[0])
    c.close()
    console.log(mapped() > 0, values[0])
    object = values = undefined
    for (let i = 0; i < 6000 && mapped(); i++) { await collect(1); await new Promise(resolve => setTimeout(resolve, 10)) }
    console.log(mapped())`, { S: daemon.socket }, ['--expose-gc'])
  assert.deepEqual([code, stdout, stderr], [0, 'true 0\ntrue 0\n0\n', ''])
})

test('what is opened by a cached lease does not starve the loop', async () => {
  const keeper = await connect()
  await c.put('kept', Float64Array.of(1))
  for (let i = 0; i < 3; i++) (await keeper.open('kept')).release()
  await until(async () => (await c.stats()).cached === 1) // the daemon is told with what is sent next, or soon
  let ticked = false
  setImmediate(() => { ticked = true })
  for (let i = 0; i < 2000 && !ticked; i++) (await keeper.open('kept')).release()
  assert.ok(ticked)
  await c.delete('kept')
  await assert.rejects(keeper.open('kept'), { kind: 'not_found' })
  keeper.close()
  for (const wrong of [{ cacheLeases: -1 }, { cacheLeases: 'yes' }, { cacheLeases: 0.5 }]) {
    await assert.rejects(connect(wrong), /cacheLeases/)
  }
})

/** An object of a cached lease. */
async function openCached (client, name) {
  for (let i = 0; i < 4; i++) {
    (await client.open(name)).release() // from the third on without a request
    await client.ping()
  }
  return await client.open(name)
}

test('what is opened anew shows the arrays of before, and what was released stays so', async () => {
  const client = await connect({ cacheBytes: 1 })
  await c.put('anew', { a: Float64Array.of(1, 2), text: ['x', null] })
  const first = await openCached(client, 'anew')
  const column = first.column('a')
  const { values } = column
  assert.deepEqual(first.get(1), { a: 2, text: null })
  const other = await client.open('anew') // while the first is open
  assert.deepEqual([...other.column('a').values], [1, 2])
  assert.notEqual(other.column('a').values, values)
  first.release()
  const second = await client.open('anew')
  assert.notEqual(second, first)
  assert.equal(second.column('a').values, values)
  first.release()
  for (const use of [() => column.values, () => first.get(0), () => first.column('a'), () => first.toArray(), () => first.slice(0)]) {
    assert.throws(use, { kind: 'stale' })
  }
  assert.deepEqual([second.get(0), other.get(0), second.column('a').slice(1).values[0]], [{ a: 1, text: 'x' }, { a: 1, text: 'x' }, 2])
  for (const one of [second, other]) one.release()

  await c.put('anew', { a: Float64Array.of(3), text: ['z'] }, { replace: true })
  const third = await openCached(client, 'anew')
  assert.deepEqual(third.toArray(), [{ a: 3, text: 'z' }])
  third.release()
  const made = await c.create('bytes', { kind: 'column', dtype: 'binary', length: 1, dataBytes: 1 })
  await made.write(Uint8Array.of(7))
  await made.write(Int32Array.of(0, 1), { buffer: 'offsets' })
  await made.seal()
  made.release()
  const copies = await connect({ copy: true }) // which may be written
  for (let i = 0; i < 2; i++) {
    const copy = await openCached(copies, 'bytes')
    assert.deepEqual([copy.get(0)[0]++, copy.values[0]++], [7, 7])
    copy.release()
  }
  for (const one of [client, copies]) one.close()
})

test('what is opened anew keeps no memory, and is forgotten as others are', async () => {
  const client = await connect()
  await c.put('again', Int8Array.of(42))
  let warning
  process.once('warning', ({ message }) => { warning = message })
  const first = await openCached(client, 'again')
  let array = new WeakRef(first.values)
  first.release()
  let values = (await client.open('again')).values // who has the memory has the lease
  assert.equal(values, array.deref())
  await collect(5)
  assert.equal(warning, undefined)
  array = new WeakRef(values)
  values = undefined
  await until(async () => {
    await collect(1)
    return !array.deref() && warning
  })
  assert.match(warning, /"again" was garbage collected/)
  const last = await openCached(client, 'again')
  assert.equal(last.values[0], 42)
  last.release()
  client.close()
})

test('what is opened anew elsewhere has arrays of its own', async () => {
  const place = await mkdtemp(path.join(os.tmpdir(), 'gpubuf-tier-'))
  const mortal = await Daemon.start('--device', 'host:64M', '--tier', `disk:64M:${place}`)
  const client = await gpubufd.connect({ socket: mortal.socket })
  try {
    await client.put('moves', new Uint8Array(1 << 20).fill(1))
    const first = await openCached(client, 'moves')
    const before = first.values
    first.release()
    await client.spill('moves')
    for (let i = 0; i < 4; i++) await client.put(`there/${i}`, new Uint8Array(1 << 20).fill(2)) // where it lay
    const moved = await openCached(client, 'moves')
    assert.notEqual(moved.values, before)
    assert.ok(moved.values.every(value => value === 1))
    moved.release()
    await mortal.kill()
    await mortal.run()
    await client.put('moves', new Uint8Array(1 << 20).fill(3)) // with the same numbers of lease and version
    const anew = await openCached(client, 'moves')
    assert.ok(anew.values.every(value => value === 3))
    anew.release()
  } finally {
    client.close()
    await mortal.stop()
    await rm(place, { recursive: true })
  }
})

test('what is known of objects that were opened has a bound', () => {
  const { KnownObjects } = require(path.join(PACKAGE, 'lib', 'objects.cjs'))
  const pool = new KnownObjects(2)
  const [oldest, , newest] = ['a', 'b', 'c'].map((name, i) => {
    const known = pool.find(name, i)
    pool.leave(name, known)
    return known
  })
  assert.equal(pool.find('c', 2), newest)
  assert.notEqual(pool.find('c', 3), newest) // another lease
  assert.notEqual(pool.find('a', 0), oldest)
})

test('nothing is left', async () => {
  gc()
  await until(async () => {
    gc()
    return (await c.leases()).leases.length === 0
  })
  assert.ok(await mappings() < 10)
})

test('a count of nulls is what the mask says, or nobody has counted', async () => {
  const layout = { kind: 'column', dtype: 'int8', length: 3, mask: true }
  for (const [nullCount, sealed] of [[undefined, undefined], [-1, undefined], [1, undefined], [3, 1]]) {
    const made = await c.create('nulls', { ...layout, nullCount }, { replace: true })
    made.mask[0] = 0b101
    made.values.set([1, 0, 3])
    if (sealed !== undefined) await assert.rejects(made.seal(), { kind: 'invalid', message: /its mask has 1 nulls, and its null_count is 3/ })
    await made.seal({ nullCounts: sealed })
    made.release()
    const column = await c.open('nulls')
    assert.deepEqual([column.isValid(0), column.isValid(1), Math.abs(column.nullCount)], [true, false, 1])
    column.release()
  }
})

test('an object is handed to a worker, as the version that it is', async () => {
  await c.put('handed', { a: Int32Array.of(1, 2, 3) }, { replace: true, keep: 1 })
  const object = await c.open('handed')
  await c.put('handed', { a: Int32Array.of(4) }, { replace: true, keep: 1 })
  const worker = new Worker(`const { parentPort, workerData } = require('node:worker_threads')
    require(workerData.package).connect(workerData.socket).then(async client => {
      const object = await client.open(workerData.shared)
      parentPort.postMessage([object.version, [...object.column('a').values]])
      object.release()
      client.close()
    })`, { eval: true, workerData: { package: PACKAGE, socket: daemon.socket, shared: object.column('a').share() } })
  const got = await new Promise((resolve, reject) => worker.once('message', resolve).once('error', reject))
  assert.deepEqual(got, [object.version, [1, 2, 3]])
  const shared = object.share()
  assert.deepEqual(shared, { name: 'handed', version: object.version, instance: c.instance })
  await assert.rejects(c.open({ ...shared, instance: 'another' }), gpubufd.StaleError)
  await assert.rejects(c.open({ ...shared, version: 1e9 }), gpubufd.GpubufError)
  for (const bad of [null, {}, { name: 1 }, { ...shared, version: -1 }]) await assert.rejects(c.open(bad), /name is not|version is/)
  const { port1, port2 } = new MessageChannel()
  for (const clone of [structuredClone, one => port1.postMessage(one), one => port1.postMessage({ one })]) {
    for (const one of [object, object.column('a')]) {
      assert.throws(() => clone(one), { name: 'DataCloneError', message: /object\.share\(\).* could not be cloned/ })
    }
  }
  port2.close()
  object.release()
  assert.throws(() => object.share(), gpubufd.StaleError)
  const made = await c.create('handed/made', { kind: 'bytes', bytes: 1 })
  assert.throws(() => made.share(), gpubufd.UnsupportedError)
  made.release()
})
