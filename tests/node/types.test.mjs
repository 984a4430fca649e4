// The declarations, as a strict compiler sees them; the package, as npm packs and installs it.

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { cp, mkdir, mkdtemp, readFile, readdir, realpath, rm, symlink, writeFile } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import test, { after } from 'node:test'
import { promisify } from 'node:util'
import { arrow, PACKAGE, fixture, gpubufd, require } from './harness.mjs'

const execute = promisify(execFile)
const { daemon } = await fixture()

let tsc
try {
  tsc = require.resolve('typescript/bin/tsc')
} catch {}

// The package as npm packs and installs it, where nothing is to be found but Node, npm and a shell: no compiler, no make.
const packed = await mkdtemp(path.join(os.tmpdir(), 'gpubuf-pack-'))
after(() => rm(packed, { recursive: true, force: true }))
const missing = await (async () => {
  const bin = path.join(packed, 'bin')
  await mkdir(bin)
  const npm = (...words) => execute('npm', words, {
    cwd: packed, env: { ...process.env, PATH: bin, npm_config_cache: path.join(packed, 'cache'), npm_config_update_notifier: 'false' }
  })
  for (const name of ['node', 'npm', 'sh']) {
    const found = (process.env.PATH ?? '').split(':').map(directory => path.join(directory, name)).find(existsSync)
    if (!found) return `${name} is not installed`
    await symlink(name === 'node' ? process.execPath : await realpath(found), path.join(bin, name))
  }
  await npm('pack', '--offline', '--pack-destination', packed, PACKAGE)
  const [tarball] = (await readdir(packed)).filter(name => name.endsWith('.tgz'))
  await writeFile(path.join(packed, 'package.json'), '{"private":true}')
  await npm('install', '--offline', '--no-audit', '--no-fund', '--omit=optional', '--omit=peer', path.join(packed, tarball))
  return false
})()

const GOOD = `
import { connect, Table, Column, NDArray, NotFoundError, type Bundle, type Client, type Element, type WatchEvent } from 'gpubufd'
import { putBuffer, toDataFrame } from 'gpubufd/rapids'
import { list, peers, stats, where, type Place } from 'gpubufd/cluster'
import { getDataset, publishDataset, type Dataset } from 'gpubufd/dask'
export const rows = async (client: Client): Promise<number | undefined> => {
  await publishDataset(client, 'a', [{ n: [1, 2] }], { replace: true, mode: '0640' })
  const found: Dataset = await getDataset(client, 'a', { timeout: 5 })
  for await (const table of found) await found.open(0).then(part => part.numRows + table.numRows)
  return (await found.toArrow({ columns: ['n'] })).numRows + (found.numRows ?? 0)
}
export const told = async (signal: AbortSignal): Promise<unknown> => {
  const places: Place[] & { why?: string } = await where('a', { socket: '/s', timeout: 5, signal })
  return [places[0].host ?? places.why, (await list('a/'))[0].copies, (await peers())[0].port, (await stats()).up]
}
export const frame = async (table: Table): Promise<unknown> => toDataFrame(table, {}, ['a'])
export const back = async (): Promise<number> => putBuffer(await connect(), 'a', { length: 1 }, {}, { mode: '0640' })
import * as arrow from 'apache-arrow'
export async function use (signal: AbortSignal): Promise<number> {
  using client: Client = await connect({ socket: '/s', reconnect: false })
  await using object = await client.open('a', { timeout: 5, signal })
  if (object instanceof Table) {
    const column: Column = object.column('x').slice(1, -1)
    const vector: arrow.Vector = column.toArrow()
    const table: arrow.Table = object.toArrow()
    return table.numRows + vector.length + (column.values?.length ?? 0)
  }
  switch (object.kind) {
    case 'array': return object.shape.length
    case 'column': return object.offset
    case 'bytes':
    case 'bundle': return object.bytes[0]
  }
}
export async function more (client: Client, signal: AbortSignal): Promise<number> {
  const column = await client.open<Column>('c')
  const pointer: bigint | undefined = column.deviceData?.ptr
  const version: number = await client.put('x', Float64Array.of(1), { as: 'column', mode: 0o644 })
  await client.put('t', { a: Int8Array.of(1), b: ['x', null], c: column.toArrow() })
  await client.put('u', await column.toHost())
  await client.put('rows', [{ a: 1, b: 'x' }, { b: null, c: 5n, d: new Date() }])
  const rows = await client.open<Table>('rows')
  for (const { a, b } of rows) if (typeof a === 'number') String(b)
  const names: string[] = rows.schema.map(field => field.name).concat(rows.toJSON().name)
  const some1: Element | undefined = column.get(-1) ?? rows.toArray()[0]?.a
  if (await client.has('rows', { signal })) await client.ping({ signal: AbortSignal.timeout(names.length + Number(some1)) })
  await client.delete((await client.list('h/*'))[0]?.name ?? 'h/[ab]')
  await client.put('plain', { a: [1, null], b: [true, undefined], c: [new Date(), null], d: [1n] })
  const versions: number[] = await client.putMany(new Map([['v', Int8Array.of(1)]]), { replace: true })
  const some: (number | Error)[] = await client.putMany({ v: [1, 2], w: column.toArrow() }, { partial: true })
  const batches: AsyncIterable<arrow.RecordBatch> = (await client.open<Table>('t')).batches(versions.length + some.length)
  await client.put('batches', batches)
  await client.put('stream', process.stdin)
  await client.put('queued', Int8Array.of(1), { stream: 1n, wait: false })
  await column.ready({ stream: { ptr: pointer ?? 0 } })
  column.release({ stream: 0 })
  const same: Column = await client.open(column.share(), { timeout: 5 })
  await client.open({ name: same.name, version: 1, instance: client.instance })
  client.on('reconnect', () => {}).once('disconnect', error => error.kind)
  const made = await client.create('m', { kind: 'array', dtype: 'int8', shape: [1, 2] })
  await made.seal({ stream: 7n })
  await client.spill('m', { tier: 'disk', signal, version: 1 })
  await client.expire('m', 5, { label: 'step' })
  await client.delete('m', { version: 2 })
  await client.restore('m', { label: 'step', timeout: 5 })
  await client.restore('m', { timeout: 5 })
  const [first] = await client.openMany<Column>(['a'])
  const partial = await client.openMany(['a'], { partial: true })
  for (const one of partial) if (!(one instanceof Error)) one.release()
  const lazy = await connect({ lazyConnect: true, retryStrategy: (times, error) => error.kind === 'connect' ? 10 * times : null })
  lazy.once('connect', () => {})
  await lazy.connect()
  const bundle = await lazy.open<Bundle>('b')
  for (const [name, array] of bundle) bundle.tensors.get(name)?.shape.concat(array.shape, bundle.get(name).shape)
  const provider = await client.provide('p/', async (name, { uid, signal }) => signal.aborted ? undefined : [name, String(uid)], { evict: 'drop', scope: 'cluster' })
  await provider.close()
  const filled = await client.create('f', { kind: 'bytes', bytes: 1 })
  await filled.seal({ label: bundle.metadata.get('step'), keep: 2 })
  await using view = await client.follow<Bundle>('policy', { label: 'a', timeout: 5 })
  const changed: boolean = await view.switch({ version: 1, streams: [7n], signal }) && await view.park() && await view.resume({ timeout: 5 })
  for await (const { version } of view.versions({ limit: 5 })) if (changed) view.value.get('a').values.at(version)
  const live = await client.create('l', { kind: 'array', dtype: 'int8', shape: [1, 2] }, { live: true, mode: '0660' })
  const claim = await client.claim<NDArray>('l', { timeout: 5, signal })
  await client.open('l', { write: true })
  if (claim.generation > 1 || live.stale) await client.edit<NDArray>('x', array => { (array.values as Int8Array)[0] = 1 }, { label: 'b' })
  const writer = await client.stream<Uint8Array>('cam', { dtype: 'uint8', shape: [4, 5], slots: 12, timeout: 5 })
  using frame1 = await (await client.read('cam').ready()).read({ timeout: 5 })
  const frame2 = await writer.next({ timeout: Infinity })
  frame2.array.fill(1)
  await frame2.publish({ byteLength: 5, stream: 7n })
  for await (const frame of client.read<Uint8Array>('cam', { each: true, waits: true, lag: 3, hold: 2, signal })) {
    if (frame.array[0] + frame.missed > 5 && frame.number > frame1.number) await frame.done({ stream: 7n })
  }
  await writer.close()
  for await (const event of client.watch('p/', { signal })) {
    const { kind, object }: WatchEvent = event
    if (kind === 'synced') return object?.version ?? first.length
  }
  try { await client.stat('x') } catch (error) {
    if (error instanceof NotFoundError) return error.errno + error.code.length
  }
  return Number(pointer) + version
}`
const BAD = [
  "import { connect } from 'gpubufd'; connect(7)",
  "import { Client } from 'gpubufd'; new Client()",
  "import { connect } from 'gpubufd'; (await connect()).open('a', { timeout: '1' })",
  "import { connect } from 'gpubufd'; (await connect()).put('a', 7)",
  "import { connect } from 'gpubufd'; (await connect()).put('a', [{ a: { b: 1 } }])",
  "import { connect } from 'gpubufd'; connect({ cacheLeases: 'yes' })",
  "import { connect, type Column } from 'gpubufd'; (await (await connect()).open<Column>('c')).get('a')",
  "import { connect } from 'gpubufd'; (await connect()).put('a', [1, 'x'])",
  "import { connect } from 'gpubufd'; (await connect()).open('a', { timeoutMs: 5 })",
  "import { connect } from 'gpubufd'; (await connect()).on('reconnected', () => {})",
  "import { connect } from 'gpubufd'; (await connect()).create('a', { kind: 'bytes' })",
  "import { connect } from 'gpubufd'; connect({ retryStrategy: 5 })",
  "import { connect } from 'gpubufd'; connect({ lazyConnect: 'yes' })",
  "import { connect } from 'gpubufd'; (await connect()).provide('p/', () => 7)",
  "import { connect, type Bundle } from 'gpubufd'; (await (await connect()).open<Bundle>('b')).get(1)",
  "import { connect } from 'gpubufd'; (await connect()).put('a', [1], { live: true })",
  "import { connect } from 'gpubufd'; (await connect()).stream('a')",
  "import { connect } from 'gpubufd'; (await (await connect()).read('a').read()).publish()",
  "import { where } from 'gpubufd/cluster'; (await where('a'))[0].isCopy = 'yes'",
  "import { NotFoundError } from 'gpubufd'; const kind: number = new NotFoundError('').kind"
]

// TypeScript's own declarations are not ours to check.
const TSC = ['--noEmit', '--strict', '--skipDefaultLibCheck', '--target', 'es2022', '--lib', 'es2023,dom,esnext.disposable', '--types', 'node']
const NODE = ['good.mts', 'good.cts', 'main.mts', ...BAD.map((_, i) => `bad${i}.mts`)]

test('the declarations of the installed package compile, and refuse what is wrong', { skip: missing || (tsc && arrow ? false : 'typescript and apache-arrow are not installed') }, async () => {
  const place = await mkdtemp(path.join(PACKAGE, '..', 'types-')) // where node_modules is found
  const compile = async (files, ...words) => {
    const { stdout } = await execute(process.execPath, [tsc, ...TSC, ...words, ...files], { cwd: place }).catch(error => error)
    // Complaints about apache-arrow's own declarations are not ours.
    return stdout.split('\n').filter(line => /error TS/.test(line) && !/^[./]*node_modules\/apache-arrow/.test(line))
  }
  try {
    await cp(path.join(packed, 'node_modules'), path.join(place, 'node_modules'), { recursive: true })
    await Promise.all(['good.mts', 'good.cts'].map(name => writeFile(path.join(place, name), GOOD)))
    await writeFile(path.join(place, 'main.mts'), "import main, { connect } from 'gpubufd'; export const same: typeof connect = main.connect")
    await Promise.all(BAD.map((text, i) => writeFile(path.join(place, `bad${i}.mts`), text + '\nexport {}\n')))
    const complaints = await compile(NODE, '--module', 'nodenext')
    assert.deepEqual(complaints.filter(line => !/^bad\d+\.mts/.test(line)), [])
    for (let i = 0; i < BAD.length; i++) {
      assert.ok(complaints.some(line => line.startsWith(`bad${i}.mts`)), `nothing against: ${BAD[i]}`)
    }
  } finally {
    await rm(place, { recursive: true, force: true })
  }
})

test('the declarations compile without apache-arrow, and as a bundler finds them', { skip: missing || (tsc ? false : 'typescript is not installed') }, async () => {
  const types = path.join(PACKAGE, '..', 'node_modules', '@types')
  await mkdir(path.join(packed, 'node_modules', '@types'))
  await symlink(path.join(types, 'node'), path.join(packed, 'node_modules', '@types', 'node'))
  await symlink(path.join(types, '..', 'undici-types'), path.join(packed, 'node_modules', 'undici-types'))
  await writeFile(path.join(packed, 'plain.ts'), `
    import { connect, Table } from 'gpubufd'
    const table = await (await connect()).open<Table>('a')
    export const rows: number = table.numRows + [...table].length`)
  const { stdout } = await execute(process.execPath, [tsc, ...TSC, '--module', 'esnext', '--moduleResolution', 'bundler', 'plain.ts'], { cwd: packed })
    .catch(error => error)
  assert.equal(stdout, '')
})

test('everything that is exported is declared', async () => {
  const text = await readFile(path.join(PACKAGE, 'lib', 'index.d.cts'), 'utf8')
  const declared = [...text.matchAll(/^export (?:abstract )?(?:class|function|const) (\w+)/gm)].map(match => match[1])
  const module = await import(path.join(PACKAGE, 'lib', 'index.mjs'))
  assert.deepEqual(declared.sort(), Object.keys(gpubufd.default).sort())
  assert.deepEqual(declared.sort(), Object.keys(module).filter(name => name !== 'default').sort())
})

test('npm packs it, and what is packed works where there is no compiler', { skip: missing }, async () => {
  const script = `const { connect } = require('gpubufd')
    connect(process.env.S).then(async c => { await c.put('packed', Int8Array.of(5), { replace: true })
      const o = await c.open('packed'); console.log(o.values[0]); o.release(); c.close() })`
  const { stdout } = await execute(process.execPath, ['-e', script],
    { cwd: packed, env: { S: daemon.socket, PATH: '/nonexistent' } })
  assert.equal(stdout, '5\n')
  const { files, cpu } = JSON.parse(await readFile(path.join(packed, 'node_modules', 'gpubufd', 'package.json')))
  const there = await readdir(path.join(packed, 'node_modules', 'gpubufd'))
  // The licences are those of the libraries inside, which only a published tarball has.
  for (const file of files) assert.ok(there.includes(file) || file === 'licences', file)
  assert.ok(cpu.includes(process.arch))
})
