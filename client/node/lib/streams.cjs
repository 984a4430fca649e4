'use strict'
// Streams: frames under one name, from one writer to many readers, in place.

const native = require('./native.cjs')
const { translate, fromKind } = require('./errors.cjs')
const { parseDtype } = require('./dtypes.cjs')
const { number, text, milliseconds } = require('./arguments.cjs')
const { submit, orAborted, checkSignal, optionsOf } = require('./requests.cjs')
const { streamOf } = require('./objects.cjs')

const YIELD = 500 // frames without a turn of the event loop, at most

/** Frames that a program forgot: they are given back, since the reader would get no others. */
const forgotten = new FinalizationRegistry(claim => {
  try {
    claim.pass()
  } catch {} // the stream is stale
})

/** The claim of a frame's slot, without the frame, so that this can be collected. */
class Claim {
  constructor (stream, slot, number) {
    this.stream = stream
    this.slot = slot
    this.number = number
    this.ended = false
  }

  /** Publishes the frame, or gives it back; on a GPU after the work. */
  pass (byteLength = 0, work) {
    if (this.ended || this.stream._closed) return
    this.stream._call(native.streamPass, this.slot, byteLength, this.number, work)
    this.ended = true
  }

  /** Lets work begin when the frame is complete. */
  order (work) {
    this.stream._call(native.streamOrder, this.slot, 0, this.number, work)
  }
}

/** One frame, in its slot. `array` is over the memory that the processes share. */
class Frame {
  #claim
  #array

  constructor (claim, byteLength, number, timeNs, missed) {
    this.#claim = claim
    this.byteLength = byteLength
    this.number = number
    this.timeNs = timeNs
    this.missed = missed
  }

  get _claim () {
    const { ended, stream } = this.#claim
    if (ended || stream._closed) {
      throw fromKind('stale', `the frame of "${stream.name}" was given back`)
    }
    return this.#claim
  }

  /** Of the dtype's typed array, with all elements of the slot in C order. On the host. */
  get array () {
    const { stream, slot } = this._claim
    return (this.#array ??= stream._keep(stream._array(slot), this))
  }

  /** { ptr, byteLength, device, uuid } of the slot, on a GPU; undefined on the host. */
  get deviceData () {
    const { stream, slot } = this._claim
    return stream._device(slot)
  }
}

class WritableFrame extends Frame {
  /**
   * Shows the frame to readers, `byteLength` bytes of it. Takes effect at once on the host; on a GPU after the work on
   * `stream`.
   */
  async publish (options) {
    const { byteLength = this.byteLength, stream } = optionsOf(options, ['byteLength', 'stream'])
    if (!Number.isSafeInteger(byteLength) || byteLength < 0 || byteLength > this.byteLength) {
      throw new RangeError(`byteLength is ${byteLength}, not from 0 to ${this.byteLength}`)
    }
    this._claim.pass(byteLength, streamOf(stream))
  }
}

class ReadableFrame extends Frame {
  /** Work that is queued on `stream` from now on begins when the frame is complete; for frames that were read ahead. */
  async wait (options) {
    const { stream } = optionsOf(options, ['stream'])
    this._claim.order(streamOf(stream))
  }

  /** Gives the frame back, on a GPU after the work on `stream`. More than one call is fine. */
  async done (options) {
    const { stream } = optionsOf(options, ['stream'])
    this._give(streamOf(stream))
  }

  _give (work) {
    let claim
    try {
      claim = this._claim
    } catch {
      return // it is back already
    }
    forgotten.unregister(claim)
    claim.pass(0, work)
  }

  [Symbol.dispose ?? Symbol.for('nodejs.dispose')] () { this._give() }
  async [Symbol.asyncDispose ?? Symbol.for('nodejs.asyncDispose')] () { this._give() }
}

class Stream {
  #client
  #name
  #object
  #stream
  #closed = false
  #before = Promise.resolve() // the calls until now
  #under = 0 // of them that have not returned
  #frames = 0
  #frameElements
  #pointer

  constructor (client, name) {
    this.#client = client
    this.#name = name
  }

  get name () { return this.#name }
  get dtype () { return this.#object?.dtype }
  /** Of a frame. */
  get shape () { return this.#object?.shape.slice(1) }
  get slots () { return this.#object?.shape[0] }
  get device () { return this.#object?.device }
  get closed () { return this.#closed }
  get _joined () { return this.#stream !== undefined }
  get _closed () { return this.#closed }

  /** Joins, with the array of all slots, which is this stream's from now on. */
  async _join (object, writes, { each = false, waits = false, lag = 0, hold = 0, ahead = false }, signal) {
    let stream
    try {
      stream = await submit(this.#client, id => native.stream(id, object._index, writes, each, waits, lag, hold, ahead),
        { method: 'join', name: this.#name })
      signal?.throwIfAborted()
      if (this.#closed) throw this.#over()
    } catch (error) {
      if (stream) native.streamClose(stream)
      object.release()
      throw error
    }
    this.#object = object
    this.#stream = stream
    if (writes) this.#client._writing(this)
    if (object.device === 'host') this.#frameElements = object.values.length / object.shape[0]
    else this.#pointer = object.deviceData
  }

  #over () {
    return fromKind('closed', `the stream "${this.#name}" was closed`)
  }

  /** Runs calls that may wait one after the other: the library takes one at a time. */
  _after (work) {
    this.#under++
    const done = this.#before.then(work)
    this.#before = done.then(() => {}, () => {}).then(() => { this.#under-- })
    return done
  }

  _array (slot) {
    const { array: Type } = parseDtype(this.#object.dtype)
    const count = this.#frameElements
    return this.#object._typed(0, Type, slot * count, count)
  }

  _keep (array, frame) {
    return this.#object._keep(array, frame)
  }

  _device (slot) {
    if (!this.#pointer) return undefined
    const byteLength = this.#pointer.byteLength / this.#object.shape[0]
    return { ...this.#pointer, ptr: this.#pointer.ptr + BigInt(slot * byteLength), byteLength }
  }

  _call (call, slot, byteLength, number, work) {
    try {
      call(this.#stream, slot, byteLength, number, work)
    } catch (error) {
      throw translate(error)
    }
  }

  /** A frame's [slot, bytes, number, time, missed]. Waits for at most `timeout`, undefined: for ever. */
  async _frame (waits, timeout, signal) {
    checkSignal(signal)
    signal?.throwIfAborted()
    const end = timeout && performance.now() + timeout
    const stop = () => { if (!this.#closed) native.streamStop(this.#stream) }
    const heed = () => {
      signal?.throwIfAborted()
      if (this.#closed) throw this.#over()
    }
    const taking = this._after(async () => {
      heed()
      if (++this.#frames % YIELD === 0) await new Promise(resolve => setImmediate(resolve))
      let left
      for (;;) {
        heed()
        let found
        try {
          found = native.streamNow(this.#stream, waits && left !== 0)
        } catch (error) {
          throw translate(error)
        }
        if (found) return found
        left = end === undefined ? undefined : Math.max(Math.ceil(end - performance.now()), 0)
        signal?.addEventListener('abort', stop, { once: true })
        try {
          await submit(this.#client, id => native.streamWait(this.#stream, id, left), { method: 'wait', name: this.#name })
        } finally {
          signal?.removeEventListener('abort', stop)
        }
      }
    })
    if (!signal) return await taking
    try {
      return await orAborted(taking, signal)
    } catch (error) {
      this._unwanted(taking)
      throw error
    }
  }

  /** A frame that came after its call was aborted. */
  _unwanted () {}

  /** Ends it, and resolves when it is ended: at once, or when a call that waits has returned. */
  async close () {
    if (this.#closed) return
    this.#closed = true
    if (!this.#stream) return
    native.streamStop(this.#stream)
    if (this.#under > 0) await this.#before
    native.streamClose(this.#stream)
    this.#object.release()
  }

  /** As close(), for the client's. */
  release () { this.close() }

  [Symbol.dispose ?? Symbol.for('nodejs.dispose')] () { this.close() }
  async [Symbol.asyncDispose ?? Symbol.for('nodejs.asyncDispose')] () { await this.close() }

  [Symbol.for('nodejs.util.inspect.custom')] () {
    return `${this.constructor.name} of "${this.#name}"${this.#closed ? ' (closed)' : ''}`
  }
}

/** The writer of a stream; made by client.stream(). */
class StreamWriter extends Stream {
  /**
   * A slot to write, which publish() shows to readers; asked again before that it is the same one. `timeout`:
   * milliseconds to wait for readers that want to be waited for, Infinity: for ever; then they miss frames.
   */
  async next (options) {
    const { timeout = 0, signal } = optionsOf(options, ['timeout', 'signal'])
    const ms = timeout === Infinity ? undefined : milliseconds(timeout)
    const [slot, ...told] = await this._frame(timeout !== 0, ms, signal)
    return new WritableFrame(new Claim(this, slot, told[1]), ...told)
  }
}

/**
 * A reader of a stream, and an async iterator of its frames; made by client.read(). The iteration gives each frame back
 * when it goes on. It ends when the stream's writer has ended, or by `signal`; its end closes the reader.
 */
class StreamReader extends Stream {
  #joined
  #signal
  #current
  #ended = false

  constructor (client, name, signal, join) {
    super(client, name)
    this.#signal = signal
    this.#joined = join(this)
    this.#joined.catch(() => {}) // the first read tells
  }

  /** Resolves with the reader when it takes part: it misses no frame from then on, if it reads each. */
  async ready () {
    await this.#joined
    return this
  }

  /**
   * The next frame. `timeout`: milliseconds to wait for one. TimeoutError: none came; UnavailableError: the writer has
   * ended; BusyError: all are held that may be.
   */
  async read (options) {
    const { timeout, signal = this.#signal } = optionsOf(options, ['timeout', 'signal'])
    const ms = timeout === undefined || timeout === Infinity ? undefined : milliseconds(timeout)
    if (!this._joined) await orAborted(this.#joined, signal)
    return this.#frame(await this._frame(false, ms, signal))
  }

  #frame ([slot, ...told]) {
    const claim = new Claim(this, slot, told[1])
    const frame = new ReadableFrame(claim, ...told)
    forgotten.register(frame, claim, claim)
    return frame
  }

  _unwanted (taking) {
    taking.then(found => this.#frame(found)._give(), () => {})
  }

  async next () {
    if (this.#ended) return { value: undefined, done: true }
    try {
      this.#current?._give()
      this.#current = undefined
      const value = await this.read()
      if (!this.#ended) {
        this.#current = value
        return { value, done: false }
      }
      value._give()
    } catch (error) {
      const over = this.#ended || error?.kind === 'unavailable'
      await this.return()
      if (!over) throw error
    }
    return { value: undefined, done: true }
  }

  async return () {
    this.#ended = true
    await this.close()
    return { value: undefined, done: true }
  }

  [Symbol.asyncIterator] () { return this }
}

/** See Client.read(). */
function openStream (client, name, options) {
  const { timeout, signal, ...how } = optionsOf(options, ['each', 'waits', 'lag', 'hold', 'ahead', 'timeout', 'signal'])
  text(name, 'the name')
  milliseconds(timeout)
  checkSignal(signal)
  for (const one of ['lag', 'hold']) how[one] = number(how[one], one)
  return new StreamReader(client, name, signal, async reader => {
    await reader._join(await client.open(name, { timeout, signal, copy: false }), false, how, signal)
  })
}

/** See Client.stream(). */
async function createStream (client, name, options) {
  const { dtype, shape = [], slots = 8, device, mode, timeout, signal } =
    optionsOf(options, ['dtype', 'shape', 'slots', 'device', 'mode', 'timeout', 'signal'])
  if (!Array.isArray(shape)) throw new TypeError('the shape is not an array')
  const layout = { kind: 'array', dtype: text(dtype, 'dtype'), shape: [slots, ...shape] }
  try {
    (await client.create(name, layout, { device, mode, live: true, timeout, signal })).release()
  } catch (error) {
    if (error?.kind !== 'exists') throw error
  }
  const array = await client.claim(name, { timeout, signal })
  if (array.kind !== 'array' || array.dtype !== dtype || array.shape.slice(1).join() !== shape.join()) {
    array.release()
    throw fromKind('exists', `"${name}" has frames of another dtype or shape: delete it first`)
  }
  const writer = new StreamWriter(client, name)
  await writer._join(array, true, {}, signal)
  return writer
}

module.exports = { StreamWriter, StreamReader, createStream, openStream }
