'use strict'
// Requests under way, and the one function that the addon calls with completions.

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
  // A callback may begin requests, and so overwrite the records: copy them before the first call.
  const batch = records.slice(0, 4 * count)
  for (let i = 0; i < count; i++) {
    const request = pending.get(batch[4 * i])
    if (request) request.done(batch[4 * i + 1], batch[4 * i + 2], batch[4 * i + 3], extras?.[i])
  }
}

// Observers (OpenTelemetry, an APM) get one message object for each request: at its start, and again at its end.
const started = channel('gpubufd:request:start')
const ended = channel('gpubufd:request:end')

/** Whether ArrayBuffers over shared memory are allowed: in Electron they are not. */
const external = native.start(deliver, records, constants.MAX_LENGTH)

/** How a request failed. The exception is made where submit() awaits it: so its stack has the caller's lines. */
class Failure {
  constructor (status, message) {
    this.status = status
    this.message = message
  }

  toError () { return fromStatus(this.status, this.message) }
}

class Request {
  constructor (id, client, settle, resolve, reject) {
    this.id = id
    this.client = client
    this.settle = settle
    this.resolve = resolve
    this.reject = reject
    this.abort = undefined
  }

  done (status, value, kind, extra) {
    pending.delete(this.id)
    if (this.client) this.client._ended()
    this.abort?.stop()
    if (status < 0) {
      if (this.abort?.signal.aborted) this.reject(this.abort.signal.reason)
      else this.resolve(new Failure(status, extra))
      return
    }
    try {
      this.resolve(this.settle ? this.settle(value, kind, extra) : extra ?? value)
    } catch (error) { // must not reach the other requests of this call
      this.reject(error)
    }
  }

  /** Calls begin(id), and heeds the signal from then on. */
  start (begin, signal) {
    pending.set(this.id, this)
    if (this.client) this.client._begun()
    let number
    try {
      number = begin(this.id)
    } catch (error) {
      pending.delete(this.id)
      if (this.client) this.client._ended()
      throw error
    }
    if (!signal) return
    if (number === undefined) { // work of another thread goes on, but its result is dropped
      this.abort = new Abort(signal, () => this.reject(signal.reason))
      return
    }
    const slot = this.client._slot
    this.abort = new Abort(signal, () => {
      try {
        native.cancel(slot, number)
      } catch {} // the client is closed, which has ended the request
    })
  }
}

/** The listener of a request on its AbortSignal. */
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

/** Repeats a request that may run twice, if the connection breaks on the way; for `ms` milliseconds after that. */
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
    throw new TypeError(`signal is of type ${typeof signal}, not an AbortSignal`)
  }
}

/** The options of a call: an object with members of `known` alone, or undefined. */
function optionsOf (value, known) {
  if (value === undefined) return {}
  if (value === null) throw new TypeError('the options are null, not an object')
  if (typeof value !== 'object') throw new TypeError(`the options are of type ${typeof value}, not an object`)
  for (const name in value) {
    if (!known.includes(name)) throw new TypeError(`there is no option "${name}": expected ${known.join(', ')}`)
  }
  return value
}

/** As the promise, but rejects with the signal's reason as soon as that is aborted. */
async function orAborted (promise, signal) {
  checkSignal(signal)
  if (!signal) return await promise
  let abort
  try {
    return await Promise.race([new Promise((resolve, reject) => { // first: a signal that is aborted already counts
      signal.throwIfAborted()
      abort = new Abort(signal, () => reject(signal.reason))
    }), promise])
  } finally {
    abort?.stop()
  }
}

/**
 * Makes a request. begin(id) calls the addon, and returns the number for cancel(); undefined for work of libuv's pool.
 * settle(value, kind, extra) turns the outcome into the result. `method`, `name`: for observers.
 */
async function submit (client, begin, { signal, settle, method, name } = {}) {
  checkSignal(signal)
  signal?.throwIfAborted()
  const message = started.hasSubscribers || ended.hasSubscribers ? { client, method, name, error: undefined } : undefined
  if (message) started.publish(message)
  try {
    const outcome = await new Promise((resolve, reject) => {
      new Request(++lastId, client, settle, resolve, reject).start(begin, signal)
    })
    if (outcome instanceof Failure) throw outcome.toError()
    return outcome
  } catch (thrown) {
    const error = translate(thrown)
    if (message) message.error = error
    throw error
  } finally {
    if (message) ended.publish(message)
  }
}

module.exports = { submit, again, orAborted, nextId, pending, records, checkSignal, optionsOf, external, Failure }
