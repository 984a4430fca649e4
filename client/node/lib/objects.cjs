'use strict'
// Opened objects: tables, columns, arrays, bytes. Each opened object is one lease; its columns
// and slices are views that end with it.

const native = require('./native.cjs')
const { translate, classes, fromKind } = require('./errors.cjs')
const { parseDtype, bitBytes, DATA, MASK, OFFSETS } = require('./dtypes.cjs')
const arrowExport = require('./to-arrow.cjs')
const { constants } = require('node:buffer')
const { submit, external, checkSignal, optionsOf } = require('./requests.cjs')
const { ipcHandle } = require('./raw.cjs')
const { readColumn, readArray } = require('./elements.cjs')

const KINDS = ['bytes', 'array', 'column', 'table', 'bundle']

const COPY_NOW = 1 << 20 // bytes that are copied at once rather than by another thread
const BUFFERS = { __proto__: null, data: DATA, mask: MASK, offsets: OFFSETS }
const BATCH_ROWS = 65_536
const PINNED_MIN = 1 << 18 // bytes whose copy from a GPU is worth pinned memory

/** Only this module makes objects. */
const KEY = Symbol('gpubufd')

// The safety net for programs that forget release(). It warns, since the garbage collector may run late, and the object
// keeps its memory until then.
const forgotten = new FinalizationRegistry(lease => {
  if (lease.released) return
  lease.release()
  process.emitWarning(
    `the object "${lease.name}" was garbage collected without release()`,
    { type: 'GpubufWarning', code: 'GPUBUF_UNRELEASED' }
  )
})

const keepers = new WeakMap()
const writers = new WeakMap() // ArrayBuffer: how many leases write it
const pinned = new WeakSet() // ArrayBuffers in pinned memory, which the GPU may read after a queued copy has returned

/**
 * Facts about an opened object or a view of it, with the typed arrays over its memory. By `holder`, the opened object
 * until its release, the arrays keep the lease.
 */
class Known {
  info
  names
  read
  arrays = [] // by the buffer's number: { from, array }
  children = []
  holder
  entry // of an object that a cached lease holds: its place among the client's

  constructor (root) {
    this.root = root ?? this // the opened object's
  }
}

/**
 * A client's facts about objects of cached leases, by name, for the next open that finds the same lease. One object has
 * them at a time, until its release. The references are weak: an ArrayBuffer keeps its memory mapped.
 */
class KnownObjects {
  #most
  #byName = new Map()

  constructor (most) {
    this.#most = most
  }

  /** For an object of the lease with this number: those that a released one has left, or new ones. */
  find (name, number) {
    const entry = this.#byName.get(name)
    const left = entry?.number === number ? entry.known.deref() : undefined
    if (left && !left.holder) return left
    const known = new Known()
    known.entry = { number, known: new WeakRef(known) } // `number`: the lease's
    return known
  }

  /** The object was released. */
  leave (name, { entry }) {
    if (!entry || this.#byName.get(name) === entry) return
    this.#byName.delete(name)
    if (this.#byName.size >= this.#most) this.#byName.delete(this.#byName.keys().next().value)
    this.#byName.set(name, entry)
  }
}

/** The lease of an opened object and all views of it. It has no reference to them, so that they can be collected. */
class Lease {
  constructor (client, name, slot, copy, writes) {
    this.client = client
    this.name = name
    this.slots = new Set([slot])
    this.root = slot
    this.copy = copy
    this.writes = writes // live memory
    this.released = false
    this.shown = 0 // how often a view has shown something else
    this.parked = false
    this.buffers = new Set() // ArrayBuffers in live memory that can be written
    if (writes) client._writing(this)
  }

  /** Notes an ArrayBuffer that ends with the lease: from then on the memory is for the next writer. */
  write (buffer) {
    if (!this.writes || this.buffers.has(buffer)) return
    this.buffers.add(buffer)
    writers.set(buffer, (writers.get(buffer) ?? 0) + 1)
  }

  release (stream) {
    if (this.released) return
    this.released = true
    for (const buffer of this.buffers) {
      const others = writers.get(buffer) - 1
      if (others === 0) native.detach(buffer)
      else writers.set(buffer, others)
    }
    this.buffers.clear()
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

/** An ArrayBuffer, or a RangeError that says what to do. */
function room (bytes) {
  try {
    return new ArrayBuffer(bytes)
  } catch {
    throw new RangeError(`Node can allocate no ArrayBuffer of ${bytes} bytes: slice the object`)
  }
}

function typed (Type, buffer, at, count) {
  try {
    return new Type(buffer, at, count)
  } catch {
    throw new RangeError(`${count} elements are more than a ${Type.name} can have here: slice the object`)
  }
}

/** Throws if a buffer was detached or resized since the call: its content to copy is lost. */
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
  if (number < 0n || number >> 64n) throw new RangeError(`stream is ${number}: expected a handle of 64 bits`)
  return number || 1n
}

/**
 * Copies parts [object, which, at, view, bytes] into objects on a device; `bytes` is the view's length at the call.
 * With a stream the copies are queued on it: the driver reads pageable views before the call returns. Views in pinned
 * memory it would read later, so these are copied without the stream.
 */
async function fill (client, device, parts, signal, stream) {
  checkSignal(signal)
  checkSizes(parts)
  const bytes = parts.reduce((sum, part) => sum + part[4], 0)
  // A resizable buffer is copied in this thread: if it shrank during another thread's copy, the process would crash.
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
  if (at < 0 || at > length) throw new RangeError(`${what} is ${value}, not within ${length} elements`)
  return at
}

/**
 * As a member of each object it keeps structuredClone() and postMessage() from making {} of one: they throw a
 * DataCloneError, whose message is this function's text and "could not be cloned".
 */
function share () { return this._share() /* send the result of object.share(), and open() that: the object */ }

class SharedObject {
  #slot
  #lease
  #root // of a view: the opened object, which the view keeps alive
  #path // the numbers of children that lead from the opened object to this one
  #known
  #shown // the lease's, when it was described

  constructor (key, slot, lease, known, root, path = []) {
    if (key !== KEY) throw new TypeError('objects come from a client: use open(), create() or put()')
    this.#slot = slot
    this.#lease = lease
    this.#known = known
    this.#shown = lease.shown
    this.#root = root
    this.#path = path
  }

  get _known () {
    if (this.#shown !== this.#lease.shown) this.#known = new Known(this.#known.root)
    this.#shown = this.#lease.shown
    return this.#known
  }

  get #info () {
    const known = this._known
    return (known.info ??= call(() => native.describe(this._index)))
  }

  /** The addon's index of the object; throws after release(). */
  get _index () {
    if (this.#slot < 0 || this.#lease.released) {
      throw new classes.StaleError(`the object "${this.#lease.name}" has been released`, 'stale', -32007)
    }
    return this.#slot
  }

  get _lease () { return this.#lease }
  get _info () { return this.#info }
  get metadata () { return new Map(this._info.metadata ?? []) }

  /** The object of a view; `i`: the number of the child, undefined for a slice. */
  _view (slot, i) {
    this.#lease.slots.add(slot)
    const { root, children } = this._known
    const known = children[i] ?? new Known(root)
    known.info ??= call(() => native.describe(slot))
    if (i !== undefined) children[i] = known
    const path = i === undefined ? this.#path : [...this.#path, i]
    return new TYPES[known.info.kind](KEY, slot, this.#lease, known, this.#root ?? this, path)
  }

  get kind () { return KINDS[this.#info.kind] }
  get name () { return this.#lease.name }
  get version () { return this.#info.version }
  /** The producer's label for this version; undefined: none. */
  get label () { return this.#info.label ?? undefined }
  /** "host", or the GPU's UUID. */
  get device () { return this.#info.device }
  get length () { return this.#info.length }
  get released () { return this.#slot < 0 || this.#lease.released }
  /** Whether its content changes while others read it; it is never sealed. */
  get live () { return this.#info.live }
  /** Of the claim that this object is: one higher each time; 0: it is none. */
  get generation () { return this.#info.generation }
  /** Whether it was lost with its connection; a claim may then be somebody else's. */
  get stale () { return native.stale(this._index) }

  /** { name, version, instance } for open() in a worker or another process. A view's is that of the whole object. */
  share = share

  _share () {
    void this._index // not after release
    if (this.version === 0) throw new classes.UnsupportedError(`"${this.name}" is not sealed yet`, 'unsupported', -32010)
    return { name: this.name, version: this.version, instance: this.#lease.client.instance }
  }

  /** A view of elements [begin, end); negative numbers count from the end, as of Array.prototype.slice. */
  slice (begin, end) {
    const index = this._index
    const length = this.length
    const from = position(begin, length, 'begin', 0)
    const to = position(end, length, 'end', length)
    if (from > to) throw new RangeError(`begin ${from} is after end ${to}`)
    return this._view(call(() => native.slice(index, from, to - from)))
  }

  /**
   * Ends the lease of an opened object; of a view, only the view. More than one call is fine. `stream`: a CUDA stream;
   * the release takes place when the work queued there is done.
   */
  release (options) {
    const { stream } = optionsOf(options, ['stream'])
    const after = streamOf(stream)
    if (this.#slot < 0) return
    if (this.#slot === this.#lease.root) {
      forgotten.unregister(this.#lease)
      this.#lease.release(after)
      const { root } = this.#known
      root.holder = undefined
      this.#lease.client._knownObjects.leave(this.#lease.name, root)
    } else if (!this.#lease.released) {
      this.#lease.slots.delete(this.#slot)
      native.release(this.#slot, after)
    }
    this.#slot = -1
    const { info, names } = this.#known
    this.#known = Object.assign(new Known(), { info, names }) // the arrays are the next one's
  }

  [Symbol.dispose ?? Symbol.for('nodejs.dispose')] () { this.release() }
  async [Symbol.asyncDispose ?? Symbol.for('nodejs.asyncDispose')] () { this.release() }

  /**
   * Publishes an object of create(); resolves with the version. `label`, `keep`: in place of those of create().
   * `stream`: a CUDA stream whose queued work still writes the object. Readers wait for that work on the GPU; this call
   * does not wait.
   */
  async seal (options) {
    const { nullCounts, label, keep = -1, stream, signal } =
      optionsOf(options, ['nullCounts', 'label', 'keep', 'stream', 'signal'])
    const after = streamOf(stream)
    const counts = sealCounts(this, nullCounts)
    if (keep !== -1 && !(Number.isInteger(keep) && keep >= 0)) throw new RangeError(`keep is ${keep}, not 0 to 8`)
    const { client } = this.#lease
    const version = await submit(client, id => native.seal(client._slot, id, this._index, counts, label, keep, after),
      { signal, method: 'seal', name: this.name })
    this.#known = new Known(this.#known.root)
    return version
  }

  /** A typed array over `count` elements of a buffer; undefined if there is no such buffer. */
  _typed (which, Type, from, count) {
    const size = Type.BYTES_PER_ELEMENT
    if (count === 0) return this._pointer(which) && new Type(0)
    this._readable()
    void this._index // not after release
    const { root, arrays } = this._known
    const known = arrays[which]
    if (known?.from === from && known.array.length === count) return known.array
    if (this.#lease.copy || !external) {
      if (this.version === 0 || this.#lease.writes) {
        throw new classes.UnsupportedError(
          'this runtime has no ArrayBuffers over shared memory: fill the object by write()', 'unsupported', -32010)
      }
      const buffer = call(() => native.copy(this._index, which, from * size, room(count * size)))
      return buffer && typed(Type, buffer, 0, count)
    }
    const found = call(() => native.memory(this._index, which, from * size, count * size))
    if (!found) return undefined
    const [buffer, at] = found
    this.#lease.write(buffer)
    if (at % size === 0) {
      const array = this._keep(typed(Type, buffer, at, count))
      if (root.entry) arrays[which] = { from, array }
      return array
    }
    return new Type(buffer.slice(at, at + count * size)) // memory of share_mine(), whose owner did not align it
  }

  /** Keeps the lease, or a frame of it, until `what`, which lies over the object's memory, is collected. */
  _keep (what, keeper = this.#known.root) {
    keepers.set(what, keeper)
    return what
  }

  /** As _typed, but a copy: another thread makes it when the producer's work is done. */
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
   * Copies a typed array into an unsealed object, on the host or a GPU: into `buffer`
   * ("data", "mask" or "offsets") from its byte `at` on.
   */
  async write (view, options) {
    const { buffer = 'data', at = 0, signal } = optionsOf(options, ['buffer', 'at', 'signal'])
    const which = BUFFERS[buffer]
    if (which === undefined) throw new TypeError(`buffer is ${String(buffer)}, not "data", "mask" or "offsets"`)
    if (!ArrayBuffer.isView(view)) throw new TypeError(`write() takes a typed array, not a ${typeof view}`)
    if (!Number.isSafeInteger(at) || at < 0) throw new RangeError(`at is ${at}, not a whole number of bytes`)
    await fill(this.#lease.client, this.device, [[this._index, which, at, view, view.byteLength]], signal)
  }

  /**
   * Resolves when the content is complete. Only an object on a GPU can be opened before that: its producer may seal it
   * with work still queued. toHost() waits by itself. With `stream` the promise resolves at once, and work queued on
   * the stream from then on waits.
   */
  async ready (options) {
    const { stream, signal } = optionsOf(options, ['stream', 'signal'])
    const after = streamOf(stream)
    await submit(this.#lease.client, id => native.ready(this._index, id, after),
      { signal, method: 'ready', name: this.name })
  }

  /** Throws while the object is a view's that is parked. */
  _readable () {
    if (this.#lease.parked) {
      throw fromKind('busy', `"${this.name}" is parked: resume its view before its memory is used`)
    }
  }

  _bytes (which) {
    const found = this._pointer(which)
    return found ? found[1] : 0
  }

  _pointer (which) {
    return call(() => native.pointer(this._index, which))
  }

  /** { ptr, byteLength, device, uuid } of a buffer on a GPU; undefined: there is none. */
  _device (which) {
    if (this.#info.ordinal < 0) return undefined
    const found = this._pointer(which)
    return found && {
      ptr: found[0], byteLength: found[1], device: this.#info.ordinal, uuid: this.#info.device
    }
  }

  /**
   * { device, uuid, handle, byteOffset, byteLength }: the place of the data in the memory that cuIpcOpenMemHandle gives
   * for the 64 octets of `handle`. UnsupportedError: the object was not created with share: "ipc". Keep the object
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
    if (this.kind === 'column' && array) { // only this slice
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

  /** Copies the object to the host in another thread; resolves with an Arrow vector or table of the copy. */
  async toHost (options) {
    const { signal } = optionsOf(options, ['signal'])
    return await arrowExport.toHost(this, signal)
  }

  /** A description: `kind`, `name`, `version`, `dtype`, `length`, `device`. The content is toArray()'s. */
  toJSON () {
    const { name, version, dtype, length, device } = this.#info
    return { kind: this.kind, name, version, dtype: dtype || undefined, length, device }
  }

  toString () {
    const type = this.constructor.name
    if (this.released) return `${type} "${this.name}" (released)`
    const { dtype, length, device } = this.#info
    return `${type} "${this.name}" ${dtype ? dtype + ' ' : ''}length ${length} on ${device}`
  }

  [Symbol.for('nodejs.util.inspect.custom')] () { return this.toString() }
}

/** Columns, arrays and tables as sequences: `_reader` makes a function of an index. */
class Sequence extends SharedObject {
  get #element () {
    void this._index // not after release
    this._readable()
    const known = this._known
    return (known.read ??= (this._host(), this._reader()))
  }

  /** How many elements get() and the iteration have. */
  get _count () { return this.length }

  /** Element i; a negative i counts from the end, as of Array.prototype.at. undefined: there is none. */
  get (i) {
    if (!Number.isInteger(i)) {
      throw new TypeError(`the index is ${String(i)}, not a whole number` +
        (this.kind === 'table' ? ': column() takes a name' : ''))
    }
    const read = this.#element
    const at = i < 0 ? this._count + i : i
    return at >= 0 && at < this._count ? read(at) : undefined
  }

  * [Symbol.iterator] () {
    const count = this._count
    const read = this.#element
    for (let i = 0; i < count; i++) {
      void this._index // not after release
      yield read(i)
    }
  }

  /** The elements as a plain array: a copy. */
  toArray () {
    const read = this.#element
    return Array.from({ length: this._count }, (_, i) => read(i))
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
 * Many arrays by name; the bytes are those of a safetensors file. A bundle has no slices. The manifest is
 * read at its first use: from a GPU by a copy that this thread waits for.
 */
class Bundle extends Bytes {
  #manifest

  get #read () {
    return (this.#manifest ??= call(() => {
      const [tensors, metadata] = native.manifest(this._index)
      return { tensors: new Map(tensors), numbers: new Map(tensors.map(([name], i) => [name, i])), metadata }
    }))
  }

  /** The number of arrays. */
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
    if (typeof name !== 'string') throw new TypeError(`the array's name is ${String(name)}, not a string`)
    const some = this.names.slice(0, 5).map(name => `"${name}"`).join(', ')
    throw new classes.NotFoundError(
      `"${this.name}" has no array "${name}" among its ${this.size}: ${some}${this.size > 5 ? ', …' : ''}`,
      'not_found', -32001)
  }

  * [Symbol.iterator] () {
    for (const name of this.#read.tensors.keys()) yield [name, this.get(name)]
  }
}

class NDArray extends Sequence {
  get _count () { return this.size }
  _reader () { return readArray(this) }
  get dtype () { return this._info.dtype }
  get shape () { return this._info.shape.slice() }
  /** Steps along each axis, in bytes. */
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

  /** The memory from the first element to the last: in C order if `isContiguous`, else by `strides`. */
  get values () {
    this._host()
    const { array } = parseDtype(this.dtype)
    return this._typed(DATA, array, 0, this._bytes(DATA) / array.BYTES_PER_ELEMENT) ?? new array(0)
  }

  /** The bitmap of valid elements; bit `maskOffset` is that of the first element. */
  get mask () {
    this._host()
    const bits = this._info.offset + this.size
    return this._typed(MASK, Uint8Array, 0, Math.ceil(bits / 8))
  }

  get maskOffset () { return this._info.offset }
  get deviceData () { return this._device(DATA) }
  get deviceMask () { return this._device(MASK) }
}

class Column extends Sequence {
  _reader () { return readColumn(this) }

  get columnName () { return this._info.columnName }
  get dtype () { return this._info.dtype }
  /** Element i is element offset + i of the buffers. */
  get offset () { return this._info.offset }
  /** The number of nulls; -1: not counted, on a GPU. */
  get nullCount () { return native.nullCount(this._index) }
  get childCount () { return this._info.childCount }
  child (i) {
    if (!Number.isInteger(i)) throw new TypeError(`the child's number is ${String(i)}, not a whole number`)
    if (i < 0 || i >= this.childCount) throw new RangeError(`there is no child ${i}: there are ${this.childCount}`)
    return this._view(call(() => native.child(this._index, i)), i)
  }

  get children () { return Array.from({ length: this.childCount }, (_, i) => this.child(i)) }

  /**
   * The elements of a type of a fixed width; of `bool` the bytes with their bits, from bit `bitOffset` on; of strings
   * all characters, to which `offsets` refer; undefined for other types.
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

  /** The bytes of the validity bitmap with this column's bits, from bit `bitOffset` on. */
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
    if (at >= this.length) throw new RangeError(`the index is ${i}, not within ${this.length} elements`)
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
   * { dtype, data, nullMask, offsets, offset, length, nullCount, children } with buffers as pointers: what RAPIDS'
   * `Series.new()` needs.
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

/** Its elements are its rows, as objects. */
class Table extends Sequence {
  _reader () {
    const columns = this.columns.map(column => {
      const reader = [column.columnName, readColumn(column)]
      column.release()
      return reader
    })
    return i => Object.fromEntries(columns.map(([name, read]) => [name, read(i)]))
  }

  /** [{ name, dtype, metadata }] of the columns. */
  get schema () {
    return this.columns.map(column => {
      const { columnName: name, dtype, metadata } = column
      column.release()
      return { name, dtype, metadata }
    })
  }

  get numRows () { return this.length }
  get numColumns () { return this._info.childCount }

  get columnNames () { return this.#names.slice() }

  get #names () {
    const known = this._known
    return (known.names ??= Array.from({ length: this.numColumns }, (_, i) => {
      const view = this.columnAt(i)
      const name = view.columnName
      view.release()
      return name
    }))
  }

  column (name) {
    if (typeof name !== 'string') throw new TypeError(`the column's name is ${String(name)}, not a string`)
    const i = this.#names.indexOf(name)
    if (i < 0) throw new classes.NotFoundError(`"${this.name}" has no column "${name}"`, 'not_found', -32001)
    return this.columnAt(i)
  }

  columnAt (i) {
    if (!Number.isInteger(i)) throw new TypeError(`the column's number is ${String(i)}, not a whole number`)
    if (i < 0 || i >= this.numColumns) throw new RangeError(`there is no column ${i}: there are ${this.numColumns}`)
    return this._view(call(() => native.child(this._index, i)), i)
  }

  get columns () { return Array.from({ length: this.numColumns }, (_, i) => this.columnAt(i)) }

  /**
   * Arrow record batches of at most `rows` rows, one after the other: over the shared memory, or,
   * of a table on a GPU, copied when the iteration reaches them. A table without rows has one batch without rows.
   */
  async * batches (rows = BATCH_ROWS, options) {
    const { signal } = optionsOf(options, ['signal'])
    if (!Number.isSafeInteger(rows) || rows < 1) throw new RangeError(`rows is ${String(rows)}, not 1 or more`)
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

/** The object for a lease that the addon has opened or created. */
function makeObject (client, name, slot, kind, copy, writes = false, known = new Known()) {
  const lease = new Lease(client, name, slot, copy, writes)
  const object = known.holder = new TYPES[kind](KEY, slot, lease, known)
  forgotten.register(object, lease, lease)
  return object
}

module.exports = { fill, streamOf, SharedObject, Bytes, NDArray, Column, Table, Bundle, KnownObjects, makeObject }
