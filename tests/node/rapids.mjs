// Stand-ins for what client/node/lib/rapids.cjs uses of @rapidsai/cuda and @rapidsai/cudf (which want a GPU and
// libcudf): their public classes with the checks that theirs make, from the sources of rapidsai/node.

const isMemory = value => typeof value?.ptr === 'number' && typeof value.byteLength === 'number'

const copies = []

class MemoryView {
  constructor (buffer, byteOffset = 0, length = buffer.byteLength / new.target.BYTES_PER_ELEMENT) {
    if (!isMemory(buffer)) throw new TypeError('neither memory nor an array')
    Object.assign(this, { buffer, byteOffset, length, byteLength: length * new.target.BYTES_PER_ELEMENT })
    if (byteOffset + this.byteLength > buffer.byteLength) throw new RangeError('past the end of the memory')
  }

  get TypedArray () { return this.constructor.TypedArray }
  copyFrom (source) {
    copies.push({ to: this.buffer.ptr + this.byteOffset, from: source.buffer.ptr + source.byteOffset, bytes: source.byteLength })
    return this
  }
}

export const cuda = { copies }
for (const Type of [Int8Array, Int16Array, Int32Array, BigInt64Array, Uint8Array, Uint16Array, Uint32Array,
  BigUint64Array, Float32Array, Float64Array]) {
  const name = Type.name.replace(/^Big|Array$/g, '') + 'Buffer'
  cuda[name] = { [name]: class extends MemoryView {
    static TypedArray = Type
    static BYTES_PER_ELEMENT = Type.BYTES_PER_ELEMENT
  } }[name]
}

class Column {
  constructor ({ type, data, nullMask, offset = 0, length, nullCount, children = [] }) {
    for (const memory of [data, nullMask]) {
      if (memory !== undefined && !isMemory(memory)) throw new TypeError('neither memory nor a buffer')
    }
    if (!children.every(child => child instanceof Column)) throw new TypeError('a child is no column')
    if (type.bytes && length && data.byteLength < (offset + length) * type.bytes) throw new RangeError('past the end of the memory')
    Object.assign(this, { type, data, mask: nullMask, offset, length, nullCount, children, numChildren: children.length })
  }

  cast (type) {
    const [data, nullMask] = [this.length * type.bytes, this.mask && 64].map(byteLength => byteLength && { ptr: 1, byteLength })
    return new Column({ type, data, nullMask, length: this.length, nullCount: this.nullCount })
  }
}

class Series {
  static new (column) {
    if (Array.isArray(column)) column = new Column({ type: new cudf.Utf8String(), length: column.length, children: [new Column({ type: new cudf.Int32(), length: 0 })] })
    if (!(column instanceof Column)) throw new TypeError('not a column')
    return Object.assign(new Series(), { _col: column, type: column.type, length: column.length, dispose () {} })
  }
}

class DataFrame {
  constructor (series) {
    const lengths = new Set(Object.values(series).map(one => one.length))
    if (lengths.size > 1) throw new RangeError('columns of several lengths')
    this.names = Object.keys(series)
    this.get = name => series[name]
  }
}

class Categorical {
  constructor (dictionary) { Object.assign(this, { dictionary, indices: new cudf.Int32() }) }
}

export const cudf = { Column, Series, DataFrame, Categorical }
const BYTES = { Int8: 1, Int16: 2, Int32: 4, Int64: 8, Uint8: 1, Uint16: 2, Uint32: 4, Uint64: 8, Float32: 4, Float64: 8, Bool8: 1,
  Utf8String: 0, TimestampDay: 4, TimestampSecond: 8, TimestampMillisecond: 8, TimestampMicrosecond: 8, TimestampNanosecond: 8 }
for (const [name, bytes] of Object.entries(BYTES)) cudf[name] = { [name]: class { bytes = bytes } }[name]
