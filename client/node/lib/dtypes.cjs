'use strict'
// The protocol's dtypes: the width of an element, and the typed array for it.

const FIXED = {
  bool8: [Uint8Array, 1],
  int8: [Int8Array, 1],
  int16: [Int16Array, 1],
  int32: [Int32Array, 1],
  int64: [BigInt64Array, 1],
  uint8: [Uint8Array, 1],
  uint16: [Uint16Array, 1],
  uint32: [Uint32Array, 1],
  uint64: [BigUint64Array, 1],
  float16: [Uint16Array, 1],
  bfloat16: [Uint16Array, 1],
  float32: [Float32Array, 1],
  float64: [Float64Array, 1],
  complex64: [Float32Array, 2],
  complex128: [Float64Array, 2],
  date32: [Int32Array, 1],
  date64: [BigInt64Array, 1],
  time32: [Int32Array, 1],
  time64: [BigInt64Array, 1],
  timestamp: [BigInt64Array, 1],
  duration: [BigInt64Array, 1],
  decimal128: [Uint32Array, 4],
  month_interval: [Int32Array, 1],
  day_time_interval: [Int32Array, 2],
  month_day_nano_interval: [Int32Array, 4],
  float8_e3m4: [Uint8Array, 1],
  float8_e4m3: [Uint8Array, 1],
  float8_e4m3b11fnuz: [Uint8Array, 1],
  float8_e4m3fn: [Uint8Array, 1],
  float8_e4m3fnuz: [Uint8Array, 1],
  float8_e5m2: [Uint8Array, 1],
  float8_e5m2fnuz: [Uint8Array, 1],
  float8_e8m0fnu: [Uint8Array, 1],
  float6_e2m3fn: [Uint8Array, 1],
  float6_e3m2fn: [Uint8Array, 1],
  float4_e2m1fn: [Uint8Array, 1]
}
// Bits of packed elements; typed arrays have their bytes.
const PACKED = { float6_e2m3fn: 6, float6_e3m2fn: 6, float4_e2m1fn: 4 }
const OFFSET_ARRAYS = {
  utf8: Int32Array,
  binary: Int32Array,
  large_utf8: BigInt64Array,
  large_binary: BigInt64Array,
  list: Int32Array,
  map: Int32Array,
  large_list: BigInt64Array
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
  if (FIXED[name]) [dtype.array, dtype.stride] = FIXED[name]
  dtype.packed = PACKED[name]
  if (name === 'fixed_binary') [dtype.array, dtype.stride] = [Uint8Array, dtype.size]
  dtype.offsets = OFFSET_ARRAYS[name]
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
