// gpubufd-serve, as a page uses it.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import http from 'node:http'
import path from 'node:path'
import test, { after } from 'node:test'
import zlib, { gunzipSync } from 'node:zlib'
import { PACKAGE, arrow, data, fixture, require, until, withArrow } from './harness.mjs'

const { daemon, connect } = await fixture()
const c = await connect()
const program = path.join(PACKAGE, 'bin', 'gpubufd-serve.cjs')
const children = []
after(() => children.forEach(child => child.kill()))

/** Its address once it has said it, or how it ended. */
async function serve (...options) {
  const child = spawn(process.execPath, [program, '--socket', daemon.socket, '--port', '0', ...options],
    { stdio: ['ignore', 'pipe', 'pipe'] })
  children.push(child)
  const said = { stdout: '', stderr: '', child }
  child.stdout.on('data', text => { said.stdout += text })
  child.stderr.on('data', text => { said.stderr += text })
  await until(() => said.stdout.includes('\n') || child.exitCode !== null)
  return { ...said, code: child.exitCode, address: said.stdout.trim() }
}

const { address } = await serve()

test('a page reads a shared table in two lines', withArrow, async () => {
  const file = await readFile(data('flights-200k.arrow'))
  await c.put('flights/all', file)
  const expected = arrow.tableFromIPC(file)
  const table = await arrow.tableFromIPC(fetch(`${address}objects/flights/all`))
  assert.equal(table.numRows, 200_000)
  for (const i of [0, 65535, 65536, 199_999]) assert.deepEqual(table.get(i).toJSON(), expected.get(i).toJSON())
  const part = await fetch(`${address}objects/flights%2Fall?columns=distance,delay&offset=70000&length=10`)
  assert.equal(part.headers.get('x-total-rows'), '200000')
  const rows = arrow.tableFromIPC(await part.arrayBuffer())
  assert.deepEqual(rows.schema.names, ['distance', 'delay'])
  assert.deepEqual([rows.numRows, rows.get(3).delay], [10, expected.get(70003).delay])
  assert.deepEqual((await (await fetch(address)).json()).map(object => object.name), ['flights/all'])
  const again = await fetch(`${address}objects/flights/all`, { headers: { 'If-None-Match': part.headers.get('etag') } })
  assert.equal(again.status, 304)
})

test('columns, arrays, nulls, and nothing', withArrow, async () => {
  await c.put('column', arrow.vectorFromArray(['a', null, 'c', 'a'], new arrow.Dictionary(new arrow.Utf8(), new arrow.Int32())))
  await c.put('array', Float64Array.of(1, 2, 3))
  await c.put('empty', { a: new Int32Array(0) })
  const get = async name => arrow.tableFromIPC(await (await fetch(`${address}objects/${name}`)).arrayBuffer())
  assert.deepEqual([...(await get('column')).getChild('values')], ['a', null, 'c', 'a'])
  assert.deepEqual([...(await get('array?offset=1')).getChild('values')], [2, 3])
  const empty = await get('empty')
  assert.deepEqual([empty.numRows, empty.schema.names], [0, ['a']])
  await until(async () => (await c.leases()).leases.length === 0)
})

test('what is wrong gets a status and a sentence', async () => {
  await c.put('three', { a: Int32Array.of(1, 2, 3) })
  for (const [place, status] of [['objects/none', 404], ['nowhere', 404], ['objects/three?offset=x', 400],
    ['objects/three?offset=-1', 400], ['objects/%ff', 400], ['objects/a%00b', 400], ['objects//', 400]]) {
    const response = await fetch(address + place)
    assert.equal(response.status, status, place)
    assert.equal(typeof (await response.json()).error, 'string')
  }
  assert.equal((await fetch(address, { method: 'POST' })).status, 405)
  if (arrow) {
    assert.equal((await fetch(`${address}objects/three?offset=4`)).status, 416)
    assert.equal((await fetch(`${address}objects/three?columns=a,b`)).status, 404)
  }
})

const { createHandler } = require(path.join(PACKAGE, 'lib', 'serve.cjs'))
const SECRET = 'sixteen or more of them'.replaceAll(' ', '-')

test('a token that is empty or short is none, and an error', async () => {
  for (const token of ['', 'x', 'fifteen-letters']) assert.throws(() => createHandler(c, { token }), /16 characters/)
  for (const [host, token] of [['127.0.0.1', ''], ['0.0.0.0', 'fifteen-letters']]) {
    const refused = await serve('--host', host, '--token', token)
    assert.deepEqual([refused.code, /16 characters/.test(refused.stderr)], [1, true], token)
  }
  assert.throws(() => createHandler(c, { token: null }), TypeError)
  process.env.GPUBUFD_SERVE_TOKEN = ''
  try {
    const refused = await serve()
    assert.deepEqual([refused.code, /16 characters/.test(refused.stderr)], [1, true])
    process.env.GPUBUFD_SERVE_TOKEN = SECRET
    const guarded = await serve()
    assert.equal((await fetch(guarded.address)).status, 401)
    assert.equal((await fetch(`${guarded.address}?token=${SECRET}`)).status, 200)
  } finally {
    delete process.env.GPUBUFD_SERVE_TOKEN
  }
})

test('a prefix is all that is served', async () => {
  await c.put('part/a', { a: Int32Array.of(1) })
  await c.put('part/b/c', { a: Int32Array.of(1) })
  await c.put('party', { a: Int32Array.of(1) })
  const { address: part } = await serve('--prefix', 'part/')
  const names = async query => (await (await fetch(part + query)).json()).map(object => object.name)
  assert.deepEqual(await names(''), ['part/a', 'part/b/c'])
  assert.deepEqual(await names('?prefix=par'), ['part/a', 'part/b/c'])
  assert.deepEqual(await names('?prefix=part/b'), ['part/b/c'])
  assert.deepEqual(await names('?prefix=party'), [])
  for (const [name, status] of [['party', 404], ['part', 404], ['part/none', 404], ['part%2F..%2Fparty', 404]]) {
    assert.equal((await fetch(`${part}objects/${name}`)).status, status, name)
  }
  assert.match((await (await fetch(`${part}objects/party`)).json()).error, /begin with "part\/"/)
  if (arrow) assert.equal((await fetch(`${part}objects/part/a`)).status, 200)
  assert.throws(() => createHandler(c, { prefix: 7 }), TypeError)
})

test('bytes as they are, and ranges of them', async () => {
  const content = Uint8Array.from({ length: 3_000_001 }, (_, i) => i * 7)
  await c.put('raw', Buffer.from(content.buffer))
  const get = async (headers, name = 'raw', method = 'GET') => {
    const response = await fetch(`${address}bytes/${name}`, { method, headers })
    return [response.status, response.headers, Buffer.from(await response.arrayBuffer())]
  }
  const [status, headers, all] = await get({})
  assert.deepEqual([status, headers.get('content-length'), headers.get('accept-ranges')], [200, '3000001', 'bytes'])
  assert.ok(all.equals(Buffer.from(content.buffer)))
  for (const [range, from, to] of [['0-9', 0, 10], ['2999990-', 2999990, 3000001], ['-5', 2999996, 3000001],
    ['1048570-2097160', 1048570, 2097161], ['3000000-4000000', 3000000, 3000001], ['-9999999', 0, 3000001]]) {
    const [status, headers, part] = await get({ Range: `bytes=${range}` })
    assert.deepEqual([status, headers.get('content-range')], [206, `bytes ${from}-${to - 1}/3000001`], range)
    assert.ok(part.equals(all.subarray(from, to)), range)
  }
  for (const range of ['bytes=3000001-', 'bytes=-0']) {
    const [status, headers] = await get({ Range: range })
    assert.deepEqual([status, headers.get('content-range')], [416, 'bytes */3000001'])
  }
  for (const range of ['bytes=5-2', 'bytes=-', 'bytes=0-1,4-5', 'rows=0-1', 'bytes=a-b']) {
    assert.equal((await get({ Range: range }))[2].length, 3_000_001, range)
  }
  const tag = headers.get('etag')
  assert.equal((await get({ Range: 'bytes=0-0', 'If-Range': tag }))[0], 206)
  assert.equal((await get({ Range: 'bytes=0-0', 'If-Range': '"other"' }))[0], 200)
  assert.equal((await get({ 'If-None-Match': tag }))[0], 304)
  const head = await get({ Range: 'bytes=0-9' }, 'raw', 'HEAD')
  assert.deepEqual([head[0], head[1].get('content-length')], [206, '10'])
  await c.put('nothing', Buffer.alloc(0))
  assert.deepEqual([(await get({}, 'nothing'))[0], (await get({ Range: 'bytes=0-' }, 'nothing'))[0]], [200, 416])
  await c.put('no bytes', { a: Int32Array.of(1) })
  assert.deepEqual([(await get({}, 'no bytes'))[0], (await get({}, 'none'))[0]], [415, 404])
  await until(async () => (await c.leases()).leases.length === 0)
})

test('packed for who takes it, where that was asked for', withArrow, async () => {
  await c.put('zeros', { a: new Int32Array(200_000) })
  const { address: packing } = await serve('--compress')
  const get = (place, accept) => new Promise((resolve, reject) => http.get(`${place}objects/zeros`,
    { headers: accept === undefined ? {} : { 'Accept-Encoding': accept } }, response => {
      const chunks = []
      response.on('data', chunk => chunks.push(chunk)).on('error', reject)
        .on('end', () => resolve({ headers: response.headers, body: Buffer.concat(chunks) }))
    }).once('error', reject))
  const plain = (await get(address, 'gzip')).body
  const codings = { gzip: gunzipSync, ...(zlib.zstdDecompressSync && { zstd: zlib.zstdDecompressSync }) }
  for (const [coding, unpack] of Object.entries(codings)) {
    const { headers, body } = await get(packing, `br, ${coding};q=0.5`)
    assert.deepEqual([headers['content-encoding'], headers.vary], [coding, 'Accept-Encoding'])
    assert.ok(body.length < plain.length / 10)
    assert.ok(unpack(body).equals(plain))
    assert.match(headers.etag, new RegExp(`-${coding}"$`))
  }
  for (const accept of [undefined, '', 'br', 'gzip;q=0', 'gzip; q=0.000', 'identity']) {
    const { headers, body } = await get(packing, accept)
    assert.equal(headers['content-encoding'], undefined, accept)
    assert.ok(body.equals(plain))
  }
  const table = await arrow.tableFromIPC(fetch(`${packing}objects/zeros`))
  assert.equal(table.numRows, 200_000)
})

test('a page of another name is not answered, nor one without the token', async () => {
  const status = await new Promise((resolve, reject) => http.get(address, { headers: { Host: 'evil.example' } },
    response => resolve(response.resume().statusCode)).once('error', reject))
  assert.equal(status, 403)
  const refused = await serve('--host', '0.0.0.0')
  assert.deepEqual([refused.code, /token/.test(refused.stderr)], [1, true])
  const guarded = await serve('--host', '0.0.0.0', '--token', SECRET, '--origin', '*')
  const place = guarded.address.replace('0.0.0.0', '127.0.0.1')
  assert.equal((await fetch(place)).status, 401)
  assert.equal((await fetch(`${place}?token=wrong`)).status, 401)
  assert.equal((await fetch(`${place}?token=${SECRET}`)).status, 200)
  const response = await fetch(place, { headers: { Authorization: `Bearer ${SECRET}` } })
  assert.deepEqual([response.status, response.headers.get('access-control-allow-origin')], [200, '*'])
})

/** Reads server-sent events; next() gives [kind, data]. */
async function listen (address, options) {
  const response = await fetch(address, options)
  assert.deepEqual([response.status, response.headers.get('content-type')], [200, 'text/event-stream'])
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader()
  let text = ''
  const next = async () => {
    while (!text.includes('\n\n')) {
      const { value, done } = await reader.read()
      if (done) return undefined
      text += value
    }
    const end = text.indexOf('\n\n')
    const block = text.slice(0, end)
    text = text.slice(end + 2)
    if (block === ':') return next()
    const [, kind, data] = /^event: (\w+)\ndata: (.*)$/.exec(block)
    return [kind, JSON.parse(data)]
  }
  return { next, close: () => reader.cancel() }
}

test('a page is told what happens', async () => {
  await c.put('live/old', Uint8Array.of(1))
  await c.put('elsewhere', Uint8Array.of(1))
  const events = await listen(`${address}live?prefix=live/`)
  const [kind, old] = await events.next()
  assert.deepEqual([kind, old.name, old.state, Object.keys(old).includes('uid')], ['sealed', 'live/old', 'sealed', false])
  assert.deepEqual(await events.next(), ['synced', {}])
  await c.put('elsewhere', Uint8Array.of(2), { replace: true })
  const version = await c.put('live/new', Uint8Array.of(1, 2))
  const [, made] = await events.next()
  assert.deepEqual([made.name, made.version, made.bytes], ['live/new', version, 2])
  await c.delete('live/new')
  assert.deepEqual((await events.next())[0], 'deleted')
  await events.close()
  assert.equal((await fetch(`${address}live`, { method: 'HEAD' })).status, 200)
  await c.delete(['live/old', 'elsewhere'])
})

test('events are of what is served, to who may have them, and for so many', async () => {
  const token = 'a-token-of-length'
  const { address } = await serve('--prefix', 'shown/', '--token', token)
  assert.equal((await fetch(`${address}live`)).status, 401)
  assert.equal((await fetch(`${address}live?prefix=hidden/&token=${token}`)).status, 404)
  await c.put('hidden/a', Uint8Array.of(1))
  await c.put('shown/a', Uint8Array.of(1))
  const all = []
  for (let i = 0; i < 32; i++) all.push(await listen(`${address}live?token=${token}`))
  for (const { next } of all) assert.deepEqual([(await next())[1].name, (await next())[0]], ['shown/a', 'synced'])
  assert.equal((await fetch(`${address}live?token=${token}`)).status, 503)
  for (const { close } of all.splice(1)) await close()
  await until(async () => { // the server sees that they have gone
    const response = await fetch(`${address}live?token=${token}`)
    await response.body.cancel()
    return response.status === 200
  })
  await c.put('shown/b', Uint8Array.of(1))
  assert.equal((await all[0].next())[1].name, 'shown/b')
  await all[0].close()
  await c.delete(['hidden/a', 'shown/a', 'shown/b'])
})

test('who goes away in the midst of it leaves no lease', withArrow, async () => {
  await c.put('large', new Float64Array(4 << 20))
  for (let i = 0; i < 3; i++) {
    await new Promise((resolve, reject) => http.get(`${address}objects/large`, response => response.once('data', () => {
      response.destroy()
      resolve()
    })).once('error', reject))
  }
  await until(async () => (await c.leases()).leases.length === 0)
  assert.equal((await fetch(address)).status, 200)
})
