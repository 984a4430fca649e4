// Whatever a program hands in: a rejection or an exception that says something, and never the end of the
// process; in the main thread, in a worker, and after everything has been closed.

import assert from 'node:assert/strict'
import test from 'node:test'
import { Worker } from 'node:worker_threads'
import { BUILD, PACKAGE, fixture, gpubufd, run, until } from './harness.mjs'

const { daemon, connect } = await fixture()

/** Runs everything with everything, in this thread; how many calls were made, or what went wrong. */
async function matrix (gpubufd, socket) {
  const { connect, GpubufError } = gpubufd
  const c = await connect({ socket, name: 'matrix' })
  await c.put('m/table', { a: Int32Array.of(1, 2, 3), b: ['x', null, 'z'] }, { replace: true })
  await c.put('m/array', Float64Array.of(1, 2, 3, 4), { shape: [2, 2], replace: true })
  await c.put('m/bytes', Buffer.from('bytes'), { replace: true })

  const detached = new ArrayBuffer(8)
  const detachedView = new Int32Array(detached)
  structuredClone(detached, { transfer: [detached] })
  const throwing = new Proxy({}, { get () { throw new Error('from a getter') }, ownKeys () { throw new Error('from ownKeys') } })
  const closing = { get timeout () { throw new RangeError('thrown by a getter') } }
  class Liar extends Float64Array { get length () { return 1e9 } get byteLength () { return 1e12 } }
  const revoked = Proxy.revocable([], {})
  revoked.revoke()
  const cyclic = { kind: 'column', dtype: 'struct', length: 1, children: [] }
  cyclic.children.push(cyclic)
  const released = await c.open('m/table')
  released.release()
  const JUNK = [
    undefined, null, true, 0, -0, -1, 1.5, NaN, Infinity, -Infinity, 2 ** 53, -(2 ** 53), 1e300, 10n, -(2n ** 70n),
    '', 'm/table', 'none', 'a\0b', '\ud800', 'x'.repeat(70_000), Symbol('s'), () => {}, {}, [], [1], [null], ['m/table', , 'm/bytes'],
    new Array(3), new Date(NaN), new Map([[1, 2]]), /x/, Object.create(null), throwing, closing, revoked.proxy, cyclic,
    detached, detachedView, new Liar(2), new SharedArrayBuffer(8), new Float64Array(0), new DataView(new ArrayBuffer(3), 1),
    AbortSignal.abort(), AbortSignal.abort(null), new AbortController(), released, Promise.resolve(1), globalThis,
    { signal: 7 }, { signal: AbortSignal.abort() }, { timeout: -1 }, { timeout: 'x' }, { version: 1.5 }, { replace: 'yes' },
    { kind: 'bytes', bytes: 2 ** 52 }, { kind: 'bytes', bytes: 2 ** 60 }, { kind: 'array', dtype: 'float64', shape: [2 ** 40, 2 ** 40] },
    { kind: 'array', dtype: 'float64', shape: [-1] }, { kind: 'table', length: 1, columns: [null] }, { kind: 'table', length: 1, columns: throwing },
    { kind: 'column', dtype: 'list', length: 1, children: [{}] }, { kind: 'column', dtype: 'fixed_binary(99999999999)', length: 9e9 },
    { kind: 'toString' }, { slice: { offset: -1, length: 2 ** 60 } }, { columns: [7] }, { shape: [2 ** 53] }, { shape: ['1'] }, { as: 'constructor' },
    { a: Int8Array.of(1), b: 7 }, { buffer: 'toString' }, { at: -1 }, { at: 2 ** 60 }, { limit: -1 }, { nullCounts: throwing }, { nullCounts: [1e300, NaN] }
  ]

  let calls = 0
  const wrong = []
  const said = (what, error) => {
    const good = error instanceof Error && error.message.length > 0 &&
      (error instanceof TypeError || error instanceof RangeError || error instanceof GpubufError ||
       error.name === 'AbortError' || error instanceof DOMException || /from a getter|from ownKeys/.test(error.message))
    // A signal may be aborted with any reason.
    if (!good && error !== null) wrong.push(`${what}: ${error?.stack ?? String(error)}`)
  }
  const attempt = async (what, work) => {
    calls++
    let outcome
    try {
      outcome = work()
      if (typeof outcome?.next === 'function' && typeof outcome?.return === 'function') { // a watch
        const first = outcome.next()
        first.catch(() => {})
        await Promise.race([first, new Promise(resolve => setTimeout(resolve, 1))])
        await outcome.return()
        return
      }
      outcome = await outcome
    } catch (error) {
      return said(what, error)
    }
    for (const one of Array.isArray(outcome) ? outcome : [outcome]) if (typeof one?.release === 'function') one.release()
  }

  const methods = ['open', 'openMany', 'call', 'stat', 'list', 'leases', 'stats', 'delete', 'pin', 'unpin', 'spill', 'restore', 'alias', 'create', 'put', 'watch']
  const before = { call: ['list'], alias: ['m/alias'], create: ['m/made'], put: ['m/put'], open: [], openMany: [] }
  for (const [i, junk] of JUNK.entries()) {
    const name = `#${i} ${typeof junk}`
    await attempt(`connect ${name}`, () => connect(typeof junk === 'object' && junk ? junk : junk === undefined ? { socket } : junk).then(other => other.close()))
    for (const method of methods) {
      if (method === 'delete' && junk === 'm/table') continue
      await attempt(`${method}(${name})`, () => c[method](junk))
      await attempt(`${method}('m/table', ${name})`, () => method === 'delete' ? c.delete('none', junk) : c[method](...(before[method] ?? ['m/table']), junk))
      if (before[method]) {
        const third = { alias: 'm/table', create: { kind: 'bytes', bytes: 8 }, put: Int8Array.of(1) }[method] ?? {}
        await attempt(`${method}(…, ${name})`, () => c[method](...before[method], third, junk))
      }
    }
    // A junk name must not have become an object's.
    await c.delete(['m/made', 'm/put', 'm/alias', 'none', 'x'], {}).catch(() => {})
  }

  const views = { table: await c.open('m/table'), array: await c.open('m/array'), bytes: await c.open('m/bytes') }
  const column = views.table.column('b')
  for (const [i, junk] of JUNK.entries()) {
    const name = `#${i} ${typeof junk}`
    for (const [what, object] of Object.entries({ ...views, column })) {
      await attempt(`${what}.slice(${name})`, () => object.slice(junk))
      await attempt(`${what}.slice(0, ${name})`, () => object.slice(0, junk))
      for (const method of ['seal', 'toHost', 'ready', 'ipcHandle', 'write', 'column', 'columnAt', 'child', 'isValid']) {
        if (typeof object[method] !== 'function') continue
        await attempt(`${what}.${method}(${name})`, () => object[method](junk))
      }
      await attempt(`${what}.write(…, ${name})`, () => object.write(Int8Array.of(1), junk))
    }
  }
  const made = await c.create('m/open', { kind: 'table', length: 3, columns: [{ name: 'a', dtype: 'int8', mask: true }] }, { replace: true })
  for (const junk of JUNK) {
    if (junk === undefined) continue
    await attempt('write', () => made.column('a').write(junk))
    await attempt('write to', () => made.column('a').write(Int8Array.of(1, 2, 3, 4), junk))
    await attempt('seal', () => made.seal({ nullCounts: junk })) // some object is as good as none
  }
  made.release()

  // Released, then closed: properties, too.
  const dead = [...Object.values(views), column]
  for (const view of Object.values(views)) view.release()
  const members = object => {
    const names = new Set()
    for (let type = object; type && type !== Object.prototype; type = Object.getPrototypeOf(type)) {
      for (const name of Object.getOwnPropertyNames(type)) if (name !== 'constructor' && !name.startsWith('_')) names.add(name)
    }
    return names
  }
  const useAll = async object => {
    for (const name of members(object)) {
      await attempt(`dead ${name}`, () => {
        const value = object[name]
        return typeof value === 'function' ? value.call(object, 0, 1) : value
      })
    }
  }
  for (const object of dead) await useAll(object)
  const open = await c.open('m/table')
  const opening = c.open('never', { timeout: 60_000 }).catch(error => said('closed', error))
  c.close()
  await opening
  await useAll(open)
  open.release()
  await useAll(open)
  for (const method of methods) {
    await attempt(`closed ${method}`, () => c[method]('m/table', Int8Array.of(1)))
  }
  return { calls, wrong }
}

test('everything with everything', { timeout: 300_000 }, async () => {
  const { calls, wrong } = await matrix(gpubufd, daemon.socket)
  assert.deepEqual(wrong, [])
  assert.ok(calls > 2000, `${calls} calls`)
  const c = await connect()
  await until(async () => (await c.leases()).leases.length === 0)
})

test('the same in a worker, which ends in the midst of it or after it', { timeout: 300_000 }, async () => {
  const source = `const { parentPort, workerData } = require('node:worker_threads')
    ;(${matrix})(require(workerData.package), workerData.socket).then(result => parentPort.postMessage(result))`
  const start = () => new Worker(source, { eval: true, workerData: { package: PACKAGE, socket: daemon.socket } })
  const worker = start()
  const result = await new Promise((resolve, reject) => worker.once('message', resolve).once('error', reject))
  await worker.terminate()
  assert.deepEqual(result.wrong, [])
  for (const after of [0, 30, 60, 90]) { // a time to end at: any will do
    const ended = start()
    ended.on('error', () => {})
    await new Promise(resolve => ended.once('online', resolve))
    await new Promise(resolve => setTimeout(resolve, after))
    await ended.terminate()
  }
  const c = await connect()
  await until(async () => (await c.leases()).leases.length === 0)
})

test('the addon itself is given what its own JavaScript never gives it', async () => {
  const { code, stderr, stdout } = await run(`
    const native = require(${JSON.stringify(PACKAGE)} + '/lib/native.cjs')
    const c = await connect(process.env.S)
    const junk = [undefined, null, -1, 0, 1, 1.5, NaN, 2 ** 60, 'x', 'a\\0', {}, [], [[]], [[0, 0, 0, 0]], [[0, 0, 0, new Int8Array(1)]],
      Symbol('s'), 1n, () => {}, new Float64Array(4), new Proxy([], {})]
    let calls = 0
    for (const [name, call] of Object.entries(native)) {
      if (typeof call !== 'function' || name === 'connect') continue
      for (const a of junk) for (const b of junk) for (const d of junk.slice(0, 3)) {
        calls++
        try { call(a, b, d, a, b, d) } catch {}
        try { call(0, 1e9 + calls, a, b, d, a) } catch {}
      }
    }
    console.log(calls > 1000)
    process.exit(0)`.replace('const native', "import { createRequire as make } from 'node:module'\nconst require = make('/')\nconst native"),
  { S: daemon.socket })
  assert.deepEqual([code, stdout], [0, 'true\n'], stderr)
  assert.ok(BUILD)
})
