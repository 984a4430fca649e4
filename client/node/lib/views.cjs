'use strict'
// Views: the versions of a name, one after another, at the same addresses.

const native = require('./native.cjs')
const { fromKind } = require('./errors.cjs')
const { number, text, milliseconds, versionOf } = require('./arguments.cjs')
const { submit, orAborted, optionsOf } = require('./requests.cjs')
const { streamOf, makeObject } = require('./objects.cjs')

const SWITCH = 0
const PARK = 1
const RESUME = 2

function streamsOf (streams = []) {
  if (typeof streams !== 'object' || streams === null || typeof streams[Symbol.iterator] !== 'function') {
    throw new TypeError('streams is not an array of CUDA streams')
  }
  return Array.from(streams, streamOf)
}

/**
 * One version of a name after another, at addresses that stay; made by client.follow(). `value` is the object: typed
 * arrays that were made of it show the version that the view shows. Calls take effect one after the other.
 */
class View {
  #client
  #name
  #view
  #before = Promise.resolve() // the calls until now

  constructor (client, name, view, value) {
    this.#client = client
    this.#name = name
    this.#view = view
    this.value = value
  }

  get name () { return this.#name }
  /** The version that is shown, or parked. */
  get version () { return this.value.version }
  get label () { return this.value.label }
  get parked () { return this.value._lease.parked }
  get closed () { return this.#view === undefined }

  async #show (what, parked, { version, label, timeout, streams, signal }) {
    const which = [number(version, 'version'), label === undefined ? label : text(label, 'label'), milliseconds(timeout)]
    const waited = streamsOf(streams)
    const lease = this.value._lease
    const work = this.#before.then(async () => {
      if (this.closed) throw fromKind('closed', `the view of "${this.#name}" was closed`)
      const was = lease.parked
      lease.parked = was || what === PARK // nobody begins to read what is going to be parked
      try {
        const changed = await submit(this.#client, id => native.show(this.#view, id, what, ...which, waited),
          { method: ['switch', 'park', 'resume'][what], name: this.#name })
        lease.parked = parked
        if (changed) lease.shown++
        return changed
      } catch (error) {
        lease.parked = was
        throw error
      }
    })
    this.#before = work.catch(() => {})
    return await orAborted(work, signal)
  }

  /**
   * Shows the newest version, or this one, or the newest with this label. Resolves with false if it was shown already.
   * UnsupportedError: it has another layout, or shares its segment; after an error the view is as it was.
   * `streams`: CUDA streams that work with the view, and are waited for; without any, all of the context's work.
   */
  async switch (options) {
    return await this.#show(SWITCH, false, optionsOf(options, ['version', 'label', 'timeout', 'streams', 'signal']))
  }

  /**
   * Gives the memory up, and keeps content and addresses. Resolves with false if it was parked already. Typed arrays on
   * the host read as zeros until resume(). On a GPU to read there is an error that ends the context.
   */
  async park (options) {
    return await this.#show(PARK, true, optionsOf(options, ['streams', 'signal']))
  }

  /** Shows what was parked again; `timeout`: milliseconds to wait for room. Resolves with false if it was not parked. */
  async resume (options) {
    return await this.#show(RESUME, false, optionsOf(options, ['timeout', 'signal']))
  }

  /** An async iterator of versions newer than the one that is shown; see client.versions(). */
  async * versions (options) {
    for await (const info of this.#client.versions(this.#name, options)) {
      if (info.version > this.version) yield info
    }
  }

  /** Ends the view, after the calls before. Typed arrays of it read as zeros from then on. */
  close () {
    if (this.closed) return
    const view = this.#view
    this.#view = undefined
    native.unfollow(view) // it ends with the calls under way
    this.value.release()
  }

  [Symbol.dispose ?? Symbol.for('nodejs.dispose')] () { this.close() }
  async [Symbol.asyncDispose ?? Symbol.for('nodejs.asyncDispose')] () { this.close() }

  [Symbol.for('nodejs.util.inspect.custom')] () {
    if (this.closed) return `View of "${this.#name}" (closed)`
    return `View of "${this.#name}", version ${this.version}${this.parked ? ', parked' : ''}`
  }
}

/** See Client.follow(). */
async function follow (client, name, options, copy) {
  const { timeout, signal, ...which } = optionsOf(options, ['timeout', 'version', 'label', 'signal'])
  const { version = 0, label } = versionOf(which)
  text(name, 'the name')
  if (milliseconds(timeout)) (await client.open(name, { timeout, signal, ...which })).release()
  return await client._request(id => native.follow(client._slot, id, name, version, label, 0), {
    signal,
    method: 'follow',
    name,
    settle: (_, __, [shown, found]) => {
      const view = new View(client, name, shown, makeObject(client, name, Math.floor(found / 8), found % 8, copy))
      if (signal?.aborted) view.close()
      return view
    }
  })
}

/** See Client.edit(). */
async function edit (client, name, write, options) {
  text(name, 'the name')
  if (typeof write !== 'function') throw new TypeError('write is not a function')
  const { version, timeout, signal, ...sealing } =
    optionsOf(options, ['version', 'timeout', 'label', 'keep', 'nullCounts', 'signal'])
  const wanted = number(version, 'version')
  const waits = milliseconds(timeout)
  const made = await client._request(id => native.edit(client._slot, id, name, wanted, undefined, waits), {
    signal,
    method: 'edit',
    name,
    settle: (_, __, found) => {
      const object = makeObject(client, name, Math.floor(found / 8), found % 8, false)
      if (signal?.aborted) object.release()
      return object
    }
  })
  try {
    await write(made)
    signal?.throwIfAborted()
    return await made.seal({ ...sealing, signal })
  } finally {
    made.release()
  }
}

module.exports = { View, follow, edit }
