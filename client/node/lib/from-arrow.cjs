'use strict'
// Arrow's vectors and tables, and typed arrays, as a column's layout and the pieces to copy into it.
//
// They are recognized by their members, not by `instanceof`: the program may have another copy of apache-arrow. The
// chunks of a vector become one column. See to-arrow.cjs for the meaning of Data's `offset`.

const { dtypeOf, DATA, MASK, OFFSETS } = require('./dtypes.cjs')

// apache-arrow's Type.
const DICTIONARY = -1
const NULL = 1
const INT = 2
const FLOAT = 3
const BINARY = 4
const UTF8 = 5
const BOOL = 6
const DECIMAL = 7
const DATE = 8
const TIME = 9
const TIMESTAMP = 10
const INTERVAL = 11
const INTERVALS = ['month_interval', 'day_time_interval', 'month_day_nano_interval']
const LIST = 12
const STRUCT = 13
const FIXED_BINARY = 15
const FIXED_LIST = 16
const MAP = 17
const DURATION = 18
const LARGE_BINARY = 19
const LARGE_UTF8 = 20

const UNITS = ['s', 'ms', 'us', 'ns']
const FLOATS = ['float16', 'float32', 'float64']

function isVector (value) {
  return typeof value === 'object' && value !== null && Array.isArray(value.data) &&
    typeof value.type?.typeId === 'number' && typeof value.length === 'number'
}

/** Whether a value is a table or a record batch. */
function isTable (value) {
  return typeof value === 'object' && value !== null && Array.isArray(value.schema?.fields) &&
    typeof value.getChildAt === 'function' && typeof value.numRows === 'number'
}

function dtypeName (type) {
  switch (type.typeId) {
    case DICTIONARY: return 'dictionary'
    case NULL: return 'null'
    case INT: return `${type.isSigned ? '' : 'u'}int${type.bitWidth}`
    case FLOAT: return FLOATS[type.precision]
    case BINARY: return 'binary'
    case UTF8: return 'utf8'
    case BOOL: return 'bool'
    case DECIMAL: return type.bitWidth === 128 ? `decimal128(${type.precision},${type.scale})` : undefined
    case DATE: return type.unit === 0 ? 'date32' : 'date64'
    case TIME: return `time${type.bitWidth}[${UNITS[type.unit]}]`
    case TIMESTAMP: return `timestamp[${UNITS[type.unit]}${type.timezone ? ',' + type.timezone : ''}]`
    case INTERVAL: return INTERVALS[type.unit]
    case LIST: return 'list'
    case MAP: return 'map'
    case STRUCT: return 'struct'
    case FIXED_BINARY: return `fixed_binary(${type.byteWidth})`
    case FIXED_LIST: return `fixed_list(${type.listSize})`
    case DURATION: return `duration[${UNITS[type.unit]}]`
    case LARGE_BINARY: return 'large_binary'
    case LARGE_UTF8: return 'large_utf8'
  }
  return undefined
}

function refused (type, name) {
  return new TypeError(`${name ? `column "${name}": ` : ''}the Arrow type ${type} cannot be shared: cast it`)
}

/** Copies `count` bits. */
function copyBits (to, toBit, from, fromBit, count) {
  let done = 0
  if (toBit % 8 === 0) {
    const shift = fromBit % 8
    const source = fromBit >>> 3
    const target = toBit >>> 3
    const whole = count >>> 3
    if (shift === 0) {
      to.set(from.subarray(source, source + whole), target)
    } else {
      for (let i = 0; i < whole; i++) {
        to[target + i] = from[source + i] >> shift | from[source + i + 1] << (8 - shift)
      }
    }
    done = whole * 8
  }
  for (; done < count; done++) {
    if (from[(fromBit + done) >>> 3] >> ((fromBit + done) & 7) & 1) {
      to[(toBit + done) >>> 3] |= 1 << ((toBit + done) & 7)
    } else {
      to[(toBit + done) >>> 3] &= ~(1 << ((toBit + done) & 7))
    }
  }
}

function setBits (to, bit, count) {
  for (; count > 0 && bit % 8; bit++, count--) to[bit >>> 3] |= 1 << (bit & 7)
  to.fill(255, bit >>> 3, (bit >>> 3) + (count >>> 3))
  bit += count & ~7
  for (let i = 0; i < (count & 7); i++, bit++) to[bit >>> 3] |= 1 << (bit & 7)
}

/** The validity bitmap of all chunks, or undefined where nothing is null. */
function gatherMask (chunks, length, nulls) {
  if (nulls === 0) return undefined
  const mask = new Uint8Array((length + 7) >>> 3)
  let at = 0
  for (const chunk of chunks) {
    const bitmap = chunk.nullBitmap
    if (chunk.nullCount > 0 && bitmap?.length) copyBits(mask, at, bitmap, chunk.offset, chunk.length)
    else setBits(mask, at, chunk.length)
    at += chunk.length
  }
  return mask
}

/** { parts: [at, view] of each view, one after the other; bytes: of all }. */
function pieces (views) {
  const parts = []
  let at = 0
  for (const view of views) {
    if (view.byteLength === 0) continue
    parts.push([at, view])
    at += view.byteLength
  }
  return { parts, bytes: at }
}

function gatherBits (chunks, length) {
  const bits = new Uint8Array((length + 7) >>> 3)
  let at = 0
  for (const chunk of chunks) {
    copyBits(bits, at, chunk.values, chunk.offset, chunk.length)
    at += chunk.length
  }
  return bits
}

/** The offsets of all chunks, joined; and for each chunk the stretch [from, to) of its items or characters. */
function gatherOffsets (chunks, length, Type) {
  const zero = Type === BigInt64Array ? 0n : 0
  const offsets = new Type(length + 1)
  const stretches = []
  let at = 0
  let total = zero
  for (const chunk of chunks) {
    const given = chunk.valueOffsets
    if (chunk.length === 0) {
      stretches.push([0, 0])
      continue
    }
    const first = given[0]
    for (let i = 0; i <= chunk.length; i++) offsets[at + i] = given[i] - first + total
    stretches.push([Number(first), Number(given[chunk.length])])
    total = offsets[at + chunk.length]
    at += chunk.length
    if (Type === Int32Array && total < 0) {
      throw new RangeError('the chunks together have 2^31 items or more: publish fewer at a time, or a large type')
    }
  }
  return { offsets, stretches }
}

/** The indices of chunks, whose dictionaries may differ, and one dictionary for all. */
function gatherDictionary (type, chunks) {
  const own = chunk => chunk.values.subarray(0, chunk.length) // the buffer may be longer
  const distinct = []
  for (const chunk of chunks) {
    if (!distinct.includes(chunk.dictionary)) distinct.push(chunk.dictionary)
  }
  // In a file with delta dictionaries they grow: the longest begins with each of the others.
  const longest = distinct.reduce((one, other) => other.length > one.length ? other : one)
  const grown = distinct.every(one => one.data.every((data, i) => sameData(data, longest.data[i])))
  if (grown) return { values: longest.data, indices: chunks.map(own) }

  const { values, renumbered } = mergeDictionaries(distinct)
  const bits = type.indices.bitWidth - (type.indices.isSigned ? 1 : 0)
  const total = values.reduce((sum, { length }) => sum + length, 0)
  if (total > 2 ** Math.min(bits, 53)) {
    throw new RangeError(`the chunks have different dictionaries: ${total} values are too many for their indices`)
  }
  const indices = chunks.map(chunk => {
    const numbers = renumbered.get(chunk.dictionary)
    // An index that is null may be any number.
    return own(chunk).map(typeof chunk.values[0] === 'bigint' ? i => BigInt(numbers[i] ?? 0) : i => numbers[i] ?? 0)
  })
  return { values, indices }
}

/**
 * The values of dictionaries as slices of theirs, each value once (objects, such as binary, once a dictionary); and of
 * each dictionary the numbers that its values have now.
 */
function mergeDictionaries (dictionaries) {
  const numbers = new Map()
  const runs = []
  const renumbered = new Map()
  for (const dictionary of dictionaries) {
    const now = []
    for (const data of dictionary.data) {
      for (let i = 0; i < data.length; i++) {
        const value = dictionary.get(now.length)
        const key = typeof value === 'object' && value !== null ? Symbol('another') : value
        if (!numbers.has(key)) {
          numbers.set(key, numbers.size)
          const last = runs.at(-1)
          if (last?.data === data && last.end === i) last.end++
          else runs.push({ data, begin: i, end: i + 1 })
        }
        now.push(numbers.get(key))
      }
    }
    renumbered.set(dictionary, now)
  }
  return { values: runs.map(({ data, begin, end }) => data.slice(begin, end - begin)), renumbered }
}

function sameData (one, other) {
  return other !== undefined && one.length === other.length && one.values === other.values &&
    one.valueOffsets === other.valueOffsets && one.nullBitmap === other.nullBitmap &&
    one.offset === other.offset && one.children.every((child, i) => sameData(child, other.children[i]))
}

function itemChunks (chunks, stretches) {
  return chunks.map((chunk, i) =>
    chunk.children[0].slice(stretches[i][0], stretches[i][1] - stretches[i][0]))
}

/**
 * { spec, writes, children }: a layout in the form of the addon's create(), pieces [which, offset, view] to copy into
 * it, and the same for each child.
 */
function columnOf (type, chunks, { name, metadata } = {}) {
  const dtype = dtypeName(type)
  if (!dtype) throw refused(type, name)
  const length = chunks.reduce((sum, chunk) => sum + chunk.length, 0)
  const spec = { name, dtype, length, nullCount: 0 }
  const column = { spec, writes: [], children: [] }
  if (metadata?.size) spec.metadata = [...metadata].flat()
  if (type.typeId === NULL) {
    spec.nullCount = length
    return column
  }

  const nulls = chunks.reduce((sum, chunk) => sum + chunk.nullCount, 0)
  spec.nullCount = nulls
  const mask = gatherMask(chunks, length, nulls)
  if (type.typeId === DICTIONARY) {
    addDictionary(column, type, chunks, mask, nulls)
  } else {
    if (mask) {
      spec.mask = true
      column.writes.push([MASK, 0, mask])
    }
    addContent(column, type, chunks)
  }
  if (column.children.length) spec.children = column.children.map(child => child.spec)
  return column
}

function addDictionary (column, type, chunks, mask, nulls) {
  const length = column.spec.length
  const { values, indices } = chunks.length
    ? gatherDictionary(type, chunks)
    : { values: [], indices: [] }
  const spec = { dtype: dtypeName(type.indices), length, nullCount: nulls, mask: mask !== undefined }
  const writes = pieces(indices).parts.map(([at, view]) => [DATA, at, view])
  if (mask) writes.push([MASK, 0, mask])
  column.children = [{ spec, writes, children: [] }, columnOf(type.dictionary, values)]
}

function addContent (column, type, chunks) {
  const { spec, writes } = column
  const { length } = spec
  const add = (which, views) => {
    const { parts, bytes } = pieces(views)
    for (const [at, view] of parts) writes.push([which, at, view])
    return bytes
  }
  switch (type.typeId) {
    case BOOL:
      add(DATA, [gatherBits(chunks, length)])
      return
    case BINARY:
    case UTF8:
    case LARGE_BINARY:
    case LARGE_UTF8: {
      const large = type.typeId === LARGE_BINARY || type.typeId === LARGE_UTF8
      const { offsets, stretches } = gatherOffsets(chunks, length, large ? BigInt64Array : Int32Array)
      add(OFFSETS, [offsets])
      spec.dataBytes = add(DATA, chunks.map((chunk, i) => chunk.values.subarray(...stretches[i])))
      return
    }
    case LIST:
    case MAP: {
      const { offsets, stretches } = gatherOffsets(chunks, length, Int32Array)
      add(OFFSETS, [offsets])
      column.children = [columnOf(type.children[0].type, itemChunks(chunks, stretches), type.children[0])]
      return
    }
    case FIXED_LIST:
      column.children = [columnOf(type.children[0].type, chunks.map(chunk =>
        chunk.children[0].slice(0, chunk.length * type.listSize)), type.children[0])]
      return
    case STRUCT:
      column.children = type.children.map((field, i) => columnOf(field.type, chunks.map(chunk =>
        chunk.children[i].slice(0, chunk.length)), field))
      return
  }
  add(DATA, chunks.map(chunk => chunk.values.subarray(0, chunk.length * chunk.stride)))
}

function ofVector (vector, options) {
  return columnOf(vector.type, vector.data.filter(chunk => chunk.length > 0), options)
}

function ofTypedArray (array, name) {
  const dtype = dtypeOf(array)
  return { spec: { name, dtype, length: array.length, nullCount: 0 }, writes: [[DATA, 0, array]], children: [] }
}

function ofStrings (strings, name) {
  const encoder = new TextEncoder()
  const texts = strings.map(text => encoder.encode(text ?? ''))
  const offsets = new Int32Array(strings.length + 1)
  texts.forEach((text, i) => { offsets[i + 1] = offsets[i] + text.length })
  const data = new Uint8Array(offsets[strings.length])
  texts.forEach((text, i) => data.set(text, offsets[i]))
  const nulls = strings.reduce((sum, text) => sum + (text == null), 0)
  const spec = {
    name, dtype: 'utf8', length: strings.length, nullCount: nulls, mask: nulls > 0, dataBytes: data.length
  }
  const writes = [[OFFSETS, 0, offsets], [DATA, 0, data]]
  if (nulls) writes.push([MASK, 0, bitsOf(strings, text => text != null)])
  return { spec, writes, children: [] }
}

/** For each kind of value in an array: the dtype, and a function to a typed array. */
const PLAIN = {
  number: ['float64', values => Float64Array.from(values, value => value ?? 0)],
  bigint: ['int64', values => BigInt64Array.from(values, value => value ?? 0n)],
  date: ['timestamp[ms]', values => BigInt64Array.from(values, value => BigInt(value?.getTime() ?? 0))],
  boolean: ['bool', values => bitsOf(values, value => value === true)]
}

function kindOf (value) {
  return value instanceof Date && !Number.isNaN(value.getTime()) ? 'date' : typeof value
}

function bitsOf (values, test) {
  const bits = new Uint8Array((values.length + 7) >>> 3)
  values.forEach((value, i) => { if (test(value)) bits[i >>> 3] |= 1 << (i & 7) })
  return bits
}

/** An array of strings, numbers, bigints, booleans or dates, and nulls. */
function ofValues (values, name) {
  const what = name === undefined ? 'the column' : `column "${name}"`
  const kind = kindOf(values.find(value => value != null) ?? '')
  if (kind !== 'string' && !PLAIN[kind]) {
    const it = kind === 'object' ? 'an object' : `a ${kind}`
    throw new TypeError(`${what}: an array with ${it} among its elements cannot be published: make an Arrow vector of it`)
  }
  const odd = values.findIndex(value => value != null && kindOf(value) !== kind)
  if (odd >= 0) throw new TypeError(`${what}: element ${odd} is no ${kind}, unlike those before it`)
  if (kind === 'string') return ofStrings(values, name)
  if (kind === 'bigint' && values.some(value => value != null && BigInt.asIntN(64, value) !== value)) {
    throw new RangeError(`${what}: a bigint does not fit into int64: use a BigUint64Array, or strings`)
  }
  const [dtype, make] = PLAIN[kind]
  const spec = { name, dtype, length: values.length, nullCount: values.reduce((sum, value) => sum + (value == null), 0) }
  const writes = [[DATA, 0, make(values)]]
  if (spec.nullCount) {
    spec.mask = true
    writes.push([MASK, 0, bitsOf(values, value => value != null)])
  }
  return { spec, writes, children: [] }
}

/** The column of an Arrow vector, a typed array, or an array. */
function columnFrom (value, name) {
  if (isVector(value)) return ofVector(value, { name })
  if (dtypeOf(value)) return ofTypedArray(value, name)
  if (Array.isArray(value)) return ofValues(Array.from(value), name) // without holes
  throw new TypeError(`${name === undefined ? 'the column' : `column "${name}"`} is neither a typed ` +
    'array, nor an Arrow vector, nor an array')
}

function tableOf (columns, length, metadata) {
  return {
    kind: 3,
    spec: {
      dtype: undefined, length, children: columns.map(column => column.spec), metadata: metadata && [...metadata].flat()
    },
    writes: [],
    children: columns
  }
}

function ofTable (table) {
  const columns = table.schema.fields.map((field, i) => {
    const child = table.getChildAt(i)
    return columnOf(field.type, child ? child.data.filter(chunk => chunk.length > 0) : [], field)
  })
  return tableOf(columns, table.numRows, table.schema.metadata)
}

/** A table of an object whose members are columns. */
function ofMembers (members) {
  const columns = Object.entries(members).map(([name, value]) => columnFrom(value, name))
  const length = columns[0]?.spec.length ?? 0
  for (const { spec } of columns) {
    if (spec.length !== length) {
      throw new RangeError(`column "${spec.name}" has ${spec.length} elements, the first column ${length}`)
    }
  }
  return tableOf(columns, length)
}

/** A table of rows: objects, whose members are its columns in the order of their first occurrence. A missing one is null. */
function ofRows (rows) {
  const names = new Set(rows.flatMap(row => Object.keys(row)))
  const columns = Array.from(names, name => [name, rows.map(row => Object.hasOwn(row, name) ? row[name] : null)])
  return tableOf(columns.map(([name, values]) => ofValues(values, name)), rows.length)
}

module.exports = { isVector, isTable, columnFrom, ofTable, ofMembers, ofRows }
