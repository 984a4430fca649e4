// Streams: frames in place, from a writer to readers, without a wait in Node's loop.

import assert from 'node:assert/strict'
import path from 'node:path'
import test from 'node:test'
import { PACKAGE, fixture, run, until } from './harness.mjs'

const { daemon, connect } = await fixture()
const c = await connect()
const FRAMES = { dtype: 'int32', shape: [4, 5], slots: 12, device: 'host' }
const S = { S: daemon.socket }

async function publish (writer, value, options) {
  const frame = await writer.next(options)
  frame.array.fill(value)
  frame.publish() // at once, on the host
  return frame
}

/** A writer of a stream of its own, which is deleted at the test's end. */
async function begin (t, name, options) {
  const writer = await c.stream(name, { ...FRAMES, ...options })
  t.after(async () => {
    await writer.close()
    await c.delete(name)
  })
  return writer
}

test('the newest frame, which does not change while it is held', async t => {
  const writer = await begin(t, 'cam')
  assert.deepEqual([writer.dtype, writer.shape, writer.slots, writer.device], ['int32', [4, 5], 12, 'host'])
  const reader = await c.read('cam').ready()
  assert.deepEqual([reader.dtype, reader.shape], ['int32', [4, 5]])
  await assert.rejects(reader.read({ timeout: 1 }), { kind: 'timeout' })
  await assert.rejects(reader.read({ timeout: 0 }), { kind: 'timeout' })
  let last
  for (let value = 0; value < 3; value++) last = await publish(writer, value)
  const frame = await reader.read()
  assert.deepEqual([frame.number, frame.byteLength, frame.array.length, frame.array[19]], [last.number, 80, 20, 2])
  assert.ok(frame.timeNs <= process.hrtime.bigint() && frame.timeNs > 0n)
  for (let value = 0; value < 20; value++) await publish(writer, value)
  assert.ok(frame.array.every(one => one === 2))
  await assert.rejects(reader.read(), { kind: 'busy' })
  frame.done()
  frame.done()
  assert.throws(() => frame.array, { kind: 'stale' })
  assert.throws(() => last.array, { kind: 'stale' })
  await assert.rejects(last.publish(), { kind: 'stale' })
  const next = await reader.read({ timeout: 10_000 })
  assert.equal(next.missed, 19)
  await reader.close()
  await reader.close()
  assert.throws(() => next.array, { kind: 'stale' })
  await assert.rejects(reader.read(), { kind: 'closed' })
})

test('a frame that is not published, and a shorter one', async t => {
  const writer = await begin(t, 'cam')
  const reader = await c.read('cam').ready()
  const frame = await writer.next()
  frame.array.fill(6)
  assert.equal((await writer.next()).array.buffer, frame.array.buffer) // the same slot
  await assert.rejects(reader.read({ timeout: 1 }), { kind: 'timeout' })
  for (const byteLength of [-1, 81, 'x']) await assert.rejects(frame.publish({ byteLength }), RangeError)
  await frame.publish({ byteLength: 40 })
  const read = await reader.read()
  assert.deepEqual([read.byteLength, read.array.length], [40, 20])
  const array = read.array
  await reader.close()
  assert.equal(array[0], 6) // mapped until it is collected
  const mine = (await writer.next()).array
  await writer.close()
  assert.equal(mine.length, 0) // the memory is for the next writer
  await assert.rejects(writer.next(), { kind: 'closed' })
})

test('each frame, for a loop that ends with the writer', async t => {
  const writer = await begin(t, 'cam')
  const reader = await c.read('cam', { each: true, waits: true, lag: 4 }).ready()
  const found = []
  const reading = (async () => {
    for await (const frame of reader) {
      assert.ok(frame.array.every(one => one === frame.array[0]))
      found.push(frame.array[0])
    }
  })()
  for (let value = 0; value < 1500; value++) await publish(writer, value, { timeout: Infinity })
  await writer.close()
  await reading
  assert.deepEqual(found, Array.from({ length: 1500 }, (_, i) => i))
  assert.ok(reader.closed)
  assert.deepEqual(await reader.next(), { value: undefined, done: true })
})

test('loops that break, throw or are aborted leave nothing held', async t => {
  const writer = await begin(t, 'cam')
  const loop = async (how, signal) => {
    const reader = await c.read('cam', { signal }).ready()
    await publish(writer, 1)
    let taken
    try {
      for await (const frame of reader) {
        taken = frame
        how()
        if (!signal) break
      }
    } finally {
      assert.throws(() => taken.array, { kind: 'stale' })
      assert.ok(reader.closed)
    }
  }
  await loop(() => {})
  await assert.rejects(loop(() => { throw new Error('mine') }), /mine/)
  const controller = new AbortController()
  await assert.rejects(loop(() => setTimeout(() => controller.abort(new Error('enough')), 5), controller.signal), /enough/)
  const reader = await c.read('cam').ready()
  ;(await reader.read()).done()
  for (let i = 0; i < 3; i++) await assert.rejects(reader.read({ signal: AbortSignal.timeout(5) }), { name: 'TimeoutError' })
  const waiting = reader.read()
  const second = reader.read({ timeout: 60_000 }) // after it
  await publish(writer, 2)
  const frame = await waiting
  assert.equal(frame.array[0], 2)
  await assert.rejects(second, { kind: 'busy' })
  frame.done()
  const endless = reader.read()
  await reader.close()
  await assert.rejects(endless, { kind: 'closed' })
})

test('what waits keeps out of the loop, and a client that closes ends it', async t => {
  await begin(t, 'cam')
  const other = await connect()
  const readers = await Promise.all(Array.from({ length: 6 }, () => other.read('cam').ready())) // more than libuv has threads
  const waiting = readers.map(reader => reader.read())
  const begun = process.hrtime.bigint()
  const { readFile } = await import('node:fs/promises')
  await readFile('/proc/self/stat')
  assert.ok(process.hrtime.bigint() - begun < 30_000_000_000n)
  other.close()
  assert.deepEqual((await Promise.allSettled(waiting)).map(one => one.reason?.kind), Array(6).fill('closed'))
  for (const reader of readers) await reader.close()
})

test('frames and readers that nobody gives back', async t => {
  await begin(t, 'cam')
  const { code, stdout, stderr } = await run(`
    const c = await connect(process.env.S)
    const writer = await c.stream('mine', ${JSON.stringify(FRAMES)})
    const publish = async value => {
      const frame = await writer.next()
      frame.array.fill(value)
      await frame.publish()
    }
    const reader = await c.read('mine').ready()
    for (let i = 0; i < 3; i++) {
      await publish(i)
      await reader.read()
      await collect()
    }
    await publish(7)
    let array = (await (async () => (await reader.read()).array)())
    await collect()
    await publish(8)
    console.log(await reader.read().catch(error => error.kind), array[0]) // the array holds its frame
    array = undefined
    await collect()
    console.log((await reader.read()).array[0])
    await (async () => { await c.read('mine').ready() })()
    await collect()
    process.exit()`, S, ['--expose-gc'])
  assert.deepEqual([code, stdout], [0, 'busy 7\n8\n'], stderr)
  assert.match(stderr, /"mine" was garbage collected/)
  await c.delete('mine')
})

test('programs and workers that end while a reader waits', async t => {
  await begin(t, 'cam')
  const script = how => `
    const c = await connect(process.env.S)
    const reader = await c.read('cam').ready()
    reader.read().catch(() => {})
    setTimeout(() => { ${how} }, 20)`
  assert.deepEqual(await run(script('process.exit(3)'), S), { code: 3, signal: null, stdout: '', stderr: '' })
  const worker = await run(`
    import { Worker } from 'node:worker_threads'
    const worker = new Worker(\`
      const { connect } = require(process.env.P)
      connect(process.env.S).then(async c => {
        const writer = await c.stream('theirs', ${JSON.stringify(FRAMES)})
        const reader = await c.read('cam').ready()
        require('node:worker_threads').parentPort.postMessage('there')
        for await (const frame of reader) {}
      })\`, { eval: true, execArgv: [] })
    await new Promise((resolve, reject) => worker.once('message', resolve).once('error', reject))
    console.log(await worker.terminate())
    const c = await connect(process.env.S)
    await (await c.stream('theirs', ${JSON.stringify(FRAMES)})).close()`,
  { ...S, P: path.join(PACKAGE, 'lib', 'index.cjs') })
  assert.deepEqual(worker, { code: 0, signal: null, stdout: '1\n', stderr: '' })
  await until(async () => (await c.leases('cam')).leases.length === 1, 'their leases to end')
  await c.delete('theirs')
})

test('what is no stream, and wrong arguments', async t => {
  await begin(t, 'cam')
  await assert.rejects(c.stream('cam', { ...FRAMES, timeout: 5 }), { kind: 'timeout' }) // it has a writer
  await assert.rejects(c.read('none').read(), { kind: 'not_found' })
  await assert.rejects(c.read('none', { timeout: 2 }).ready(), { kind: 'timeout' })
  await c.put('sealed', Float32Array.of(1))
  await assert.rejects(c.read('sealed').read(), { kind: 'unsupported' })
  for (const wrong of [{ each: true, lag: -1 }, { hold: 1.5 }, { lag: 'x' }, { timeout: -1 }, { newest: true }]) {
    assert.throws(() => c.read('sealed', wrong), error => error instanceof TypeError || error instanceof RangeError)
  }
  for (const wrong of [{}, { dtype: 1 }, { dtype: 'int8', shape: 3 }, { dtype: 'int8', slots: 'x' }]) {
    await assert.rejects(c.stream('x', wrong), TypeError)
  }
  await assert.rejects(c.stream('x', { dtype: 'int8', slots: 1, device: 'host' }), { kind: 'unsupported' })
  await c.delete(['sealed', 'x'])
})
