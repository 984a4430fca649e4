'use strict'
// Elements of columns and arrays as values of JavaScript, without apache-arrow.

const { parseDtype } = require('./dtypes.cjs')
const { classes } = require('./errors.cjs')

const DAY_MS = 86_400_000
const decoder = new TextDecoder()
const float = new Float32Array(1)
const bits = new Uint32Array(float.buffer)

function halfFloat (half) {
  const sign = half & 0x8000 ? -1 : 1
  const exponent = half >> 10 & 0x1f
  const fraction = half & 0x3ff
  if (exponent === 0x1f) return fraction ? NaN : sign * Infinity
  return sign * (exponent ? (1024 + fraction) * 2 ** (exponent - 25) : fraction * 2 ** -24)
}

function brainFloat (word) {
  bits[0] = word << 16
  return float[0]
}

/** The signed number of 128 bits in four words, as text with `scale` digits after the point. */
function decimal (words, at, scale) {
  let number = 0n
  for (let i = 3; i >= 0; i--) number = number << 32n | BigInt(words[at + i])
  number = BigInt.asIntN(128, number)
  const digits = String(number < 0n ? -number : number).padStart(scale + 1, '0')
  const whole = digits.slice(0, digits.length - Math.max(scale, 0)) + '0'.repeat(Math.max(-scale, 0))
  return (number < 0n ? '-' : '') + whole + (scale > 0 ? '.' + digits.slice(-scale) : '')
}

function monthDayNano (words, at) {
  return [words[at], words[at + 1], BigInt.asIntN(64, BigInt(words[at + 3]) << 32n | BigInt(words[at + 2] >>> 0))]
}

/** For dtypes of a fixed width: a function of (values, index of the element's first part) to the element. */
const FIXED = {
  bool8: (values, i) => values[i] !== 0,
  float16: (values, i) => halfFloat(values[i]),
  bfloat16: (values, i) => brainFloat(values[i]),
  complex64: (values, i) => [values[i], values[i + 1]],
  complex128: (values, i) => [values[i], values[i + 1]],
  date32: (values, i) => new Date(values[i] * DAY_MS),
  date64: (values, i) => new Date(Number(values[i])),
  day_time_interval: (values, i) => [values[i], values[i + 1]],
  month_day_nano_interval: monthDayNano
}
for (const name of ['int8', 'int16', 'int32', 'int64', 'uint8', 'uint16', 'uint32', 'uint64', 'float32', 'float64',
  'time32', 'time64', 'duration', 'month_interval']) FIXED[name] = (values, i) => values[i]
const UNITS = { s: value => new Date(Number(value) * 1000), ms: value => new Date(Number(value)) }

function fixed ({ name, unit, scale, stride }, text) {
  if (name === 'timestamp') {
    const make = UNITS[unit] // finer units do not fit into a Date
    return make ? (values, i) => make(values[i]) : (values, i) => values[i]
  }
  if (name === 'decimal128') return (values, i) => decimal(values, i, scale)
  if (name === 'fixed_binary') return (values, i) => values.subarray(i, i + stride)
  if (FIXED[name]) return FIXED[name]
  throw new classes.UnsupportedError(`JavaScript has no value for an element of ${text}: use \`values\``, 'unsupported',
    -32010)
}

/** The numbers of what an element of a column has: from `begin` up to `end`. They may be anybody's. */
function within (begin, end, length, column) {
  if (begin >= 0 && begin <= end && end <= length) return [Number(begin), Number(end)]
  throw new classes.InvalidError(
    `${column}: an element from ${begin} to ${end} is not within 0 to ${length}`, 'invalid', -32602)
}

/** The children, each { name, length, read }. */
function childReaders (column) {
  return column.children.map(child => {
    const reader = { name: child.columnName, length: child.length, read: readColumn(child) }
    child.release() // the arrays of `read` hold the lease
    return reader
  })
}

function readItems (column, { name, size, offsets: hasOffsets }) {
  const [items] = childReaders(column)
  const { offsets, name: of } = column
  const list = hasOffsets
    ? i => range(items, ...within(offsets[i], offsets[i + 1], items.length, of))
    : i => range(items, i * size, (i + 1) * size)
  return name === 'map' ? i => new Map(list(i).map(entry => Object.values(entry))) : list
}

function range (items, begin, end) {
  return Array.from({ length: end - begin }, (_, k) => items.read(begin + k))
}

function readPresent (column, dtype) {
  const { name, array, stride, strings, offsets: hasOffsets } = dtype
  if (array) {
    const make = fixed(dtype, column.dtype)
    const values = column.values
    return i => make(values, i * stride)
  }
  if (name === 'bool') {
    const { values, bitOffset } = column
    return i => (values[bitOffset + i >> 3] >> (bitOffset + i & 7) & 1) === 1
  }
  if (strings) {
    const { values, offsets } = column
    const { name: of } = column
    const bytes = i => values.subarray(...within(offsets[i], offsets[i + 1], values.length, of))
    return name.endsWith('utf8') ? i => decoder.decode(bytes(i)) : bytes
  }
  if (hasOffsets || name === 'fixed_list') return readItems(column, dtype)
  if (name === 'struct') {
    const fields = childReaders(column)
    return i => Object.fromEntries(fields.map(field => [field.name, field.read(i)]))
  }
  if (name === 'dictionary') {
    const [indices, values] = childReaders(column)
    const { name: of } = column
    return i => {
      const index = indices.read(i)
      return index === null ? null : values.read(within(index, index, values.length - 1, of)[0])
    }
  }
  return () => null // of type null
}

/** A function of an index, from 0 on, to the element of a host column: null where it is not valid. */
function readColumn (column) {
  const dtype = parseDtype(column.dtype)
  const { mask, bitOffset } = column
  const read = readPresent(column, dtype)
  return mask ? i => mask[bitOffset + i >> 3] >> (bitOffset + i & 7) & 1 ? read(i) : null : read
}

/** The same for a host array, by the number of the element in C order. */
function readArray (array) {
  const dtype = parseDtype(array.dtype)
  if (dtype.packed || !array.isContiguous) {
    throw new classes.UnsupportedError(dtype.packed
      ? `an element of ${array.dtype} has less than a byte: use \`values\``
      : 'the array has gaps between its elements: use `values` and `strides`', 'unsupported', -32010)
  }
  const make = fixed(dtype, array.dtype)
  const { values, mask, maskOffset } = array
  const read = i => make(values, i * dtype.stride)
  return mask ? i => mask[maskOffset + i >> 3] >> (maskOffset + i & 7) & 1 ? read(i) : null : read
}

module.exports = { readColumn, readArray }
