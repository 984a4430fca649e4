// Views: typed arrays that stay where they are while their content changes from version to version.

import assert from 'node:assert/strict'
import test from 'node:test'
import { fixture, run } from './harness.mjs'

const { daemon, connect } = await fixture()
const c = await connect()

const publish = (step, options) =>
  c.put('policy', Float32Array.from({ length: 5000 }, () => step), { replace: true, own: true, keep: 2, label: `step-${step}`, ...options })

test('typed arrays keep their buffer', async () => {
  await publish(1)
  const view = await c.follow('policy')
  const array = view.value.values
  assert.deepEqual([array[4999], view.label, await view.switch()], [1, 'step-1', false])
  const version = await publish(2)
  assert.deepEqual([array[0], view.value.get(0)], [1, 1])
  assert.equal(await view.switch(), true)
  assert.deepEqual([array[4999], view.value.get(-1), view.version, view.value.version], [2, 2, version, version])
  assert.equal(view.value.values.buffer, array.buffer)
  assert.equal(view.value.slice(10).values.buffer, array.buffer)
  assert.equal(await view.switch({ label: 'step-1' }), true)
  assert.equal(array[0], 1)
  assert.equal(await view.switch({ version }), true)
  assert.equal(array[0], 2)
  view.close()
  view.close()
  assert.equal(array[0], 0) // and not memory of somebody else
  assert.equal(array.length, 5000)
  assert.deepEqual((await c.leases('policy')).leases, [])
  await assert.rejects(view.switch(), { kind: 'closed' })
  await c.delete('policy')
})

test('other kinds, and copies', async () => {
  const puts = async values => {
    await c.put('table', { n: values, s: values.map(n => n === null ? 'none' : `number ${n}`) }, { own: true, replace: true })
  }
  await puts([1, null, 3])
  const [view, copies] = [await c.follow('table', { timeout: 5000 }), await (await connect({ copy: true })).follow('table')]
  assert.deepEqual([view.value.get(1).n, copies.value.get(0).n], [null, 1])
  await puts([10, 5, 6])
  await assert.rejects(view.switch(), { kind: 'unsupported' }) // more text
  await puts([7, null, 9])
  assert.ok(await view.switch() && await copies.switch())
  assert.deepEqual([view.value.column('n').toArray(), copies.value.column('n').toArray()], [[7, null, 9], [7, null, 9]])
  view.close()
  copies.close()
  await c.delete('table')
})

test('refusals leave the view as it was', async () => {
  await publish(1)
  const view = await c.follow('policy')
  const array = view.value.values
  await c.put('policy', new Float64Array(5000), { replace: true, own: true })
  await assert.rejects(view.switch(), { kind: 'unsupported', message: /another layout: the dtype/ })
  await c.put('policy', Float32Array.from({ length: 5000 }, () => 2), { replace: true })
  await assert.rejects(view.switch(), { kind: 'unsupported', message: /shares its segment/ })
  await assert.rejects(c.follow('policy'), { kind: 'unsupported' })
  await assert.rejects(view.switch({ label: 'step-9' }), { kind: 'not_found' })
  for (const wrong of [{ label: 1 }, { version: -1 }, { streams: 7 }, { streams: ['x'] }, { timeout: 1e12 }, { other: 1 }]) {
    await assert.rejects(view.switch(wrong), error => error instanceof TypeError || error instanceof RangeError)
  }
  assert.equal(array[0], 1)
  await publish(3)
  const [first, second, third] = await Promise.all([view.switch(), view.park(), view.resume()]) // one after the other
  assert.deepEqual([first, second, third, array[0]], [true, true, true, 3])
  view.close()
  await c.delete('policy')
})

test('parked arrays read as zeros, and the content stays', async () => {
  await publish(1)
  const view = await c.follow('policy')
  const array = view.value.values
  const parking = view.park()
  assert.equal(array[0], 1)
  assert.equal(await parking, true)
  assert.deepEqual([view.parked, await view.park(), array[0], array[4999]], [true, false, 0, 0])
  assert.throws(() => view.value.values, { kind: 'busy', message: /resume/ })
  assert.throws(() => view.value.get(0), { kind: 'busy' })
  assert.equal((await c.leases('policy')).leases[0].parked_ms >= 0, true)
  await c.delete('policy')
  await publish(2)
  assert.deepEqual([await view.resume(), await view.resume(), array[0]], [true, false, 1])
  await view.park()
  assert.equal(await view.switch(), true) // shows again, too
  assert.deepEqual([view.parked, array[0]], [false, 2])
  await view.park()
  view.close()
  assert.equal(array[0], 0)
  await c.delete('policy')
})

test('versions', async () => {
  await publish(0)
  const view = await c.follow('policy')
  const array = view.value.values
  const seen = []
  const publishing = (async () => { for (let step = 1; step < 10; step++) await publish(step) })()
  for await (const { version } of view.versions()) {
    await view.switch()
    assert.ok(view.version >= version)
    seen.push(array[0])
    if (array[0] === 9) break
  }
  await publishing
  assert.deepEqual(seen, seen.toSorted?.((a, b) => a - b) ?? seen)
  view.close()
  await c.delete('policy')
})

test('a view ends before a switch does, with its client, and by the garbage collector', async () => {
  await publish(1)
  const view = await c.follow('policy')
  await publish(2)
  const switching = view.switch()
  view.close()
  await switching.catch(error => assert.equal(error.kind, 'closed'))
  const other = await connect()
  const theirs = await other.follow('policy')
  const array = theirs.value.values
  const parking = theirs.park()
  other.close()
  await parking.catch(error => assert.equal(error.kind, 'closed'))
  await assert.rejects(theirs.switch(), { kind: 'closed' })
  theirs.close()
  assert.equal(array[0], 0)
  const aborted = new AbortController()
  const following = c.follow('policy', { signal: aborted.signal })
  aborted.abort(new Error('enough'))
  await assert.rejects(following, /enough/)
  const { code, stdout, stderr } = await run(`
    const c = await connect(process.env.S)
    let array = await (async () => (await c.follow('policy')).value.values)()
    await collect()
    console.log(array[0], (await c.leases('policy')).leases.length)
    array = undefined
    await collect()
    console.log((await c.leases('policy')).leases.length)`, { S: daemon.socket }, ['--expose-gc'])
  assert.deepEqual([code, stdout], [0, '2 1\n0\n'], stderr)
  assert.match(stderr, /GPUBUF_UNRELEASED/)
  await c.delete('policy')
})
