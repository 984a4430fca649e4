// Leaks, threads, and ends of all kinds.

import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import test from 'node:test'
import { Worker } from 'node:worker_threads'
import { PACKAGE, Daemon, collect, descriptors, exposeGc, fixture, mappings, run, until, connect as plain } from './harness.mjs'

const { daemon, connect } = await fixture()
const c = await connect()
await c.put('object', Float64Array.of(1, 2, 3, 4), { as: 'column' })

exposeGc()
const sanitized = /asan/.test(process.env.LD_PRELOAD ?? '') // which keeps what was freed for a while

async function resident () {
  await collect(3)
  return Number(/VmRSS:\s+(\d+)/.exec(await readFile('/proc/self/status', 'utf8'))[1]) * 1024
}

async function opens (count) {
  for (let i = 0; i < count; i++) {
    const object = await c.open('object')
    if (object.slice(1).values[0] !== 2) throw new Error('something else')
    object.release()
  }
}

// In `make hunt` so many that 300 bytes of each would show.
const many = process.env.GPUBUF_TEST_HUNT ? 6250 : 500

test(`${16 * many} opens leave nothing behind`, async () => {
  await Promise.all(Array.from({ length: 16 }, () => opens(many))) // until V8's heap is as large as it likes
  const before = { fds: await descriptors(), maps: await mappings(), rss: await resident() }
  await Promise.all(Array.from({ length: 16 }, () => opens(many)))
  await until(async () => (await c.leases()).leases.length === 0)
  assert.equal(await descriptors(), before.fds)
  assert.equal(await mappings(), before.maps)
  const grown = await resident() - before.rss
  assert.ok(sanitized || grown < 24 << 20, `grew by ${grown} bytes`)
})

const WORK = `
  const { workerData, parentPort } = require('node:worker_threads')
  const { connect } = require(workerData.package)
  ;(async () => {
    const c = await connect({ socket: workerData.socket, reconnect: false })
    let sum = 0
    const work = async count => {
      for (let i = 0; i < count; i++) {
        const object = await c.open('object')
        sum += object.values[0]
        if (!workerData.keep) object.release()
      }
    }
    await Promise.all(Array.from({ length: 4 }, () => work(workerData.count)))
    parentPort.postMessage(sum)
    if (workerData.watch) for await (const event of c.watch()) parentPort.postMessage(event.kind)
    if (!workerData.keep) c.close()
  })()`

function worker (more) {
  return new Worker(WORK, {
    eval: true, workerData: { package: PACKAGE, socket: daemon.socket, count: 200, ...more }
  })
}

test('workers, which end with objects open or are ended at work', async () => {
  const ended = Array.from({ length: 3 }, (_, i) => new Promise((resolve, reject) => {
    const one = worker({ keep: i > 0 })
    let sum
    one.on('message', message => { sum = message })
    one.on('error', reject)
    one.on('exit', code => resolve([code, sum]))
  }))
  assert.deepEqual(await Promise.all(ended), [[0, 800], [0, 800], [0, 800]])
  for (let i = 0; i < 6; i++) {
    const one = worker({ count: 1e6, watch: true })
    one.on('error', () => {})
    await new Promise(resolve => one.once('online', resolve))
    await until(async () => (await c.leases()).leases.length > 0)
    await one.terminate()
  }
  const watching = worker({ count: 1, watch: true, keep: true })
  await new Promise(resolve => watching.on('message', message => message === 'synced' && resolve()))
  await watching.terminate()
  await until(async () => (await c.leases()).leases.length === 0)
})

test('the process ends with objects, requests and watches open', async () => {
  const ends = {
    'process.exit(0)': [0, null],
    'process.reallyExit(0)': [0, null],
    'process.abort = undefined; process.exit(3)': [3, null],
    "process.kill(process.pid, 'SIGTERM'); await new Promise(() => setTimeout(() => {}, 1e6))": [null, 'SIGTERM']
  }
  for (const [end, expected] of Object.entries(ends)) {
    const { code, signal, stderr } = await run(`
      const c = await connect(process.env.S)
      const objects = await c.openMany(['object', 'object'])
      globalThis.values = objects[0].values
      c.open('never', { timeout: 60000 }).catch(() => {})
      c.watch().next()
      connect(process.env.S)
      c.put('large', new Uint8Array(16 << 20), { replace: true }).catch(() => {})
      ${end}`, { S: daemon.socket })
    assert.deepEqual([code, signal, stderr], [...expected, ''], end)
  }
  await until(async () => (await c.leases()).leases.length === 0)
})

test('the daemon is killed in the midst of it', async () => {
  const mortal = await Daemon.start()
  try {
    for (let round = 0; round < 3; round++) {
      const client = await plain({ socket: mortal.socket, reconnect: false })
      await client.put('object', Float64Array.of(5))
      const held = await client.open('object')
      const values = held.values
      let opened = 0
      const work = async () => {
        for (;;) {
          const object = await client.open('object')
          opened++
          object.release()
        }
      }
      const outcomes = Promise.allSettled(Array.from({ length: 32 }, work))
      const waiting = client.open('never', { timeout: 60_000 })
      waiting.catch(() => {})
      await until(() => opened > 100)
      await mortal.kill()
      for (const { reason } of await outcomes) assert.equal(reason.kind, 'closed')
      await assert.rejects(waiting, { kind: 'closed' })
      assert.equal(values[0], 5)
      held.release()
      client.close()
      await mortal.run()
    }
  } finally {
    await mortal.stop()
  }
})

test('put with replace is done again over a crash', async () => {
  const mortal = await Daemon.start()
  const client = await plain({ socket: mortal.socket, timeout: 60_000 })
  try {
    let over = false
    let count = 0
    const work = Array.from({ length: 8 }, async (_, i) => {
      for (; !over; count++) await client.put(`k/${i}`, { x: Float64Array.of(i, count), y: ['text', null] }, { replace: true })
    })
    for (let round = 0; round < 3; round++) {
      const before = count
      await until(() => count > before + 50)
      await mortal.kill()
      await mortal.run()
    }
    const before = count
    await until(() => count > before + 50)
    over = true
    await Promise.all(work)
    assert.equal((await client.list('k/')).length, 8)
    const { version } = await client.stat('k/0')
    await assert.rejects(client.put('k/0', Int8Array.of(1)), { kind: 'exists' })
    assert.equal((await client.stat('k/0')).version, version)
  } finally {
    client.close()
    await mortal.stop()
  }
})

test('without memory for an outcome a request does not begin, and all others end', async () => {
  const { code, stdout, stderr } = await run(`
    const c = await connect({ socket: process.env.S })
    const all = await Promise.allSettled(Array.from({ length: 200 }, () => c.stat('not/there')))
    const kinds = all.map(({ reason }) => reason.kind)
    console.log(kinds.filter(kind => kind === 'not_found').length > 50, kinds.filter(kind => kind === 'no_memory').length > 50,
      kinds.every(kind => ['not_found', 'no_memory'].includes(kind)))
    console.log(await c.stat('not/there').catch(error => error.kind))
    c.close()`, { S: daemon.socket, GPUBUFD_ADDON: path.join(PACKAGE, '..', 'no-memory.node') })
  assert.deepEqual([code, stdout, stderr], [0, 'true true true\nnot_found\n', ''])
})
