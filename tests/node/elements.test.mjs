// Elements of columns, arrays and tables without apache-arrow, and what an object says of itself.

import assert from 'node:assert/strict'
import test from 'node:test'
import * as threads from 'node:worker_threads'
import { arrow, fixture, opener, withArrow } from './harness.mjs'

const { connect } = await fixture()
const c = await connect()
const opened = opener(c)

test('rows become a table, and come back', async () => {
  const day = new Date('2024-02-29T12:00:00.500Z')
  const rows = [{ a: 1, b: 'x' }, { b: 'ÿ𝄞', c: 3n, d: day }, {}, { a: null, e: true }]
  const back = rows.map(row => ({ a: null, b: null, c: null, d: null, e: null, ...row }))
  await opened(rows, table => {
    assert.deepEqual([...table], back)
    assert.deepEqual(table.toArray(), back)
    assert.deepEqual(table.get(-1), back[3])
    assert.equal(table.get(4), undefined)
    assert.equal(table.get(-5), undefined)
    assert.deepEqual(table.slice(1, 3).toArray(), back.slice(1, 3))
    assert.deepEqual(table.column('b').toArray(), back.map(row => row.b))
    assert.deepEqual(table.schema.map(({ name, dtype }) => [name, dtype]),
      [['a', 'float64'], ['b', 'utf8'], ['c', 'int64'], ['d', 'timestamp[ms]'], ['e', 'bool']])
    assert.throws(() => table.get('a'), /the index is a, not a whole number: column\(\) takes a name/)
  })
  await assert.rejects(c.put('value', [{ a: 1 }, 2]), /an array with an object among its elements/)
  await assert.rejects(c.put('value', [{ a: {} }]), /column "a": an array with an object/)
})

test('an array counts its elements in C order', async () => {
  await opened(Float32Array.of(1, 2, 3, 4), array => {
    assert.deepEqual([...array], [1, 2, 3, 4])
    assert.equal(array.get(-1), 4)
  }, { shape: [2, 2] })
  await opened(Uint16Array.of(0x3c00, 0xc100, 0x7c00, 0x0001, 0x7e00), array =>
    assert.deepEqual(array.toArray(), [1, -2.5, Infinity, 2 ** -24, NaN]), { dtype: 'float16' })
  await opened(Uint16Array.of(0x3f80, 0xc020), array => assert.deepEqual(array.toArray(), [1, -2.5]), { dtype: 'bfloat16' })
  await opened(Uint8Array.of(1), array => assert.throws(() => array.get(0), { kind: 'unsupported' }), { dtype: 'float8_e4m3fn' })
})

test('each type has its elements, also in slices', withArrow, async () => {
  const vector = (values, type) => arrow.vectorFromArray(values, type)
  const field = (name, type) => arrow.Field.new({ name, type })
  const fixed = (type, data, width = 1) => arrow.makeVector(arrow.makeData({ type, length: data.length / width, data }))
  const bytes = [Uint8Array.of(1, 2), Uint8Array.of()]
  const cases = [
    [vector([[1, 2], null, [], [3]], new arrow.List(field('item', new arrow.Int32()))), [[1, 2], null, [], [3]]],
    [vector([[1, 2], [3, 4]], new arrow.FixedSizeList(2, field('item', new arrow.Int16()))), [[1, 2], [3, 4]]],
    [vector([{ a: 1, b: 'x' }, null, { a: null, b: 'z' }],
      new arrow.Struct([field('a', new arrow.Int8()), field('b', new arrow.Utf8())])),
    [{ a: 1, b: 'x' }, null, { a: null, b: 'z' }]],
    [vector(['a', 'b', null, 'a'], new arrow.Dictionary(new arrow.Utf8(), new arrow.Int8())), ['a', 'b', null, 'a']],
    [vector([true, null, false]), [true, null, false]],
    [vector(bytes, new arrow.Binary()), bytes],
    [vector([new Date(0), null], new arrow.DateDay()), [new Date(0), null]],
    [fixed(new arrow.TimestampSecond(), BigInt64Array.of(-1n)), [new Date(-1000)]],
    [fixed(new arrow.TimestampNanosecond(), BigInt64Array.of(5n)), [5n]],
    [fixed(new arrow.Decimal(2, 10, 128), Uint32Array.of(1234, 0, 0, 0, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff), 4), ['12.34', '-0.01']],
    [fixed(new arrow.IntervalDayTime(), Int32Array.of(1, -2), 2), [[1, -2]]],
    [vector([1n, -2n, null]), [1n, -2n, null]]
  ]
  for (const [value, expected] of cases) {
    await opened(value, column => {
      assert.deepEqual(column.toArray(), expected, column.dtype)
      assert.deepEqual([...column.slice(1)], expected.slice(1), column.dtype)
      assert.deepEqual(column.get(0), expected[0], column.dtype)
    })
  }
})

test('what was released has no elements', async () => {
  await c.put('value', [1, 2], { replace: true })
  const column = await c.open('value')
  const [first] = column
  const rest = column[Symbol.iterator]()
  rest.next()
  column.release()
  assert.equal(first, 1)
  assert.throws(() => column.get(0), { kind: 'stale' })
  assert.throws(() => rest.next(), { kind: 'stale' })
})

test('JSON and text describe an object; a message refuses it', async () => {
  await opened({ a: [1] }, table => {
    const { version } = table
    assert.equal(JSON.stringify({ table }),
      `{"table":{"kind":"table","name":"value","version":${version},"length":1,"device":"host"}}`)
    assert.equal(String(table.column('a')), 'Column "value" float64 length 1 on host')
    if (!threads.markAsUncloneable) return // before Node 22.10 nothing can refuse it
    const { port1 } = new threads.MessageChannel()
    assert.throws(() => port1.postMessage(table), { name: 'DataCloneError' })
    port1.close()
  })
})
