'use strict'
// Opened objects: tables, columns, arrays, bytes. Each opened object is one lease; its columns
// and slices are views that end with it.

const native = require('./native.cjs')
const { translate, classes } = require('./errors.cjs')
const { parseDtype, bitBytes, DATA, MASK, OFFSETS } = require('./dtypes.cjs')
const arrowExport = require('./to-arrow.cjs')
const { constants } = require('node:buffer')
const { submit, external, checkSignal, optionsOf } = require('./requests.cjs')
const { ipcHandle } = require('./raw.cjs')

const KINDS = ['bytes', 'array', 'column', 'table', 'bundle']

const COPY_NOW = 1 << 20 // bytes that are copied at once rather than by another thread
const BUFFERS = { __proto__: null, data: DATA, mask: MASK, offsets: OFFSETS }
const BATCH_ROWS = 65_536
const PINNED_MIN = 1 << 18 // bytes whose copy from a GPU is worth pinned memory

/** Only this module makes objects. */
const KEY = Symbol('gpubufd')

// A finaliser is the net under programs that forget to release. It says so, since when it acts is
// anybody's guess, and until then the memory stays taken.
const forgotten = new FinalizationRegistry(lease => {
  if (lease.released) return
  lease.release()
  process.emitWarning(
    `the object "${lease.name}" was garbage collected without release()`,
    { type: 'GpubufWarning', code: 'GPUBUF_UNRELEASED' }
  )
})

const keepers = new WeakMap()
const pinned = new WeakSet() // ArrayBuffers that the GPU reads by itself, after a queued copy has "returned"

/** The lease that an opened object and all views of it share. Has no reference to any of them. */
class Lease {
  constructor (client, name, slot, copy) {
    this.client = client
    this.name = name
    this.slots = new Set([slot])
    this.root = slot
    this.copy = copy
    this.released = false
  }

  release (stream) {
    if (this.released) return
    this.released = true
    for (const slot of this.slots) native.release(slot, slot === this.root ? stream : undefined)
    this.slots.clear()
  }
}

function call (work) {
  try {
    return work()
  } catch (error) {
    throw translate(error)
  }
}

/** An ArrayBuffer; Node says only that it has none. */
function room (bytes) {
  try {
    return new ArrayBuffer(bytes)
  } catch {
    throw new RangeError(`there is no ArrayBuffer of ${bytes} bytes to be had: slice the object`)
  }
}

function typed (Type, buffer, at, count) {
  try {
    return new Type(buffer, at, count)
  } catch {
    throw new RangeError(`${count} elements are more than a ${Type.name} may have here: slice the object`)
  }
}

/** A buffer that was detached, or made shorter, has nothing in the place of what was to be copied. */
function checkSizes (parts) {
  if (parts.some(([, , , view, bytes]) => view.byteLength !== bytes)) {
    throw new TypeError('a buffer was detached or resized before it was copied')
  }
}

/** A CUDA stream's handle as a bigint; undefined: none. Zero is the legacy default stream. */
function streamOf (stream) {
  if (stream === undefined) return undefined
  const handle = typeof stream === 'object' ? stream?.ptr : stream
  if (typeof handle !== 'bigint' && !Number.isSafeInteger(handle)) {
    throw new TypeError('stream is not a CUDA stream: a bigint, a number, or an object that has one as `ptr`')
  }
  const number = BigInt(handle)
  if (number < 0n || number >> 64n) throw new RangeError(`stream is ${number}, which is no handle`)
  return number || 1n
}

/**
 * Copies [object, which, at, view, bytes] into objects on a device: `bytes`, as long as the view was. On a
 * stream: queues it; the driver has taken the views' content by then, unless they lie in pinned memory.
 */
async function fill (client, device, parts, signal, stream) {
  checkSignal(signal)
  checkSizes(parts)
  const bytes = parts.reduce((sum, part) => sum + part[4], 0)
  // Memory that shrinks under another thread's hands ends the process: it is copied here.
  if (device === 'host' && (bytes <= COPY_NOW || parts.some(part => part[3].buffer.resizable))) {
    call(() => native.write(0, parts, true))
    return
  }
  if (parts.some(part => pinned.has(part[3].buffer))) stream = undefined
  await submit(client, id => native.write(id, parts, false, stream), { signal, method: 'write' })
  checkSizes(parts)
}

function position (value, length, what, missing) {
  if (value === undefined) return missing
  if (typeof value === 'bigint') value = Number(value)
  if (!Number.isInteger(value)) throw new TypeError(`${what} is not a whole number`)
  const at = value < 0 ? length + value : value
  if (at < 0 || at > length) throw new RangeError(`${what} ${value} is not within ${length} elements`)
  return at
}

class SharedObject {
  #slot
  #lease
  #root // of a view, which must not outlive it
  #path // the way to it: a child of a child …
  #described

  constructor (key, slot, lease, root, path = []) {
    if (key !== KEY) throw new TypeError('objects come from a client: use open(), create() or put()')
    this.#slot = slot
    this.#lease = lease
    this.#root = root
    this.#path = path
  }

  get #info () {
    return (this.#described ??= call(() => native.describe(this._index)))
  }

  /** The addon's index; throws once it is released. */
  get _index () {
    if (this.#slot < 0 || this.#lease.released) {
      throw new classes.StaleError(`the object "${this.#lease.name}" has been released`, 'stale', -32007)
    }
    return this.#slot
  }

  get _lease () { return this.#lease }
  get _info () { return this.#info }

  /** An object for a view; `i`: which child it is, undefined of slices. */
  _view (slot, i) {
    this.#lease.slots.add(slot)
    const kind = call(() => native.describe(slot)).kind
    const path = i === undefined ? this.#path : [...this.#path, i]
    return new TYPES[kind](KEY, slot, this.#lease, this.#root ?? this, path)
  }

  get kind () { return KINDS[this.#info.kind] }
  get name () { return this.#lease.name }
  get version () { return this.#info.version }
  /** Its producer's label for this version; undefined: none. */
  get label () { return this.#info.label ?? undefined }
  /** "host", or the GPU's UUID. */
  get device () { return this.#info.device }
  get length () { return this.#info.length }
  get released () { return this.#slot < 0 || this.#lease.released }

  /** { name, version, instance }: for a worker, or another process, whose open() takes it; of a view the whole object. */
  share () {
    void this._index // not after release
    if (this.version === 0) throw new classes.UnsupportedError(`"${this.name}" is not sealed yet`, 'unsupported', -32010)
    return { name: this.name, version: this.version, instance: this.#lease.client.instance }
  }

  /** Elements [begin, end), which as for Array.prototype.slice may count from the end. */
  slice (begin, end) {
    const index = this._index
    const length = this.length
    const from = position(begin, length, 'begin', 0)
    const to = position(end, length, 'end', length)
    if (from > to) throw new RangeError(`begin ${from} lies behind end ${to}`)
    return this._view(call(() => native.slice(index, from, to - from)))
  }

  /**
   * Ends the lease, if this is what was opened; of a view, only the view. May be called again. `stream`: when
   * what is queued there is done.
   */
  release (options) {
    const { stream } = optionsOf(options, ['stream'])
    const after = streamOf(stream)
    if (this.#slot < 0) return
    if (this.#slot === this.#lease.root) {
      forgotten.unregister(this.#lease)
      this.#lease.release(after)
    } else if (!this.#lease.released) {
      this.#lease.slots.delete(this.#slot)
      native.release(this.#slot, after)
    }
    this.#slot = -1
  }

  [Symbol.dispose ?? Symbol.for('nodejs.dispose')] () { this.release() }
  async [Symbol.asyncDispose ?? Symbol.for('nodejs.asyncDispose')] () { this.release() }

  /**
   * Publishes what create() gave; resolves with the version. `label`, `keep`: in place of what create() said.
   * `stream`: work queued there still writes it, which readers wait for on the GPU; nobody waits here.
   */
  seal (options) {
    let request
    try {
      const { nullCounts, label, keep = -1, stream, signal } =
        optionsOf(options, ['nullCounts', 'label', 'keep', 'stream', 'signal'])
      const after = streamOf(stream)
      const counts = sealCounts(this, nullCounts)
      if (keep !== -1 && !(Number.isInteger(keep) && keep >= 0)) throw new RangeError(`keep is ${keep}, not 0 to 8`)
      const { client } = this.#lease
      request = submit(client, id => native.seal(client._slot, id, this._index, counts, label, keep, after),
        { signal, method: 'seal', name: this.name })
    } catch (error) {
      return Promise.reject(translate(error))
    }
    return request.then(version => {
      this.#described = undefined
      return version
    })
  }

  /** A typed array over `count` elements of a buffer; undefined if there is no such buffer. */
  _typed (which, Type, from, count) {
    const size = Type.BYTES_PER_ELEMENT
    if (count === 0) return this._pointer(which) && new Type(0)
    if (this.#lease.copy || !external) {
      if (this.version === 0) {
        throw new classes.UnsupportedError(
          'this runtime has no ArrayBuffers over shared memory: fill the object by write()', 'unsupported', -32010)
      }
      const buffer = call(() => native.copy(this._index, which, from * size, room(count * size)))
      return buffer && typed(Type, buffer, 0, count)
    }
    const found = call(() => native.memory(this._index, which, from * size, count * size))
    if (!found) return undefined
    const [buffer, at] = found
    if (at % size === 0) return this._keep(typed(Type, buffer, at, count))
    return new Type(buffer.slice(at, at + count * size)) // registered by somebody who did not align it
  }

  /** Keeps the lease as long as somebody has `what`, which shows the object's memory. */
  _keep (what) {
    keepers.set(what, this.#root ?? this)
    return what
  }

  /** As _typed, copied by another thread, once the content is there. */
  async _read (which, Type, from, count, signal) {
    if (!this._pointer(which)) return undefined
    const size = Type.BYTES_PER_ELEMENT
    const bytes = count * size
    const pins = external && this.#info.ordinal >= 0 && bytes >= PINNED_MIN && bytes <= constants.MAX_LENGTH
    const target = pins ? undefined : room(bytes)
    const buffer = await submit(this.#lease.client,
      id => native.read(this._index, id, which, from * size, bytes, target),
      { signal, method: 'read', name: this.name })
    if (pins) pinned.add(buffer)
    return typed(Type, buffer, 0, count)
  }

  /**
   * Copies a typed array into an object that is being written, on the host or a GPU: into `buffer`
   * ("data", "mask" or "offsets") from its byte `at` on.
   */
  async write (view, options) {
    const { buffer = 'data', at = 0, signal } = optionsOf(options, ['buffer', 'at', 'signal'])
    const which = BUFFERS[buffer]
    if (which === undefined) throw new TypeError(`buffer is ${String(buffer)}, not "data", "mask" or "offsets"`)
    if (!ArrayBuffer.isView(view)) throw new TypeError(`the first argument of write() is a ${typeof view}, not a typed array`)
    if (!Number.isSafeInteger(at) || at < 0) throw new RangeError(`at is ${at}, not a number of bytes`)
    await fill(this.#lease.client, this.device, [[this._index, which, at, view, view.byteLength]], signal)
  }

  /**
   * Resolves once the content is there. Only an object on a GPU may be opened before it is, where its
   * producer has sealed it with work still queued; toHost() waits by itself. With `stream` it resolves at
   * once, and what is queued on the stream from then on waits.
   */
  async ready (options) {
    const { stream, signal } = optionsOf(options, ['stream', 'signal'])
    const after = streamOf(stream)
    await submit(this.#lease.client, id => native.ready(this._index, id, after),
      { signal, method: 'ready', name: this.name })
  }

  _bytes (which) {
    const found = this._pointer(which)
    return found ? found[1] : 0
  }

  _pointer (which) {
    return call(() => native.pointer(this._index, which))
  }

  /** { ptr, byteLength, device, uuid } of a buffer of a GPU's. */
  _device (which) {
    if (this.#info.ordinal < 0) return undefined
    const found = this._pointer(which)
    return found && {
      ptr: found[0], byteLength: found[1], device: this.#info.ordinal, uuid: this.#info.device
    }
  }

  /**
   * { device, uuid, handle, byteOffset, byteLength }: where the data begins in the memory that
   * cuIpcOpenMemHandle gives for the 64 octets. Of what was created with share: "ipc". Keep the object
   * while the handle is in use.
   */
  async ipcHandle (options) {
    const { signal } = optionsOf(options, ['signal'])
    checkSignal(signal)
    signal?.throwIfAborted()
    const { name, version, device, ordinal, offset, length, dtype } = this.#info
    if (ordinal < 0) throw new classes.UnsupportedError(`"${name}" is not on a GPU`, 'unsupported', -32010)
    const path = this.#path
    const { uuid, handle, segment, ...place } = await ipcHandle(this.#lease.client._socket, name, version, layout => {
      const column = path.reduce((node, i) => (node.columns ?? node.children)[i], layout)
      if (!column.data) return undefined
      return { segment: column.data.segment, byteOffset: column.data.offset, byteLength: column.data.bytes }
    }, signal)
    const { array, stride } = dtype ? parseDtype(dtype) : {}
    if (this.kind === 'column' && array) { // as far as this slice goes
      const width = array.BYTES_PER_ELEMENT * stride
      place.byteOffset += offset * width
      place.byteLength = length * width
    } else if (this.kind !== 'column') {
      if (this.#root) {
        const root = this.#root._pointer(DATA)[0]
        place.byteOffset += Number(this._pointer(DATA)[0] - root)
      }
      place.byteLength = this._bytes(DATA)
    }
    return { device: ordinal, uuid: uuid ?? device, handle: new Uint8Array(handle), ...place }
  }

  _host () {
    if (this.device !== 'host') {
      throw new classes.UnsupportedError(
        `"${this.name}" is on a GPU: use toHost(), or deviceData for its pointer`, 'unsupported', -32010)
    }
  }

  toArrow () {
    this._host()
    return this._keep(arrowExport.toArrow(this))
  }

  /** Copies it to the host, away from this thread, and resolves with what toArrow() would give. */
  async toHost (options) {
    const { signal } = optionsOf(options, ['signal'])
    return await arrowExport.toHost(this, signal)
  }

  [Symbol.for('nodejs.util.inspect.custom')] () {
    const name = this.constructor.name
    if (this.released) return `${name} "${this.name}" (released)`
    const { dtype, length, device } = this.#info
    return `${name} "${this.name}" ${dtype ? dtype + ' ' : ''}length ${length} on ${device}`
  }
}

function sealCounts (object, given) {
  if (given === undefined) return undefined
  if (object.kind === 'table' && !Array.isArray(given)) {
    if (typeof given !== 'object' || given === null) throw new TypeError('nullCounts is not an object')
    return object.columnNames.map(name => given[name] ?? -1)
  }
  const counts = Array.isArray(given) ? given : [given]
  for (const count of counts) {
    if (!Number.isInteger(count)) throw new TypeError(`nullCounts has ${String(count)}, not a whole number`)
  }
  return counts
}

class Bytes extends SharedObject {
  get bytes () {
    this._host()
    return this._typed(DATA, Uint8Array, 0, this.length) ?? new Uint8Array(0)
  }

  get deviceData () { return this._device(DATA) }
}

/**
 * Many arrays by name, in a safetensors file, whose bytes these are; a bundle has no slices. The manifest is
 * read when it is first asked for: from a GPU by a copy that this thread waits for.
 */
class Bundle extends Bytes {
  #manifest

  get #read () {
    return (this.#manifest ??= call(() => {
      const [tensors, metadata] = native.manifest(this._index)
      return { tensors: new Map(tensors), numbers: new Map(tensors.map(([name], i) => [name, i])), metadata }
    }))
  }

  /** How many arrays there are. */
  get size () { return this.#read.tensors.size }
  get names () { return [...this.#read.tensors.keys()] }
  /** { dtype, shape, offset, byteLength } by name, in the manifest's order. */
  get tensors () { return new Map(this.#read.tensors) }
  get metadata () { return new Map(this.#read.metadata) }

  has (name) { return this.#read.tensors.has(name) }

  /** An array over the same memory, which holds the lease. */
  get (name) {
    const i = this.#read.numbers.get(name)
    if (i !== undefined) return this._view(call(() => native.tensor(this._index, i)))
    if (typeof name !== 'string') throw new TypeError('the array is not given by its name')
    const some = this.names.slice(0, 5).map(name => `"${name}"`).join(', ')
    throw new classes.NotFoundError(
      `"${this.name}" has no array "${name}" among its ${this.size}: ${some}${this.size > 5 ? ', …' : ''}`,
      'not_found', -32001)
  }

  * [Symbol.iterator] () {
    for (const name of this.#read.tensors.keys()) yield [name, this.get(name)]
  }
}

class NDArray extends SharedObject {
  get dtype () { return this._info.dtype }
  get shape () { return this._info.shape.slice() }
  /** In bytes. */
  get strides () { return this._info.strides.slice() }
  get ndim () { return this._info.shape.length }
  get size () { return this._info.shape.reduce((product, extent) => product * extent, 1) }
  get nullCount () { return native.nullCount(this._index) }

  get isContiguous () {
    const { shape, strides } = this
    const { array, stride, packed } = parseDtype(this.dtype)
    let expected = array.BYTES_PER_ELEMENT * stride
    if (packed) shape.push(shape.pop() * packed / 8)
    for (let i = shape.length - 1; i >= 0; i--) {
      if (shape[i] > 1 && strides[i] !== expected) return false
      expected *= shape[i]
    }
    return true
  }

  /** From the first element to the last, in C order unless the strides say otherwise. */
  get values () {
    this._host()
    const { array } = parseDtype(this.dtype)
    return this._typed(DATA, array, 0, this._bytes(DATA) / array.BYTES_PER_ELEMENT) ?? new array(0)
  }

  /** The bitmap of valid elements, whose bit `maskOffset` is the first one's. */
  get mask () {
    this._host()
    const bits = this._info.offset + this.size
    return this._typed(MASK, Uint8Array, 0, Math.ceil(bits / 8))
  }

  get maskOffset () { return this._info.offset }
  get deviceData () { return this._device(DATA) }
  get deviceMask () { return this._device(MASK) }
}

class Column extends SharedObject {
  get columnName () { return this._info.columnName }
  get dtype () { return this._info.dtype }
  /** Element i is element offset + i of the buffers. */
  get offset () { return this._info.offset }
  /** -1: nobody has counted. */
  get nullCount () { return native.nullCount(this._index) }
  get metadata () { return new Map(this._info.metadata ?? []) }
  get childCount () { return this._info.childCount }
  child (i) {
    if (!Number.isInteger(i)) throw new TypeError('the child is not given by a whole number')
    if (i < 0 || i >= this.childCount) throw new RangeError(`no child ${i} of ${this.childCount}`)
    return this._view(call(() => native.child(this._index, i)), i)
  }

  get children () { return Array.from({ length: this.childCount }, (_, i) => this.child(i)) }

  /**
   * The elements, for types of a fixed width. Of `bool` the bytes that its bits lie in, from bit
   * `bitOffset` on; of strings all the characters, which `offsets` are about.
   */
  get values () {
    this._host()
    const { name, array, stride, strings } = parseDtype(this.dtype)
    const { offset, length } = this._info
    if (array) return this._typed(DATA, array, offset * stride, length * stride) ?? new array(0)
    if (name === 'bool') return this._typed(DATA, Uint8Array, offset >>> 3, bitBytes(offset, length))
    if (strings) return this._typed(DATA, Uint8Array, 0, this._bytes(DATA)) ?? new Uint8Array(0)
    return undefined
  }

  /** The bytes of the validity bitmap that are about this column, from bit `bitOffset` on. */
  get mask () {
    this._host()
    const { offset, length } = this._info
    return this._typed(MASK, Uint8Array, Math.floor(offset / 8), bitBytes(offset, length))
  }

  get bitOffset () { return this._info.offset % 8 }

  get offsets () {
    this._host()
    const { offsets } = parseDtype(this.dtype)
    const { offset, length } = this._info
    return offsets && this._typed(OFFSETS, offsets, offset, length + 1)
  }

  isValid (i) {
    const at = position(i, this.length, 'the index', 0)
    if (at >= this.length) throw new RangeError(`the index ${i} is not within ${this.length} elements`)
    if (this.dtype === 'dictionary') return this.child(0).isValid(at)
    if (this.dtype === 'null') return false
    const mask = this.mask
    const bit = this.bitOffset + at
    return !mask || (mask[bit >> 3] >> (bit & 7) & 1) === 1
  }

  get deviceData () { return this._device(DATA) }
  get deviceMask () { return this._device(MASK) }
  get deviceOffsets () { return this._device(OFFSETS) }

  /**
   * The members of RAPIDS' `Series.new({ type, data, nullMask, offset, length })`, as
   * pointers: { dtype, data, nullMask, offset, length }.
   */
  deviceDescriptor () {
    const { dtype, offset, length } = this._info
    if (this._info.ordinal < 0) {
      throw new classes.UnsupportedError(`"${this.name}" is not on a GPU`, 'unsupported', -32010)
    }
    return {
      dtype, data: this.deviceData, nullMask: this.deviceMask, offsets: this.deviceOffsets,
      offset, length, nullCount: this.nullCount,
      children: this.children.map(child => child.deviceDescriptor())
    }
  }
}

class Table extends SharedObject {
  #names

  get numRows () { return this.length }
  get metadata () { return new Map(this._info.metadata ?? []) }
  get numColumns () { return this._info.childCount }

  get columnNames () {
    return (this.#names ??= Array.from({ length: this.numColumns }, (_, i) => {
      const view = this.columnAt(i)
      const name = view.columnName
      view.release()
      return name
    })).slice()
  }

  column (name) {
    if (typeof name !== 'string') throw new TypeError('the column is not given by its name')
    const i = this.columnNames.indexOf(name)
    if (i < 0) throw new classes.NotFoundError(`"${this.name}" has no column "${name}"`, 'not_found', -32001)
    return this.columnAt(i)
  }

  columnAt (i) {
    if (!Number.isInteger(i)) throw new TypeError('the column is not given by a whole number')
    if (i < 0 || i >= this.numColumns) throw new RangeError(`no column ${i} of ${this.numColumns}`)
    return this._view(call(() => native.child(this._index, i)), i)
  }

  get columns () { return Array.from({ length: this.numColumns }, (_, i) => this.columnAt(i)) }

  /**
   * Arrow record batches of at most `rows` rows, one after the other: over the shared memory, or,
   * of a table on a GPU, copied when their turn comes. One of no rows if the table has none.
   */
  async * batches (rows = BATCH_ROWS, options) {
    const { signal } = optionsOf(options, ['signal'])
    if (!Number.isSafeInteger(rows) || rows < 1) throw new RangeError(`the rows are ${rows}, not 1 or more`)
    for (let at = 0; at === 0 || at < this.length; at += rows) {
      signal?.throwIfAborted()
      const part = this.slice(at, Math.min(at + rows, this.length))
      try {
        yield (this.device === 'host' ? part.toArrow() : await part.toHost({ signal })).batches[0]
      } finally {
        part.release()
      }
    }
  }
}

const TYPES = [Bytes, NDArray, Column, Table, Bundle]

/** Makes an object of what the addon opened. */
function makeObject (client, name, slot, kind, copy) {
  const lease = new Lease(client, name, slot, copy)
  const object = new TYPES[kind](KEY, slot, lease)
  forgotten.register(object, lease, lease)
  return object
}

module.exports = { fill, streamOf, SharedObject, Bytes, NDArray, Column, Table, Bundle, makeObject }
