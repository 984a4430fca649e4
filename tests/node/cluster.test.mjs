// gpubufd/cluster: what gpubufd-peer tells a program of names, machines and figures.

import assert from 'node:assert/strict'
import { execFile, spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import test, { after } from 'node:test'
import { promisify } from 'node:util'
import { BUILD, Daemon, PACKAGE, ROOT, gpubufd, connect, require, until } from './harness.mjs'

const execute = promisify(execFile)
const cluster = require(path.join(PACKAGE, 'lib', 'cluster.cjs'))
const { ConnectError, GpubufError, NotFoundError, ProtocolError, UnavailableError } = gpubufd
const SHARED = { scope: 'cluster', mode: '0644' }
const etcdProgram = (process.env.PATH ?? '').split(':').map(directory => path.join(directory, 'etcd')).find(existsSync)

const place = await mkdtemp(path.join(os.tmpdir(), 'gpubuf-cluster-'))
const ending = [() => rm(place, { recursive: true, force: true })]
after(async () => {
  for (const end of ending.reverse()) await end()
})
await execute(path.join(ROOT, 'scripts', 'make-certificates'), [path.join(place, 'pki'), 'a', 'b'])

/** A port that nobody has. */
async function freePort () {
  const server = net.createServer()
  await new Promise(resolve => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address()
  await new Promise(resolve => server.close(resolve))
  return port
}

/** A daemon, a client of it, and a gpubufd-peer that answers at `socket`. */
async function machine (node) {
  const daemon = await Daemon.start()
  ending.push(() => daemon.stop())
  const client = await connect({ socket: daemon.socket })
  ending.push(() => client.close())
  const socket = path.join(daemon.directory, 'peer.sock')
  const pki = name => path.join(place, 'pki', name)
  const port = await freePort()
  const peer = spawn(path.join(BUILD, 'bin', 'gpubufd-peer'), [
    '--socket', daemon.socket, '--listen', `127.0.0.1:${port}`, '--advertise', `127.0.0.1:${port}`, '--etcd', await etcd(),
    '--lease-seconds', '60', '--query', socket, '--authority', pki('authority.pem'),
    '--certificate', pki(`${node}.pem`), '--key', pki(`${node}.key`), '--patience-ms', '30000'
  ], { stdio: ['ignore', 'ignore', 'pipe'] })
  let said = ''
  peer.stderr.setEncoding('utf8').on('data', data => { said += data })
  const ended = new Promise(resolve => peer.once('close', resolve))
  ending.push(async () => {
    peer.kill('SIGTERM')
    assert.equal(await ended, 0, said)
    assert.doesNotMatch(said, /Sanitizer|runtime error:/)
  })
  await until(() => {
    assert.equal(peer.exitCode, null, said)
    return said.includes('names of other machines received')
  }, 'the peer to join')
  return { client, socket, port }
}

/** The guide's example, as a program of its own that finds the package by its name. */
async function example (environment) {
  const [, text] = /^```js cluster\n(.*?)^```/ms.exec(await readFile(path.join(ROOT, 'docs', 'NODE.md'), 'utf8'))
  await mkdir(path.join(place, 'node_modules'))
  await symlink(PACKAGE, path.join(place, 'node_modules', 'gpubufd'))
  await writeFile(path.join(place, 'example.mjs'), text)
  return execute(process.execPath, [path.join(place, 'example.mjs')], { env: { ...process.env, ...environment } })
}

const needsEtcd = { skip: etcdProgram ? false : 'needs etcd' }

/** The URL of the etcd of these tests, which is started once. */
let etcdUrl
async function etcd () {
  if (etcdUrl) return etcdUrl
  const address = [127, process.pid >> 16 & 127 | 64, process.pid >> 8 & 255, process.pid & 255].join('.')
  const [url, own] = [`http://${address}:20000`, `http://${address}:20001`]
  const server = spawn(etcdProgram, [
    '--data-dir', path.join(place, 'etcd'), '--listen-client-urls', url, '--advertise-client-urls', url,
    '--listen-peer-urls', own, '--initial-advertise-peer-urls', own, '--initial-cluster', `default=${own}`
  ], { stdio: 'ignore' })
  const ended = new Promise(resolve => server.once('close', resolve))
  ending.push(() => server.kill('SIGKILL') && ended)
  etcdUrl = url
  return url
}

test('what the peer tells', needsEtcd, async () => {
  const a = await machine('a')
  const b = await machine('b')
  const version = await b.client.put('x/1', Buffer.from('12345'), { ...SHARED, as: 'bytes' })
  const [{ since, ...owner }] = await until(() => cluster.where('x/1', { socket: a.socket }).catch(() => undefined), 'the name')
  assert.deepEqual(owner, { node: 'b', origin: 'b', version, bytes: 5, host: '127.0.0.1', port: b.port, isCopy: false })
  assert.ok(Math.abs(since - Date.now()) < 600_000)

  const opened = await a.client.open('x/1', { timeout: 60_000 })
  assert.equal(Buffer.from(opened.bytes).toString(), '12345')
  opened.release()
  const [copy, other] = await until(async () => {
    const places = await cluster.where('x/1', { socket: a.socket })
    return places.length === 2 && places
  }, 'the copy')
  assert.deepEqual([copy.node, copy.origin, copy.isCopy, 'host' in copy], ['a', 'b', true, false])
  assert.deepEqual(other, { since, ...owner })

  const socket = a.socket
  await assert.rejects(cluster.where('absent', { socket }), NotFoundError)
  assert.deepEqual(await cluster.peers({ socket }), [{ node: 'b', host: '127.0.0.1', port: b.port }])
  const figures = await cluster.stats({ socket })
  assert.deepEqual([figures.up, figures.fetched_total, figures.fetched_bytes_total], [1, 1, 5])
  assert.deepEqual(figures.fetch_failures_total, {})

  const names = Array.from({ length: 300 }, (_, i) => `y/${String(i).padStart(3, '0')}`) // more than a page
  const versions = await b.client.putMany(Object.fromEntries(names.map(name => [name, Int8Array.of(1)])), SHARED)
  process.env.GPUBUFD_PEER_SOCKET = socket
  await until(async () => (await cluster.list()).length === 301, 'all names')
  assert.deepEqual((await cluster.list()).map(({ name }) => name), ['x/1', ...names])
  const [{ since: made, ...last }] = await cluster.list('y/299')
  assert.deepEqual(last, { name: 'y/299', node: 'b', version: versions[299], bytes: 1, copies: 0 })
  assert.ok(Math.abs(made - Date.now()) < 600_000)
  assert.deepEqual(await cluster.list('z'), [])

  await b.client.put('cols/price', Buffer.from('1'), { ...SHARED, as: 'bytes' })
  await until(() => cluster.where('cols/price', { socket }).catch(() => undefined), 'the name')
  const { stdout, stderr } = await example({ GPUBUFD_PEER_SOCKET: socket })
  assert.equal(stderr, '')
  assert.equal(stdout, 'b 1 false 127.0.0.1\n')
})

/** A socket that answers each question so; null: never. */
async function answering (name, answer) {
  const socket = path.join(place, name)
  const server = net.createServer(connection => connection.once('data', () => {
    if (answer !== null) connection.end(answer)
  }))
  await new Promise(resolve => server.listen(socket, resolve))
  return { socket, close: () => server.close() }
}

test('a peer that answers otherwise', async () => {
  const error = (kind, message) => JSON.stringify({ error: { kind, message } }) + '\n'
  for (const [answer, expected, sentence] of [
    ['', ConnectError, /it has hung up/], ['{\n', ProtocolError, /no sense/], ['[]\n', ProtocolError, /no sense/],
    ['null\n', ProtocolError, /no sense/], ['{"peers":[{"node":"b"}]}\n', ProtocolError, /"host" is missing/],
    [error('unavailable', 'etcd is away'), UnavailableError, /^etcd is away$/],
    [error('of a later peer', 'no'), GpubufError, /^no$/]
  ]) {
    const peer = await answering('odd.sock', answer)
    await assert.rejects(cluster.peers({ socket: peer.socket }), told => told instanceof expected && sentence.test(told.message))
    peer.close()
  }
  const more = await answering('more.sock', '{"peers":[{"node":"d","host":"h","port":2,"new":1},{"node":"c","host":"h","port":1}]}\n')
  assert.deepEqual(await cluster.peers({ socket: more.socket }), [{ node: 'c', host: 'h', port: 1 }, { node: 'd', host: 'h', port: 2 }])
  more.close()
})

test('a peer that does not answer, and one that is not there', async () => {
  const silent = await answering('silent.sock', null)
  await assert.rejects(cluster.stats({ socket: silent.socket, timeout: 50 }), /silent\.sock: no answer came in 50 ms/)
  const controller = new AbortController()
  const asked = cluster.where('x', { socket: silent.socket, signal: controller.signal })
  controller.abort(new Error('enough'))
  await assert.rejects(asked, /^Error: enough$/)
  await assert.rejects(cluster.where('x', { socket: silent.socket, signal: controller.signal }), /^Error: enough$/)
  silent.close()
  const socket = path.join(place, 'none.sock')
  for (const question of [() => cluster.where('x', { socket }), () => cluster.list('', { socket }), () => cluster.peers({ socket })]) {
    await assert.rejects(question(), told => told instanceof ConnectError && /none\.sock.*--query/.test(told.message))
  }
})

test('arguments that cannot be', async () => {
  for (const question of [
    () => cluster.where(7), () => cluster.list(7), () => cluster.peers('s'), () => cluster.peers({ path: 's' }),
    () => cluster.peers({ socket: 7 }), () => cluster.peers({ timeout: '1' }), () => cluster.peers({ signal: 1 })
  ]) await assert.rejects(question(), TypeError)
  await assert.rejects(cluster.stats({ timeout: 0 }), RangeError)
})

test('everything that is exported is declared', async () => {
  const text = await readFile(path.join(PACKAGE, 'lib', 'cluster.d.cts'), 'utf8')
  assert.deepEqual([...text.matchAll(/^export function (\w+)/gm)].map(match => match[1]).sort(), Object.keys(cluster).sort())
})
