'use strict'
// Shared columns on a GPU as classes of @rapidsai/cuda and @rapidsai/cudf, 22.12 and 26.4. The caller passes these modules,
// so that this package does not depend on them. Their addons accept as memory an object with numbers `ptr` and `byteLength`.

const { classes } = require('./errors.cjs')
const { optionsOf } = require('./requests.cjs')
const { parseDtype, dtypeOf, bitBytes, MASK } = require('./dtypes.cjs')

const BUFFERS = {
  int8: 'Int8Buffer',
  int16: 'Int16Buffer',
  int32: 'Int32Buffer',
  int64: 'Int64Buffer',
  uint8: 'Uint8Buffer',
  uint16: 'Uint16Buffer',
  uint32: 'Uint32Buffer',
  uint64: 'Uint64Buffer',
  float32: 'Float32Buffer',
  float64: 'Float64Buffer'
}
const TYPES = {
  int8: 'Int8',
  int16: 'Int16',
  int32: 'Int32',
  int64: 'Int64',
  uint8: 'Uint8',
  uint16: 'Uint16',
  uint32: 'Uint32',
  uint64: 'Uint64',
  float32: 'Float32',
  float64: 'Float64',
  bool8: 'Bool8',
  date32: 'TimestampDay'
}
const UNITS = { s: 'TimestampSecond', ms: 'TimestampMillisecond', us: 'TimestampMicrosecond', ns: 'TimestampNanosecond' }

function unsupported (text) {
  return new classes.UnsupportedError(text, 'unsupported', -32010)
}

/** A buffer in the form of @rapidsai's addons; undefined: there is none. */
function memory (buffer) {
  return buffer && { ptr: Number(buffer.ptr), byteLength: buffer.byteLength, device: buffer.device, uuid: buffer.uuid }
}

/**
 * A typed array of @rapidsai/cuda (`Float64Buffer` …) over an array or a column without nulls: no copy is made. It is
 * for reading, and keeps the object from being collected; release() ends the lease all the same.
 */
async function toBuffer (object, cuda, options) {
  const { signal } = optionsOf(options, ['signal'])
  const { dtype, length } = object
  const Buffer = cuda[BUFFERS[dtype]]
  const place = memory(object.deviceData)
  if (!place) throw unsupported(`"${object.name}" is not on a GPU`)
  if (!Buffer) throw unsupported(`@rapidsai/cuda has no array of ${dtype ?? object.kind}`)
  if (object.deviceMask) throw unsupported(`"${object.name}" has nulls, which a typed array lacks: use toSeries()`)
  await object.ready({ signal })
  const at = object.kind === 'column' ? object.deviceDescriptor().offset * Buffer.BYTES_PER_ELEMENT : 0
  const count = object.kind === 'column' ? length : place.byteLength / Buffer.BYTES_PER_ELEMENT
  object._keep(place)
  return new Buffer(place, at, count)
}

/**
 * Publishes a typed array of @rapidsai/cuda as an array on its GPU, by a copy there; resolves with the version. Memory
 * made by @rapidsai gives its GPU in this process' numbering. If the daemon numbers GPUs differently, name it by
 * `device`.
 */
async function putBuffer (client, name, view, cuda, options) {
  const dtype = dtypeOf(new view.TypedArray(0))
  const layout = { kind: 'array', dtype, shape: [view.length] }
  const made = await client.create(name, layout, { device: view.buffer.uuid ?? `cuda:${view.buffer.device ?? 0}`, ...options })
  try {
    if (view.length > 0) new cuda[BUFFERS[dtype]](memory(made.deviceData)).copyFrom(view)
    return await made.seal({ stream: 0n, signal: options?.signal }) // the copy is in the default stream, and may not be done
  } finally {
    made.release({ stream: 0n })
  }
}

/**
 * The number of nulls. The daemon does not know that of a slice, and 26.4 would count from the first bit of the mask on,
 * whatever the offset: then it is counted here, from a copy of the bits.
 */
async function countNulls (column, signal) {
  const { nullCount, offset, length } = column
  if (nullCount >= 0) return nullCount
  const bits = await column._read(MASK, Uint8Array, offset >>> 3, bitBytes(offset, length), signal)
  const first = offset % 8
  let valid = 0
  for (let i = first; i < first + length; i++) valid += bits[i >>> 3] >>> (i & 7) & 1
  return length - valid
}

const apart = new WeakMap()

/** Whether text has its characters in a second child, as before 26.4: that is how the module makes text itself. */
function hasCharsApart (cudf) {
  if (!apart.has(cudf)) {
    const text = cudf.Series.new([''])
    apart.set(cudf, text._col.numChildren > 1)
    text.dispose()
  }
  return apart.get(cudf)
}

/** A column of text: an offset more than there are elements, and the characters. */
function textOf (cudf, column, props) {
  const [data, offsets] = [memory(column.deviceData), memory(column.deviceOffsets)]
  const starts = offsets ? column.offset + column.length + 1 : 0
  const children = [new cudf.Column({ type: new cudf.Int32(), length: starts, data: offsets })]
  if (!hasCharsApart(cudf)) return new cudf.Column({ ...props, type: new cudf.Utf8String(), data, children })
  children.push(new cudf.Column({ type: new cudf.Uint8(), length: data?.byteLength ?? 0, data }))
  return new cudf.Column({ ...props, type: new cudf.Utf8String(), children })
}

/** Categories: codes of the type that the module wants, which has changed, and the values. */
async function categoriesOf (cudf, column, path, signal) {
  const [indices, values] = column.children
  try {
    const categories = await columnOf(cudf, values, path, signal)
    const type = new cudf.Categorical(categories.type)
    const codes = (await columnOf(cudf, indices, path, signal)).cast(type.indices)
    const props = { length: column.length, nullMask: codes.mask, nullCount: codes.nullCount }
    return new cudf.Column({ ...props, type, children: [codes, categories] })
  } finally {
    indices.release()
    values.release()
  }
}

/** A column of libcudf, which copies the buffers on the GPU. */
async function columnOf (cudf, column, path, signal) {
  const { dtype, offset, length } = column
  const { name, unit } = parseDtype(dtype)
  if (name === 'dictionary') return categoriesOf(cudf, column, path, signal)
  const props = { offset, length, nullMask: memory(column.deviceMask), nullCount: await countNulls(column, signal) }
  if (name === 'utf8') return textOf(cudf, column, props)
  const type = TYPES[name] ?? (name === 'timestamp' ? UNITS[unit] : undefined)
  if (type) return new cudf.Column({ ...props, type: new cudf[type](), data: memory(column.deviceData) })
  throw unsupported(`column "${path}" is ${dtype}, for which cudf has no type here` +
    (name === 'bool' ? ': publish it as bool8, with a byte for each element' : ''))
}

/** A Series of @rapidsai/cudf with the column's content, which it copies on the GPU. */
async function toSeries (column, cudf, options) {
  const { signal } = optionsOf(options, ['signal'])
  if (column.device === 'host') throw unsupported(`"${column.name}" is not on a GPU`)
  await column.ready({ signal })
  return cudf.Series.new(await columnOf(cudf, column, column.columnName ?? column.name, signal))
}

/** A DataFrame of @rapidsai/cudf with the table's columns, or those that are named. */
async function toDataFrame (table, cudf, names = table.columnNames, options = undefined) {
  const series = {}
  for (const name of names) {
    const column = table.column(name)
    try {
      series[name] = await toSeries(column, cudf, options)
    } finally {
      column.release()
    }
  }
  return new cudf.DataFrame(series)
}

module.exports = { toBuffer, putBuffer, toSeries, toDataFrame }
