// Live memory: written while it is read, claimed, taken over.

import assert from 'node:assert/strict'
import test from 'node:test'
import { fixture, run } from './harness.mjs'

const { daemon, connect } = await fixture()
const c = await connect()
const LAYOUT = { kind: 'array', dtype: 'float64', shape: [1000] }

test('readers see what writers write', async () => {
  const made = await c.create('pool', LAYOUT, { live: true })
  assert.deepEqual([made.live, made.generation, made.stale, made.version > 0], [true, 0, false, true])
  const reader = await c.open('pool')
  const seen = reader.values
  made.values.fill(7)
  assert.equal(seen[999], 7)
  const other = await c.open('pool', { write: true })
  await other.write(Float64Array.of(1, 2), { at: 8 })
  assert.deepEqual([...seen.slice(0, 4)], [7, 1, 2, 7])
  await assert.rejects(made.seal(), { kind: 'busy' })
  for (const object of [made, other, reader]) object.release()
  await c.delete('pool')
})

test('arrays that can be written end with the last lease that may write', async () => {
  const made = await c.create('pool', LAYOUT, { live: true })
  const beside = await c.create('beside', LAYOUT, { live: true }) // maybe of the same mapping
  const other = await c.open('pool', { write: true })
  const [mine, others, besides] = [made.values, other.slice(10).values, beside.values]
  assert.equal(mine.buffer, others.buffer)
  other.release()
  other.release()
  assert.deepEqual([mine.length, others.length], [1000, 990])
  made.release()
  assert.deepEqual([mine.length, others.length, besides.length], [0, 0, 1000])
  const again = await c.open('pool', { write: true })
  again.values[0] = 1
  assert.equal(again.values.length, 1000)
  again.release()
  beside.release()
  const table = await c.create('table', { kind: 'table', length: 3, columns: [{ name: 'x', dtype: 'int32' }] }, { live: true })
  table.column('x').values.set([1, 2, 3])
  const read = await c.open('table')
  assert.deepEqual(read.toArray(), [{ x: 1 }, { x: 2 }, { x: 3 }])
  read.release()
  table.release()
  await c.delete(['pool', 'beside', 'table'])
})

test('claims', async () => {
  (await c.create('pool', LAYOUT, { live: true })).release()
  const other = await connect()
  const claim = await c.claim('pool')
  assert.equal(claim.generation, 1)
  await assert.rejects(other.claim('pool'), { kind: 'busy', message: /is claimed by session/ })
  const third = await connect() // gives back what the daemon grants to the call that was aborted
  await assert.rejects(third.claim('pool', { timeout: 60_000, signal: AbortSignal.timeout(10) }), { name: 'TimeoutError' })
  const waiting = other.claim('pool', { timeout: 60_000 })
  claim.release()
  const { generation, values } = await waiting
  assert.ok(generation > 1 && values.length)
  other.close() // releases what it writes
  assert.equal(values.length, 0)
  third.close() // its call may still wait for the name, and would claim the next one's
  await c.delete('pool')
})

test('a claim that nobody releases ends with its object, and its arrays with it', async () => {
  (await c.create('pool', LAYOUT, { live: true })).release()
  const { code, stdout, stderr } = await run(`
    const c = await connect(process.env.S)
    let part = await (async () => (await c.claim('pool')).values.subarray(1))()
    for (let i = 0; i < 500 && part.length > 0; i++) await collect(1)
    console.log(part.length, (await c.claim('pool')).generation)
    process.exit()`, { S: daemon.socket }, ['--expose-gc'])
  assert.deepEqual([code, stdout], [0, '0 2\n'], stderr)
  assert.match(stderr, /GPUBUF_UNRELEASED/)
  await c.delete('pool')
})

test('what is not live, and wrong arguments', async () => {
  await c.put('sealed', Uint8Array.of(1))
  await assert.rejects(c.open('sealed', { write: true }), { kind: 'unsupported', message: /never changes/ })
  await assert.rejects(c.create('x', LAYOUT, { live: true, label: 'a' }), { kind: 'invalid' })
  await assert.rejects(c.create('x', LAYOUT, { live: 'yes' }), TypeError)
  await assert.rejects(c.open('sealed', { write: 1 }), TypeError)
  await assert.rejects(c.put('x', [1], { live: true }), TypeError)
  await assert.rejects(c.claim('none'), { kind: 'not_found' })
  await c.delete('sealed')
})

test('edit publishes the next version', async () => {
  await c.put('array', Float64Array.from({ length: 12 }, (_, i) => i), { shape: [3, 4], mode: '0640' })
  const before = await c.open('array')
  const version = await c.edit('array', async array => {
    await null
    array.values.fill(7, 4, 8)
  }, { label: 'changed' })
  const after = await c.open('array')
  assert.deepEqual([after.version, after.label, (await c.stat('array')).mode], [version, 'changed', '0640'])
  assert.deepEqual([...before.values.slice(3, 6)], [3, 4, 5])
  assert.deepEqual([...after.values], [0, 1, 2, 3, 7, 7, 7, 7, 8, 9, 10, 11])
  before.release()
  after.release()
  await c.put('table', { n: [1, null, 3], s: ['a', 'b', null] })
  await c.edit('table', table => { table.column('n').values[0] = 9 }, { nullCounts: { n: 1, s: 1 } })
  const table = await c.open('table')
  assert.deepEqual(table.toArray(), [{ n: 9, s: 'a' }, { n: null, s: 'b' }, { n: 3, s: null }])
  table.release()
  await c.delete(['array', 'table'])
})

test('an edit that fails leaves no trace', async () => {
  const version = await c.put('array', Int32Array.of(1, 2, 3))
  let kept
  for (const fail of [() => { throw new Error('mine') }, async () => { throw new Error('mine') }]) {
    await assert.rejects(c.edit('array', array => {
      kept = array
      array.values[0] = 9
      return fail()
    }), /mine/)
    assert.ok(kept.released)
  }
  await assert.rejects(c.edit('array', () => {}, { signal: AbortSignal.abort(new Error('enough')) }), /enough/)
  const object = await c.open('array')
  assert.deepEqual([object.version, ...object.values], [version, 1, 2, 3])
  object.release()
  assert.equal((await c.list('', { versions: true })).length, 1)
  await assert.rejects(c.edit('none', () => {}), { kind: 'not_found' })
  await assert.rejects(c.edit('array'), TypeError)
  ;(await c.create('pool', LAYOUT, { live: true })).release()
  await assert.rejects(c.edit('pool', () => {}), { kind: 'unsupported' })
  await c.delete(['array', 'pool'])
})
