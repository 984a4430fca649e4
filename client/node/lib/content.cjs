'use strict'
// Values to publish: what their layout is, and which bytes go where.

const { SharedObject } = require('./objects.cjs')
const { getArrow } = require('./to-arrow.cjs')
const { isVector, isTable, columnFrom, ofTable, ofMembers, ofRows } = require('./from-arrow.cjs')
const { dtypeOf, DATA, OFFSETS } = require('./dtypes.cjs')
const { number, text } = require('./arguments.cjs')

const KINDS = { bytes: 0, array: 1, column: 2, table: 3, bundle: 4 }

function pairs (metadata) {
  return metadata && (metadata instanceof Map ? [...metadata] : Object.entries(metadata)).flat()
}

function columnSpec ({ name, dtype, length, mask, nullCount, dataBytes, metadata, children }) {
  return {
    name, dtype, length, mask: mask ?? false, nullCount, dataBytes, metadata: pairs(metadata),
    children: children?.map(columnSpec)
  }
}

/** The whole content of a stream of Arrow record batches or bytes: a layout needs the total size. */
async function gather (stream) {
  const parts = []
  for await (const part of stream) parts.push(part)
  if (parts.length > 0 && parts.every(part => part instanceof Uint8Array)) return Buffer.concat(parts)
  const schema = parts[0]?.schema ?? stream.schema
  if (!schema || !parts.every(isTable)) {
    throw new TypeError('the stream has neither Arrow record batches nor buffers')
  }
  return {
    schema,
    batches: parts,
    numRows: parts.reduce((sum, batch) => sum + batch.numRows, 0),
    getChildAt: i => ({ data: parts.flatMap(batch => batch.getChildAt(i).data) })
  }
}

const IPC_FILE = Buffer.from('ARROW1')

/** Whether bytes begin as an Arrow IPC file or stream does. */
function looksLikeIpc (bytes) {
  if (bytes.length < 12) return false
  if (IPC_FILE.equals(bytes.subarray(0, 6))) return true
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const size = view.getInt32(4, true)
  return view.getUint32(0, true) === 0xffffffff && size > 0 && size % 8 === 0 && size <= bytes.length - 8
}

/** A buffer's memory as a Uint8Array; undefined: the value is no buffer. */
function bytesOf (value) {
  const isBuffer = value instanceof ArrayBuffer || value instanceof SharedArrayBuffer
  if (!isBuffer && !ArrayBuffer.isView(value)) return undefined
  try {
    return isBuffer ? new Uint8Array(value) : new Uint8Array(value.buffer, value.byteOffset, value.byteLength)
  } catch {
    throw new TypeError('the buffer is detached')
  }
}

/** Adds the view's bytes to each [which, at, view]. */
function noteSizes (writes, children) {
  for (const write of writes) write[3] = write[2].byteLength
  for (const child of children) noteSizes(child.writes, child.children)
}

/** Throws if writes leave a gap, in which readers would see earlier content. New masks are cleared: these may. */
function checkCovered (target, writes) {
  for (const which of [DATA, OFFSETS]) {
    const bytes = writes.reduce((sum, write) => sum + (write[0] === which ? write[3] : 0), 0)
    if (bytes < target._bytes(which)) {
      throw new TypeError(`the value has ${bytes} bytes where its layout has ${target._bytes(which)}`)
    }
  }
}

/** { layout, writes, children } of a value to be published. */
function content (value, { as, shape, dtype }) {
  if (as !== undefined && !['bytes', 'array', 'column', 'table'].includes(as)) {
    throw new TypeError(`as is ${String(as)}, not "bytes", "array", "column" or "table"`)
  }
  if (value instanceof SharedObject) throw new TypeError('the value is an object of gpubufd already: use alias()')
  const bytes = bytesOf(value)
  if (bytes && as !== 'bytes' && as !== 'array' && as !== 'column' && shape === undefined &&
      (as === 'table' || (!dtypeOf(value) || value instanceof Uint8Array) && looksLikeIpc(bytes))) {
    value = getArrow().tableFromIPC(bytes)
  }
  if (isTable(value)) return asTable(ofTable(value))
  if (isVector(value)) return asColumn(columnFrom(value))
  if (bytes) {
    const isArray = dtypeOf(value) && !Buffer.isBuffer(value)
    if (as === 'bytes' || (!isArray && as === undefined && shape === undefined && dtype === undefined)) {
      return { layout: { kind: KINDS.bytes, bytes: bytes.length }, writes: [[0, 0, bytes]], children: [] }
    }
    if (as === 'column') return asColumn(columnFrom(value))
    return asArray(value, shape, dtype)
  }
  if (Array.isArray(value)) return isRows(value) ? asTable(ofRows(value)) : asColumn(columnFrom(value))
  if (isPlain(value)) return asTable(ofMembers(value))
  throw new TypeError('put() takes typed arrays, buffers, arrays, Arrow vectors, tables and batches, streams of ' +
    'these or of bytes, objects of columns, and arrays of objects, which are rows')
}

function isPlain (value) {
  return typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype
}

/** Whether an array has rows: plain objects alone, and one at least. */
function isRows (values) {
  return values.length > 0 && values.every(isPlain)
}

function asTable ({ spec, children }) {
  return { layout: { kind: KINDS.table, column: spec }, writes: [], children }
}

function asColumn ({ spec, writes, children }) {
  return { layout: { kind: KINDS.column, column: spec }, writes, children }
}

function asArray (value, shape, dtype) {
  const array = dtypeOf(value) ? value : bytesOf(value)
  const type = dtype === undefined ? dtypeOf(array) : text(dtype, 'dtype')
  const extents = shape ?? [array.length]
  if (!Array.isArray(extents)) throw new TypeError('the shape is not an array')
  const count = extents.reduce((product, extent) => product * number(extent, 'an extent'), 1)
  if (dtype === undefined && count !== array.length) {
    throw new RangeError(`the shape has ${count} elements, the array ${array.length}`)
  }
  return {
    layout: { kind: KINDS.array, dtype: type, shape: extents }, writes: [[0, 0, array]], children: []
  }
}

module.exports = { KINDS, content, gather, pairs, columnSpec, noteSizes, checkCovered }
