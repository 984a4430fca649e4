'use strict'
// The protocol's dtypes: the width of an element, and the typed array for it.

const { dtypes } = require('./native.cjs') // { bits, offsetBytes, code } of each, from the protocol's own table

const INT = 0
const FLOAT = 2
const COMPLEX = 5
const NONE = 255 // DLPack's codes
// The arrays by bits, for signed integers and whatever is counted in such: dates, times.
const SIGNED = { 8: Int8Array, 16: Int16Array, 32: Int32Array, 64: BigInt64Array }
const UNSIGNED = { 8: Uint8Array, 16: Uint16Array, 32: Uint32Array, 64: BigUint64Array }
const FLOATS = { 32: Float32Array, 64: Float64Array }
// Elements of several numbers.
const SEVERAL = {
  decimal128: [Uint32Array, 4],
  day_time_interval: [Int32Array, 2],
  month_day_nano_interval: [Int32Array, 4]
}

/** [typed array, its numbers for an element] for a dtype of a fixed width; floats without an array have their bits. */
function fixed (name, { bits, code }) {
  if (SEVERAL[name]) return SEVERAL[name]
  if (bits < 2) return [] // bool, and types without a fixed width
  if (code === COMPLEX) return [FLOATS[bits / 2], 2]
  if (code === FLOAT && FLOATS[bits]) return [FLOATS[bits], 1]
  const arrays = code === INT || code === NONE ? SIGNED : UNSIGNED
  return [arrays[Math.max(bits, 8)], 1]
}

const parsed = new Map()

/**
 * { name, unit?, zone?, size?, precision?, scale?, array?, stride?, packed?, offsets?, strings } of a
 * dtype: `array` and `stride` if elements have a fixed width, `packed` (bits) if that is below 8, `offsets` (a typed
 * array) if the dtype has offsets.
 */
function parseDtype (text) {
  let dtype = parsed.get(text)
  if (dtype) return dtype
  const match = /^([a-z_0-9]+)(?:\[(s|ms|us|ns)(?:,(.*))?\]|\((\d+)(?:,(-?\d+))?\))?$/.exec(text)
  const name = match?.[1] ?? text
  dtype = { name, unit: match?.[2], zone: match?.[3] }
  if (match?.[4] !== undefined) {
    if (name === 'decimal128') {
      dtype.precision = Number(match[4])
      dtype.scale = Number(match[5])
    } else {
      dtype.size = Number(match[4])
    }
  }
  const told = dtypes[name]
  if (told) [dtype.array, dtype.stride] = fixed(name, told)
  if (told?.bits > 1 && told.bits < 8) dtype.packed = told.bits
  if (name === 'fixed_binary') [dtype.array, dtype.stride] = [Uint8Array, dtype.size]
  dtype.offsets = { 4: Int32Array, 8: BigInt64Array }[told?.offsetBytes]
  dtype.strings = /^(large_)?(utf8|binary)$/.test(name)
  if (parsed.size < 1000) parsed.set(text, dtype)
  return dtype
}

const ARRAYS = new Map([
  [Int8Array, 'int8'], [Int16Array, 'int16'], [Int32Array, 'int32'], [BigInt64Array, 'int64'],
  [Uint8Array, 'uint8'], [Uint8ClampedArray, 'uint8'], [Uint16Array, 'uint16'],
  [Uint32Array, 'uint32'], [BigUint64Array, 'uint64'],
  [Float32Array, 'float32'], [Float64Array, 'float64']
])

/** The dtype of a typed array; undefined if it is none. */
function dtypeOf (array) {
  for (const [type, dtype] of ARRAYS) {
    if (array instanceof type) return dtype
  }
  return undefined
}

/** The number of bytes that bits [offset, offset + length) lie in. */
function bitBytes (offset, length) {
  return length === 0 ? 0 : Math.ceil((offset % 8 + length) / 8)
}

// The buffers of an object, by the addon's numbers.
const DATA = 0
const MASK = 1
const OFFSETS = 2

module.exports = { parseDtype, dtypeOf, bitBytes, DATA, MASK, OFFSETS }
