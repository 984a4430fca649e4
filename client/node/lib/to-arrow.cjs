'use strict'
// Objects as apache-arrow's vectors and tables, over the same memory.
//
// Arrow JS departs from the format: it applies `offset` to bitmaps alone. So values and offsets are passed as slices,
// and `offset` is the bit of the first element in the first byte of the passed bitmap.

const { parseDtype, bitBytes, DATA, MASK, OFFSETS } = require('./dtypes.cjs')
const { classes } = require('./errors.cjs')

let library

/** Sets the copy of apache-arrow that makes vectors: CommonJS or ES modules, as the program imports this package. */
function setArrow (module) {
  library = module
}

function getArrow () {
  if (library) return library
  try {
    return (library = require('apache-arrow'))
  } catch (error) {
    throw new classes.UnsupportedError(
      'toArrow() needs the package apache-arrow: npm install apache-arrow', 'unsupported', -32010)
  }
}

const UNITS = { s: 0, ms: 1, us: 2, ns: 3 }

const TYPES = {
  bool: arrow => new arrow.Bool(),
  bool8: undefined,
  int8: arrow => new arrow.Int8(),
  int16: arrow => new arrow.Int16(),
  int32: arrow => new arrow.Int32(),
  int64: arrow => new arrow.Int64(),
  uint8: arrow => new arrow.Uint8(),
  uint16: arrow => new arrow.Uint16(),
  uint32: arrow => new arrow.Uint32(),
  uint64: arrow => new arrow.Uint64(),
  float16: arrow => new arrow.Float16(),
  float32: arrow => new arrow.Float32(),
  float64: arrow => new arrow.Float64(),
  utf8: arrow => new arrow.Utf8(),
  large_utf8: arrow => new arrow.LargeUtf8(),
  binary: arrow => new arrow.Binary(),
  large_binary: arrow => new arrow.LargeBinary(),
  fixed_binary: (arrow, { size }) => new arrow.FixedSizeBinary(size),
  date32: arrow => new arrow.DateDay(),
  date64: arrow => new arrow.DateMillisecond(),
  time32: (arrow, { unit }) => new arrow.Time(UNITS[unit], 32),
  time64: (arrow, { unit }) => new arrow.Time(UNITS[unit], 64),
  timestamp: (arrow, { unit, zone }) => new arrow.Timestamp(UNITS[unit], zone),
  duration: (arrow, { unit }) => new arrow.Duration(UNITS[unit]),
  decimal128: (arrow, { precision, scale }) => new arrow.Decimal(scale, precision, 128),
  month_interval: arrow => new arrow.IntervalYearMonth(),
  day_time_interval: arrow => new arrow.IntervalDayTime(),
  month_day_nano_interval: arrow => new arrow.IntervalMonthDayNano(),
  null: arrow => new arrow.Null()
}

/** The plan of a column: the needed buffers, as [which, typed array, from, count], and its children's plans. */
function plan (column) {
  const { dtype: text, offset, length } = column._info
  const dtype = parseDtype(text)
  const node = { column, dtype, length, bit: offset % 8, needs: {}, children: [] }
  if (dtype.array) {
    node.needs.data = [DATA, dtype.array, offset * dtype.stride, length * dtype.stride]
  } else if (dtype.name === 'bool') {
    node.needs.data = [DATA, Uint8Array, Math.floor(offset / 8), bitBytes(offset, length)]
  } else if (dtype.strings) {
    node.needs.data = [DATA, Uint8Array, 0, column._bytes(DATA)]
  }
  if (dtype.offsets) node.needs.offsets = [OFFSETS, dtype.offsets, offset, length + 1]
  if (column._bytes(MASK) > 0) {
    node.needs.mask = [MASK, Uint8Array, Math.floor(offset / 8), bitBytes(offset, length)]
  }
  node.children = Array.from({ length: column.childCount }, (_, i) => plan(column.child(i)))
  return node
}

function planArray (array) {
  if (!array.isContiguous) {
    throw new classes.UnsupportedError('the array has gaps between its elements, which Arrow does not allow', 'unsupported', -32010)
  }
  const dtype = parseDtype(array.dtype)
  const { offset } = array._info
  const length = array.size
  const node = { column: array, dtype, length, bit: offset % 8, needs: {}, children: [] }
  node.needs.data = [DATA, dtype.array, 0, array._bytes(DATA) / dtype.array.BYTES_PER_ELEMENT]
  if (array._bytes(MASK) > 0) {
    node.needs.mask = [MASK, Uint8Array, Math.floor(offset / 8), bitBytes(offset, length)]
  }
  return node
}

/** Data of an array in C order: each axis but the first becomes a list of fixed size. */
function makeAxes (arrow, node, shape) {
  let data = makeData(arrow, node)
  for (let i = shape.length - 1; i > 0; i--) {
    const item = arrow.Field.new({ name: 'item', type: data.type, nullable: data.nullCount !== 0 })
    data = arrow.makeData({
      type: new arrow.FixedSizeList(shape[i], item), nullCount: 0, child: data,
      length: shape.slice(0, i).reduce((product, extent) => product * extent, 1)
    })
  }
  return data
}

function planBytes (bytes) {
  const dtype = parseDtype('uint8')
  return {
    column: bytes, dtype, length: bytes.length, bit: 0, children: [],
    needs: { data: [DATA, Uint8Array, 0, bytes.length] }
  }
}

function fetchNow (node) {
  for (const [name, need] of Object.entries(node.needs)) node[name] = node.column._typed(...need)
  node.children.forEach(fetchNow)
}

async function fetchAway (node, signal) {
  await Promise.all([
    ...Object.entries(node.needs).map(async ([name, need]) => {
      node[name] = await node.column._read(...need, signal)
    }),
    ...node.children.map(child => fetchAway(child, signal))
  ])
}

function misled (column, what) {
  return new classes.InvalidError(
    `another user wrote "${column.name}", and ${what} of ${column.columnName ?? column.dtype} leads outside of it`,
    'invalid', -32602)
}

/** Copies and checks what a reader follows in another user's memory: bitmaps, offsets, codes of dictionaries. */
function secure (node) {
  const { column, dtype, children } = node
  if (!column._info.foreign) return
  children.forEach(secure)
  node.mask &&= node.mask.slice()
  if (node.offsets) {
    node.offsets = node.offsets.slice()
    const limit = dtype.strings ? node.data?.length ?? 0 : children[0].length
    let before = 0
    for (const offset of node.offsets) {
      if (offset < before || offset > limit) throw misled(column, `offset ${offset}`)
      before = offset
    }
  }
  if (dtype.name === 'dictionary') secureCodes(node)
}

function secureCodes ({ column, children: [indices, values] }) {
  const { mask, bit } = indices
  const codes = indices.data = indices.data?.slice()
  codes?.forEach((code, i) => {
    if (code >= 0 && code < values.length) return
    if (!mask || mask[bit + i >> 3] >> (bit + i & 7) & 1) throw misled(column, `code ${code}`)
    codes[i] = typeof code === 'bigint' ? 0n : 0 // of a null
  })
}

/** Releases the views that were made for the plan. */
function releaseChildren (node) {
  for (const child of node.children) {
    releaseChildren(child)
    child.column.release()
  }
}

function field (arrow, node, data) {
  const { columnName, metadata } = node.column
  const nullable = node.mask !== undefined || node.dtype.name === 'null' ||
    (node.dtype.name === 'dictionary' && node.children[0].mask !== undefined)
  return arrow.Field.new({
    name: columnName ?? 'item', type: data.type, nullable, metadata: metadata ?? new Map()
  })
}

/** The type of a map. Its entries and keys are not nullable, whatever their masks. */
function mapType (arrow, { type: { children: [key, value] } }) {
  const entries = new arrow.Struct([key.clone({ nullable: false }), value])
  return new arrow.Map_(arrow.Field.new({ name: 'entries', type: entries, nullable: false }))
}

/** -1: apache-arrow counts them, since another user's number need not be theirs. */
function nullCount ({ mask, column }) {
  if (!mask) return 0
  return column._info.foreign ? -1 : column.nullCount
}

function makeData (arrow, node) {
  const { dtype, length, mask } = node
  const props = { length, offset: node.bit, nullCount: nullCount(node) }
  if (mask) props.nullBitmap = mask
  switch (dtype.name) {
    case 'null':
      return arrow.makeData({ type: new arrow.Null(), length })
    case 'struct': {
      const children = node.children.map(child => makeData(arrow, child))
      const fields = children.map((data, i) => field(arrow, node.children[i], data))
      return arrow.makeData({ ...props, type: new arrow.Struct(fields), children })
    }
    case 'list':
    case 'map':
    case 'fixed_list': {
      const child = makeData(arrow, node.children[0])
      const item = field(arrow, node.children[0], child)
      if (dtype.name === 'list') {
        return arrow.makeData({
          ...props, type: new arrow.List(item), valueOffsets: node.offsets ?? new Int32Array(1), child
        })
      }
      if (dtype.name === 'map') {
        return arrow.makeData({ ...props, type: mapType(arrow, child), valueOffsets: node.offsets ?? new Int32Array(1), child })
      }
      return arrow.makeData({ ...props, type: new arrow.FixedSizeList(dtype.size, item), child })
    }
    case 'dictionary':
      return makeDictionary(arrow, node)
  }
  const type = TYPES[dtype.name]?.(arrow, dtype)
  if (!type) {
    throw new classes.UnsupportedError(
      `apache-arrow has no type for ${node.column.dtype}`, 'unsupported', -32010)
  }
  props.type = type
  props.data = node.data ?? new (dtype.array ?? Uint8Array)(0)
  if (dtype.strings) props.valueOffsets = node.offsets ?? new dtype.offsets(1)
  return arrow.makeData(props)
}

function makeDictionary (arrow, node) {
  const [indices, values] = node.children
  const dictionary = arrow.makeVector(makeData(arrow, values))
  const type = new arrow.Dictionary(dictionary.type, TYPES[indices.dtype.name](arrow, indices.dtype))
  const props = {
    type, dictionary, length: node.length, offset: indices.bit,
    nullCount: nullCount(indices), data: indices.data
  }
  if (indices.mask) props.nullBitmap = indices.mask
  return arrow.makeData(props)
}

function makeTable (arrow, table, nodes) {
  const children = nodes.map(node => makeData(arrow, node))
  const fields = children.map((data, i) => field(arrow, nodes[i], data))
  const schema = new arrow.Schema(fields, table.metadata)
  const data = arrow.makeData({
    type: new arrow.Struct(fields), length: table.length, nullCount: 0, children
  })
  return new arrow.Table(schema, [new arrow.RecordBatch(schema, data)])
}

function planOf (object) {
  switch (object.kind) {
    case 'table': return object.columns.map(plan)
    case 'column': return [plan(object)]
    case 'array': return [planArray(object)]
    case 'bundle':
      throw new classes.UnsupportedError('a bundle is no Arrow array: its bytes are a safetensors file', 'unsupported', -32010)
    default: return [planBytes(object)]
  }
}

function build (object, nodes) {
  const arrow = getArrow()
  if (object.kind === 'table') return makeTable(arrow, object, nodes)
  return arrow.makeVector(makeAxes(arrow, nodes[0], object.kind === 'array' ? object.shape : []))
}

function end (object, nodes) {
  nodes.forEach(releaseChildren)
  if (object.kind === 'table') nodes.forEach(node => node.column.release())
}

function toArrow (object) {
  const nodes = planOf(object)
  try {
    nodes.forEach(fetchNow)
    nodes.forEach(secure)
    return build(object, nodes)
  } finally {
    end(object, nodes)
  }
}

async function toHost (object, signal) {
  const nodes = planOf(object)
  try {
    await Promise.all(nodes.map(node => fetchAway(node, signal)))
    nodes.forEach(secure)
    return build(object, nodes)
  } finally {
    end(object, nodes)
  }
}

module.exports = { toArrow, toHost, setArrow, getArrow }
