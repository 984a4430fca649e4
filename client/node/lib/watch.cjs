'use strict'
// Events as an async iterator. A watch that loses its connection begins anew on the next one: an event of kind
// "reconnected" comes, then "sealed" for each existing object again.

const native = require('./native.cjs')
const { fromStatus, translate } = require('./errors.cjs')
const { nextId, pending } = require('./requests.cjs')

/** Kinds that are never dropped: programs wait for them. */
const MARKS = new Set(['synced', 'reconnected'])

/**
 * Events that the program has not taken yet. Past the limit the oldest is dropped; the next event that is taken has the
 * number dropped in `lost`.
 */
class Queue {
  #limit
  #events = []
  #start = 0
  #lost = 0

  constructor (limit) {
    this.#limit = limit
  }

  get length () { return this.#events.length - this.#start }

  push (event) {
    this.#events.push(event)
    if (this.length <= this.#limit) return
    for (let i = this.#start; i < this.#events.length; i++) {
      if (MARKS.has(this.#events[i].kind)) continue
      this.#events.copyWithin(this.#start + 1, this.#start, i) // past the marks before it
      this.#lost++
      this.#skip()
      break
    }
  }

  take () {
    const event = this.#events[this.#start]
    this.#skip()
    if (this.#lost) event.lost = (event.lost ?? 0) + this.#lost
    this.#lost = 0
    return event
  }

  #skip () {
    this.#events[this.#start++] = undefined
    if (this.#start < 1024 || this.#start * 2 < this.#events.length) return
    this.#events.splice(0, this.#start)
    this.#start = 0
  }

  clear () {
    this.#events.length = this.#start = this.#lost = 0
  }
}

class Watch {
  #client
  #prefix
  #signal
  #all
  #reconnect
  #events
  #waiting = [] // { resolve, reject } of next() calls
  #ended = false
  #failure
  #id
  #number
  #abort

  constructor (client, prefix, { signal, limit, all, reconnect }) {
    this.#events = new Queue(limit)
    this.#client = client
    this.#prefix = prefix
    this.#signal = signal
    this.#all = all
    this.#reconnect = reconnect
    if (signal?.aborted) {
      this.#end(signal.reason)
      return
    }
    this.#abort = () => this.#end(signal.reason)
    signal?.addEventListener('abort', this.#abort, { once: true })
    all.add(this)
    this.#begin(false)
  }

  async #begin (again) {
    try {
      await this.#client._ready()
      if (this.#ended) return
      if (again) this.#tell({ kind: 'reconnected' })
      const id = this.#id = nextId()
      // The first completion is the answer, the others are events.
      let answered = false
      pending.set(id, {
        done: (status, number, _, extra) => {
          if (answered) return this.#tell({ kind: extra[0], object: extra[1] ?? undefined }, number)
          answered = true
          if (status < 0) {
            pending.delete(id)
            const error = fromStatus(status, extra)
            if (error.kind !== 'closed') this.#end(error)
          } else {
            this.#number = number
            if (this.#ended) this.#stop()
          }
        }
      })
      this.#client._begun() // the program waits for events: keep the process alive
      try {
        native.watch(this.#client._slot, id, this.#prefix)
      } catch (error) {
        this.#client._ended()
        throw error
      }
    } catch (error) {
      pending.delete(this.#id)
      this.#id = undefined
      this.#end(translate(error))
    }
  }

  /** Called by the client when its connection is lost (`why`: the error) or closed (undefined). */
  _lost (why) {
    if (this.#id !== undefined) {
      pending.delete(this.#id)
      this.#client._ended()
    }
    this.#id = this.#number = undefined
    if (why === undefined) this.#end(undefined)
    else if (!this.#reconnect) this.#end(why)
    else this.#begin(true)
  }

  /** `lost`: events before it for which there was no memory. */
  #tell (event, lost = 0) {
    if (this.#ended) return
    if (lost) event.lost = lost
    const next = this.#waiting.shift()
    if (next) next.resolve({ value: event, done: false })
    else this.#events.push(event)
  }

  #stop () {
    if (this.#id === undefined || this.#number === undefined) return
    pending.delete(this.#id)
    try {
      native.unwatch(this.#client._slot, this.#number)
    } catch {} // the connection is lost, which has ended the watch
    this.#client._ended()
    this.#id = this.#number = undefined
  }

  #end (failure) {
    if (this.#ended) return
    this.#ended = true
    this.#failure = failure
    this.#all.delete(this)
    if (this.#abort) this.#signal?.removeEventListener('abort', this.#abort)
    this.#stop()
    for (const next of this.#waiting.splice(0)) {
      if (this.#failure) next.reject(this.#take())
      else next.resolve({ value: undefined, done: true })
    }
  }

  #take () {
    const failure = this.#failure
    this.#failure = undefined
    return failure
  }

  next () {
    if (this.#events.length) return Promise.resolve({ value: this.#events.take(), done: false })
    if (this.#failure) return Promise.reject(this.#take())
    if (this.#ended) return Promise.resolve({ value: undefined, done: true })
    return new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }))
  }

  return () {
    this.#events.clear()
    this.#end(undefined)
    return Promise.resolve({ value: undefined, done: true })
  }

  [Symbol.asyncIterator] () { return this }
  async [Symbol.asyncDispose ?? Symbol.for('nodejs.asyncDispose')] () { await this.return() }
}

module.exports = { Watch }
