'use strict'
// Shared tables and columns for browsers, as Arrow IPC streams over HTTP: what gpubufd-serve runs, and what
// an HTTP server of a program's own may hand requests to.
//
//   GET /                          what there is, as JSON; ?prefix=
//   GET /objects/NAME              the object; ?columns=a,b &offset=ROW &length=ROWS

const { createHash, timingSafeEqual } = require('node:crypto')
const { pipeline } = require('node:stream/promises')
const { getArrow } = require('./to-arrow.cjs')

const LOOPBACK = /^(127(\.\d+){3}|::1|localhost)$/
const BATCH = 65536 // rows in a batch, so that a page can begin before all has come

class HttpError extends Error {
  constructor (status, message) {
    super(message)
    this.status = status
  }
}

const STATUS = { not_found: 404, invalid: 400, denied: 403, unsupported: 415, timeout: 504, connect: 503, closed: 503 }

function rows (query, name, missing) {
  const text = query.get(name)
  if (text === null) return missing
  if (!/^\d{1,15}$/.test(text)) throw new HttpError(400, `${name} is not a whole number`)
  return Number(text)
}

const TOKEN_LEAST = 16 // characters, as of the gateway's

/** An empty token, as of a variable that is set to nothing, would admit everybody. */
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
  if (!sameToken(given, token)) throw new HttpError(401, 'a token is needed')
}

/** A page of another site could let a name of its own point to loopback: who asks must mean us. */
function checkHost (request, host, token) {
  if (token !== undefined || !LOOPBACK.test(host)) return
  const asked = (request.headers.host ?? '').replace(/:\d+$/, '').replace(/^\[(.*)\]$/, '$1')
  if (!LOOPBACK.test(asked)) throw new HttpError(403, 'this server answers to its own name only')
}

/** What is asked for, as far as it is among what is served. */
function narrowed (asked, served) {
  if (asked.startsWith(served)) return asked
  return served.startsWith(asked) ? served : undefined
}

async function list (client, query, served, response) {
  const prefix = narrowed(query.get('prefix') ?? '', served)
  const objects = prefix === undefined ? [] : await client.list(prefix)
  response.setHeader('Content-Type', 'application/json')
  response.end(JSON.stringify(objects.map(({ name, version, state, device, bytes, created_ms: created }) =>
    ({ name, version, state, device, bytes, created }))))
}

/** The part of an object that was asked for, as an Arrow table. */
async function select (object, query) {
  const offset = rows(query, 'offset', 0)
  const length = Math.min(rows(query, 'length', object.length), Math.max(object.length - offset, 0))
  if (offset > object.length) throw new HttpError(416, `there are ${object.length} rows`)
  const arrow = getArrow()
  const part = object.slice(offset, offset + length)
  const shown = part.device === 'host' ? part.toArrow() : await part.toHost()
  let table = shown instanceof arrow.Table ? shown : new arrow.Table({ values: shown })
  const columns = query.get('columns')?.split(',')
  const unknown = columns?.find(name => !table.schema.names.includes(name))
  if (unknown !== undefined) throw new HttpError(404, `no column "${unknown}"`)
  if (columns) table = table.select(columns)
  return { table, total: object.length }
}

/** Sends a table batch by batch, no faster than it is taken. */
async function stream (table, response) {
  const { RecordBatchStreamWriter } = getArrow()
  const batches = (function * () {
    for (let at = 0; at < table.numRows; at += BATCH) yield * table.slice(at, at + BATCH).batches
    if (table.numRows === 0) yield * table.batches
  })()
  await pipeline(RecordBatchStreamWriter.writeAll(batches).toNodeStream(), response)
}

async function send (client, name, query, request, response) {
  const object = await client.open(name)
  try {
    const tag = `"${client.instance}-${object.version}"`
    response.setHeader('ETag', tag)
    response.setHeader('Cache-Control', 'no-cache')
    if (request.headers['if-none-match'] === tag) {
      response.statusCode = 304
      return void response.end()
    }
    const { table, total } = await select(object, query)
    response.setHeader('Content-Type', 'application/vnd.apache.arrow.stream')
    response.setHeader('X-Total-Rows', total)
    if (request.method === 'HEAD') return void response.end()
    await stream(table, response)
  } finally {
    object.release()
  }
}

async function answer (client, options, request, response) {
  const url = new URL(request.url, 'http://server')
  if (options.origin !== undefined) {
    response.setHeader('Access-Control-Allow-Origin', options.origin)
    response.setHeader('Access-Control-Allow-Headers', 'Authorization')
    response.setHeader('Access-Control-Expose-Headers', 'X-Total-Rows, ETag')
  }
  checkHost(request, options.host, options.token)
  if (request.method === 'OPTIONS') return void response.end()
  if (request.method !== 'GET' && request.method !== 'HEAD') throw new HttpError(405, 'GET only')
  checkToken(request, url.searchParams, options.token)
  if (url.pathname === '/') return list(client, url.searchParams, options.prefix, response)
  const name = /^\/objects\/(.+)$/.exec(url.pathname)?.[1]
  if (name === undefined) throw new HttpError(404, 'there are / and /objects/NAME')
  let decoded
  try {
    decoded = decodeURIComponent(name)
  } catch {
    throw new HttpError(400, 'the name is not well escaped')
  }
  if (decoded.includes('\0')) throw new HttpError(400, 'no name has a NUL')
  if (!decoded.startsWith(options.prefix)) throw new HttpError(404, `only names that begin with "${options.prefix}" are served`)
  return send(client, decoded, url.searchParams, request, response)
}

/**
 * A listener for requests: (request, response), which answers each, also with an error. `host` is the
 * address that the server listens on; on loopback it answers to loopback's names only, unless there is a
 * token to be shown. `origin`: which pages of other servers may read. `prefix`: only names that begin so.
 */
function createHandler (client, { host = '127.0.0.1', token, origin, prefix = '' } = {}) {
  if (typeof client?.open !== 'function') throw new TypeError('the first argument is not a client')
  if (typeof prefix !== 'string') throw new TypeError('the prefix is not a string')
  checkOwnToken(token)
  const options = { host, token, origin, prefix }
  return (request, response) => {
    answer(client, options, request, response).catch(error => {
      if (response.headersSent) return response.destroy()
      response.statusCode = error.status ?? STATUS[error.kind] ?? 500
      response.setHeader('Content-Type', 'application/json')
      response.end(JSON.stringify({ error: error.message }))
    })
  }
}

module.exports = { createHandler, checkOwnToken, LOOPBACK }
