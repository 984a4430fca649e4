'use strict'
// Shared columns on a GPU as classes of @rapidsai/cuda and @rapidsai/cudf. The caller passes these modules, so that
// this package does not depend on them. Their addons accept as memory an object with numbers `ptr` and `byteLength`.

const { classes } = require('./errors.cjs')
const { parseDtype, dtypeOf } = require('./dtypes.cjs')

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
async function toBuffer (object, cuda) {
  const { dtype, length } = object
  const Buffer = cuda[BUFFERS[dtype]]
  const place = memory(object.deviceData)
  if (!place) throw unsupported(`"${object.name}" is not on a GPU`)
  if (!Buffer) throw unsupported(`@rapidsai/cuda has no array of ${dtype ?? object.kind}`)
  if (object.deviceMask) throw unsupported(`"${object.name}" has nulls, which a typed array lacks: use toSeries()`)
  await object.ready()
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
    return await made.seal({ stream: 0n }) // the copy is in the default stream, and may not be done
  } finally {
    made.release({ stream: 0n })
  }
}

/** A column of libcudf, which copies the buffers on the GPU. */
function columnOf (cudf, { dtype, data, nullMask, offsets, offset, length, nullCount, children }, path) {
  const { name, unit } = parseDtype(dtype)
  const props = { offset, length, nullMask: memory(nullMask), nullCount: nullCount < 0 ? undefined : nullCount }
  const type = TYPES[name] ?? (name === 'timestamp' ? UNITS[unit] : undefined)
  if (type) return new cudf.Column({ ...props, type: new cudf[type](), data: memory(data) })
  const starts = () =>
    new cudf.Column({ type: new cudf.Int32(), length: offset + length + 1, data: memory(offsets) })
  if (name === 'utf8') {
    return new cudf.Column({ ...props, type: new cudf.Utf8String(), data: memory(data), children: [starts()] })
  }
  throw unsupported(`column "${path}" is ${dtype}, for which cudf has no type here` +
    (name === 'bool' ? ': publish it as bool8, with a byte for each element' : ''))
}

/** A Series of @rapidsai/cudf with the column's content, which it copies on the GPU. */
async function toSeries (column, cudf) {
  const described = column.deviceDescriptor()
  await column.ready()
  return cudf.Series.new(columnOf(cudf, described, column.columnName ?? column.name))
}

/** A DataFrame of @rapidsai/cudf with the table's columns, or those that are named. */
async function toDataFrame (table, cudf, names = table.columnNames) {
  const series = {}
  for (const name of names) {
    const column = table.column(name)
    try {
      series[name] = await toSeries(column, cudf)
    } finally {
      column.release()
    }
  }
  return new cudf.DataFrame(series)
}

module.exports = { toBuffer, putBuffer, toSeries, toDataFrame }
