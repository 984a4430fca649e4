'use strict'
// Shared tables and columns for browsers, as Arrow IPC streams over HTTP: the handler of gpubufd-serve, which a
// program's own HTTP server can use, too.
//
//   GET /                          the list of objects, as JSON; ?prefix=
//   GET /objects/NAME              the object; ?columns=a,b &offset=ROW &length=ROWS
//   GET /bytes/NAME                the bytes of an object of kind bytes or bundle, or a Range of them
//   GET /live                      events, as server-sent events; ?prefix=

const { createHash, timingSafeEqual } = require('node:crypto')
const { once } = require('node:events')
const { Readable } = require('node:stream')
const { pipeline } = require('node:stream/promises')
const zlib = require('node:zlib')
const { DATA } = require('./dtypes.cjs')
const { getArrow } = require('./to-arrow.cjs')

const LOOPBACK = /^(127(\.\d+){3}|::1|localhost)$/
const BATCH = 65536 // rows in a batch, so that a page can begin before the last one has come
const PIECE = 1 << 20 // bytes that are sent at a time
const LIVE = 32 // streams of events at a time; each is a watch, and a session may have 64
const BREATH_MS = 15_000 // without an event: then a comment is sent, so that proxies do not hang up

/** By preference. They compress quickly rather than well, since they do so while sending. */
const CODINGS = {
  zstd: zlib.createZstdCompress, // from Node 22.15 on
  gzip: () => zlib.createGzip({ level: 1 })
}

class HttpError extends Error {
  constructor (status, message, headers = {}) {
    super(message)
    this.status = status
    this.headers = headers
  }
}

const STATUS = { not_found: 404, invalid: 400, denied: 403, unsupported: 415, timeout: 504, connect: 503, closed: 503 }

function rows (query, name, missing) {
  const text = query.get(name)
  if (text === null) return missing
  if (!/^\d{1,15}$/.test(text)) throw new HttpError(400, `${name} is "${text}", not a whole number of up to 15 digits`)
  return Number(text)
}

const TOKEN_LEAST = 16 // characters, as in the gateway

/** Refuses short tokens, and an empty one: that may come from an empty variable, and would admit every client. */
function checkOwnToken (token) {
  if (token === undefined) return
  if (typeof token !== 'string') throw new TypeError('the token is not a string')
  if (token.length < TOKEN_LEAST) throw new RangeError(`the token has fewer than ${TOKEN_LEAST} characters`)
}

function sameToken (given, expected) {
  const digest = text => createHash('sha256').update(text).digest()
  return timingSafeEqual(digest(given), digest(expected))
}

function checkToken (request, query, token) {
  if (token === undefined) return
  const given = /^Bearer (.+)$/.exec(request.headers.authorization ?? '')?.[1] ?? query.get('token') ?? ''
  if (!sameToken(given, token)) throw new HttpError(401, 'expected a valid token: Authorization: Bearer TOKEN')
}

/** Against DNS rebinding: another site's name may point to loopback, so the Host must be a name of loopback. */
function checkHost (request, host, token) {
  if (token !== undefined || !LOOPBACK.test(host)) return
  const asked = (request.headers.host ?? '').replace(/:\d+$/, '').replace(/^\[(.*)\]$/, '$1')
  if (!LOOPBACK.test(asked)) throw new HttpError(403, `Host is "${asked}": this server accepts names of loopback only`)
}

/** The names that are both asked for and served, as a prefix; undefined: there are none. */
function narrowed (asked, served) {
  if (asked.startsWith(served)) return asked
  return served.startsWith(asked) ? served : undefined
}

/** The members of an object that pages get. */
function described ({ name, version, state, device, bytes, created_ms: created }) {
  return { name, version, state, device, bytes, created }
}

async function list (client, query, served, response) {
  const prefix = narrowed(query.get('prefix') ?? '', served)
  const objects = prefix === undefined ? [] : await client.list(prefix)
  response.setHeader('Content-Type', 'application/json')
  response.end(JSON.stringify(objects.map(described)))
}

/**
 * Sends events until the client hangs up: first "sealed" for each existing object, then "synced", then events as they
 * happen. A page that reads slowly loses events; the next event says how many.
 */
async function live (client, query, { prefix: served, streams }, request, response) {
  const prefix = narrowed(query.get('prefix') ?? '', served)
  if (prefix === undefined) throw new HttpError(404, `only names that begin with "${served}" are served`)
  if (streams.count >= LIVE) throw new HttpError(503, `${LIVE} streams of events are open already: try again later`)
  response.setHeader('Content-Type', 'text/event-stream')
  response.setHeader('Cache-Control', 'no-store')
  if (request.method === 'HEAD') return void response.end()
  const gone = new AbortController()
  const breath = setInterval(() => response.writableNeedDrain || response.write(':\n\n'), BREATH_MS)
  response.once('close', () => gone.abort())
  streams.count++
  try {
    const watch = client.watch(prefix, { signal: gone.signal })
    response.flushHeaders()
    for await (const { kind, object, lost } of watch) {
      const data = JSON.stringify({ ...(object && described(object)), lost })
      if (!response.write(`event: ${kind}\ndata: ${data}\n\n`)) await once(response, 'drain', gone)
    }
  } catch (error) {
    if (!gone.signal.aborted) throw error
  } finally {
    streams.count--
    clearInterval(breath)
    response.end()
  }
}

/** The requested part of an object, as an Arrow table. */
async function select (object, query) {
  const offset = rows(query, 'offset', 0)
  const length = Math.min(rows(query, 'length', object.length), Math.max(object.length - offset, 0))
  if (offset > object.length) throw new HttpError(416, `offset is ${offset}, but there are ${object.length} rows`)
  const arrow = getArrow()
  const part = object.slice(offset, offset + length)
  const shown = part.device === 'host' ? part.toArrow() : await part.toHost()
  let table = shown instanceof arrow.Table ? shown : new arrow.Table({ values: shown })
  const columns = query.get('columns')?.split(',')
  const unknown = columns?.find(name => !table.schema.names.includes(name))
  if (unknown !== undefined) throw new HttpError(404, `there is no column "${unknown}"`)
  if (columns) table = table.select(columns)
  return { table, total: object.length }
}

/** The content coding for a client; undefined: none. */
function codingOf (request) {
  const asked = (request.headers['accept-encoding'] ?? '').split(',').map(text => text.split(';').map(part => part.trim()))
  const taken = asked.filter(([, q]) => !/^q=0(\.0*)?$/.test(q ?? '')).map(([name]) => name.toLowerCase())
  return Object.keys(CODINGS).find(name => CODINGS[name] && taken.includes(name))
}

/**
 * [from, to) of a Range header; undefined: all bytes, also for a malformed header. By RFC 9110 a range is cut at the
 * end, and one that begins past the end is an error.
 */
function rangeOf (header, total) {
  const [, first, last] = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(header ?? '') ?? []
  if (!first && !last) return undefined
  if (first && last && Number(last) < Number(first)) return undefined
  const from = first ? Number(first) : Math.max(total - Number(last), 0)
  const to = first && last ? Math.min(Number(last) + 1, total) : total
  if (from < to) return [from, to]
  throw new HttpError(416, `there are ${total} bytes`, { 'Content-Range': `bytes */${total}` })
}

/** Sends the requested range of an object's bytes, no faster than the client reads. */
async function sendBytes (object, tag, request, response) {
  if (object.kind !== 'bytes' && object.kind !== 'bundle') {
    throw new HttpError(415, `the object is of kind ${object.kind}: ask for /objects/`)
  }
  const total = object.length
  const whole = request.headers['if-range'] !== undefined && request.headers['if-range'] !== tag
  const range = whole ? undefined : rangeOf(request.headers.range, total)
  const [from, to] = range ?? [0, total]
  response.setHeader('Content-Type', 'application/octet-stream')
  response.setHeader('Accept-Ranges', 'bytes')
  response.setHeader('Content-Length', to - from)
  if (range) {
    response.statusCode = 206
    response.setHeader('Content-Range', `bytes ${from}-${to - 1}/${total}`)
  }
  if (request.method === 'HEAD') return void response.end()
  await pipeline(Readable.from((async function * () {
    for (let at = from; at < to; at += PIECE) yield await object._read(DATA, Uint8Array, at, Math.min(PIECE, to - at))
  })(), { objectMode: false }), response)
}

/** Sends a table batch by batch, no faster than the client reads. */
async function stream (table, coding, response) {
  const { RecordBatchStreamWriter } = getArrow()
  const batches = (function * () {
    for (let at = 0; at < table.numRows; at += BATCH) yield * table.slice(at, at + BATCH).batches
    if (table.numRows === 0) yield * table.batches
  })()
  const packed = coding ? [CODINGS[coding]()] : []
  await pipeline(RecordBatchStreamWriter.writeAll(batches).toNodeStream(), ...packed, response)
}

async function send (client, name, { query, raw, compress }, request, response) {
  const coding = compress && !raw ? codingOf(request) : undefined
  const object = await client.open(name)
  try {
    const tag = `"${client.instance}-${object.version}${coding ? `-${coding}` : ''}"`
    if (compress && !raw) response.setHeader('Vary', 'Accept-Encoding')
    response.setHeader('ETag', tag)
    response.setHeader('Cache-Control', 'no-cache')
    if (request.headers['if-none-match'] === tag) {
      response.statusCode = 304
      return void response.end()
    }
    if (raw) return await sendBytes(object, tag, request, response)
    const { table, total } = await select(object, query)
    response.setHeader('Content-Type', 'application/vnd.apache.arrow.stream')
    response.setHeader('X-Total-Rows', total)
    if (coding) response.setHeader('Content-Encoding', coding)
    if (request.method === 'HEAD') return void response.end()
    await stream(table, coding, response)
  } finally {
    object.release()
  }
}

async function answer (client, options, request, response) {
  const url = new URL(request.url, 'http://server')
  if (options.origin !== undefined) {
    response.setHeader('Access-Control-Allow-Origin', options.origin)
    response.setHeader('Access-Control-Allow-Headers', 'Authorization, Range')
    response.setHeader('Access-Control-Expose-Headers', 'X-Total-Rows, ETag, Content-Range')
  }
  checkHost(request, options.host, options.token)
  if (request.method === 'OPTIONS') return void response.end()
  if (request.method !== 'GET' && request.method !== 'HEAD') {
    throw new HttpError(405, `the method is ${request.method}: expected GET or HEAD`)
  }
  checkToken(request, url.searchParams, options.token)
  if (url.pathname === '/') return list(client, url.searchParams, options.prefix, response)
  if (url.pathname === '/live') return live(client, url.searchParams, options, request, response)
  const [, what, name] = /^\/(objects|bytes)\/(.+)$/.exec(url.pathname) ?? []
  if (name === undefined) throw new HttpError(404, 'there are /, /live, /objects/NAME and /bytes/NAME')
  let decoded
  try {
    decoded = decodeURIComponent(name)
  } catch {
    throw new HttpError(400, 'the name has malformed percent-encoding')
  }
  if (decoded.includes('\0')) throw new HttpError(400, 'the name has a NUL')
  if (!decoded.startsWith(options.prefix)) throw new HttpError(404, `only names that begin with "${options.prefix}" are served`)
  const { compress } = options
  return send(client, decoded, { query: url.searchParams, raw: what === 'bytes', compress }, request, response)
}

/**
 * A listener (request, response) for http.createServer(); it answers errors, too. `host`: the address that the server
 * listens on; on loopback it accepts only loopback's names as Host, unless there is a `token`. `token`: what requests
 * must carry, at least 16 characters. `origin`: the origin whose pages may read, too; "*": all. `prefix`: only names
 * that begin so are served. `compress`: compress tables for clients that accept gzip or zstd, which pays on slow networks.
 */
function createHandler (client, { host = '127.0.0.1', token, origin, prefix = '', compress = false } = {}) {
  if (typeof client?.open !== 'function') throw new TypeError('the first argument is not a client')
  if (typeof prefix !== 'string') throw new TypeError('the prefix is not a string')
  checkOwnToken(token)
  const options = { host, token, origin, prefix, compress, streams: { count: 0 } }
  return (request, response) => {
    answer(client, options, request, response).catch(error => {
      if (response.headersSent) return response.destroy()
      response.statusCode = error.status ?? STATUS[error.kind] ?? 500
      for (const name of ['Content-Encoding', 'Content-Length']) response.removeHeader(name) // of the body that was not sent
      for (const [name, value] of Object.entries(error.headers ?? {})) response.setHeader(name, value)
      response.setHeader('Content-Type', 'application/json')
      response.end(JSON.stringify({ error: error.message }))
    })
  }
}

module.exports = { createHandler, checkOwnToken, LOOPBACK }
