'use strict'
// A connection to the daemon, which is made again after a loss.

const EventEmitter = require('node:events')
const { channel } = require('node:diagnostics_channel')
const native = require('./native.cjs')
const { classes, translate, fromStatus } = require('./errors.cjs')
const { submit, again, orAborted, nextId, pending, records, checkSignal, optionsOf, external, Failure } =
  require('./requests.cjs')
const { KnownObjects, makeObject, fill, streamOf } = require('./objects.cjs')
const { number, milliseconds: wait, versionOf, text, isPattern, matcher } = require('./arguments.cjs')
const { KINDS, content, gather, pairs, columnSpec, noteSizes, checkCovered } = require('./content.cjs')
const { Provider } = require('./provide.cjs')
const { Watch } = require('./watch.cjs')
const { follow, edit } = require('./views.cjs')
const { createStream, openStream } = require('./streams.cjs')

const KEY = Symbol('gpubufd')
const NAMES = 64 // in one delete request, at most: the protocol's limit
const EVICT = { spill: 1, drop: 2, keep: 3 }
const SCOPE = { local: 0, cluster: 1 }
const CONCURRENCY = 16 // loads of a provider at a time, by default
const LOAD_TIMEOUT = 300_000 // milliseconds
const PUTS = 1024 // at a time; more wait: a session may have 4096 unsealed objects
const WATCH_LIMIT = 10_000 // events in a watch's queue, by default
const REQUEST = ['signal']
const WHICH = ['version', 'label', 'signal']
const CREATED = ['device', 'share', 'mode', 'replace', 'ttl', 'evict', 'final', 'own', 'label', 'keep', 'scope', 'timeout',
  'signal']
const CREATE = [...CREATED, 'live']
const PUT = [...CREATED, 'as', 'shape', 'dtype', 'stream', 'wait']
const RETRY_MS = [20, 50, 100, 200, 500, 1000]
const TIMER_MAX = 2 ** 31 - 1
const CHANNELS = Object.fromEntries(['connect', 'reconnect', 'disconnect', 'close'].map(
  event => [event, channel(`gpubufd:${event}`)]))

const CACHED = 1024 // leases
const YIELD = 500 // opens without a request between two turns of the event loop, at most

function closedError (message) {
  return new classes.ClosedError(message, 'closed', -3)
}

/** The permissions of a mode, which is an octal string or a number. */
function modeOf (mode) {
  if (mode === undefined) return 0
  if (typeof mode === 'string' && /^[0-7]{1,4}$/.test(mode)) return parseInt(mode, 8)
  return number(mode, 'mode')
}

function createOptions (options) {
  const { device, share, replace = false, final = false, evict, scope = 'local' } = options
  if (device !== undefined) text(device, 'device')
  if (share !== undefined) text(share, 'share')
  if (typeof replace !== 'boolean') throw new TypeError(`replace is ${String(replace)}, not true or false`)
  if (typeof final !== 'boolean') throw new TypeError(`final is ${String(final)}, not true or false`)
  for (const flag of ['live', 'own']) {
    if (options[flag] !== undefined && typeof options[flag] !== 'boolean') throw new TypeError(`${flag} is ${String(options[flag])}, not true or false`)
  }
  if (evict !== undefined && !(evict in EVICT)) throw new TypeError(`evict is ${String(evict)}, not "spill", "drop" or "keep"`)
  if (!(scope in SCOPE)) throw new TypeError(`scope is ${String(scope)}, not "local" or "cluster"`)
  if (options.label !== undefined) text(options.label, 'label')
  return {
    device, share, replace, final, live: options.live, own: options.own, mode: modeOf(options.mode), label: options.label, keep: number(options.keep, 'keep'),
    evict: evict === undefined ? 0 : EVICT[evict],
    scope: SCOPE[scope],
    ttl: number(options.ttl, 'ttl'), timeout: wait(options.timeout)
  }
}

/**
 * Emits `connect` after the first connection; `reconnect` after each later one; `disconnect` (with the error) when the
 * connection broke and was not resumed in time; `close` when close() was called.
 */
class Client extends EventEmitter {
  #slot = -1
  #under = 0
  #closed = false
  #lost // why the connection ended
  #connecting
  #options
  #watches = new Set() // and providers of its own
  #providers = new Set() // each with a client of its own
  #wake // ends a pause between two attempts to connect
  #giveUp // ends an attempt to connect
  #cachedOpens = 0
  #writers = new Set() // weak: leases and streams that write live memory
  instance = '' // before the first connection

  constructor (key, options) {
    super()
    if (key !== KEY) throw new TypeError('use connect()')
    this.#options = options
    this._knownObjects = new KnownObjects(options.cacheLeases)
  }

  // ---- for requests.cjs ----

  get _slot () {
    if (this.#slot < 0) {
      throw this.#closed
        ? closedError('the client is closed')
        : this.#lost ?? closedError('the client is not connected')
    }
    return this.#slot
  }

  get _socket () { return this.#options.socket }

  /** Notes a lease or a stream to release before the connection ends: else its claim lasts as long as the process. */
  _writing (one) {
    for (const other of this.#writers) {
      const { released, closed = released } = other.deref() ?? { closed: true }
      if (closed) this.#writers.delete(other)
    }
    this.#writers.add(new WeakRef(one))
  }

  _begun () {
    if (this.#under++ === 0 && this.#slot >= 0) native.reference(this.#slot, true)
  }

  _ended () {
    if (--this.#under === 0 && this.#slot >= 0) native.reference(this.#slot, false)
  }

  // ---- the connection ----

  async _connect () {
    const { socket, name, connectTimeout, cacheBytes, reconnect, cacheLeases } = this.#options
    const id = nextId()
    const outcome = await new Promise((resolve, reject) => {
      let late = false // close() did not wait for the connection
      this.#giveUp = () => {
        late = true
        resolve(new Failure(-3, 'the client is closed'))
      }
      pending.set(id, {
        done: (status, slot, _, extra) => {
          pending.delete(id)
          if (status >= 0 && late) native.close(slot)
          resolve(status < 0 ? new Failure(status, extra) : { slot, instance: extra })
        }
      })
      try {
        native.connect(id, socket, name, connectTimeout, cacheBytes, reconnect ? connectTimeout : 0, cacheLeases)
      } catch (error) {
        pending.delete(id)
        reject(translate(error))
      }
    })
    this.#giveUp = undefined
    if (outcome instanceof Failure) throw outcome.toError()
    const { slot, instance } = outcome
    if (this.#closed) {
      native.close(slot)
      throw closedError('the client is closed')
    }
    this.#slot = slot
    this.#lost = undefined
    if (this.#under > 0) native.reference(slot, true)
    // A completion with this id says from now on that the connection is lost, or was resumed.
    pending.set(id, {
      done: (status, _, __, extra) => status < 0 ? this.#lose(id, fromStatus(status, extra)) : this.#anew(extra)
    })
    this.#lostId = id
    this.#anew(instance)
  }

  #anew (instance) {
    const event = this.instance === '' ? 'connect' : 'reconnect'
    this.instance = instance
    this.#tell(event)
  }

  /** Emits an event on the next tick: a listener's exception must not stop the other completions of this turn. */
  #tell (event, error) {
    if (CHANNELS[event].hasSubscribers) CHANNELS[event].publish({ client: this, error })
    process.nextTick(() => error ? this.emit(event, error) : this.emit(event))
  }

  #lostId

  #lose (id, why) {
    pending.delete(id)
    if (this.#slot < 0) return
    const slot = this.#slot
    this.#lost = why
    this.#slot = -1
    native.close(slot)
    this.#tell('disconnect', why)
    for (const watch of [...this.#watches]) watch._lost(why)
  }

  get connected () { return this.#slot >= 0 }
  get closed () { return this.#closed }

  /** Connects, unless the client is connected. */
  async connect (options) {
    const { signal } = optionsOf(options, REQUEST)
    await orAborted(this._ready(), signal)
  }

  async _ready () {
    if (this.#slot >= 0) return
    if (this.#closed || (this.instance !== '' && !this.#options.reconnect)) return void this._slot
    this.#connecting ??= this.#establish()
    await this.#connecting
  }

  async #establish () {
    const first = this.instance === ''
    const end = Date.now() + this.#options.connectTimeout
    try {
      for (let times = 1; ; times++) {
        try {
          return await this._connect()
        } catch (error) {
          const wait = this.#closed ? undefined : this.#pause(times, error, first, end)
          if (wait === undefined) throw error
          await this.#sleep(wait)
          if (this.#closed) return void this._slot
        }
      }
    } finally {
      this.#connecting = undefined
    }
  }

  /** Milliseconds until the next attempt to connect; undefined: there is none. */
  #pause (times, error, first, end) {
    const { retryStrategy } = this.#options
    if (retryStrategy) {
      const wait = error.kind === undefined ? undefined : retryStrategy(times, error)
      return typeof wait === 'number' && wait >= 0 ? Math.min(wait, TIMER_MAX) : undefined
    }
    const wait = RETRY_MS[Math.min(times, RETRY_MS.length) - 1]
    // A daemon that is ending may accept a connection, and close it before the greeting.
    const passing = error.kind === 'connect' || error.kind === 'closed'
    return !first && passing && Date.now() + wait <= end ? wait : undefined
  }

  #sleep (ms) {
    return new Promise(resolve => {
      const timer = setTimeout(resolve, ms)
      this.#wake = () => {
        clearTimeout(timer)
        resolve()
      }
    })
  }

  /** Makes a request: at once if connected, else after connecting. */
  async _request (begin, options) {
    if (this.#slot < 0) await orAborted(this._ready(), options.signal)
    return await submit(this, begin, options)
  }

  /** As _request; repeats the request if the connection is lost on the way. For requests that change nothing. */
  async _ask (begin, options) {
    if (this.#slot < 0) return await this._request(begin, options)
    try {
      return await submit(this, begin, options)
    } catch (error) {
      if (error?.kind !== 'closed' || this.#closed || !this.#options.reconnect) throw error
      return await this._request(begin, options)
    }
  }

  /** Ends the connection. Requests under way are rejected; objects can still be released. */
  close () {
    if (this.#closed) return
    this.#closed = true
    this.#wake?.()
    this.#giveUp?.()
    for (const one of this.#writers) one.deref()?.release()
    const slot = this.#slot
    this.#slot = -1
    pending.delete(this.#lostId)
    if (slot >= 0) native.close(slot)
    this.#tell('close')
    for (const provider of this.#providers) provider.close()
    for (const watch of [...this.#watches]) watch._lost(undefined)
  }

  [Symbol.dispose ?? Symbol.for('nodejs.dispose')] () { this.close() }
  async [Symbol.asyncDispose ?? Symbol.for('nodejs.asyncDispose')] () { this.close() }

  [Symbol.for('nodejs.util.inspect.custom')] () {
    const state = this.#closed ? 'closed' : this.#slot >= 0 ? 'connected' : 'not connected'
    return `Client of ${this.#options.socket ?? 'the default socket'} (${state})`
  }

  // ---- reading ----

  /**
   * Opens an object by its name: its current version, its `version`, or the newest with a `label`. Or by the result of
   * share(), if that version can still be opened. `timeout`: milliseconds to wait until the object exists.
   */
  async open (what, options) {
    const cached = options === undefined && this.#openCached(what)
    if (cached) {
      if (++this.#cachedOpens % YIELD === 0) await new Promise(resolve => setImmediate(resolve))
      return cached
    }
    const shared = typeof what === 'object' && what !== null ? what : undefined
    const name = text(shared ? shared.name : what, 'the name')
    const { timeout, version = shared?.version, label, signal, write = false, copy = !write && this.#options.copy } =
      optionsOf(options, ['timeout', 'version', 'label', 'signal', 'copy', 'write'])
    if (typeof write !== 'boolean') throw new TypeError(`write is ${String(write)}, not true or false`)
    if (label !== undefined) text(label, 'label')
    const waits = wait(timeout)
    const wanted = number(version, 'version')
    if (shared) await orAborted(this._ready(), signal)
    if (shared && (shared.instance ?? this.instance) !== this.instance) {
      throw new classes.StaleError(`"${name}" was shared by another instance of the daemon`, 'stale', -32007)
    }
    return await this[write ? '_request' : '_ask'](id => native.open(this._slot, id, name, wanted, waits, label, write), {
      signal,
      method: 'open',
      name,
      settle: (slot, kind) => makeObject(this, name, slot, kind, copy, write)
    })
  }

  /**
   * Opens a live object as its only writer: `generation` of the result is one higher than that of the claim before.
   * `timeout`: milliseconds to wait until all who write it are over: they have released it, or have ended.
   */
  async claim (name, options) {
    const { timeout, signal } = optionsOf(options, ['timeout', 'signal'])
    const waits = wait(timeout)
    return await this._request(id => native.open(this._slot, id, text(name, 'the name'), 0, waits, undefined, true, true), {
      signal, method: 'open', name, settle: (slot, kind) => makeObject(this, name, slot, kind, false, true)
    })
  }

  /**
   * Opens a name, and shows one version of it after another at the same addresses: a View. Its versions have one
   * layout, and each a segment of its own: `own` of put(); bundles of 16 MiB and more have that.
   */
  async follow (name, options) { return await follow(this, name, options, this.#options.copy) }

  /**
   * Takes part in a stream as a reader: an async iterator over its frames, in place. The newest frame, or with `each`
   * every one: the newest `lag` (2) are kept for this reader. `waits`: ask the writer to wait before this reader misses
   * one. `hold`: how many frames it may hold at a time. `timeout`: milliseconds to wait until the stream exists.
   */
  read (name, options) { return openStream(this, name, options) }

  /**
   * Creates the stream `name`, or takes it over, and becomes its writer. `dtype`, `shape`: of a frame; `slots`: from 2
   * to 64; readers hold some of them. `timeout`: milliseconds to wait for a former writer to be over. The stream stays when its
   * writer ends. BusyError, TimeoutError: somebody else writes; ExistsError: the name has something else.
   */
  async stream (name, options) { return await createStream(this, name, options) }

  /** The object that a cached lease holds, if the name still means it: without a request, so observers are not told. */
  #openCached (name) {
    const { cacheLeases, copy } = this.#options
    if (cacheLeases === 0 || this.#slot < 0 || typeof name !== 'string') return undefined
    const found = native.openCached(this.#slot, name)
    if (found < 0) return undefined
    const known = copy || !external ? undefined : this._knownObjects.find(name, records[0]) // copies may be written
    return makeObject(this, name, Math.floor(found / 8), found % 8, copy, false, known)
  }

  /**
   * Opens many objects in one request. Resolves with an array of them, in the order of the names. If one cannot
   * be opened, none is, and the promise is rejected with the first error. With `partial` the array has the error in
   * its place, and the others are open.
   */
  async openMany (names, options) {
    if (!Array.isArray(names)) throw new TypeError(`the names are of type ${typeof names}, not an array`)
    const list = Array.from(names, (name, i) => text(name, `name ${i}`)) // holes, too, are refused
    const { timeout, signal, partial = false, copy = this.#options.copy } =
      optionsOf(options, ['timeout', 'signal', 'partial', 'copy'])
    const waits = wait(timeout)
    if (list.length === 0) return []
    const outcomes = await this._ask(id => native.openMany(this._slot, id, list, waits),
      { signal, settle: (_, __, outcomes) => outcomes, method: 'openMany', name: list })
    const objects = outcomes.map((outcome, i) => outcome < 0
      ? fromStatus(outcome, `"${list[i]}" cannot be opened: ${native.kinds[outcome]?.replaceAll('_', ' ')}`)
      : makeObject(this, list[i], Math.floor(outcome / 8), outcome % 8, copy))
    const failed = objects.find(object => object instanceof Error)
    if (!failed || partial) return objects
    for (const object of objects) if (!(object instanceof Error)) object.release()
    throw failed
  }

  /** Calls any method of the protocol that carries no descriptors; resolves with its result. */
  async call (method, params = {}, options) {
    text(method, 'the method')
    return await this.#call('_request', method, params, options)
  }

  async #call (way, method, params, options) {
    const { signal } = optionsOf(options, REQUEST)
    const message = JSON.stringify(params)
    return await this[way](id => native.call(this._slot, id, method, message), {
      signal, method, name: params.name ?? params.names, settle: (_, __, result) => JSON.parse(result)
    })
  }

  async stat (name, options) {
    const { signal, ...which } = optionsOf(options, WHICH)
    return (await this.#call('_ask', 'stat', { name: text(name, 'the name'), ...versionOf(which) }, { signal })).object
  }

  /** Whether there is an object of that name which the program may open; it need not be sealed. */
  async has (name, options) {
    try {
      await this.stat(name, options)
      return true
    } catch (error) {
      if (error?.kind === 'not_found') return false
      throw error
    }
  }

  /** Resolves when the daemon has answered: for health checks, with a signal. */
  async ping (options) {
    await this.#call('_ask', 'list', { limit: 1 }, options)
  }

  /**
   * All objects whose names begin with `names`, or match it: `*` stands for any text, `?` for one character. With
   * `versions` each name's older versions follow.
   */
  async list (names = '', options) {
    text(names, 'the prefix')
    const { versions, signal } = optionsOf(options, ['versions', 'signal'])
    const pattern = isPattern(names)
    const prefix = pattern ? names.slice(0, names.search(/[*?]/)) : names
    const matches = pattern ? matcher(names) : () => true
    const all = []
    let cursor
    do {
      const page = await this.#call('_ask', 'list', { prefix, cursor, versions }, { signal })
      all.push(...page.objects.filter(object => matches(object.name)))
      cursor = page.cursor
    } while (cursor !== undefined)
    return all
  }

  async leases (name, options) {
    if (name !== undefined) text(name, 'the name')
    return await this.#call('_ask', 'leases', { name }, options)
  }

  async stats (options) {
    return await this.#call('_ask', 'stats', {}, options)
  }

  // ---- names ----

  /**
   * Deletes one name, or an array of names, which are no patterns. A name that no object has may be a pattern, as of
   * list(). Of one name alone, a `version` or the newest with a `label`; with the current version the name goes, too.
   */
  async delete (names, options) {
    if (Array.isArray(names)) {
      const list = Array.from(names, (name, i) => text(name, `name ${i}`))
      for (let i = 0; i < list.length; i += NAMES) {
        await this.#call('_request', 'delete', { names: list.slice(i, i + NAMES) }, options)
      }
    } else {
      const { signal, ...which } = optionsOf(options, WHICH)
      try {
        await this.#call('_request', 'delete', { name: text(names, 'the name'), ...versionOf(which) }, { signal })
      } catch (error) {
        if (error?.kind !== 'not_found' || !isPattern(names) || which.version !== undefined || which.label !== undefined) throw error
        await this.#deleteMatching(names, signal)
      }
    }
  }

  async #deleteMatching (pattern, signal) {
    const found = await this.list(pattern, { signal })
    if (found.length === 0) throw new classes.NotFoundError(`no object matches "${pattern}"`, 'not_found', -32001)
    await this.delete(found.map(object => object.name), { signal })
  }

  async pin (name, options) {
    await this.#call('_request', 'set', { name: text(name, 'the name'), pinned: true }, options)
  }

  async unpin (name, options) {
    await this.#call('_request', 'set', { name: text(name, 'the name'), pinned: false }, options)
  }

  /** The daemon deletes the object in `ttl` milliseconds, whatever was set before; 0: never. */
  async expire (name, ttl, options) {
    const { signal, ...which } = optionsOf(options, WHICH)
    const params = { name: text(name, 'the name'), ttl_ms: number(ttl, 'ttl', undefined), ...versionOf(which) }
    if (ttl === undefined) throw new TypeError('ttl is missing: a number of milliseconds')
    await this.#call('_request', 'set', params, { signal })
  }

  /** Moves an object off its device now; `tier`: "host" or "disk", by default the first there is. */
  async spill (name, options) {
    const { tier, signal, ...which } = optionsOf(options, ['tier', ...WHICH])
    if (tier !== undefined) text(tier, 'the tier')
    await this.#call('_ask', 'move', { name: text(name, 'the name'), tier, ...versionOf(which) }, { signal })
  }

  /** Brings an object back to its device; `timeout`: milliseconds to wait for room there. */
  async restore (name, options) {
    const { timeout, signal, ...which } = optionsOf(options, ['timeout', ...WHICH])
    const params = { name: text(name, 'the name'), tier: 'device', wait_ms: wait(timeout), ...versionOf(which) }
    await this.#call('_ask', 'move', params, { signal })
  }

  /**
   * Gives an object, or a part of it, another name; resolves with the version. `slice`: { offset, length }.
   */
  async alias (name, of, options) {
    const { mode, signal, ...rest } = optionsOf(options,
      ['slice', 'columns', 'replace', 'mode', 'label', 'keep', 'signal'])
    const params = { name: text(name, 'the name'), of: text(of, 'the source'), ...rest }
    if (mode !== undefined) params.mode = modeOf(mode).toString(8).padStart(4, '0')
    return (await this.#call('_request', 'alias', params, { signal })).version
  }

  // ---- writing ----

  /**
   * Allocates an object, to be filled and then sealed: { kind: 'bytes', bytes }, { kind: 'array', dtype,
   * shape }, { kind: 'column', dtype, length, … }, { kind: 'table', length, columns: [{ name, … }] } or
   * { kind: 'bundle', bytes, manifestBytes }, a safetensors file.
   */
  async create (name, layout, options) {
    text(name, 'the name')
    if (typeof layout !== 'object' || layout === null || !(layout.kind in KINDS)) {
      throw new TypeError(`the layout's kind is ${String(layout?.kind)}, not "bytes", "array", "column", "table" or "bundle"`)
    }
    const { kind, bytes, manifestBytes, dtype, mask } = layout
    const spec = { kind: KINDS[kind], bytes, manifestBytes, dtype, mask, column: { metadata: pairs(layout.metadata) } }
    if (layout.kind === 'array') {
      if (!Array.isArray(layout.shape)) throw new TypeError('the shape is not an array')
      spec.shape = layout.shape
    } else if (layout.kind === 'column') {
      spec.column = columnSpec(layout)
    } else if (layout.kind === 'table') {
      if (!Array.isArray(layout.columns)) throw new TypeError('the columns are not an array')
      spec.column = {
        length: layout.length,
        metadata: pairs(layout.metadata),
        children: layout.columns.map(column => columnSpec({ length: layout.length, ...column }))
      }
    }
    return await this.#create(name, spec, optionsOf(options, CREATE))
  }

  async #create (name, spec, options) {
    const settings = createOptions(options)
    return await this._request(id => native.create(this._slot, id, name, spec, settings), {
      signal: options.signal,
      method: 'create',
      name,
      settle: (slot, kind) => makeObject(this, name, slot, kind, false, settings.live)
    })
  }

  /**
   * Publishes a copy of a value under a name, and resolves with the version. The value is a typed array (with
   * `shape` of several axes, with `as: 'column'` as a column); bytes as a Buffer, an ArrayBuffer or
   * with `as: 'bytes'`; an Arrow vector or table, or the content of an Arrow IPC file or stream; an array of strings,
   * numbers, bigints, booleans or dates, and nulls; or an object of columns, each of these. `stream`: a CUDA stream to
   * copy on. With `wait: false` it resolves when the copies are queued, and readers wait for them on the GPU. With
   * `replace` the put is repeated if the connection breaks on the way.
   */
  async put (name, value, options) {
    text(name, 'the name')
    const given = optionsOf(options, PUT)
    checkSignal(given.signal)
    const stream = streamOf(given.stream)
    const queued = { stream: given.stream }
    if (given.wait !== undefined && typeof given.wait !== 'boolean') throw new TypeError(`wait is ${String(given.wait)}, not true or false`)
    if (typeof value?.[Symbol.asyncIterator] === 'function') value = await gather(value)
    const { layout, writes, children } = content(value, given)
    noteSizes(writes, children) // now, before the program can change the value
    if (this.#puts < PUTS) this.#puts++
    else await this.#turn(given.signal)
    const publish = async () => {
      let object
      try {
        object = await this.#create(name, layout, given)
        await this.#fill(object, writes, children, given.signal, stream)
        given.signal?.throwIfAborted()
        const version = await object.seal({ stream: given.stream, signal: given.signal })
        if (stream !== undefined && given.wait !== false) await object.ready({ signal: given.signal })
        queued.stream = undefined // the seal has told the daemon of the queued work
        return version
      } finally {
        object?.release(queued)
      }
    }
    try {
      const { reconnect, connectTimeout } = this.#options
      if (given.replace && reconnect) return await again(this, connectTimeout, publish)
      return await publish()
    } finally {
      if (!this.#waiting.next()) this.#puts--
    }
  }

  /**
   * Publishes a Map, or an object, of values by name, and resolves with their versions in that order. If
   * one cannot be published, the others are all the same, and the promise is rejected with the first error. With
   * `partial` the array has the error in its place.
   */
  async putMany (values, options) {
    if (typeof values !== 'object' || values === null || Array.isArray(values)) {
      throw new TypeError('the values are neither a Map nor an object')
    }
    const { partial = false, ...rest } = optionsOf(options, [...PUT, 'partial'])
    const entries = values instanceof Map ? [...values] : Object.entries(values)
    const settled = await Promise.allSettled(entries.map(([name, value]) => this.put(name, value, rest)))
    const failed = settled.find(one => one.status === 'rejected')
    if (failed && !partial) throw failed.reason
    return settled.map(one => one.status === 'rejected' ? one.reason : one.value)
  }

  #puts = 0 // under way
  #waiting = new Waiting()

  /** Waits until one of the puts under way ends, and takes its place. */
  #turn (signal) {
    signal?.throwIfAborted()
    return new Promise((resolve, reject) => {
      const stop = () => {
        this.#waiting.leave(begin)
        reject(signal.reason)
      }
      const begin = () => {
        signal?.removeEventListener('abort', stop)
        resolve()
      }
      signal?.addEventListener('abort', stop, { once: true })
      this.#waiting.add(begin)
    })
  }

  /** Copies all pieces of all columns into an unsealed object. */
  async #fill (object, writes, children, signal, stream) {
    const parts = []
    const collect = (target, writes, children) => {
      checkCovered(target, writes)
      for (const [which, at, view, bytes] of writes) parts.push([target._index, which, at, view, bytes])
      children.forEach((child, i) => {
        collect(target.kind === 'table' ? target.columnAt(i) : target.child(i), child.writes, child.children)
      })
    }
    collect(object, writes, children)
    await fill(this, object.device, parts, signal, stream)
  }

  /**
   * Makes absent names that begin with `prefix` when clients wait for them. `load(name, { uid, gid, signal })`
   * returns, or resolves with, a value for put(), which is published with the `options` of put(); undefined: `load` has
   * published the name itself. It is called once for a name, however many clients wait; `signal` is aborted when none
   * waits any more, or when it was given up after `loadTimeout` milliseconds (300 000). An exception rejects the waiting requests: a NotFoundError, or a system error ENOENT, with
   * NotFoundError, any other with UnavailableError. Resolves with a Provider, which close() ends; the `signal` of the
   * options ends the wait for it alone.
   */
  async provide (prefix, load, options) {
    text(prefix, 'the prefix')
    if (typeof load !== 'function') throw new TypeError('load is not a function')
    const { concurrency = CONCURRENCY, loadTimeout = LOAD_TIMEOUT, signal, ...rest } =
      optionsOf(options, [...PUT, 'concurrency', 'loadTimeout'])
    if (number(concurrency, 'concurrency') < 1) throw new RangeError(`concurrency is ${concurrency}, not 1 or more`)
    if (!(number(loadTimeout, 'loadTimeout') > 0 && loadTimeout < 2 ** 31)) {
      throw new RangeError(`loadTimeout is ${loadTimeout}, not some milliseconds`)
    }
    createOptions(rest)
    checkSignal(signal)
    signal?.throwIfAborted()
    const own = new Client(KEY, this.#options)
    const provider = new Provider(own, prefix, load, { concurrency, loadTimeout, all: own.#watches, options: rest })
    try {
      if (this.#closed) return this._slot
      await orAborted(provider._begin(), signal)
    } catch (error) {
      await provider.close()
      throw error
    }
    for (const one of this.#providers) if (one.closed) this.#providers.delete(one)
    this.#providers.add(provider)
    return provider
  }

  /**
   * Publishes a changed copy of a name's content as its next version: write(object) fills the copy, which lies where the
   * content lies. Resolves with the version. If it throws, or its promise is rejected, nothing is left of it.
   */
  async edit (name, write, options) { return await edit(this, name, write, options) }

  // ---- events ----

  /**
   * An async iterator of { kind, object?, lost? }: first "sealed" for each existing object, then "synced", then events
   * as they happen. Its queue has at most `limit` events. When it is full the oldest are dropped, and `lost` of the
   * next event says how many.
   */
  watch (prefix = '', options) {
    text(prefix, 'the prefix')
    const { signal, limit } = optionsOf(options, ['signal', 'limit'])
    checkSignal(signal)
    return new Watch(this, prefix, {
      signal,
      limit: Math.max(number(limit, 'limit', WATCH_LIMIT), 1),
      all: this.#watches,
      reconnect: this.#options.reconnect
    })
  }

  /**
   * An async iterator of a name's versions, as objects of list(): the current one, then each newly sealed one.
   * Each comes once, and never an older one after a newer one. `signal` ends it.
   */
  async * versions (name, options) {
    text(name, 'the name')
    let last = 0
    for await (const { kind, object } of this.watch(name, options)) {
      if (kind !== 'sealed' || object.name !== name || object.version <= last) continue
      last = object.version
      yield object
    }
  }
}

/** Functions to call, first come, first served. */
class Waiting {
  #begins = new Set()

  add (begin) { this.#begins.add(begin) }
  leave (begin) { this.#begins.delete(begin) }

  /** Calls the first; false if there is none. */
  next () {
    for (const begin of this.#begins) {
      this.#begins.delete(begin)
      begin()
      return true
    }
    return false
  }
}

async function connect (options) {
  const given = typeof options === 'string'
    ? { socket: options }
    : optionsOf(options, ['socket', 'name', 'timeout', 'cacheBytes', 'reconnect', 'copy',
      'cacheLeases', 'lazyConnect', 'retryStrategy', 'signal'])
  const { socket, name, reconnect = true, copy = false, cacheLeases = true, lazyConnect = false, retryStrategy, signal } = given
  if (retryStrategy !== undefined && typeof retryStrategy !== 'function') {
    throw new TypeError('retryStrategy is not a function')
  }
  const path = socket === undefined ? undefined : text(socket, 'socket').replace(/^unix:(\/\/)?/, '')
  if (name !== undefined) text(name, 'name')
  checkSignal(signal)
  signal?.throwIfAborted()
  const client = new Client(KEY, {
    socket: path,
    name: name ?? 'node',
    reconnect: Boolean(reconnect),
    retryStrategy,
    copy: Boolean(copy),
    connectTimeout: Math.min(number(given.timeout, 'timeout', 5000), TIMER_MAX),
    cacheBytes: number(given.cacheBytes, 'cacheBytes'),
    cacheLeases: Math.min(typeof cacheLeases === 'boolean' ? cacheLeases * CACHED : number(cacheLeases, 'cacheLeases'), TIMER_MAX)
  })
  if (lazyConnect) return client
  try {
    await orAborted(client._ready(), signal)
  } catch (error) {
    client.close()
    throw error
  }
  return client
}

module.exports = { Client, connect }
