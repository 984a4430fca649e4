// Labels, and older versions of a name; the switch of a reader.

import assert from 'node:assert/strict'
import test from 'node:test'
import { fixture } from './harness.mjs'

const { connect } = await fixture()
const c = await connect()

const publish = step => c.put('w', Uint8Array.of(step), { replace: true, label: `step-${step}`, keep: 2 })

test('one version is meant by its label or number, the others stay', async () => {
  const made = []
  for (let step = 0; step < 3; step++) made.push(await publish(step))
  const shown = async which => (await c.list('w', { versions: true })).map(which)
  assert.deepEqual(await shown(o => [o.version, o.label, o.older, o.keep]),
    [[made[2], 'step-2', undefined, 2], [made[1], 'step-1', true, 2], [made[0], 'step-0', true, 2]])
  const byLabel = await c.open('w', { label: 'step-1' })
  assert.deepEqual([byLabel.version, byLabel.label, byLabel.values[0]], [made[1], 'step-1', 1])
  const byVersion = await c.open('w', { version: made[0] })
  assert.equal(byVersion.label, 'step-0')
  assert.equal((await c.stat('w', { label: 'step-0' })).version, made[0])
  await c.expire('w', 3_600_000, { label: 'step-1' })
  assert.deepEqual(await shown(o => o.ttl_ms), [0, 3_600_000, 0])
  await c.expire('w', 0, { version: made[1] })
  assert.deepEqual(await shown(o => o.ttl_ms), [0, 0, 0])
  await assert.rejects(c.spill('w', { label: 'step-1' }), { kind: 'unsupported' }) // here is no tier
  await c.restore('w', { version: made[0] }) // is there already
  byLabel.release()
  byVersion.release()
  await c.delete('w', { label: 'step-1' })
  assert.deepEqual(await shown(o => o.label), ['step-2', 'step-0'])
  await assert.rejects(c.open('w', { label: 'step-1' }), { kind: 'not_found', message: /it has .*step-2/ })
  await assert.rejects(c.open('w', { version: made[1] }), { kind: 'stale' })
  await assert.rejects(c.expire('w', 0, { version: made[0], label: 'step-0' }), { kind: 'invalid' })
  await assert.rejects(c.open('w', { label: 'a\0b' }), TypeError)
  for (const wrong of [{ version: '1' }, { label: 1 }]) {
    for (const call of [c.open('w', wrong), c.delete('w', wrong), c.expire('w', 0, wrong), c.spill('w', wrong), c.restore('w', wrong)]) {
      await assert.rejects(call, TypeError)
    }
  }
  await assert.rejects(c.delete(['w'], { version: made[0] }), TypeError)
  await assert.rejects(c.put('w', Uint8Array.of(1), { label: 1 }), TypeError)
  await assert.rejects(c.put('w', Uint8Array.of(1), { replace: true, keep: 9 }), { kind: 'invalid' })
  await c.alias('w', 'w', { replace: true, label: 'alias', keep: 1 })
  assert.deepEqual(await shown(o => [o.label, o.keep]), [['alias', 1], ['step-2', 2]])
  await c.delete('w')
})

test('a label that is known at the seal only', async () => {
  const make = async (options, sealed) => {
    const made = await c.create('late', { kind: 'bytes', bytes: 1 }, { replace: true, ...options })
    try {
      return await made.seal(sealed)
    } finally {
      made.release()
    }
  }
  const first = await make({ label: 'draft' }, { label: 'loss-0.5', keep: 2 })
  assert.deepEqual([(await c.stat('late')).label, (await c.stat('late')).keep], ['loss-0.5', 2])
  await make({ label: 'draft', keep: 1 })
  assert.equal((await c.stat('late')).label, 'draft')
  assert.equal((await c.stat('late', { label: 'loss-0.5' })).version, first)
  await make({ label: 'draft', keep: 1 }, { label: '' })
  assert.equal((await c.stat('late')).label, undefined)
  for (const [wrong, type] of [[{ label: 1 }, TypeError], [{ label: 'a\0b' }, TypeError], [{ keep: '1' }, RangeError],
    [{ keep: -2 }, RangeError], [{ keep: 9 }, { kind: 'invalid' }], [{ label: 'x'.repeat(300) }, { kind: 'invalid' }],
    [{ labels: 'x' }, TypeError]]) {
    await assert.rejects(make({}, wrong), type, JSON.stringify(wrong))
  }
  const made = await c.create('late', { kind: 'bytes', bytes: 1 }, { replace: true })
  await made.seal()
  await assert.rejects(made.seal({ label: 'x' }), { kind: 'busy' })
  made.release()
  await c.delete('late')
})

test('versions() is the switch', async () => {
  const told = []
  const end = new AbortController()
  await publish(0)
  await c.put('w2', Uint8Array.of(9))
  await assert.rejects(async () => {
    for await (const { label, version } of c.versions('w', { signal: end.signal })) {
      const object = await c.open('w', { version })
      told.push([label, object.values[0]])
      object.release()
      if (told.length === 3) end.abort()
      else await publish(told.length)
    }
  }, { name: 'AbortError' })
  assert.deepEqual(told, [['step-0', 0], ['step-1', 1], ['step-2', 2]])
  await c.delete(['w', 'w2'])
})
