'use strict'
// Providers: a function makes the absent objects that clients wait for. Each provider has its own connection.

const native = require('./native.cjs')
const { fromStatus, translate, classes } = require('./errors.cjs')
const { nextId, pending } = require('./requests.cjs')

const NOT_FOUND = -32001
const UNAVAILABLE = -32011
const PAUSE_MS = 500 // between two attempts to provide again

const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))

/** [number on the wire, sentence] of the error that waiting clients get for a loader's exception. */
function refusal (error) {
  const message = String(error?.message || error)
  if (error instanceof classes.NotFoundError || error?.code === 'ENOENT') return [NOT_FOUND, message]
  return [UNAVAILABLE, error instanceof Error ? `${error.name}: ${message}` : message]
}

class Provider {
  #client
  #load
  #options
  #loadTimeout // milliseconds
  #room // how many more loads may begin now
  #turns = new Map() // uid → its names that wait for room; whose turn it is comes first
  #making = new Map() // by name: { name, request, uid, gid, controller }; request 0: no client waits
  #id
  #closed
  #idle // resolves a close() that waits for loads under way
  #refuse // rejects the attempt to provide that waits for its answer
  #again = false // #beginAgain() runs

  /** `all`: the watches and providers that the client tells of a lost connection. */
  constructor (client, prefix, load, { concurrency, loadTimeout, all, options }) {
    this.#client = client
    this.prefix = prefix
    this.#load = load
    this.#loadTimeout = loadTimeout
    this.#room = concurrency
    this.#options = options
    all.add(this)
  }

  begun = false // the daemon has agreed once

  get closed () { return this.#closed !== undefined }

  /** Resolves once the daemon has agreed. */
  async _begin () {
    await this.#client._ready()
    const id = this.#id = nextId()
    await new Promise((resolve, reject) => {
      this.#client._begun() // a request may come: keep the process alive
      const done = (status, request, _, extra) => {
        if (Array.isArray(extra)) return this.#wanted(extra, request)
        this.begun ||= status >= 0
        if (status >= 0) return resolve()
        this.#end(id)
        reject(fromStatus(status, extra))
      }
      pending.set(id, { done })
      this.#refuse = reject
      try {
        native.provide(this.#client._slot, id, this.prefix)
      } catch (error) {
        this.#end(id)
        reject(translate(error))
      }
    })
  }

  #end (id) {
    if (pending.delete(id)) this.#client._ended()
  }

  /** Called by the client when its connection is lost (`why`: the error) or closed (undefined). */
  _lost (why) {
    this.#end(this.#id)
    this.#over(0)
    this.#refuse?.(why)
    if (this.begun && why !== undefined && !this.#again) this.#beginAgain()
  }

  async #beginAgain () {
    this.#again = true
    while (!this.closed && !await this._begin().then(() => true, () => false)) await sleep(PAUSE_MS)
    this.#again = false
  }

  // ---- what is wanted ----

  #wanted ([name, uid, gid], request) {
    if (name === null) return this.#over(request)
    const making = this.#making.get(name)
    if (making) { // its outcome answers this request, too
      making.request = request
      return
    }
    const one = { name, request, uid, gid, controller: new AbortController() }
    this.#making.set(name, one)
    if (!this.#turns.has(uid)) this.#turns.set(uid, [])
    this.#turns.get(uid).push(one)
    this.#next()
  }

  /** No client waits for that request any more; 0: for any request. */
  #over (request) {
    for (const one of this.#making.values()) {
      if (request !== 0 && one.request !== request) continue
      one.request = 0
      one.controller.abort()
    }
  }

  /** The next name: users take turns, so that nobody waits behind all that one user wants. */
  #take () {
    const [uid, names] = this.#turns.entries().next().value
    this.#turns.delete(uid)
    const one = names.shift()
    if (names.length > 0) this.#turns.set(uid, names)
    return one
  }

  #next () {
    while (this.#room > 0 && this.#turns.size > 0) {
      this.#room--
      this.#serve(this.#take()).finally(() => {
        this.#room++
        this.#next()
      })
    }
    if (this.#making.size === 0) this.#idle?.()
  }

  async #serve (one) {
    while (one.request !== 0) {
      const seen = one.request
      try {
        await this.#make(one)
        if (await this.#answered(one, seen)) break
      } catch (error) {
        if (one.request === 0 || !one.controller.signal.aborted) {
          this.#decline(one.request, error)
          one.controller.abort() // if it was given up, it may end
          break
        }
        one.controller = new AbortController() // the load was aborted, then the name was asked for again
      }
    }
    this.#making.delete(one.name)
  }

  /** Whether the object answers the requests that came meanwhile, too: it does unless it is deleted already. */
  async #answered (one, seen) {
    while (one.request !== 0 && one.request !== seen) {
      seen = one.request
      if (!await this.#isThere(one.name)) return false
    }
    return true
  }

  /** The value of a load, unless it takes too long. */
  async #inTime (load) {
    let timer
    const late = new Promise((_, reject) => {
      const error = new Error(`the load has taken more than ${this.#loadTimeout} ms (loadTimeout)`)
      timer = setTimeout(reject, this.#loadTimeout, error)
    })
    try {
      return await Promise.race([load, late])
    } finally {
      clearTimeout(timer)
    }
  }

  async #make ({ name, uid, gid, controller }) {
    const value = await this.#inTime(this.#load(name, { uid, gid, signal: controller.signal }))
    if (value === undefined) {
      if (await this.#isThere(name)) return
      throw new classes.NotFoundError(`the provider of "${this.prefix}" gave nothing for "${name}"`, 'not_found', NOT_FOUND)
    }
    await this.#client.put(name, value, this.#options).catch(error => {
      if (error.kind !== 'exists') throw error // else another program was quicker
    })
  }

  #isThere (name) {
    return this.#client.stat(name).then(() => true, error => {
      if (error.kind === 'not_found') return false
      throw error
    })
  }

  #decline (request, error) {
    if (request === 0) return
    try {
      native.decline(this.#client._slot, request, ...refusal(error))
    } catch {} // the connection is lost, and the request with it
  }

  // ---- the end ----

  /** Ends the provider, and aborts the signals of loads under way; resolves when these have ended. */
  close () {
    this.#closed ??= this.#close()
    return this.#closed
  }

  async #close () {
    await undefined // `closed` is true by now
    try {
      native.provideEnd(this.#client._slot, this.prefix)
    } catch {} // there is no connection
    this.#end(this.#id)
    for (const names of this.#turns.values()) for (const one of names) this.#making.delete(one.name)
    this.#turns.clear()
    this.#over(0)
    if (this.#making.size > 0) await new Promise(resolve => { this.#idle = resolve })
    this.#client.close()
  }

  async [Symbol.asyncDispose ?? Symbol.for('nodejs.asyncDispose')] () { await this.close() }
}

module.exports = { Provider }
