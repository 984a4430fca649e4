// Runtimes that allow no ArrayBuffers over memory of others, as Electron: the same addon, to which
// napi_create_external_arraybuffer says so. And what is larger than such a buffer may be.

import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { constants } from 'node:buffer'
import test from 'node:test'
import { Daemon, PACKAGE, arrow, connect as plain, data, fixture, run, until, withArrow } from './harness.mjs'

const { daemon, connect } = await fixture()
const addon = path.join(PACKAGE, '..', 'no-external.node')
const skip = existsSync(addon) ? false : 'the addon for it is not built'

async function without (script, environment = {}) {
  const { code, stdout, stderr } = await run(script, { S: daemon.socket, GPUBUFD_ADDON: addon, ...environment }, ['--expose-gc'])
  assert.deepEqual([code, stderr], [0, ''])
  return JSON.parse(stdout)
}

test('without external buffers everything is a copy', { skip }, async () => {
  const c = await connect()
  await c.put('both', { x: Float64Array.of(1, 2, 3), s: ['a', null, 'c'] })
  const got = await without(`
    import fs from 'node:fs'
    const c = await connect(process.env.S)
    const table = await c.open('both')
    const x = table.column('x')
    const one = x.values
    one[0] = 9 // which is this copy's own
    const made = await c.create('made', { kind: 'column', dtype: 'int16', length: 3, mask: true })
    let refused
    try { made.values } catch (error) { refused = [error.kind, error.message] }
    await made.write(Int16Array.of(1, 2, 3))
    await made.write(Int16Array.of(7), { at: 4 })
    await made.write(Uint8Array.of(0b101), { buffer: 'mask' })
    await made.seal({ nullCounts: 1 })
    await c.put('large', new Float64Array(1 << 20).fill(3))
    const large = await c.open('large')
    const result = { values: [...x.values], same: x.values.buffer === one.buffer, refused, sum: large.values.length,
      made: [...made.values], valid: [0, 1, 2].map(i => made.isValid(i)), slice: [...table.slice(1).column('x').values],
      empty: x.slice(3).values.length, offsets: [...table.column('s').offsets] }
    for (const object of [table, made, large]) object.release()
    console.log(JSON.stringify(result))`)
  assert.deepEqual(got.refused[0], 'unsupported')
  assert.match(got.refused[1], /write\(\)/)
  delete got.refused
  assert.deepEqual(got, { values: [1, 2, 3], same: false, sum: 1 << 20, made: [1, 2, 7], valid: [true, false, true], slice: [2, 3], empty: 0, offsets: [0, 1, 1, 2] })
  const made = await c.open('made')
  assert.deepEqual([...made.values], [1, 2, 7])
  made.release()
  await until(async () => (await c.leases()).leases.length === 0)
})

test('without them Arrow shows copies, too', { ...withArrow, skip: skip || withArrow.skip }, async () => {
  const c = await connect()
  const file = await readFile(data('flights-200k.arrow'))
  await c.put('flights', file)
  const got = await without(`
    const arrow = gpubufd.setArrow && await import(${JSON.stringify(new URL(import.meta.resolve?.('apache-arrow') ?? 'file:///none').href)}).catch(() => undefined)
    if (arrow) gpubufd.setArrow(arrow)
    const c = await connect(process.env.S)
    const flights = await c.open('flights')
    const table = flights.toArrow()
    flights.release()
    console.log(JSON.stringify({ rows: table.numRows, last: table.get(199999).toJSON() }))`)
  const expected = arrow.tableFromIPC(file)
  assert.deepEqual(got, { rows: 200_000, last: expected.get(199_999).toJSON() })
})

async function available () {
  const text = await readFile('/proc/meminfo', 'utf8')
  return Number(/^MemAvailable:\s+(\d+)/m.exec(text)[1]) * 1024
}

const GIB = 2 ** 30
const scarce = await available() > 8 * GIB ? false : 'less than 8 GiB of memory are free'

// Of which only some pages are ever touched.
test('objects of more than 4 GiB', { skip: scarce }, async () => {
  const length = 4.5 * GIB / 8
  const large = await Daemon.start('--device', 'host:6G')
  const c = await plain({ socket: large.socket })
  try {
    const made = await c.create('large', { kind: 'column', dtype: 'float64', length })
    const last = made.slice(-1000)
    last.values.fill(7)
    await made.write(Float64Array.of(1, 2, 3), { at: 8 * 2 ** 29 }) // at 4 GiB
    await made.seal()
    made.release()
    const column = await c.open('large')
    assert.equal(column.length, length)
    assert.deepEqual([...column.slice(2 ** 29 - 1, 2 ** 29 + 4).values], [0, 1, 2, 3, 0])
    assert.deepEqual([...column.slice(-2).values], [7, 7])
    if (constants.MAX_LENGTH >= 4.5 * GIB) { // Node 22 and later
      const { values } = column
      assert.equal(values.length, length)
      assert.deepEqual([values[2 ** 29 + 1], values[length - 1]], [2, 7])
      if (arrow) assert.equal(column.toArrow().get(length - 1), 7)
    } else {
      assert.throws(() => column.values, { kind: 'limit', message: /slice the object/ })
      if (arrow) {
        assert.throws(() => column.toArrow(), { kind: 'limit' })
        assert.equal(column.slice(2 ** 29).toArrow().get(1), 2)
      }
    }
    // An array without a buffer large enough is an exception, not the end.
    await assert.rejects(c.put('huge', new Float64Array(1), { shape: [2 ** 50], dtype: 'float64' }))
    column.release()
  } finally {
    c.close()
    await large.stop()
  }
})
