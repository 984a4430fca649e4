// Arrow both ways: no copy, every type, nulls, chunks; and the same bytes for the C library.

import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import test from 'node:test'
import { arrow, data, fixture, gpubufd, opener, withArrow } from './harness.mjs'

const { daemon, connect } = await fixture()
const c = await connect()
const opened = opener(c)

const plain = vector => JSON.parse(JSON.stringify([...vector].map(simple)))
function simple (value) {
  if (typeof value === 'bigint') return `${value}n`
  if (value?.toJSON) value = value.toJSON()
  if (ArrayBuffer.isView(value)) return [...value].map(simple)
  if (Array.isArray(value)) return value.map(simple)
  if (value instanceof Date) return value.getTime()
  if (value && typeof value === 'object') return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, simple(v)]))
  return value
}

/** Publishes, opens, and compares, also slices. */
function roundTrip (vector, dtype) {
  return opened(vector, column => {
    assert.equal(column.dtype, dtype)
    assert.equal(column.length, vector.length)
    const back = column.toArrow()
    assert.equal(String(back.type), String(vector.type))
    assert.deepEqual(plain(back), plain(vector))
    assert.equal(back.nullCount, vector.nullCount)
    for (const [begin, end] of [[1, vector.length], [Math.min(3, vector.length), vector.length], [0, 1], [2, 2]]) {
      const part = column.slice(begin, end).toArrow()
      assert.deepEqual(plain(part), plain(vector).slice(begin, end), `${dtype} [${begin}, ${end})`)
    }
  })
}

function vectors () {
  const from = arrow.vectorFromArray
  const days = [new Date(0), null, new Date(86400000 * 365), new Date(86400000)]
  return [
    ['bool', from([true, null, false, true, true, false, null, true, true, true, false], new arrow.Bool())],
    ['int8', from([1, null, -3, 4], new arrow.Int8())],
    ['uint16', from([1, 2, 3, 65535], new arrow.Uint16())],
    ['int64', from([1n, null, -(2n ** 62n)], new arrow.Int64())],
    ['uint64', from([1n, 2n ** 64n - 1n, null], new arrow.Uint64())],
    ['float16', from([1, null, 0.5], new arrow.Float16())],
    ['float32', from([1.5, null, -2.25], new arrow.Float32())],
    ['float64', from([1.1, null, NaN], new arrow.Float64())],
    ['utf8', from(['a', null, '', 'größer', 'z'], new arrow.Utf8())],
    ['large_utf8', from(['a', null, '', 'größer', 'z'], new arrow.LargeUtf8())],
    ['binary', from([Uint8Array.of(1, 2), null, Uint8Array.of()], new arrow.Binary())],
    ['fixed_binary(3)', from([Uint8Array.of(1, 2, 3), null, Uint8Array.of(4, 5, 6)], new arrow.FixedSizeBinary(3))],
    ['date32', from(days, new arrow.DateDay())],
    ['date64', from(days, new arrow.DateMillisecond())],
    ['time32[ms]', from([1, null, 3], new arrow.TimeMillisecond())],
    ['time64[ns]', from([1n, null, 3n], new arrow.TimeNanosecond())],
    ['timestamp[us]', from([1, null, 3], new arrow.TimestampMicrosecond())],
    ['timestamp[ms,Europe/Vienna]', from([1, null, 3], new arrow.TimestampMillisecond('Europe/Vienna'))],
    ['duration[s]', from([1n, null, 3n], new arrow.DurationSecond())],
    ['null', from([null, null, null], new arrow.Null())],
    ['dictionary', from(['x', 'y', null, 'x', 'z'], new arrow.Dictionary(new arrow.Utf8(), new arrow.Int32()))],
    ['list', from([[1, null, 3], null, [], [4]], new arrow.List(new arrow.Field('item', new arrow.Int32(), true)))],
    ['fixed_list(2)', from([[1, 2], null, [5, null]],
      new arrow.FixedSizeList(2, new arrow.Field('item', new arrow.Float64(), true)))],
    ['struct', from([{ a: 1, b: 'x' }, null, { a: null, b: 'z' }], new arrow.Struct([
      new arrow.Field('a', new arrow.Int16(), true), new arrow.Field('b', new arrow.Utf8(), true)]))],
    ['list', from([[{ a: ['x', null] }, { a: [] }], null, [{ a: null }]],
      new arrow.List(new arrow.Field('item', new arrow.Struct([
        new arrow.Field('a', new arrow.List(new arrow.Field('item', new arrow.Utf8(), true)), true)]), true)))]
  ]
}

test('every type there and back, whole and sliced', withArrow, async () => {
  for (const [dtype, vector] of vectors()) await roundTrip(vector, dtype)
})

test('sliced vectors are published as what they show', withArrow, async () => {
  for (const [dtype, vector] of vectors()) {
    for (const [begin, end] of [[1, vector.length], [1, 2], [0, 0]]) {
      const part = vector.slice(begin, end)
      await opened(part, column =>
        assert.deepEqual(plain(column.toArrow()), plain(vector).slice(begin, end), `${dtype} [${begin}, ${end})`))
    }
  }
})

test('chunks become one column', withArrow, async () => {
  for (const [dtype, vector] of vectors()) {
    if (dtype === 'null') continue
    const chunked = vector.slice(1).concat(vector, vector.slice(0, 2))
    const expected = [...plain(vector).slice(1), ...plain(vector), ...plain(vector).slice(0, 2)]
    await opened(chunked, column => {
      assert.equal(column.length, expected.length)
      assert.deepEqual(plain(column.toArrow()), expected, dtype)
    })
  }
})

test('chunks with dictionaries of their own', withArrow, async () => {
  const type = () => new arrow.Dictionary(new arrow.Utf8(), new arrow.Int8())
  const one = arrow.vectorFromArray(['a', 'b', null], type())
  const two = arrow.vectorFromArray(['c', 'a'], type())
  await opened(new arrow.Vector([one.data[0], two.data[0]]), column =>
    assert.deepEqual(plain(column.toArrow()), ['a', 'b', null, 'c', 'a']))
})

test('decimals', withArrow, async () => {
  const type = new arrow.Decimal(2, 10, 128)
  const words = new Uint32Array([12345, 0, 0, 0, 0, 0, 0, 0, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff])
  const vector = arrow.makeVector(arrow.makeData({ type, length: 3, data: words }))
  await opened(vector, column => {
    assert.equal(column.dtype, 'decimal128(10,2)')
    assert.deepEqual(column.toArrow().data[0].values, words)
  })
})

test('a table keeps names, metadata and nulls', withArrow, async () => {
  const table = new arrow.Table({
    n: arrow.vectorFromArray([1, null, 3], new arrow.Int32()), s: arrow.vectorFromArray(['x', null, 'z'], new arrow.Utf8())
  })
  await c.put('table', table)
  const object = await c.open('table')
  assert.deepEqual(object.toArrow().toArray().map(row => row.toJSON()), table.toArray().map(row => row.toJSON()))
  assert.deepEqual(object.slice(1).toArrow().toArray().map(row => row.toJSON()),
    table.slice(1).toArray().map(row => row.toJSON()))
  const noted = new arrow.Schema([new arrow.Field('n', new arrow.Int32(), true, new Map([['unit', 'm']]))],
    new Map([['author', 'me'], ['', 'ü "']]))
  await c.put('noted', new arrow.Table(noted, new arrow.RecordBatch(noted, arrow.makeData({
    type: new arrow.Struct(noted.fields), length: 2, children: [arrow.makeData({ type: new arrow.Int32(), data: Int32Array.of(1, 2) })]
  }))))
  const opened = await c.open('noted')
  const { schema } = opened.toArrow()
  assert.equal(schema.fields[0].metadata.get('unit'), 'm')
  assert.deepEqual([...schema.metadata], [...noted.metadata])
  assert.deepEqual([...opened.slice(1).toArrow().schema.metadata], [...noted.metadata])
  assert.deepEqual([...opened.metadata], [...noted.metadata])
  const made = await c.create('noted', { kind: 'table', length: 0, columns: [], metadata: { a: 'b' } }, { replace: true })
  await made.seal()
  assert.deepEqual((await c.stat('noted')).layout.metadata, { a: 'b' })
  made.release()
  opened.release()
  object.release()
  await c.put('no rows', table.slice(0, 0))
  const none = await c.open('no rows')
  assert.equal(none.toArrow().numRows, 0)
  none.release()
})

test('200 000 flights: an IPC file published, and no byte copied on the way out', withArrow, async () => {
  const file = await readFile(data('flights-200k.arrow'))
  await c.put('flights', file)
  const flights = await c.open('flights')
  const expected = arrow.tableFromIPC(file)
  const before = process.memoryUsage()
  const table = flights.toArrow()
  const after = process.memoryUsage()
  assert.ok(after.arrayBuffers - before.arrayBuffers < 10_000, 'memory was copied')
  assert.equal(table.numRows, 200_000)
  for (const [i, field] of expected.schema.fields.entries()) {
    const column = flights.columnAt(i)
    const [chunk] = table.getChildAt(i).data
    assert.equal(chunk.values.buffer, column.values.buffer)
    assert.equal(chunk.values.byteOffset, column.values.byteOffset)
    assert.equal(table.schema.fields[i].name, field.name)
    assert.deepEqual(Buffer.compare(Buffer.from(column.values.buffer, column.values.byteOffset, column.values.byteLength),
      Buffer.from(expected.getChildAt(i).toArray().buffer, expected.getChildAt(i).toArray().byteOffset, column.values.byteLength)), 0)
  }
  // And as a stream, told apart by its first bytes; or kept as what it is.
  await c.put('stream', arrow.tableToIPC(table.slice(0, 1000), 'stream'))
  const stream = await c.open('stream')
  assert.deepEqual(stream.toArrow().get(999).toJSON(), expected.get(999).toJSON())
  await c.put('file', file, { as: 'bytes' })
  const bytes = await c.open('file')
  assert.equal(Buffer.compare(bytes.bytes, file), 0)
  for (const object of [flights, stream, bytes]) object.release()
})

test('what the command line published, and the other way round', withArrow, async () => {
  await daemon.ctl('put', 'movies', data('movies.csv'))
  const movies = await c.open('movies')
  const table = movies.toArrow()
  assert.deepEqual(table.schema.fields.map(field => field.name), movies.columnNames)
  assert.equal(table.numRows, movies.numRows)
  for (const column of movies.columns) {
    const vector = table.getChild(column.columnName)
    assert.equal(vector.nullCount, column.nullCount)
    let nulls = 0
    for (let i = 0; i < vector.length; i++) nulls += !vector.isValid(i)
    assert.equal(nulls, column.nullCount, column.columnName)
  }
  await c.put('movies again', table)
  for (const form of ['csv', 'json']) {
    const shown = await daemon.ctl('get', 'movies', '--format', form).catch(() => undefined)
    if (shown !== undefined) assert.equal(await daemon.ctl('get', 'movies again', '--format', form), shown)
  }
  movies.release()
})

test('arrays and bytes are vectors; further axes are lists of fixed size', withArrow, async () => {
  await c.put('array', Float64Array.of(1, 2, 3))
  await c.put('matrix', Float64Array.of(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12), { shape: [3, 2, 2] })
  await c.put('scalar', Float64Array.of(7), { shape: [] })
  await c.put('no rows of three', Float64Array.of(), { shape: [0, 3] })
  await c.put('bytes', Buffer.from([1, 2]))
  await c.put('complex', Float32Array.of(1, 2), { dtype: 'complex64', shape: [1] })
  const objects = await c.openMany(['array', 'matrix', 'bytes', 'complex', 'scalar', 'no rows of three'])
  const [array, matrix, bytes, complex, scalar, none] = objects
  assert.deepEqual(plain(array.slice(1).toArrow()), [2, 3])
  assert.deepEqual(plain(bytes.toArrow()), [1, 2])
  const lists = matrix.toArrow()
  assert.equal(String(lists.type), 'FixedSizeList[2]<FixedSizeList[2]<Float64>>')
  assert.deepEqual(plain(lists), [[[1, 2], [3, 4]], [[5, 6], [7, 8]], [[9, 10], [11, 12]]])
  assert.deepEqual(plain(matrix.slice(1, 2).toArrow()), [[[5, 6], [7, 8]]])
  assert.deepEqual([plain(scalar.toArrow()), plain(none.toArrow())], [[7], []])
  assert.throws(() => complex.toArrow(), { kind: 'unsupported' })
  assert.deepEqual(plain(await array.toHost()), [1, 2, 3]) // of host memory: a copy
  const made = await c.create('masked', { kind: 'array', dtype: 'int8', shape: [3, 3], mask: true })
  made.values.set([1, 2, 3, 4, 5, 6, 7, 8, 9])
  await made.write(Uint8Array.of(0b11011011, 1), { buffer: 'mask' })
  await made.seal()
  objects.push(made, await c.open('masked'))
  assert.deepEqual(plain(objects.at(-1).toArrow()), [[1, 2, null], [4, 5, null], [7, 8, 9]])
  assert.deepEqual(plain(objects.at(-1).slice(1).toArrow()), [[4, 5, null], [7, 8, 9]])
  for (const object of objects) object.release()
})

test('record batches, one by one and as streams', withArrow, async () => {
  const batches = [[1, null], [3], [], [4, 5, 6]].map(values => new arrow.Table({
    n: arrow.vectorFromArray(values, new arrow.Int32()), s: arrow.vectorFromArray(values.map(String), new arrow.Utf8())
  }).batches[0])
  const rows = batches.flatMap(batch => batch.toArray().map(row => row.toJSON()))
  const shown = async name => {
    using.push(await c.open(name))
    return using.at(-1).toArrow().toArray().map(row => row.toJSON())
  }
  const using = []
  await c.put('stream/batch', batches[3])
  assert.deepEqual(await shown('stream/batch'), rows.slice(3))
  await c.put('stream/batches', (async function * () { yield * batches })())
  assert.deepEqual(await shown('stream/batches'), rows)
  await c.put('stream/read', await arrow.RecordBatchReader.from(arrow.RecordBatchStreamWriter.writeAll(batches).toUint8Array()))
  assert.deepEqual(await shown('stream/read'), rows)
  const file = arrow.tableToIPC(new arrow.Table(batches), 'file')
  const { Readable } = await import('node:stream')
  await c.put('stream/file', Readable.from([file.subarray(0, 20), file.subarray(20)].map(part => Buffer.from(part))))
  assert.deepEqual(await shown('stream/file'), rows)
  await c.put('stream/bytes of a stream', Readable.from([Buffer.from('ab'), Buffer.from('c')]))
  using.push(await c.open('stream/bytes of a stream'))
  assert.equal(Buffer.from(using.at(-1).bytes).toString(), 'abc')
  for (const wrong of [[], [1], ['text'], [batches[0], Buffer.from('x')]]) {
    await assert.rejects(c.put('no', (async function * () { yield * wrong })()), TypeError, String(wrong))
  }
  await assert.rejects(c.put('no', (async function * () { throw new Error('its own') })()), { message: 'its own' })

  const table = await c.open('stream/batches')
  using.push(table)
  const parts = []
  for await (const batch of table.batches(4)) parts.push(batch)
  assert.deepEqual(parts.map(batch => batch.numRows), [4, 2])
  assert.deepEqual(parts.flatMap(batch => batch.toArray().map(row => row.toJSON())), rows)
  assert.equal(parts[1].data.children[0].values.buffer, table.column('n').values.buffer) // no copy
  const written = []
  for await (const part of Readable.from(table.batches(1)).pipe(arrow.RecordBatchStreamWriter.throughNode())) written.push(part)
  assert.deepEqual(arrow.tableFromIPC(Buffer.concat(written)).toArray().map(row => row.toJSON()), rows)
  const none = []
  for await (const batch of table.slice(0, 0).batches()) none.push(batch.numRows)
  assert.deepEqual(none, [0])
  for (const wrong of [0, 1.5, '4', -1]) await assert.rejects(table.batches(wrong).next(), RangeError)
  await assert.rejects(table.batches(1, { signal: AbortSignal.abort() }).next(), { name: 'AbortError' })
  for (const one of using) one.release()
})

test('a map comes back as a map', withArrow, async () => {
  const type = new arrow.Map_(new arrow.Field('entries', new arrow.Struct([
    new arrow.Field('key', new arrow.Utf8(), false), new arrow.Field('value', new arrow.Int32(), true)]), false))
  const map = arrow.vectorFromArray([{ a: 1 }, null, { b: null, c: 3 }, {}], type)
  const pairs = [[{ key: 'a', value: 1 }], null, [{ key: 'b', value: null }, { key: 'c', value: 3 }], []]
  for (const [skip, vector] of [[0, map], [2, map.slice(2)], [0, map.slice(0, 2).concat(map.slice(2))]]) {
    await opened(new arrow.Table({ m: vector }), table => {
      const back = table.column('m').toArrow()
      assert.equal(String(back.type), String(vector.type))
      assert.deepEqual([...back].map(row => row && [...row].map(([key, value]) => ({ key, value }))), pairs.slice(skip))
      assert.equal(table.column('m').dtype, 'map')
    })
  }
})

test('intervals', withArrow, async () => {
  const types = {
    month_interval: [new arrow.IntervalYearMonth(), 1], day_time_interval: [new arrow.IntervalDayTime(), 2],
    month_day_nano_interval: [new arrow.IntervalMonthDayNano(), 4]
  }
  for (const [dtype, [type, stride]] of Object.entries(types)) {
    const data = Int32Array.from({ length: 3 * stride }, (_, i) => i - 2)
    const vector = arrow.makeVector({ type, data, length: 3, nullCount: 1, nullBitmap: Uint8Array.of(0b101) })
    await opened(new arrow.Table({ x: vector }), table => {
      const back = table.column('x').toArrow()
      assert.equal(table.column('x').dtype, dtype)
      assert.equal(String(back.type), String(type))
      assert.deepEqual(plain(back), plain(vector))
      assert.deepEqual(plain(table.slice(1).column('x').toArrow()), plain(vector.slice(1)))
    })
  }
})

test('types that cannot be shared are named', withArrow, async () => {
  const union = arrow.makeVector({ type: new arrow.DenseUnion([], []), typeIds: new Int8Array(0), valueOffsets: new Int32Array(0), children: [], length: 0 })
  await assert.rejects(c.put('union', new arrow.Table({ x: union })), { name: 'TypeError', message: /column "x".*cannot be shared/ })
  await assert.rejects(c.put('broken', Buffer.from('ARROW1 and no more')), Error)
})

test('without apache-arrow everything else works', async () => {
  await opened(Float64Array.of(1), object => {
    if (!arrow) assert.throws(() => object.toArrow(), { kind: 'unsupported', message: /npm install/ })
    assert.equal(object.values[0], 1)
  })
  assert.equal(typeof gpubufd.setArrow, 'function')
})
