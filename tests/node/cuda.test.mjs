// Objects on a GPU, on the driver of tests/fakecuda, which programs of their own are given: it must be
// there when they start. examples/raw.mjs, too.

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import test, { after } from 'node:test'
import { promisify } from 'node:util'
import { BUILD, Daemon, PACKAGE, ROOT, arrow, run } from './harness.mjs'

const UUID = 'GPU-fa4ecada-0000-4000-8000-000000000000'
const plain = path.join(PACKAGE, '..', '..', 'fakecuda') // for Node, which knows no sanitizer
const skip = existsSync(path.join(plain, 'libcuda.so.1')) ? false : 'tests/fakecuda is not built'

const directory = await mkdtemp(path.join(os.tmpdir(), 'gpubuf-gpu-'))
const gpu = { FAKECUDA_DIR: directory, LD_LIBRARY_PATH: plain }
let daemon
if (!skip) {
  daemon = new Daemon()
  daemon.directory = await mkdtemp(path.join(os.tmpdir(), 'gpubuf-'))
  daemon.socket = path.join(daemon.directory, 's')
  daemon.options = ['--device', 'cuda:0:64M', '--device', 'host:64M']
  daemon.environment = { ...gpu, LD_LIBRARY_PATH: path.join(BUILD, 'fakecuda') }
  await daemon.run()
}
after(async () => {
  await daemon?.stop()
  await rm(directory, { recursive: true, force: true })
})

/** What a program prints as JSON. */
async function program (script) {
  const { code, stdout, stderr } = await run(`
    const print = value => console.log(JSON.stringify(value, (_, v) => typeof v === 'bigint' ? String(v) : v))
    const c = await connect(process.env.S)
    ${script}`, { ...gpu, S: daemon.socket })
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
