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
    } catch (error) { // must not reach the other requests of this call
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

/**
 * Begins a request; returns its promise. begin(id) calls the addon, and returns the number for cancel(); undefined for
 * work of libuv's pool. settle(value, kind, extra) turns the outcome into the value of the promise. `method`, `name`:
 * for observers.
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
    if (number === undefined) { // work of another thread goes on, but its result is dropped
      request.abort = new Abort(signal, () => reject(signal.reason))
      return
    }
    const slot = client._slot
    request.abort = new Abort(signal, () => {
      try {
        native.cancel(slot, number)
      } catch {} // the client is closed, which has ended the request
    })
  })
}

module.exports = { submit, again, nextId, pending, checkSignal, optionsOf, external }
