'use strict'
// Requests under way, and the one function that the addon calls with what has come.

const { constants } = require('node:buffer')
const { channel } = require('node:diagnostics_channel')
const native = require('./native.cjs')
const { fromStatus, translate } = require('./errors.cjs')

const RECORDS = 256
const records = new Float64Array(4 * RECORDS)

/** By id: { resolve, reject, client?, event? }. */
const pending = new Map()
let lastId = 0

function nextId () {
  return ++lastId
}

function deliver (count, extras) {
  // A callback may begin requests and so come back here: nothing is read after the first call.
  const batch = records.slice(0, 4 * count)
  for (let i = 0; i < count; i++) {
    const request = pending.get(batch[4 * i])
    if (request) request.done(batch[4 * i + 1], batch[4 * i + 2], batch[4 * i + 3], extras?.[i])
  }
}

// Observers (OpenTelemetry, an APM) are told of each request by the same message at its start and at its end.
const started = channel('gpubufd:request:start')
const ended = channel('gpubufd:request:end')

/** Whether ArrayBuffers over memory of others are allowed: not in Electron. */
const external = native.start(deliver, records, constants.MAX_LENGTH)

class Request {
  constructor (id, client, settle) {
    this.id = id
    this.client = client
    this.resolve = this.reject = undefined
    this.settle = settle
    this.abort = undefined
    this.message = undefined
  }

  done (status, value, kind, extra) {
    pending.delete(this.id)
    if (this.client) this.client._ended()
    this.abort?.stop()
    if (status < 0) {
      this.fail(this.abort?.signal.aborted ? this.abort.signal.reason : fromStatus(status, extra))
      return
    }
    try {
      this.resolve(this.settle ? this.settle(value, kind, extra) : extra ?? value)
    } catch (error) { // which is this request's alone
      this.fail(error)
      return
    }
    if (this.message) ended.publish(this.message)
  }

  fail (error) {
    this.reject(error)
    if (!this.message) return
    this.message.error = error
    ended.publish(this.message)
  }
}

/** Listens to a signal on a request's behalf. */
class Abort {
  constructor (signal, cancel) {
    this.signal = signal
    this.cancel = cancel
    signal.addEventListener('abort', cancel, { once: true })
  }

  stop () {
    this.signal.removeEventListener('abort', this.cancel)
  }
}

/** Repeats a request that may be done twice where the connection broke on the way, for `ms` milliseconds from then. */
async function again (client, ms, make) {
  let end
  for (;;) {
    try {
      return await make()
    } catch (error) {
      end ??= Date.now() + ms
      if (!['closed', 'stale'].includes(error?.kind) || client.closed || Date.now() >= end) throw error
    }
  }
}

function checkSignal (signal) {
  if (signal !== undefined && !(signal instanceof AbortSignal)) {
    throw new TypeError('signal is not an AbortSignal')
  }
}

/** The options of a call, which are an object, or absent, and are among `known`. */
function optionsOf (value, known) {
  if (value === undefined) return {}
  if (typeof value !== 'object' || value === null) throw new TypeError('the options are not an object')
  for (const name in value) {
    if (!known.includes(name)) throw new TypeError(`there is no option "${name}", but ${known.join(', ')}`)
  }
  return value
}

/**
 * Begins a request: `begin(id)` calls the addon and returns its number for cancel(), or nothing where it
 * is a work of libuv's pool. `settle(value, kind, extra)` makes of the outcome what the promise resolves
 * with. `method`, `name`: for those who look on.
 */
function submit (client, begin, { signal, settle, method, name } = {}) {
  return new Promise((resolve, reject) => {
    checkSignal(signal)
    if (signal?.aborted) return reject(signal.reason)
    const request = new Request(++lastId, client, settle)
    request.resolve = resolve
    request.reject = reject
    pending.set(request.id, request)
    if (client) client._begun()
    if (started.hasSubscribers || ended.hasSubscribers) {
      request.message = { client, method, name, error: undefined }
      started.publish(request.message)
    }
    let number
    try {
      number = begin(request.id)
    } catch (error) {
      pending.delete(request.id)
      if (client) client._ended()
      return request.fail(translate(error))
    }
    if (!signal) return
    if (number === undefined) { // a work of another thread: it goes on, and nobody waits for it
      request.abort = new Abort(signal, () => reject(signal.reason))
      return
    }
    const slot = client._slot
    request.abort = new Abort(signal, () => {
      try {
        native.cancel(slot, number)
      } catch {} // the client is closed, and the request is ended by that
    })
  })
}

module.exports = { submit, again, nextId, pending, checkSignal, optionsOf, external }
